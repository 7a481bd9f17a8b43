"""The optimal verifier of drafts with replacement, row by row in compiled code."""

from __future__ import annotations

import numpy as np

from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.rules.kernels import find_token
from solvers._compiled import compiled
from solvers.marks import optimal_coupling, select_smallest


@compiled(nogil=True, error_model="numpy")
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
        token = ids[r, select_smallest(coupling, ids[row], uniforms[row])[0]]
        chance = min(p[token] / selected[token], 1.0) if p[token] > 0.0 else 0.0
        if uniforms[r, count] < chance:
            tokens[r] = token
        else:
            # Mass of p above m^, or p where that is 0 throughout.
            sums = np.cumsum(np.maximum(p - selected, 0.0))
            sums = sums if sums[-1] > 0.0 else np.cumsum(p)
            tokens[r] = find_token(sums, uniforms[r, count + 1])


@compiled(nogil=True)
def mark_rate(p: FloatArray, q: FloatArray, num_drafts: int) -> float:
    """Couple the marks, and add up what thinning leaves of the selected masses."""
    _, coupling = optimal_coupling(p, q, num_drafts)
    return float(min(np.minimum(p, coupling.selected).sum(), 1.0))
