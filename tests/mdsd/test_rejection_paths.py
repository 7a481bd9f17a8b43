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
            rates.sample_rejection(tables, num_drafts, count, np.uint64(seed))[0]
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


def hard_law(kind, size, rng):
    """Masses of very different sizes: what is rare may never be drawn, and yet count."""
    few = size // 3
    masses = {
        "ties": np.r_[np.ones(few), np.arange(1, size - few + 1) * 10.0 ** -rng.integers(2, 12)],
        "spread": 10.0 ** -rng.uniform(0.0, 14.0, size),
        "falling": 0.2 ** np.arange(size),
        "heavy": np.r_[1.0, rng.random(size - 1) * 10.0 ** -rng.integers(1, 15)],
    }[kind]
    return masses / masses.sum()


def errors_said(kinds, halve=1.0):
    """How many said errors an estimate is off, of 2 seeds for many pairs; said to be exact: 0."""
    rng, found = np.random.default_rng(5), []
    for drafted_kind in kinds:
        for num_drafts, size in ((3, 14), (4, 11), (5, 8)):
            for paths in (64, 1024):
                for target_kind in (*kinds, None):
                    drafted = hard_law(drafted_kind, size, rng)
                    target = rng.dirichlet(np.ones(size))
                    if target_kind is not None:
                        target = rng.permutation(hard_law(target_kind, size, rng))
                    tables = path_tables(target, drafted)
                    expected = rates.enumerate_rejection(tables, num_drafts)
                    for seed in range(2):
                        value, variance = rates.sample_rejection(
                            tables, num_drafts, paths, np.uint64(seed)
                        )
                        off = max(abs(value - expected) - 1e-12, 0.0)
                        said = halve * np.sqrt(variance)
                        found.append(off / said if said > 0.0 else np.inf if off else 0.0)
    return np.array(found)


KINDS = ("ties", "spread", "falling", "heavy")


def test_errors_of_hard_pairs_are_honest():
    """Normal errors are beyond three of their own in 0.3%; 2% and more of 240 by chance: 8e-4."""
    found = errors_said(KINDS)
    assert len(found) == 240
    assert np.isfinite(found).all()
    assert (found > 3.0).mean() < 0.02


def test_errors_said_too_small_are_noticed():
    assert (errors_said(KINDS, halve=0.1) > 3.0).mean() > 0.05
    assert not np.isfinite(errors_said(KINDS, halve=0.0)).all()


@pytest.mark.parametrize("paths", [64, 1024, 4096])
def test_rare_tokens_behind_heavy_ones_are_followed(paths):
    """The sixth draft has hardly any mass beside the five before it."""
    drafted = np.r_[np.ones(5), np.arange(1, 13) * 1e-6]
    target = np.r_[1.0, np.zeros(4), np.ones(12)] / 13.0
    draft = mdsd.WithoutReplacement(drafted / drafted.sum(), 6)
    exact = 1.0 - rates.enumerate_rejection(path_tables(target, draft.draft_probs), 6)
    plan = mdsd.RRSVerifier(monte_carlo_paths=paths).plan(target, draft)
    assert 0.1 < exact < 0.9
    assert abs(plan.acceptance_rate - exact) <= 3.0 * plan.acceptance_stderr + 1e-12


def test_an_estimate_of_equal_tuples_is_not_exact():
    """Of drafts that are drawn one after another, thousands may be alike and yet not all."""
    tail = np.arange(1, 71) * 1e-9
    draft = mdsd.HybridDraft(np.r_[1.0 - tail.sum() - 1e-4, 1e-4, tail], 3, 1)
    target = np.full(72, 1.0 / 72.0)
    ids, probs = draft.tuple_arrays()
    plan = mdsd.RRSVerifier(monte_carlo_paths=64).plan(target, draft)
    exact = sum(
        float(prob) * plan.output_law(own)[own].sum() for own, prob in zip(ids, probs, strict=True)
    )
    assert plan.acceptance_stderr >= 1.0 / 64.0
    assert abs(plan.acceptance_rate - exact) <= 3.0 * plan.acceptance_stderr


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
