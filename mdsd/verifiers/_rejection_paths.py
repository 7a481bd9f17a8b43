"""Recursive rejection without replacement, in compiled code.

The k-th test of a rejection path x_1, x_2, ... compares the residual ``(p - c q)+ / Z(c)``, with
``Z(c) = sum (p - c q)+`` and c the cap reached so far, against q without the rejected tokens, which
has mass s left. A rejection raises the cap by ``Z(c) / s`` and takes the token's mass out of s.
One sort by p/q gives Z(c) in O(log V), one by q gives s, so a path costs O(n log V).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from mdsd._probabilities import ratio_order, ratios
from mdsd._typing import FloatArray, IntArray

__all__ = [
    "SCALE",
    "PathTables",
    "draw_residuals",
    "enumerate_rejection",
    "path_caps",
    "path_state",
    "path_tables",
    "sample_rejection",
]


SCALE = 2.0**512
"""The draft masses are multiplied, and so the caps divided, by this: the cap of a rejection that
leaves subnormal draft mass would overflow otherwise."""


class PathTables(NamedTuple):
    """Sorted views of one pair (target, draft).

    Attributes
    ----------
    target, drafted : ndarray, shape (V,)
        p, and q times `SCALE`; so is every mass of q below.
    by_ratio : ndarray of int64, shape (V,)
        Tokens by descending p/q.
    ratios : ndarray, shape (V,)
        -p/q along `by_ratio`: ascending.
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


def path_tables(target_probs: FloatArray, draft_probs: FloatArray) -> PathTables:
    """Sort a target and a draft vector once, in O(V log V)."""
    order = ratio_order(target_probs, draft_probs)
    draft_probs = draft_probs * SCALE
    p, q = target_probs[order], draft_probs[order]
    descending = np.argsort(-draft_probs, kind="stable")
    rank = np.empty_like(descending)
    rank[descending] = np.arange(len(rank))
    tail = np.cumsum(draft_probs[descending][::-1])[::-1]
    return PathTables(
        target=target_probs,
        drafted=draft_probs,
        by_ratio=order,
        ratios=-ratios(p, q),
        target_sums=np.concatenate([[0.0], np.cumsum(p)]),
        drafted_sums=np.concatenate([[0.0], np.cumsum(q)]),
        rank=rank,
        tail_sums=np.concatenate([tail, [0.0]]),
    )


@njit(cache=True)
def _excess(tables: PathTables, cap: float) -> float:
    """Z(c): mass of p above c q."""
    k = np.searchsorted(tables.ratios, -cap)
    return max(tables.target_sums[k] - cap * tables.drafted_sums[k], 0.0)


@njit(cache=True)
def _remaining(tables: PathTables, removed: IntArray) -> float:
    """Mass of q without the removed tokens, as a sum of what remains."""
    if len(removed) == 0:
        return SCALE
    places = np.sort(tables.rank[removed])
    total, start = 0.0, 0
    for k in range(len(places)):
        place = int(places[k])
        # Between two removed tokens stand only larger ones than the second, so this difference
        # keeps its digits; with nothing between, it is exactly 0.
        if place > start:
            total += tables.tail_sums[start] - tables.tail_sums[place]
        start = place + 1
    return total + tables.tail_sums[start]


@njit(cache=True)
def _raise_cap(
    tables: PathTables, cap: float, mass: float, remaining: float
) -> tuple[float, float]:
    """Cap and residual mass after a rejection; unchanged where rounding leaves no residual."""
    higher = cap + mass / remaining
    left = _excess(tables, higher)
    if left > 0.0:
        return higher, left
    return cap, mass


@njit(cache=True)
def path_state(tables: PathTables, path: IntArray) -> tuple[float, float, float]:
    """Cap c, residual mass Z(c) and remaining draft mass s once a path of tokens is rejected."""
    cap, mass = 0.0, 1.0
    for k in range(len(path)):
        cap, mass = _raise_cap(tables, cap, mass, _remaining(tables, path[:k]))
    return cap, mass, _remaining(tables, path)


@njit(cache=True)
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
    for row in range(batch):
        cap, mass = 0.0, 1.0
        for k in range(count):
            remaining = _remaining(tables, ids[row, :k])
            token = ids[row, k]
            p, q = tables.target[token], tables.drafted[token]
            wanted = max(p - cap * q, 0.0) / mass * remaining
            chances[row, k] = 1.0 if wanted >= q else wanted / q
            cap, mass = _raise_cap(tables, cap, mass, remaining)
        caps[row] = cap
    return chances, caps


@njit(cache=True)
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
        if total == 0.0:
            sums[:] = np.cumsum(tables.target)
            total = sums[-1]
        found = np.searchsorted(sums, uniforms[row] * total, side="right")
        # Where rounding lets the goal reach the total, the last token with mass is drawn.
        tokens[row] = min(found, np.searchsorted(sums, total))
    return tokens


@njit(cache=True)
def _rejected_weight(
    tables: PathTables, token: int, cap: float, mass: float, remaining: float
) -> float:
    """Probability that the next draft is this token AND is rejected."""
    q = tables.drafted[token]
    return q / remaining - min(q / remaining, max(tables.target[token] - cap * q, 0.0) / mass)


@njit(cache=True)
def enumerate_rejection(tables: PathTables, num_drafts: int) -> float:
    """Probability that all n drafts are rejected, over every path of positive probability.

    O(V**(n - 1) log V): for small supports.
    """
    size = len(tables.drafted)
    depth = num_drafts - 1
    caps, masses = np.empty(num_drafts), np.empty(num_drafts)
    rest, weights = np.empty(num_drafts), np.empty(num_drafts)
    caps[0], masses[0], rest[0], weights[0] = 0.0, 1.0, SCALE, 1.0
    place = np.full(num_drafts, -1)
    path = np.empty(num_drafts, dtype=np.int64)
    total, level = 0.0, 0
    while level >= 0:
        if level == depth:
            higher = caps[level] + masses[level] / rest[level]
            total += weights[level] * _excess(tables, higher) / masses[level]
            level -= 1
            continue
        place[level] += 1
        if place[level] == size:
            place[level] = -1
            level -= 1
            continue
        token = place[level]
        if tables.drafted[token] <= 0.0 or (path[:level] == token).any():
            continue
        weight = _rejected_weight(tables, token, caps[level], masses[level], rest[level])
        if weight <= 0.0:
            continue
        higher = caps[level] + masses[level] / rest[level]
        left = _excess(tables, higher)
        if left <= 0.0:
            continue
        path[level] = token
        caps[level + 1], masses[level + 1] = higher, left
        rest[level + 1] = _remaining(tables, path[: level + 1])
        weights[level + 1] = weights[level] * weight
        level += 1
    return total


@njit(cache=True)
def _draw_rejected(
    tables: PathTables,
    cap: float,
    mass: float,
    remaining: float,
    removed: IntArray,
    rng: np.random.Generator,
) -> int:
    """Draw the next rejected token, by bisection on its weight along the order of p/q.

    The weight is 0 where p/q exceeds the next cap, ``q (1/s + c/Z) - p/Z`` down to the present cap
    and q/s below, so its running sum comes from the prefix sums of p and q.
    """
    size = len(tables.drafted)
    first = int(np.searchsorted(tables.ratios, -(cap + mass / remaining)))
    middle = max(first, int(np.searchsorted(tables.ratios, -cap)))
    sums_p, sums_q = tables.target_sums, tables.drafted_sums
    rate = 1.0 / remaining + cap / mass
    upper = rate * (sums_q[middle] - sums_q[first]) - (sums_p[middle] - sums_p[first]) / mass
    total = upper + (sums_q[size] - sums_q[middle]) / remaining
    for _ in range(64):
        goal = rng.random() * total
        low, high = first, size
        while high - low > 1:
            k = (low + high) // 2
            if k <= middle:
                reached = rate * (sums_q[k] - sums_q[first]) - (sums_p[k] - sums_p[first]) / mass
            else:
                reached = upper + (sums_q[k] - sums_q[middle]) / remaining
            if reached <= goal:
                low = k
            else:
                high = k
        token = tables.by_ratio[low]
        # Rejected tokens are drawn again: they have no weight any more.
        if tables.drafted[token] > 0.0 and not (removed == token).any():
            return int(token)
    # The tokens already rejected hold nearly all the weight: go through the others one by one.
    weights = np.zeros(size)
    for i in range(size):
        if tables.drafted[i] > 0.0 and not (removed == i).any():
            weights[i] = _rejected_weight(tables, i, cap, mass, remaining)
    sums = np.cumsum(weights)
    if sums[-1] <= 0.0:
        return -1
    return min(int(np.searchsorted(sums, rng.random() * sums[-1], side="right")), size - 1)


@njit(cache=True)
def sample_rejection(
    tables: PathTables, num_drafts: int, paths: int, rng: np.random.Generator
) -> FloatArray:
    """Probability of n rejections along sampled rejection paths, one value for each path.

    Their mean is an unbiased estimate: only the rejected tokens are drawn, every test enters with
    its exact conditional probability.
    """
    values = np.empty(paths)
    removed = np.empty(num_drafts, dtype=np.int64)
    for row in range(paths):
        cap, mass, remaining = 0.0, 1.0, SCALE
        value = 1.0
        for k in range(num_drafts):
            higher = cap + mass / remaining
            left = _excess(tables, higher)
            if left <= 0.0:
                value = 0.0
                break
            if k < num_drafts - 1:
                token = _draw_rejected(tables, cap, mass, remaining, removed[:k], rng)
                if token < 0:
                    value = 0.0
                    break
                removed[k] = token
            cap, mass = higher, left
            if k < num_drafts - 1:
                remaining = _remaining(tables, removed[: k + 1])
        # The rejection probabilities multiply to Z at the last cap.
        values[row] = value * mass
    return values
