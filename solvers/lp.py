"""The relaxed problem (9) and its dual (10) as explicit linear programs.

Hu et al., "Towards Optimal Multi-draft Speculative Decoding". Matrices hold 0 and 1 only: HiGHS
drops matrix entries below 1e-9, so masses are kept out of them.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._typing import FloatArray
from .errors import SolverFailure
from .transport import (
    TransportInstance,
    TransportSolution,
    best_prefix_subset,
    verify_solution,
)

# Solver tolerances are absolute while masses can be far below them. The optimum scales with the
# masses, so scaling them up makes the tolerances finer; a power of two rounds nothing. On peaked
# instances Clarabel fails every second re-check without it.
_MASS_SCALE = 2.0**20
_HIGHS_OPTIONS = {
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
    "ipm_optimality_tolerance": 1e-12,
}
_CVXPY_TOLERANCES = {
    "CLARABEL": dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas", "tol_ktratio"), 1e-11),
    "HIGHS": _HIGHS_OPTIONS,
}


def solve_lp(
    instance: TransportInstance, *, options: Mapping[str, Any] | None = None
) -> TransportSolution:
    """Solve the relaxed problem (9) of Hu et al. with HiGHS through scipy.

    Interior point with crossover first (about ten times faster than simplex on these instances);
    if that fails, or its answer fails the re-check, dual simplex once.

    Parameters
    ----------
    instance : TransportInstance
        V tokens, S sets, P pairs: the program has P variables and V + S constraints.
    options : mapping, optional
        Further options of :func:`scipy.optimize.linprog`, merged over the ones set here.

    Returns
    -------
    TransportSolution
        Plan from the primal, H from the dual values.

    Raises
    ------
    SolverFailure
        If neither attempt gives an optimum that passes the re-check.

    Examples
    --------
    >>> from solvers.lp import solve_lp
    >>> from solvers.transport import merge_tuples
    >>> instance = merge_tuples([0.25, 0.75], [[0, 0], [0, 1], [1, 1]], [0.5, 0.25, 0.25])
    >>> solution = solve_lp(instance)
    >>> round(solution.value, 9), solution.subset.tolist()
    (0.75, [True, False])
    """
    if instance.num_pairs == 0:
        return _solution_without_pairs(instance, "lp")
    merged = {**_HIGHS_OPTIONS, **(options or {})}
    try:
        return _solve_relaxed(instance, "highs-ipm", merged)
    except SolverFailure:
        return _solve_relaxed(instance, "highs-ds", merged)


def _solve_relaxed(
    instance: TransportInstance, highs_method: str, options: dict[str, Any]
) -> TransportSolution:
    masses = np.concatenate([instance.token_masses, instance.set_masses])
    name = f"lp ({highs_method})"
    result = _linprog(
        name,
        -np.ones(instance.num_pairs),
        A_ub=_incidence(instance),
        b_ub=masses * _MASS_SCALE,
        method=highs_method,
        options=options,
    )
    prices = _marginals(name, result)[: instance.num_tokens]
    subset = best_prefix_subset(instance, prices)
    return verify_solution(instance, result.x / _MASS_SCALE, subset, method=name)


def solve_cover(instance: TransportInstance) -> TransportSolution:
    """Solve the dual (10) of Hu et al., a w-vertex cover, as its own linear program.

    Minimise ``sum_i p_i y_i + sum_t m_t z_t`` with ``y_i + z_t >= 1`` on every pair. The matrix is
    totally unimodular and simplex ends in a vertex, so y and z come back as 0 and 1.

    Parameters
    ----------
    instance : TransportInstance
        V tokens, S sets, P pairs: the program has V + S variables and P constraints.

    Returns
    -------
    TransportSolution
        H from y, plan from the dual values of the cover constraints.

    Raises
    ------
    SolverFailure
        If HiGHS reports no optimum, the cover is not integral or misses a pair, or the re-check
        against the plan fails.

    Examples
    --------
    >>> from solvers.lp import solve_cover
    >>> from solvers.transport import merge_tuples
    >>> instance = merge_tuples([0.25, 0.75], [[0, 0], [0, 1], [1, 1]], [0.5, 0.25, 0.25])
    >>> solution = solve_cover(instance)
    >>> round(solution.value, 9), solution.subset.tolist()
    (0.75, [True, False])
    """
    name = "cover (highs-ds)"
    if instance.num_pairs == 0:
        return _solution_without_pairs(instance, name)
    result = _linprog(
        name,
        np.concatenate([instance.token_masses, instance.set_masses]) * _MASS_SCALE,
        A_ub=-_incidence(instance).T,
        b_ub=-np.ones(instance.num_pairs),
        method="highs-ds",
        options=_HIGHS_OPTIONS,
    )
    cover = checked_cover(instance, result.x, method=name)
    plan = _marginals(name, result) / _MASS_SCALE
    return verify_solution(instance, plan, cover[: instance.num_tokens] == 1, method=name)


def checked_cover(
    instance: TransportInstance, cover: FloatArray, *, method: str, tolerance: float = 1e-9
) -> FloatArray:
    """Round a vertex cover to integers and check that it covers every pair.

    Parameters
    ----------
    instance : TransportInstance
        The instance.
    cover : FloatArray of shape (V + S,)
        y of the tokens, then z of the sets.
    method : str
        Name of the method, for the error.
    tolerance : float, optional
        Largest distance from an integer.

    Returns
    -------
    FloatArray of shape (V + S,)
        The cover, made of 0 and 1.

    Raises
    ------
    SolverFailure
        If the cover has another shape, is not integral, or leaves a pair uncovered.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.lp import checked_cover
    >>> from solvers.transport import merge_tuples
    >>> instance = merge_tuples([1.0], [[0]], [1.0])
    >>> checked_cover(instance, np.array([1e-12, 1.0]), method="by hand").tolist()
    [0.0, 1.0]
    """
    if cover.shape != (instance.num_tokens + instance.num_sets,):
        raise SolverFailure(method, f"cover has shape {cover.shape}")
    rounded = np.round(cover)
    distance = float(np.abs(cover - rounded).max())
    if not distance <= tolerance:
        raise SolverFailure(method, f"cover is {distance:.3e} away from integers")
    if rounded.min() < 0:
        raise SolverFailure(method, f"cover has a negative entry, {rounded.min():.0f}")
    tokens, sets = rounded[: instance.num_tokens], rounded[instance.num_tokens :]
    uncovered = int(np.sum(tokens[instance.set_tokens] + sets[instance.pair_sets()] < 1))
    if uncovered:
        raise SolverFailure(method, f"cover misses {uncovered} of {instance.num_pairs} pairs")
    return np.minimum(rounded, 1.0)  # at zero cost a vertex may lie above 1


def solve_cvxpy(
    instance: TransportInstance, *, options: Mapping[str, Any] | None = None
) -> TransportSolution:
    """Solve the relaxed problem (9) of Hu et al. stated in cvxpy.

    The statement can be read off the page, and Clarabel, cvxpy's own interior-point solver, shares
    no code with HiGHS: a second opinion on :func:`solve_lp`. If its answer fails the re-check,
    HiGHS through cvxpy is tried once where it is installed.

    Parameters
    ----------
    instance : TransportInstance
        V tokens, S sets, P pairs: the program has P variables and V + S constraints.
    options : mapping, optional
        Further arguments of :meth:`cvxpy.Problem.solve`, merged over the ones set here; with a
        ``solver`` unknown here they are the only ones. With options there is no second attempt.

    Returns
    -------
    TransportSolution
        Plan from the primal, H from the dual values of the token constraints.

    Raises
    ------
    SolverFailure
        If cvxpy raises, reports no optimum, or the answer fails the re-check.
    ImportError
        If cvxpy is not installed.

    Examples
    --------
    >>> from solvers.lp import solve_cvxpy
    >>> from solvers.transport import merge_tuples
    >>> instance = merge_tuples([0.25, 0.75], [[0, 0], [0, 1], [1, 1]], [0.5, 0.25, 0.25])
    >>> solution = solve_cvxpy(instance)
    >>> round(solution.value, 9), solution.subset.tolist()
    (0.75, [True, False])
    """
    if instance.num_pairs == 0:
        return _solution_without_pairs(instance, "cvxpy")
    # cvxpy warns on import about missing solvers and after solving about accuracy; the re-check
    # judges the accuracy.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cvxpy = _cvxpy()
        try:
            return _solve_with_cvxpy(instance, {"solver": "CLARABEL", **(options or {})})
        except SolverFailure:
            # HiGHS comes second because this way of calling it prints a banner on stdout.
            if options or "HIGHS" not in cvxpy.installed_solvers():
                raise
            return _solve_with_cvxpy(instance, {"solver": "HIGHS"})


def _solve_with_cvxpy(instance: TransportInstance, options: dict[str, Any]) -> TransportSolution:
    cvxpy = _cvxpy()
    solver = options["solver"]
    name = f"cvxpy ({solver})"
    incidence = _incidence(instance)
    plan = cvxpy.Variable(instance.num_pairs, nonneg=True)
    tokens = incidence[: instance.num_tokens] @ plan <= instance.token_masses * _MASS_SCALE
    sets = incidence[instance.num_tokens :] @ plan <= instance.set_masses * _MASS_SCALE
    problem = cvxpy.Problem(cvxpy.Maximize(cvxpy.sum(plan)), [tokens, sets])
    try:
        problem.solve(**{**_CVXPY_TOLERANCES.get(solver, {}), **options})
    except cvxpy.SolverError as error:
        raise SolverFailure(name, str(error)) from error
    if problem.status not in (cvxpy.OPTIMAL, cvxpy.OPTIMAL_INACCURATE):
        raise SolverFailure(name, f"status {problem.status}")
    if plan.value is None or tokens.dual_value is None:
        raise SolverFailure(name, f"status {problem.status} without a solution vector")
    subset = best_prefix_subset(instance, _finite_prices(name, tokens.dual_value))
    return verify_solution(instance, plan.value / _MASS_SCALE, subset, method=name)


def _cvxpy() -> Any:
    """Import cvxpy where it is needed, untyped: its own annotations are partial."""
    return importlib.import_module("cvxpy")


def _linprog(name: str, costs: FloatArray, **arguments: Any) -> Any:
    """Call scipy's linprog and turn anything but an optimum into SolverFailure."""
    import scipy.optimize

    result = scipy.optimize.linprog(costs, bounds=(0, None), **arguments)
    if result.status != 0:
        raise SolverFailure(name, f"status {result.status}: {result.message}")
    if result.x is None:
        raise SolverFailure(name, f"no solution vector: {result.message}")
    return result


def _marginals(name: str, result: Any) -> FloatArray:
    """Return the dual values of the inequalities, nonnegative at an optimum."""
    return _finite_prices(name, -result.ineqlin.marginals)


def _finite_prices(name: str, prices: Any) -> FloatArray:
    checked = np.asarray(prices, dtype=np.float64)
    if not np.isfinite(checked).all():
        raise SolverFailure(name, "dual values are not finite")
    return checked


def _incidence(instance: TransportInstance) -> Any:
    """Return the sparse 0/1 matrix of shape (V + S, P): tokens by pairs over sets by pairs."""
    import scipy.sparse

    pairs = np.arange(instance.num_pairs)
    rows = np.concatenate([instance.set_tokens, instance.num_tokens + instance.pair_sets()])
    columns = np.concatenate([pairs, pairs])
    shape = (instance.num_tokens + instance.num_sets, instance.num_pairs)
    return scipy.sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


def _solution_without_pairs(instance: TransportInstance, method: str) -> TransportSolution:
    nothing = np.zeros(instance.num_tokens, dtype=np.bool_)
    return verify_solution(instance, np.zeros(0), nothing, method=method)
