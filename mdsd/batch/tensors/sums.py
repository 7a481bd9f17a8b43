"""Selection by group on the host, where only the sums of the groups have come to the host."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mdsd._solvers.arrivals import tabulate_sums
from mdsd._solvers.group_selection import draw_orders, find_masses, select_drafts, select_groups
from mdsd._solvers.grouped_law import GroupedLaw, law_of_draws, with_fewer_nodes
from mdsd._solvers.hitting import MASS_SCALE
from mdsd._solvers.marks import FEWEST_GROUPS, couple_buckets, couple_tokens, select_smallest
from mdsd._solvers.order_search import FoundOrders, search_orders
from mdsd._solvers.polymatroid import OrderLottery
from mdsd._solvers.ratio_groups import place_among
from mdsd._solvers.token_lottery import FAST, FEW, minimum_norm_orders
from mdsd._typing import FloatArray, IntArray


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
            groups[0] = np.searchsorted(few, rows.draft_places[r])
        else:
            marks = couple_buckets(rows.sums[r].T.copy(), count, tolerance)
            table = marks.groups.table
            found.ratios[r] = np.where(table >= 0, marks.slopes[table], 0.0)
            groups[0] = table[rows.draft_keys[r]]
        place = select_smallest(marks.coupling, groups, uniforms[r : r + 1])[0]
        selected = rows.draft_masses[r, place] * marks.slopes[groups[0, place]]
        found.places[r] = place
        found.chances[r] = _accept_prob(rows.draft_targets[r, place], selected)


def law_of_row(rows: SumRows, r: int, num_singles: int, num_buckets: int) -> GroupedLaw:
    """Group the tokens of a row of drafts without replacement; places listed stand for tokens."""
    count = rows.draft_keys.shape[1]
    groups, targets, tables = tabulate_sums(
        rows.sums[r].T.copy(),
        rows.targets[r],
        rows.masses[r],
        rows.keys[r],
        rows.live[r],
        rows.rests[r],
        count,
        num_singles,
        num_buckets,
    )
    return law_of_draws(groups, targets, tables, count)


def select_by_lottery(
    rows: SumRows,
    r: int,
    law: GroupedLaw,
    orders: NDArray[np.int32],
    weights: FloatArray,
    uniforms: FloatArray,
    found: SelectedRows,
) -> None:
    """Select a draft of a row by a lottery over orders, as `mdsd.verifiers.lottery` does.

    Parameters
    ----------
    rows : SumRows
    r : int
        Which row.
    law : GroupedLaw
        That of `law_of_row`.
    orders, weights : ndarray, shapes (K, G) and (K,)
        The lottery.
    uniforms : ndarray, shape (3,)
        The order and the draft of its first group, the accept test, the residual.
    found : SelectedRows
        The row is filled in.
    """
    count, own = rows.draft_keys.shape[1], found.own[r]
    selection = select_groups(orders, weights, law, -1)
    ratios = selection.shares * MASS_SCALE
    own[:] = -1.0
    own[law.singles] = ratios[: len(law.singles)]
    table = law.tables[0]
    found.ratios[r] = np.where(table >= 0, ratios[table], 0.0)
    groups = np.empty((1, count), dtype=np.int64)
    for k, place in enumerate(rows.draft_places[r].tolist()):
        single = place_among(law.singles, place) if place >= 0 else -1
        groups[0, k] = single if single >= 0 else table[rows.draft_keys[r, k]]
    order, left = draw_orders(weights, uniforms[:1])
    place = int(select_drafts(orders, order, groups, left)[0])
    kept, chances = np.zeros(count), np.ones(count)
    masses = rows.draft_masses[r : r + 1]
    find_masses(law, selection, 0, np.arange(count), groups[0], masses, kept, chances)
    found.places[r] = place
    accepted = _accept_prob(rows.draft_targets[r, place], kept[place])
    found.chances[r] = chances[place] * accepted


def select_by_orders(
    rows: SumRows,
    uniforms: FloatArray,
    tolerance: float,
    found: SelectedRows,
    start: int,
    stop: int,
) -> None:
    """Select among drafts without replacement, as the fast plan of `mdsd.verifiers.lottery` does.

    Parameters
    ----------
    rows : SumRows
        With the sums that `solvers.arrivals.tabulate_sums` takes.
    uniforms : ndarray, shape (B, 3)
    tolerance : float
        Gap at which a search ends, if that is more than a fast one wants anyway.
    found : SelectedRows
        Filled for the rows ``start .. stop - 1``.
    start, stop : int
    """
    for r in range(start, stop):
        law = law_of_row(rows, r, FAST.groups, FAST.groups)
        lottery: OrderLottery | FoundOrders
        if len(law.targets) <= FEW and not (law.powers[:, 1] > 0.0).any():
            lottery = minimum_norm_orders(law, tolerance, None)
        else:
            coarse = with_fewer_nodes(law, FAST.every)
            lottery = search_orders(law, coarse, max(tolerance, FAST.tolerance), FAST.limit)
        select_by_lottery(rows, r, law, lottery.orders, lottery.weights, uniforms[r], found)


def _accept_prob(wanted: float, selected: float) -> float:
    if not wanted > 0.0:
        return 0.0
    return wanted / selected if wanted < selected else 1.0
