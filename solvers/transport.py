"""The explicit transport instance, and the re-check of any solution of it.

Relaxed problem (9) of Hu et al., "Towards Optimal Multi-draft Speculative Decoding": maximise the
mass moved from sets of drafted tokens to tokens inside them. Its dual (10) has 0/1 solutions and
amounts to choosing a subset H of the tokens (8); H is how every solver here proves its value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ._typing import BoolArray, FloatArray, IntArray
from .errors import SolverFailure

_EPS = float(np.finfo(np.float64).eps)
_NEGLIGIBLE = 1e-300  # below this a mass is close to subnormal and relative roundings fail


@dataclass(frozen=True, eq=False)
class TransportInstance:
    """Max sum of S(i, t) over pairs with i in t, S >= 0, both marginals bounded by the masses.

    That is: ``sum_t S(i, t) <= token_masses[i]`` and ``sum_i S(i, t) <= set_masses[t]``,
    the relaxed problem (9) of Hu et al. A *pair* is a token together with one set it lies in.

    Parameters
    ----------
    token_masses : FloatArray of shape (V,)
        Mass of each token, finite and nonnegative.
    set_masses : FloatArray of shape (S,)
        Mass of each distinct set of drafted tokens, finite and nonnegative.
    set_starts : IntArray of shape (S + 1,)
        Set ``t`` holds ``set_tokens[set_starts[t]:set_starts[t + 1]]``; no set is empty.
    set_tokens : IntArray of shape (P,)
        Tokens of each set, ascending within a set.

    Raises
    ------
    ValueError
        If the arrays do not fit together as described.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.transport import TransportInstance
    >>> instance = TransportInstance(
    ...     token_masses=np.array([0.5, 0.5]),
    ...     set_masses=np.array([0.25, 0.75]),
    ...     set_starts=np.array([0, 1, 3]),
    ...     set_tokens=np.array([0, 0, 1]),
    ... )
    >>> instance.num_tokens, instance.num_sets, instance.num_pairs
    (2, 2, 3)
    """

    token_masses: FloatArray
    set_masses: FloatArray
    set_starts: IntArray
    set_tokens: IntArray

    def __post_init__(self) -> None:
        """Convert the arrays and check that they fit together."""
        masses = {
            "token_masses": _checked_masses("token_masses", self.token_masses),
            "set_masses": _checked_masses("set_masses", self.set_masses),
        }
        indices = {
            "set_starts": _checked_integers("set_starts", self.set_starts, ndim=1),
            "set_tokens": _checked_integers("set_tokens", self.set_tokens, ndim=1),
        }
        for name, array in (masses | indices).items():
            object.__setattr__(self, name, array)
        if self.num_tokens == 0:
            raise ValueError("token_masses must hold at least one token")
        self._check_starts()
        self._check_tokens()

    def _check_starts(self) -> None:
        starts = self.set_starts
        if starts.shape != (self.num_sets + 1,):
            raise ValueError(
                f"set_starts must have shape ({self.num_sets + 1},), one more than set_masses, "
                f"got {starts.shape}"
            )
        if starts[0] != 0 or starts[-1] != self.num_pairs or np.any(np.diff(starts) < 1):
            raise ValueError(
                f"set_starts must increase strictly from 0 to the number of pairs, "
                f"{self.num_pairs}: every set holds at least one token"
            )

    def _check_tokens(self) -> None:
        _check_token_range("set_tokens", self.set_tokens, self.num_tokens)
        within = np.diff(self.pair_sets()) == 0
        if np.any(np.diff(self.set_tokens)[within] < 1):
            raise ValueError("set_tokens must be strictly ascending within each set")

    @property
    def num_tokens(self) -> int:
        """Number of tokens V."""
        return len(self.token_masses)

    @property
    def num_sets(self) -> int:
        """Number of distinct sets S."""
        return len(self.set_masses)

    @property
    def num_pairs(self) -> int:
        """Number of pairs P of a token and a set it lies in."""
        return len(self.set_tokens)

    def pair_sets(self) -> IntArray:
        """Return the set index of each pair, shape (P,), aligned with ``set_tokens``."""
        return np.repeat(np.arange(self.num_sets, dtype=np.int64), np.diff(self.set_starts))


@dataclass(frozen=True, eq=False)
class TransportSolution:
    """A checked optimum of a :class:`TransportInstance`.

    Parameters
    ----------
    value : float
        Cut value at `subset`: ``token_masses[H].sum()`` plus the masses of all sets that are not
        wholly inside H. For probabilities it equals ``p(H) + 1 - Q(H)``, equation (8).
    plan : FloatArray of shape (P,) or None
        The moved mass of each pair, feasible, aligned with ``set_tokens``; None where the method
        has no plan.
    subset : BoolArray of shape (V,)
        Membership of H.
    gap : float
        ``value - plan.sum()``, an upper bound of the error; 0 for an exhaustive proof.
    """

    value: float
    plan: FloatArray | None
    subset: BoolArray
    gap: float


def merge_tuples(
    token_masses: ArrayLike, tuples: ArrayLike, tuple_masses: ArrayLike
) -> TransportInstance:
    """Merge draft tuples that hold the same set of tokens into a transport instance.

    Order within a tuple and repeated tokens do not matter to the optimum, only the set of drafted
    tokens does. Tuples of zero mass are dropped.

    Parameters
    ----------
    token_masses : array-like of shape (V,)
        Target mass of each token.
    tuples : integer array-like of shape (M, n)
        Drafted tokens, one tuple a row.
    tuple_masses : array-like of shape (M,)
        Mass of each tuple.

    Returns
    -------
    TransportInstance
        With the sets in lexicographic order (a set comes before its own prefixes).

    Raises
    ------
    ValueError
        If shapes disagree, a token is outside 0..V-1, or a mass is negative or not finite.

    Examples
    --------
    >>> from solvers.transport import merge_tuples
    >>> instance = merge_tuples([0.5, 0.5], [[0, 0], [0, 1], [1, 0]], [0.25, 0.25, 0.5])
    >>> instance.set_tokens.tolist(), instance.set_starts.tolist()
    ([0, 1, 0], [0, 2, 3])
    >>> instance.set_masses.tolist()
    [0.75, 0.25]
    """
    token_masses = _checked_masses("token_masses", token_masses)
    tuple_masses = _checked_masses("tuple_masses", tuple_masses)
    rows = _checked_integers("tuples", tuples, ndim=2)
    if rows.shape[0] != len(tuple_masses) or rows.shape[1] == 0:
        raise ValueError(
            f"tuples must have shape ({len(tuple_masses)}, n) with n >= 1, one row for each of "
            f"tuple_masses, got {rows.shape}"
        )
    _check_token_range("tuples", rows, len(token_masses))
    kept = tuple_masses > 0
    sets, masses = _merge_rows(
        _rows_as_sets(rows[kept], padding=len(token_masses)), tuple_masses[kept]
    )
    present = sets < len(token_masses)
    starts = np.zeros(len(sets) + 1, dtype=np.int64)
    np.cumsum(present.sum(axis=1), out=starts[1:])
    return TransportInstance(token_masses, masses, starts, sets[present])


def _rows_as_sets(rows: IntArray, padding: int) -> IntArray:
    """Sort each row and move repeats, replaced by `padding` (above every token), to its end."""
    rows = np.sort(rows, axis=1)
    repeated = rows[:, 1:] == rows[:, :-1]
    if not repeated.any():
        return rows
    rows[:, 1:][repeated] = padding
    rows.sort(axis=1)
    return rows


def _merge_rows(rows: IntArray, masses: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the distinct rows in lexicographic order, and the total mass of each."""
    order = np.lexsort(rows.T[::-1])
    rows = rows[order]
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = np.any(rows[1:] != rows[:-1], axis=1)
    group = np.cumsum(is_first) - 1
    distinct = rows[is_first]
    totals = np.bincount(group, weights=masses[order], minlength=len(distinct))
    return distinct, totals.astype(np.float64)


def cut_value(instance: TransportInstance, subset: BoolArray) -> float:
    """Return the dual objective (8), (10) at a subset H of the tokens.

    Parameters
    ----------
    instance : TransportInstance
        The instance.
    subset : BoolArray of shape (V,)
        Membership of H; ``y_i = 1`` in H, ``z_t = 1`` for sets not wholly inside H.

    Returns
    -------
    float
        Mass of the tokens in H plus mass of the sets not wholly inside H: an upper bound of the
        optimum for every H, equal to it for the best.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.transport import cut_value, merge_tuples
    >>> instance = merge_tuples([0.5, 0.5], [[0], [1]], [0.75, 0.25])
    >>> cut_value(instance, np.array([True, False]))
    0.75
    """
    outside_pairs = ~subset[instance.set_tokens]
    outside = np.bincount(instance.pair_sets()[outside_pairs], minlength=instance.num_sets) > 0
    return float(instance.token_masses[subset].sum() + instance.set_masses[outside].sum())


def canonical_subset(instance: TransportInstance, subset: BoolArray) -> BoolArray:
    """Decide the tokens that cost nothing; the cut value never grows.

    Parameters
    ----------
    instance : TransportInstance
        The instance.
    subset : BoolArray of shape (V,)
        Membership of H.

    Returns
    -------
    BoolArray of shape (V,)
        H with every token of zero mass, and without tokens of positive mass that lie in no set.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.transport import canonical_subset, merge_tuples
    >>> instance = merge_tuples([0.5, 0.5, 0.0], [[0]], [1.0])
    >>> canonical_subset(instance, np.array([True, True, False])).tolist()
    [True, False, True]
    """
    in_some_set = np.zeros(instance.num_tokens, dtype=np.bool_)
    in_some_set[instance.set_tokens] = True
    decided: BoolArray = (subset & in_some_set) | (instance.token_masses == 0)
    return decided


def best_prefix_subset(instance: TransportInstance, token_prices: FloatArray) -> BoolArray:
    """Turn dual prices of the tokens, maybe fractional or noisy, into a subset H.

    The constraint matrix is totally unimodular: among the level sets ``{y >= level}`` of optimal
    prices y one is an optimal H (rounding at 1/2 when they are 0/1). Every prefix of the tokens in
    order of falling price is a valid H, so the best prefix is taken; of equals the longest.

    Parameters
    ----------
    instance : TransportInstance
        The instance.
    token_prices : FloatArray of shape (V,)
        Finite dual price of each token.

    Returns
    -------
    BoolArray of shape (V,)
        Membership of H.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.transport import best_prefix_subset, merge_tuples
    >>> instance = merge_tuples([0.25, 0.75], [[0], [1]], [0.75, 0.25])
    >>> best_prefix_subset(instance, np.array([0.5, 0.4])).tolist()
    [True, False]
    """
    num_tokens = instance.num_tokens
    order = np.argsort(-token_prices, kind="stable")
    position: IntArray = np.empty(num_tokens, dtype=np.int64)
    position[order] = np.arange(num_tokens)
    last = np.maximum.reduceat(position[instance.set_tokens], instance.set_starts[:-1])
    closed = np.bincount(last, weights=instance.set_masses, minlength=num_tokens)
    # Entry k belongs to the prefix of k tokens; closed sets are those wholly inside it.
    cost = np.zeros(num_tokens + 1)
    cost[1:] = np.cumsum(instance.token_masses[order]) - np.cumsum(closed)
    longest_best = num_tokens - int(np.argmin(cost[::-1]))
    return position < longest_best


def verify_solution(
    instance: TransportInstance,
    plan: ArrayLike,
    subset: BoolArray,
    *,
    method: str,
    tolerance: float = 1e-9,
) -> TransportSolution:
    """Check a plan and a subset against the original problem, and repair roundings of the plan.

    Parameters
    ----------
    instance : TransportInstance
        The original instance.
    plan : array-like of shape (P,)
        Claimed optimum of (9), one entry a pair.
    subset : BoolArray of shape (V,)
        Claimed optimum of (8); tokens that cost nothing are decided by :func:`canonical_subset`.
    method : str
        Name of the method, for the error.
    tolerance : float, optional
        Largest violation forgiven in an entry or a marginal of the plan, and largest difference
        between cut value and repaired plan.

    Returns
    -------
    TransportSolution
        With a plan that keeps both marginals exactly, not only within the tolerance.

    Raises
    ------
    SolverFailure
        If any check fails; the status says which, and by how much.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.transport import merge_tuples, verify_solution
    >>> instance = merge_tuples([0.5, 0.5], [[0], [1]], [0.75, 0.25])
    >>> solution = verify_solution(
    ...     instance, [0.5, 0.25], np.array([True, False]), method="by hand"
    ... )
    >>> solution.value
    0.75
    """
    checked_plan = _checked_plan(instance, plan, method, tolerance)
    if subset.shape != (instance.num_tokens,) or subset.dtype != np.bool_:
        raise SolverFailure(
            method,
            f"subset must be boolean of shape ({instance.num_tokens},), "
            f"got {subset.dtype} of shape {subset.shape}",
        )
    subset = canonical_subset(instance, subset)
    feasible_plan = _feasible_plan(instance, checked_plan)
    value = cut_value(instance, subset)
    gap = value - float(feasible_plan.sum())
    if not abs(gap) <= tolerance:
        raise SolverFailure(
            method, f"cut value {value!r} exceeds the plan's total by {gap:.3e} > {tolerance:.0e}"
        )
    return TransportSolution(value=value, plan=feasible_plan, subset=subset, gap=gap)


def _checked_plan(
    instance: TransportInstance, plan: ArrayLike, method: str, tolerance: float
) -> FloatArray:
    """Return the plan as an array after checking shape, finiteness, sign and marginals."""
    checked = np.asarray(plan, dtype=np.float64)
    if checked.shape != (instance.num_pairs,):
        raise SolverFailure(
            method, f"plan must have shape ({instance.num_pairs},), got {checked.shape}"
        )
    if not np.isfinite(checked).all():
        raise SolverFailure(method, "plan has entries that are not finite")
    if checked.min(initial=0.0) < -tolerance:
        raise SolverFailure(method, f"plan has a negative entry, {checked.min():.3e}")
    for side, index, masses in _sides(instance):
        sums = np.bincount(index, weights=checked, minlength=len(masses))
        excess = float((sums - masses).max(initial=0.0))
        if excess > tolerance:
            raise SolverFailure(method, f"plan exceeds a {side} mass by {excess:.3e}")
    return checked


def _feasible_plan(instance: TransportInstance, plan: FloatArray) -> FloatArray:
    """Clip at 0 and scale down every token and set whose mass is exceeded."""
    plan = np.maximum(plan, 0.0)
    for _, index, masses in _sides(instance):
        sums = np.bincount(index, weights=plan, minlength=len(masses))
        counts = np.bincount(index, minlength=len(masses))
        # The margin covers the rounding of the sums, so that they stay below the masses however
        # they are added up again.
        limits = np.where(masses < _NEGLIGIBLE, 0.0, masses * (1.0 - (counts + 2) * _EPS))
        factors = np.ones(len(masses))
        np.divide(limits, sums, out=factors, where=sums > limits)
        plan = plan * factors[index]
    return plan


def _sides(instance: TransportInstance) -> tuple[tuple[str, IntArray, FloatArray], ...]:
    """Return name, index of each pair, and masses, for the tokens and for the sets."""
    return (
        ("token", instance.set_tokens, instance.token_masses),
        ("set", instance.pair_sets(), instance.set_masses),
    )


def _checked_masses(name: str, masses: ArrayLike) -> FloatArray:
    checked = np.asarray(masses, dtype=np.float64)
    if checked.ndim != 1:
        raise ValueError(f"{name} must have one dimension, got shape {checked.shape}")
    if not np.isfinite(checked).all() or checked.min(initial=0.0) < 0:
        raise ValueError(f"{name} must be finite and nonnegative")
    return checked


def _checked_integers(name: str, values: ArrayLike, *, ndim: int) -> IntArray:
    checked = np.asarray(values)
    if checked.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), got shape {checked.shape}")
    if checked.size and not np.issubdtype(checked.dtype, np.integer):
        raise ValueError(f"{name} must hold integers, got dtype {checked.dtype}")
    return checked.astype(np.int64, copy=False)


def _check_token_range(name: str, tokens: IntArray, num_tokens: int) -> None:
    if tokens.size and (tokens.min() < 0 or tokens.max() >= num_tokens):
        raise ValueError(
            f"{name} must lie in 0..{num_tokens - 1}, got {tokens.min()}..{tokens.max()}"
        )
