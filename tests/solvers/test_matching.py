"""The relaxed problem as a maximum flow on integers."""

from __future__ import annotations

import importlib.util
import time

import numpy as np
import pytest

from mdsd._solvers import matching
from mdsd._solvers.errors import SolverFailure
from mdsd._solvers.lp import solve_lp
from mdsd._solvers.matching import solve_matching
from mdsd._solvers.transport import merge_tuples


@pytest.fixture(params=["ortools", "networkx"])
def backend(request):
    pytest.importorskip(request.param)
    return request.param


def test_known_values(backend, known_problem, assert_optimal):
    solution = solve_matching(known_problem.instance, backend=backend)
    assert_optimal(solution, known_problem, known_problem.value)
    if known_problem.subset is not None:
        assert tuple(np.flatnonzero(solution.subset)) == known_problem.subset


def test_brute_force(backend, random_problem, optimum, assert_optimal):
    solution = solve_matching(random_problem.instance, backend=backend)
    assert_optimal(solution, random_problem, optimum(random_problem))


@pytest.mark.parametrize("first_seed", range(0, 500, 50))
def test_peaked_instances_of_twenty_tokens(first_seed, dirichlet_instance):
    pytest.importorskip("ortools")
    for seed in range(first_seed, first_seed + 50):
        instance = dirichlet_instance(seed)
        value = solve_matching(instance, backend="ortools").value
        assert value == pytest.approx(solve_lp(instance).value, abs=1e-9, rel=0), seed
        exact = solve_matching(instance, backend="networkx", scale=2**120)
        assert value == pytest.approx(exact.value, abs=1e-9, rel=0), seed


def test_sixty_tokens_in_time(backend, dirichlet_instance):
    instance = dirichlet_instance(0, num_tokens=60, concentration=1.0)
    start = time.perf_counter()
    solution = solve_matching(instance, backend=backend)
    assert time.perf_counter() - start < 3
    assert solution.value == pytest.approx(0.6905900284607436, abs=1e-9, rel=0)


def test_of_several_minimum_cuts_the_largest_subset(backend):
    instance = merge_tuples([0.5, 0.5], [[0], [1]], [0.5, 0.5])
    assert solve_matching(instance, backend=backend).subset.tolist() == [True, True]


class TestScale:
    @pytest.mark.parametrize("exponent", [31, 35, 40, 50, 60])
    def test_right_value_or_refused(self, backend, exponent, dirichlet_instance):
        instance = dirichlet_instance(3, concentration=1.0)
        expected = solve_matching(instance, backend=backend).value
        refusal = None
        try:
            solution = solve_matching(instance, scale=2**exponent, backend=backend)
        except ValueError as caught:
            refusal = caught
        if refusal is not None:
            assert "too coarse" in str(refusal)
            assert exponent < 40
        else:
            assert solution.value == pytest.approx(expected, abs=1e-9, rel=0)
            assert abs(solution.gap) <= 1e-9

    @pytest.mark.parametrize("scale", [0, -1, 2.0**60, True, None], ids=repr)
    def test_not_a_positive_integer(self, backend, scale, small_instance):
        with pytest.raises(ValueError, match="positive integer"):
            solve_matching(small_instance, scale=scale, backend=backend)

    def test_one_unit_is_too_coarse(self, backend):
        instance = merge_tuples([0.5, 0.5], [[0], [1]], [0.5, 0.5])
        with pytest.raises(ValueError, match="too coarse"):
            solve_matching(instance, scale=1, backend=backend)

    def test_largest_of_ortools(self, small_instance):
        pytest.importorskip("ortools")
        solution = solve_matching(small_instance, scale=2**62, backend="ortools")
        assert solution.value == pytest.approx(0.75)

    @pytest.mark.parametrize("side", ["tokens", "sets"])
    def test_too_large_for_ortools(self, side):
        pytest.importorskip("ortools")
        large, small = [1.0], [0.5]
        masses = (large, small) if side == "tokens" else (small, large)
        instance = merge_tuples(masses[0], [[0]], masses[1])
        with pytest.raises(ValueError, match=r"2\*\*62"):
            solve_matching(instance, scale=2**62 + 1, backend="ortools")

    def test_any_size_with_networkx(self, small_instance):
        solution = solve_matching(small_instance, scale=2**1074, backend="networkx")
        assert solution.value == pytest.approx(0.75)

    @pytest.mark.parametrize("mass", [0.1, 1 / 3, 1e-12, 5e-324, 0.0, 1.0], ids=repr)
    def test_capacities_are_exact_floors(self, mass):
        numerator, denominator = mass.as_integer_ratio()
        (capacity,) = matching._integer_masses(np.array([mass]), 10**30)
        assert capacity * denominator <= numerator * 10**30 < (capacity + 1) * denominator


class TestBackend:
    def test_unknown(self, small_instance):
        with pytest.raises(ValueError, match="networkx"):
            solve_matching(small_instance, backend="scipy")

    @pytest.mark.parametrize(
        ("found", "expected"), [(True, "ortools"), (False, "networkx")], ids=["with", "without"]
    )
    def test_default(self, found, expected, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: found or None)
        assert matching._chosen_backend(None) == expected

    def test_default_solves(self, small_instance):
        assert solve_matching(small_instance).value == pytest.approx(0.75)


class TestBadAnswers:
    @pytest.mark.parametrize("status", ["POSSIBLE_OVERFLOW", "BAD_INPUT", "BAD_RESULT"])
    def test_status_of_ortools(self, status, small_instance, monkeypatch):
        max_flow = pytest.importorskip("ortools.graph.python.max_flow")

        class Stub(max_flow.SimpleMaxFlow):
            def solve(self, source, sink):
                super().solve(source, sink)
                return getattr(self, status)

        monkeypatch.setattr(max_flow, "SimpleMaxFlow", Stub)
        with pytest.raises(SolverFailure, match=status):
            solve_matching(small_instance, backend="ortools")

    @pytest.mark.parametrize(
        "flow",
        [
            pytest.param(lambda network: [0] * len(network.capacities), id="no-flow"),
            pytest.param(lambda network: list(network.capacities), id="all-arcs-full"),
            pytest.param(lambda network: [-c for c in network.capacities], id="negative"),
            pytest.param(lambda network: [c // 2 for c in network.capacities], id="half"),
        ],
    )
    def test_wrong_flow(self, flow, small_instance, monkeypatch):
        monkeypatch.setitem(matching._BACKENDS, "networkx", flow)
        with pytest.raises(SolverFailure, match=r"matching \(networkx\)"):
            solve_matching(small_instance, backend="networkx")

    def test_network_has_no_impossible_arcs(self):
        instance = merge_tuples([1.0, 0.0], [[0, 1], [1, 1]], [0.5, 0.5])
        kept, network = matching._network(instance, [2, 2], [4, 0])
        assert kept.tolist() == [0]
        assert network.capacities == [2, 2, 2, 4, 0]
        assert (network.tails.tolist(), network.heads.tolist()) == (
            [0, 0, 1, 3, 4],
            [1, 2, 3, 5, 5],
        )
