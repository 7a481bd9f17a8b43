"""Lotteries over priority orders: valid, certified, and optimal."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from mdsd._solvers.errors import SolverFailure
from mdsd._solvers.hitting import prefix_hits
from mdsd._solvers.lp import solve_lp
from mdsd._solvers.polymatroid import OrderLottery, minimum_norm_lottery, norm_weights
from mdsd._solvers.transport import merge_tuples


@dataclass(frozen=True, eq=False)
class Law:
    """A law on tuples, listed, and its hit function."""

    tuples: np.ndarray
    masses: np.ndarray
    hits: Callable[[np.ndarray], np.ndarray]


def product_hits(vectors: list[np.ndarray], order: np.ndarray) -> np.ndarray:
    """1 - prod (1 - q_j(A)), with the masses left summed from the back."""
    miss = np.ones(len(order) + 1)
    for q in vectors:
        miss *= np.append(np.cumsum(q[order][::-1])[::-1], 0.0) / q.sum()
    return np.minimum(1.0 - miss, 1.0)


def independent(vectors: list[np.ndarray]) -> Law:
    size = len(vectors[0])
    tuples = np.array(list(itertools.product(range(size), repeat=len(vectors))))
    masses = np.prod([q[tuples[:, j]] for j, q in enumerate(vectors)], axis=0)
    return Law(tuples, masses, lambda order: product_hits(vectors, order))


def with_replacement(vectors: list[np.ndarray]) -> Law:
    return independent([vectors[0]] * len(vectors))


def without_replacement(vectors: list[np.ndarray]) -> Law:
    q, n = vectors[0], len(vectors)
    tuples, masses = [], []
    for row in itertools.permutations(np.flatnonzero(q).tolist(), n):
        left, mass = q.copy(), 1.0
        for i in row:
            mass *= left[i] / left.sum()
            left[i] = 0.0
        tuples.append(row)
        masses.append(mass)
    return Law(np.array(tuples), np.array(masses), lambda order: prefix_hits(q[order], n))


LAWS = {
    "with": with_replacement,
    "without": without_replacement,
    "independent": independent,
}


def draw(rng: np.random.Generator, family: str, size: int) -> np.ndarray:
    if family == "flat":
        weights = rng.dirichlet(np.ones(size))
    elif family == "peaked":
        weights = rng.dirichlet(np.full(size, 0.1)) + 1e-30
    elif family == "ties":
        weights = rng.integers(1, 4, size).astype(float)
    elif family == "equal":
        weights = np.ones(size)
    elif family == "one-heavy":
        weights = np.full(size, 1e-12)
        weights[rng.integers(size)] = 1.0
    elif family == "scales":
        weights = 10.0 ** rng.uniform(-25, 0, size)
    else:
        weights = rng.integers(0, 3, size).astype(float)
        weights[rng.permutation(size)[:3]] += 1.0
    return weights / weights.sum()


FAMILIES = ["flat", "peaked", "ties", "equal", "one-heavy", "scales", "zeros"]
PROBLEMS = [
    pytest.param(law, family, n, id=f"{law}-{family}-n{n}")
    for law in LAWS
    for family in FAMILIES
    for n in (1, 2, 3)
]


def problem(law: str, family: str, n: int, seed: int = 0) -> tuple[np.ndarray, Law]:
    rng = np.random.default_rng([seed, n, *family.encode()])
    size = int(rng.integers(4, 6))
    target = draw(rng, family, size)
    return target, LAWS[law]([draw(rng, family, size) for _ in range(n)])


def vertex_of(law: Law, order: np.ndarray) -> np.ndarray:
    """Mass with which each token comes first in the order, over the listed tuples."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    first = order[rank[law.tuples].min(axis=1)]
    return np.bincount(first, weights=law.masses, minlength=len(order))


def check_lottery(target: np.ndarray, law: Law, found: OrderLottery) -> None:
    """Check that it is a lottery, says what it does, and that its certificate holds."""
    size = len(target)
    count = len(found.weights)
    assert found.orders.shape == (count, size)
    assert found.orders.dtype == np.int32
    np.testing.assert_array_equal(
        np.sort(found.orders, axis=1), np.tile(np.arange(size), (count, 1))
    )
    assert (found.weights > 0).all()
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-14)
    vertices = np.array([vertex_of(law, order) for order in found.orders])
    np.testing.assert_allclose(found.selected, found.weights @ vertices, rtol=0, atol=5e-14)
    assert (found.selected >= 0).all()
    assert found.attained == pytest.approx(np.minimum(target, found.selected).sum(), abs=1e-15)
    inside = found.subset[law.tuples].all(axis=1)
    cut = target[found.subset].sum() + law.masses[~inside].sum()
    assert found.upper == pytest.approx(min(cut, 1.0), abs=5e-14)
    assert found.gap == max(0.0, found.upper - found.attained)


def optimum_of(target: np.ndarray, law: Law) -> float:
    return solve_lp(merge_tuples(target, law.tuples, law.masses)).value


def solve(target: np.ndarray, law: Law, **options: object) -> OrderLottery:
    tokens = np.arange(len(target))
    hits = np.array([law.hits(np.roll(tokens, -i))[1] for i in tokens])
    weights = norm_weights(target, hits)
    return minimum_norm_lottery(target, law.hits, tokens, weights, **options)


@pytest.mark.parametrize(("law", "family", "n"), PROBLEMS)
class TestSmallInstances:
    def test_valid_and_certified(self, law, family, n):
        target, drafted = problem(law, family, n)
        check_lottery(target, drafted, solve(target, drafted))

    def test_gap_within_tolerance(self, law, family, n):
        target, drafted = problem(law, family, n)
        assert solve(target, drafted).gap <= 1e-9

    def test_optimum_between_attained_and_upper(self, law, family, n):
        target, drafted = problem(law, family, n)
        found = solve(target, drafted)
        optimum = optimum_of(target, drafted)
        assert found.upper >= optimum - 1e-12
        assert found.attained <= optimum + 1e-12
        assert optimum - found.attained <= found.gap + 1e-12

    @pytest.mark.parametrize("limit", [1, 2, 3])
    def test_stopped_early_it_is_still_valid_with_an_honest_gap(self, law, family, n, limit):
        target, drafted = problem(law, family, n)
        found = solve(target, drafted, max_iterations=limit, tolerance=0.0)
        assert 1 <= found.iterations <= limit
        assert len(found.weights) <= limit
        check_lottery(target, drafted, found)
        optimum = optimum_of(target, drafted)
        assert found.upper >= optimum - 1e-12
        assert optimum - found.attained <= found.gap + 1e-12


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(1, 6))
def test_gap_within_tolerance_on_more_seeds(law, family, seed):
    target, drafted = problem(law, family, 2 + seed % 2, seed)
    found = solve(target, drafted)
    check_lottery(target, drafted, found)
    assert found.gap <= 1e-9


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-9])
def test_tolerance_is_met_and_a_wide_one_stops_sooner(tolerance):
    target, drafted = problem("independent", "flat", 3)
    found = solve(target, drafted, tolerance=tolerance)
    assert found.gap <= tolerance
    assert found.iterations <= solve(target, drafted, tolerance=1e-12).iterations


def test_some_problem_needs_more_than_one_order():
    """Otherwise nothing above would exercise Wolfe's algorithm."""
    counts = [len(solve(*problem("independent", "flat", 2, seed)).weights) for seed in range(6)]
    assert max(counts) > 1


@pytest.mark.parametrize("law", list(LAWS))
def test_medium_size(law):
    rng = np.random.default_rng(5)
    target = rng.dirichlet(np.full(60, 0.3))
    vectors = [rng.dirichlet(np.full(60, 0.3)) for _ in range(3)]
    q = vectors[0]
    hits = {
        "with": lambda order: product_hits([q] * 3, order),
        "without": lambda order: prefix_hits(q[order], 3),
        "independent": lambda order: product_hits(vectors, order),
    }[law]
    tokens = np.arange(60)
    weights = norm_weights(target, np.array([hits(np.roll(tokens, -i))[1] for i in tokens]))
    found = minimum_norm_lottery(target, hits, np.argsort(-target / q, kind="stable"), weights)
    assert found.gap <= 1e-9
    assert found.selected.sum() == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("n", [1, 2, 3])
def test_target_equal_to_a_selection_mass_is_accepted_in_full(law, n):
    """p = m^ of one order: the first order already attains 1."""
    _, drafted = problem(law, "flat", n)
    order = np.arange(drafted.tuples.max() + 1)
    target = vertex_of(drafted, order)
    found = minimum_norm_lottery(target, drafted.hits, order, np.ones_like(target))
    assert found.attained == pytest.approx(1.0, abs=1e-13)
    assert found.gap <= 1e-9
    check_lottery(target, drafted, found)


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("n", [2, 3])
def test_target_inside_the_base_polytope_is_accepted_in_full(law, n):
    """p = the mean of the vertices of all orders: alpha* = 1, reached from any start."""
    _, drafted = problem(law, "flat", n)
    orders = itertools.permutations(range(drafted.tuples.max() + 1))
    target = np.mean([vertex_of(drafted, np.array(order)) for order in orders], axis=0)
    found = solve(target, drafted)
    assert found.attained >= 1.0 - 1e-9
    check_lottery(target, drafted, found)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_exact_ties(n):
    target = np.full(4, 0.25)
    drafted = with_replacement([np.full(4, 0.25)] * n)
    found = solve(target, drafted)
    check_lottery(target, drafted, found)
    assert found.attained == pytest.approx(1.0, abs=1e-9)


def test_one_token():
    found = minimum_norm_lottery(
        np.ones(1), lambda order: np.array([0.0, 1.0]), np.arange(1), np.ones(1)
    )
    assert (found.attained, found.upper, found.gap) == (1.0, 1.0, 0.0)
    assert found.orders.tolist() == [[0]]


@pytest.mark.parametrize("p", [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], ids=str)
@pytest.mark.parametrize("q", [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], ids=str)
def test_two_tokens(p, q):
    target, drafted = np.array(p), with_replacement([np.array(q)] * 2)
    found = solve(target, drafted)
    check_lottery(target, drafted, found)
    hits = 1 - (1 - np.array(q)) ** 2
    assert found.upper == pytest.approx(np.minimum(target, hits).sum(), abs=1e-9)
    assert found.gap <= 1e-9


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda found: {"weights": found.weights * 0.99}, id="weights"),
        pytest.param(lambda found: {"selected": found.selected[::-1]}, id="selected"),
        pytest.param(lambda found: {"orders": found.orders[:, ::-1]}, id="reversed-orders"),
        pytest.param(lambda found: {"orders": found.orders * 0}, id="no-permutations"),
        pytest.param(lambda found: {"upper": found.upper - 1e-9}, id="upper"),
        pytest.param(lambda found: {"attained": found.attained + 1e-9}, id="attained"),
        pytest.param(lambda found: {"subset": ~found.subset}, id="subset"),
    ],
)
def test_check_notices_a_wrong_answer(wrong):
    """Negative controls of `check_lottery`."""
    target, drafted = problem("independent", "flat", 2, 3)
    found = solve(target, drafted)
    check_lottery(target, drafted, found)
    broken = replace(found, **wrong(found))
    with pytest.raises(AssertionError):
        check_lottery(target, drafted, broken)


def test_target_is_not_modified():
    target, drafted = problem("independent", "flat", 2)
    target.setflags(write=False)
    first = np.arange(len(target))
    first.setflags(write=False)
    assert minimum_norm_lottery(target, drafted.hits, first, np.ones_like(target)).gap <= 1e-9


def test_hits_that_fall_from_order_to_order_are_no_certificate():
    """Negative control: the first order attains more than the second allows."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    shares = iter([1.0, 0.1, 0.1, 0.1])

    def hits(order):
        missed = 1.0 - np.concatenate([[0.0], np.cumsum(q[order])])
        return (1.0 - missed.clip(0.0) ** 2) * next(shares)

    message = r"^minimum-norm point failed: the upper bound 0\.1\d* is below the attained 0\.[4-8]"
    with pytest.raises(SolverFailure, match=message):
        minimum_norm_lottery(p, hits, np.array([1, 2, 0]), np.ones(3))


def test_an_order_of_small_weight_stays():
    """All is accepted only if one of two orders is drawn once in ten million times."""
    vectors = np.array([[0.6, 0.4], [0.3, 0.7]])

    def hits(order):
        missed = 1.0 - np.cumsum(vectors[:, order], axis=1)
        return np.concatenate([[0.0], 1.0 - missed.clip(0.0).prod(axis=0)])

    often, seldom = np.diff(hits([0, 1])), np.diff(hits([1, 0]))[::-1]
    target = (1.0 - 1e-7) * often + 1e-7 * seldom
    found = minimum_norm_lottery(target, hits, np.array([0, 1]), np.ones(2))
    assert found.upper - found.attained <= 1e-12
    assert found.weights.min() == pytest.approx(1e-7, rel=1e-6)
