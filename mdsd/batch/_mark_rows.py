"""The optimal verifier of drafts with replacement, row by row, with no plan for each."""

from __future__ import annotations

import numpy as np

from mdsd._solvers.marks import accept_smallest, grouped_coupling
from mdsd._solvers.ratio_groups import spread_over_tokens
from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.rules.kernels import find_residual


def verify_mark_rows(
    gap: float,
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
    gap : float
        At which groups of tokens are fine enough; 0 for none.
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
    count = ids.shape[1]
    for r in range(start, stop):
        p = np.divide(target[r], target_masses[r], dtype=np.float64)
        q = np.divide(drafted[r], drafted_masses[r], dtype=np.float64)
        marks = grouped_coupling(p, q, count, gap)
        own = ids[r : r + 1], uniforms[r : r + 1]
        tokens[r] = accept_smallest(marks.groups, marks.coupling, marks.slopes, p, q, *own)[0]
        if tokens[r] < 0:
            spread = spread_over_tokens(marks.groups, marks.slopes, p, q)
            tokens[r] = find_residual(p, spread, uniforms[r, count + 1])


def mark_rate(p: FloatArray, q: FloatArray, num_drafts: int, gap: float) -> float:
    """Couple the marks, and add up what thinning leaves of the selected masses."""
    marks = grouped_coupling(p, q, num_drafts, gap)
    selected = spread_over_tokens(marks.groups, marks.slopes, p, q)
    return float(min(np.minimum(p, selected).sum(), 1.0))
