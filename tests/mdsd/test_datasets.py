"""The embedded data set is what its README says; a bad file is refused in one clear line."""

from __future__ import annotations

import dataclasses
import json
import pickle
import warnings
from collections.abc import Callable
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mdsd import datasets
from mdsd.datasets import Dataset
from mdsd.datasets.sources import _opened
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

SIDES = ["target", "drop2", "drop3", "context32", "context8", "ngram"]
HALF_ULP = 2.0**-11  # relative rounding error of float16

P = np.array([[0.5, 0.3, 0.2], [0.4, 0.35, 0.25]])
Q = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])


@pytest.fixture(scope="module")
def smollm2() -> Dataset:
    return datasets.load("smollm2")


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest, smollm2: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities (N, K) and kept masses (N,) of the target or of one draft."""
    if request.param == "target":
        return smollm2.target_table, smollm2.target_kept_mass
    return smollm2.draft_tables[request.param], smollm2.draft_kept_mass[request.param]


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    def save(**arrays: Any) -> Path:
        path = tmp_path / "data.npz"
        np.savez(path, **arrays)
        return path

    return save


# --- the embedded data set -----------------------------------------------------------------------


def test_every_name_loads():
    assert [datasets.load(name).name for name in datasets.names()] == ["smollm2"]


def test_smollm2_has_many_positions_and_drafts(smollm2):
    assert smollm2.num_positions == 144
    assert smollm2.vocab_size == 3173
    assert list(smollm2.draft_tables) == list(smollm2.draft_kept_mass) == SIDES[1:]
    assert (smollm2.target_kind, smollm2.draft_kind) == ("logits", "logits")


def test_smollm2_arrays_are_float64_of_one_shape(smollm2, side):
    logits, kept_mass = side
    assert logits.shape == (smollm2.num_positions, smollm2.vocab_size)
    assert kept_mass.shape == (smollm2.num_positions,)
    assert logits.dtype == kept_mass.dtype == np.float64


def test_smollm2_arrays_are_read_only(smollm2, side):
    assert not any(array.flags.writeable for array in (*side, smollm2.token_ids))


def test_smollm2_padding_is_the_same_on_all_sides(smollm2, side):
    np.testing.assert_array_equal(side[0] == -np.inf, smollm2.token_ids == -1)


def test_smollm2_kept_mass_is_a_probability(side):
    assert (side[1] > 0.7).all()
    assert (side[1] <= 1.0).all()


def test_smollm2_log_probs_sum_to_the_kept_mass(side):
    logits, kept_mass = side
    probs = np.exp(logits)
    # exp(l (1 + e)) - exp(l) is about l exp(l) e; padding has no share. 1e-6 is for the float32
    # of the kept mass.
    error = HALF_ULP * (probs * np.abs(logits, where=probs > 0, out=np.zeros_like(probs))).sum(1)
    assert (np.abs(probs.sum(axis=1) - kept_mass) <= 1.01 * error + 1e-6).all()


def test_smollm2_rows_hold_the_top_tokens_of_one_side_at_least(smollm2):
    assert (smollm2.token_ids >= 0).sum(axis=1).min() > smollm2.provenance["top"]["target"]


def test_smollm2_token_ids_are_unique_in_a_row(smollm2):
    ids = smollm2.token_ids
    assert ids.dtype == np.int64
    assert ids.max() < smollm2.provenance["vocab_size"]
    # Ascending up to the padding, so that ties to the lowest column are ties to the lowest id.
    steps = np.diff(ids, axis=1)
    assert (steps[ids[:, 1:] >= 0] > 0).all()


def test_smollm2_drafts_differ_in_quality(smollm2):
    target = np.exp(smollm2.target_table)
    overlap = {
        name: float(np.minimum(target, np.exp(logits)).sum(axis=1).mean())
        for name, logits in smollm2.draft_tables.items()
    }
    # Over the union only, so a little below the overlap over the vocabulary.
    assert overlap == pytest.approx(smollm2.provenance["mean_overlap"], abs=0.01)
    assert np.diff(sorted(overlap.values())).min() > 0.05


def test_smollm2_positions_are_not_adjacent(smollm2):
    positions = smollm2.provenance["positions"]
    assert len(positions) == smollm2.num_positions
    assert len({text for text, _ in positions}) == 16
    pairs = pairwise(positions)
    assert all(text != other or after - token > 1 for (text, token), (other, after) in pairs)


def test_smollm2_file_is_small():
    assert (resources.files("mdsd") / "data" / "smollm2.npz").stat().st_size <= 4_000_000


def test_dataset_is_frozen(smollm2):
    with pytest.raises(dataclasses.FrozenInstanceError):
        smollm2.name = "other"


def test_draft_mapping_is_read_only(smollm2):
    with pytest.raises(TypeError):
        smollm2.draft_tables["mine"] = smollm2.target_table


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("smolm2", "; did you mean 'smollm2'?"),
        ("wikitext", ""),
        (None, ""),
        ("../data/smollm2", "; did you mean 'smollm2'?"),
    ],
)
def test_unknown_name(name, hint):
    with pytest.raises(InvalidArgumentError) as caught:
        datasets.load(name)
    assert str(caught.value) == f"data set is {name!r}; expected one of smollm2{hint}"


# --- a user's file -------------------------------------------------------------------------------


def test_single_draft(save):
    data = datasets.read_npz(save(target_probs=P, draft_probs=Q))
    assert (data.name, data.num_positions, data.vocab_size) == ("data", 2, 3)
    assert (data.target_kind, data.draft_kind) == ("probs", "probs")
    assert list(data.draft_tables) == ["draft_0"]
    np.testing.assert_allclose(data.target_table, P, rtol=1e-15)
    np.testing.assert_allclose(data.draft_tables["draft_0"], Q, rtol=1e-15)
    np.testing.assert_array_equal(data.token_ids, [[0, 1, 2], [0, 1, 2]])
    np.testing.assert_array_equal(data.target_kept_mass, [1.0, 1.0])
    np.testing.assert_array_equal(data.draft_kept_mass["draft_0"], [1.0, 1.0])
    assert dict(data.provenance) == {}


def test_several_drafts_of_another_kind(save):
    drafts = np.log(np.stack([Q, P]))
    data = datasets.read_npz(str(save(target_probs=P, draft_logits=drafts, more=[None])))
    assert (data.target_kind, data.draft_kind) == ("probs", "logits")
    assert list(data.draft_tables) == ["draft_0", "draft_1"]
    np.testing.assert_array_equal(data.draft_tables["draft_1"], drafts[1])


PROBS_AS_LOGITS = {
    # What is stored, and the keys that the warning names.
    "both": ({"target_logits": P, "draft_logits": Q}, ["target_probs", "draft_probs"]),
    "target": ({"target_logits": P, "draft_probs": Q}, ["target_probs"]),
    "one-draft": (
        {"target_logits": np.log(P), "draft_logits": [np.log(Q), Q], "draft_names": ["a", "b"]},
        ["draft_probs", "draft_logits of b hold"],
    ),
    "float16": ({"target_logits": P.astype(np.float16), "draft_probs": Q}, ["target_probs"]),
    "one-hot": ({"target_logits": np.eye(3, dtype=np.int8)[:2], "draft_probs": Q}, ["target_p"]),
    "part-of-the-vocabulary": (
        {"target_logits": 0.7 * P, "target_kept_mass": [0.7, 0.7], "draft_probs": Q},
        ["target_probs"],
    ),
}
FINE = {
    "negative": {"target_logits": P - 0.22, "draft_probs": Q},
    "one-row-of-two": {"target_logits": [P[0], 2 * P[1]], "draft_probs": Q},
    "log-probabilities": {"target_logits": np.log(P), "draft_logits": np.log(Q)},
    "probabilities": {"target_probs": P, "draft_probs": Q},
    "masked": {"target_logits": [[0.5, 0.5, -np.inf]] * 2, "draft_probs": Q},
    "one-token": {"target_logits": [[1.0], [1.0]], "draft_probs": [[1.0], [1.0]]},
}


@pytest.mark.parametrize(("arrays", "words"), PROBS_AS_LOGITS.values(), ids=PROBS_AS_LOGITS)
def test_probabilities_stored_as_logits_are_warned_of_once(save, arrays, words):
    path = save(**arrays)
    for make in (datasets.read_npz, datasets.open_source):
        with pytest.warns(UserWarning, match=r"^data: ") as caught:
            made = make(path)
        (warning,) = caught
        assert [word for word in words if word not in str(warning.message)] == []
    # What is read of a source, here or where it was sent, is no other data set.
    assert made.read(0, 1).num_positions == 1
    _opened._contents.clear()
    assert pickle.loads(pickle.dumps(made)).read(1, 2).num_positions == 1


@pytest.mark.parametrize("arrays", FINE.values(), ids=FINE)
def test_other_logits_are_not_warned_of(save, arrays):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert datasets.read_npz(save(**arrays)).num_positions == 2


def test_a_data_set_of_ones_own_is_warned_of(save):
    data = datasets.read_npz(save(target_probs=P, draft_probs=Q))
    with pytest.warns(UserWarning, match=r"^data: draft_logits of draft_0 .* draft_probs"):
        other = dataclasses.replace(data, draft_kind="logits")
    # In memory it goes whole to other processes.
    assert pickle.loads(pickle.dumps(datasets.open_source(other))).read(0, 1).num_positions == 1


@pytest.mark.parametrize("key", ["target_probs", "draft_probs"])
@pytest.mark.parametrize(
    ("rows", "meant"), [(np.log(P), "log-probabilities"), (P + 2, "logits")], ids=["log", "logits"]
)
def test_logits_stored_as_probabilities_name_their_key(save, key, rows, meant):
    path = save(**{"target_probs": P, "draft_probs": Q, key: rows})
    other = key.replace("probs", "logits")
    with pytest.raises(
        InvalidDistributionError, match=rf"{key}.*; {meant}\? store them as {other}$"
    ):
        datasets.read_npz(path)


def test_user_arrays_are_read_only(save):
    data = datasets.read_npz(save(target_logits=np.log(P), draft_probs=Q))
    arrays = [
        data.target_table,
        data.draft_tables["draft_0"],
        data.token_ids,
        data.target_kept_mass,
        data.draft_kept_mass["draft_0"],
    ]
    assert not any(array.flags.writeable for array in arrays)


def test_integers_and_masked_logits_are_fine(save):
    logits = np.array([[1.0, -np.inf, 3.0]], dtype=np.float32)
    data = datasets.read_npz(save(target_logits=logits, draft_probs=[[0, 1, 0]]))
    np.testing.assert_array_equal(data.target_table, logits)
    np.testing.assert_array_equal(data.draft_tables["draft_0"], [[0.0, 1.0, 0.0]])
    assert data.target_table.dtype == data.draft_tables["draft_0"].dtype == np.float64


def test_optional_keys(save):
    data = datasets.read_npz(
        save(
            target_probs=P,
            draft_probs=[Q],
            draft_names=["mine"],
            token_ids=np.array([[4, 5, 6], [7, 8, 9]], dtype=np.uint16),
            target_kept_mass=np.array([0.5, 0.75], dtype=np.float32),
            draft_kept_mass=[[0.25, 0.5]],
            provenance=json.dumps({"target": "a model"}),
        )
    )
    assert list(data.draft_tables) == ["mine"]
    np.testing.assert_array_equal(data.token_ids, [[4, 5, 6], [7, 8, 9]])
    np.testing.assert_array_equal(data.target_kept_mass, [0.5, 0.75])
    np.testing.assert_array_equal(data.draft_kept_mass["mine"], [0.25, 0.5])
    assert data.provenance["target"] == "a model"


@pytest.mark.parametrize(
    ("dtype", "within", "beyond"),
    [(np.float64, 0.9e-5, 1.1e-5), (np.float32, 0.9e-4, 1.1e-4), (np.float16, 0.015, 0.025)],
    ids=["float64", "float32", "float16"],
)
class TestMassTolerance:
    def test_within_is_renormalised(self, save, dtype, within, beyond):
        probs = np.array([[0.5 - within, 0.5]], dtype=dtype)
        data = datasets.read_npz(save(target_probs=probs, draft_probs=[[0.5, 0.5]]))
        assert abs(data.target_table.sum() - 1.0) < 1e-15

    def test_beyond_is_refused(self, save, dtype, within, beyond):
        probs = np.array([[0.5 - beyond, 0.5]], dtype=dtype)
        path = save(target_probs=probs, draft_probs=[[0.5, 0.5]])
        with pytest.raises(InvalidDistributionError, match=r"target_probs row 0 sums to 0\.9"):
            datasets.read_npz(path)


NAN, INF = np.nan, np.inf
ROWS = {"target_probs": P, "draft_probs": Q}

BAD_KEYS = {
    "no-target": ({"draft_probs": Q}, ["target_logits", "keys found: draft_probs"]),
    "both-targets": (
        {"target_logits": P, **ROWS},
        ["only one of target_logits, target_probs", "keys found: target_logits, target_probs"],
    ),
    "no-draft": (
        {"target_probs": P},
        ["draft_logits, draft_probs", "keys found: target_probs"],
    ),
    "both-drafts": ({"draft_logits": Q, **ROWS}, ["only one of draft_logits, draft_probs"]),
    "no-keys": ({}, ["target_probs", "keys found: none"]),
    "draft-names-count": ({**ROWS, "draft_names": ["a", "b"]}, ["draft_names", "1", "['a', 'b']"]),
    "draft-names-repeated": (
        {"target_probs": P, "draft_probs": [Q, Q], "draft_names": ["a", "a"]},
        ["draft_names", "2 different", "['a', 'a']"],
    ),
    "draft-names-numbers": ({**ROWS, "draft_names": [3]}, ["draft_names", "[3]"]),
    "token-ids-shape": ({**ROWS, "token_ids": [1, 2, 3]}, ["token_ids", "(3,)", "(2, 3)"]),
    "token-ids-float": ({**ROWS, "token_ids": P}, ["token_ids", "float64", "int64"]),
    "target-kept-mass-shape": ({**ROWS, "target_kept_mass": [1.0]}, ["target_kept_mass", "(1,)"]),
    "draft-kept-mass-type": (
        {**ROWS, "draft_kept_mass": [["a", "b"]]},
        ["draft_kept_mass", "<U1", "float64"],
    ),
    "provenance-not-json": ({**ROWS, "provenance": "{"}, ["provenance", "JSON"]),
    "provenance-not-an-object": ({**ROWS, "provenance": "[1]"}, ["provenance", "JSON object"]),
}

BAD_CONTENTS = {
    "objects": (
        {"target_probs": np.array([[None]]), "draft_probs": Q},
        ["target_probs cannot be read", "Object arrays"],
    ),
    "bool": ({**ROWS, "target_probs": P > 0}, ["target_probs holds bool"]),
    "strings": ({**ROWS, "draft_probs": [["a"]]}, ["draft_probs holds <U1"]),
    "complex": ({**ROWS, "draft_probs": Q + 0j}, ["draft_probs holds complex128"]),
    "target-one-axis": ({**ROWS, "target_probs": P[0]}, ["target_probs", "(3,)", "(N, V)"]),
    "target-three-axes": ({**ROWS, "target_probs": P[None]}, ["target_probs", "(1, 2, 3)"]),
    "draft-one-axis": ({**ROWS, "draft_probs": Q[0]}, ["draft_probs", "(3,)", "(M, N, V)"]),
    "draft-four-axes": ({**ROWS, "draft_probs": Q[None, None]}, ["draft_probs", "(1, 1, 2, 3)"]),
    "no-positions": ({**ROWS, "target_probs": P[:0]}, ["target_probs is empty", "(0, 3)"]),
    "no-tokens": ({**ROWS, "target_probs": P[:, :0]}, ["target_probs is empty", "(2, 0)"]),
    "no-draft-models": ({**ROWS, "draft_probs": Q[None][:0]}, ["draft_probs is empty", "(0, 2,"]),
    "width-mismatch": (
        {"target_probs": np.full((1, 5), 0.2), "draft_probs": np.full((1, 4), 0.25)},
        ["target_probs has 5 tokens", "draft_probs has 4"],
    ),
    "length-mismatch": (
        {"target_probs": P, "draft_probs": np.stack([Q[:1], Q[:1]])},
        ["target_probs has 2 positions", "draft_probs has 1"],
    ),
    "nan-probs": ({**ROWS, "target_probs": [P[0], [NAN] * 3]}, ["target_probs row 1", "nan"]),
    "nan-logits": (
        {"target_probs": P, "draft_logits": [[0, 0, 0], [0, NAN, 0]]},
        ["draft_logits row 1: index 1 is nan"],
    ),
    "inf-logits": (
        {"target_logits": [[0, 0, INF], [0, 0, 0]], "draft_probs": Q},
        ["target_logits row 0: index 2 is inf"],
    ),
    "inf-probs": ({**ROWS, "draft_probs": [Q[0], [INF, 0, 0]]}, ["draft_probs row 1", "inf"]),
    "masked-row": (
        {"target_logits": [[0.0, 1.0, 2.0], [-INF] * 3], "draft_logits": np.zeros((2, 3))},
        ["target_logits row 1 has empty support"],
    ),
    "negative": (
        {**ROWS, "target_probs": [P[0], [1.2, -0.2, 0.0]]},
        ["target_probs row 1: index 1 is -0.2"],
    ),
    "mass-off": (
        {"target_probs": [[0.5, 0.4]], "draft_probs": [[0.5, 0.5]]},
        ["target_probs row 0 sums to 0.9"],
    ),
    "second-draft-model": (
        {"target_probs": P, "draft_probs": [Q, [[0.6, 0.3, 0.3], Q[1]]]},
        ["draft_probs[1] row 0 sums to 1.2"],
    ),
}


def check_message(message: str, path: Path, fragments: list[str]) -> None:
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert [fragment for fragment in fragments if fragment not in message] == []


def test_check_message_notices_a_missing_fragment():
    with pytest.raises(AssertionError):
        check_message("data.npz: all is well", Path("data.npz"), ["row 1"])


@pytest.mark.parametrize(("arrays", "fragments"), BAD_KEYS.values(), ids=BAD_KEYS)
def test_bad_keys(save, arrays, fragments):
    path = save(**arrays)
    with pytest.raises(InvalidArgumentError) as caught:
        datasets.read_npz(path)
    check_message(str(caught.value), path, fragments)


@pytest.mark.parametrize(("arrays", "fragments"), BAD_CONTENTS.values(), ids=BAD_CONTENTS)
def test_bad_contents(save, arrays, fragments):
    path = save(**arrays)
    with pytest.raises(InvalidDistributionError) as caught:
        datasets.read_npz(path)
    check_message(str(caught.value), path, fragments)


def write_npy(path: Path) -> None:
    with path.open("wb") as stream:
        np.save(stream, P)


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "No such file"),
    "directory": (lambda path: path.mkdir(), "directory"),
    "empty": (lambda path: path.touch(), "not an .npz"),
    "text": (lambda path: path.write_text("0.5 0.5"), "not an .npz"),
    "npy": (write_npy, "not an .npz"),
}


@pytest.mark.parametrize(("make", "fragment"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_file(tmp_path, make, fragment):
    path = tmp_path / "data.npz"
    make(path)
    with pytest.raises(InvalidArgumentError) as caught:
        datasets.read_npz(path)
    check_message(str(caught.value), path, [fragment])


def test_damaged_member(save):
    path = save(**ROWS)
    content = path.read_bytes()
    # One bit of the first number, so that the checksum of the member no longer holds.
    place = content.index(P.tobytes())
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(InvalidDistributionError) as caught:
        datasets.read_npz(path)
    check_message(str(caught.value), path, ["target_probs cannot be read"])
