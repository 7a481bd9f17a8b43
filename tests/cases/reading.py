"""Reads `cases.json`: cases by id, vectors and recipes, draft distributions; and the oracles.

The oracles know the definitions only (Hu et al., formulation (8)), none of the library's code.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd

FOLDER = Path(__file__).parent

METHODS = ("prefix", "submodular", "lp", "cvxpy", "matching", "cover", "subset")
CLOSED_OR_EXACT = ("prefix", "subset")
"""Closed form and exhaustive enumeration: cases ask more digits of them."""

SUPPORTED = {
    "WithReplacement": {"naive", "naive_tree", "rrs", "kseq", "optimal"},
    "WithoutReplacement": {"naive", "rrs", "optimal"},
    "IndependentDrafts": {"naive", "rrs", "optimal"},
    "GreedyDraft": {"naive", "greedy", "optimal"},
    "SpecHubDraft": {"naive", "spechub", "optimal"},
    "TopKDraft": {"naive", "optimal"},
    "ExplicitDraft": {"naive", "optimal"},
}
"""The table of the interface, without `single`, which takes the first three at n = 1."""

BAD_ROWS = {
    "all-nan": ([np.nan] * 4, "nan"),
    "one-nan": ([0.25, 0.25, np.nan, 0.25], "nan"),
    "inf": ([0.25, np.inf, 0.25, 0.25], "inf"),
}
"""Rows that are no law over four tokens, and what an error says of each."""


@dataclass(frozen=True)
class Case:
    id: str
    kind: str
    input: dict[str, Any]
    expected: dict[str, Any]
    applies_to: tuple[str, ...]

    @property
    def tolerance(self) -> float:
        return float(self.expected["tolerance"])

    def vector(self, name: str) -> np.ndarray:
        return vector(self.input, name)


def decoded(value: Any) -> Any:
    """Read "nan", "inf" and "-inf" as floats, at any depth."""
    if isinstance(value, dict):
        return {key: decoded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [decoded(entry) for entry in value]
    return float(value) if value in ("nan", "inf", "-inf") else value


def _load() -> dict[str, Case]:
    raw = json.loads((FOLDER / "cases.json").read_text(encoding="utf-8"))
    return {
        entry["id"]: Case(
            entry["id"],
            entry["kind"],
            decoded(entry["input"]),
            entry["expected"],
            tuple(entry["applies_to"]),
        )
        for entry in raw
    }


CASES = _load()


def covers(*ids: str) -> pytest.MarkDecorator:
    """Run a test once for each of these cases, under the case's id; `test_waiting` reads these."""
    return pytest.mark.parametrize("case", [pytest.param(CASES[i], id=i) for i in ids])


def covers_rows(*ids: str) -> pytest.MarkDecorator:
    """Run a test for each row of the tables of these cases."""
    return pytest.mark.parametrize(
        ("case", "row"),
        [
            pytest.param(CASES[i], row, id=f"{i}-{row['draft']}-{row['num_drafts']}")
            for i in ids
            for row in CASES[i].expected["table"]
        ],
    )


def covers_row_verifiers(*ids: str) -> pytest.MarkDecorator:
    """Run a test for each row of the tables of these cases and each verifier that applies."""
    return pytest.mark.parametrize(
        ("case", "row", "verifier"),
        [
            pytest.param(
                CASES[i], row, verifier, id=f"{i}-{row['draft']}-{row['num_drafts']}-{verifier}"
            )
            for i in ids
            for row in CASES[i].expected["table"]
            for verifier in sorted(supporting_verifiers(row["draft"], row["num_drafts"]))
        ],
    )


def covers_drafts(*ids: str) -> pytest.MarkDecorator:
    """Run a test for each draft distribution and number of drafts of these cases."""
    return pytest.mark.parametrize(
        ("case", "draft_name", "num_drafts"),
        [
            pytest.param(CASES[i], name, n, id=f"{i}-{name}-{n}")
            for i in ids
            for name, n in drafts_with_counts(CASES[i])
        ],
    )


def covers_plans(*ids: str) -> pytest.MarkDecorator:
    """Run a test for each draft distribution, number of drafts and verifier of these cases.

    Verifiers that a case does not name are all that support the draft; those that it names are
    meant for the draft distributions they support.
    """
    return pytest.mark.parametrize(
        ("case", "draft_name", "num_drafts", "verifier"),
        [
            pytest.param(CASES[i], name, n, verifier, id=f"{i}-{name}-{n}-{verifier}")
            for i in ids
            for name, n in drafts_with_counts(CASES[i])
            for verifier in named_verifiers(CASES[i], name, n)
        ],
    )


# --- inputs --------------------------------------------------------------------------------------


def as_list(value: Any) -> list[Any]:
    """A list in the input means "repeat for each"."""
    return value if isinstance(value, list) else [value]


def dtype_named(name: str) -> np.dtype:
    if name == "bfloat16":
        return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return np.dtype(name)


def recipe_vector(recipe: dict[str, Any]) -> np.ndarray:
    kind, size = recipe["recipe"], recipe["size"]
    dtype = dtype_named(recipe.get("dtype", "float64"))
    if kind == "uniform":
        return np.full(size, 1.0 / size).astype(dtype)
    if kind == "sparse":
        dense = np.zeros(size)
        dense[recipe["token_ids"]] = recipe["probs"]
        return dense.astype(dtype)
    if kind == "zeros_with_bump":
        dense = np.zeros(size)
        dense[recipe["index"]] = recipe["bump"]
        return dense.astype(dtype)
    if kind == "one_hot":
        return np.eye(1, size, recipe["index"])[0].astype(dtype)
    normal = np.random.default_rng(recipe["seed"]).normal(size=size) * recipe["scale"]
    if kind == "normal":
        return normal.astype(dtype)
    if kind == "softmax_normal":
        # float32 and narrower are computed in float32 and then rounded.
        return softmax(normal if dtype == np.float64 else normal.astype(np.float32)).astype(dtype)
    raise ValueError(f"unknown recipe {kind!r}")


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def vector(entry: dict[str, Any], name: str) -> np.ndarray:
    if f"{name}_recipe" in entry:
        return recipe_vector(entry[f"{name}_recipe"])
    return np.array(entry[name])


def make_draft(name: str, draft_probs: Any, num_drafts: int) -> mdsd.DraftDistribution:
    """Make a draft distribution from its class name; independent drafts take a list of vectors."""
    if name == "SpecHubDraft":
        assert num_drafts == 2
        return mdsd.SpecHubDraft(draft_probs)
    if name == "IndependentDrafts":
        return mdsd.IndependentDrafts(draft_probs)
    return getattr(mdsd, name)(draft_probs, num_drafts)


def draft_of(case: Case, name: str, num_drafts: int) -> mdsd.DraftDistribution:
    key = "draft_probs_list" if name == "IndependentDrafts" else "draft_probs"
    return make_draft(name, case.vector(key), num_drafts)


def drafts_with_counts(case: Case) -> Iterator[tuple[str, int]]:
    """Every pair of draft distribution and number of drafts that a case asks for."""
    if case.input["draft"] == "IndependentDrafts":
        yield "IndependentDrafts", len(case.input["draft_probs_list"])
        return
    for name, n in itertools.product(
        as_list(case.input["draft"]), as_list(case.input["num_drafts"])
    ):
        if n == 2 or name not in ("GreedyDraft", "SpecHubDraft"):
            yield name, n


def supporting_verifiers(draft_name: str, num_drafts: int) -> set[str]:
    """Names of the verifiers that the interface's table promises for a draft distribution."""
    alone = num_drafts == 1 and "rrs" in SUPPORTED[draft_name]
    return SUPPORTED[draft_name] | ({"single"} if alone else set())


def named_verifiers(case: Case, draft_name: str, num_drafts: int) -> list[str]:
    supporting = supporting_verifiers(draft_name, num_drafts)
    named = case.input.get("verifiers")
    return sorted(supporting & set(named) if isinstance(named, list) else supporting)


def forced_uniforms(plan: mdsd.Plan, uniform: float, residual: float = 0.5) -> np.ndarray:
    """The same uniform for every decision but the last, which is the residual draw."""
    return np.array([uniform] * (plan.num_uniforms - 1) + [residual])


# --- oracles -------------------------------------------------------------------------------------


def tuple_law(name: str, draft_probs: Any, num_drafts: int) -> dict[tuple[int, ...], float]:
    """Law of the drafted tuples, written down from the definition of each draft distribution."""
    q = [[float(x) for x in row] for row in np.atleast_2d(draft_probs)]
    rows = q if name == "IndependentDrafts" else [q[0]] * num_drafts
    first = q[0]
    ranked = sorted(range(len(first)), key=lambda i: (-first[i], i))
    law = {}
    for drafts in itertools.product(range(len(first)), repeat=num_drafts):
        if name in ("WithReplacement", "IndependentDrafts"):
            prob = float(np.prod([row[i] for row, i in zip(rows, drafts, strict=True)]))
        elif name == "WithoutReplacement":
            prob = _prob_without_replacement(first, drafts)
        elif name == "TopKDraft":
            prob = float(drafts == tuple(ranked[:num_drafts]))
        elif name == "GreedyDraft":
            top, last = tuple(ranked[: num_drafts - 1]), drafts[-1]
            tail = sum(x for i, x in enumerate(first) if i not in top)
            prob = first[last] / tail if drafts[:-1] == top and last not in top else 0.0
        else:
            prob = _prob_spechub(first, ranked[0], drafts)
        if prob > 0.0:
            law[drafts] = prob
    return law


def _prob_without_replacement(q: list[float], drafts: tuple[int, ...]) -> float:
    if len(set(drafts)) < len(drafts):
        return 0.0
    prob = 1.0
    for k, token in enumerate(drafts):
        rest = sum(x for i, x in enumerate(q) if i not in drafts[:k])
        prob *= q[token] / rest if q[token] > 0.0 else 0.0
    return prob


def _prob_spechub(q: list[float], hub: int, drafts: tuple[int, ...]) -> float:
    first, second = drafts
    if first == second or hub not in drafts:
        return 0.0
    if second == hub:
        return q[first]
    return q[hub] * q[second] / sum(x for i, x in enumerate(q) if i != hub)


def subset_value(target: Any, law: dict[tuple[int, ...], float], subset: Any) -> float:
    """1 + p(H) - Q(H), with Q(H) the probability that every draft lies in H."""
    inside = {int(i) for i in subset}
    p = sum(float(target[i]) for i in sorted(inside))
    return 1.0 + p - sum(prob for drafts, prob in law.items() if inside.issuperset(drafts))


def optimal_subsets(
    target: Any, law: dict[tuple[int, ...], float], slack: float = 1e-11
) -> tuple[float, list[list[int]]]:
    """Least 1 + p(H) - Q(H) over all subsets H, and the H that reach it."""
    tokens = range(len(target))
    values = {
        chosen: subset_value(target, law, chosen)
        for size in range(len(target) + 1)
        for chosen in itertools.combinations(tokens, size)
    }
    least = min(values.values())
    return least, sorted(list(h) for h, value in values.items() if value <= least + slack)


def mean_law(
    law: dict[tuple[int, ...], float], output_law: Callable[[Any], np.ndarray]
) -> np.ndarray:
    """Law of the emitted token over the draft law, from the law given the drafts."""
    return np.array(list(law.values())) @ output_law(list(law))


def attained_acceptance(
    law: dict[tuple[int, ...], float], output_law: Callable[[Any], np.ndarray]
) -> float:
    """Probability that the emitted token is one of the drafts."""
    given = output_law(list(law))
    return sum(
        prob * given[row, sorted(set(drafts))].sum()
        for row, (drafts, prob) in enumerate(law.items())
    )


def applying_bounds(
    target: Any, draft: mdsd.DraftDistribution, methods: Sequence[str] = METHODS
) -> dict[str, mdsd.AcceptanceBound]:
    """Bounds by all methods that apply; every one of them must be a number in [0, 1]."""
    found = {}
    for method in methods:
        try:
            bound = mdsd.acceptance_bound(target, draft, method=method)
        except mdsd.UnsupportedError:
            continue
        assert 0.0 <= bound.value <= 1.0, (method, bound)  # False for NaN too
        assert bound.method == method
        found[method] = bound
    return found


def value_or_error(call: Callable[[], Any], kind: type[Exception]) -> tuple[Any, Any]:
    """What a call returns, or the error of this kind that it raises: cases that allow either."""
    try:
        return call(), None
    except kind as error:
        return None, error


# --- checks --------------------------------------------------------------------------------------


def assert_is_law(law: Any) -> None:
    """Entries in [0, 1] and total 1, up to rounding, along the last axis."""
    law = np.asarray(law)
    assert np.isfinite(law).all()
    assert law.min() >= 0.0
    assert law.max() <= 1.0 + 1e-15
    np.testing.assert_allclose(law.sum(axis=-1), 1.0, rtol=0, atol=1e-12)


def assert_law(law: Any, expected: Any, tolerance: float) -> None:
    """A law, and within `tolerance` of the expected one."""
    assert_is_law(law)
    np.testing.assert_allclose(law, expected, rtol=0, atol=tolerance)


def assert_names(error: BaseException, *names: str) -> None:
    """The message names these things; no number counts that is part of a longer one."""
    for name in names:
        pattern = re.escape(name)
        if name[-1].isdigit():
            pattern = rf"(?<![\w-])(?<!\d\.){pattern}(?!\w|\.\d)"
        assert re.search(pattern, str(error), re.IGNORECASE), f"{name!r} is not in {error}"


def assert_names_value(error: BaseException, value: float, tolerance: float = 1e-6) -> None:
    """Some number in the message is this value."""
    numbers = [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", str(error))]
    assert any(abs(x - value) <= tolerance for x in numbers), f"{value} is not in {error}"
