"""The search for a lottery over orders of groups, in one compiled function.

Wolfe's algorithm as in `solvers.polymatroid`, for a few orders of a few hundred groups and a gap
that need not be smaller than 1e-5 or so: the affine minimiser comes from the Gram matrix.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._compiled import compiled
from ._typing import BoolArray, FloatArray, IntArray
from .group_hits import hits_of_groups
from .grouped_law import GroupedLaw

_TINY = 1e-300

_DROP = 1e-12
"""Weights of orders below this are dropped; the rest is renormalised."""

_DEPENDENT = 1e-11
"""An order whose vertex is dependent on the others to that degree ends the search."""


class FoundOrders(NamedTuple):
    """A lottery over orders of G groups.

    Attributes
    ----------
    orders : ndarray of int32, shape (K, G)
    weights : ndarray, shape (K,)
        Their probabilities, all positive.
    attained : float
        ``sum min(p, m^)`` over groups.
    upper : float
        Least value of subset selection seen.
    subset : ndarray of bool, shape (G,)
        The H that gives it.
    iterations : int
        Orders evaluated.
    """

    orders: NDArray[np.int32]
    weights: FloatArray
    attained: float
    upper: float
    subset: BoolArray
    iterations: int


@compiled(nogil=True)
def _affine_minimiser(gram: FloatArray, alive: IntArray) -> tuple[bool, FloatArray]:
    """Weights, summing to 1, of the point of least norm in the affine hull; False where not found.

    Those of ``(gram + 1) y = 1``, by Cholesky's method: it fails only if vertices are dependent.
    """
    count = len(alive)
    lower, y = np.zeros((count, count)), np.ones(count)
    for i in range(count):
        for j in range(i + 1):
            total = gram[alive[i], alive[j]] + 1.0
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            if i > j:
                lower[i, j] = total / lower[j, j]
            elif total > _DEPENDENT * (gram[alive[i], alive[i]] + 1.0):
                lower[i, i] = math.sqrt(total)
            else:
                return False, y
    for i in range(count):
        for k in range(i):
            y[i] -= lower[i, k] * y[k]
        y[i] /= lower[i, i]
    for i in range(count - 1, -1, -1):
        for k in range(i + 1, count):
            y[i] -= lower[k, i] * y[k]
        y[i] /= lower[i, i]
    return True, y / y.sum()


@compiled(nogil=True)
def _descend(gram: FloatArray, weights: FloatArray, alive: IntArray, count: int) -> int:
    """Move to the point of least norm in the hull of `count` vertices; give how many are left.

    The vertices that lose their weight leave `weights` and `alive`, where the others move up. 0
    where the point cannot be found.
    """
    while True:
        found, goal = _affine_minimiser(gram, alive[:count])
        if not found:
            return 0
        step, blocking = 1.0, -1
        for k in range(count):
            if goal[k] <= _DROP:
                drop = weights[k] - goal[k]
                ratio = weights[k] / drop if drop > 0.0 else 0.0
                if blocking < 0 or ratio < step:
                    step, blocking = min(ratio, 1.0), k
        if blocking < 0:
            weights[:count] = goal
            return count
        total, kept = 0.0, 0
        for k in range(count):
            moved = weights[k] + step * (goal[k] - weights[k])
            if k != blocking and moved > _DROP:
                weights[kept], alive[kept] = moved, alive[k]
                total += moved
                kept += 1
        count = kept
        weights[:count] /= total


@compiled(inner=True)
def _sort(keys: FloatArray, order: IntArray) -> None:
    """Sort places by falling keys, inserting one by one: an order changes little from the last."""
    for i in range(1, len(order)):
        moving, place = order[i], i
        key = keys[moving]
        while place > 0 and keys[order[place - 1]] < key:
            order[place] = order[place - 1]
            place -= 1
        order[place] = moving


@compiled(nogil=True)
def _least_cut(order: IntArray, hits: FloatArray, targets: FloatArray) -> tuple[float, int]:
    """Least value of subset selection among the prefixes of an order, and the length of that."""
    behind, cut, shortest = 0.0, np.inf, len(order)
    for k in range(len(order), -1, -1):
        value = behind + hits[k]
        if value < cut:
            cut, shortest = value, k
        if k > 0:
            behind += targets[order[k - 1]]
    return cut, shortest


@compiled(nogil=True)
def search_orders(law: GroupedLaw, coarse: GroupedLaw, tolerance: float, limit: int) -> FoundOrders:
    """Find a lottery over orders of the groups whose acceptance is close to the optimum.

    Parameters
    ----------
    law, coarse : GroupedLaw
        With all nodes in time, and with those by which orders are compared.
    tolerance : float
        Gap at which the search ends.
    limit : int
        Most orders to evaluate.

    Returns
    -------
    FoundOrders
        The best that was seen.
    """
    targets = law.targets
    size = len(targets)
    likely = np.minimum(law.likely, 1.0)
    scale = np.maximum(np.maximum(targets, likely), 1e-20) ** -0.375
    vertices, points = np.empty((limit, size)), np.empty((limit, size))
    orders = np.empty((limit, size), dtype=np.int32)
    gram = np.empty((limit, limit))
    alive, weights = np.empty(limit, dtype=np.int64), np.empty(limit)
    best_alive, best_weights, attained = alive[:0], weights[:0], -1.0
    upper = np.inf
    count, used = 0, 0
    order = np.arange(size)
    _sort(targets / np.maximum(law.likely, _TINY), order)
    cut_order = order.copy()
    while used < limit:
        hits, _ = hits_of_groups(order, coarse)
        cut, _ = _least_cut(order, hits, targets)
        if cut < upper:
            upper = cut
            cut_order[:] = order
        for k in range(size):
            g = order[k]
            vertices[used, g] = max(hits[k + 1] - hits[k], 0.0)
            points[used, g] = (vertices[used, g] - targets[g]) * scale[g]
        orders[used] = order
        alive[count] = used
        weights[count] = 0.0 if count else 1.0
        count += 1
        for k in range(count):
            product = (points[alive[k]] * points[used]).sum()
            gram[alive[k], used] = product
            gram[used, alive[k]] = product
        used += 1
        if count > 1:
            count = _descend(gram, weights, alive, count)
            if count == 0:
                break
        mixed = np.zeros(size)
        for k in range(count):
            mixed += weights[k] * vertices[alive[k]]
        value = np.minimum(mixed, targets).sum()
        if value > attained:
            attained = value
            best_alive, best_weights = alive[:count].copy(), weights[:count].copy()
        if upper - attained <= tolerance:
            break
        _sort((targets - mixed) * scale**2, order)
    upper, shortest = _least_cut(cut_order, hits_of_groups(cut_order, law)[0], targets)
    subset = np.ones(size, dtype=np.bool_)
    subset[cut_order[:shortest]] = False
    return FoundOrders(orders[best_alive], best_weights, attained, upper, subset, used)
