"""Subset selection among the prefixes of an order: exact for q-convex hit functions."""

from __future__ import annotations

import math

import numpy as np

from ._compiled import compiled
from ._typing import BoolArray, FloatArray, IntArray
from .sorting import falling_order


def cut_values(ordered_masses: FloatArray, hits: FloatArray) -> FloatArray:
    """Value of formulation (8) at every prefix of an order.

    Parameters
    ----------
    ordered_masses : ndarray, shape (V,)
        Target masses p in the order whose prefixes A_k are meant.
    hits : ndarray, shape (V + 1,)
        Hit probabilities f(A_k) of those prefixes.

    Returns
    -------
    ndarray, shape (V + 1,)
        ``p(H_k) + f(A_k)`` with H_k the complement of A_k, which is 1 + p(H) - Q(H): a sum of two
        masses, so that a value near 0 keeps its digits.

    Notes
    -----
    Hu et al., "Towards Optimal Multi-draft Speculative Decoding", eq. (8).
    """
    outside = np.concatenate([np.cumsum(ordered_masses[::-1])[::-1], [0.0]])
    return outside + hits


def best_prefix(ordered_masses: FloatArray, hits: FloatArray) -> tuple[float, int]:
    """Smallest value over the prefixes of an order, and the length of the shortest that has it.

    The values are not unimodal along the prefixes, so all of them are looked at.

    Parameters
    ----------
    ordered_masses, hits : ndarray
        As for `cut_values`.

    Returns
    -------
    tuple of (float, int)
        The value, at most 1, and the prefix length k.

    Examples
    --------
    >>> import numpy as np
    >>> value, length = best_prefix(np.array([0.5, 0.3, 0.2]), np.array([0, 0.36, 0.91, 1.0]))
    >>> round(value, 12), length
    (0.86, 1)
    """
    values = cut_values(ordered_masses, hits)
    values[0] = 1.0
    length = int(np.argmin(values))
    return float(min(values[length], 1.0)), length


_BUCKETS = 2048
"""Ratio buckets: enough that one to three of them need sorting on spread-out ratios."""


@compiled(inner=True)
def _hit_of_power(mass: float, power: int) -> float:
    """``1 - (1 - q(A))**n``, without cancellation near 0."""
    return -math.expm1(power * math.log1p(-mass)) if mass < 1.0 else 1.0


@compiled(inner=True)
def _fill_buckets(
    p: FloatArray,
    q: FloatArray,
    power: int,
    bucket: IntArray,
    p_mass: FloatArray,
    q_mass: FloatArray,
) -> None:
    """Put tokens into buckets by p/q on [0, n); the last bucket takes everything from n up."""
    scale = _BUCKETS / power
    for i in range(len(p)):
        b = 0
        if p[i] > 0.0:
            ratio = p[i] / q[i] if q[i] > 0.0 else math.inf
            # f has slope at most n, so a token of ratio n or more lies in every best A.
            b = int(ratio * scale) if ratio < power else _BUCKETS
            b = min(b, _BUCKETS)
        bucket[i] = b
        p_mass[b] += p[i]
        q_mass[b] += q[i]


@compiled(inner=True)
def _sorted_bucket(p: FloatArray, q: FloatArray, tokens: IntArray) -> IntArray:
    """Sort the tokens of a bucket by falling p/q, ties to the lowest id."""
    ratios = np.empty(len(tokens))
    for k in range(len(tokens)):
        i = tokens[k]
        ratios[k] = p[i] / q[i] if p[i] > 0.0 else 0.0
    return tokens[falling_order(ratios)]


@compiled(inner=True)
def _bucketed_prefix(
    p: FloatArray, q: FloatArray, power: int, bucket: IntArray
) -> tuple[float, int, IntArray]:
    """Best value, the bucket it is cut in, and the tokens of that bucket that lie in A."""
    p_mass, q_mass = np.zeros(_BUCKETS + 1), np.zeros(_BUCKETS + 1)
    _fill_buckets(p, q, power, bucket, p_mass, q_mass)

    # Masses from each bucket down, and from each bucket up: a value near 0 keeps its digits.
    p_below, q_above = np.zeros(_BUCKETS + 2), np.zeros(_BUCKETS + 2)
    for b in range(_BUCKETS + 1):
        p_below[b + 1] = p_below[b] + p_mass[b]
    hits = np.zeros(_BUCKETS + 2)
    best, cut = p_below[_BUCKETS + 1], _BUCKETS + 1
    for b in range(_BUCKETS, -1, -1):
        q_above[b] = q_above[b + 1] + q_mass[b]
        hits[b] = _hit_of_power(q_above[b], power)
        value = p_below[b] + hits[b]
        if value < best:
            best, cut = value, b

    # Inside a bucket p(A) lies under its tangents and f(A) over its chord. Only where that leaves
    # room below the best value are the tokens looked at one by one.
    width = power / _BUCKETS
    inner, at = np.empty(0, dtype=np.int64), 0
    for b in range(_BUCKETS):
        if q_mass[b] <= 0.0 or p_mass[b] <= 0.0:
            continue
        lower, upper = b * width, (b + 1) * width
        # Where the left tangent, of slope `upper`, meets the right one, of slope `lower`.
        share = (p_mass[b] - lower * q_mass[b]) / (upper - lower)
        share = min(max(share, 0.0), q_mass[b])
        gained = min(upper * share, p_mass[b])
        chord = hits[b + 1] + (hits[b] - hits[b + 1]) * share / q_mass[b]
        floor = p_below[b + 1] - gained + chord
        if floor >= best - 1e-15:
            continue
        tokens = _sorted_bucket(p, q, np.flatnonzero(bucket == b))
        # p(H) from the far end of the bucket on, so that a value near 0 keeps its digits.
        p_left = np.empty(len(tokens) + 1)
        p_left[len(tokens)] = p_below[b]
        for k in range(len(tokens) - 1, -1, -1):
            p_left[k] = p_left[k + 1] + p[tokens[k]]
        inside = q_above[b + 1]
        for k in range(len(tokens)):
            inside += q[tokens[k]]
            value = p_left[k + 1] + _hit_of_power(inside, power)
            if value < best:
                best, at, inner = value, b, tokens[: k + 1]
    if len(inner) > 0:
        return best, at, inner
    # The best prefix ends with a bucket: A is everything in the buckets from `cut` up.
    return best, cut - 1, inner


@compiled()
def prefix_with_replacement(
    p: FloatArray, q: FloatArray, num_draws: int
) -> tuple[float, BoolArray]:
    """Best prefix for n independent draws, in linear time.

    Parameters
    ----------
    p, q : ndarray, shape (V,)
        Target and draw probabilities.
    num_draws : int
        n >= 1.

    Returns
    -------
    tuple of (float, ndarray of bool, shape (V,))
        The value of formulation (8), at most 1, and membership of H.

    Notes
    -----
    One pass puts the tokens into buckets by p/q; their ends give values that are attained, the
    tangents of the Lorenz curve and the chord of ``1 - (1 - x)**n`` a floor inside each, and only
    the buckets whose floor lies below the best value are sorted.

    Examples
    --------
    >>> import numpy as np
    >>> p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
    >>> value, subset = prefix_with_replacement(p, q, 2)
    >>> round(value, 12), subset.tolist()
    (0.86, [False, True, True])
    """
    bucket = np.empty(len(p), dtype=np.int64)
    value, cut, inner = _bucketed_prefix(p, q, num_draws, bucket)
    subset = np.empty(len(p), dtype=np.bool_)
    for i in range(len(p)):
        subset[i] = bucket[i] <= cut
    for i in inner:
        subset[i] = False
    return min(value, 1.0), subset
