"""Optimal selection for every draft distribution: a lottery over priority orders."""

from __future__ import annotations

import numpy as np

from mdsd._random import draw_tokens
from mdsd._typing import FloatArray, IntArray
from mdsd.bounds import find_lottery
from mdsd.drafts import DraftDistribution
from mdsd.verifiers.base import SelectionPlan, frozen

__all__ = ["LotteryPlan"]


class LotteryPlan(SelectionPlan):
    """Draw a priority order, select the drafted token that comes first in it, thin to the target.

    Uniforms: the order, the accept test, the residual.

    Notes
    -----
    The lottery is the minimum-norm point of the base polytope of f - p (`solvers.polymatroid`).
    Lossless wherever the search stopped; `gap` says how far from the optimum that was.
    """

    canonical = False

    def __init__(
        self,
        target_probs: FloatArray,
        draft: DraftDistribution,
        *,
        tolerance: float,
        max_iterations: int | None,
    ) -> None:
        found = find_lottery(
            target_probs, draft, tolerance=tolerance, max_iterations=max_iterations
        )
        super().__init__(target_probs, draft, found.selected, found.upper)
        self.weights = frozen(found.weights)
        ranks = np.empty_like(found.orders)
        places = np.broadcast_to(np.arange(draft.vocab_size), ranks.shape)
        np.put_along_axis(ranks, found.orders, places, axis=1)
        self.ranks = frozen(ranks)

    @property
    def num_uniforms(self) -> int:  # noqa: D102
        return 3

    def _select(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        drawn = draw_tokens(self.weights, uniforms[:, 0])
        ranks = self.ranks[drawn[:, np.newaxis], ids]
        return np.asarray(ids[np.arange(len(ids)), ranks.argmin(axis=1)])

    def _selection_probs(self, ids: IntArray) -> FloatArray:
        probs = np.zeros(ids.shape)
        rows = np.arange(len(ids))
        for weight, rank in zip(self.weights, self.ranks, strict=True):
            probs[rows, rank[ids].argmin(axis=1)] += weight
        return probs
