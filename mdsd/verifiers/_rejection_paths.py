"""Recursive rejection without replacement, in compiled code.

The k-th test of a rejection path x_1, x_2, ... compares the residual ``(p - c q)+ / Z(c)``, with
``Z(c) = sum (p - c q)+`` and c the cap reached so far, against q without the rejected tokens, which
has mass s left. A rejection raises the cap by ``Z(c) / s`` and takes the token's mass out of s.

The first cap is 1, so only tokens with p > q are ever told apart by p/q. One sort of these gives
Z(c) in O(log V), one by q gives s, so a path costs O(n log V).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mdsd._solvers._compiled import compiled
from mdsd._solvers.sorting import falling_order
from mdsd._typing import FloatArray, IntArray
from mdsd.rules.kernels import find_token

SCALE = 2.0**512
"""The draft masses are multiplied, and so the caps divided, by this: the cap of a rejection that
leaves subnormal draft mass would overflow otherwise."""

_LOWERED = 2.0**-60
"""On remaining masses, which then are less than the largest number times any draft mass."""


class PathTables(NamedTuple):
    """Sorted views of one pair (target, draft).

    Attributes
    ----------
    target, drafted : ndarray, shape (V,)
        p, and q times `SCALE`; so is every mass of q below.
    by_ratio : ndarray of int64, shape (V,)
        Tokens with p > q by descending p/q, then the others by their ids.
    ratios : ndarray, shape (K,)
        -p/q of the former: ascending.
    target_sums, drafted_sums : ndarray, shape (V + 1,)
        Prefix sums of p and q along `by_ratio`.
    rank : ndarray of int64, shape (V,)
        Place of each token by descending q.
    tail_sums : ndarray, shape (V + 1,)
        Mass of q from each such place on, summed from the smallest up.
    """

    target: FloatArray
    drafted: FloatArray
    by_ratio: IntArray
    ratios: FloatArray
    target_sums: FloatArray
    drafted_sums: FloatArray
    rank: IntArray
    tail_sums: FloatArray


@compiled(error_model="numpy", nogil=True)
def path_tables(target_probs: FloatArray, draft_probs: FloatArray) -> PathTables:
    """Sort a target and a draft vector once, in O(V)."""
    size = len(target_probs)
    drafted = draft_probs * SCALE
    by_ratio, others = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    above = 0
    for i in range(size):
        # Counted on instead of branched on, as half of all guesses would be wrong.
        by_ratio[above], others[i - above] = i, i
        above += target_probs[i] > draft_probs[i]
    for k in range(above, size):
        by_ratio[k] = others[k - above]
    ratios = np.empty(above)
    for k in range(above):
        ratios[k] = target_probs[by_ratio[k]] / drafted[by_ratio[k]]
    order = falling_order(ratios)
    for k in range(above):
        others[k] = by_ratio[order[k]]
    for k in range(above):
        by_ratio[k] = others[k]
    rising = np.empty(above)
    for k in range(above):
        rising[k] = -ratios[order[k]]
    target_sums, drafted_sums = np.zeros(size + 1), np.zeros(size + 1)
    for k in range(size):
        target_sums[k + 1] = target_sums[k] + target_probs[by_ratio[k]]
        drafted_sums[k + 1] = drafted_sums[k] + drafted[by_ratio[k]]
    descending = falling_order(draft_probs)
    rank, tail_sums = np.empty(size, dtype=np.int64), np.zeros(size + 1)
    for k in range(size - 1, -1, -1):
        rank[descending[k]] = k
        tail_sums[k] = tail_sums[k + 1] + drafted[descending[k]]
    return PathTables(
        target_probs.copy(),  # one type of array for what is compiled, read-only or not
        drafted,
        by_ratio,
        rising,
        target_sums,
        drafted_sums,
        rank,
        tail_sums,
    )


@compiled(inner=True)
def find_place(rising: FloatArray, value: float) -> int:
    """Find the first place of numbers that rise, none of them NaN, from which none is below."""
    low, high = 0, len(rising)
    while low < high:
        middle = (low + high) // 2
        if rising[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled(inner=True)
def excess_mass(tables: PathTables, cap: float) -> float:
    """Z(c): mass of p above c q, for a cap of at least 1."""
    k = find_place(tables.ratios, -cap)
    return max(tables.target_sums[k] - cap * tables.drafted_sums[k], 0.0)


@compiled(inner=True)
def insert_place(places: IntArray, count: int, place: int) -> None:
    """Insert a place among the first `count`, which ascend."""
    k = count
    while k > 0 and places[k - 1] > place:
        places[k] = places[k - 1]
        k -= 1
    places[k] = place


@compiled(inner=True)
def remaining_mass(tail_sums: FloatArray, ranks: IntArray) -> float:
    """Mass of q without the tokens of some ranks, which ascend, as a sum of what remains."""
    if len(ranks) == 0:
        return SCALE
    total, start = 0.0, 0
    for place in ranks:
        # Between two removed tokens stand only larger ones than the second, so this difference
        # keeps its digits; with nothing between, it is exactly 0.
        if place > start:
            total += tail_sums[start] - tail_sums[place]
        start = place + 1
    return total + tail_sums[start]


@compiled(inner=True)
def _raise_cap(
    tables: PathTables, cap: float, mass: float, remaining: float
) -> tuple[float, float]:
    """Cap and residual mass after a rejection; unchanged where rounding leaves no residual."""
    higher = cap + mass / remaining
    left = excess_mass(tables, higher)
    if left > 0.0:
        return higher, left
    return cap, mass


@compiled()
def path_state(tables: PathTables, path: IntArray) -> tuple[float, float, float]:
    """Cap c, residual mass Z(c) and remaining draft mass s once a path of tokens is rejected."""
    cap, mass = 0.0, 1.0
    ranks = np.empty(len(path), dtype=np.int64)
    for k in range(len(path)):
        cap, mass = _raise_cap(tables, cap, mass, remaining_mass(tables.tail_sums, ranks[:k]))
        insert_place(ranks, k, tables.rank[path[k]])
    return cap, mass, remaining_mass(tables.tail_sums, ranks)


@compiled()
def path_caps(tables: PathTables, ids: IntArray) -> tuple[FloatArray, FloatArray]:
    """Accept probability of each test, and the last cap, along given paths.

    Parameters
    ----------
    tables : PathTables
    ids : ndarray of int64, shape (B, n)
        Drafts, each row of distinct tokens.

    Returns
    -------
    tuple of ndarray, shapes (B, n) and (B,)
        Probability that the k-th test passes once it is reached, and the c of the residual
        ``(p - c q)+`` that a row ends in.
    """
    batch, count = ids.shape
    chances = np.empty((batch, count))
    caps = np.empty(batch)
    ranks = np.empty(count, dtype=np.int64)
    for row in range(batch):
        cap, mass = 0.0, 1.0
        for k in range(count):
            remaining = remaining_mass(tables.tail_sums, ranks[:k])
            token = ids[row, k]
            p, q = tables.target[token], tables.drafted[token]
            # By powers of two up and down again: what is small never sinks to 0 on the way.
            wanted = max(p - cap * q, 0.0) * SCALE / mass
            lever = remaining * _LOWERED / q if q > 0.0 else 1.0
            chances[row, k] = min(wanted * lever / (SCALE * _LOWERED), 1.0)
            cap, mass = _raise_cap(tables, cap, mass, remaining)
            insert_place(ranks, k, tables.rank[token])
        caps[row] = cap
    return chances, caps


@compiled()
def draw_residuals(tables: PathTables, ids: IntArray, uniforms: FloatArray) -> IntArray:
    """Draw from the residual ``(p - c q)+`` that each row ends in, in token order.

    Parameters
    ----------
    tables : PathTables
    ids : ndarray of int64, shape (B, n)
        Drafts that were all rejected.
    uniforms : ndarray, shape (B,)

    Returns
    -------
    ndarray of int64, shape (B,)
        From p instead where rounding leaves no residual.
    """
    caps = path_caps(tables, ids)[1]
    tokens = np.empty(len(ids), dtype=np.int64)
    sums = np.empty(len(tables.target))
    for row in range(len(ids)):
        total = 0.0
        for i in range(len(sums)):
            total += max(tables.target[i] - caps[row] * tables.drafted[i], 0.0)
            sums[i] = total
        tokens[row] = find_token(sums if total > 0.0 else np.cumsum(tables.target), uniforms[row])
    return tokens
