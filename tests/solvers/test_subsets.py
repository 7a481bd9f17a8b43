"""Exhaustive subset selection in exact arithmetic."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from mdsd._solvers.subsets import solve_subsets
from mdsd._solvers.transport import cut_value, merge_tuples


def test_known_values(known_problem, assert_optimal):
    solution = solve_subsets(known_problem.instance)
    assert_optimal(solution, known_problem, known_problem.value)
    assert solution.plan is None
    assert solution.gap == 0
    if known_problem.subset is not None:
        assert tuple(np.flatnonzero(solution.subset)) == known_problem.subset


def test_brute_force(random_problem, optimum):
    solution = solve_subsets(random_problem.instance)
    assert solution.value == pytest.approx(optimum(random_problem), rel=1e-14, abs=0)


def test_value_is_the_cut_value(random_problem):
    instance = random_problem.instance
    solution = solve_subsets(instance)
    assert solution.value == pytest.approx(cut_value(instance, solution.subset), rel=1e-14)


@pytest.mark.parametrize(
    ("target", "tuples", "masses", "expected"),
    [
        pytest.param(
            [0.5, 0.5], [[0], [1]], [0.5, 0.5], [True, True], id="all-subsets-are-optimal"
        ),
        pytest.param([0.5, 0.5], [[0, 1]], [1.0], [True, True], id="nothing-or-everything"),
        pytest.param(
            [0.5, 0.25, 0.25], [[0], [1]], [0.5, 0.5], [True, True, False], id="token-in-no-set"
        ),
        pytest.param([0.5, 0.5, 0.0], [[0, 2]], [0.25], [False, False, True], id="zero-mass"),
        pytest.param([1.0, 0.0], [[0]], [0.5], [False, True], id="zero-mass-in-no-set"),
    ],
)
def test_of_several_optima_the_largest(target, tuples, masses, expected):
    instance = merge_tuples(target, tuples, masses)
    solution = solve_subsets(instance)
    assert solution.subset.tolist() == expected
    cuts = [
        cut_value(instance, np.array(subset))
        for subset in itertools.product([False, True], repeat=len(target))
    ]
    assert solution.value == min(cuts)


def test_differences_far_below_rounding_are_seen():
    step = 2.0**-53
    instance = merge_tuples([0.5, 1e-300], [[0], [1]], [0.5 + step, 2e-300])
    assert solve_subsets(instance).subset.tolist() == [True, True]
    instance = merge_tuples([0.5, 2e-300], [[0], [1]], [0.5 - step / 2, 1e-300])
    assert solve_subsets(instance).subset.tolist() == [False, False]


def test_limit_counts_undecided_tokens_only(dirichlet_instance):
    target = np.zeros(30)
    target[:3] = 1 / 3
    instance = merge_tuples(target, np.arange(30)[:, None], np.full(30, 1 / 30))
    assert solve_subsets(instance, limit=3).value == pytest.approx(0.1)
    with pytest.raises(ValueError, match=r"3 tokens .* limit of 2"):
        solve_subsets(instance, limit=2)


def test_above_the_default_limit(dirichlet_instance):
    with pytest.raises(ValueError, match=r"19 tokens .* limit of 18"):
        solve_subsets(dirichlet_instance(0, num_tokens=19, concentration=1.0))


def test_twelve_tokens_in_time(dirichlet_instance):
    instance = dirichlet_instance(0, num_tokens=12, concentration=1.0)
    start = time.perf_counter()
    solve_subsets(instance)
    assert time.perf_counter() - start < 0.5
