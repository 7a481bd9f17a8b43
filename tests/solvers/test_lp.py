"""The relaxed problem and its dual as explicit linear programs."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize

from mdsd._solvers.errors import SolverFailure
from mdsd._solvers.lp import checked_cover, solve_cover, solve_cvxpy, solve_lp
from mdsd._solvers.transport import merge_tuples

SOLVERS = {"lp": solve_lp, "cover": solve_cover, "cvxpy": solve_cvxpy}


@pytest.fixture(params=list(SOLVERS))
def solve(request):
    if request.param == "cvxpy":
        pytest.importorskip("cvxpy")
    return SOLVERS[request.param]


def test_known_values(solve, known_problem, assert_optimal):
    solution = solve(known_problem.instance)
    assert_optimal(solution, known_problem, known_problem.value)
    if known_problem.subset is not None:
        assert tuple(np.flatnonzero(solution.subset)) == known_problem.subset


def test_brute_force(solve, random_problem, optimum, assert_optimal):
    assert_optimal(solve(random_problem.instance), random_problem, optimum(random_problem))


def test_sixty_tokens(solve, dirichlet_instance):
    instance = dirichlet_instance(0, num_tokens=60, concentration=1.0)
    assert instance.num_sets == 1830
    assert solve(instance).value == pytest.approx(0.6905900284607436, abs=1e-9, rel=0)


def _stub(status=0, message="stub", x=0.0, marginal=0.0):
    """Return a linprog that answers with constant vectors, whatever the problem."""

    def linprog(costs, **arguments):
        solution = None if x is None else np.full(len(costs), x)
        duals = SimpleNamespace(marginals=np.full(len(arguments["b_ub"]), marginal))
        return SimpleNamespace(status=status, message=message, x=solution, ineqlin=duals)

    return linprog


@pytest.mark.parametrize("solve", [solve_lp, solve_cover], ids=["lp", "cover"])
class TestBadAnswersOfLinprog:
    @pytest.mark.parametrize(
        ("status", "message"),
        [
            pytest.param(1, "Iteration limit reached", id="iteration-limit"),
            pytest.param(2, "Problem is infeasible", id="infeasible"),
            pytest.param(3, "Problem is unbounded", id="unbounded"),
            pytest.param(4, "Numerical difficulties", id="numerical-trouble"),
        ],
    )
    @pytest.mark.parametrize("x", [None, 0.0], ids=["without-vector", "with-vector"])
    def test_status(self, solve, status, message, x, small_instance, monkeypatch):
        monkeypatch.setattr(scipy.optimize, "linprog", _stub(status, message, x))
        with pytest.raises(SolverFailure, match=message):
            solve(small_instance)

    @pytest.mark.parametrize(
        "answer",
        [
            pytest.param({"x": None}, id="no-vector"),
            pytest.param({"x": np.nan}, id="vector-nan"),
            pytest.param({"x": 1.0, "marginal": np.nan}, id="duals-nan"),
            pytest.param({"x": 0.0}, id="all-zero"),
            pytest.param({"x": 1.0}, id="all-one"),
            pytest.param({"x": 1.0, "marginal": -1e6}, id="plan-over-full"),
            pytest.param({"x": 0.5}, id="fractional"),
            pytest.param({"x": -1.0}, id="negative"),
        ],
    )
    def test_wrong_optimum(self, solve, answer, small_instance, monkeypatch):
        monkeypatch.setattr(scipy.optimize, "linprog", _stub(**answer))
        with pytest.raises(SolverFailure):
            solve(small_instance)


class TestSecondAttempt:
    def methods_tried(self, monkeypatch, refused):
        tried, real = [], scipy.optimize.linprog

        def linprog(costs, *, method, **arguments):
            tried.append(method)
            if method in refused:
                return _stub(4)(costs, **arguments)
            return real(costs, method=method, **arguments)

        monkeypatch.setattr(scipy.optimize, "linprog", linprog)
        return tried

    def test_interior_point_suffices(self, small_instance, monkeypatch):
        tried = self.methods_tried(monkeypatch, refused=())
        assert solve_lp(small_instance).value == pytest.approx(0.75)
        assert tried == ["highs-ipm"]

    def test_simplex_after_interior_point(self, small_instance, monkeypatch):
        tried = self.methods_tried(monkeypatch, refused=("highs-ipm",))
        assert solve_lp(small_instance).value == pytest.approx(0.75)
        assert tried == ["highs-ipm", "highs-ds"]

    def test_no_third(self, small_instance, monkeypatch):
        tried = self.methods_tried(monkeypatch, refused=("highs-ipm", "highs-ds"))
        with pytest.raises(SolverFailure, match="highs-ds"):
            solve_lp(small_instance)
        assert tried == ["highs-ipm", "highs-ds"]


@pytest.mark.parametrize("presolve", [True, False], ids=["presolve", "no-presolve"])
def test_iteration_limit_is_never_a_wrong_value(presolve, dirichlet_instance):
    instance = dirichlet_instance(0, concentration=1.0)
    expected = solve_lp(instance).value
    failure = None
    try:
        solution = solve_lp(instance, options={"maxiter": 1, "presolve": presolve})
    except SolverFailure as caught:
        failure = caught
    if failure is not None:
        assert "limit" in failure.status
    else:
        assert solution.value == pytest.approx(expected, abs=1e-9, rel=0)


class TestCheckedCover:
    """The small instance has 2 tokens and the sets {0, 1}, {0}, {1}."""

    @pytest.mark.parametrize(
        ("cover", "message"),
        [
            pytest.param([1, 0, 0, 0, 1], "misses 1 of 4 pairs", id="pair-uncovered"),
            pytest.param([0, 0, 0, 0, 0], "misses 4 of 4 pairs", id="nothing-covered"),
            pytest.param([0.5, 0.5, 0.5, 0.5, 0.5], "5.000e-01 away", id="half-integral"),
            pytest.param([1, 1e-6, 1, 0, 1], "1.000e-06 away", id="nearly-integral"),
            pytest.param([np.nan, 0, 1, 1, 1], "nan away", id="nan"),
            pytest.param([2, -1, 2, 0, 2], "negative", id="negative"),
            pytest.param([1, 0, 1, 0], "shape", id="wrong-length"),
        ],
    )
    def test_wrong_cover_is_refused(self, small_instance, cover, message):
        with pytest.raises(SolverFailure, match=message):
            checked_cover(small_instance, np.array(cover, dtype=float), method="stub")

    def test_right_cover_is_rounded(self, small_instance):
        cover = np.array([1 - 1e-12, 1e-12, 1, -1e-12, 2])
        rounded = checked_cover(small_instance, cover, method="stub")
        assert rounded.tolist() == [1, 0, 1, 0, 1]


class TestCvxpy:
    @pytest.fixture(autouse=True)
    def cvxpy(self):
        return pytest.importorskip("cvxpy")

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("solver", ["HIGHS", "CLARABEL"])
    def test_either_solver(self, solver, seed, cvxpy, dirichlet_instance):
        if solver not in cvxpy.installed_solvers():
            pytest.skip(f"{solver} is not installed")
        instance = dirichlet_instance(seed)
        solution = solve_cvxpy(instance, options={"solver": solver})
        assert solution.value == pytest.approx(solve_lp(instance).value, abs=1e-9, rel=0)

    @pytest.mark.parametrize(
        "status",
        ["infeasible", "unbounded", "user_limit", "solver_error", "infeasible_inaccurate"],
    )
    def test_status(self, status, cvxpy, small_instance, monkeypatch):
        monkeypatch.setattr(cvxpy.Problem, "solve", lambda *_, **__: None)
        monkeypatch.setattr(cvxpy.Problem, "status", status)
        with pytest.raises(SolverFailure, match=f"status {status}"):
            solve_cvxpy(small_instance)

    @pytest.mark.parametrize("status", ["optimal", "optimal_inaccurate"])
    def test_no_vector(self, status, cvxpy, small_instance, monkeypatch):
        monkeypatch.setattr(cvxpy.Problem, "solve", lambda *_, **__: None)
        monkeypatch.setattr(cvxpy.Problem, "status", status)
        with pytest.raises(SolverFailure, match="without a solution vector"):
            solve_cvxpy(small_instance)

    def test_inaccurate_but_right_passes(self, cvxpy, small_instance, monkeypatch):
        monkeypatch.setattr(cvxpy.Problem, "status", "optimal_inaccurate")
        assert solve_cvxpy(small_instance).value == pytest.approx(0.75)

    @pytest.mark.parametrize("scale", [0.5, 2.0], ids=["short", "over-full"])
    def test_wrong_plan(self, scale, cvxpy, small_instance, monkeypatch):
        real = cvxpy.Problem.solve

        def solve(problem, **options):
            real(problem, **options)
            (plan,) = problem.variables()
            plan.value = plan.value * scale

        monkeypatch.setattr(cvxpy.Problem, "solve", solve)
        with pytest.raises(SolverFailure):
            solve_cvxpy(small_instance)

    def test_exception(self, cvxpy, small_instance, monkeypatch):
        def solve(*_, **__):
            raise cvxpy.SolverError("it broke")

        monkeypatch.setattr(cvxpy.Problem, "solve", solve)
        with pytest.raises(SolverFailure, match="it broke"):
            solve_cvxpy(small_instance)

    @pytest.mark.parametrize(
        "options",
        [
            pytest.param({"solver": "CLARABEL", "max_iter": 1}, id="clarabel"),
            pytest.param({"max_iter": 1}, id="default"),
        ],
    )
    def test_iteration_limit(self, options, dirichlet_instance):
        with pytest.raises(SolverFailure, match="limit"):
            solve_cvxpy(dirichlet_instance(0), options=options)

    def test_solver_not_installed(self, small_instance):
        with pytest.raises(SolverFailure, match="NOPE is not installed"):
            solve_cvxpy(small_instance, options={"solver": "NOPE"})

    def test_highs_after_clarabel(self, cvxpy, small_instance, monkeypatch):
        if "HIGHS" not in cvxpy.installed_solvers():
            pytest.skip("HIGHS is not installed")
        tried, real = [], cvxpy.Problem.solve

        def solve(problem, *, solver, **options):
            tried.append(solver)
            if solver == "CLARABEL":
                raise cvxpy.SolverError("it broke")
            return real(problem, solver=solver, **options)

        monkeypatch.setattr(cvxpy.Problem, "solve", solve)
        assert solve_cvxpy(small_instance).value == pytest.approx(0.75)
        assert tried == ["CLARABEL", "HIGHS"]

    def test_warnings_do_not_leak(self, cvxpy, small_instance, monkeypatch):
        real = cvxpy.Problem.solve

        def solve(problem, **options):
            warnings.warn("Solution may be inaccurate.", stacklevel=2)
            return real(problem, **options)

        monkeypatch.setattr(cvxpy.Problem, "solve", solve)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert solve_cvxpy(small_instance).value == pytest.approx(0.75)


def test_masses_below_every_tolerance_of_the_solver(solve):
    """A target spread over 1,000 tokens of 1e-12 each: in absolute terms all of it is noise."""
    num_tokens = 1000
    target = np.full(num_tokens, 1e-12)
    tuples = np.arange(num_tokens)[:, None]
    instance = merge_tuples(target, tuples, np.full(num_tokens, 2e-12))
    solution = solve(instance)
    assert solution.value == pytest.approx(1e-9, rel=1e-9, abs=0)
    assert solution.plan.sum() == pytest.approx(1e-9, rel=1e-2, abs=0)
