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
from collections.abc import Iterator
from itertools import count

import numpy as np

from ._compiled import compiled
from ._typing import FloatArray, IntArray

_LOWEST_NODE = -3.75
"""s at the first node: everything below it weighs less than 1e-19."""

_NEGLIGIBLE = 1e-19 / 2.0**100
"""Nodes end where t * Pr[fewer than n of ALL tokens arrived by t] falls below this."""

MASS_SCALE = 2.0**100
"""Masses are multiplied, and times divided, by this, so that subnormal masses have a time too."""

_CERTAIN = 45.0
"""A token with q_i t above this has arrived by t: exp(-45) is below rounding."""

_LONG_WAIT = 600.0
"""Expected arrivals beyond which the chance of none sinks below the smallest number."""

_STRETCH = 64
"""Tokens whose expected arrivals are summed before they join those of the others."""

_BLOCK = 8
"""Nodes handled together, so that the compiler can use vector instructions."""


def _step(num_draws: int) -> float:
    # The count of arrivals passes n within a factor of exp(1/sqrt(n)) in t, which the step has to
    # resolve. Of 7,000 laws of two weights, 3 to 1e20 times each other, the worst relative error of
    # a hit was 2e-13 for n up to 64, and no more than that of 180 for n up to 250.
    return 0.2 * math.sqrt(8.0 / max(num_draws, 8))


@compiled()
def _node(s: float) -> tuple[float, float]:
    """Time and weight (without the step) of the node at s."""
    t = math.exp(s - math.exp(-s) - math.log(MASS_SCALE))
    return t, t * (1.0 + math.exp(-s))


@compiled()
def _arrive(counts: FloatArray, x: float) -> None:
    """Update the truncated law of the number of arrivals by one token with ``x = q_i t``."""
    stay = math.exp(-x)
    come = -math.expm1(-x)
    for k in range(len(counts) - 1, 0, -1):
        counts[k] = counts[k] * stay + counts[k - 1] * come
    counts[0] *= stay


@compiled(fastmath={"reassoc"})
def _start_stretch(weights: FloatArray, t: float) -> tuple[int, float]:
    certain, expected = 0, 0.0
    for weight in weights:
        x = weight * t
        certain += 1 if x > _CERTAIN else 0
        expected += 0.0 if x > _CERTAIN else x
    return certain, expected


@compiled()
def _start_node(weights: FloatArray, t: float) -> tuple[int, float]:
    """Count the tokens certain to have arrived by t, and expect arrivals among the others."""
    certain, expected = 0, 0.0
    # In stretches: exp magnifies what is lost where small terms are added to a large sum.
    for first in range(0, len(weights), _STRETCH):
        count, part = _start_stretch(weights[first : first + _STRETCH], t)
        certain += count
        expected += part
    return certain, expected


@compiled(inline="always")
def _expm1_ratio(x: float) -> float:
    """``expm1(x) / x`` to the last digit for -1/8 <= x <= 1/8, without a call or a branch."""
    tail = 1.0 + x / 8.0 * (1.0 + x / 9.0 * (1.0 + x / 10.0))
    middle = 1.0 + x / 5.0 * (1.0 + x / 6.0 * (1.0 + x / 7.0 * tail))
    return 1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * middle))


@compiled(fastmath={"contract", "arcp"})
def arrival_chances(rate: float, times: FloatArray, stay: FloatArray, come: FloatArray) -> None:
    """Fill in the chances that a token has not arrived, and that it has, by each time."""
    if rate * times[-1] <= 0.125:
        for m in range(len(times)):
            x = rate * times[m]
            come[m] = x * _expm1_ratio(-x)
            stay[m] = 1.0 - come[m]
    else:
        for m in range(len(times)):
            stay[m] = math.exp(-rate * times[m])
            come[m] = -math.expm1(-rate * times[m])


@compiled(fastmath={"reassoc", "contract", "arcp"})
def _add_block(
    weights: FloatArray,
    num_draws: int,
    times: FloatArray,
    node_weights: FloatArray,
    certain: IntArray,
    expected: FloatArray,
    hits: FloatArray,
) -> float:
    """Add a block of nodes to the hits of every prefix; give Pr[< n of all arrived] at the last.

    ``counts[j, m]`` is Pr[no token of A and j tokens of H arrived by t_m]. When token i moves from
    A to H it grows by ``counts[j - 1, m] * expm1(q_i t_m)``: sums of positive terms throughout. A
    token certain to have arrived is taken as such, and its node counts from where it is in H. The
    chance of none among the others, ``exp(-expected[m])``, has to be a number at every node.
    """
    size, width = len(weights), len(times)
    latest = times[width - 1]
    # More than a few arrivals are out of reach while t is small, and their probabilities would
    # sink into slow subnormal numbers.
    at_most = latest * MASS_SCALE
    reach, chance = 1, at_most
    while reach < num_draws and chance > 1e-30:
        reach += 1
        chance *= at_most / reach
    counts = np.zeros((reach, width))
    pending = certain.copy()
    active = node_weights.copy()
    growth = np.empty(width)
    for m in range(width):
        if certain[m] < reach:
            counts[certain[m], m] = math.exp(-expected[m])
        if certain[m] > 0:
            active[m] = 0.0
    for k in range(size - 1, -1, -1):
        weight = weights[k]
        if weight > 0.0:
            if weight * latest <= 0.125:
                for m in range(width):
                    x = weight * times[m]
                    growth[m] = x * _expm1_ratio(x)
            else:
                for m in range(width):
                    x = weight * times[m]
                    if x <= _CERTAIN:
                        growth[m] = math.expm1(x)
                    else:
                        growth[m] = 0.0
                        pending[m] -= 1
                        if pending[m] == 0:
                            active[m] = node_weights[m]
            for j in range(reach - 1, 0, -1):
                for m in range(width):
                    counts[j, m] += counts[j - 1, m] * growth[m]
        total = 0.0
        for j in range(reach):
            for m in range(width):
                total += active[m] * counts[j, m]
        hits[k] += total
    return counts[:, width - 1].sum()


@compiled()
def add_node(
    weights: FloatArray,
    masses: FloatArray,
    counts: FloatArray,
    t: float,
    node_weight: float,
    hits: FloatArray,
) -> None:
    """Add one node, with the counts of H and the wait for A kept apart.

    For where the chance that nothing has arrived is no number any more: with hundreds of draws, or
    with more than a dozen tokens that are all but certain to have arrived.

    Parameters
    ----------
    weights, masses : ndarray, shapes (V,) and (V + 1,)
        Of each token, and of each prefix.
    counts : ndarray, shape (n,)
        Law of the number of arrivals by t behind all of them; filled with that of all arrivals.
    t, node_weight : float
    hits : ndarray, shape (V + 1,)
        What is added to.
    """
    for k in range(len(weights), -1, -1):
        if k < len(weights) and weights[k] > 0.0:
            _arrive(counts, weights[k] * t)
        hits[k] += node_weight * math.exp(-masses[k] * t) * counts.sum()


@compiled()
def _prefix_hits(weights: FloatArray, num_draws: int, step: float) -> FloatArray:
    size = len(weights)
    hits, masses = np.zeros(size + 1), np.zeros(size + 1)
    masses[1:] = np.cumsum(weights)
    counts = np.empty(num_draws)
    times, node_weights = np.empty(_BLOCK), np.empty(_BLOCK)
    certain, expected = np.zeros(_BLOCK, dtype=np.int64), np.empty(_BLOCK)
    heaviest, total = weights.max(), _start_node(weights, 1.0 / MASS_SCALE)[1]
    s = _LOWEST_NODE
    while True:
        for m in range(_BLOCK):
            times[m], node_weights[m] = _node(s)
            expected[m] = times[m] * MASS_SCALE * total
            s += step
        latest = times[_BLOCK - 1]
        if heaviest * latest > _CERTAIN:
            for m in range(_BLOCK):
                certain[m], expected[m] = _start_node(weights, times[m])
        # Not at the latest node alone: what is certain there may be awaited at an earlier one.
        if expected.max() > _LONG_WAIT:
            for m in range(_BLOCK):
                counts[:] = 0.0
                counts[0] = 1.0
                add_node(weights, masses, counts, times[m], node_weights[m], hits)
            fewer = counts.sum()
        else:
            fewer = _add_block(weights, num_draws, times, node_weights, certain, expected, hits)
        if s > 1.0 and latest * fewer < _NEGLIGIBLE:
            break
    hits = np.minimum(hits * masses * step, 1.0)
    # With fewer than n tokens of positive weight behind it, a prefix cannot be missed.
    behind = 0
    for k in range(size, 0, -1):
        if behind == num_draws:
            break
        hits[k] = 1.0
        if weights[k - 1] > 0.0:
            behind += 1
    return hits


@compiled()
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
            hits[i] += weight * (rate * math.exp(-rate * t)) * others_fewer
            _arrive(counts, rate * t)
        if s > 1.0 and t * fewer < _NEGLIGIBLE:
            break
        s += step
    return np.minimum(hits * step, 1.0)


@compiled(fastmath={"reassoc", "contract", "arcp"})
def _add_mean_block(
    masses: FloatArray,
    weights: FloatArray,
    num_draws: int,
    times: FloatArray,
    node_weights: FloatArray,
) -> tuple[float, float]:
    """Sum a block of nodes of the mean hit, and give Pr[< n of all arrived] at the last of them.

    ``counts[j, m]`` is Pr[j of the tokens so far arrived by t_m], and ``means[j, m]`` the sum, over
    these tokens, of p_i times the rate at which i arrives at t_m with j others there: what becomes
    of `counts` if one factor of their product, each in turn, is exchanged.
    """
    width = len(times)
    counts, means = np.zeros((num_draws, width)), np.zeros((num_draws, width))
    counts[0] = 1.0
    stay, come = np.empty(width), np.empty(width)
    for i in range(len(weights)):
        weight = weights[i]
        if weight <= 0.0:
            continue
        arrival_chances(weight, times, stay, come)
        for j in range(num_draws - 1, 0, -1):
            for m in range(width):
                left = means[j, m] * stay[m] + means[j - 1, m] * come[m]
                means[j, m] = left + masses[i] * weight * stay[m] * counts[j, m]
                counts[j, m] = counts[j, m] * stay[m] + counts[j - 1, m] * come[m]
        for m in range(width):
            means[0, m] = (means[0, m] + masses[i] * weight * counts[0, m]) * stay[m]
            counts[0, m] *= stay[m]
    total = 0.0
    for j in range(num_draws):
        for m in range(width):
            total += node_weights[m] * means[j, m]
    return total, counts[:, width - 1].sum()


@compiled()
def _mean_token_hit(masses: FloatArray, weights: FloatArray, num_draws: int, step: float) -> float:
    times, node_weights = np.empty(_BLOCK), np.empty(_BLOCK)
    total, s = 0.0, _LOWEST_NODE
    while True:
        for m in range(_BLOCK):
            times[m], node_weights[m] = _node(s)
            s += step
        part, fewer = _add_mean_block(masses, weights, num_draws, times, node_weights)
        total += part
        if s > 1.0 and times[_BLOCK - 1] * fewer < _NEGLIGIBLE:
            return total * step


def arrival_nodes(num_draws: int, width: int) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Give times and weights of nodes, `width` at a time, without end.

    Masses are to be multiplied by `MASS_SCALE`; `is_last_node` says where to stop.
    """
    step = _step(num_draws)
    for first in count(step=width):
        nodes = [_node(_LOWEST_NODE + step * k) for k in range(first, first + width)]
        times, node_weights = np.array(nodes).T
        yield np.ascontiguousarray(times), node_weights * step


def is_last_node(time: float, fewer: float) -> bool:
    """Tell whether nodes may end at a time by which fewer than n of all tokens have that chance."""
    return time > 2.0 / MASS_SCALE and time * fewer < _NEGLIGIBLE


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
    return _prefix_hits(weights * MASS_SCALE, num_draws, _step(num_draws))


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
    [0.485714, 0.839286, 0.675]
    """
    return _token_hits(weights * MASS_SCALE, num_draws, _step(num_draws))


def mean_token_hit(masses: FloatArray, weights: FloatArray, num_draws: int) -> float:
    """Probability that n draws without replacement contain a token that is drawn by itself.

    Parameters
    ----------
    masses : ndarray, shape (V,)
        Probabilities p of that token.
    weights : ndarray, shape (V,)
        Weights >= 0 of the draws, summing to 1, at least `num_draws` of them positive.
    num_draws : int
        n >= 1.

    Returns
    -------
    float
        ``sum p_i f({i})`` with f the inclusion probabilities that `token_hits` gives.

    Notes
    -----
    One pass over the tokens instead of two, without the inclusion probabilities: O(V n M)
    operations, O(n) memory.

    Examples
    --------
    >>> import numpy as np
    >>> round(mean_token_hit(np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3]), 2), 6)
    0.629643
    """
    return _mean_token_hit(masses, weights * MASS_SCALE, num_draws, _step(num_draws))
