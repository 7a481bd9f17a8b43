"""Optimal selection for every draft distribution: a lottery over priority orders."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from mdsd._frozen import frozen
from mdsd._random import find_tokens
from mdsd._typing import FloatArray, IntArray
from mdsd.bounds import find_lottery
from mdsd.drafts import DraftDistribution
from mdsd.rules.accepting import accept_probs
from mdsd.verifiers.base import SelectionPlan

_MOST_RANKS = 1_000_000
"""Ranks that are held at once: 8 MB."""


class LotteryPlan(SelectionPlan):
    """Draw a priority order, select the drafted token that comes first in it, thin to the target.

    Uniforms: the order, the accept test, the residual.

    Attributes
    ----------
    weights : ndarray of float64, shape (2 K,)
        Probability of each order of the tokens: entries 2 k and 2 k + 1 are the k-th order of the
        groups, with the tokens of each group as they stand and in reverse.

    Notes
    -----
    The lottery is the minimum-norm point of the base polytope of f - p (`solvers.polymatroid`),
    over orders of groups of tokens in large vocabularies (`solvers.token_lottery`). Lossless
    wherever the search stopped; `gap` says how far from the optimum that was. A verification that
    accepts needs the selection mass of one token; the first that does not, and whatever describes
    the plan as a whole, costs a pass over all tokens, once.

    Memory at 128,000 tokens: 11 arrays of that length for 4 draws without replacement, 14 while the
    gap is certified; 14 and 23 for 3 independent drafts, their own among them.
    """

    canonical = False
    num_uniforms = 3

    def __init__(
        self,
        target_probs: FloatArray,
        draft: DraftDistribution,
        *,
        tolerance: float,
        max_iterations: int | None,
        fast: bool = False,
    ) -> None:
        super().__init__(target_probs, draft)
        self._lottery = find_lottery(
            target_probs, draft, tolerance=tolerance, max_iterations=max_iterations, fast=fast
        )
        groups, orders = self._lottery.groups, self._lottery.orders
        self.weights = frozen(np.repeat(self._lottery.weights / 2.0, 2))
        self._weight_sums = frozen(np.cumsum(self.weights))
        ranks = np.empty_like(orders)
        places = np.broadcast_to(np.arange(len(groups), dtype=ranks.dtype), ranks.shape)
        np.put_along_axis(ranks, orders, places, axis=1)
        self._group_ranks = frozen(ranks)

    @cached_property
    def selected(self) -> FloatArray:  # noqa: D102
        return frozen(self._lottery.selected)

    @property
    def upper(self) -> float:  # noqa: D102
        return self._lottery.upper

    @property
    def selected_at_hand(self) -> bool:  # noqa: D102
        return "selected" in vars(self) or bool(self._lottery.groups.single.all())

    def selected_of(self, token: int) -> float:  # noqa: D102
        return self._lottery.selected_of(token)

    def _chances_of(self, tokens: IntArray) -> FloatArray:
        if len(tokens) > 1 or "chances" in vars(self):
            return super()._chances_of(tokens)
        selected = np.array([self.selected_of(token) for token in tokens.tolist()])
        return accept_probs(self.target_probs[tokens], selected)

    def _ranks(self, order: IntArray, ids: IntArray) -> IntArray:
        """Rank of each token of ids (B, n) in one order, or in one for each row (B,)."""
        groups = self._lottery.groups
        places = groups.place[ids].astype(np.int64)
        places = np.where((order % 2)[..., np.newaxis] == 1, -places, places)
        group_ranks = self._group_ranks[(order // 2)[..., np.newaxis], groups.group[ids]]
        return group_ranks * np.int64(2 * groups.vocab_size) + places

    def _select(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        order = find_tokens(self._weight_sums, uniforms[:, 0])
        winners = self._ranks(order, ids).argmin(axis=1)
        return np.asarray(ids[np.arange(len(ids)), winners])

    def _selection_probs(self, ids: IntArray) -> FloatArray:
        probs = np.zeros(ids.shape)
        places = np.arange(ids.shape[1])
        orders = np.arange(len(self.weights))
        step = max(1, _MOST_RANKS // (ids.shape[1] * len(orders)))
        for start in range(0, len(ids), step):
            rows = ids[start : start + step, np.newaxis]
            first = self._ranks(orders, rows).argmin(axis=-1)
            probs[start : start + step] = self.weights @ (first[..., np.newaxis] == places)
        return probs
