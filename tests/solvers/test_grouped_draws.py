"""Draws without replacement seen by groups, against enumeration in fractions and closed forms."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy.stats import binom

from solvers.grouped_draws import GroupedDraws, _count_arrivals, refined_draws
from solvers.groups import TokenGroups, group_by_ratio, single_tokens
from solvers.hitting import prefix_hits, token_hits

from . import exact_laws
from .exact_laws import lottery_of, random_groups, random_lottery, token_orders


def one_heavy(size: int, tiny: float) -> np.ndarray:
    weights = np.full(size, tiny) * np.arange(1, size + 1)
    weights[1] = 1.0 - np.delete(weights, 1).sum()
    return weights


WEIGHTS = {
    "flat": np.array([0.2, 0.5, 0.3]),
    "six": np.array([0.01, 0.04, 0.15, 0.2, 0.25, 0.35]),
    "equal": np.full(6, 1 / 6),
    "faint-beside-one": np.array([1 - 4e-3, 1e-3, 1e-3, 5e-4, 1.5e-3]),
    "peaked-1e-12": one_heavy(5, 1e-12),
    "entries-1e-25": np.array([0.5, 1e-25, 0.5, 2e-25, 3e-25]),
    "one-and-1e-25": one_heavy(4, 1e-25),
    "scales": np.array([1e-30, 1e-20, 1e-10, 1e-3, 1 - 1e-3 - 1e-10]),
    "scales-250": np.array([1e-250, 1e-120, 1e-60, 1e-5, 1 - 1e-5]),
    "zeros": np.array([0.0, 0.6, 0.0, 0.1, 0.3, 0.0]),
    "zeros-and-1e-300": np.array([0.0, 1.0, 1e-300, 3e-300, 0.0]),
    "subnormal": np.array([1.0, 5e-324, 1e-323, 2e-320]),
    "half-and-subnormal": np.array([0.5, 0.5, 1e-310, 3e-312]),
    "two": np.array([1e-9, 1 - 1e-9]),
    "one": np.ones(1),
}
CASES = [
    pytest.param(weights, n, id=f"{name}-n{n}")
    for name, weights in WEIGHTS.items()
    for n in range(1, 5)
    if np.count_nonzero(weights) >= n
]


def instances(weights, n, count=4):
    """Random groups of the tokens that can be drawn, with a random lottery over their orders."""
    for seed in range(count):
        rng = np.random.default_rng([seed, n, len(weights)])
        groups = random_groups(rng, np.flatnonzero(weights), len(weights))
        yield GroupedDraws(weights, n, groups), random_lottery(rng, len(groups))


def token_selection(draws: GroupedDraws, lottery) -> np.ndarray:
    selected = np.zeros(draws.groups.vocab_size)
    selected[draws.groups.members] = draws.select(lottery.orders, lottery.weights_by_token).of_all()
    return selected


@pytest.mark.parametrize(("weights", "n"), CASES)
class TestAgainstEnumeration:
    def test_selection(self, weights, n):
        law = exact_laws.draws_without_replacement(weights, n)
        for draws, lottery in instances(weights, n):
            expected = exact_laws.selection(law, draws.groups, lottery)
            found = token_selection(draws, lottery)
            np.testing.assert_allclose(found, expected, rtol=0, atol=2e-15)
            assert (found >= 0.0).all()

    def test_prefix_hits(self, weights, n):
        law = exact_laws.draws_without_replacement(weights, n)
        for draws, lottery in instances(weights, n):
            order = lottery.orders[0].astype(np.int64)
            ahead = [set(draws.groups.tokens(order[:k]).tolist()) for k in range(len(order) + 1)]
            expected = [float(exact_laws.hit(law, tokens)) for tokens in ahead]
            np.testing.assert_allclose(draws.prefix_hits(order), expected, rtol=5e-15, atol=0)

    def test_group_hits(self, weights, n):
        law = exact_laws.draws_without_replacement(weights, n)
        for draws, _ in instances(weights, n):
            starts, members = draws.groups.starts, draws.groups.members.tolist()
            alone = [set(members[starts[g] : starts[g + 1]]) for g in range(len(draws.groups))]
            expected = [float(exact_laws.hit(law, tokens)) for tokens in alone]
            np.testing.assert_allclose(draws.group_hits(), expected, rtol=5e-15, atol=0)

    def test_group_by_group(self, weights, n):
        for draws, lottery in instances(weights, n):
            selection, starts = (
                draws.select(lottery.orders, lottery.weights_by_token),
                draws.groups.starts,
            )
            pieces = [selection.of_group(g) for g in range(len(starts) - 1)]
            assert [len(piece) for piece in pieces] == np.diff(starts).tolist()
            assert np.concatenate(pieces).tolist() == selection.of_all().tolist()


@pytest.mark.parametrize("wrong", ["one direction", "other weights", "other order"])
def test_the_enumeration_tells_lotteries_apart(wrong):
    """Negative control of the comparison above."""
    weights = WEIGHTS["six"]
    law = exact_laws.draws_without_replacement(weights, 2)
    groups = TokenGroups(6, np.array([5, 0, 1, 2, 4, 3]), np.array([0, 3, 5, 6]))
    orders, chances = np.array([[2, 0, 1], [1, 2, 0]]), np.array([0.3, 0.7])
    found = token_selection(GroupedDraws(weights, 2, groups), lottery_of(orders, chances))
    if wrong == "one direction":
        split = single_tokens(6, groups.members)
        orders = np.array([[5, 0, 1, 2, 3, 4], [3, 4, 5, 0, 1, 2]])
        expected = exact_laws.selection(law, split, lottery_of(orders, chances))
    elif wrong == "other weights":
        expected = exact_laws.selection(law, groups, lottery_of(orders, chances[::-1]))
    else:
        expected = exact_laws.selection(law, groups, lottery_of(orders[:, ::-1], chances))
    assert np.abs(found - expected).max() > 1e-3
    assert expected.sum() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("shared", [False, True], ids=["single", "groups"])
@pytest.mark.parametrize(
    ("n", "size"),
    [(1, 1), (2, 2), (3, 700), (64, 64), (64, 65), (64, 150), (8, 3000)],
    ids=str,
)
def test_uniform_weights(n, size, shared):
    """Equal weights round alike at every step; f(A) = 1 - C(V - k, n) / C(V, n) for k tokens."""
    rng = np.random.default_rng([n, size])
    tokens = rng.permutation(size)
    groups = single_tokens(size, tokens)
    if shared:
        cuts = np.sort(rng.permutation(np.arange(1, size))[: size // 10])
        groups = TokenGroups(size, tokens, np.concatenate([[0], cuts, [size]]))
    draws = GroupedDraws(np.full(size, 1 / size), n, groups)
    missed = [Fraction(comb(size - k, n), comb(size, n)) for k in range(size + 1)]
    masses = np.array([float(missed[k] - missed[k + 1]) for k in range(size)])
    order = rng.permutation(len(groups))
    expected = np.zeros(size)
    for spelled in token_orders(groups, order):
        expected[spelled] += masses / 2.0
    found = token_selection(draws, lottery_of(order[np.newaxis], np.ones(1)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-15)
    assert np.abs(found - expected).sum() < 1e-13
    ends = np.concatenate([[0], np.cumsum(np.diff(groups.starts)[order])])
    hits = [1.0 - float(missed[k]) for k in ends]
    np.testing.assert_allclose(draws.prefix_hits(order), hits, rtol=0, atol=5e-14)


def peaked(rng: np.random.Generator, size: int, spread: float = 3.0) -> np.ndarray:
    weights = np.exp(spread * rng.normal(size=size))
    return weights / weights.sum()


LARGE = {
    "n2": (20_000, 2, 3.0),
    "n4": (20_000, 4, 3.0),
    "n4-flat": (20_000, 4, 0.3),
    "n4-steep": (3000, 4, 12.0),
    "n16": (4000, 16, 3.0),
    "n64": (600, 64, 2.0),
    "n-all": (24, 24, 2.0),
}


@pytest.mark.parametrize(("size", "n", "spread"), LARGE.values(), ids=LARGE)
class TestLargeVocabularies:
    def problem(self, size, n, spread):
        rng = np.random.default_rng(size + n)
        weights, target = peaked(rng, size, spread), peaked(rng, size, spread)
        groups = group_by_ratio(target, weights, size // 20, size // 20)
        return GroupedDraws(weights, n, groups), rng.permutation(len(groups)), weights

    def test_selection_is_a_law(self, size, n, spread):
        draws, order, _ = self.problem(size, n, spread)
        orders = np.array([order, order[::-1]])
        found = token_selection(draws, lottery_of(orders, np.array([0.4, 0.6])))
        assert found.sum() == pytest.approx(1.0, abs=1e-13)
        assert (found >= 0.0).all()

    def test_selection_of_an_order_is_differences_of_prefix_hits(self, size, n, spread):
        draws, order, weights = self.problem(size, n, spread)
        expected = np.zeros(size)
        for spelled in token_orders(draws.groups, order):
            expected[spelled] += np.diff(prefix_hits(weights[spelled], n)) / 2.0
        found = token_selection(draws, lottery_of(order[np.newaxis], np.ones(1)))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
        assert np.abs(found - expected).sum() < 1e-11

    def test_prefix_hits(self, size, n, spread):
        draws, order, weights = self.problem(size, n, spread)
        ends = np.concatenate([[0], np.cumsum(np.diff(draws.groups.starts)[order])])
        expected = prefix_hits(weights[draws.groups.tokens(order)], n)[ends]
        np.testing.assert_allclose(draws.prefix_hits(order), expected, rtol=0, atol=1e-13)

    def test_group_hits(self, size, n, spread):
        draws, _, weights = self.problem(size, n, spread)
        hits = token_hits(weights, n)[draws.groups.members]
        single = draws.groups.single
        starts = draws.groups.starts[:-1]
        np.testing.assert_allclose(draws.group_hits()[single], hits[starts[single]], rtol=1e-12)
        sums = np.add.reduceat(hits, starts)
        assert (draws.group_hits() <= np.minimum(1.0, sums) + 1e-13).all()


@pytest.mark.parametrize("n", [2, 4, 12])
@pytest.mark.parametrize("size", [2, 3, 9, 400])
def test_power_sums_count_what_joining_one_by_one_counts(n, size):
    """Tokens of one group from far below to far above where power sums are taken."""
    rates = 10.0 ** np.random.default_rng(size).uniform(-6, -1, size)
    times = np.geomspace(1e-9, 3.0, 24)
    expected = np.zeros((n, len(times)))
    expected[0] = 1.0
    for rate in rates:
        stay, come = np.exp(-rate * times), -np.expm1(-rate * times)
        expected[1:] = expected[1:] * stay + expected[:-1] * come
        expected[0] *= stay
    found = np.full((1, n, len(times)), np.nan)
    _count_arrivals(rates, np.array([0, size]), times, found)
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=2e-17 * (100 + size))
    assert (found >= 0.0).all()


def test_more_arrivals_than_have_a_chance_of_none():
    """A group of which 1,000 have arrived on average, where exp(-1000) is no number."""
    size, n = 200_000, 1040
    found = np.empty((1, n, 3))
    _count_arrivals(np.full(size, 0.005), np.array([0, size]), np.array([0.1, 0.5, 1.0]), found)
    for m, x in enumerate((0.0005, 0.0025, 0.005)):
        expected = binom.pmf(np.arange(n), size, -np.expm1(-x))
        np.testing.assert_allclose(found[0, :, m], expected, rtol=0, atol=2e-17 * size)
    assert found[0, :, 2].sum() > 0.85


@pytest.mark.parametrize(
    ("weights", "most"),
    [
        (np.array([1e-250, 1e-120, 1e-60, 1e-5, 1 - 1e-5]), 950),
        (np.concatenate([np.full(40, 0.01), np.full(3, 0.2), 1e-300 * np.arange(1, 9)]), 80),
        (np.array([1.0, 1e-300, 1e-300, 1e-300]), 510),
    ],
    ids=["spread", "enough-early", "late"],
)
def test_idle_nodes_are_left_out(weights, most):
    """The time between 1 and the last arrivals alone would take up to 3,400 nodes."""
    draws = GroupedDraws(weights / weights.sum(), 4, single_tokens(len(weights)))
    tables = draws._tables
    assert len(tables.times) <= most
    assert tables.counts.shape[2] == len(tables.times) == len(tables.node_weights)


def test_refined_draws_end_with_single_tokens():
    rng = np.random.default_rng(0)
    target, weights = peaked(rng, 3000), peaked(rng, 3000)
    weights[:100] = 0.0
    weights /= weights.sum()
    levels = list(refined_draws(target, weights, 4))
    counts = [len(law.groups) for law in levels]
    assert len(counts) == 3
    assert 256 < counts[0] <= 512
    assert 1024 < counts[1] <= 2048
    assert counts[2] == 2900
    assert levels[-1].groups.single.all()


def test_many_draws_have_fewer_buckets():
    rng = np.random.default_rng(0)
    target, weights = peaked(rng, 3000), peaked(rng, 3000)
    counts = [len(next(refined_draws(target, weights, n)).groups) for n in (2, 16, 32, 64)]
    assert counts[0] == counts[1] > counts[2] > counts[3] > 256


def test_the_weights_are_not_modified():
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    weights.setflags(write=False)
    groups = TokenGroups(4, np.array([3, 1, 2, 0]), np.array([0, 2, 4]))
    draws = GroupedDraws(weights, 2, groups)
    order = np.array([1, 0])
    order.setflags(write=False)
    before = draws._tables.counts.copy()
    token_selection(draws, lottery_of(order[np.newaxis], np.ones(1)))
    draws.prefix_hits(order)
    assert (draws._tables.counts == before).all()
