"""`mdsd.studies.capture` with models of one's own: what they are asked, and what is kept."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.datasets import read_capture
from mdsd.decoding import MappedModel, NGramModel, TableModel
from mdsd.decoding.windows import window_start
from mdsd.errors import InvalidArgumentError, InvalidDistributionError
from mdsd.studies import capture
from mdsd.studies.capturing.identity import describe_model
from mdsd.studies.capturing.positions import most_probable

from ..decoding.toys import PrefixModel

TARGET = TableModel([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.0, 0.5, 0.5]])
DRAFT = TableModel([[0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.4, 0.4]])


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rows_of(folder: Path) -> list[tuple[list[int], list[float], list[float]]]:
    """Ids of each row, and the probabilities of target and first draft model, without padding."""
    data = read_capture(folder)
    (drafts, *_) = data.draft_tables.values()
    found = []
    for ids, target, draft in zip(data.token_ids, data.target_table, drafts, strict=True):
        kept = ids >= 0
        found.append((ids[kept].tolist(), np.exp(target[kept]), np.exp(draft[kept])))
    return found


# --- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64])
@pytest.mark.parametrize("count", [1, 2, 5, 11, 12, 99])
def test_most_probable_tokens_with_ties_to_the_lowest_id(dtype, count):
    rng = np.random.default_rng(count)
    logits = rng.integers(-2, 3, 12).astype(dtype)
    expected = sorted(range(12), key=lambda token: (-logits[token], token))[:count]
    assert sorted(most_probable(logits, count).tolist()) == sorted(expected)


def test_a_model_that_gives_probabilities_is_warned_of_once(tmp_path):
    class Probs:
        vocab_size = 3

        def logits(self, prefixes):
            return np.exp(DRAFT.logits(prefixes))

    with pytest.warns(UserWarning, match="logits of b hold nothing negative") as caught:
        capture(TARGET, [DRAFT, Probs()], [[0, 1, 2], [2, 0]], tmp_path, names=["t", "a", "b"])
    assert len(caught) == 1


def test_tokens_that_are_not_possible_are_not_kept():
    logits = np.array([-np.inf, 1.0, -np.inf, 0.0, -np.inf])
    assert most_probable(logits, 1).tolist() == [1]
    assert most_probable(logits, 4).tolist() == [1, 3]


def test_zeros_of_one_model_are_kept_for_the_other(tmp_path):
    capture(TARGET, DRAFT, [[2, 0]], tmp_path / "a", top_k=2)
    ((ids, target, draft),) = rows_of(tmp_path / "a")
    assert ids == [1, 2]
    capture(TARGET, TableModel(np.eye(3)[[1, 0, 0]]), [[2, 0]], tmp_path / "b", top_k=2)
    ((ids, target, draft),) = rows_of(tmp_path / "b")
    assert ids == [0, 1, 2]
    np.testing.assert_allclose(target, [0.0, 0.5, 0.5], atol=1e-7)
    np.testing.assert_allclose(draft, [1.0, 0.0, 0.0], atol=1e-7)


def test_one_token_and_several_draft_models(tmp_path):
    one = TableModel([[1.0]])
    found = capture(one, [one, one], [[0, 0]], tmp_path / "one", names=["a", "b", "c"])
    assert (found.positions, found.overlap) == (1, {"b": 1.0, "c": 1.0})
    assert pickle.loads(pickle.dumps(found)) == found
    models = [PrefixModel(seed, 9) for seed in range(4)]
    capture(models[0], models[1:], [[1, 2, 3]], tmp_path / "many", top_k=2)
    data = read_capture(tmp_path / "many")
    for row, prefix in enumerate([[1], [1, 2]]):
        laws = [model.probs(prefix) for model in models]
        ids = sorted({token for law in laws for token in np.argsort(-law)[:2].tolist()})
        assert data.token_ids[row][: len(ids)].tolist() == ids
        tables = [data.target_table, *data.draft_tables.values()]
        for table, law in zip(tables, laws, strict=True):
            np.testing.assert_allclose(np.exp(table[row][: len(ids)]), law[ids], rtol=1e-6)


def test_mapped_draft_models(tmp_path):
    draft = MappedModel(TableModel([[0.5, 0.5], [0.25, 0.75]]), [2, 0], 3)
    capture(TARGET, draft, [[0, 2, 1]], tmp_path / "mapped", top_k=None)
    laws = [law for _, _, law in rows_of(tmp_path / "mapped")]
    np.testing.assert_allclose(laws, [[0.75, 0.0, 0.25], [0.5, 0.0, 0.5]], atol=1e-7)


# --- what models are asked -----------------------------------------------------------------------


class Recorder(PrefixModel):
    """Remembers what it is asked; made for a few tokens at a time."""

    def __init__(self, context_length: int | None = None) -> None:
        super().__init__(0, 6)
        if context_length is not None:
            self.context_length = context_length


def test_one_call_for_many_positions(tmp_path):
    target, draft = Recorder(), Recorder()
    texts = [list(np.arange(600) % 6), [1, 2, 3]]
    capture(target, draft, texts, tmp_path / "calls", min_context=2)
    expected = [(2, 257), (258, 513), (514, 599), (2, 2)]
    for model in (target, draft):
        found = [(len(prefixes[0]), len(prefixes[-1])) for prefixes in model.calls]
        assert found == expected
        assert all(
            prefix == list(map(int, text[: len(prefix)]))
            for prefixes, text in zip(model.calls, [texts[0]] * 3 + texts[1:], strict=True)
            for prefix in prefixes
        )


@pytest.mark.parametrize("context_length", [1, 2, 3, 7, 20, 600])
def test_windows_hold_at_least_half_a_context(tmp_path, context_length):
    target = Recorder(context_length)
    text = np.random.default_rng(0).integers(0, 6, 50).tolist()
    capture(target, TableModel(np.full((6, 6), 1 / 6)), [text], tmp_path / "long", top_k=None)
    asked = [prefix for prefixes in target.calls for prefix in prefixes]
    assert len(asked) == 49
    for row, (prefix, (_, law, _)) in enumerate(
        zip(asked, rows_of(tmp_path / "long"), strict=True)
    ):
        assert prefix == text[row + 1 - len(prefix) : row + 1]
        assert min(row + 1, (context_length + 1) // 2) <= len(prefix) <= context_length
        np.testing.assert_allclose(law, target.probs(prefix), rtol=1e-6)


def test_windows_move_by_half_a_context():
    starts = [window_start(token, 6) for token in range(13)]
    assert starts == [0, 0, 0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9]
    assert {window_start(token, None) for token in (0, 10**6)} == {0}


class Forgetful(PrefixModel):
    """Returns other logits after each call, unless it is told to forget."""

    calls_since = 0

    def __init__(self) -> None:
        super().__init__(1, 6)

    def forget(self) -> None:
        self.calls_since = 0

    def logits(self, prefixes: list[list[int]]) -> np.ndarray:
        self.calls_since += 1
        return super().logits(prefixes) * (1.0 + 0.1 * self.calls_since)


@pytest.mark.parametrize("sample", [False, True])
def test_what_a_model_has_read_before_does_not_matter(tmp_path, monkeypatch, sample):
    texts = [[1, 2, 3, 4], list(np.arange(300) % 6), [3, 3]]
    options: dict[str, Any] = {"top_k": 3, "positions_per_shard": 50, "sample": sample}
    if sample:
        options |= {"max_new_tokens": 60}
    capture(Forgetful(), PrefixModel(2, 6), texts, tmp_path / "whole", **options)

    from mdsd.studies.capturing import runs

    original, left = runs.captured_position, [130]

    def stop(*given: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return original(*given)

    with monkeypatch.context() as patched:
        patched.setattr(runs, "captured_position", stop)
        with pytest.raises(KeyboardInterrupt):
            capture(Forgetful(), PrefixModel(2, 6), texts, tmp_path / "parts", **options)
    used = Forgetful()
    used.logits([[5]])
    found = capture(used, PrefixModel(2, 6), texts, tmp_path / "parts", **options)
    assert found.added == found.positions - 100
    assert content(tmp_path / "parts") == content(tmp_path / "whole")


def test_a_long_beginning_is_read_in_pieces(tmp_path):
    text = list(np.arange(1000) % 6)
    reading, plain = Forgetful(), PrefixModel(2, 6)
    capture(reading, plain, [text], tmp_path / "pieces", min_context=900)
    # Those that keep what they read do not read 900 tokens in one go.
    assert [len(prefixes[-1]) for prefixes in reading.calls] == [256, 512, 768, 999]
    assert [len(prefixes[-1]) for prefixes in plain.calls] == [999]


# --- samples -------------------------------------------------------------------------------------


def test_an_end_token_ends_a_sample(tmp_path):
    chain = TableModel(np.eye(4)[[1, 2, 3, 0]])
    for ends, count in ((None, 8), (3, 2), ([0, 3], 2), ([0], 3)):
        folder = tmp_path / str(ends)
        options: dict[str, Any] = {"sample": True, "max_new_tokens": 8, "eos_token_id": ends}
        found = capture(chain, chain, [[0, 1]], folder, **options)
        assert found.positions == count
        assert found.overlap == {"draft_0": 1.0}


def test_samples_at_temperature_0_are_the_most_likely(tmp_path):
    capture(
        TARGET,
        DRAFT,
        [[0]],
        tmp_path / "greedy",
        sample=True,
        temperature=0.0,
        max_new_tokens=4,
        top_k=0,
    )
    laws = [law for _, law, _ in rows_of(tmp_path / "greedy")]
    np.testing.assert_allclose(laws, [[0.5, 0.3, 0.2]] * 4, atol=1e-7)


def test_a_prompt_has_its_own_stream(tmp_path):
    target = NGramModel(np.random.default_rng(0).integers(0, 6, 400), 6, 4)
    options: dict[str, Any] = {"sample": True, "max_new_tokens": 12, "top_k": 0}
    for name, texts in {"two": [[1, 2], [3, 4]], "other": [[5, 5, 5], [3, 4]]}.items():
        capture(target, target, texts, tmp_path / name, **options)
    two, other = (read_capture(tmp_path / name).target_table for name in ("two", "other"))
    assert (two[12:] == other[12:]).all()
    assert (two[:12] != other[:12]).any()


# --- what is refused -----------------------------------------------------------------------------


class Broken(PrefixModel):
    """Returns something wrong at one prefix."""

    def __init__(self, wrong: Any) -> None:
        super().__init__(0, 6)
        self.wrong = wrong

    def logits(self, prefixes: list[list[int]]) -> np.ndarray:
        rows = super().logits(prefixes)
        for row, prefix in zip(rows, prefixes, strict=True):
            if prefix[0] == 2 and len(prefix) == 7:
                row[:] = np.where(self.wrong == 0.0, row, self.wrong)
        return rows


NAN_ROW = np.array([0.0, 0.0, 0.0, np.nan, 0.0, 0.0])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (NAN_ROW, "index 3 is nan"),
        (np.abs(NAN_ROW) + np.array([0, np.inf, 0, 0, 0, 0]), "index 1 is inf"),
        (np.full(6, -np.inf), "no token is possible"),
    ],
)
@pytest.mark.parametrize("broken", ["target 'large'", "draft model 'small'"])
def test_bad_logits_are_named_and_whole_shards_stay(tmp_path, wrong, words, broken):
    texts = [[1] * 9, [2] * 9]
    good, bad = PrefixModel(0, 6), Broken(wrong)
    models = (bad, good) if "target" in broken else (good, bad)
    options: dict[str, Any] = {"names": ["large", "small"], "positions_per_shard": 3}
    with pytest.raises(InvalidDistributionError) as caught:
        capture(*models, texts, tmp_path / "bad", **options)
    assert str(caught.value) == f"logits of {broken} after token 6 of prompts[1]: {words}"
    names = {path.name for path in (tmp_path / "bad").iterdir()}
    assert names == {"capture.json", "shard-00000.parquet", "shard-00001.parquet"}
    assert read_capture(tmp_path / "bad").num_positions == 6


def test_positions_without_a_token_of_the_target_are_left_out(tmp_path):
    class Sometimes(PrefixModel):
        def logits(self, prefixes: list[list[int]]) -> np.ndarray:
            rows = super().logits(prefixes)
            rows[[len(prefix) % 3 == 0 for prefix in prefixes], :-1] = -np.inf
            return rows

    texts = [[1] * 9, [2] * 9]
    draft = MappedModel(Sometimes(0, 7), [*range(6), -1], 6)
    options: dict[str, Any] = {"names": ["large", "small"], "positions_per_shard": 4}
    words = r"draft model 'small' proposes only .* first after token 2 of prompts\[0\]"
    with pytest.warns(UserWarning, match=words) as told:
        found = capture(PrefixModel(1, 6), draft, texts, tmp_path / "some", **options)
    assert len(told) == 1
    data = read_capture(tmp_path / "some")
    assert found.positions == data.num_positions == 12
    law = PrefixModel(1, 6).probs([1] * 4)
    np.testing.assert_allclose(data.target_table[2], np.log(law), atol=1e-6)


def test_a_table_of_another_shape_is_refused(tmp_path):
    class Short(PrefixModel):
        def logits(self, prefixes: list[list[int]]) -> np.ndarray:
            return super().logits(prefixes)[:, 1:]

    with pytest.raises(InvalidDistributionError, match="draft model 'draft_0' has shape"):
        capture(PrefixModel(0, 6), Short(0, 6), [[1, 2]], tmp_path / "short")


def test_mixed_vocabularies_are_refused(tmp_path):
    with pytest.raises(InvalidDistributionError, match=r"mixed vocabularies: .* 3 .* 2; .*Mapped"):
        capture(TARGET, [DRAFT, TableModel(np.eye(2))], [[1, 2]], tmp_path / "mixed")
    assert not (tmp_path / "mixed").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"draft_models": TARGET}, "provenance models draft_0 sha256"),
        ({"prompts": [[0, 2, 1]]}, "provenance prompts token_ids_sha256"),
        ({"vocabulary": {"a": 0, "c": 1, "b": 2}}, "tokenizer_hash"),
        ({"names": ["large", "smaller"]}, "draft_models"),
    ],
)
def test_another_capture_is_refused(tmp_path, change, words):
    arguments: dict[str, Any] = {
        "target": TARGET,
        "draft_models": DRAFT,
        "prompts": [[0, 1, 2]],
        "folder": tmp_path / "mine",
        "vocabulary": {"a": 0, "b": 1, "c": 2},
        "names": ["large", "small"],
    }
    capture(**arguments)
    before = content(tmp_path / "mine")
    with pytest.raises(InvalidArgumentError, match=words):
        capture(**{**arguments, **change})
    assert content(tmp_path / "mine") == before
    assert capture(**arguments).added == 0


# --- the rest ------------------------------------------------------------------------------------


def test_digests_tell_models_apart():
    text = np.random.default_rng(0).integers(0, 6, 40)
    models = [
        NGramModel(text, 6, 2),
        NGramModel(text, 6, 3),
        NGramModel(text[::-1], 6, 2),
        TARGET,
        DRAFT,
        MappedModel(TARGET, [0, 1, 2], 6),
        MappedModel(TARGET, [0, 2, 1], 6),
        MappedModel(TARGET, [0, 1, 2], 6, unknown_token_id=0),
        MappedModel(DRAFT, [0, 1, 2], 6),
    ]
    digests = [describe_model("m", model)["sha256"] for model in models]
    assert len(set(digests)) == len(models)
    assert describe_model("m", NGramModel(text.copy(), 6, 2))["sha256"] == digests[0]
    assert describe_model("m", PrefixModel(0)) == {"name": "m", "class": "PrefixModel"}


def test_progress_goes_up_to_the_total(tmp_path):
    told: list[tuple[int, int]] = []
    options: dict[str, Any] = {
        "positions_per_shard": 2,
        "progress": lambda done, total: told.append((done, total)),
    }
    capture(TARGET, DRAFT, iter([[0, 1, 2, 0], [1, 1, 1]]), tmp_path / "all", **options)
    assert told == [(done, 5) for done in range(1, 6)]
    told.clear()
    capture(TARGET, DRAFT, [[0, 1, 2, 0]], tmp_path / "some", positions=2, **options)
    assert told == [(1, 2), (2, 2)]


def test_defaults_make_shards_of_some_megabytes(tmp_path):
    capture(TARGET, DRAFT, [[0, 1, 2]], tmp_path / "mine")
    header = json.loads((tmp_path / "mine/capture.json").read_text())
    assert header["provenance"]["settings"]["positions_per_shard"] == 1024
    assert (header["target"], header["draft_models"]) == ("target", ["draft_0"])
    assert header["tokenizer_hash"] == "3 token ids"
    assert header["provenance"]["versions"]["mdsd"] == mdsd.__version__
