"""Expected and simulated rejections: against enumeration, against each other, and at the edges."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from mdsd.analysis import (
    acceleration,
    expected_rejections,
    rejection_probs,
    simulate_rejections,
)

from .agreement import agreement, z_scores
from .chains import CYCLE, EDGES, MIXED, THIRDS, random_setting
from .enumeration import enumerate_lazily, floats, random_chain, random_row

SIZES = (1, 2, 4, 8)
LIMIT = math.inf


def fractions_of(setting):
    """A setting of floats as exact fractions, for the oracles: rows must sum to 1 exactly."""
    target, draft, horizon, initial = setting

    def rows(matrix):
        found = [[Fraction(float(x)).limit_denominator(10**6) for x in row] for row in matrix]
        assert all(sum(row) == 1 for row in found)
        return found

    return [rows(target)] * horizon, [rows(draft)] * horizon, rows([initial])[0]


# --- exact ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", SIZES)
@pytest.mark.parametrize("seed", range(4))
def test_equals_full_enumeration(seed, batch_size):
    rng = np.random.default_rng([3, seed])
    target, draft = random_chain(rng, 3, 4), random_chain(rng, 3, 4)
    initial = random_row(rng, 3)
    exact = enumerate_lazily(target, draft, initial, batch_size).rejections
    found = expected_rejections(
        floats(target), floats(draft), 4, floats(initial), batch_size=batch_size
    )
    assert abs(found - float(exact)) <= 1e-12
    other = expected_rejections(
        floats(target), floats(draft), 4, floats(initial), batch_size=batch_size + 1
    )
    if exact not in (0, 4) and batch_size < 4:
        assert abs(other - float(exact)) > 1e-6


@pytest.mark.parametrize("batch_size", [1, 2, 3])
@pytest.mark.parametrize("name", [name for name in EDGES if name != "tiny_difference"])
def test_edges_equal_enumeration(name, batch_size):
    exact = enumerate_lazily(*fractions_of(EDGES[name]), batch_size)
    found = expected_rejections(*EDGES[name], batch_size=batch_size)
    assert abs(found - float(exact.rejections)) <= 1e-12


@pytest.mark.parametrize("batch_size", [*SIZES, LIMIT])
def test_positions_add_up_to_every_horizon(batch_size):
    target, draft, _, initial = EDGES["absorbing_target"]
    probs = rejection_probs(target, draft, 6, initial, batch_size=batch_size)
    assert probs.shape == (6,)
    for horizon, total in enumerate(np.cumsum(probs), start=1):
        found = expected_rejections(target, draft, horizon, initial, batch_size=batch_size)
        assert abs(found - total) <= 1e-14


def test_first_position_by_hand():
    target, draft = [[0.5, 0.3, 0.2]] * 3, [[0.2, 0.5, 0.3]] * 3
    for batch_size, rejected in ((1, 0.3), (2, 0.3 - 0.06), (LIMIT, 0.0)):
        found = rejection_probs(target, draft, 2, [1, 0, 0], batch_size=batch_size)[0]
        assert abs(found - rejected) <= 1e-15


@pytest.mark.parametrize("batch_size", [1, 3, LIMIT])
def test_stationary_is_one_matrix_for_all_positions(batch_size):
    target, draft, horizon, initial = EDGES["partly_disjoint"]
    repeated = [np.repeat(chain[np.newaxis], horizon, axis=0) for chain in (target, draft)]
    for chains in itertools.product((target, repeated[0]), (draft, repeated[1])):
        found = rejection_probs(*chains, horizon, initial, batch_size=batch_size)
        expected = rejection_probs(target, draft, horizon, initial, batch_size=batch_size)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("batch_size", [*SIZES, 64, LIMIT])
@pytest.mark.parametrize("chain", [MIXED, CYCLE, np.ones((1, 1))], ids=["mixed", "cycle", "one"])
def test_a_draft_equal_to_the_target_is_never_rejected(chain, batch_size):
    initial = np.full(len(chain), 1.0 / len(chain))
    assert expected_rejections(chain, chain, 50, initial, batch_size=batch_size) == 0.0
    assert acceleration(chain, chain, 50, initial, batch_size=batch_size) == math.inf
    if batch_size != LIMIT:
        found = simulate_rejections(chain, chain, 5, initial, batch_size=batch_size, runs=50, rng=0)
        assert (found.mean, found.stderr) == (0.0, 0.0)


@pytest.mark.parametrize("batch_size", [*SIZES, 64, LIMIT])
def test_disjoint_supports_are_rejected_at_every_position(batch_size):
    target, draft = [[0, 0.5, 0.5]] * 3, [[1, 0, 0]] * 3
    assert expected_rejections(target, draft, 7, THIRDS, batch_size=batch_size) == 7.0
    assert acceleration(target, draft, 7, THIRDS, batch_size=batch_size) == 1.0
    if batch_size != LIMIT:
        found = simulate_rejections(target, draft, 7, THIRDS, batch_size=batch_size, runs=50, rng=0)
        assert (found.mean, found.stderr) == (7.0, 0.0)


def test_never_more_than_the_horizon():
    rng = np.random.default_rng(5)
    target, draft = np.zeros((2, 40, 40))
    target[:, :20], draft[:, 20:] = rng.dirichlet(np.ones(20), 40), rng.dirichlet(np.ones(20), 40)
    probs = rejection_probs(target, draft, 30, np.full(40, 1 / 40))
    assert probs.max() <= 1.0
    np.testing.assert_allclose(probs, 1.0, rtol=0, atol=1e-14)


def test_acceleration_is_the_horizon_over_the_rejections():
    setting = EDGES["two_states"]
    assert acceleration(*setting) == setting[2] / expected_rejections(*setting)
    assert acceleration(*setting, batch_size=4) > acceleration(*setting)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble])
def test_other_types_are_renormalised_and_left_alone(dtype):
    target, draft, horizon, initial = EDGES["two_states"]
    given = [array.astype(dtype) for array in (target, draft, initial)]
    before = [array.tobytes() for array in given]
    found = expected_rejections(given[0], given[1], horizon, given[2])
    assert abs(found - expected_rejections(target, draft, horizon, initial)) < 1e-3
    assert [array.tobytes() for array in given] == before


# --- simulated -----------------------------------------------------------------------------------


def simulated_z_scores(runs, extra_drafts=0):
    """Z-scores of simulations of 24 chains and four batch sizes against theory."""
    scores = []
    rng = np.random.default_rng(61)
    for seed, batch_size in itertools.product(range(24), SIZES):
        setting = random_setting(seed)
        found = simulate_rejections(*setting, batch_size=batch_size, runs=runs, rng=rng)
        theory = expected_rejections(*setting, batch_size=batch_size + extra_drafts)
        scores += z_scores(found.mean, found.stderr, theory)
    return scores


def test_theory_and_simulation_agree():
    # 96 comparisons, judged together: right numbers fail for one choice of seeds in a thousand.
    found = agreement(simulated_z_scores(100_000))
    assert found.holds, found


def test_agreement_would_notice_one_more_draft():
    # The negative control: theory of M + 1 drafts against simulations of M.
    assert not agreement(simulated_z_scores(20_000, extra_drafts=1)).holds


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("name", EDGES)
def test_edges_simulated(name, batch_size):
    # 18 comparisons in all, four standard errors: one false alarm in 900 seeds.
    found = simulate_rejections(*EDGES[name], batch_size=batch_size, runs=20_000, rng=11)
    theory = expected_rejections(*EDGES[name], batch_size=batch_size)
    if found.stderr == 0.0:  # certain, or too rare to be seen
        assert abs(found.mean - theory) <= 1e-6
    else:
        assert abs(found.mean - theory) <= 4 * found.stderr


def test_standard_error_is_that_of_the_enumeration():
    rng = np.random.default_rng(8)
    target, draft = random_chain(rng, 3, 4), random_chain(rng, 3, 4)
    initial = random_row(rng, 3)
    exact = enumerate_lazily(target, draft, initial, 2)
    variance = float(exact.square - exact.rejections**2)
    runs = 100_000
    found = simulate_rejections(
        floats(target), floats(draft), 4, floats(initial), batch_size=2, runs=runs, rng=2
    )
    assert found.runs == runs
    # The relative error of a standard deviation from N runs is about 1 / sqrt(2 N) = 0.2 per cent.
    assert found.stderr == pytest.approx(math.sqrt(variance / runs), rel=0.02)


def test_standard_error_of_few_runs_by_hand():
    # One position, rejected with probability 1/2; with three runs N and N - 1 differ.
    setting = [[0.5, 0.5]] * 2, [[1.0, 0.0]] * 2, 1, [1.0, 0.0]
    seen = set()
    for rng in range(20):
        found = simulate_rejections(*setting, runs=3, rng=rng)
        count = round(3 * found.mean)
        variance = (count - count**2 / 3) / 2
        assert found.stderr == pytest.approx(math.sqrt(variance / 3), abs=1e-15)
        seen.add(count)
    assert seen == {0, 1, 2, 3}


def test_every_horizon_is_counted():
    setting = random_setting(3)
    found = simulate_rejections(*setting, batch_size=2, runs=20_000, rng=5)
    theory = np.cumsum(rejection_probs(*setting, batch_size=2))
    assert found.mean_by_horizon.shape == found.stderr_by_horizon.shape == (setting[2],)
    assert found.mean_by_horizon[-1] == found.mean
    assert found.stderr_by_horizon[-1] == found.stderr
    # At most 8 comparisons at 4.5 standard errors: one false alarm in 18,000 seeds.
    assert (abs(found.mean_by_horizon - theory) <= 4.5 * found.stderr_by_horizon).all()


def test_same_seed_same_runs_and_blocks_are_independent():
    setting = random_setting(1)
    first, again, other = (simulate_rejections(*setting, runs=1000, rng=rng) for rng in (7, 7, 8))
    assert first.mean_by_horizon.tolist() == again.mean_by_horizon.tolist()
    assert first.mean_by_horizon.tolist() != other.mean_by_horizon.tolist()
    rng = np.random.default_rng(0)
    draws = [simulate_rejections(*setting, runs=1000, rng=rng).mean for _ in range(2)]
    assert draws[0] != draws[1]


def test_runs_in_several_blocks():
    # 65,536 runs are simulated side by side: these take three blocks.
    setting = EDGES["two_states"]
    found = simulate_rejections(*setting, runs=150_000, rng=1)
    assert abs(found.mean - expected_rejections(*setting)) <= 4 * found.stderr
    assert found.stderr == pytest.approx(
        simulate_rejections(*setting, runs=50_000, rng=1).stderr / math.sqrt(3), rel=0.02
    )


def test_results_are_frozen():
    found = simulate_rejections(*EDGES["two_states"], runs=10, rng=0)
    with pytest.raises(ValueError, match="read-only"):
        found.mean_by_horizon[0] = 1.0
    with pytest.raises(AttributeError):
        found.mean = 0.0
