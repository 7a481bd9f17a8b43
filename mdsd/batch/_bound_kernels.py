"""Acceptance bounds row by row in compiled code."""

from __future__ import annotations

import numpy as np
from numba import njit

from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.batch._live_tokens import gather_live
from solvers.hitting import MASS_SCALE, _prefix_hits
from solvers.prefix import prefix_with_replacement
from solvers.sorting import falling_order

__all__ = [
    "DETERMINISTIC",
    "TOP_AND_ONE",
    "WITH",
    "WITHOUT",
    "bound_rows",
    "most_likely",
    "top_and_tail",
]

WITH, WITHOUT, TOP_AND_ONE, DETERMINISTIC = range(4)
"""Laws of the drafts: with replacement, without, the top n - 1 and one more, the top n."""


@njit(cache=True, error_model="numpy")
def _without_replacement(p: FloatArray, q: FloatArray, num_draws: int, step: float) -> float:
    # Tokens that are never drawn lie in every best A and meet nothing.
    drawn = np.flatnonzero(q)
    ratios = np.empty(len(drawn))
    for k in range(len(drawn)):
        ratios[k] = p[drawn[k]] / q[drawn[k]]
    order = drawn[falling_order(ratios)]
    hits = _prefix_hits(q[order] * MASS_SCALE, num_draws, step)
    # p(H) from the far end, so that a value near 0 keeps its digits.
    best, outside = 1.0, 0.0
    for k in range(len(order), -1, -1):
        best = min(best, outside + hits[k])
        if k > 0:
            outside += p[order[k - 1]]
    return best


@njit(cache=True)
def most_likely(q: FloatArray, count: int) -> IntArray:
    """Ids of the `count` largest entries, largest first, ties to the lowest id."""
    top = np.empty(count, dtype=np.int64)
    found = 0
    for i in range(len(q)):
        if count == 0 or (found == count and q[i] <= q[top[count - 1]]):
            continue
        place = found if found < count else count - 1
        while place > 0 and q[top[place - 1]] < q[i]:
            if place < count:
                top[place] = top[place - 1]
            place -= 1
        top[place] = i
        found = min(found + 1, count)
    return top


@njit(cache=True, error_model="numpy")
def top_and_tail(p: FloatArray, q: FloatArray, num_top: int, sampled: bool) -> float:
    """``p(T)``, plus ``sum min(p, q~)`` off T where one more token is sampled from there."""
    top = most_likely(q, num_top)
    value, tail = 0.0, q.copy()
    for token in top:
        value += p[token]
        tail[token] = 0.0
    if sampled:
        mass = tail.sum()
        for i in range(len(p)):
            value += min(p[i], tail[i] / mass)
    return min(value, 1.0)


@njit(cache=True, nogil=True, error_model="numpy")
def bound_rows(
    kind: int,
    num_drafts: int,
    step: float,
    target: AnyArray,
    target_masses: FloatArray,
    drafted: AnyArray,
    drafted_masses: FloatArray,
    values: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Compute the acceptance bound of each row.

    Parameters
    ----------
    kind : int
        `WITH`, `WITHOUT`, `TOP_AND_ONE` or `DETERMINISTIC`.
    num_drafts : int
        n.
    step : float
        Step of the nodes for drawing without replacement.
    target, drafted : ndarray of float64 or float32, shape (B, V)
        Unnormalised rows.
    target_masses, drafted_masses : ndarray, shape (B,)
        Their masses.
    values : ndarray, shape (B,)
        Filled for the rows ``start .. stop - 1``.
    start, stop : int
    """
    size = target.shape[1]
    p, q = np.empty(size), np.empty(size)
    for r in range(start, stop):
        live = gather_live(target[r], target_masses[r], drafted[r], drafted_masses[r], p, q)
        if kind == WITH:
            values[r] = prefix_with_replacement(p[:live], q[:live], num_drafts)[0]
        elif kind == WITHOUT:
            values[r] = _without_replacement(p[:live], q[:live], num_drafts, step)
        elif kind == TOP_AND_ONE:
            values[r] = top_and_tail(p[:live], q[:live], num_drafts - 1, True)
        else:
            values[r] = top_and_tail(p[:live], q[:live], num_drafts, False)
