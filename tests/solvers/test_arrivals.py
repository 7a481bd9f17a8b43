"""Arrivals in groups of tokens, against joining them one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from mdsd._solvers.arrivals import (
    FAINT,
    POWERS,
    count_faint,
    flow_of_faint,
    join_token,
    latest_time,
    tabulate_draws,
)
from mdsd._solvers.hitting import MASS_SCALE
from mdsd._solvers.ratio_groups import groups_of_tokens

LATEST = 3.0
TIMES = np.concatenate([np.geomspace(1e-9, LATEST, 24), [LATEST / 2, LATEST]])


def power_sums(x: np.ndarray) -> np.ndarray:
    """Sums of the powers 1, 2, ... of x; nothing reads the first entry."""
    return np.array([0.0, *(math.fsum(x**d) for d in range(1, POWERS + 1))])


def counts_one_by_one(x: np.ndarray, n: int) -> np.ndarray:
    """Chance that j of the tokens, whose rates times the latest time are x, have arrived."""
    counts = np.zeros((n, len(TIMES)))
    counts[0] = 1.0
    for each in x:
        stay, come = np.exp(-each * TIMES / LATEST), -np.expm1(-each * TIMES / LATEST)
        counts[1:] = counts[1:] * stay + counts[:-1] * come
        counts[0] *= stay
    return counts


def flows_one_by_one(x: np.ndarray, n: int) -> np.ndarray:
    """Rate of the next arrival, and j have arrived: any token but those, one after the other."""
    flows = np.zeros((n, len(TIMES)))
    for i in range(len(x)):
        rest = counts_one_by_one(np.delete(x, i), n)
        flows += x[i] / LATEST * np.exp(-x[i] * TIMES / LATEST) * rest
    return flows


def faint_counts(x: np.ndarray, n: int) -> np.ndarray:
    counts = np.full((n, len(TIMES)), np.nan)
    count_faint(power_sums(x), LATEST, TIMES, counts)
    return counts


def faint_flows(x: np.ndarray, n: int) -> np.ndarray:
    flows = np.full((n, len(TIMES)), np.nan)
    flow_of_faint(power_sums(x), LATEST, TIMES, faint_counts(x, n), flows)
    return flows


def rates(kind: str, size: int) -> np.ndarray:
    rng = np.random.default_rng([size, *kind.encode()])
    if kind == "equal":
        return np.full(size, 0.1)
    if kind == "largest":
        return np.full(size, FAINT)
    if kind == "beyond":
        return np.linspace(0.01, 0.15, size)
    if kind == "one":
        return np.array([0.12] + [1e-7] * (size - 1))
    if kind == "tiny":
        return 10.0 ** rng.uniform(-320, -300, size)
    return 10.0 ** rng.uniform(-12, -0.9, size)


KINDS = ["equal", "largest", "beyond", "one", "tiny", "spread"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 5, 60])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 20])
class TestFaint:
    def test_counts(self, kind, size, n):
        x = rates(kind, size)
        found = faint_counts(x, n)
        np.testing.assert_allclose(found, counts_one_by_one(x, n), rtol=0, atol=1e-13)
        assert (found >= 0.0).all()

    def test_flows(self, kind, size, n):
        x = rates(kind, size)
        found, expected = faint_flows(x, n), flows_one_by_one(x, n)
        # What matters is the flow there can be: the rate of all of them. With 20 draws the powers
        # kept are felt at the latest time, which is reached with a chance of 1e-19.
        atol = max((1e-13 if n < 16 else 5e-12) * x.sum() / LATEST, 1e-323)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
        early = TIMES < 0.6 * LATEST
        atol = max(1e-13 * x.sum() / LATEST, 1e-323)
        np.testing.assert_allclose(found[:, early], expected[:, early], rtol=0, atol=atol)
        assert (found >= 0.0).all()


def test_more_arrivals_than_have_a_chance_of_none():
    """A group of which 1,000 have arrived on average, where exp(-1000) is no number."""
    size, n, x = 200_000, 1040, 0.005
    sums = np.array([0.0, *(size * x**d for d in range(1, POWERS + 1))])
    found, times = np.empty((n, 3)), LATEST * np.array([0.1, 0.5, 1.0])
    count_faint(sums, LATEST, times, found)
    for m, share in enumerate((0.1, 0.5, 1.0)):
        expected = binom.pmf(np.arange(n), size, -np.expm1(-share * x))
        np.testing.assert_allclose(found[:, m], expected, rtol=0, atol=2e-17 * size)
    assert found[:, 2].sum() > 0.85


def test_flows_of_more_arrivals_than_have_a_chance_of_none():
    """All of one rate: with j gone, the next of size - j others is on its way."""
    size, n, x = 20_000, 660, 0.03
    sums = np.array([0.0, *(size * x**d for d in range(1, POWERS + 1))])
    counts, flows, times = np.empty((n, 2)), np.empty((n, 2)), LATEST * np.array([0.5, 1.0])
    count_faint(sums, LATEST, times, counts)
    flow_of_faint(sums, LATEST, times, counts, flows)
    left = (size - np.arange(n))[:, np.newaxis] * x / LATEST
    np.testing.assert_allclose(flows, left * counts, rtol=0, atol=1e-12 * size * x / LATEST)
    assert counts[:, 1].sum() > 0.99


@pytest.mark.parametrize("wrong", ["a token less", "a power less", "twice as large"])
def test_another_group_is_noticed(wrong):
    """Negative control of the comparison with joining one by one."""
    x = rates("largest", 60)
    expected = counts_one_by_one(x, 5), flows_one_by_one(x, 5)
    sums = power_sums(x[1:] if wrong == "a token less" else x)
    if wrong == "a power less":
        sums[8:] = 0.0
    elif wrong == "twice as large":
        sums *= 2.0 ** np.arange(POWERS + 1)
    counts, flows = np.empty((5, len(TIMES))), np.empty((5, len(TIMES)))
    count_faint(sums, LATEST, TIMES, counts)
    flow_of_faint(sums, LATEST, TIMES, counts, flows)
    assert np.abs(counts - expected[0]).max() > 1e-13
    assert np.abs(flows - expected[1]).max() > 1e-13 * x.sum() / LATEST


@pytest.mark.parametrize(("factor", "error"), [(1, 1e-14), (2, 1e-9), (10, np.inf)])
def test_powers_are_enough_for_the_rates_there_are(factor, error):
    """Two tokens, of which no more than two arrive: what follows has to cancel."""
    x = np.full(2, factor * FAINT)
    found = np.abs(faint_counts(x, 20) - counts_one_by_one(x, 20)).max()
    assert found < error
    assert factor < 10 or found > 1e-3  # control: it is not exact by itself


@pytest.mark.parametrize("n", [1, 2, 5])
def test_join_token(n):
    x = np.array([0.1, 3.0, 40.0])
    counts = np.zeros((n, len(TIMES)))
    counts[0] = 1.0
    for each in x:
        join_token(counts, np.exp(-each * TIMES / LATEST), -np.expm1(-each * TIMES / LATEST))
    np.testing.assert_allclose(counts, counts_one_by_one(x, n), rtol=1e-14, atol=0)


@pytest.mark.parametrize("n", [1, 2, 4, 16, 64, 250])
def test_by_the_latest_time_enough_have_arrived(n):
    """Of a Poisson number of that mean, fewer than n are as likely as 1e-19, if not less."""
    mean = latest_time(n)
    chance = math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(n))
    assert chance < 1e-18


def heavy_and_faint(n: int, count: int, tiny: float, seed: int = 0) -> np.ndarray:
    """So many heavy tokens, and others with a mass of `tiny` among them."""
    rng = np.random.default_rng([seed, n, count])
    small = np.exp(rng.normal(size=count))
    weights = np.concatenate([rng.dirichlet(np.ones(n)) * (1.0 - tiny), tiny * small / small.sum()])
    return rng.permutation(weights)


TABLES = {
    "n2": (2, heavy_and_faint(2, 300, 1e-3)),
    "n3": (3, heavy_and_faint(3, 300, 0.3)),
    "n3-late": (3, heavy_and_faint(2, 300, 1e-3)),
    "n16": (16, heavy_and_faint(16, 900, 1e-6)),
    "flat": (2, np.full(3000, 1 / 3000)),
    "1e-300": (2, heavy_and_faint(1, 300, 1e-300)),
    "subnormal": (2, heavy_and_faint(1, 300, 1e-318)),
    "zeros": (2, np.concatenate([np.zeros(100), heavy_and_faint(2, 300, 1e-3)])),
}


@pytest.mark.parametrize(("n", "weights"), TABLES.values(), ids=TABLES)
class TestTables:
    def tables(self, n, weights):
        target = np.random.default_rng(n).dirichlet(np.ones(len(weights)))
        groups, targets, tables = tabulate_draws(target, weights, n, 5, 7)
        found = groups_of_tokens(groups, np.arange(len(weights)), target, weights)
        return target, groups, targets, tables, found

    def test_are_what_the_tokens_say(self, n, weights):
        target, groups, targets, tables, found = self.tables(n, weights)
        shared = np.bincount(found[found >= 0]) > 1
        assert shared.any()
        assert np.isfinite(tables.latest)
        for g in range(groups.size):
            mine = weights[found == g]
            rate = MASS_SCALE * mine
            assert targets[g] == pytest.approx(target[found == g].sum(), rel=1e-13)
            assert tables.masses[g] == pytest.approx(rate.sum(), rel=1e-13)
            assert tables.heads[g] == pytest.approx(rate.max(), rel=1e-15)
            x = np.sort(rate)[:-1] * tables.latest
            if len(x):
                assert x.max() <= FAINT * (1.0 + 1e-12)
                sums = tables.powers[g]
                assert sums[1] == pytest.approx(x.sum(), rel=1e-12)
                # Powers of the head are added and taken away again, and those of light tokens end.
                head = rate.max() * tables.latest
                for d in range(2, POWERS + 1):
                    assert sums[d] == pytest.approx(
                        (x**d).sum(), rel=1e-9, abs=1e-14 * head**d + len(x) * 7e-4 ** max(d, 6)
                    )
            else:
                assert not tables.powers[g].any()

    def test_counts(self, n, weights):
        _, groups, _, tables, found = self.tables(n, weights)
        for g in range(groups.size):
            expected = np.zeros((n, len(tables.times)))
            expected[0] = 1.0
            for rate in MASS_SCALE * weights[found == g]:
                with np.errstate(over="ignore"):
                    stay, come = np.exp(-rate * tables.times), -np.expm1(-rate * tables.times)
                expected[1:] = expected[1:] * stay + expected[:-1] * come
                expected[0] *= stay
            np.testing.assert_allclose(tables.counts[g], expected, rtol=0, atol=1e-13)

    def test_nodes_are_those_at_which_something_happens(self, n, weights):
        _, _, _, tables, _ = self.tables(n, weights)
        assert len(tables.times) == len(tables.node_weights) == tables.counts.shape[2]
        assert (np.diff(tables.times) > 0).all()
        assert tables.times[-1] >= tables.latest
        assert len(tables.times) < 400


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
    weights = weights / weights.sum()
    _, _, tables = tabulate_draws(weights, weights, 4, 60, 60)
    assert len(tables.times) <= most


def test_heavy_tokens_stand_alone():
    """A token of a group has no more than 1/8 of an arrival to be expected by the latest time."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(2000, 0.3))
    for n in (2, 4, 16):
        rest = weights.sum() - np.sort(weights)[-(n - 1) :].sum()
        groups, _, _ = tabulate_draws(weights, weights, n, 3, 20)
        heavy = np.flatnonzero(weights > rest * FAINT / latest_time(n))
        assert 3 < len(heavy) < 2000
        assert set(heavy.tolist()) <= set(groups.singles.tolist())
