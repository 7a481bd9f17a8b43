"""The program of trees: its optimum, its certificate, and wrong answers that must be refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mdsd._solvers import tree_lp
from mdsd._solvers.errors import SolverFailure
from mdsd._solvers.tree_lp import TreeInstance, price_bound, solve_tree, verify_tree_solution

GIVEN = {
    "parents": [-1, 0, 0, 1],
    "step_masses": [1.0, 0.5, 0.5, 0.25],
    "tree_masses": [0.5, 0.5],
    "tree_starts": [0, 2, 3],
    "tree_strings": [1, 3, 2],
}
SMALL = TreeInstance(**GIVEN)
"""Strings "", "0", "1", "00"; one tree holds "0" and "00", the other "1"."""
RULE, PRICES = [0.5, 0.125, 0.5], [0.0, 0.0, 0.0, 1.0]
"""Its optimum: both first tokens are always accepted, the second one time in four."""


def random_instance(seed: int, count: int = 6, smallest: float = 0.0) -> TreeInstance:
    """Trees of two tokens and two levels, drawn at random among all there are."""
    rng = np.random.default_rng(seed)
    steps = [1.0]
    for _ in range(3):
        mass = max(smallest, rng.random())
        steps += [mass, 1.0 - mass]
    sets = [
        sorted(chosen)
        for size in range(7)
        for chosen in itertools.combinations(range(1, 7), size)
        if all(string < 3 or (string - 1) // 2 in chosen for string in chosen)
    ]
    trees = [sets[k] for k in rng.choice(len(sets), count, replace=False)]
    return TreeInstance(
        parents=[-1, 0, 0, 1, 1, 2, 2],
        step_masses=steps,
        tree_masses=rng.dirichlet(np.ones(count)),
        tree_starts=np.cumsum([0, *map(len, trees)]),
        tree_strings=np.array([string for tree in trees for string in tree], dtype=np.int64),
    )


def bound_by_paths(instance: TreeInstance, prices: np.ndarray) -> float:
    """The inequality at the head of the module, string by string."""
    parents = instance.parents.tolist()

    def expected(string):
        children = [k for k, parent in enumerate(parents) if parent == string]
        return sum(instance.step_masses[k] * prices[k] for k in children)

    def gain(string):
        if string == 0:
            return expected(0)
        return 1.0 + expected(string) - prices[string] + gain(parents[string])

    starts = instance.tree_starts
    return sum(
        mass * max(map(gain, [0, *instance.tree_strings[first:last].tolist()]))
        for mass, first, last in zip(instance.tree_masses, starts, starts[1:], strict=False)
    )


class TestOptimum:
    def test_by_hand(self):
        solution = solve_tree(SMALL)
        np.testing.assert_allclose(solution.passing, RULE, rtol=0, atol=1e-12)
        assert solution.value == pytest.approx(1.125, abs=1e-12)

    @pytest.mark.parametrize("seed", range(10))
    def test_is_proved(self, seed):
        solution = solve_tree(random_instance(seed))
        assert abs(solution.gap) <= 1e-12
        assert solution.value == pytest.approx(float(solution.passing.sum()), abs=1e-12)

    @pytest.mark.parametrize("smallest", [1e-300, 1e-20, 1e-12, 1e-9, 1e-6])
    def test_small_masses(self, smallest):
        masses = np.array([1.0 - 2.0 * smallest, smallest, smallest])
        instance = TreeInstance(
            parents=[-1, 0, 0, 0, 1, 2],
            step_masses=[1.0, *masses, smallest, 0.5],
            tree_masses=masses[::-1],
            tree_starts=[0, 2, 4, 5],
            tree_strings=[1, 4, 2, 5, 3],
        )
        assert abs(solve_tree(instance).gap) <= 1e-12

    def test_mass_zero(self):
        instance = TreeInstance([-1, 0, 0], [1.0, 0.0, 1.0], [0.5, 0.5], [0, 1, 2], [1, 2])
        assert solve_tree(instance).value == pytest.approx(0.5, abs=1e-12)

    def test_nothing_drafted(self):
        assert solve_tree(TreeInstance([-1], [1.0], [1.0], [0, 0], [])).value == 0.0

    def test_a_tree_without_strings_beside_others(self):
        instance = TreeInstance([-1, 0], [1.0, 1.0], [0.25, 0.75], [0, 0, 1], [1])
        assert solve_tree(instance).value == pytest.approx(0.75, abs=1e-12)

    def test_simplex_where_interior_point_fails(self, monkeypatch):
        asked, solve = [], tree_lp._solve

        def fails_first(instance, highs_method):
            asked.append(highs_method)
            if len(asked) == 1:
                raise SolverFailure(highs_method, "no")
            return solve(instance, highs_method)

        monkeypatch.setattr(tree_lp, "_solve", fails_first)
        assert solve_tree(SMALL).value == pytest.approx(1.125, abs=1e-12)
        assert asked == ["highs-ipm", "highs-ds"]


class TestPrices:
    @pytest.mark.parametrize("seed", range(20))
    def test_any_bound(self, seed):
        instance = random_instance(seed)
        prices = np.random.default_rng(seed).exponential(size=7)
        assert price_bound(instance, prices) >= solve_tree(instance).value

    @pytest.mark.parametrize("seed", range(20))
    def test_are_read_as_the_inequality_says(self, seed):
        instance = random_instance(seed)
        prices = np.random.default_rng(seed).exponential(size=7)
        found = price_bound(instance, prices)
        assert found == pytest.approx(bound_by_paths(instance, prices), abs=1e-12)

    def test_all_zero_bound_by_the_depths(self):
        assert price_bound(SMALL, np.zeros(4)) == 0.5 * 2 + 0.5


WRONG = {
    "rule_negative": ([0.5, -1e-6, 0.5], PRICES, "negative"),
    "rule_nan": ([0.5, np.nan, 0.5], PRICES, "finite"),
    "rule_shape": ([0.5, 0.125], PRICES, "shape"),
    "more_than_the_tree": ([0.5, 0.125, 0.5 + 1e-6], PRICES, "reached"),
    "more_than_the_parent": ([0.1, 0.125, 0.5], PRICES, "reached"),
    "more_than_wanted": ([0.5, 0.125 + 1e-6, 0.5], PRICES, "wants"),
    "too_little": ([0.5, 0.125 - 1e-6, 0.5], PRICES, "1.000e-06"),
    "nothing": ([0.0, 0.0, 0.0], PRICES, "off the rule's"),
    "prices_negative": (RULE, [0.0, -1e-6, 0.0, 1.0], "negative"),
    "prices_inf": (RULE, [0.0, 0.0, 0.0, np.inf], "finite"),
    "prices_shape": (RULE, [0.0, 0.0, 1.0], "shape"),
    "prices_too_low": (RULE, [0.0, 0.0, 0.0, 1.0 - 1e-6], "off the rule's"),
    "prices_zero": (RULE, [0.0, 0.0, 0.0, 0.0], "off the rule's"),
    "prices_too_high": (RULE, [0.0, 3.0, 0.0, 0.0], "off the rule's"),
}


class TestReCheck:
    def test_takes_the_right_answer(self):
        solution = verify_tree_solution(SMALL, RULE, PRICES, method="by hand")
        assert (solution.value, solution.gap) == (1.125, 0.0)

    @pytest.mark.parametrize("wrong", WRONG)
    def test_refuses_a_wrong_one(self, wrong):
        rule, prices, word = WRONG[wrong]
        with pytest.raises(SolverFailure, match=word) as caught:
            verify_tree_solution(SMALL, rule, prices, method="by hand")
        assert caught.value.method == "by hand"

    def test_repairs_roundings(self):
        rule = np.array([0.5 + 1e-10, 0.125 + 1e-10, 0.5 - 1e-10])
        solution = verify_tree_solution(SMALL, rule, PRICES, method="by hand")
        assert solution.passing.tolist() == [0.5, 0.125, 0.5 - 1e-10]
        assert solution.gap == pytest.approx(1e-10, rel=1e-3)

    def test_the_price_of_the_empty_string_does_not_matter(self):
        solution = verify_tree_solution(SMALL, RULE, [7.0, 0.0, 0.0, 1.0], method="by hand")
        assert (solution.value, solution.prices[0]) == (1.125, 0.0)

    def test_what_a_solver_gets_wrong_is_found(self, monkeypatch):
        def doubled(instance, scales, constraints=tree_lp._constraints):
            matrix, masses = constraints(instance, scales)
            return matrix, 2.0 * masses

        monkeypatch.setattr(tree_lp, "_constraints", doubled)
        with pytest.raises(SolverFailure, match="reached"):
            solve_tree(SMALL)


BAD = {
    "no_strings": ("parents", [], "begin with -1"),
    "no_root": ("parents", [0, 0, 0, 1], "begin with -1"),
    "later_parent": ("parents", [-1, 0, 3, 1], "earlier"),
    "second_root": ("parents", [-1, 0, -1, 1], "earlier"),
    "float_parents": ("parents", [-1.0, 0.0, 0.0, 1.0], "integers"),
    "few_steps": ("step_masses", [1.0, 0.5, 0.5], "shape"),
    "negative_step": ("step_masses", [1.0, 0.5, 0.5, -0.25], "nonnegative"),
    "nan_mass": ("tree_masses", [0.5, np.nan], "finite"),
    "matrix": ("tree_masses", [[0.5, 0.5]], "one dimension"),
    "few_starts": ("tree_starts", [0, 3], "shape"),
    "falling_starts": ("tree_starts", [0, 4, 3], "rise"),
    "short_starts": ("tree_starts", [0, 2, 2], "rise"),
    "empty_string": ("tree_strings", [0, 1, 2], "1..3"),
    "no_such_string": ("tree_strings", [1, 4, 2], "1..3"),
    "not_ascending": ("tree_strings", [3, 1, 2], "ascending"),
    "twice": ("tree_strings", [1, 1, 2], "ascending"),
    "without_parent": ("tree_strings", [2, 3, 2], "parent"),
}


@pytest.mark.parametrize("bad", BAD)
def test_arrays_that_do_not_fit(bad):
    name, value, word = BAD[bad]
    with pytest.raises(ValueError, match=word):
        TreeInstance(**{**GIVEN, name: value})
