"""Batches of draft sequences: the limit, what they save, and sizes without (M, V, V) arrays."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from mdsd.analysis import (
    batch_improvement,
    expected_rejections,
    simulate_batch_rejections,
    simulate_rejections,
)

from .chains import EDGES, MIXED, THIRDS, random_setting

LIMIT = math.inf


@pytest.mark.parametrize("seed", range(6))
def test_growing_batches_approach_the_limit(seed):
    setting = random_setting(seed)
    limit = expected_rejections(*setting, batch_size=LIMIT)
    distances = [
        abs(expected_rejections(*setting, batch_size=size) - limit) for size in (2, 16, 128, 10**6)
    ]
    assert distances[-1] <= 1e-12
    assert distances == sorted(distances, reverse=True)
    # Only the first position of a round has more than one token to try.
    assert limit > 0.01


def test_tokens_that_are_never_drafted_stay_rejected():
    target, draft = [[0.25, 0.75]] * 2, [[1.0, 0.0]] * 2
    for batch_size in (1, 5, 10_000, LIMIT):
        found = expected_rejections(target, draft, 4, [1, 0], batch_size=batch_size)
        assert abs(found - 4 * 0.75) <= 1e-12


def test_a_batch_never_rejects_more_than_a_single_sequence():
    for seed in range(40):
        found = batch_improvement(*random_setting(seed), batch_sizes=[1, 2, 3, 5, 9])
        assert found.saved[0] == 0.0
        assert found.saved.min() >= 0.0
        assert found.limit <= found.single


def test_improvement_is_what_its_parts_say():
    setting = EDGES["absorbing_draft"]
    sizes = [8, 1, 3]
    found = batch_improvement(*setting, batch_sizes=sizes)
    alone = expected_rejections(*setting)
    assert found.batch_sizes.tolist() == sizes
    by_size = [expected_rejections(*setting, batch_size=size) for size in sizes]
    np.testing.assert_allclose(found.rejections, by_size, rtol=0, atol=1e-14)
    assert found.single == pytest.approx(alone, abs=1e-15)
    assert found.saved.tolist() == (found.single - found.rejections).tolist()
    assert found.ratio.tolist() == (found.single / found.rejections).tolist()
    assert found.limit == expected_rejections(*setting, batch_size=LIMIT)


def test_improvement_where_there_is_nothing_to_improve():
    found = batch_improvement(MIXED, MIXED, 3, THIRDS, batch_sizes=[1, 4])
    assert (found.saved.tolist(), found.ratio.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_both_names_simulate_the_same():
    setting = random_setting(2)
    options = {"batch_size": 3, "runs": 500, "rng": 4}
    first, second = (
        simulate_rejections(*setting, **options),
        simulate_batch_rejections(*setting, **options),
    )
    assert first.mean_by_horizon.tolist() == second.mean_by_horizon.tolist()


def test_batch_of_one_is_ordinary_speculative_decoding():
    # Batches of one go through the recursion for batches when they are named by the improvement.
    for seed in range(10):
        setting = random_setting(seed)
        found = batch_improvement(*setting, batch_sizes=[1]).rejections[0]
        assert abs(found - expected_rejections(*setting)) <= 1e-14


def large_setting(size, horizon):
    rng = np.random.default_rng(19)
    weights = rng.exponential(size=(2, size, size)) ** 4
    target, draft = weights / weights.sum(axis=-1, keepdims=True)
    return target, draft, horizon, np.full(size, 1.0 / size)


@pytest.mark.parametrize("function", [expected_rejections, simulate_batch_rejections])
def test_no_array_grows_with_the_batch(function):
    size, options = 256, {}
    setting = large_setting(size, 3)
    if function is simulate_batch_rejections:
        options = {"runs": 100, "rng": 0}
    tracemalloc.start()
    try:
        function(*setting, batch_size=64, **options)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # In matrices (V, V); one for each draft would make 64 of them.
    assert peak / (8 * size * size) < 16


def test_large_vocabulary():
    target, draft, horizon, initial = large_setting(1000, 100)
    single, batch, limit = (
        expected_rejections(target, draft, horizon, initial, batch_size=size)
        for size in (1, 64, LIMIT)
    )
    assert 0.0 < limit < batch < single < horizon
    found = simulate_batch_rejections(
        target, draft, horizon, initial, batch_size=64, runs=2000, rng=6
    )
    # Four standard errors: one false alarm in 16,000 seeds.
    assert abs(found.mean - batch) <= 4 * found.stderr


def test_tiny_draft_masses():
    target = np.array([[1e-300, 1 - 1e-300, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    draft = np.array([[5e-324, 1.0, 0.0], [1e-17, 1.0, 0.0], [1e-310, 0.0, 1.0]])
    values = [
        expected_rejections(target, draft, 5, THIRDS, batch_size=size) for size in (1, 2, 64, LIMIT)
    ]
    assert np.isfinite(values).all()
    assert values == sorted(values, reverse=True)
    found = simulate_batch_rejections(target, draft, 5, THIRDS, batch_size=64, runs=20_000, rng=3)
    assert abs(found.mean - values[2]) <= 4 * found.stderr
