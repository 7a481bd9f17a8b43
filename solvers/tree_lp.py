"""The most that any lossless rule accepts of a random tree of strings, as a linear program.

A tree T, a set of drafted strings closed under taking prefixes, is drawn with mass P(T). A rule
accepts a string v of T, then emits one token after it, and all that follows is drawn from the step
masses p. Let c(T, v) be the probability that T is drawn and v, or a string of T that goes on from
v, is accepted; c(T, empty string) = P(T). The output has the law p exactly if what arrives at a
string and is not past it goes on by p: of ``C(v) = sum over T of c(T, v)`` the part ``p(x|v) C(v)``
must go to x, accepted or emitted. The emitted part is free, so all that is asked is

    (1) sum over x of c(T, vx) <= c(T, v)       what is accepted at vx was accepted at v,
    (2) sum over T of c(T, vx) <= p(x|v) C(v)   no more of x than the target wants,

and the length accepted is ``sum over T, v of c(T, v)``. It is not enough to couple T with whole
strings of the law p, which asks for ``C(v) <= p(v)`` alone: a string that was decided to the end
would have to be remembered beyond the step.

Any prices L(v) >= 0 of the strings bound the length: of what arrives at v, ``p(.|v) . L(v.)`` is
expected for the string after it, so that along the accepted string v the sum of ``p(.|u) . L(u.)``
over its prefixes u, v among them, exceeds the sum of ``L(u)`` over its nonempty ones by the
expected price of the string emitted in the end, which is at least 0. Hence

    E length <= E max over v in T of |v| + sum_{u <= v} p(.|u) . L(u.) - sum_{empty < u <= v} L(u).

The right side is what the dual comes to once its other variables are chosen best: prices alone are
a certificate, and are checked by one walk over the trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ._typing import FloatArray, IntArray
from .errors import SolverFailure

# Solver tolerances are absolute while masses can be far below them: as in `solvers.lp`.
_MASS_SCALE = 2.0**20
_HIGHS_OPTIONS = {
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
    "ipm_optimality_tolerance": 1e-12,
}


@dataclass(frozen=True, eq=False)
class TreeInstance:
    """Strings, and random sets of them that hold with a string all its prefixes.

    Parameters
    ----------
    parents : IntArray of shape (N,)
        Of each string the one without its last token; string 0 is the empty one, with -1. Parents
        come first.
    step_masses : FloatArray of shape (N,)
        Target mass of the last token of each string given those before it; not used for string 0.
    tree_masses : FloatArray of shape (M,)
        Mass of each tree.
    tree_starts : IntArray of shape (M + 1,)
        Tree t holds the empty string and ``tree_strings[tree_starts[t]:tree_starts[t + 1]]``.
    tree_strings : IntArray of shape (P,)
        Strings of each tree but the empty one, ascending within a tree.

    Attributes
    ----------
    depths : IntArray of shape (N,)
        Length of each string.
    pair_trees, pair_parents : IntArray of shape (P,)
        Of each pair of a tree and a string of it, as `tree_strings` lists them: the tree, and the
        pair of the same tree and the parent, ``P + t`` for the empty string of tree t.

    Raises
    ------
    ValueError
        If the arrays do not fit together as described.

    Examples
    --------
    Strings "", "0", "1", "00"; one tree holds "0" and "00", the other "1":

    >>> instance = TreeInstance(
    ...     parents=[-1, 0, 0, 1],
    ...     step_masses=[1.0, 0.5, 0.5, 0.25],
    ...     tree_masses=[0.5, 0.5],
    ...     tree_starts=[0, 2, 3],
    ...     tree_strings=[1, 3, 2],
    ... )
    >>> instance.depths.tolist(), instance.pair_parents.tolist()
    ([0, 1, 1, 2], [3, 0, 4])
    """

    parents: IntArray
    step_masses: FloatArray
    tree_masses: FloatArray
    tree_starts: IntArray
    tree_strings: IntArray

    def __post_init__(self) -> None:
        """Convert the arrays and check that they fit together."""
        for name in ("step_masses", "tree_masses"):
            object.__setattr__(self, name, _masses(name, getattr(self, name)))
        for name in ("parents", "tree_starts", "tree_strings"):
            object.__setattr__(self, name, _indices(name, getattr(self, name)))
        self._check_strings()
        self._check_trees()

    def _check_strings(self) -> None:
        parents = self.parents
        count = len(parents)
        if count == 0 or parents[0] != -1:
            raise ValueError("parents must begin with -1, of the empty string")
        if np.any(parents[1:] < 0) or np.any(parents[1:] >= np.arange(1, count)):
            raise ValueError("parents must be earlier strings")
        if self.step_masses.shape != (count,):
            raise ValueError(
                f"step_masses must have shape ({count},), one for each of parents, "
                f"got {self.step_masses.shape}"
            )

    def _check_trees(self) -> None:
        starts, strings = self.tree_starts, self.tree_strings
        if starts.shape != (self.num_trees + 1,):
            raise ValueError(
                f"tree_starts must have shape ({self.num_trees + 1},), one more than tree_masses, "
                f"got {starts.shape}"
            )
        if starts[0] != 0 or starts[-1] != len(strings) or np.any(np.diff(starts) < 0):
            raise ValueError(f"tree_starts must rise from 0 to the number of pairs, {len(strings)}")
        if np.any(strings < 1) or np.any(strings >= len(self.parents)):
            raise ValueError(f"tree_strings must lie in 1..{len(self.parents) - 1}")
        keys = self._keys(strings)
        if np.any(np.diff(keys) < 1):
            raise ValueError("tree_strings must be strictly ascending within each tree")
        parents = self.parents[strings]
        missing = ~np.isin(self._keys(parents)[parents > 0], keys)
        if missing.any():
            raise ValueError("tree_strings must hold with each string its parent")

    def _keys(self, strings: IntArray) -> IntArray:
        """Give numbers to pairs of tree and string, in order of both."""
        return self.pair_trees * len(self.parents) + strings

    @property
    def num_trees(self) -> int:
        """Number of trees M."""
        return len(self.tree_masses)

    @property
    def num_pairs(self) -> int:
        """Number of pairs P of a tree and a string of it, the empty one left out."""
        return len(self.tree_strings)

    @cached_property
    def pair_trees(self) -> IntArray:
        """Tree of each pair."""
        return np.repeat(np.arange(self.num_trees, dtype=np.int64), np.diff(self.tree_starts))

    @cached_property
    def pair_parents(self) -> IntArray:
        """Pair of the same tree and the parent of each pair."""
        parents = self.parents[self.tree_strings]
        found = np.searchsorted(self._keys(self.tree_strings), self._keys(parents))
        return np.where(parents > 0, found, self.num_pairs + self.pair_trees)

    @cached_property
    def depths(self) -> IntArray:
        """Length of each string."""
        found = np.zeros(len(self.parents), dtype=np.int64)
        for string, parent in enumerate(self.parents[1:].tolist(), start=1):
            found[string] = found[parent] + 1
        return found

    def levels(self) -> list[IntArray]:
        """Pairs whose strings have length 1, 2, and so on."""
        depths = self.depths[self.tree_strings]
        return [np.flatnonzero(depths == depth) for depth in range(1, depths.max(initial=0) + 1)]


@dataclass(frozen=True, eq=False)
class TreeSolution:
    """A checked optimum of a :class:`TreeInstance`.

    Parameters
    ----------
    value : float
        What the prices prove: no rule accepts a greater length in expectation.
    passing : FloatArray of shape (P,)
        A rule that attains it up to the gap: c(T, v) of each pair, feasible.
    prices : FloatArray of shape (N,)
        L of each string, at least 0; 0 of the empty one.
    gap : float
        ``value - passing.sum()``.
    """

    value: float
    passing: FloatArray
    prices: FloatArray
    gap: float


def solve_tree(instance: TreeInstance) -> TreeSolution:
    """Find the greatest length that a lossless rule accepts, with HiGHS through scipy.

    Interior point with crossover first; if that fails, or its answer fails the re-check, dual
    simplex once.

    Parameters
    ----------
    instance : TreeInstance
        N strings, P pairs: the program has P variables and fewer than P + N constraints.

    Returns
    -------
    TreeSolution

    Raises
    ------
    SolverFailure
        If neither attempt gives an optimum that passes the re-check.

    Examples
    --------
    A token drafted by (0.75, 0.25) for a target of (0.5, 0.5) is accepted three times in four:

    >>> instance = TreeInstance([-1, 0, 0], [1, 0.5, 0.5], [0.75, 0.25], [0, 1, 2], [1, 2])
    >>> round(solve_tree(instance).value, 12)
    0.75
    """
    if instance.num_pairs == 0:
        return verify_tree_solution(
            instance, np.zeros(0), np.zeros(len(instance.parents)), method="tree lp"
        )
    try:
        return _solve(instance, "highs-ipm")
    except SolverFailure:
        return _solve(instance, "highs-ds")


def _solve(instance: TreeInstance, highs_method: str) -> TreeSolution:
    import scipy.optimize

    name = f"tree lp ({highs_method})"
    scales = _row_scales(instance.step_masses[1:])
    matrix, masses = _constraints(instance, scales)
    result = scipy.optimize.linprog(
        -np.ones(instance.num_pairs),
        A_ub=matrix,
        b_ub=masses * _MASS_SCALE,
        bounds=(0, None),
        method=highs_method,
        options=_HIGHS_OPTIONS,
    )
    if result.status != 0 or result.x is None:
        raise SolverFailure(name, f"status {result.status}: {result.message}")
    # The rows of (2) come last; string 0 has none.
    prices = np.append(0.0, -result.ineqlin.marginals[len(masses) - len(scales) :] * scales)
    return verify_tree_solution(instance, result.x / _MASS_SCALE, prices, method=name)


def _row_scales(step_masses: FloatArray) -> FloatArray:
    """Give factors of the rows of (2) that bring both their entries, 1 and -p, near to 1.

    HiGHS drops entries below 1e-9, here those of masses below 1e-18, and refuses entries above
    1e15. The factors are powers of two, which round nothing.
    """
    return np.exp2(np.round(-0.5 * np.log2(np.maximum(step_masses, 2.0**-60))))


def _constraints(instance: TreeInstance, scales: FloatArray) -> tuple[Any, FloatArray]:
    """Give the matrix of (1), with a row for each parent in a tree, above (2), with one a string.

    What is accepted at the empty strings are no variables but the masses on the right.
    """
    import scipy.sparse

    count, strings = instance.num_pairs, instance.tree_strings
    pairs = np.arange(count)
    heads, parent_rows = np.unique(instance.pair_parents, return_inverse=True)
    masses = _with_roots(instance, np.zeros(count))[heads]
    inner = np.flatnonzero(heads < count)
    above = _sparse(
        np.concatenate([np.ones(count), -np.ones(len(inner))]),
        np.concatenate([parent_rows, inner]),
        np.concatenate([pairs, heads[inner]]),
        (len(heads), count),
    )
    # C of each string, but for the empty one, from the pairs.
    arrived = _sparse(np.ones(count), strings, pairs, (len(instance.parents), count))
    steps, parents = instance.step_masses[1:] * scales, instance.parents[1:]
    wanted = scipy.sparse.diags_array(steps) @ arrived[parents]
    below = scipy.sparse.diags_array(scales) @ arrived[1:] - wanted
    total = np.where(parents == 0, float(instance.tree_masses.sum()), 0.0)
    return scipy.sparse.vstack([above, below]).tocsr(), np.concatenate([masses, steps * total])


def _sparse(entries: FloatArray, rows: IntArray, columns: IntArray, shape: Any) -> Any:
    import scipy.sparse

    return scipy.sparse.csr_array((entries, (rows, columns)), shape=shape)


def verify_tree_solution(
    instance: TreeInstance,
    passing: ArrayLike,
    prices: ArrayLike,
    *,
    method: str,
    tolerance: float = 1e-9,
) -> TreeSolution:
    """Check a rule and prices against the original problem, and repair roundings of the rule.

    Parameters
    ----------
    instance : TreeInstance
        The original instance.
    passing : array-like of shape (P,)
        Claimed optimum: c(T, v) of each pair.
    prices : array-like of shape (N,)
        Claimed optimum of the dual: L of each string.
    method : str
        Name of the method, for the error.
    tolerance : float, optional
        Largest violation forgiven in an entry or a constraint, and largest difference between what
        the prices prove and what the repaired rule attains.

    Returns
    -------
    TreeSolution
        With a rule that keeps every constraint, not only within the tolerance.

    Raises
    ------
    SolverFailure
        If any check fails; the status says which, and by how much.

    Examples
    --------
    >>> instance = TreeInstance([-1, 0, 0], [1, 0.5, 0.5], [0.75, 0.25], [0, 1, 2], [1, 2])
    >>> verify_tree_solution(instance, [0.5, 0.25], [0, 1, 0], method="by hand").value
    0.75
    """
    rule = _checked("rule", passing, instance.num_pairs, method, tolerance)
    checked_prices = _checked("prices", prices, len(instance.parents), method, tolerance)
    checked_prices[0] = 0.0
    _check_rule(instance, rule, method, tolerance)
    feasible = _feasible_rule(instance, rule)
    value = price_bound(instance, checked_prices)
    gap = value - float(feasible.sum())
    if not abs(gap) <= tolerance:
        raise SolverFailure(
            method, f"the prices' bound {value!r} is off the rule's by {gap:.3e} > {tolerance:.0e}"
        )
    return TreeSolution(value, feasible, checked_prices, gap)


def price_bound(instance: TreeInstance, prices: FloatArray) -> float:
    """Bound what any lossless rule accepts in expectation, by prices of the strings.

    Parameters
    ----------
    instance : TreeInstance
        The instance.
    prices : FloatArray of shape (N,)
        L of each string, at least 0; that of the empty one is not used. Any prices bound.

    Returns
    -------
    float
        The right side of the inequality at the head of this module.

    Examples
    --------
    >>> instance = TreeInstance([-1, 0, 0], [1, 0.5, 0.5], [0.75, 0.25], [0, 1, 2], [1, 2])
    >>> price_bound(instance, np.zeros(3)), price_bound(instance, np.array([0.0, 1.0, 0.0]))
    (1.0, 0.75)
    """
    weights = instance.step_masses[1:] * prices[1:]
    expected = _sums(instance.parents[1:], weights, len(instance.parents))
    gains = (1.0 - prices + expected)[instance.tree_strings]
    # The most that is gained below each pair, and below the empty string of each tree; stopping
    # gains nothing.
    best = np.zeros(instance.num_pairs + instance.num_trees)
    for pairs in reversed(instance.levels()):
        np.maximum.at(best, instance.pair_parents[pairs], gains[pairs] + best[pairs])
    return float(instance.tree_masses @ (expected[0] + best[instance.num_pairs :]))


def _checked(name: str, values: ArrayLike, count: int, method: str, tolerance: float) -> FloatArray:
    """Give a copy without negative entries, after checking shape, finiteness and sign."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (count,):
        raise SolverFailure(method, f"{name} must have shape ({count},), got {array.shape}")
    if not np.isfinite(array).all():
        raise SolverFailure(method, f"{name} has entries that are not finite")
    if array.min(initial=0.0) < -tolerance:
        raise SolverFailure(method, f"{name} has a negative entry, {array.min():.3e}")
    return np.maximum(array, 0.0)


def _check_rule(instance: TreeInstance, rule: FloatArray, method: str, tolerance: float) -> None:
    size = instance.num_pairs + instance.num_trees
    taken = _sums(instance.pair_parents, rule, size)
    excess = float((taken - _with_roots(instance, rule)).max(initial=0.0))
    if excess > tolerance:
        raise SolverFailure(method, f"rule accepts {excess:.3e} more than reached a string")
    excess = float((_arrived(instance, rule) - _wanted(instance, rule))[1:].max(initial=0.0))
    if excess > tolerance:
        raise SolverFailure(method, f"rule accepts {excess:.3e} more than the target wants")


def _feasible_rule(instance: TreeInstance, rule: FloatArray) -> FloatArray:
    """Scale down, level by level, what is accepted beyond what arrived or is wanted."""
    feasible = np.zeros(instance.num_pairs)
    for pairs in instance.levels():
        parents, strings = instance.pair_parents[pairs], instance.tree_strings[pairs]
        feasible[pairs] = rule[pairs]
        sums = _sums(parents, rule[pairs], instance.num_pairs + instance.num_trees)
        limits = _with_roots(instance, feasible)
        feasible[pairs] *= _factors(limits[parents], sums[parents])
        sums, limits = _arrived(instance, feasible), _wanted(instance, feasible)
        feasible[pairs] *= _factors(limits[strings], sums[strings])
    return feasible


def _factors(limits: FloatArray, sums: FloatArray) -> FloatArray:
    factors = np.ones(len(sums))
    np.divide(limits, sums, out=factors, where=sums > limits)
    return factors


def _sums(places: IntArray, values: FloatArray, size: int) -> FloatArray:
    return np.bincount(places, weights=values, minlength=size).astype(np.float64)


def _with_roots(instance: TreeInstance, rule: FloatArray) -> FloatArray:
    """Give what is accepted at each pair, then at the empty strings: the masses of the trees."""
    return np.concatenate([rule, instance.tree_masses])


def _arrived(instance: TreeInstance, rule: FloatArray) -> FloatArray:
    """Give C of each string, (N,)."""
    sums = _sums(instance.tree_strings, rule, len(instance.parents))
    sums[0] = instance.tree_masses.sum()
    return sums


def _wanted(instance: TreeInstance, rule: FloatArray) -> FloatArray:
    """Give the most that may be accepted at each string, (N,), by what arrived at its parent."""
    return instance.step_masses * _arrived(instance, rule)[instance.parents]


def _masses(name: str, masses: ArrayLike) -> FloatArray:
    checked = np.asarray(masses, dtype=np.float64)
    if checked.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got shape {checked.shape}")
    if not np.isfinite(checked).all() or checked.min(initial=0.0) < 0:
        raise ValueError(f"{name} must be finite and nonnegative")
    return checked


def _indices(name: str, values: ArrayLike) -> IntArray:
    checked = np.asarray(values)
    if checked.ndim != 1 or (checked.size and not np.issubdtype(checked.dtype, np.integer)):
        raise ValueError(f"{name} must be a vector of integers")
    return checked.astype(np.int64, copy=False)
