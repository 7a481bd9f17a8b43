"""The optimal verifier of drafts with replacement, row by row, with no plan for each."""

from __future__ import annotations

import numpy as np

from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.rules.kernels import find_residual
from solvers.marks import grouped_coupling, select_smallest
from solvers.ratio_groups import groups_of_tokens, spread_over_tokens


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
        groups = groups_of_tokens(marks.groups, ids[r], p, q).reshape((1, count))
        place = select_smallest(marks.coupling, groups, uniforms[r : r + 1])[0]
        token = ids[r, place]
        selected = q[token] * marks.slopes[groups[0, place]]
        chance = min(p[token] / selected, 1.0) if p[token] > 0.0 else 0.0
        if uniforms[r, count] < chance:
            tokens[r] = token
        else:
            spread = spread_over_tokens(marks.groups, marks.slopes, p, q)
            tokens[r] = find_residual(p, spread, uniforms[r, count + 1])


def mark_rate(p: FloatArray, q: FloatArray, num_drafts: int, gap: float) -> float:
    """Couple the marks, and add up what thinning leaves of the selected masses."""
    marks = grouped_coupling(p, q, num_drafts, gap)
    selected = spread_over_tokens(marks.groups, marks.slopes, p, q)
    return float(min(np.minimum(p, selected).sum(), 1.0))
