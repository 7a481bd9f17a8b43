"""The explicit instance, the merging of tuples, and the re-check of solutions."""

from __future__ import annotations

import itertools
import pickle
import time
from fractions import Fraction

import numpy as np
import pytest

from mdsd._solvers.errors import SolverFailure
from mdsd._solvers.lp import solve_cover, solve_cvxpy, solve_lp
from mdsd._solvers.matching import solve_matching
from mdsd._solvers.transport import (
    TransportInstance,
    best_prefix_subset,
    canonical_subset,
    cut_value,
    merge_tuples,
    verify_solution,
)

from .. import commands

METHODS = {
    "lp": solve_lp,
    "cover": solve_cover,
    "cvxpy": solve_cvxpy,
    "networkx": lambda instance: solve_matching(instance, backend="networkx"),
}


def test_failure_names_method_and_status_and_can_be_pickled():
    failure = pickle.loads(pickle.dumps(SolverFailure("lp", "iteration limit")))
    assert (failure.method, failure.status) == ("lp", "iteration limit")
    assert "lp" in str(failure)
    assert "iteration limit" in str(failure)


class TestMergeTuples:
    def test_same_as_a_dictionary_of_frozensets(self, random_problem):
        instance = random_problem.instance
        merged: dict[frozenset[int], Fraction] = {}
        for row, mass in zip(
            random_problem.tuples.tolist(), random_problem.tuple_masses.tolist(), strict=True
        ):
            if mass:
                key = frozenset(row)
                merged[key] = merged.get(key, Fraction(0)) + Fraction(mass)
        found = {
            frozenset(tokens.tolist()): mass
            for tokens, mass in zip(
                np.split(instance.set_tokens, instance.set_starts[1:-1])
                if instance.num_sets
                else [],
                instance.set_masses,
                strict=True,
            )
        }
        assert len(found) == instance.num_sets
        assert found == pytest.approx({key: float(mass) for key, mass in merged.items()})

    def test_types_and_alignment(self):
        instance = merge_tuples([0.5, 0.25, 0.25], np.array([[2, 0], [2, 2]], np.int32), [0.5, 0.5])
        assert instance.set_tokens.dtype == instance.set_starts.dtype == np.int64
        assert instance.set_masses.dtype == instance.token_masses.dtype == np.float64
        assert instance.set_tokens.tolist() == [0, 2, 2]
        assert instance.pair_sets().tolist() == [0, 0, 1]
        assert (instance.num_tokens, instance.num_sets, instance.num_pairs) == (3, 2, 3)

    def test_tokens_beyond_32_bit_codes_stay_apart(self):
        num_tokens = 150_000
        tuples = [[149_999, 149_998], [149_998, 149_999], [0, 1]]
        instance = merge_tuples(np.full(num_tokens, 1 / num_tokens), tuples, [0.25, 0.25, 0.5])
        assert instance.set_tokens.tolist() == [0, 1, 149_998, 149_999]
        assert instance.set_masses.tolist() == [0.5, 0.5]

    def test_a_million_tuples_take_about_a_second(self):
        tuples = np.random.default_rng(0).integers(0, 100, (1_000_000, 3))
        start = time.perf_counter()
        instance = merge_tuples(np.full(100, 0.01), tuples, np.full(1_000_000, 1e-6))
        assert time.perf_counter() - start < 5
        assert instance.set_masses.sum() == pytest.approx(1)

    def test_no_mass_leaves_no_sets(self):
        instance = merge_tuples([1.0], [[0]], [0.0])
        assert (instance.num_sets, instance.num_pairs) == (0, 0)

    @pytest.mark.parametrize(
        ("token_masses", "tuples", "tuple_masses", "message"),
        [
            pytest.param([1.0], [[1]], [1.0], "lie in 0..0", id="token-too-large"),
            pytest.param([1.0], [[-1]], [1.0], "lie in 0..0", id="token-negative"),
            pytest.param([1.0], [[0.0]], [1.0], "integers", id="token-not-integer"),
            pytest.param([1.0], [[0]], [-1.0], "nonnegative", id="mass-negative"),
            pytest.param([1.0], [[0]], [np.nan], "finite", id="mass-nan"),
            pytest.param([np.inf], [[0]], [1.0], "finite", id="token-mass-infinite"),
            pytest.param([1.0], [[0]], [0.5, 0.5], "shape", id="lengths-differ"),
            pytest.param([1.0], [0], [1.0], "dimension", id="tuples-flat"),
            pytest.param([1.0], np.zeros((1, 0), int), [1.0], "n >= 1", id="tuples-empty"),
            pytest.param([], np.zeros((0, 1), int), [], "at least one", id="no-tokens"),
        ],
    )
    def test_rejects(self, token_masses, tuples, tuple_masses, message):
        with pytest.raises(ValueError, match=message):
            merge_tuples(token_masses, tuples, tuple_masses)


@pytest.mark.parametrize(
    ("starts", "tokens", "message"),
    [
        pytest.param([0, 2], [0, 1], "shape", id="too-few-starts"),
        pytest.param([0, 0, 2], [0, 1], "increase strictly", id="empty-set"),
        pytest.param([0, 1, 3], [0, 1], "increase strictly", id="end-beyond-pairs"),
        pytest.param([0, 1, 3], [0, 1, 0], "ascending", id="descending-tokens"),
        pytest.param([0, 1, 3], [0, 1, 1], "ascending", id="repeated-token"),
        pytest.param([0, 1, 2], [0, 2], "lie in 0..1", id="token-out-of-range"),
    ],
)
def test_instance_rejects(starts, tokens, message):
    with pytest.raises(ValueError, match=message):
        TransportInstance(np.ones(2), np.ones(2), np.array(starts), np.array(tokens))


class TestCut:
    def test_best_cut_is_the_optimum(self, random_problem, optimum):
        instance = random_problem.instance
        cuts = [
            cut_value(instance, np.array(subset))
            for subset in itertools.product([False, True], repeat=instance.num_tokens)
        ]
        assert min(cuts) == pytest.approx(optimum(random_problem), abs=1e-12, rel=0)

    def test_known(self, small_instance):
        subsets = np.array([[False, False], [True, False], [False, True], [True, True]])
        cuts = [cut_value(small_instance, subset) for subset in subsets]
        assert cuts == pytest.approx([1.0, 0.75, 1.5, 1.0])

    def test_canonical_subset_never_costs(self, random_problem):
        instance = random_problem.instance
        subset = np.random.default_rng(0).random(instance.num_tokens) < 0.5
        decided = canonical_subset(instance, subset)
        assert decided[instance.token_masses == 0].all()
        assert cut_value(instance, decided) <= cut_value(instance, subset)

    @pytest.mark.parametrize(
        ("prices", "expected"),
        [
            pytest.param([1.0, 0.0], [True, False], id="integral"),
            pytest.param([0.3, 0.2], [True, False], id="both-below-half"),
            pytest.param([0.5 + 1e-12, 0.5 - 1e-12], [True, False], id="noise-around-half"),
            # {}, {1} and {0, 1} cost 1, 1.5 and 1: of equals the longest.
            pytest.param([0.0, 1.0], [True, True], id="wrong-order"),
        ],
    )
    def test_subset_from_prices(self, small_instance, prices, expected):
        assert best_prefix_subset(small_instance, np.array(prices)).tolist() == expected


class TestVerify:
    """Pairs of the small instance, in order: (0, {0, 1}), (1, {0, 1}), (0, {0}), (1, {1})."""

    right_plan = (0.0, 0.25, 0.25, 0.25)
    right_subset = (True, False)

    def verify(self, instance, plan=right_plan, subset=right_subset):
        return verify_solution(instance, plan, np.array(subset), method="stub")

    def test_right_answer_passes(self, small_instance):
        solution = self.verify(small_instance)
        assert solution.value == 0.75
        assert solution.plan == pytest.approx(self.right_plan)
        assert abs(solution.gap) < 1e-14

    @pytest.mark.parametrize(
        ("plan", "message"),
        [
            pytest.param((0.0, 0.25, 0.25), "shape", id="wrong-length"),
            pytest.param((0.0, 0.25, 0.25, np.nan), "not finite", id="nan"),
            pytest.param((0.0, 0.25, 0.25, np.inf), "not finite", id="infinite"),
            pytest.param((-1e-6, 0.25, 0.25, 0.25), "negative entry, -1.000e-06", id="negative"),
            pytest.param((0.0, 0.25, 0.5, 0.25), "token mass by 2.500e-01", id="token-over-full"),
            pytest.param((0.0, 0.25, 0.25, 0.375), "set mass by 1.250e-01", id="set-over-full"),
            pytest.param((0.0, 0.25, 0.25, 0.125), "by 1.250e-01 > 1e-09", id="not-optimal"),
            pytest.param((0.0, 0.25, 0.25, 0.25 - 1e-8), "by 1.000e-08", id="slightly-short"),
        ],
    )
    def test_wrong_plan_is_refused(self, small_instance, plan, message):
        with pytest.raises(SolverFailure, match=message) as caught:
            self.verify(small_instance, plan=plan)
        assert caught.value.method == "stub"

    @pytest.mark.parametrize(
        ("subset", "message"),
        [
            pytest.param((False, False), "exceeds the plan's total", id="cut-too-large"),
            pytest.param((False, True), "exceeds the plan's total", id="complement"),
            pytest.param((True,), "shape", id="wrong-length"),
            pytest.param((1, 0), "boolean", id="integers"),
        ],
    )
    def test_wrong_subset_is_refused(self, small_instance, subset, message):
        with pytest.raises(SolverFailure, match=message):
            self.verify(small_instance, subset=subset)

    def test_roundings_are_repaired(self, small_instance):
        noise = np.array([-1e-10, 1e-10, 1e-10, 1e-10])
        solution = self.verify(small_instance, plan=np.array(self.right_plan) + noise)
        plan = solution.plan
        assert (plan >= 0).all()
        assert plan[0] + plan[2] <= 0.25
        assert plan[1] + plan[3] <= 0.75
        assert plan[0] + plan[1] <= 0.25
        assert plan[3] <= 0.25

    def test_plan_of_the_caller_is_left_alone(self, small_instance):
        plan = np.array(self.right_plan) + 1e-10
        before = plan.copy()
        self.verify(small_instance, plan=plan)
        assert np.array_equal(plan, before)

    def test_tokens_that_cost_nothing_are_decided(self):
        """Token 1 has no mass, token 2 lies in no set; left as given the cut would be 1.25."""
        instance = merge_tuples([0.5, 0.0, 0.25], [[0, 1]], [1.0])
        solution = self.verify(instance, plan=(0.5, 0.0), subset=(True, False, True))
        assert solution.subset.tolist() == [True, True, False]
        assert solution.value == 0.5

    def test_subnormal_masses(self):
        instance = merge_tuples([5e-324, 1.0], [[0], [1]], [1.0, 5e-324])
        solution = verify_solution(instance, [1e-12, 1e-12], np.array([True, False]), method="stub")
        assert solution.plan.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("concentration", [0.05, 1.0, 100.0])
@pytest.mark.parametrize("method", list(METHODS))
def test_methods_agree(method, concentration, seed, dirichlet_instance):
    if method == "cvxpy":
        pytest.importorskip("cvxpy")
    instance = dirichlet_instance(seed, num_tokens=30, concentration=concentration)
    exact = solve_matching(instance, backend="networkx", scale=2**200)
    assert METHODS[method](instance).value == pytest.approx(exact.value, abs=1e-9, rel=0)


def test_import_leaves_heavy_libraries_out():
    code = (
        "import sys, mdsd._solvers.lp, mdsd._solvers.matching, mdsd._solvers.subsets;"
        "print(sorted({'cvxpy', 'networkx', 'ortools', 'scipy.optimize'} & set(sys.modules)))"
    )
    assert commands.run_python(code).stdout.strip() == "[]"
