"""Captures of models of transformers: their own softmax, in windows, over other vocabularies."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

from mdsd.datasets import read_capture
from mdsd.decoding import MappedModel
from mdsd.decoding.transformers import CausalLM
from mdsd.studies import capture

from ..commands import assert_refused, printed, run
from .folders import WORDS, tiny_llama, word_tokenizer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

OTHER = ["<unk>", "</s>", "x", *WORDS[:4:-1]]
TEXTS = ["w1 w2 w3 w1 w9 w4", "w5", " ".join(f"w{(k * k) % 12}" for k in range(30))]


def save(folder, words, model):
    model.save_pretrained(folder)
    word_tokenizer(words).save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    models = {
        "target": save(place / "target", WORDS, tiny_llama(0)),
        "draft": save(place / "draft", WORDS, tiny_llama(1)),
        "bare": tiny_llama(2),
        "other": save(place / "other", OTHER, tiny_llama(3, len(OTHER))),
    }
    models["bare"].save_pretrained(place / "bare")
    save(place / "target-again" / "target", WORDS, tiny_llama(4))
    save(place / "strange", ["y", "x", "z"], tiny_llama(5, 3))
    (place / "broken").mkdir()
    (place / "broken" / "config.json").write_text("{\n}")
    (place / "p.txt").write_text("\n\n".join(TEXTS))
    return place, models


def call(folders, output, arguments=(), *, target="target", drafts=("draft",)):
    place, _ = folders
    command = ["capture", str(output), "--target", str(place / target)]
    for draft in drafts:
        command += ["--draft-model", str(place / draft)]
    return run(shlex.join([*command, "--prompts", str(place / "p.txt"), *arguments]))


def log_softmax(model, text):
    """Log-probabilities after each token of a text, in one plain forward without a cache."""
    with torch.no_grad():
        logits = model(torch.tensor([text]), use_cache=False).logits[0]
    return torch.log_softmax(logits.double(), dim=-1).numpy()


def ids_of(text):
    return [WORDS.index(word) for word in text.split()]


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_log_probabilities_are_those_of_the_models(folders, tmp_path):
    _, models = folders
    printed(call(folders, tmp_path / "out", ["--top-k", "0"], drafts=("draft", "bare")))
    data = read_capture(tmp_path / "out")
    tables = {"target": data.target_table, **data.draft_tables}
    assert list(tables) == ["target", "draft", "bare"]
    for name, table in tables.items():
        laws = [log_softmax(models[name], ids_of(text))[:-1] for text in TEXTS]
        assert_close(table, np.concatenate(laws))
    assert data.target_kept_mass == pytest.approx(1.0, abs=1e-12)


def test_unions_and_masses(folders, tmp_path):
    _, models = folders
    printed(call(folders, tmp_path / "out", ["--top-k", "3", "--min-context", "2"]))
    data = read_capture(tmp_path / "out")
    row = 0
    for text in (TEXTS[0], TEXTS[2]):
        laws = [np.exp(log_softmax(models[name], ids_of(text))) for name in ("target", "draft")]
        for token in range(1, len(text.split()) - 1):
            best = {i for law in laws for i in np.argsort(-law[token])[:3].tolist()}
            ids = data.token_ids[row]
            assert set(ids[ids >= 0].tolist()) == best
            kept = [law[token][sorted(best)].sum() for law in laws]
            masses = [data.target_kept_mass[row], data.draft_kept_mass["draft"][row]]
            assert_close(masses, kept)
            row += 1
    assert row == data.num_positions


def test_a_text_longer_than_the_context_is_read_in_windows(tmp_path):
    target, draft = tiny_llama(0, context=8), tiny_llama(1, context=64)
    text = np.random.default_rng(0).integers(0, len(WORDS), 30).tolist()
    capture(CausalLM(target), CausalLM(draft), [text], tmp_path / "out", top_k=None)
    data = read_capture(tmp_path / "out")
    expected = []
    for token in range(len(text) - 1):
        start = 0 if token < 8 else 4 * ((token - 8) // 4 + 1)
        assert 0 < token + 1 - start <= 8
        expected.append(log_softmax(target, text[start : token + 1])[-1])
    assert_close(data.target_table, expected)
    assert_close(data.draft_tables["draft_0"], log_softmax(draft, text)[:-1])


def test_blocks_of_a_text_are_one_text(tmp_path):
    target = tiny_llama(0, context=1024)
    text = np.random.default_rng(0).integers(0, len(WORDS), 300).tolist()
    forwards = []
    hook = target.register_forward_hook(lambda *_: forwards.append(1))
    model = CausalLM(target)
    capture(model, model, [text], tmp_path / "out", top_k=None)
    hook.remove()
    # Two blocks, for the target and for the draft model, not one forward a position.
    assert len(forwards) == 4
    assert_close(read_capture(tmp_path / "out").target_table, log_softmax(target, text)[:-1])


def test_a_draft_model_with_another_tokenizer(folders, tmp_path):
    _, models = folders
    printed(call(folders, tmp_path / "out", ["--top-k", "0"], drafts=("other",)))
    data = read_capture(tmp_path / "out")
    shared = [word for word in WORDS if word in OTHER]
    columns = [WORDS.index(word) for word in shared]
    row = 0
    for text in TEXTS:
        own = [OTHER.index(word) if word in OTHER else 0 for word in text.split()]
        laws = np.exp(log_softmax(models["other"], own))[:, [OTHER.index(word) for word in shared]]
        laws /= laws.sum(axis=1, keepdims=True)
        for law in laws[:-1]:
            found = np.exp(data.draft_tables["other"][row])
            assert_close(found[columns], law)
            assert np.delete(found, columns).sum() == 0.0
            row += 1
    assert row == data.num_positions


def test_samples_go_on_after_an_interruption(folders, tmp_path, monkeypatch):
    from mdsd.datasets import CaptureWriter

    options = ["--sample", "--max-new-tokens", "5", "--top-k", "4", "--positions-per-shard", "4"]
    printed(call(folders, tmp_path / "whole", options))
    original, left = CaptureWriter.write_shard, [2]

    def stop(*given):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        original(*given)

    with monkeypatch.context() as patched:
        patched.setattr(CaptureWriter, "write_shard", stop)
        assert call(folders, tmp_path / "out", options).exit_code == 130
    assert read_capture(tmp_path / "out").num_positions == 8
    said = printed(call(folders, tmp_path / "out", options))
    total = read_capture(tmp_path / "whole").num_positions
    assert f"{total} positions, {total - 8} of them new" in said
    for path in (tmp_path / "whole").iterdir():
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()
    assert "nothing left to do" in printed(call(folders, tmp_path / "out", options))


def test_what_was_captured_is_known_again(folders, tmp_path):
    place, _ = folders
    drafts = ("draft", "draft", "bare")
    printed(call(folders, tmp_path / "out", ["--positions", "3"], drafts=drafts))
    text = (tmp_path / "out" / "capture.json").read_text()
    header = json.loads(text)
    assert header["draft_models"] == ["draft", "draft-2", "bare"]
    models = header["provenance"]["models"]
    assert (models["target"]["architecture"], models["target"]["threads"]) == (
        "LlamaForCausalLM",
        1,
    )
    assert models["draft_0"]["sha256"] == models["draft_1"]["sha256"] != models["draft_2"]["sha256"]
    assert header["provenance"]["versions"]["torch"] == torch.__version__.split("+")[0] or (
        header["provenance"]["versions"]["torch"] == torch.__version__
    )
    assert str(place) not in text
    # Of the same name, configuration and size.
    again = call(
        folders, tmp_path / "out", ["--positions", "3"], target="target-again/target", drafts=drafts
    )
    assert_refused(again, "models target sha256")


def test_bfloat16_models(tmp_path):
    target = tiny_llama(0).to(torch.bfloat16)
    text = ids_of(TEXTS[0])
    capture(CausalLM(target), CausalLM(target), [text], tmp_path / "out", top_k=None)
    data = read_capture(tmp_path / "out")
    with torch.no_grad():
        logits = target(torch.tensor([text]), use_cache=False).logits[0]
    expected = torch.log_softmax(logits.double(), dim=-1).numpy()[:-1]
    np.testing.assert_allclose(data.target_table, expected, atol=0.2)
    assert np.exp(data.target_table).sum(axis=1) == pytest.approx(1.0, abs=1e-6)


def test_models_of_other_kinds_work_together(tmp_path):
    """A model of transformers with a draft model of n-grams, mapped."""
    from mdsd.decoding import NGramModel

    target = tiny_llama(0)
    draft = MappedModel(NGramModel([0, 1, 2, 1, 0], 3, 2), [2, 3, 4], len(WORDS))
    found = capture(CausalLM(target), draft, [ids_of(TEXTS[0])], tmp_path / "out")
    assert found.positions == 5
    assert np.isneginf(read_capture(tmp_path / "out").draft_tables["draft_0"]).any()


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ("strange", ["no token in common"]),
        ("broken", ["broken", "cannot be loaded"]),
        ("nothere", ["nothere", "no folder"]),
    ],
)
def test_bad_folders_are_one_line(folders, tmp_path, draft, words):
    assert_refused(call(folders, tmp_path / "out", drafts=(draft,)), *words)
    assert not (tmp_path / "out").exists()


def test_nan_weights_are_named(folders, tmp_path):
    broken = tiny_llama(1)
    with torch.no_grad():
        broken.lm_head.weight[3, 0] = float("nan")
    save(tmp_path / "broken", WORDS, broken)
    result = call(folders, tmp_path / "out", drafts=(str(tmp_path / "broken"),))
    assert_refused(result, "logits of draft model 'broken' after token 0 of prompts[0]", "nan")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["capture.json"]


def test_a_model_that_has_forgotten_reads_its_prefix_again():
    model = CausalLM(tiny_llama(0, context=32))
    mapped = MappedModel(model, range(len(WORDS)), len(WORDS))
    assert model.context_length == mapped.context_length == 32
    read = []
    model.model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    before = model.logits([[1, 2, 3, 4]])
    model.logits([[1, 2, 3, 4, 5]])
    mapped.forget()
    after = model.logits([[1, 2, 3, 4]])
    assert read == [4, 1, 4]
    assert (before == after).all()
