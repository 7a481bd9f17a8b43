"""A lottery for one position, from the law of its drafts to the masses of a group, all compiled.

What the searches of plans, batches and studies share where a gap of 1e-3 will do.
"""

from __future__ import annotations

import numpy as np

from solvers._compiled import compiled
from solvers._typing import FloatArray, IntArray
from solvers.group_selection import (
    GroupSelection,
    find_groups,
    find_masses,
    select_drafts,
    spread_selection,
)
from solvers.grouped_law import (
    GroupedLaw,
    group_certain,
    group_draws,
    group_independent,
    join_parts,
)
from solvers.order_search import FoundOrders


@compiled(nogil=True)
def draw_orders(weights: FloatArray, uniforms: FloatArray) -> tuple[IntArray, FloatArray]:
    """Draw an order for each number, and give what is left of the number: uniform again.

    Parameters
    ----------
    weights : ndarray, shape (K,)
        Probabilities of the orders.
    uniforms : ndarray, shape (B,)
        In [0, 1).

    Returns
    -------
    tuple of (ndarray of int64, ndarray), shapes (B,) and (B,)
    """
    orders, left = np.empty(len(uniforms), dtype=np.int64), np.empty(len(uniforms))
    total = weights.sum()
    for row in range(len(uniforms)):
        goal, reached, place = uniforms[row] * total, 0.0, 0
        while place < len(weights) - 1 and reached + weights[place] <= goal:
            reached += weights[place]
            place += 1
        orders[row] = place
        left[row] = min(max((goal - reached) / weights[place], 0.0), 1.0)
    return orders, left


@compiled(nogil=True)
def group_parts(
    target_masses: FloatArray,
    probs: FloatArray,
    num_drafts: int,
    top: IntArray,
    without: bool,
    count: int,
) -> GroupedLaw:
    """Group the tokens of certain drafts and of draws beside them, for a fast search.

    Parameters
    ----------
    target_masses : ndarray, shape (V,)
    probs : ndarray, shape (n, V)
        Laws of independent draws; or one row, of draws without replacement.
    num_drafts : int
        Draws beside the certain tokens.
    top : ndarray of int64, shape (m,)
        The certain tokens, ascending; `probs` have no mass there.
    without : bool
        Whether draws are without replacement.
    count : int
        About how many tokens stand alone, and most groups of the others; in each part.
    """
    if num_drafts == 0:
        return group_certain(target_masses, top)
    if without and num_drafts > 1:
        drawn = group_draws(target_masses, probs[0], num_drafts, count, count)
    else:
        drawn = group_independent(target_masses, probs, num_drafts, count, count)
    return join_parts(group_certain(target_masses, top), drawn) if len(top) else drawn


@compiled(nogil=True)
def spread_parts(
    selection: GroupSelection, law: GroupedLaw, target_masses: FloatArray, probs: FloatArray
) -> FloatArray:
    """Give the mass with which each token, (V,), is selected and kept."""
    selected = np.zeros(len(target_masses))
    for part in range(len(law.kinds)):
        spread_selection(law, selection, part, target_masses, probs, selected)
    return selected


@compiled(nogil=True)
def select_one(
    found: FoundOrders,
    selection: GroupSelection,
    law: GroupedLaw,
    target_masses: FloatArray,
    probs: FloatArray,
    ids: IntArray,
    uniform: float,
) -> tuple[int, float]:
    """Select one of the drafts of a position, and give the chance that it is accepted.

    Parameters
    ----------
    found, selection, law : FoundOrders, GroupSelection, GroupedLaw
    target_masses, probs
        As for `group_parts`.
    ids : ndarray of int64, shape (n,)
    uniform : float
        In [0, 1).

    Returns
    -------
    tuple of (int, float)
    """
    groups = np.full(len(ids), -1, dtype=np.int64)
    for part in range(len(law.kinds)):
        find_groups(law, part, ids, target_masses, probs, groups)
    places, left = draw_orders(found.weights, np.array([uniform]))
    place = select_drafts(found.orders, places, groups.reshape((1, len(ids))), left)[0]
    own, group = ids[place : place + 1], groups[place : place + 1]
    kept, chances = np.zeros(1), np.ones(1)
    for part in range(len(law.kinds)):
        find_masses(law, selection, part, own, group, probs, kept, chances)
    target = target_masses[own[0]]
    passed = min(target / kept[0], 1.0) if kept[0] > 0.0 else 1.0
    return int(own[0]), chances[0] * (passed if target > 0.0 else 0.0)
