"""Bad input of the layouts, argument by argument: one clear error before anything is drawn."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.decoding import BiasedVerification
from mdsd.decoding.layers import LayerVerification
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    UnsupportedError,
)

from .samples import all_layouts

NAN = float("nan")


class NotConvertible:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("Can't call numpy() on\nTensor that requires grad.")


def changed(values: Any, place: tuple[int, ...], value: Any) -> np.ndarray:
    array = np.array(values)
    array[place] = value
    return array


def rows_of(layout: str) -> dict[str, Any]:
    return all_layouts()[layout][1]


def law_rows(layout: str, name: str) -> list[tuple[str, Any, type, tuple[str, ...]]]:
    """Bad values of an array of laws; the second row is one that counts in all layouts."""
    given = rows_of(layout)[name]
    place = {"vllm": (0,), "eagle": (1,)}.get(layout, (0, 1))
    where = f"{name} row {', '.join(map(str, place))}"
    shape = str(given.shape[:-1])[1:-1]
    bad = InvalidDistributionError
    return [
        (name, None, bad, (name, "missing")),
        (name, changed(given, (*place, 2), NAN), bad, (where, "index 2", "nan")),
        (name, changed(given, (*place, 0), -0.1), bad, (where, "index 0", "-0.1")),
        (name, changed(given, (*place, 0), np.inf), bad, (where, "inf")),
        (name, changed(given, place, 0.0), bad, (where, "sums to 0")),
        (name, changed(given, place, 0.5), bad, (where, "sums to 2.5", "float64")),
        (name, given[..., :-1] if name == "draft_probs" else given[..., 0], bad, (name, "shape")),
        (name, given[:1], bad, (name, shape.split(",")[0])),
        (name, given.astype(complex), bad, (name, "complex128")),
        (name, np.full(given.shape, "x"), bad, (name, "str")),
        (name, NotConvertible(), bad, (name, "requires grad")),
    ]


def id_rows(layout: str, name: str) -> list[tuple[str, Any, type, tuple[str, ...]]]:
    given = rows_of(layout)[name]
    place = {1: (1,), 2: (0, 1)}[given.ndim]
    where = f"{name} row 0" if given.ndim == 2 else name
    bad = InvalidTokenError
    return [
        (name, None, bad, (name,)),
        (name, given.astype(float), bad, (name, "float64", "integers")),
        (name, given > 0, bad, (name, "bool")),
        (name, np.array("ab"), bad, (name, "str")),
        (name, changed(given, place, 5), bad, (where, "5", "position 1", "0..4")),
        (name, changed(given, place, -2), bad, (where, "-2", "position 1")),
        (name, given[..., np.newaxis], bad, (name, "shape")),
        (name, NotConvertible(), bad, (name, "requires grad")),
    ]


def index_rows(layout: str, name: str) -> list[tuple[str, Any, type, tuple[str, ...]]]:
    given = rows_of(layout)[name]
    bad = InvalidArgumentError
    return [
        (name, None, bad, (name, "missing")),
        (name, given.astype(float), bad, (name, "float64", "integers")),
        (name, given[..., np.newaxis], bad, (name, "shape")),
        (name, given > 0, bad, (name, "bool")),
        (name, NotConvertible(), bad, (name, "requires grad")),
    ]


def random_rows(layout: str) -> list[tuple[str, Any, type, tuple[str, ...]]]:
    shape = {"flashinfer": (2, 4), "vllm": (7,), "sglang": (2, 4, 3), "eagle": (4, 3)}[layout]
    good, bad = np.full(shape, 0.5), InvalidArgumentError
    first = (0,) * len(shape)
    return [
        ("rng", -1, bad, ("rng", "-1")),
        ("rng", 1.5, bad, ("rng", "1.5")),
        ("rng", np.random, bad, ("rng", "module")),
        ("uniforms", good[..., :-1], bad, ("uniforms", "shape", str(shape))),
        ("uniforms", good[np.newaxis], bad, ("uniforms", "shape", str(shape))),
        ("uniforms", changed(good, first, 1.0), bad, ("uniforms", "1.0")),
        ("uniforms", changed(good, first, -0.1), bad, ("uniforms", "-0.1")),
        ("uniforms", changed(good, first, NAN), bad, ("uniforms", "nan")),
        ("uniforms", good.astype(str), bad, ("uniforms", "str")),
        ("uniforms", NotConvertible(), bad, ("uniforms", "requires grad")),
    ]


TREE_OPTIONS = [
    ("draft", "without", InvalidArgumentError, ("draft", "'without'", "without_replacement")),
    ("draft", "independent", InvalidArgumentError, ("draft", "'independent'")),
    ("draft", None, InvalidArgumentError, ("draft", "None")),
    ("draft", "deterministic", InvalidArgumentError, ("draft_probs", "deterministic")),
    ("draft", "spechub", InvalidArgumentError, ("num_drafts is 1", "spechub")),
    ("verifier", "rss", InvalidArgumentError, ("verifier", "'rss'", "'rrs'")),
    ("verifier", mdsd.RRSVerifier, InvalidArgumentError, ("verifier", "RRSVerifier")),
    ("verifier", "greedy", UnsupportedError, ("'greedy'", "with_replacement")),
    ("verifier", "single", UnsupportedError, ("'single'", "num_drafts=2")),
    ("verifier", "layer", InvalidArgumentError, ("verifier", "'layer'", "'layers'")),
    ("verifier", LayerVerification, InvalidArgumentError, ("verifier", "LayerVerification")),
    ("verifier", "biased", InvalidArgumentError, ("verifier", "'biased'", "not lossless")),
    ("verifier", BiasedVerification(0.1), UnsupportedError, ("'biased'", "2 drafts")),
]
CHAIN_OPTIONS = [
    ("draft", "top_k", InvalidArgumentError, ("draft", "'top_k'", "deterministic")),
    ("draft", 3, InvalidArgumentError, ("draft", "3")),
    ("draft", "deterministic", InvalidArgumentError, ("draft_probs", "deterministic")),
]

BAD = InvalidArgumentError
TABLE: dict[str, list[tuple[str, Any, type, tuple[str, ...]]]] = {
    "flashinfer": [
        *law_rows("flashinfer", "draft_probs"),
        *law_rows("flashinfer", "target_probs"),
        *id_rows("flashinfer", "draft_token_ids"),
        *CHAIN_OPTIONS,
        *random_rows("flashinfer"),
    ],
    "vllm": [
        *law_rows("vllm", "draft_probs"),
        *law_rows("vllm", "target_probs"),
        *id_rows("vllm", "draft_token_ids"),
        ("bonus_token_ids", [1, 5], InvalidTokenError, ("bonus_token_ids", "5", "0..4")),
        ("bonus_token_ids", [1, -1], InvalidTokenError, ("bonus_token_ids", "-1")),
        ("bonus_token_ids", [1], InvalidTokenError, ("bonus_token_ids", "(1,)")),
        ("bonus_token_ids", [[1, 2]], InvalidTokenError, ("bonus_token_ids", "(1, 2)")),
        ("bonus_token_ids", [1.0, 2.0], InvalidTokenError, ("bonus_token_ids", "float64")),
        ("bonus_token_ids", None, InvalidTokenError, ("bonus_token_ids",)),
        ("cu_num_draft_tokens", [3, 2], BAD, ("cu_num_draft_tokens", "falls to 2", "request 1")),
        ("cu_num_draft_tokens", [-1, 5], BAD, ("cu_num_draft_tokens", "-1", "request 0")),
        ("cu_num_draft_tokens", [3, 4], BAD, ("cu_num_draft_tokens", "ends at 4", "5 drafts")),
        ("cu_num_draft_tokens", [0, 3, 5], InvalidTokenError, ("bonus_token_ids", "(2,)")),
        *index_rows("vllm", "cu_num_draft_tokens"),
        ("max_spec_len", 2, BAD, ("max_spec_len is 2", ">= 3")),
        ("max_spec_len", 3.0, BAD, ("max_spec_len", "3.0")),
        *CHAIN_OPTIONS,
        *random_rows("vllm"),
    ],
    "sglang": [
        *law_rows("sglang", "draft_probs"),
        *law_rows("sglang", "target_probs"),
        *id_rows("sglang", "candidates"),
        ("candidates", np.zeros((2, 0), int), BAD, ("candidates", "no nodes")),
        *index_rows("sglang", "retrive_index"),
        *index_rows("sglang", "retrive_next_token"),
        *index_rows("sglang", "retrive_next_sibling"),
        *(
            (name, np.zeros((2, 7), int), BAD, (name, name.replace("retrieve", "retrive"), "both"))
            for name in ("retrieve_index", "retrieve_next_token", "retrieve_next_sibling")
        ),
        (
            "retrive_next_token",
            changed(rows_of("sglang")["retrive_next_token"], (1, 3), 7),
            BAD,
            ("retrive_next_token row 1", "node 3", "7", "0..6"),
        ),
        (
            "retrive_next_token",
            changed(rows_of("sglang")["retrive_next_token"], (0, 3), -2),
            BAD,
            ("retrive_next_token row 0", "node 3", "-2"),
        ),
        (
            "retrive_next_token",
            changed(rows_of("sglang")["retrive_next_token"], (0, 3), 0),
            BAD,
            ("retrive_next_token row 0", "node 3 leads to 0", "already"),
        ),
        (
            "retrive_next_sibling",
            changed(rows_of("sglang")["retrive_next_sibling"], (0, 2), 1),
            BAD,
            ("retrive_next_sibling row 0", "node 2 leads to 1", "already"),
        ),
        (
            "retrive_index",
            changed(rows_of("sglang")["retrive_index"], (1, 3), 14),
            BAD,
            ("retrive_index row 1", "slot 14", "node 3", "0..13"),
        ),
        (
            "retrive_index",
            changed(rows_of("sglang")["retrive_index"], (1, 3), 0),
            BAD,
            ("retrive_index row 1", "slot 0", "node 3", "another"),
        ),
        ("num_speculative_tokens", 3, BAD, ("num_speculative_tokens is 3", ">= 4")),
        ("num_speculative_tokens", True, BAD, ("num_speculative_tokens", "True")),
        *TREE_OPTIONS,
        *random_rows("sglang"),
    ],
    "eagle": [
        *law_rows("eagle", "draft_probs"),
        *law_rows("eagle", "target_probs"),
        *id_rows("eagle", "draft_token_ids"),
        ("draft_token_ids", np.zeros(0, int), BAD, ("draft_token_ids", "no nodes")),
        *index_rows("eagle", "retrieve_indices"),
        ("retrieve_indices", [[1, 3], [0, 2]], BAD, ("row 0", "node 1", "0, the root")),
        ("retrieve_indices", [[0, 1], [-1, -1]], BAD, ("row 1", "node -1", "0..6")),
        ("retrieve_indices", [[0, 7]], BAD, ("row 0", "node 7", "position 1", "0..6")),
        ("retrieve_indices", [[0, 1, 3], [0, 2, 3]], BAD, ("row 1", "node 3", "1 in row 0")),
        ("retrieve_indices", [[0, 1, 0]], BAD, ("row 0", "node 0", "is the root")),
        ("retrieve_indices", [[0, 1, 1]], BAD, ("row 0", "node 1", "position 2")),
        *TREE_OPTIONS,
        *random_rows("eagle"),
    ],
}
CASES = [
    pytest.param(layout, *row, id=f"{layout}-{row[0]}-{k}")
    for layout, rows in TABLE.items()
    for k, row in enumerate(rows)
]


@pytest.mark.parametrize(("layout", "argument", "value", "error", "words"), CASES)
def test_bad_argument_is_named(layout, argument, value, error, words):
    function, good = all_layouts()[layout]
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    options = {} if argument in ("rng", "uniforms") else {"rng": rng}
    with pytest.raises(mdsd.MdsdError) as caught:
        function(**{**good, **options, argument: value})
    message = str(caught.value)
    assert type(caught.value) is error
    assert "\n" not in message
    assert [word for word in words if word not in message] == [], message
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("layout", TABLE)
def test_every_argument_has_its_rows(layout):
    function, _ = all_layouts()[layout]
    assert set(inspect.signature(function).parameters) == {row[0] for row in TABLE[layout]}


@pytest.mark.parametrize("layout", TABLE)
def test_the_arguments_that_are_changed_are_good(layout):
    function, good = all_layouts()[layout]
    function(**good, rng=0)


@pytest.mark.parametrize("layout", TABLE)
def test_rng_and_uniforms(layout):
    function, good = all_layouts()[layout]
    with pytest.raises(InvalidArgumentError, match="rng and uniforms are both given"):
        function(**good, rng=0, uniforms=[0.5])


# --- drafts that cannot have been drawn ----------------------------------------------------------


def without_mass(layout: str, token: int, place: tuple[int, ...]) -> tuple[Any, dict[str, Any]]:
    """Arguments whose draft law has no mass on a token that it drafted."""
    function, good = all_layouts()[layout]
    rows = good["draft_probs"].copy()
    rows[(*place, token)] = 0.0
    rows[place] /= rows[place].sum()
    return function, {**good, "draft_probs": rows}


@pytest.mark.parametrize("layout", ["flashinfer", "vllm"])
def test_token_that_its_law_cannot_draw(layout):
    place = (1, 1) if layout == "flashinfer" else (4,)
    token = rows_of(layout)["draft_token_ids"][place]
    function, given = without_mass(layout, token, place)
    with pytest.raises(InvalidTokenError) as caught:
        function(**given)
    where = "draft_token_ids row 1" if layout == "flashinfer" else "draft_token_ids"
    assert str(caught.value).startswith(
        f"{where}: id {token} at position {place[-1]} cannot be drawn"
    )


@pytest.mark.parametrize("drafts", [[1, 1, 1], [1, -1, -1], [-1, -1, -1]])
def test_row_of_the_extra_token_is_checked(drafts):
    """Even where the draft before it is rejected, so that it is not needed."""
    function, good = all_layouts()["flashinfer"]
    end = drafts.index(-1) if -1 in drafts else 3
    target = good["target_probs"].copy()
    target[0] = np.eye(5)[0]
    target[0, end] = NAN
    ids = changed(good["draft_token_ids"], (0,), drafts)
    with pytest.raises(
        InvalidDistributionError, match=f"target_probs row 0, {end}: index 0 is nan"
    ):
        function(**{**good, "draft_token_ids": ids, "target_probs": target})
    function, good = all_layouts()["vllm"]
    if end < 3:
        flat = {
            **good,
            "draft_token_ids": changed(good["draft_token_ids"], (slice(3),), drafts),
            "target_probs": changed(good["target_probs"], (end,), NAN),
        }
        with pytest.raises(InvalidDistributionError, match=f"target_probs row {end}: index 0"):
            function(**flat)


@pytest.mark.parametrize("layout", ["sglang", "eagle"])
def test_children_that_their_law_cannot_draw(layout):
    name = "candidates" if layout == "sglang" else "draft_token_ids"
    ids = rows_of(layout)[name].reshape(-1, 7)[0]
    place = (0, 1) if layout == "sglang" else (1,)
    function, given = without_mass(layout, ids[4], place)
    with pytest.raises(InvalidTokenError) as caught:
        function(**given)
    where = f"{name} row 0" if layout == "sglang" else name
    children = ids[[3, 4]].tolist()
    assert str(caught.value) == (
        f"{where}: the children {children} of node 1 cannot be drawn from the with_replacement "
        "draft distribution"
    )


@pytest.mark.parametrize("layout", ["sglang", "eagle"])
@pytest.mark.parametrize("draft", ["without_replacement", "greedy", "top_k"])
def test_children_that_cannot_be_drawn_together(layout, draft):
    function, good = all_layouts(draft=draft)[layout]
    name = "candidates" if layout == "sglang" else "draft_token_ids"
    ids = good[name].copy()
    ids[..., 2] = ids[..., 1]
    with pytest.raises(InvalidTokenError, match="of node 0 cannot be drawn") as caught:
        function(**{**good, name: ids})
    assert draft in str(caught.value)


@pytest.mark.parametrize("layout", ["sglang", "eagle"])
def test_law_with_too_few_tokens(layout):
    function, good = all_layouts(draft="without_replacement")[layout]
    rows = good["draft_probs"].copy()
    place = (1, 1) if layout == "sglang" else (1,)
    rows[place] = np.eye(5)[0]
    with pytest.raises(InvalidDistributionError) as caught:
        function(**{**good, "draft_probs": rows})
    where = ", ".join(map(str, place))
    assert str(caught.value).startswith(f"draft_probs row {where} has 1 tokens with positive")


@pytest.mark.parametrize("layout", ["sglang", "eagle"])
def test_chosen_children_are_different(layout):
    function, good = all_layouts()[layout]
    name = "candidates" if layout == "sglang" else "draft_token_ids"
    ids = good[name].copy()
    ids[..., :] = [0, 1, 2, 3, 3, 0, 0]
    chosen = {**good, name: ids, "draft_probs": None, "draft": "deterministic"}
    with pytest.raises(InvalidTokenError, match=r"the children \[3, 3\] of node 1 repeat a token"):
        function(**chosen)


@pytest.mark.parametrize("layout", ["sglang", "eagle"])
def test_verifier_that_knows_no_chosen_children(layout):
    function, good = all_layouts()[layout]
    chosen = {**good, "draft_probs": None, "draft": "deterministic"}
    with pytest.raises(UnsupportedError, match="'kseq' does not support the top_k"):
        function(**chosen, verifier="kseq")
