"""Rejection paths without replacement: the generator, the estimate, and what it says of its error.

Every statement about sampling names its false alarm, for estimates whose errors are normal; the
seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.verifiers import _rejection_rates as rates
from mdsd.verifiers._rejection_paths import SCALE, path_tables

SEEDS = 400


def laws(size, heavy=None, seed=0):
    """Target and draft; `heavy` is the mass of one draft token."""
    rng = np.random.default_rng(seed)
    target, drafted = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    if heavy is not None:
        drafted[1:] *= (1.0 - heavy) / drafted[1:].sum()
        drafted[0] = heavy
    return target, drafted


def estimates(tables, num_drafts, count, seeds=SEEDS):
    return np.array(
        [
            rates.sample_rejection(tables, num_drafts, count, np.uint64(seed)).mean()
            for seed in range(seeds)
        ]
    )


def mean_is(values, expected):
    """Test that the mean of independent values is as expected: false alarm 6e-7."""
    spread = values.std(ddof=1) / np.sqrt(len(values))
    return abs(values.mean() - expected) <= 5.0 * spread + 1e-12


def test_generator_is_splitmix64():
    # The first numbers of the published generator from state 0.
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(rates._mix(np.uint64(k))) for k in (1, 2, 3)] == expected


def test_uniforms_fill_the_unit_interval():
    streams = [np.uint64(rates._mix(np.uint64(seed + 1))) for seed in range(40)]
    found = np.array([[rates._uniform(stream, k) for k in range(500)] for stream in streams])
    assert found.min() >= 0.0
    assert found.max() < 1.0
    assert len(np.unique(found)) == found.size
    counts = np.histogram(found, bins=20, range=(0.0, 1.0))[0]
    # Chi-square of 19 degrees of freedom: above 60 in 4 of a million.
    assert ((counts - 1000.0) ** 2 / 1000.0).sum() < 60.0
    # Neighbours in a stream, and in seed, are not correlated: 5 standard errors of 20,000 pairs.
    for one, other in ((found[:, 1:], found[:, :-1]), (found[1:], found[:-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5.0 / np.sqrt(one.size)


@pytest.mark.parametrize("num_drafts", [2, 3, 4])
@pytest.mark.parametrize("count", [1, 7, 64])
@pytest.mark.parametrize("heavy", [None, 0.9, 1.0 - 1e-9])
def test_estimate_is_unbiased(num_drafts, count, heavy):
    tables = path_tables(*laws(14, heavy))
    expected = rates.enumerate_rejection(tables, num_drafts)
    assert 0.0 < expected < 1.0
    assert mean_is(estimates(tables, num_drafts, count), expected)


def test_the_test_of_bias_can_fail():
    target, drafted = laws(14)
    tables = path_tables(target, drafted)
    values = estimates(tables, 3, 64)
    steady = mdsd.RRSVerifier().plan(target, mdsd.WithReplacement(drafted, 3)).acceptance_rate
    for wrong in (
        1.0 - steady,  # rejected tokens that may come again
        rates.enumerate_rejection(tables, 4),  # one draft too many
        1.02 * rates.enumerate_rejection(tables, 3),
    ):
        assert not mean_is(values, wrong)


def test_strata_scatter_less_than_independent_paths():
    tables = path_tables(*laws(200))
    together = estimates(tables, 3, 64).std(ddof=1)
    alone = estimates(tables, 3, 1, seeds=64 * SEEDS).reshape(SEEDS, 64).mean(axis=1).std(ddof=1)
    assert together < 0.6 * alone


@pytest.mark.parametrize("num_drafts", [3, 4])
@pytest.mark.parametrize("heavy", [None, 0.8])
def test_standard_error_is_honest(num_drafts, heavy, monkeypatch):
    monkeypatch.setattr("mdsd.verifiers._path_rrs._MAX_PATHS", 1)
    target, drafted = laws(300, heavy)
    draft = mdsd.WithoutReplacement(drafted, num_drafts)
    plans = [
        mdsd.RRSVerifier(monte_carlo_paths=128, seed=seed).plan(target, draft)
        for seed in range(150)
    ]
    scatter = np.std([plan.acceptance_rate for plan in plans], ddof=1)
    said = np.sqrt(np.mean([plan.acceptance_stderr**2 for plan in plans]))
    # The scatter itself is known to 6%: beyond 1.25 of the truth in 2 of 100,000.
    assert scatter < 1.25 * said
    assert said < 2.5 * scatter


def test_pairs_are_enumerated_in_closed_form():
    for seed in range(30):
        for heavy in (None, 0.7, 1.0 - 1e-12):
            tables = path_tables(*laws(9, heavy, seed))
            expected = rates.enumerate_rejection(tables, 2)
            assert rates.pair_rejection(tables) == pytest.approx(expected, abs=1e-14)


def test_tables_of_tokens_in_order():
    target, drafted = np.array([0.1, 0.4, 0.0, 0.5, 0.0]), np.array([0.3, 0.2, 0.4, 0.1, 0.0])
    tables = path_tables(target, drafted)
    # Those with p > q by falling p/q, the others as they stand.
    assert tables.by_ratio.tolist() == [3, 1, 0, 2, 4]
    assert (-tables.ratios * SCALE).tolist() == [5.0, 2.0]
    assert tables.target_sums.round(12).tolist() == [0.0, 0.5, 0.9, 1.0, 1.0, 1.0]
    assert (tables.drafted_sums / SCALE).round(12).tolist() == [0.0, 0.1, 0.3, 0.6, 1.0, 1.0]
    assert tables.rank.tolist() == [1, 2, 0, 3, 4]
    assert (tables.tail_sums / SCALE).round(12).tolist() == [1.0, 0.6, 0.3, 0.1, 0.0, 0.0]
