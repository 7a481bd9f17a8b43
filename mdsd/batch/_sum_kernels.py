"""Selection by group in compiled code, where only the sums of the groups have come to the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from mdsd._typing import FloatArray, IntArray
from solvers.marks import FEWEST_GROUPS, couple_buckets, couple_tokens, select_smallest


class SumRows(NamedTuple):
    """What the host is told of B rows.

    Attributes
    ----------
    live : ndarray of int64, shape (B,)
        How many tokens can be drawn.
    rests : ndarray, shape (B,)
        Draw mass of all tokens but the n - 1 largest.
    draft_keys, draft_places : ndarray of int64, shape (B, n)
        Bucket of each draft, and its place among the tokens listed; -1 where it is not there.
    draft_targets, draft_masses : ndarray, shape (B, n)
        Its p and q.
    keys : ndarray of int64, shape (B, K)
        Bucket of each token listed.
    targets, masses : ndarray, shape (B, K)
        Its p and q.
    sums : ndarray, shape (B, m, buckets)
        Of each bucket, what the method has asked for.
    """

    live: IntArray
    rests: FloatArray
    draft_keys: IntArray
    draft_places: IntArray
    draft_targets: FloatArray
    draft_masses: FloatArray
    keys: IntArray
    targets: FloatArray
    masses: FloatArray
    sums: FloatArray


class SelectedRows(NamedTuple):
    """What the host answers.

    Attributes
    ----------
    places : ndarray of int64, shape (B,)
        Which draft is selected.
    chances : ndarray, shape (B,)
        Probability that it is accepted.
    ratios : ndarray, shape (B, buckets)
        Selected mass over q of the tokens of each bucket.
    own : ndarray, shape (B, K)
        The same of those tokens listed that have a ratio of their own, else -1.
    """

    places: IntArray
    chances: FloatArray
    ratios: FloatArray
    own: FloatArray


@njit(cache=True, nogil=True, error_model="numpy")
def select_by_marks(
    rows: SumRows,
    uniforms: FloatArray,
    tolerance: float,
    found: SelectedRows,
    start: int,
    stop: int,
) -> None:
    """Select among drafts with replacement, as the fast plan of `mdsd.verifiers.marks` does.

    Parameters
    ----------
    rows : SumRows
        With the sums of p and q. Where no more than `FEWEST_GROUPS` tokens can be drawn, all of
        them are listed.
    uniforms : ndarray, shape (B, n + 2)
    tolerance : float
        As for `solvers.marks.grouped_coupling`.
    found : SelectedRows
        Filled for the rows ``start .. stop - 1``.
    start, stop : int
    """
    count = rows.draft_keys.shape[1]
    groups = np.empty((1, count), dtype=np.int64)
    for r in range(start, stop):
        own = found.own[r]
        own[:] = -1.0
        found.ratios[r] = 0.0
        if rows.live[r] <= FEWEST_GROUPS:
            few = np.flatnonzero(rows.masses[r])
            marks = couple_tokens(rows.targets[r][few], rows.masses[r][few], count)
            own[few] = marks.slopes
            for k in range(count):
                groups[0, k] = np.searchsorted(few, rows.draft_places[r, k])
        else:
            marks = couple_buckets(rows.sums[r].T.copy(), count, tolerance)
            table = marks.groups.table
            for key in range(len(table)):
                if table[key] >= 0:
                    found.ratios[r, key] = marks.slopes[table[key]]
            for k in range(count):
                groups[0, k] = table[rows.draft_keys[r, k]]
        place = select_smallest(marks.coupling, groups, uniforms[r : r + 1])[0]
        selected = rows.draft_masses[r, place] * marks.slopes[groups[0, place]]
        found.places[r] = place
        found.chances[r] = _accept_prob(rows.draft_targets[r, place], selected)


@njit(cache=True, nogil=True)
def _accept_prob(wanted: float, selected: float) -> float:
    if not wanted > 0.0:
        return 0.0
    return wanted / selected if wanted < selected else 1.0
