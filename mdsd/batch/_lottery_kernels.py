"""The optimal verifier of draws without replacement, independent and hybrid drafts, row by row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.batch._kernels import pairwise_sum
from mdsd.rules.kernels import find_residual
from solvers._compiled import compiled
from solvers.fast_lottery import group_parts, select_one, spread_parts
from solvers.group_selection import GroupSelection, select_groups
from solvers.grouped_law import GroupedLaw
from solvers.order_search import FoundOrders, search_orders


class LotteryKind(NamedTuple):
    """What is drafted, and how long to search: `solvers.token_lottery.Effort`.

    Attributes
    ----------
    num_drafts, num_top : int
        All drafts, and the most likely tokens that are certain to be among them.
    without : bool
        Whether the others are drawn without replacement.
    groups : int
        About how many tokens of each part stand alone, and most groups of others.
    few : int
        So many groups are for plans, which search them to the last digit.
    gap : float
        At which a search ends.
    limit, every : int
        Its most orders; of how many nodes in time one is looked at.
    """

    num_drafts: int
    num_top: int
    without: bool
    groups: int
    few: int
    gap: float
    limit: int
    every: int


@compiled(inner=True)
def _most_likely(probs: FloatArray, count: int) -> IntArray:
    """Ids of the largest entries, ties to the lowest id, ascending."""
    top = np.empty(count, dtype=np.int64)
    for k in range(count):
        best = -1
        for i in range(len(probs)):
            if best < 0 or probs[i] > probs[best]:
                known = False
                for other in range(k):
                    known = known or top[other] == i
                if not known:
                    best = i
        top[k] = best
    return np.sort(top)


@compiled(inner=True, error_model="numpy")
def _split(probs: FloatArray, num_top: int) -> IntArray:
    """Take the most likely tokens out of a law, which becomes that of the others."""
    top = _most_likely(probs, num_top)
    for token in top:
        probs[token] = 0.0
    # As the draft distribution does, and again as its tail: to the last digit.
    for _ in range(2):
        mass = pairwise_sum(probs)
        for i in range(len(probs)):
            probs[i] /= mass
    return top


@compiled(nogil=True, error_model="numpy")
def find_row(
    kind: LotteryKind, p: FloatArray, probs: FloatArray
) -> tuple[bool, GroupedLaw, FoundOrders, GroupSelection]:
    """Search the lottery of one row; `probs`, (models, V), become those of the tail.

    False where there are so few groups that a plan has to search them.
    """
    top = np.empty(0, dtype=np.int64)
    if kind.num_top > 0:
        top = _split(probs[0], kind.num_top)
    drawn = kind.num_drafts - kind.num_top
    law = group_parts(p, probs, drawn, top, kind.without, kind.groups)
    wanted = len(law.targets) > kind.few
    found = search_orders(law, kind.gap, kind.limit if wanted else 1, kind.every)
    return wanted, law, found, select_groups(found.orders, found.weights, law)


@compiled(nogil=True, error_model="numpy")
def verify_lottery_rows(
    kind: LotteryKind,
    target: AnyArray,
    target_masses: FloatArray,
    drafted: AnyArray,
    drafted_masses: FloatArray,
    ids: IntArray,
    uniforms: FloatArray,
    tokens: IntArray,
    start: int,
    stop: int,
) -> None:
    """Search a lottery for each row, select by it and thin to the target.

    Parameters
    ----------
    kind : LotteryKind
    target : ndarray of float64 or float32, shape (B, V)
        Unnormalised rows.
    drafted : ndarray of the same type, shape (B models, V)
        Those of the draft models of a row stand together.
    target_masses, drafted_masses : ndarray
        Their masses.
    ids : ndarray of int64, shape (B, n)
        Drafts that can have been drawn.
    uniforms : ndarray, shape (B, 3)
        The selection, the accept test, the residual.
    tokens : ndarray of int64, shape (B,)
        Filled for the rows ``start .. stop - 1`` with the emitted token; -1 where there are so few
        groups that a plan has to search them.
    start, stop : int
    """
    size, models = target.shape[1], len(drafted) // len(target)
    p, probs = np.empty(size), np.empty((models, size))
    for r in range(start, stop):
        for i in range(size):
            p[i] = target[r, i] / target_masses[r]
        for j in range(models):
            row = r * models + j
            for i in range(size):
                probs[j, i] = drafted[row, i] / drafted_masses[row]
        wanted, law, found, selection = find_row(kind, p, probs)
        if not wanted:
            continue
        token, chance = select_one(found, selection, law, p, probs, ids[r], uniforms[r, 0])
        if uniforms[r, 1] < chance:
            tokens[r] = token
        else:
            tokens[r] = find_residual(p, spread_parts(selection, law, p, probs), uniforms[r, 2])


@compiled(nogil=True, error_model="numpy")
def lottery_rate(kind: LotteryKind, p: FloatArray, probs: FloatArray) -> float:
    """Search the lottery of one row, and add up what it accepts; NaN where a plan has to search."""
    wanted, law, _, selection = find_row(kind, p, probs)
    if not wanted:
        return np.nan
    return float(min(np.minimum(p, spread_parts(selection, law, p, probs)).sum(), 1.0))
