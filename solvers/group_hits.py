"""Probability that some draft is in the first groups of an order.

Of draws without replacement by the arrival form of `solvers.hitting`, the truncated law of the
number of arrivals kept for every group at every node in time: a group joins those behind it by one
convolution, however many tokens it holds.
"""

from __future__ import annotations

import math

import numpy as np

from ._compiled import compiled
from ._typing import FloatArray, IntArray
from .grouped_law import CERTAIN, INDEPENDENT, GroupedLaw, part_of

_STRETCH = 32
"""Groups handled between two fresh exponentials; each product in between rounds once."""


@compiled(nogil=True, fastmath={"reassoc", "contract", "arcp"})
def join_group(behind: FloatArray, counts: FloatArray, g: int, single: bool) -> None:
    """Let group g, with arrivals ``counts[g]``, join the set whose arrivals `behind` counts."""
    num_draws, width = behind.shape
    for j in range(num_draws - 1, 0, -1):
        for m in range(width):
            behind[j, m] = behind[j, m] * counts[g, 0, m] + behind[j - 1, m] * counts[g, 1, m]
        if not single:
            for k in range(2, j + 1):
                for m in range(width):
                    behind[j, m] += behind[j - k, m] * counts[g, k, m]
    for m in range(width):
        behind[0, m] *= counts[g, 0, m]


@compiled(nogil=True)
def reach_groups(
    order: IntArray, masses: FloatArray, times: FloatArray, weights: FloatArray, counts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mass ahead of each group; weight of each node times the chance that none of it has arrived.

    That none has arrived is as likely as ``exp(-mass * t)``; most of those are had as products.
    """
    size, width = len(order), len(times)
    ahead, reach = np.empty(size), np.empty((size, width))
    mass = 0.0
    for k in range(size):
        ahead[k] = mass
        if k % _STRETCH == 0:
            for m in range(width):
                reach[k, m] = weights[m] * math.exp(-mass * times[m])
        else:
            for m in range(width):
                reach[k, m] = reach[k - 1, m] * counts[order[k - 1], 0, m]
        mass += masses[order[k]]
    return ahead, reach


@compiled(nogil=True, fastmath={"reassoc", "contract", "arcp"})
def _hits_of_draws(
    order: IntArray,
    masses: FloatArray,
    powers: FloatArray,
    times: FloatArray,
    weights: FloatArray,
    counts: FloatArray,
    hits: FloatArray,
) -> None:
    size, num_draws, width = counts.shape
    ahead, reach = reach_groups(order, masses, times, weights, counts)
    hits[0] = 0.0
    hits[size] = 1.0
    behind = np.zeros((num_draws, width))
    behind[0] = 1.0
    for k in range(size - 1, 0, -1):
        join_group(behind, counts, order[k], powers[order[k], 1] == 0.0)
        total = 0.0
        for j in range(num_draws):
            for m in range(width):
                total += reach[k, m] * behind[j, m]
        hits[k] = min(1.0, ahead[k] * total)


@compiled(nogil=True)
def _hits_of_independent(order: IntArray, masses: FloatArray, hits: FloatArray) -> None:
    """Sum up the chances that some draw is of each group and none stands before it.

    Such a chance grows draw by draw, by positive terms: the draws so far were all behind the group,
    and this one is of it; or one of them was of it already, and this one is of it or behind it.
    """
    size, num_draws = masses.shape
    behind = np.zeros(num_draws)
    for k in range(size - 1, -1, -1):
        all_behind, some_here = 1.0, 0.0
        for j in range(num_draws):
            mass = masses[order[k], j]
            some_here = some_here * (behind[j] + mass) + all_behind * mass
            all_behind *= behind[j]
            behind[j] += mass
        hits[k + 1] = some_here
    hits[0] = 0.0
    for k in range(size):
        hits[k + 1] = min(1.0, hits[k] + hits[k + 1])


@compiled(nogil=True)
def join_hits(
    part_of_place: IntArray, hits: FloatArray, starts: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Join the prefix hits of independent draws on disjoint tokens along one order of all of them.

    Parameters
    ----------
    part_of_place : ndarray of int64, shape (G,)
        To which part each place of the order belongs.
    hits : ndarray
        Prefix hits of each part along its own places, from 0 on, one part after the other.
    starts : ndarray of int64, shape (C,)
        Where those of each part begin.

    Returns
    -------
    tuple of (ndarray of shape (G + 1,), ndarray of shape (G,))
        The joint prefix hits, and at each place the chance that no other part was met before.
    """
    size, count = len(part_of_place), len(starts)
    reached, misses = starts.copy(), np.ones(count)
    joint, missed = np.zeros(size + 1), np.ones(size)
    for k in range(size):
        c = part_of_place[k]
        for other in range(count):
            if other != c:
                missed[k] *= misses[other]
        before, after = hits[reached[c]], hits[reached[c] + 1]
        joint[k + 1] = min(1.0, joint[k] + max(after - before, 0.0) * missed[k])
        misses[c] = max(1.0 - after, 0.0)
        reached[c] += 1
    return joint, missed


@compiled(nogil=True)
def hits_of_groups(order: IntArray, law: GroupedLaw) -> tuple[FloatArray, FloatArray]:
    """Probability that some draw is in the first k groups of an order.

    Parameters
    ----------
    order : ndarray of int64, shape (G,)
    law : GroupedLaw

    Returns
    -------
    tuple of (ndarray of shape (G + 1,), ndarray of shape (G,))
        The prefix hits, and at each place the chance that no other part meets a group before it.
    """
    size, count = len(order), len(law.kinds)
    part = part_of(order, law)
    own, hits = np.empty(size, dtype=np.int64), np.empty(size + count)
    for c in range(count):
        first, stop = law.firsts[c], law.firsts[c + 1]
        place = first
        for k in range(size):
            if part[k] == c:
                own[place] = order[k] - first
                place += 1
        mine = own[first:stop]
        found = hits[first + c : stop + c + 1]
        if law.kinds[c] == CERTAIN:
            found[0] = 0.0
            found[1:] = 1.0
            continue
        numbers = law.numbers[law.number_starts[c] : law.number_starts[c + 1]]
        if law.kinds[c] == INDEPENDENT:
            _hits_of_independent(mine, numbers.reshape((stop - first, law.draws[c])), found)
        else:
            _hits_of_draws(
                mine,
                law.rates[first:stop],
                law.powers[first:stop],
                law.times[law.time_starts[c] : law.time_starts[c + 1]],
                law.node_weights[law.time_starts[c] : law.time_starts[c + 1]],
                numbers.reshape(
                    (stop - first, law.draws[c], law.time_starts[c + 1] - law.time_starts[c])
                ),
                found,
            )
    if count == 1:
        return hits, np.ones(size)
    return join_hits(part, hits, law.firsts[:-1] + np.arange(count))
