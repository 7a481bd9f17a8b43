"""Lotteries over orders of groups: what they select, and what certifies them, token by token."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

from mdsd._solvers import token_lottery
from mdsd._solvers.errors import SolverFailure
from mdsd._solvers.group_hits import hits_of_groups
from mdsd._solvers.hitting import prefix_hits, token_hits
from mdsd._solvers.law_parts import LawPart, draws_without_replacement, independent_draws
from mdsd._solvers.lp import solve_lp
from mdsd._solvers.prefix import best_prefix
from mdsd._solvers.token_lottery import (
    EXACT,
    FAST,
    Effort,
    GroupLottery,
    TokenLottery,
    find_group_lottery,
    find_single_lottery,
)
from mdsd._solvers.transport import merge_tuples

from . import exact_laws
from .grouped_laws import PARTS, exact_part, random_target

COARSE = Effort(groups=2, tolerance=1e-4, limit=60, every=1)
ROUGH = Effort(groups=2, tolerance=1e-3, limit=40, every=3)
EFFORTS = {"exact": EXACT, "fast": FAST, "coarse": COARSE, "rough": ROUGH}


@pytest.fixture(autouse=True)
def few_groups(monkeypatch):
    """Let the smallest vocabularies have groups that are shared."""
    monkeypatch.setattr(token_lottery, "FEWEST_GROUPS", 2)
    monkeypatch.setattr(token_lottery, "FEW", 2)


@dataclass(frozen=True, eq=False)
class Problem:
    """A target, and parts of a law with what they are in fractions."""

    target: np.ndarray
    parts: list[LawPart]
    exact: exact_laws.ExactLaw

    def hits(self, order: np.ndarray) -> np.ndarray:
        """Hits of the prefixes of an order of tokens, tuple by tuple."""
        return np.array(exact_laws.group_hits(self.exact, np.arange(len(self.target)), order))

    def find(self, **options: object) -> GroupLottery:
        return find_group_lottery(self.target, self.hits, self.parts, **options)


def problem(name: str, seed: int = 0) -> Problem:
    """Give the parts of that name, each further on in the vocabulary, and a random target."""
    placed, offset = [], 0
    for part in PARTS[name]:
        placed.append(part.moved(offset))
        offset += part.vocab_size
    target = random_target(np.random.default_rng([seed, *name.encode()]), offset)
    exact = exact_laws.joint(
        [exact_part(part) for part in placed], [part.offset for part in placed]
    )
    return Problem(target, placed, exact)


def optimum_of(case: Problem) -> float:
    tuples, masses = zip(*case.exact.items(), strict=True)
    masses = np.array([float(x) for x in masses])
    return solve_lp(merge_tuples(case.target, np.array(tuples), masses / masses.sum())).value


def check_lottery(case: Problem, found: GroupLottery) -> None:
    """Check what it says of itself: what is selected and kept, the acceptance, the certificate."""
    tokens = np.arange(len(case.target))
    expected = exact_laws.selection(
        case.exact, found.groups_of(tokens), found.orders, found.weights
    )
    kept, chances = found.masses_of(tokens)
    np.testing.assert_allclose(kept, chances * expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.selected, kept, rtol=0, atol=0)
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.attained == pytest.approx(np.minimum(case.target, kept).sum(), abs=1e-14)
    missed = set(np.flatnonzero(~found.subset).tolist())
    cut = case.target[found.subset].sum() + float(exact_laws.hit(case.exact, missed))
    assert found.upper == pytest.approx(min(cut, 1.0), abs=1e-12)
    assert found.gap == max(0.0, found.upper - found.attained)


@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("name", PARTS)
def test_small_laws(name, effort):
    for seed in range(2):
        case = problem(name, seed)
        found = case.find(effort=EFFORTS[effort])
        check_lottery(case, found)
        optimum = optimum_of(case)
        assert found.attained <= optimum + 1e-12
        assert optimum <= found.upper + 1e-12
        if effort == "exact":
            assert found.gap <= 1e-9


@pytest.mark.parametrize("name", PARTS)
class TestSmallLaws:
    def test_refined_to_the_optimum(self, name):
        case = problem(name)
        found = case.find(max_iterations=1000, effort=COARSE)
        check_lottery(case, found)
        assert found.gap <= 1e-9
        assert found.attained == pytest.approx(optimum_of(case), abs=2e-9)

    def test_one_order_is_valid_too(self, name):
        case = problem(name)
        for effort in (COARSE, EXACT):
            found = case.find(max_iterations=1, effort=effort)
            assert len(found.orders) == 1
            check_lottery(case, found)

    def test_some_tokens_are_told_without_the_others(self, name):
        case = problem(name)
        found = case.find(effort=COARSE)
        tokens = np.random.default_rng(0).integers(0, len(case.target), 7)
        some = found.masses_of(tokens), found.groups_of(tokens)
        assert "selected" not in vars(found)
        assert some[0][0].tolist() == found.selected[tokens].tolist()
        everything = np.arange(len(case.target))
        assert some[0][1].tolist() == found.masses_of(everything)[1][tokens].tolist()
        assert some[1].tolist() == found.groups_of(everything)[tokens].tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"selected": np.full(8, 1 / 8)}, id="selected"),
        pytest.param({"attained": 0.5}, id="attained"),
        pytest.param({"_cut": (0.5, np.zeros(8, dtype=bool))}, id="upper"),
        pytest.param({"weights": np.ones(1)}, id="weights"),
    ],
)
def test_check_notices_a_wrong_answer(wrong):
    """Negative controls of `check_lottery`."""
    case = problem("draws-faint-n2")
    found = case.find(effort=COARSE)
    check_lottery(case, found)
    if "weights" in wrong:
        _ = found._selection
        found.orders, found.weights = found.orders[:1, ::-1], np.ones(1)
    vars(found).update(wrong)
    with pytest.raises(AssertionError):
        check_lottery(case, found)


def test_check_notices_another_subset():
    case = problem("independent-flat")
    found = case.find(effort=COARSE)
    vars(found)["_cut"] = (found.upper, ~found.subset)
    with pytest.raises(AssertionError):
        check_lottery(case, found)


def test_coarse_groups_may_miss_the_optimum():
    """Otherwise nothing above would need the finer ones."""
    gaps = [problem("independent-flat", seed).find(effort=COARSE).gap for seed in range(8)]
    assert max(gaps) > 1e-3


@pytest.mark.parametrize("law", ["draws", "independent"])
def test_target_on_tokens_that_are_never_drawn(law):
    target = np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.2])
    q = np.array([0.0, 0.4, 0.2, 0.0, 0.3, 0.1])
    part = draws_without_replacement(q, 2)
    if law == "independent":
        part = independent_draws(np.array([q, q[[0, 2, 1, 3, 4, 5]]]), 2)
    case = Problem(target, [part], exact_part(part))
    for effort in (EXACT, COARSE, FAST):
        found = case.find(effort=effort)
        check_lottery(case, found)
        never = np.array([0, 3])
        assert found.selected[never].tolist() == [0.0, 0.0]
        assert found.groups_of(never).tolist() == [-1, -1]
        assert not found.subset[never].any()
        assert found.upper <= 1.0 - target[never].sum() + 1e-15


def test_nothing_in_common():
    target, q = np.array([0.5, 0.5, 0.0, 0.0, 0.0]), np.array([0.0, 0.0, 0.2, 0.3, 0.5])
    part = draws_without_replacement(q, 2)
    found = Problem(target, [part], exact_part(part)).find()
    assert (found.attained, found.upper, found.gap) == (0.0, 0.0, 0.0)
    assert found.subset.tolist() == [False, False, True, True, True]
    assert found.selected.sum() == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]], ids=str)
def test_single_tokens(order):
    """A law known by its prefix hits alone, such as a user's own."""
    target, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    found = find_single_lottery(
        target, lambda order: prefix_hits(q[order], 2), token_hits(q, 2), np.array(order)
    )
    assert found.attained == pytest.approx(69 / 70, abs=1e-9)
    assert found.gap <= 1e-9
    kept, chances = found.masses_of(np.array([2, 0]))
    assert kept.tolist() == found.selected[[2, 0]].tolist()
    assert chances.tolist() == [1.0, 1.0]
    assert found.groups_of(np.array([2, 0])).tolist() == [2, 0]
    exact = exact_laws.draws_without_replacement(q, 2)
    expected = exact_laws.selection(exact, np.arange(3), found.orders, found.weights)
    np.testing.assert_allclose(found.selected, expected, rtol=0, atol=1e-14)


def test_one_token():
    found: TokenLottery = find_single_lottery(
        np.ones(1), lambda order: np.array([0.0, 1.0]), np.ones(1), np.zeros(1, dtype=np.int64)
    )
    assert (found.attained, found.upper, found.gap) == (1.0, 1.0, 0.0)
    found = problem("independent-one").find(effort=FAST)
    assert (found.attained, found.upper, found.gap) == (1.0, 1.0, 0.0)


def peaked(size: int, n: int, seed: int = 0, deviation: float = 3.0) -> np.ndarray:
    """Softmax of normal logits, and of the same with unit noise for each draft, (n + 1, V)."""
    rng = np.random.default_rng(seed)
    logits = deviation * rng.normal(size=size)
    weights = np.exp(np.vstack([logits, logits + rng.normal(size=(n, size))]))
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    ("size", "n", "gaps"),
    [
        (3000, 2, (1e-4, 1e-3)),
        (3000, 4, (1e-4, 1e-3)),
        (20_000, 4, (1e-4, 1e-3)),
        (3000, 16, (5e-3, 1e-2)),
    ],
    ids=str,
)
@pytest.mark.parametrize("effort", [EXACT, FAST], ids=["exact", "fast"])
def test_without_replacement_against_the_exact_bound(size, n, gaps, effort):
    """The best prefix is exact for draws without replacement."""
    target, q = peaked(size, 1)

    def hits(order: np.ndarray) -> np.ndarray:
        return prefix_hits(q[order], n)

    found = find_group_lottery(target, hits, [draws_without_replacement(q, n)], effort=effort)
    order = np.argsort(-target / q)
    bound, _ = best_prefix(target[order], hits(order))
    assert found.orders.shape[1] < size / 3
    assert found.attained <= bound + 1e-12
    assert bound <= found.upper + 1e-12
    assert bound - found.attained <= found.gap + 1e-12
    assert found.gap < gaps[effort is FAST]
    # Of tokens in groups a little less is kept than selected.
    assert 1.0 - 1e-3 < found.selected.sum() < 1.0 + 1e-12


def product_hits(laws: np.ndarray, order: np.ndarray) -> np.ndarray:
    left = np.cumsum(laws[:, order][:, ::-1], axis=1)[:, ::-1]
    return 1.0 - np.append(left, np.zeros((len(laws), 1)), axis=1).prod(axis=0)


@pytest.mark.parametrize("size", [3000, 20_000])
@pytest.mark.parametrize("effort", [EXACT, FAST], ids=["exact", "fast"])
def test_independent_draws(size, effort):
    target, *laws = peaked(size, 3)
    vectors = np.array(laws)
    found = find_group_lottery(
        target,
        lambda order: product_hits(vectors, order),
        [independent_draws(vectors, 3)],
        effort=effort,
    )
    assert found.orders.shape[1] < size / 3
    assert found.gap < (1e-3 if effort is EXACT else 5e-3)
    assert found.selected.sum() == pytest.approx(1.0, abs=1e-12)
    outside = np.flatnonzero(~found.subset)
    missed = (1.0 - vectors[:, outside].sum(axis=1)).prod()
    assert found.upper == pytest.approx(target[found.subset].sum() + 1.0 - missed, abs=1e-12)


@pytest.mark.parametrize("n", [2, 4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_of_few_nodes_is_one(n, seed):
    """It was found with a third of the nodes, and is known with all of them."""
    target, q = peaked(400, 1, seed, 2.0)
    part = draws_without_replacement(q, n)
    found = find_group_lottery(target, lambda order: prefix_hits(q[order], n), [part], effort=FAST)
    missed = np.concatenate([np.flatnonzero(~found.subset), np.flatnonzero(found.subset)])
    hit = prefix_hits(q[missed], n)[np.count_nonzero(~found.subset)]
    assert found.upper == pytest.approx(target[found.subset].sum() + hit, abs=1e-12)


class TestRefinement:
    """From two tokens alone and two groups of a hundred tokens to every token by itself."""

    @pytest.fixture
    def search(self):
        target, *laws = peaked(100, 3, 3, 1.5)
        vectors = np.array(laws)

        def find(**options):
            return find_group_lottery(
                target,
                lambda order: product_hits(vectors, order),
                [independent_draws(vectors, 3)],
                effort=COARSE,
                **options,
            )

        return find

    def test_more_orders_close_the_gap(self, search):
        gaps = [search(max_iterations=limit).gap for limit in (3, 12, 2000)]
        assert gaps[0] > 1e-3
        assert all(later <= sooner for sooner, later in pairwise(gaps))
        assert gaps[-1] <= 1e-9

    @pytest.mark.parametrize("tolerance", [1e-1, 1e-2, 1e-4, 1e-6])
    def test_a_wide_tolerance_is_content_with_coarser_groups(self, search, tolerance):
        found = search(tolerance=tolerance, max_iterations=2000)
        assert found.gap <= tolerance
        finest = search(max_iterations=2000)
        assert found.orders.shape[1] <= finest.orders.shape[1] == 100

    def test_a_wide_tolerance_stops_before_the_end(self, search):
        assert search(tolerance=0.5, max_iterations=2000).orders.shape[1] <= 4

    def test_no_more_orders_than_given(self, search, monkeypatch):
        counted = []

        def counting(order, law):
            counted.append(len(order))
            return hits_of_groups(order, law)

        monkeypatch.setattr(token_lottery, "hits_of_groups", counting)
        search(max_iterations=20)
        assert len(counted) == 20
        assert len(set(counted)) > 1

    def test_without_a_limit_only_the_coarse_groups_are_searched(self, search):
        found = search()
        assert found.orders.shape[1] <= 4
        assert found.gap > 1e-3


@pytest.mark.parametrize("limit", [None, 100])
def test_token_hits_below_those_of_the_groups_are_no_certificate(limit, monkeypatch):
    """Negative control: half the chance that a prefix of the tokens is hit."""
    monkeypatch.setattr(token_lottery, "EXACT", COARSE)
    case = problem("independent-flat")

    def gap(factor: float) -> float:
        def hits(order: np.ndarray) -> np.ndarray:
            return factor * case.hits(order)

        search = case.target, hits, case.parts
        return find_group_lottery(*search, max_iterations=limit, effort=COARSE).gap

    assert gap(1.0) >= 0.0
    message = r"^order lottery failed: the upper bound 0\.\d+ is below the attained 0\.\d+"
    with pytest.raises(SolverFailure, match=message):
        gap(0.5)


def test_the_search_is_the_same_every_time():
    target, q = peaked(3000, 1)
    part = draws_without_replacement(q, 4)
    first, second = (
        find_group_lottery(target, lambda order: prefix_hits(q[order], 4), [part], effort=FAST)
        for _ in range(2)
    )
    assert first.orders.tolist() == second.orders.tolist()
    assert first.selected.tolist() == second.selected.tolist()
