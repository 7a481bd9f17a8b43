"""`mdsd decode` with models of transformers from local folders."""

from __future__ import annotations

import inspect
import json
import shlex
import warnings
from contextlib import contextmanager

import pytest

import mdsd
from mdsd.decoding.verification import PATH_VERIFICATIONS

from ..commands import assert_refused, printed, run
from .folders import WORDS, tiny_llama, word_tokenizer

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


def save(folder, words, seed, *, tokenizer=True, size=None, **options):
    model = tiny_llama(seed, len(words) if size is None else size, **options)
    model.save_pretrained(folder)
    if tokenizer:
        word_tokenizer(words).save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    models = {
        "target": save(place / "target", WORDS, 0),
        "draft": save(place / "draft", WORDS, 1),
        "bare": save(place / "bare", WORDS, 2, tokenizer=False),
        "padded": save(place / "padded", WORDS, 3, size=len(WORDS) + 3),
        "other": save(place / "other", ["<unk>", "</s>", "x", *WORDS[:4:-1]], 4),
        "short": save(place / "short", WORDS, 6, context=8),
        "ending": save(place / "ending", WORDS, 0, eos=list(range(2, len(WORDS)))),
    }
    save(place / "strange", ["y", "x", "z"], 5)
    (place / "broken").mkdir()
    (place / "broken" / "config.json").write_text("{\n}")
    return place, models


def call(folders, arguments, target="target"):
    place, _ = folders
    command = ["decode", "--target", str(place / target), "--prompt", "w1 w2", "--json"]
    return run(shlex.join([*command, *arguments]))


def report_of(folders, arguments, **options):
    return json.loads(printed(call(folders, arguments, **options)))


@contextmanager
def forwards(models):
    """Note the forwards of all models, whoever has loaded them."""
    kind, counted = type(models["target"]), []
    forward = kind.forward

    def noted(self, *given, **options):
        counted.append(self)
        return forward(self, *given, **options)

    with pytest.MonkeyPatch.context() as patch:
        noted.__signature__ = inspect.signature(forward)
        patch.setattr(kind, "forward", noted)
        yield counted


def greedy_words(model, count):
    ids = torch.tensor([[WORDS.index("w1"), WORDS.index("w2")]])
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=count,
        eos_token_id=-1,
        pad_token_id=0,
    )
    return [WORDS[token] for token in found[0, 2:].tolist()]


@pytest.mark.parametrize("draft", ["draft", "bare", "padded", "other"])
@pytest.mark.parametrize("verifier", ["rrs", "block", "layers"])
def test_greedy_text_is_the_targets(folders, draft, verifier):
    place, models = folders
    words = [word for word in greedy_words(models["target"], 10) if not word.startswith("<")]
    report = report_of(
        folders,
        [
            *["--draft-model", str(place / draft), "--temperature", "0"],
            *["--max-new-tokens", "10", "--verifier", verifier],
        ],
    )
    assert report["text"].split() == words
    assert report["settings"]["draft_models"] == [str(place / draft)]


def test_a_draft_model_that_is_the_target_is_always_accepted(folders):
    place, _ = folders
    arguments = ["--draft-model", str(place / "target"), "--max-new-tokens", "16"]
    arguments += ["--tree", "1,1,1", "--draft", "with_replacement", "--verifier", "single"]
    (row,) = report_of(folders, arguments)["rows"]
    assert row["acceptance_by_depth"] == [1.0, 1.0, 1.0]
    assert (row["tokens"], row["target_calls"]) == (16, 4)


@pytest.mark.parametrize("more", [["--tree", "2,1"], ["--grow", "4"], ["--compare"]], ids=str)
def test_a_draft_model_with_a_shorter_context_is_told_of_once(folders, more):
    place, _ = folders
    arguments = ["--draft-model", str(place / "short"), "--max-new-tokens", "12", *more]
    if more == ["--compare"]:
        arguments += ["--verifier", "rrs", "--draft", "with_replacement", "--seeds", "1"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = call(folders, arguments)
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("mdsd: warning: draft_model was made for texts of 8 tokens")
    assert json.loads(result.stdout)["rows"][0]["target_calls"] > 1


@pytest.mark.parametrize(
    ("more", "most"),
    [
        (["--tree", "2,1"], 7),
        (["--grow", "4"], 7),
        (["--compare", "--tree", "2,1", "--verifier", "rrs", "--scheme", "tree"], 5),
    ],
    ids=str,
)
def test_texts_longer_than_the_target_can_read_are_refused(folders, more, most):
    place, models = folders
    arguments = ["--draft-model", str(place / "draft"), *more, "--max-new-tokens"]
    with forwards(models) as count:
        refused = call(folders, [*arguments, str(most + 1)], target="short")
    assert_refused(refused, f"of 8: expected at most {most}", "prompt of 2 tokens")
    assert count == []
    assert call(folders, [*arguments, str(most)], target="short").exit_code == 0


def test_independent_drafts_take_a_model_each(folders):
    place, _ = folders
    two = ["--draft-model", str(place / "draft"), "--draft-model", str(place / "other")]
    arguments = [*two, "--draft", "independent", "--tree", "2,2", "--max-new-tokens", "6"]
    (row,) = report_of(folders, arguments)["rows"]
    assert (row["draft"], row["tokens"]) == ("independent", 6)


def test_end_tokens_of_the_model_end_the_text(folders):
    place, _ = folders
    report = report_of(folders, ["--draft-model", str(place / "draft")], target="ending")
    (row,) = report["rows"]
    assert row["tokens"] < 64
    assert len(report["text"].split()) == 1


def test_comparison_of_folders(folders):
    place, _ = folders
    arguments = ["--draft-model", str(place / "draft"), "--compare", "--seeds", "2"]
    arguments += ["--tree", "2,1", "--max-new-tokens", "5"]
    rows = report_of(folders, arguments)["rows"]
    names = {*mdsd.verifier_names(), *PATH_VERIFICATIONS} - {"spechub"}
    assert {row["verifier"] for row in rows} == names


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ("strange", ["no token in common"]),
        ("broken", ["broken", "cannot be loaded"]),
        ("nothere", ["nothere", "no folder"]),
    ],
)
def test_bad_folders_are_one_line(folders, draft, words):
    place, _ = folders
    assert_refused(call(folders, ["--draft-model", str(place / draft)]), *words)
