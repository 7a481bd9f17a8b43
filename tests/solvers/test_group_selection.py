"""What a lottery over orders of groups selects, token by token, by enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd._solvers.arrivals import POWERS
from mdsd._solvers.group_hits import hits_of_groups
from mdsd._solvers.group_selection import (
    GroupSelection,
    find_groups,
    find_masses,
    group_of_token,
    mass_of_draw,
    select_drafts,
    select_groups,
    selection_probs,
    spread_selection,
)
from mdsd._solvers.hitting import MASS_SCALE
from mdsd._solvers.law_parts import draws_without_replacement, independent_draws

from . import exact_laws
from .grouped_laws import (
    FAINT_DRAWS,
    PARTS,
    Grouped,
    grouped,
    instances,
    random_lottery,
    random_target,
)


def masses_of(case: Grouped, selection: GroupSelection) -> tuple[np.ndarray, np.ndarray]:
    """Mass with which each token is selected and kept, and its chance to be kept."""
    kept, chances = np.zeros((2, len(case.target)))
    chances[:] = 1.0
    tokens, groups = np.arange(len(case.target)), case.groups
    for place, part in enumerate(case.parts):
        find_masses(case.law, selection, place, tokens, groups, part.probs, kept, chances)
    return kept, chances


def before_keeping(kept: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Mass with which each token is selected; of some below 1e-13 rounding has left nothing."""
    return np.divide(kept, chances, out=np.zeros(len(kept)), where=chances > 0.0)


def spread(case: Grouped, selection: GroupSelection) -> np.ndarray:
    selected = np.zeros(len(case.target))
    for place, part in enumerate(case.parts):
        mine = slice(part.offset, part.offset + part.vocab_size)
        own = case.target[mine]
        spread_selection(case.law, selection, place, own, part.probs, selected[mine])
    return selected


def accuracy(name: str) -> float:
    """Time t = exp(s) has s near 700 where the last draw waits for such masses."""
    return 1e-12 if "subnormal" in name or "scales" in name else 1e-14


@pytest.mark.parametrize("name", PARTS)
class TestAgainstEnumeration:
    def test_every_token_is_selected_as_often_as_said(self, name):
        for seed, case in enumerate(instances(name)):
            orders, weights = random_lottery(np.random.default_rng(seed), case.size)
            expected = exact_laws.selection(case.exact, case.groups, orders, weights)
            kept, chances = masses_of(case, select_groups(orders, weights, case.law, -1))
            assert ((chances >= 0.0) & (chances <= 1.0)).all()
            found = before_keeping(kept, chances)
            np.testing.assert_allclose(found, expected, rtol=0, atol=accuracy(name))

    def test_what_is_kept_is_known_for_all_tokens_at_once(self, name):
        for seed, case in enumerate(instances(name)):
            orders, weights = random_lottery(np.random.default_rng(seed), case.size)
            selection = select_groups(orders, weights, case.law, -1)
            assert spread(case, selection).tolist() == masses_of(case, selection)[0].tolist()

    def test_of_one_draft_of_each_group_it_is_the_gain_of_a_prefix(self, name):
        """Tokens that stand alone are selected as the hits of the prefixes say."""
        case = instances(name)[2]
        order = np.random.default_rng(0).permutation(case.size)
        selection = select_groups(order[np.newaxis].astype(np.int32), np.ones(1), case.law, -1)
        gains = np.diff(hits_of_groups(order, case.law)[0])
        kept, chances = masses_of(case, selection)
        groups = case.groups
        found = before_keeping(kept, chances)[groups >= 0]
        found = np.bincount(groups[groups >= 0], found, case.size)
        np.testing.assert_allclose(found[order], gains, rtol=0, atol=accuracy(name))


@pytest.mark.parametrize("wrong", ["fixed order", "other weights", "other order", "other groups"])
@pytest.mark.parametrize("name", ["draws-faint-n3", "independent-flat", "three"])
def test_the_enumeration_tells_lotteries_apart(name, wrong):
    """Negative control of the comparison above."""
    case = instances(name)[1]
    rng = np.random.default_rng(5)
    order = rng.permutation(case.size).astype(np.int32)
    orders = np.array([order, order[::-1]])
    weights = np.array([0.3, 0.7])
    kept, chances = masses_of(case, select_groups(orders, weights, case.law, -1))
    groups = case.groups
    if wrong == "fixed order":
        # In each group the first token that was drafted, instead of any.
        places = np.argsort(np.argsort(groups, kind="stable"), kind="stable")
        orders = np.array(
            [np.argsort(np.argsort(order)[groups], kind="stable") for order in orders]
        )
        orders = places[orders]
        groups = places
    elif wrong == "other weights":
        weights = weights[::-1]
    elif wrong == "other order":
        orders = orders[:1].repeat(2, axis=0)
    else:
        groups = np.roll(groups, 1)
    drafted = case.groups >= 0
    if (groups[drafted] < 0).any():
        groups = np.where(groups < 0, 0, groups)
    expected = exact_laws.selection(case.exact, groups, orders, weights)
    assert np.abs(before_keeping(kept, chances) - expected).max() > 1e-10


# --- draws without replacement, groups of many tokens --------------------------------------------


def pair_chances(weights: np.ndarray) -> np.ndarray:
    """Chance that two draws are tokens i and j, in either order."""
    rest = np.array([np.delete(weights, i).sum() for i in range(len(weights))])
    chances = weights[:, np.newaxis] / rest[:, np.newaxis] * weights / weights.sum()
    np.fill_diagonal(chances, 0.0)
    return chances + chances.T


def selected_of_two(weights: np.ndarray, ranks: np.ndarray, inside: float = 0.5) -> np.ndarray:
    """Mass with which each token is selected by the rank of its group.

    Of two drafts of one group the first is selected with a chance of `inside`.
    """
    chances = pair_chances(weights)
    ahead = np.sign(ranks[np.newaxis] - ranks[:, np.newaxis])
    earlier = np.arange(len(ranks))[:, np.newaxis] < np.arange(len(ranks))
    shared = np.where(earlier, inside, 1.0 - inside)
    return (chances * np.where(ahead == 0, shared, ahead > 0)).sum(axis=1)


def selected_of_three(weights: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Mass with which each token is selected by the rank of its group, out of three draws."""
    size = len(weights)
    rest = np.array([np.delete(weights, i).sum() for i in range(size)])
    left = np.array([[np.delete(weights, [i, j]).sum() for j in range(size)] for i in range(size)])
    chances = weights[:, np.newaxis, np.newaxis] / weights.sum() * weights[:, np.newaxis]
    chances = chances / rest[:, np.newaxis, np.newaxis] * weights / left[:, :, np.newaxis]
    tokens = np.arange(size)
    chances[tokens, tokens] = chances[tokens, :, tokens] = chances[:, tokens, tokens] = 0.0
    first, second, third = np.ix_(ranks, ranks, ranks)
    lead = np.minimum(np.minimum(first, second), third)
    met = (first == lead).astype(int) + (second == lead) + (third == lead)
    selected = np.zeros(size)
    for axis, rank in enumerate((first, second, third)):
        others = tuple(other for other in range(3) if other != axis)
        selected += np.where(rank == lead, chances / met, 0.0).sum(axis=others)
    return selected


MANY = {
    "1-heavy-n2": ([0.5], 300, 2),
    "2-heavy-n2": ([0.6, 0.4], 300, 2),
    "3-heavy-n2": ([0.4, 0.2, 0.3], 398, 2),
    "2-heavy-n2-1e-12": ([1e-12 * 3.0, 1.0], 200, 2),
    "late-n2": ([1.0, 1e-9], 200, 2),
    "3-heavy-n3": ([0.3, 0.2, 0.5], 70, 3),
    "late-n3": ([0.7, 0.3, 1e-6], 70, 3),
    "later-n3": ([1.0, 1e-4, 1e-12], 70, 3),
}
"""Heavy masses; so many faint tokens, with as much as makes them just share groups; draws."""


def many(name: str) -> Grouped:
    heavy, count, n = MANY[name]
    rng = np.random.default_rng([*name.encode()])
    small = np.exp(2.0 * rng.normal(size=count)).clip(1e-3, 30.0)
    small /= small.sum()
    # None has more than 1/500 of what the last draw is drawn from.
    largest = sum(sorted(heavy)[: len(heavy) - n + 1]) / 500
    small *= min(largest / small.max(), 0.5) if largest else 0.5
    weights = rng.permutation(np.concatenate([heavy, small]))
    weights /= weights.sum()
    target = weights * np.exp(0.5 * rng.normal(size=len(weights)))
    return grouped(target / target.sum(), [draws_without_replacement(weights, n)], 3, 4)


def selected_by_formula(case: Grouped, orders: np.ndarray, weights: np.ndarray) -> np.ndarray:
    law, n = case.parts[0].probs[0], case.parts[0].num_drafts
    selected = np.zeros(len(law))
    for order, weight in zip(orders, weights, strict=True):
        ranks = np.argsort(order)[case.groups]
        selected += weight * (selected_of_two if n == 2 else selected_of_three)(law, ranks)
    return selected


@pytest.mark.parametrize("name", MANY)
class TestGroupsOfManyTokens:
    def lottery(self, name):
        case = many(name)
        orders, weights = random_lottery(np.random.default_rng(1), case.size)
        return (
            case,
            select_groups(orders, weights, case.law, -1),
            selected_by_formula(case, orders, weights),
        )

    def test_groups_are_shared(self, name):
        sizes = np.bincount(many(name).groups)
        assert sizes.max() >= 6

    def test_mass_of_every_token(self, name):
        case, selection, expected = self.lottery(name)
        law, groups, found = case.law, case.groups, np.zeros(len(case.target))
        rates = MASS_SCALE * case.parts[0].probs[0]
        for i, g in enumerate(groups):
            # Power sums of the others of the group, from the tokens themselves.
            x = rates[groups == g] * law.latest[0]
            x = np.delete(x, np.flatnonzero(groups == g).tolist().index(i))
            others = np.array([0.0, *((x**d).sum() for d in range(1, POWERS + 1))])
            found[i] = mass_of_draw(law, selection, 0, g, rates[i], others)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)

    def test_what_is_kept_is_the_rate_times_the_share(self, name):
        case, selection, expected = self.lottery(name)
        kept, chances = masses_of(case, selection)
        rates = MASS_SCALE * case.parts[0].probs[0]
        np.testing.assert_array_equal(kept, rates * selection.shares[case.groups])
        found = before_keeping(kept, chances)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
        assert (kept <= expected + 1e-13).all()
        assert 1.0 - 1e-2 < kept.sum() <= 1.0 + 1e-13

    def test_the_share_is_the_least_ratio_and_that_of_the_heaviest(self, name):
        case, selection, expected = self.lottery(name)
        rates = MASS_SCALE * case.parts[0].probs[0]
        for g in range(case.size):
            mine = np.flatnonzero(case.groups == g)
            ratios = expected[mine] / rates[mine]
            # An error of 1e-13 of all the mass, seen from here.
            atol = 1e-13 / rates[mine].max()
            assert selection.shares[g] == pytest.approx(
                ratios[rates[mine].argmax()], rel=1e-12, abs=atol
            )
            assert selection.shares[g] <= ratios.min() * (1 + 1e-12) + atol
            falling = ratios[np.argsort(rates[mine])]
            assert (np.diff(falling) <= 1e-12 * falling[:-1] + atol).all()


def test_groups_of_many_tokens_lose_something():
    """Otherwise nothing above would need the chance to be kept."""
    case = many("late-n3")
    orders, weights = random_lottery(np.random.default_rng(1), case.size)
    _, chances = masses_of(case, select_groups(orders, weights, case.law, -1))
    assert chances.min() < 1.0 - 1e-4


# --- the theorem: with equal chances in a group the ratio falls ----------------------------------


def law_of(rng: np.random.Generator, n: int) -> np.ndarray:
    """Weights of any shape: heavy tokens may share a group here."""
    size = int(rng.integers(n, 9)) if n > 2 else int(rng.integers(2, 12))
    weights = np.exp(rng.choice([0.5, 2.0, 6.0]) * rng.normal(size=size))
    return weights / weights.sum()


def ratio_rises(weights: np.ndarray, ranks: np.ndarray, selected: np.ndarray) -> float:
    """Largest relative rise of selected / weight, from a lighter to a heavier token of a group."""
    worst = 0.0
    for g in np.unique(ranks):
        mine = np.flatnonzero(ranks == g)
        ratios = (selected / weights)[mine[np.argsort(weights[mine])]]
        worst = max(
            worst, (ratios - np.minimum.accumulate(ratios)).max() / max(ratios.max(), 1e-300)
        )
    return float(worst)


@pytest.mark.parametrize("n", [2, 3])
def test_the_ratio_falls_with_the_weight(n):
    formula = selected_of_two if n == 2 else selected_of_three
    for seed in range(400):
        rng = np.random.default_rng([seed, n])
        weights = law_of(rng, n)
        if len(weights) == n:
            continue
        ranks = rng.integers(0, int(rng.integers(1, 4)), len(weights))
        assert ratio_rises(weights, ranks, formula(weights, ranks)) <= 1e-12, seed


def test_the_ratio_falls_for_four_draws_too():
    for seed in range(12):
        rng = np.random.default_rng(seed)
        weights = np.exp(2.0 * rng.normal(size=6))
        weights /= weights.sum()
        ranks = rng.integers(0, 3, 6)
        orders = np.arange(3)[np.newaxis]
        law = exact_laws.draws_without_replacement(weights, 4)
        selected = exact_laws.selection(law, ranks, orders, np.ones(1))
        assert ratio_rises(weights, ranks, selected) <= 1e-12, seed


@pytest.mark.parametrize("inside", [0.0, 0.2, 1.0])
def test_in_a_fixed_order_it_does_not(inside):
    """Negative control: the one first in a list, for sure or more often than the other."""
    rises = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        weights = law_of(rng, 2)
        ranks = np.zeros(len(weights), dtype=np.int64)
        rises.append(ratio_rises(weights, ranks, selected_of_two(weights, ranks, inside)))
    assert max(rises) > 1e-3


def test_two_tokens_given_the_clocks_of_the_others():
    """What the proof comes down to, for any weights w1 <= 2 w2 and any time s."""
    rng = np.random.default_rng(0)
    x, y = 10.0 ** rng.uniform(-3, 2, (2, 20_000))  # a s and b s, with s = 1
    a, b = np.maximum(x, y), np.minimum(x, y)

    def surplus(w1: float) -> np.ndarray:
        """How much the ratio falls from b to a, up to a positive factor; w2 = 1."""
        only_a, only_b = np.expm1(a) / a, np.expm1(b) / b
        both = np.expm1(a) * np.expm1(b) * (1.0 / b - 1.0 / a)
        return (both - w1 * (only_a - only_b)) / (both + w1 * only_a)

    for w1 in (0.0, 0.5, 1.0, 2.0):
        assert surplus(w1).min() >= -1e-14
    assert surplus(2.2).min() < -1e-3  # control


# --- selection, given drafts ---------------------------------------------------------------------


class TestGivenTheDrafts:
    ORDERS = np.array([[2, 0, 1], [1, 2, 0]], dtype=np.int32)
    WEIGHTS = np.array([0.25, 0.75])
    GROUPS = np.array([[0, 1, 2], [0, 0, 1], [1, 1, 1], [0, 2, 2], [0, 0, 0]])

    def test_chances(self):
        expected = [
            [0.0, 0.75, 0.25],
            [0.125, 0.125, 0.75],
            [1 / 3, 1 / 3, 1 / 3],
            [0.0, 0.5, 0.5],
            [1 / 3, 1 / 3, 1 / 3],
        ]
        found = selection_probs(self.ORDERS, self.WEIGHTS, self.GROUPS)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)

    def test_over_all_tuples_they_are_the_law_of_the_selected(self):
        case = instances("three")[0]
        orders, weights = random_lottery(np.random.default_rng(3), case.size)
        rows = np.array(list(case.exact))
        probs = np.array([float(x) for x in case.exact.values()])
        found = np.zeros(len(case.target))
        chances = selection_probs(orders, weights, case.groups[rows])
        np.add.at(found, rows, probs[:, np.newaxis] * chances)
        expected = exact_laws.selection(case.exact, case.groups, orders, weights)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)

    @pytest.mark.parametrize("place", [0, 1])
    def test_evenly_spread_numbers_select_as_often(self, place):
        uniforms = (np.arange(600) + 0.5) / 600
        for row in self.GROUPS:
            rows = np.tile(row, (600, 1))
            places = np.full(600, place)
            counts = np.bincount(select_drafts(self.ORDERS, places, rows, uniforms), minlength=3)
            expected = selection_probs(self.ORDERS[place : place + 1], np.ones(1), row[np.newaxis])
            assert counts.tolist() == (600 * expected[0]).round().tolist()

    @pytest.mark.parametrize("uniform", [0.0, np.nextafter(1.0, 0.0), 1.0, -1e-17, 1.0 + 1e-16])
    def test_numbers_at_the_edge(self, uniform):
        for row in self.GROUPS:
            found = select_drafts(
                self.ORDERS, np.zeros(1, dtype=np.int64), row[np.newaxis], np.array([uniform])
            )
            first = next(g for g in self.ORDERS[0] if g in row)
            assert row[found[0]] == first


def test_the_group_of_one_token():
    for name in PARTS:
        for case in instances(name):
            groups = case.groups
            for place, part in enumerate(case.parts):
                for i in range(part.vocab_size):
                    mass = float(part.probs[:, i].sum()) if len(part.probs) else 0.0
                    own = case.target[part.offset + i]
                    found = group_of_token(case.law, place, i, own, mass)
                    assert found == groups[part.offset + i]


def test_tokens_of_other_parts_are_left_as_they_are():
    case = instances("three")[0]
    tokens = np.arange(len(case.target))
    found = np.full(len(tokens), -7)
    part = case.parts[1]
    own = case.target[part.offset : part.offset + part.vocab_size]
    find_groups(case.law, 1, tokens, own, part.probs, found)
    assert found.tolist() == [-7] * 7 + [case.law.firsts[1]] + [-7] * 7


@pytest.mark.parametrize("kind", ["draws", "independent"])
@pytest.mark.parametrize(("n", "size"), [(4, 20_000), (16, 3000), (64, 500)], ids=str)
def test_selection_is_nearly_a_law_in_large_vocabularies(kind, n, size):
    rng = np.random.default_rng([n, size])
    masses = np.exp(3.0 * rng.normal(size=(n + 1, size)))
    masses /= masses.sum(axis=1, keepdims=True)
    if kind == "draws":
        part = draws_without_replacement(masses[0], n)
    else:
        part = independent_draws(masses[:n], n)
    case = grouped(masses[n], [part], 40, 40)
    orders, weights = random_lottery(rng, case.size)
    found = spread(case, select_groups(orders, weights, case.law, -1))
    assert (found >= 0.0).all()
    if kind == "draws":
        assert 1.0 - 1e-3 < found.sum() < 1.0 - 1e-9
    else:
        assert found.sum() == pytest.approx(1.0, abs=1e-12)


def test_nothing_is_modified():
    case = many("2-heavy-n2")
    orders, weights = random_lottery(np.random.default_rng(1), case.size)
    before = [np.copy(field) for field in case.law], orders.copy(), weights.copy()
    selection = select_groups(orders, weights, case.law, -1)
    shares = selection.shares.copy()
    masses_of(case, selection)
    spread(case, selection)
    for field, kept in zip(case.law, before[0], strict=True):
        np.testing.assert_array_equal(field, kept)
    np.testing.assert_array_equal(orders, before[1])
    np.testing.assert_array_equal(weights, before[2])
    np.testing.assert_array_equal(selection.shares, shares)


def test_faint_draws_share_groups():
    """Otherwise the enumeration in fractions would say nothing of them."""
    for name in FAINT_DRAWS:
        groups = instances(f"draws-{name}")[0].groups
        assert np.bincount(groups[groups >= 0]).max() > 1


def test_random_targets_have_zeros():
    assert (random_target(np.random.default_rng(0), 100) == 0.0).any()
