"""The mark coupling: uniform marks, selection masses, and selection given the drafts."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from mdsd._solvers.marks import (
    GroupedMarks,
    MarkCoupling,
    _cap_with_overlap,
    _mean_slope,
    couple_marks,
    draw_marks,
    grouped_coupling,
    optimal_coupling,
    select_smallest,
    smallest_mark_probs,
)
from mdsd._solvers.prefix import best_prefix, prefix_with_replacement
from mdsd._solvers.ratio_groups import (
    RatioGroups,
    groups_of_tokens,
    join_buckets,
    spread_over_tokens,
    sum_buckets,
    sure_overlap,
)
from mdsd.drafts import WithReplacement

FALSE_ALARM = 1e-6
"""Chance that one sampling check fails for right code; seeds are fixed, so once for all."""


def p_value(counts: np.ndarray, expected_probs: np.ndarray) -> float:
    """P-value of counts; the cells are all common here, or impossible."""
    assert counts[expected_probs == 0].sum() == 0
    counts, expected = counts[expected_probs > 0], expected_probs[expected_probs > 0] * counts.sum()
    if len(counts) == 1:
        return 1.0
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1))


@dataclass(frozen=True, eq=False)
class Problem:
    p: np.ndarray
    q: np.ndarray
    n: int

    @property
    def cap_and_total(self) -> tuple[float, float]:
        """c* and alpha*, as `mdsd.verifiers.marks` computes them."""
        draft = WithReplacement(self.q, self.n)
        order = draft.prefix_order(self.p)
        upper, _ = best_prefix(self.p[order], draft.hit_probs(order))
        cap = _cap_with_overlap(self.p, self.q, order[self.q[order] > 0], upper)
        return cap, float(np.minimum(self.p, cap * self.q).sum())

    @property
    def wanted(self) -> np.ndarray:
        return np.minimum(self.p, self.cap_and_total[0] * self.q)

    def couple(self) -> MarkCoupling:
        cap, total = self.cap_and_total
        return couple_marks(self.p, self.q, self.n, cap, total)


def draw(rng: np.random.Generator, family: str, size: int) -> np.ndarray:
    if family == "flat":
        weights = rng.dirichlet(np.ones(size))
    elif family == "peaked":
        weights = rng.dirichlet(np.full(size, 0.1)) + 1e-30
    elif family == "ties":
        weights = rng.integers(1, 4, size).astype(float)
    elif family == "scales":
        weights = 10.0 ** rng.uniform(-25, 0, size)
    elif family == "one-heavy":
        weights = np.full(size, 1e-12)
        weights[rng.integers(size)] = 1.0
    elif family == "nearly-flat":
        weights = 1 + 1e-9 * rng.random(size)
    else:
        weights = rng.integers(0, 3, size).astype(float)
        weights[rng.integers(size)] += 1.0
    return weights / weights.sum()


FAMILIES = ["flat", "peaked", "ties", "scales", "one-heavy", "nearly-flat", "zeros"]
COUNTS = [1, 2, 3, 8, 64]


def random_problem(family: str, n: int, seed: int = 0, size: int | None = None) -> Problem:
    rng = np.random.default_rng([seed, n, *family.encode()])
    size = int(rng.integers(1, 12)) if size is None else size
    return Problem(draw(rng, family, size), draw(rng, family, size), n)


FIXED = {
    "paper": ([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]),
    "target-is-draft": ([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]),
    "disjoint": ([1.0, 0.0], [0.0, 1.0]),
    "point-masses-agree": ([0.0, 1.0], [0.0, 1.0]),
    "one-token": ([1.0], [1.0]),
    "two-tokens": ([0.9, 0.1], [0.3, 0.7]),
    "two-tokens-target-off": ([0.5, 0.5], [1.0, 0.0]),
    "two-tokens-draft-off": ([1.0, 0.0], [0.5, 0.5]),
    "masses-1e-25": ([0.5, 0.5 - 1e-25, 1e-25], [1e-25, 0.5, 0.5]),
    "tiny-overlap": ([1 - 1e-12, 1e-12], [1e-12, 1 - 1e-12]),
    "thirds": ([1 / 3, 2 / 3], [2 / 3, 1 / 3]),
}
PROBLEMS = [
    pytest.param(Problem(np.array(p), np.array(q), n), id=f"{name}-n{n}")
    for name, (p, q) in FIXED.items()
    for n in COUNTS
] + [
    pytest.param(random_problem(family, n, seed), id=f"{family}-n{n}-{seed}")
    for family in FAMILIES
    for n in COUNTS
    for seed in range(3)
]


def shares_of(coupling: MarkCoupling) -> np.ndarray:
    """Probability of each piece within its group."""
    before = np.concatenate([[0.0], coupling.levels[:-1]])
    before[coupling.starts[:-1][np.diff(coupling.starts) > 0]] = 0.0
    return coupling.levels - before


def group_masses(coupling: MarkCoupling, q: np.ndarray) -> np.ndarray:
    drawn = coupling.group >= 0
    return np.bincount(coupling.group[drawn], weights=q[drawn], minlength=len(coupling.starts) - 1)


def check_pieces(coupling: MarkCoupling, q: np.ndarray, rtol: float = 0.0) -> None:
    """Pieces tile [0, 1] and hold as much mass as they are long: marks are uniform."""
    assert coupling.starts[0] == 0
    assert coupling.starts[-1] == len(coupling.left) == len(coupling.right)
    assert (np.diff(coupling.starts) >= 0).all()
    lengths = coupling.right - coupling.left
    assert (lengths >= 0).all()
    assert lengths.sum() == pytest.approx(1.0, abs=1e-14)
    position = np.lexsort([coupling.right, coupling.left])
    left, right = coupling.left[position], coupling.right[position]
    assert left[0] == 0.0
    assert right[-1] == 1.0
    assert left[1:].tolist() == right[:-1].tolist()
    for g in np.flatnonzero(np.diff(coupling.starts)):
        mine = slice(coupling.starts[g], coupling.starts[g + 1])
        assert (np.diff(coupling.left[mine]) >= 0).all()
        assert (np.diff(coupling.levels[mine]) >= 0).all()
        assert coupling.levels[mine][-1] == 1.0
    held = shares_of(coupling) * np.repeat(group_masses(coupling, q), np.diff(coupling.starts))
    np.testing.assert_allclose(held, lengths, rtol=rtol, atol=1e-15)
    assert ((coupling.group == -1) == (q == 0)).all()


def integrated(coupling: MarkCoupling, q: np.ndarray, n: int) -> np.ndarray:
    """m^_i = q_i E[n (1 - u)**(n - 1)] over the marks of i, in fractions from the pieces."""
    means = []
    for left, right in zip(coupling.left.tolist(), coupling.right.tolist(), strict=True):
        a, b = 1 - Fraction(left), 1 - Fraction(right)
        means.append((a**n - b**n) / (a - b) if a != b else n * a ** (n - 1))
    shares = [Fraction(float(s)) for s in shares_of(coupling)]
    per_group = [
        float(sum(shares[k] * means[k] for k in range(*coupling.starts[g : g + 2].tolist())))
        for g in range(len(coupling.starts) - 1)
    ]
    return np.array([q[i] * per_group[g] if g >= 0 else 0.0 for i, g in enumerate(coupling.group)])


def check_selected(coupling: MarkCoupling, q: np.ndarray, n: int) -> None:
    np.testing.assert_allclose(
        coupling.selected, integrated(coupling, q, n), rtol=1e-12, atol=1e-15
    )
    assert coupling.selected.sum() == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("problem", PROBLEMS)
class TestCoupling:
    def test_pieces_tile_the_interval_and_marks_are_uniform(self, problem):
        check_pieces(problem.couple(), problem.q)

    def test_selected_is_what_the_pieces_say_and_sums_to_1(self, problem):
        check_selected(problem.couple(), problem.q, problem.n)

    def test_selected_covers_the_accepted_mass(self, problem):
        loss = np.maximum(problem.wanted - problem.couple().selected, 0.0).sum()
        assert loss <= 1e-12

    def test_thinned_to_the_target_alpha_is_left(self, problem):
        _, total = problem.cap_and_total
        assert np.minimum(problem.p, problem.couple().selected).sum() >= total - 1e-12

    def test_inputs_are_not_modified(self, problem):
        before = problem.p.copy(), problem.q.copy()
        problem.couple()
        assert problem.p.tolist() == before[0].tolist()
        assert problem.q.tolist() == before[1].tolist()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n", COUNTS)
@pytest.mark.parametrize("seed", range(3, 8))
def test_larger_vocabularies_lose_nothing(family, n, seed):
    problem = random_problem(family, n, seed, size=200)
    coupling = problem.couple()
    check_pieces(coupling, problem.q)
    assert np.maximum(problem.wanted - coupling.selected, 0.0).sum() <= 1e-12


@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("concentration", [1.0, 0.05])
def test_20_000_tokens(n, concentration):
    rng = np.random.default_rng(n)
    p, q = rng.dirichlet(np.full(20_000, concentration), size=2) + 1e-18
    problem = Problem(p / p.sum(), q / q.sum(), n)
    coupling = problem.couple()
    assert coupling.selected.sum() == pytest.approx(1.0, abs=1e-13)
    assert np.maximum(problem.wanted - coupling.selected, 0.0).sum() <= 1e-9


SMALL = [
    pytest.param(Problem(np.array(p), np.array(q), n), id=f"{name}-n{n}")
    for name, (p, q) in FIXED.items()
    for n in (1, 2, 3, 4)
] + [
    pytest.param(random_problem(family, n, seed, size=4), id=f"{family}-n{n}-{seed}")
    for family in FAMILIES
    for n in (2, 3, 4)
    for seed in range(2)
]


def all_tuples(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    support = np.flatnonzero(problem.q)
    ids = np.array(list(itertools.product(support, repeat=problem.n)))
    return ids, problem.q[ids].prod(axis=1)


def selected_by_enumeration(problem: Problem, coupling: MarkCoupling) -> np.ndarray:
    ids, masses = all_tuples(problem)
    law = np.zeros(len(problem.q))
    np.add.at(law, ids, masses[:, np.newaxis] * smallest_mark_probs(coupling, ids))
    return law


def cdf(coupling: MarkCoupling, token: int, marks: np.ndarray) -> np.ndarray:
    """Law of the marks of a token at given places, by linear interpolation between its ends."""
    mine = slice(*coupling.starts[coupling.group[token] + np.array([0, 1])].tolist())
    levels = coupling.levels[mine]
    before = np.concatenate([[0.0], levels[:-1]])
    places = np.stack([coupling.left[mine], coupling.right[mine]], axis=1).ravel()
    values = np.stack([before, levels], axis=1).ravel()
    keep = np.append(np.diff(places) > 0, True)
    keep[0] = True
    return np.interp(marks, places[keep], values[keep], left=0.0, right=1.0)


def integrate_smallest(coupling: MarkCoupling, row: np.ndarray) -> np.ndarray:
    """Chance of each draw to have the smallest mark: a sum over 200,000 strata of [0, 1]."""
    knots = np.unique(np.concatenate([np.linspace(0, 1, 200_001), coupling.left, coupling.right]))
    middle = 0.5 * (knots[1:] + knots[:-1])
    above = np.array([1.0 - cdf(coupling, i, middle) for i in row])
    gains = np.array([np.diff(cdf(coupling, i, knots)) for i in row])
    return np.array(
        [(gains[j] * np.delete(above, j, axis=0).prod(axis=0)).sum() for j in range(len(row))]
    )


@pytest.mark.parametrize("problem", SMALL)
class TestSelectionGivenTheDrafts:
    def test_rows_are_laws(self, problem):
        probs = smallest_mark_probs(problem.couple(), all_tuples(problem)[0])
        assert (probs >= 0).all()
        np.testing.assert_allclose(probs.sum(axis=1), 1.0, rtol=0, atol=1e-14)

    def test_summed_over_all_tuples_they_are_selected(self, problem):
        coupling = problem.couple()
        found = selected_by_enumeration(problem, coupling)
        np.testing.assert_allclose(found, coupling.selected, rtol=0, atol=1e-13)

    def test_the_same_token_drafted_n_times_has_equal_chances(self, problem):
        coupling = problem.couple()
        rows = np.tile(np.flatnonzero(problem.q)[:, np.newaxis], (1, problem.n))
        probs = smallest_mark_probs(coupling, rows)
        np.testing.assert_allclose(probs, 1 / problem.n, rtol=0, atol=1e-14)

    def test_order_of_the_drafts_does_not_matter(self, problem):
        coupling = problem.couple()
        ids, _ = all_tuples(problem)
        backwards = smallest_mark_probs(coupling, ids[:, ::-1])[:, ::-1]
        np.testing.assert_allclose(smallest_mark_probs(coupling, ids), backwards, atol=1e-14)


GENERIC = {
    "flat-n2": random_problem("flat", 2, 0, size=5),
    "flat-n3": random_problem("flat", 3, 1, size=5),
    "flat-n5": random_problem("flat", 5, 2, size=6),
    "ties-n3": random_problem("ties", 3, 0, size=5),
    "paper-n2": Problem(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3]), 2),
}
ROWS = [
    pytest.param(problem, seed, id=f"{name}-{seed}")
    for name, problem in GENERIC.items()
    for seed in range(3)
]


@pytest.mark.parametrize(("problem", "seed"), ROWS)
class TestOneRow:
    def test_agrees_with_a_fine_integration(self, problem, seed):
        coupling = problem.couple()
        row = np.random.default_rng(seed).integers(0, len(problem.q), problem.n)
        found = smallest_mark_probs(coupling, row[np.newaxis])[0]
        np.testing.assert_allclose(found, integrate_smallest(coupling, row), rtol=0, atol=1e-8)

    def test_agrees_with_drawn_marks(self, problem, seed):
        coupling = problem.couple()
        rng = np.random.default_rng([seed, 1])
        row = rng.integers(0, len(problem.q), problem.n)
        draws = 20_000
        marks = draw_marks(coupling, np.tile(row, (draws, 1)), rng.random((draws, problem.n)))
        counts = np.bincount(marks.argmin(axis=1), minlength=problem.n)
        expected = smallest_mark_probs(coupling, row[np.newaxis])[0]
        assert p_value(counts, expected) > FALSE_ALARM

    def test_drawn_marks_invert_the_law(self, problem, seed):
        coupling = problem.couple()
        token = seed % len(problem.q)
        grid = np.linspace(0, 1, 1001)[:-1]
        marks = draw_marks(coupling, np.full((len(grid), 1), token), grid[:, np.newaxis])[:, 0]
        assert (np.diff(marks) >= 0).all()
        np.testing.assert_allclose(cdf(coupling, token, marks), grid, rtol=0, atol=1e-12)


@pytest.mark.parametrize("problem", SMALL)
def test_the_place_of_the_smallest_mark_is_found(problem):
    coupling = problem.couple()
    rng = np.random.default_rng(0)
    ids = rng.choice(np.flatnonzero(problem.q), (500, problem.n))
    uniforms = rng.choice([0.0, 0.25, 0.5, rng.random(), np.nextafter(1.0, 0.0)], ids.shape)
    winners = draw_marks(coupling, ids, uniforms).argmin(axis=1)
    assert select_smallest(coupling, ids, uniforms).tolist() == winners.tolist()


def test_the_first_of_equal_marks_is_selected():
    q = np.array([0.2, 0.5, 0.3])
    coupling = Problem(q, q, 2).couple()
    ids, uniforms = np.array([[0, 2], [2, 0], [1, 1]]), np.full((3, 2), 0.5)
    marks = draw_marks(coupling, ids, uniforms)
    assert (marks[:, 0] == marks[:, 1]).all()
    assert select_smallest(coupling, ids, uniforms).tolist() == [0, 0, 0]


@pytest.mark.parametrize("problem", SMALL)
@pytest.mark.parametrize("edge", [0.0, np.nextafter(1.0, 0.0)], ids=["0", "below-1"])
def test_marks_of_extreme_uniforms_stay_in_the_pieces(problem, edge):
    coupling = problem.couple()
    ids = np.flatnonzero(problem.q)[:, np.newaxis]
    marks = draw_marks(coupling, ids, np.full(ids.shape, edge))[:, 0]
    groups = coupling.group[ids[:, 0]]
    low = coupling.left[coupling.starts[groups]]
    high = coupling.right[coupling.starts[groups + 1] - 1]
    assert (marks >= low).all()
    assert (marks <= high).all()


def test_marks_over_the_draft_law_are_uniform():
    problem = GENERIC["flat-n3"]
    rng = np.random.default_rng(3)
    ids = rng.choice(len(problem.q), (50_000, 1), p=problem.q)
    marks = draw_marks(problem.couple(), ids, rng.random(ids.shape))
    counts = np.bincount((marks[:, 0] * 50).astype(int), minlength=50)
    assert p_value(counts, np.full(50, 0.02)) > FALSE_ALARM


# --- tokens whose mass is below rounding ---------------------------------------------------------

BELOW_ROUNDING = {
    "last": Problem(np.array([0.5, 0.5, 0.0]), np.array([0.3, 0.7, 1e-20]), 2),
    "last-n3": Problem(np.array([0.5, 0.5, 1e-30]), np.array([0.3, 0.7, 1e-20]), 3),
    "target-is-draft": Problem(np.array([0.6, 0.4, 0.0]), np.array([0.6, 0.4, 1e-20]), 2),
    "scales": random_problem("scales", 1, 4, size=200),
}


@pytest.mark.parametrize("problem", BELOW_ROUNDING.values(), ids=list(BELOW_ROUNDING))
class TestBelowRounding:
    def test_every_token_that_can_be_drawn_has_a_piece(self, problem):
        assert (np.diff(problem.couple().starts) >= 1).all()

    def test_marks_are_those_of_the_token(self, problem):
        """The interval of marks read is the one of the token's own group."""
        coupling = problem.couple()
        tokens = np.flatnonzero(problem.q)
        groups = coupling.group[tokens]
        assert (coupling.starts[groups] < coupling.starts[groups + 1]).all(), "no marks to draw"
        marks = draw_marks(coupling, tokens[:, np.newaxis], np.full((len(tokens), 1), 0.5))[:, 0]
        assert (marks >= coupling.left[coupling.starts[groups]]).all()
        assert (marks <= coupling.right[coupling.starts[groups + 1] - 1]).all()


@pytest.mark.parametrize("name", ["last", "last-n3", "target-is-draft"])
def test_drawn_marks_select_a_token_below_rounding_as_often_as_stated(name):
    problem = BELOW_ROUNDING[name]
    coupling = problem.couple()
    row = np.array([2, 0, 1][: problem.n])
    uniforms = np.random.default_rng(0).random((2000, problem.n))
    winners = draw_marks(coupling, np.tile(row, (2000, 1)), uniforms).argmin(axis=1)
    expected = smallest_mark_probs(coupling, row[np.newaxis])[0]
    assert p_value(np.bincount(winners, minlength=problem.n), expected) > FALSE_ALARM


# --- negative controls: a wrong coupling is noticed ----------------------------------------------


def two_tokens() -> Problem:
    """Tokens of equal draft mass and different slope: only the places of their pieces differ."""
    return Problem(np.array([0.45, 0.1, 0.45]), np.array([0.4, 0.4, 0.2]), 3)


def swapped(coupling: MarkCoupling) -> MarkCoupling:
    group = coupling.group.copy()
    group[[0, 1]] = group[[1, 0]]
    return coupling._replace(group=group)


def test_controls_are_right_before_they_are_broken():
    problem = two_tokens()
    coupling = problem.couple()
    assert coupling.group[0] != coupling.group[1]
    check_pieces(coupling, problem.q)
    check_selected(coupling, problem.q, problem.n)


def test_swapped_pieces_are_noticed_by_the_integration():
    problem = two_tokens()
    wrong = swapped(problem.couple())
    check_pieces(wrong, problem.q)  # the marks are still uniform
    with pytest.raises(AssertionError):
        check_selected(wrong, problem.q, problem.n)


def test_swapped_pieces_are_noticed_by_enumeration():
    problem = two_tokens()
    wrong = swapped(problem.couple())
    distance = np.abs(selected_by_enumeration(problem, wrong) - wrong.selected).max()
    assert distance > 1e-3


def test_swapped_pieces_of_unequal_mass_are_no_longer_uniform():
    problem = GENERIC["flat-n3"]
    coupling = problem.couple()
    assert coupling.group[0] != coupling.group[1]
    with pytest.raises(AssertionError):
        check_pieces(swapped(coupling), problem.q)


def test_a_moved_end_is_noticed():
    problem = GENERIC["flat-n3"]
    coupling = problem.couple()
    right = coupling.right.copy()
    right[0] += 1e-12
    with pytest.raises(AssertionError):
        check_pieces(coupling._replace(right=right), problem.q)


def test_a_wrong_cap_loses_acceptance():
    """Control of the loss: with half the cap the optimum is not covered."""
    problem = GENERIC["paper-n2"]
    cap, total = problem.cap_and_total
    wrong = couple_marks(problem.p, problem.q, problem.n, cap / 2, total)
    assert np.maximum(problem.wanted - wrong.selected, 0.0).sum() > 1e-3


def test_other_drafts_have_other_chances():
    """Control of the comparison with drawn marks: the row matters."""
    problem = GENERIC["flat-n3"]
    coupling = problem.couple()
    rows = np.array(list(itertools.permutations(range(5), 3)))
    probs = smallest_mark_probs(coupling, rows)
    assert np.ptp(probs[:, 0]) > 0.05


# --- marks of groups of tokens -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupedProblem:
    """A problem, and the marks of its groups."""

    problem: Problem
    marks: GroupedMarks

    @property
    def group(self) -> np.ndarray:
        """Group of each token, (V,)."""
        p, q = self.problem.p, self.problem.q
        return groups_of_tokens(self.marks.groups, np.arange(len(q)), p, q)

    @property
    def selected(self) -> np.ndarray:
        """Mass with which each token is selected, as it is said."""
        p, q = self.problem.p, self.problem.q
        return spread_over_tokens(self.marks.groups, self.marks.slopes, p, q)

    @property
    def attained(self) -> float:
        return math.fsum(np.minimum(self.problem.p, self.selected))


def grouped(problem: Problem, tolerance: float = 1e-3) -> GroupedProblem:
    return GroupedProblem(problem, grouped_coupling(problem.p, problem.q, problem.n, tolerance))


def check_grouped(found: GroupedProblem, tolerance: float) -> None:
    """Check the pieces, the masses selected, and lower <= attained <= bound <= upper."""
    problem, marks, group = found.problem, found.marks, found.group
    count = marks.groups.size
    assert ((group >= 0) == (problem.q > 0)).all()
    # Of groups the coupling knows as of tokens.
    drawn = group >= 0
    masses = np.bincount(group[drawn], problem.q[drawn], count)
    assert masses.min() > 0.0
    # A group of 100,000 equal tokens is as many roundings one way.
    rounding = 1e-13 if len(group) < 100_000 else 1e-11
    check_pieces(marks.coupling, masses, rtol=rounding)
    expected = integrated(marks.coupling, masses, problem.n)
    np.testing.assert_allclose(marks.slopes * masses, expected, rtol=1e-11, atol=1e-13)
    selected = found.selected
    assert selected.sum() == pytest.approx(1.0, abs=10 * rounding)
    np.testing.assert_array_equal(selected[drawn], problem.q[drawn] * marks.slopes[group[drawn]])
    bound = prefix_with_replacement(problem.p, problem.q, problem.n)[0]
    assert marks.lower <= found.attained + rounding
    assert found.attained <= bound + 1e-12
    assert bound <= marks.upper + 1e-12
    assert marks.upper - marks.lower <= tolerance


def tokens_like(kind: str, size: int, n: int = 3) -> Problem:
    rng = np.random.default_rng([size, n, *kind.encode()])
    if kind == "equal":
        p, q = np.full((2, size), 1.0)
    elif kind == "flat":
        p, q = np.exp(rng.normal(size=(2, size)))
    elif kind == "tiny":
        p, q = 10.0 ** rng.uniform(-300, 0, (2, size))
    elif kind == "zeros":
        p, q = np.exp(rng.normal(size=(2, size)))
        p = p * (rng.random(size) < 0.5)
        q = q * (rng.random(size) < 0.9)
    elif kind == "one-heavy":
        p, q = 1e-12 * rng.random((2, size)) / size
        p[3], q[3] = 1.0, 1.0
    else:
        logits = 3.0 * rng.normal(size=size)
        p, q = np.exp([logits, logits + rng.normal(size=size)])
    p[0], q[0] = max(p[0], 1e-3), max(q[0], 1e-3)
    return Problem(p / p.sum(), q / q.sum(), n)


GROUPED_KINDS = ["peaked", "flat", "equal", "tiny", "zeros", "one-heavy"]


@pytest.mark.parametrize("kind", GROUPED_KINDS)
@pytest.mark.parametrize("n", [1, 2, 4, 16])
@pytest.mark.parametrize("size", [1, 5, 300, 600, 3000])
def test_marks_of_groups(kind, n, size):
    if kind == "one-heavy":
        size = max(size, 5)
    check_grouped(grouped(tokens_like(kind, size, n)), 1e-3)


@pytest.mark.parametrize("kind", ["peaked", "flat", "equal", "tiny"])
def test_marks_of_groups_of_128_000_tokens(kind):
    found = grouped(tokens_like(kind, 128_000, 4))
    check_grouped(found, 1e-3)
    assert found.marks.groups.size < 2000


@pytest.mark.parametrize("wrong", ["slopes", "upper", "lower"])
def test_check_notices_other_marks_of_groups(wrong):
    """Negative controls of `check_grouped`."""
    found = grouped(tokens_like("peaked", 3000))
    check_grouped(found, 1e-3)
    changed = {
        "slopes": found.marks.slopes[::-1],
        "upper": found.marks.lower,
        "lower": found.marks.upper,
    }
    other = found.marks._replace(**{wrong: changed[wrong]})
    with pytest.raises(AssertionError):
        check_grouped(GroupedProblem(found.problem, other), 1e-3)


@pytest.mark.parametrize("kind", ["flat", "zeros", "tiny"])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("most", [1, 2, 4])
def test_lossless_by_enumeration(kind, n, most):
    """The smallest mark over all tuples of tokens in shared groups, thinned to the target."""
    problem = tokens_like(kind, 7, n)
    marks = marks_of_few_groups(problem, most)
    found = GroupedProblem(problem, marks)
    group = found.group
    ids, masses = all_tuples(problem)
    probs = smallest_mark_probs(marks.coupling, group[ids])
    law = np.zeros(7)
    np.add.at(law, ids, masses[:, np.newaxis] * probs)
    selected = found.selected
    np.testing.assert_allclose(law, selected, rtol=0, atol=1e-14)
    # Accepted with min(1, p / m^); what is rejected is emitted from the rest.
    accepted = law * np.minimum(
        1.0, np.divide(problem.p, selected, out=np.ones(7), where=selected > 0)
    )
    rest = np.maximum(problem.p - selected, 0.0)
    if rest.sum() > 0.0:
        rest *= (1.0 - accepted.sum()) / rest.sum()
    np.testing.assert_allclose(accepted + rest, problem.p, rtol=0, atol=1e-13)
    # Control: were tokens thinned as if each had the slope of another group, it would not be.
    if most > 1 and kind != "tiny" and np.ptp(marks.slopes) > 1e-2:
        assert np.abs(law - problem.q * marks.slopes[::-1][group]).max() > 1e-6


def marks_of_few_groups(problem: Problem, most: int) -> GroupedMarks:
    """Give what `grouped_coupling` does of a few tokens, but in groups."""
    sums, _ = sum_buckets(problem.p, problem.q, 1.0, np.inf)
    table, count = join_buckets(sums, most, 0, float(problem.n))
    groups = RatioGroups(np.empty(0, dtype=np.int64), table, 1.0, count)
    group = groups_of_tokens(groups, np.arange(len(problem.q)), problem.p, problem.q)
    drawn = group >= 0
    p, q = (np.bincount(group[drawn], masses[drawn], count) for masses in (problem.p, problem.q))
    upper, coupling = optimal_coupling(p, q, problem.n)
    slopes = coupling.selected / q
    return GroupedMarks(groups, coupling, slopes, upper, sure_overlap(sums, table, slopes))


class TestRefinement:
    """More and more groups, until the gap is as small as it is to be."""

    def find(self, tolerance: float) -> GroupedProblem:
        return grouped(tokens_like("flat", 20_000, 3), tolerance)

    def test_smaller_gaps_take_more_groups(self):
        counts, gaps = [], []
        for tolerance in (1.0, 1e-3, 3e-4, 1e-6):
            found = self.find(tolerance)
            counts.append(found.marks.groups.size)
            gaps.append(found.marks.upper - found.marks.lower)
            check_grouped(found, max(tolerance, 3e-4))
        assert counts == sorted(counts)
        assert counts[0] <= 512 < counts[2]
        assert gaps == sorted(gaps, reverse=True)
        assert gaps[0] > 3e-4 >= gaps[2]
        # Buckets have a width: with groups there is a gap that is left.
        assert gaps[-1] > 1e-6

    def test_it_is_content_with_what_is_enough(self):
        first = self.find(1.0)
        enough = first.marks.upper - first.marks.lower
        assert self.find(enough).marks.groups.size == first.marks.groups.size
        assert self.find(0.99 * enough).marks.groups.size > first.marks.groups.size

    def test_few_tokens_stand_alone(self):
        found = grouped(tokens_like("flat", 300))
        assert found.marks.groups.size == 300
        assert found.marks.upper - found.marks.lower < 1e-9
        assert grouped(tokens_like("flat", 600)).marks.groups.size < 600


@pytest.mark.parametrize("power", [1, 2, 64, 65, 100, 1000])
@pytest.mark.parametrize(
    ("left", "right"), [(0.0, 1.0), (0.25, 0.5), (0.5, 0.5), (0.125, 0.125 + 2.0**-40), (1.0, 1.0)]
)
def test_the_mean_slope_of_any_number_of_draws(left, right, power):
    a, b = 1 - Fraction(left), 1 - Fraction(right)
    exact = power * a ** (power - 1) if a == b else (a**power - b**power) / (a - b)
    assert _mean_slope(left, right, power) == pytest.approx(float(exact), rel=1e-12, abs=1e-300)
