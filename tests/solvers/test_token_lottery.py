"""Lotteries over orders of groups: what they select, and what certifies them, token by token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from solvers.grouped_draws import GroupedDraws, refined_draws
from solvers.grouped_independent import GroupedIndependent, refined_independent
from solvers.groups import TokenGroups

from solvers import grouped_draws
from solvers.errors import SolverFailure
from solvers.hitting import prefix_hits, token_hits
from solvers.lp import solve_lp
from solvers.prefix import best_prefix
from solvers.token_lottery import SingleTokens, TokenLottery, find_token_lottery
from solvers.transport import merge_tuples

from . import exact_laws


@dataclass(frozen=True, eq=False)
class Problem:
    """A target, the hits of a law, and the law as groups see it, from coarse to fine."""

    target: np.ndarray
    exact: exact_laws.ExactLaw
    hits: Callable[[np.ndarray], np.ndarray]
    laws: list


def product_hits(laws: np.ndarray, order: np.ndarray) -> np.ndarray:
    left = np.cumsum(laws[:, order][:, ::-1], axis=1)[:, ::-1]
    return 1.0 - np.append(left, np.zeros((len(laws), 1)), axis=1).prod(axis=0)


def draw(rng: np.random.Generator, kind: str, size: int) -> np.ndarray:
    if kind == "flat":
        masses = rng.dirichlet(np.ones(size))
    elif kind == "ties":
        masses = rng.integers(1, 4, size).astype(float)
    elif kind == "equal":
        masses = np.ones(size)
    elif kind == "one-heavy":
        masses = np.full(size, 1e-12)
        masses[rng.integers(size)] = 1.0
    elif kind == "scales":
        masses = 10.0 ** rng.uniform(-300, 0, size)
    else:
        masses = rng.integers(0, 3, size).astype(float)
        masses[rng.permutation(size)[:3]] += 1.0
    return masses / masses.sum()


KINDS = ["flat", "ties", "equal", "one-heavy", "scales", "zeros"]


def problem(law: str, kind: str, seed: int = 0, *, size: int = 6, n: int = 2) -> Problem:
    """Six tokens at most in two to five groups, then each by itself."""
    rng = np.random.default_rng([seed, *kind.encode()])
    target = draw(rng, kind, size)
    vectors = np.array([draw(rng, kind, size) for _ in range(n)])
    drafted = np.flatnonzero(vectors.sum(axis=0) if law == "independent" else vectors[0])
    ratios = np.argsort(-target[drafted] / vectors[0, drafted].clip(1e-300))
    members = drafted[ratios]
    coarse = TokenGroups(size, members, np.array([0, 1, 3, len(members)]))
    fine = TokenGroups(size, members, np.arange(len(members) + 1))
    if law == "independent":
        laws = [GroupedIndependent(vectors, groups) for groups in (coarse, fine)]
        exact = exact_laws.independent_draws(vectors)
        return Problem(target, exact, lambda order: product_hits(vectors, order), laws)
    laws = [GroupedDraws(vectors[0], n, groups) for groups in (coarse, fine)]
    exact = exact_laws.draws_without_replacement(vectors[0], n)
    return Problem(target, exact, lambda order: prefix_hits(vectors[0][order], n), laws)


def optimum_of(case: Problem) -> float:
    tuples, masses = zip(*case.exact.items(), strict=True)
    return solve_lp(
        merge_tuples(case.target, np.array(tuples), np.array([float(x) for x in masses]))
    ).value


def check_lottery(case: Problem, found: TokenLottery) -> None:
    """Check what it says of itself: m^, the acceptance, and the certificate."""
    expected = exact_laws.selection(case.exact, found.groups, found._lottery)
    np.testing.assert_allclose(found.selected, expected, rtol=0, atol=1e-14)
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-14)
    assert found.attained == pytest.approx(np.minimum(case.target, expected).sum(), abs=1e-14)
    missed = set(np.flatnonzero(~found.subset).tolist())
    cut = case.target[found.subset].sum() + float(exact_laws.hit(case.exact, missed))
    assert found.upper == pytest.approx(min(cut, 1.0), abs=1e-14)
    assert found.gap == max(0.0, found.upper - found.attained)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("law", ["draws", "independent"])
class TestSmallInstances:
    def test_coarse_groups(self, law, kind):
        for seed in range(3):
            case = problem(law, kind, seed)
            found = find_token_lottery(case.target, case.hits, case.laws)
            assert found.groups is case.laws[0].groups
            check_lottery(case, found)
            optimum = optimum_of(case)
            assert found.attained <= optimum + 1e-12
            assert optimum <= found.upper + 1e-12

    def test_refined_to_the_optimum(self, law, kind):
        for seed in range(3):
            case = problem(law, kind, seed)
            found = find_token_lottery(case.target, case.hits, case.laws, max_iterations=1000)
            check_lottery(case, found)
            assert found.gap <= 1e-9
            assert found.attained == pytest.approx(optimum_of(case), abs=2e-9)

    def test_one_order_is_valid_too(self, law, kind):
        case = problem(law, kind)
        found = find_token_lottery(case.target, case.hits, case.laws, max_iterations=1)
        assert found.orders.shape == (1, 3)
        check_lottery(case, found)

    def test_one_token_is_told_from_its_group_alone(self, law, kind):
        case = problem(law, kind)
        lazy = find_token_lottery(case.target, case.hits, case.laws)
        full = find_token_lottery(case.target, case.hits, case.laws).selected
        assert [lazy.selected_of(token) for token in range(len(full))] == full.tolist()
        assert "selected" not in vars(lazy)


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"selected": np.full(6, 1 / 6)}, id="selected"),
        pytest.param({"attained": 0.5}, id="attained"),
        pytest.param({"_cut": (0.5, np.zeros(6, dtype=bool))}, id="upper"),
    ],
)
def test_check_notices_a_wrong_answer(wrong):
    """Negative controls of `check_lottery`."""
    case = problem("draws", "flat")
    found = find_token_lottery(case.target, case.hits, case.laws)
    check_lottery(case, found)
    vars(found).update(wrong)
    with pytest.raises(AssertionError):
        check_lottery(case, found)


def test_check_notices_another_subset():
    case = problem("draws", "flat")
    found = find_token_lottery(case.target, case.hits, case.laws)
    vars(found)["_cut"] = (found.upper, ~found.subset)
    with pytest.raises(AssertionError):
        check_lottery(case, found)


def test_coarse_groups_may_miss_the_optimum():
    """Otherwise nothing above would need the finer ones."""
    gaps = []
    for seed in range(8):
        case = problem("draws", "flat", seed)
        gaps.append(find_token_lottery(case.target, case.hits, case.laws).gap)
    assert max(gaps) > 1e-3


@pytest.mark.parametrize("law", ["draws", "independent"])
def test_target_on_tokens_that_are_never_drawn(law):
    target = np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.2])
    q = np.array([0.0, 0.4, 0.2, 0.0, 0.3, 0.1])
    if law == "draws":
        laws = [GroupedDraws(q, 2, TokenGroups(6, np.array([1, 2, 4, 5]), np.array([0, 1, 4])))]
        exact = exact_laws.draws_without_replacement(q, 2)
        case = Problem(target, exact, lambda order: prefix_hits(q[order], 2), laws)
    else:
        vectors = np.array([q, q[::-1]])[:, :]
        vectors[:, 0] = 0.0
        vectors /= vectors.sum(axis=1, keepdims=True)
        drafted = np.flatnonzero(vectors.sum(axis=0))
        groups = TokenGroups(6, drafted, np.array([0, 1, len(drafted)]))
        laws = [GroupedIndependent(vectors, groups)]
        exact = exact_laws.independent_draws(vectors)
        case = Problem(target, exact, lambda order: product_hits(vectors, order), laws)
    found = find_token_lottery(target, case.hits, laws)
    check_lottery(case, found)
    never = np.setdiff1d(np.arange(6), laws[0].groups.members)
    assert found.selected[never].tolist() == [0.0] * len(never)
    assert [found.selected_of(int(token)) for token in never] == [0.0] * len(never)
    assert not found.subset[never].any()
    assert found.upper <= 1.0 - target[never].sum() + 1e-15


def test_nothing_in_common():
    target, q = np.array([0.5, 0.5, 0.0, 0.0, 0.0]), np.array([0.0, 0.0, 0.2, 0.3, 0.5])
    groups = TokenGroups(5, np.array([2, 3, 4]), np.array([0, 1, 3]))
    laws = [GroupedDraws(q, 2, groups)]
    found = find_token_lottery(target, lambda order: prefix_hits(q[order], 2), laws)
    assert (found.attained, found.upper, found.gap) == (0.0, 0.0, 0.0)
    assert found.subset.tolist() == [False, False, True, True, True]
    assert found.selected.sum() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]], ids=str)
def test_single_tokens(order):
    """A law known by its prefix hits alone, such as a user's own."""
    target, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])

    def hits(order: np.ndarray) -> np.ndarray:
        return prefix_hits(q[order], 2)

    law = SingleTokens(hits, token_hits(q, 2), np.array(order))
    found = find_token_lottery(target, hits, [law])
    assert law.first_order(target).tolist() == order
    assert found.attained == pytest.approx(69 / 70, abs=1e-9)
    assert found.gap <= 1e-9
    assert [found.selected_of(token) for token in range(3)] == found.selected.tolist()


def test_one_token():
    law = SingleTokens(lambda order: np.array([0.0, 1.0]), np.ones(1), np.zeros(1, dtype=int))
    found = find_token_lottery(np.ones(1), law.prefix_hits, [law])
    assert (found.attained, found.upper, found.gap) == (1.0, 1.0, 0.0)
    assert found.subset.tolist() in ([True], [False])


def test_no_law_is_refused():
    with pytest.raises(ValueError, match="laws is empty"):
        find_token_lottery(np.ones(1), lambda order: np.array([0.0, 1.0]), [])


def peaked(
    size: int, n: int, seed: int = 0, deviation: float = 3.0
) -> tuple[np.ndarray, np.ndarray]:
    """Softmax of normal logits, and of the same with unit noise for each draft."""
    rng = np.random.default_rng(seed)
    logits = deviation * rng.normal(size=size)
    weights = np.exp(np.vstack([logits, logits + rng.normal(size=(n, size))]))
    weights /= weights.sum(axis=1, keepdims=True)
    return weights[0], weights[1:]


@pytest.mark.parametrize(
    ("size", "n", "gap"),
    [(3000, 2, 1e-5), (3000, 4, 5e-5), (20_000, 4, 5e-5), (3000, 16, 5e-4)],
    ids=str,
)
def test_without_replacement_against_the_exact_bound(size, n, gap):
    """The best prefix is exact for draws without replacement."""
    target, vectors = peaked(size, 1)
    q = vectors[0]

    def hits(order: np.ndarray) -> np.ndarray:
        return prefix_hits(q[order], n)

    found = find_token_lottery(target, hits, refined_draws(target, q, n))
    order = np.argsort(-target / q)
    bound, _ = best_prefix(target[order], hits(order))
    assert not found.groups.single.all()
    assert found.attained <= bound + 1e-13
    assert bound <= found.upper + 1e-13
    assert bound - found.attained <= found.gap + 1e-13
    assert found.gap < gap
    assert found.selected.sum() == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("size", [3000, 20_000])
def test_independent_draws(size):
    target, vectors = peaked(size, 3)

    def hits(order: np.ndarray) -> np.ndarray:
        return product_hits(vectors, order)

    found = find_token_lottery(target, hits, refined_independent(target, vectors))
    assert not found.groups.single.all()
    assert found.gap < 1e-3
    assert found.selected.sum() == pytest.approx(1.0, abs=1e-13)
    outside = np.flatnonzero(~found.subset)
    missed = (1.0 - vectors[:, outside].sum(axis=1)).prod()
    assert found.upper == pytest.approx(target[found.subset].sum() + 1.0 - missed, abs=1e-12)


class TestRefinement:
    """From 4 single tokens and 4 buckets of a hundred tokens to every token by itself."""

    @pytest.fixture
    def search(self, monkeypatch):
        for name in ("_SINGLES", "_BUCKETS", "_FEWEST_BUCKETS"):
            monkeypatch.setattr(grouped_draws, name, 4)
        target, (q,) = peaked(100, 1, 3, 1.5)

        def find(**options):
            return find_token_lottery(
                target,
                lambda order: prefix_hits(q[order], 3),
                refined_draws(target, q, 3),
                **options,
            )

        return find

    def test_more_orders_close_the_gap(self, search):
        gaps = [search(max_iterations=limit).gap for limit in (10, 45, 2000)]
        assert gaps[0] > 1e-3
        assert all(later <= sooner for sooner, later in pairwise(gaps))
        assert gaps[-1] <= 1e-9

    @pytest.mark.parametrize("tolerance", [1e-1, 1e-2, 1e-4, 1e-6])
    def test_a_wide_tolerance_is_content_with_coarser_groups(self, search, tolerance):
        found = search(tolerance=tolerance, max_iterations=2000)
        assert found.gap <= tolerance
        assert len(found.groups) <= len(search(max_iterations=2000).groups)

    def test_a_wide_tolerance_stops_before_the_end(self, search):
        assert len(search(tolerance=0.5, max_iterations=2000).groups) == 8

    def test_no_more_orders_than_given(self, search, monkeypatch):
        counted = []

        class Counting(GroupedDraws):
            def prefix_hits(self, order):
                counted.append(len(order))
                return super().prefix_hits(order)

        monkeypatch.setattr(grouped_draws, "GroupedDraws", Counting)
        search(max_iterations=20)
        assert len(counted) == 20
        assert len(set(counted)) > 1

    def test_without_a_limit_only_the_coarse_groups_are_searched(self, search):
        found = search()
        assert len(found.groups) == 8
        assert found.gap > 1e-3


@pytest.mark.parametrize("limit", [None, 100])
def test_token_hits_below_those_of_the_groups_are_no_certificate(limit):
    """Negative control: a tenth less than the chance that a prefix of the tokens is hit."""
    case = problem("draws", KINDS[0])
    found = find_token_lottery(case.target, case.hits, case.laws)
    assert found.gap >= 0.0

    def search():
        hits = lambda order: case.hits(order) * 0.9  # noqa: E731
        return find_token_lottery(case.target, hits, case.laws, max_iterations=limit).gap

    message = r"^order lottery failed: the upper bound 0\.\d+ is below the attained 0\.\d+"
    with pytest.raises(SolverFailure, match=message):
        search()
