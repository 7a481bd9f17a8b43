"""Hit probabilities for weighted sampling without replacement.

Give every token an exponential arrival time of rate q_i; the first n arrivals are n successive
draws without replacement. With A fixed, c = q(A) and H its complement,

    f(A) = integral over t in (0, inf) of c exp(-c t) Pr[fewer than n tokens of H arrived by t] dt,

the chance that the earliest token of A is among the first n. Only positive terms occur. The
integral is a trapezoid sum in s with ``t = exp(s - exp(-s))``: geometric convergence in the step,
and a lower end that dies out doubly exponentially, so that some sixty nodes reach rounding level.
One set of nodes serves every prefix of an order.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from solvers._typing import FloatArray

__all__ = ["prefix_hits", "token_hits"]

_LOWEST_NODE = -3.75
"""s at the first node: everything below it weighs less than 1e-19."""

_NEGLIGIBLE = 1e-19
"""Nodes end where t * Pr[fewer than n of ALL tokens arrived by t] falls below this."""


def _step(num_draws: int) -> float:
    # The count of arrivals passes n within a factor of exp(1/sqrt(n)) in t, which the step has to
    # resolve. Measured against finer steps and exact enumeration: at most 4e-15 for n up to 64.
    return 0.2 * math.sqrt(8.0 / max(num_draws, 8))


@njit(cache=True)
def _node(s: float) -> tuple[float, float]:
    """Time and weight (without the step) of the node at s."""
    t = math.exp(s - math.exp(-s))
    return t, t * (1.0 + math.exp(-s))


@njit(cache=True)
def _arrive(counts: FloatArray, x: float) -> None:
    """Update the truncated law of the number of arrivals by one token with ``x = q_i t``."""
    stay = math.exp(-x)
    come = -math.expm1(-x)
    for k in range(len(counts) - 1, 0, -1):
        counts[k] = counts[k] * stay + counts[k - 1] * come
    counts[0] *= stay


@njit(cache=True)
def _prefix_hits(weights: FloatArray, num_draws: int, step: float) -> FloatArray:
    size = len(weights)
    prefix = np.zeros(size + 1)
    for k in range(size):
        prefix[k + 1] = prefix[k] + weights[k]
    hits = np.zeros(size + 1)
    counts = np.zeros(num_draws)
    s = _LOWEST_NODE
    while True:
        t, weight = _node(s)
        counts[:] = 0.0
        counts[0] = 1.0
        fewer = 1.0
        hits[size] += weight * prefix[size] * math.exp(-prefix[size] * t)
        for k in range(size - 1, -1, -1):
            if weights[k] > 0.0:
                _arrive(counts, weights[k] * t)
                fewer = counts.sum()
            hits[k] += weight * prefix[k] * math.exp(-prefix[k] * t) * fewer
        if t > 1.0 and t * fewer < _NEGLIGIBLE:
            break
        s += step
    hits *= step
    # With fewer than n tokens of positive weight behind it, a prefix cannot be missed.
    behind = 0
    for k in range(size, 0, -1):
        hits[k] = min(hits[k], 1.0)
        if behind < num_draws:
            hits[k] = 1.0
        if weights[k - 1] > 0.0:
            behind += 1
    hits[0] = 0.0
    return hits


@njit(cache=True)
def _token_hits(weights: FloatArray, num_draws: int, step: float) -> FloatArray:
    size = len(weights)
    hits = np.zeros(size)
    before = np.zeros((size, num_draws))
    counts = np.zeros(num_draws)
    s = _LOWEST_NODE
    while True:
        t, weight = _node(s)
        counts[:] = 0.0
        counts[0] = 1.0
        for i in range(size):
            before[i] = counts
            _arrive(counts, weights[i] * t)
        fewer = counts.sum()
        # From here on `counts` is the law of the arrivals among the tokens behind i.
        counts[:] = 0.0
        counts[0] = 1.0
        for i in range(size - 1, -1, -1):
            others_fewer = 0.0
            behind = 0.0
            for b in range(num_draws):
                behind += counts[b]
                others_fewer += before[i, num_draws - 1 - b] * behind
            rate = weights[i]
            hits[i] += weight * rate * math.exp(-rate * t) * others_fewer
            _arrive(counts, rate * t)
        if t > 1.0 and t * fewer < _NEGLIGIBLE:
            break
        s += step
    return np.minimum(hits * step, 1.0)


def prefix_hits(weights: FloatArray, num_draws: int) -> FloatArray:
    """Probability that n draws without replacement meet each prefix.

    Parameters
    ----------
    weights : ndarray, shape (V,)
        Weights >= 0 summing to 1, in the order whose prefixes are asked for; at least `num_draws`
        of them positive.
    num_draws : int
        n >= 1.

    Returns
    -------
    ndarray, shape (V + 1,)
        Entry k is the probability that some draw is among the first k.

    Notes
    -----
    O(V n M) operations for M nodes (about 60; more where one weight holds nearly all the mass) and
    O(V + n) memory.

    Examples
    --------
    >>> import numpy as np
    >>> prefix_hits(np.array([0.2, 0.5, 0.3]), 2).round(6).tolist()
    [0.0, 0.485714, 1.0, 1.0]
    """
    return _prefix_hits(np.ascontiguousarray(weights), num_draws, _step(num_draws))


def token_hits(weights: FloatArray, num_draws: int) -> FloatArray:
    """Probability that n draws without replacement contain each token.

    Parameters
    ----------
    weights : ndarray, shape (V,)
        Weights >= 0 summing to 1, at least `num_draws` of them positive.
    num_draws : int
        n >= 1.

    Returns
    -------
    ndarray, shape (V,)
        The inclusion probabilities; they sum to n.

    Notes
    -----
    The others' arrivals are the convolution of the counts before a token and behind it, so nothing
    is divided out. O(V n M) operations, O(V n) memory.

    Examples
    --------
    >>> import numpy as np
    >>> token_hits(np.array([0.2, 0.5, 0.3]), 2).round(6).tolist()
    [0.485714, 0.825, 0.689286]
    """
    return _token_hits(np.ascontiguousarray(weights), num_draws, _step(num_draws))
