"""The optimal verifier of drafts with replacement, row by row in compiled code."""

from __future__ import annotations

import numpy as np
from numba import njit

from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.batch._live_tokens import gather_live
from solvers.marks import optimal_coupling, select_smallest

__all__ = ["mark_rate_rows", "verify_mark_rows"]


@njit(cache=True)
def _draw_residual(p: FloatArray, selected: FloatArray, uniform: float) -> int:
    """Draw from ``(p - m^)+`` in token order, or from p where that is 0 throughout."""
    total, some = 0.0, False
    for i in range(len(p)):
        if p[i] > selected[i]:
            total += p[i] - selected[i]
            some = True
    if not some:
        for i in range(len(p)):
            total += p[i]
    goal, passed, last = uniform * total, 0.0, 0
    for i in range(len(p)):
        mass = max(p[i] - selected[i], 0.0) if some else p[i]
        passed += mass
        if mass > 0.0:
            last = i
        # Where rounding lets the goal reach the total, the last token with mass is drawn.
        if passed > goal or passed == total:
            return last
    return last


@njit(cache=True, nogil=True, error_model="numpy")
def verify_mark_rows(
    target: AnyArray,
    target_masses: FloatArray,
    drafted: AnyArray,
    drafted_masses: FloatArray,
    ids: IntArray,
    uniforms: FloatArray,
    tokens: IntArray,
    start: int,
    stop: int,
) -> None:
    """Couple the marks of each row, select the draft with the smallest mark and thin to the target.

    Parameters
    ----------
    target, drafted : ndarray of float64 or float32, shape (B, V)
        Unnormalised rows.
    target_masses, drafted_masses : ndarray, shape (B,)
        Their masses.
    ids : ndarray of int64, shape (B, n)
        Drafts that can have been drawn.
    uniforms : ndarray, shape (B, n + 2)
        A mark for each draft, the accept test, the residual.
    tokens : ndarray of int64, shape (B,)
        Filled for the rows ``start .. stop - 1`` with the emitted token.
    start, stop : int
    """
    size, count = target.shape[1], ids.shape[1]
    p, q = np.empty(size), np.empty(size)
    for r in range(start, stop):
        for i in range(size):
            p[i] = target[r, i] / target_masses[r]
            q[i] = drafted[r, i] / drafted_masses[r]
        _, coupling = optimal_coupling(p, q, count)
        selected, row = coupling.selected, slice(r, r + 1)
        token = select_smallest(coupling, ids[row], uniforms[row])[0]
        chance = min(p[token] / selected[token], 1.0) if p[token] > 0.0 else 0.0
        if uniforms[r, count] < chance:
            tokens[r] = token
        else:
            tokens[r] = _draw_residual(p, selected, uniforms[r, count + 1])


@njit(cache=True, nogil=True)
def mark_rate_rows(
    num_drafts: int,
    target: AnyArray,
    target_masses: FloatArray,
    drafted: AnyArray,
    drafted_masses: FloatArray,
    values: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Couple the marks of each row, and add up what thinning leaves of the selected masses.

    Parameters
    ----------
    num_drafts : int
        n.
    target, target_masses, drafted, drafted_masses, start, stop
        As for `verify_mark_rows`.
    values : ndarray, shape (B,)
        Filled for the rows ``start .. stop - 1`` with acceptance rates.
    """
    size = target.shape[1]
    p, q = np.empty(size), np.empty(size)
    for r in range(start, stop):
        live = gather_live(target[r], target_masses[r], drafted[r], drafted_masses[r], p, q)
        selected = optimal_coupling(p[:live], q[:live], num_drafts)[1].selected
        values[r] = min(np.minimum(p[:live], selected).sum(), 1.0)
