"""Optimal selection for every draft distribution: a lottery over priority orders."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from mdsd._frozen import frozen
from mdsd._typing import FloatArray, IntArray
from mdsd.bounds import find_lottery
from mdsd.drafts import DraftDistribution
from mdsd.rules.accepting import accept_probs
from mdsd.verifiers.base import SelectionPlan


class LotteryPlan(SelectionPlan):
    """Draw a priority order, select the drafted token that comes first in it, thin to the target.

    Uniforms: the order and the draft of its first group, the accept test, the residual.

    Attributes
    ----------
    weights : ndarray of float64, shape (K,)
        Probability of each order of the groups of tokens.

    Notes
    -----
    The lottery is the minimum-norm point of the base polytope of f - p (`solvers.polymatroid`),
    over orders of groups of tokens in large vocabularies (`solvers.token_lottery`). Lossless
    wherever the search stopped; `gap` says how far from the optimum that was. From a group that
    holds several of the drafts each is selected with equal chances; `selected` is the mass with
    which a token is selected and kept.
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
        self.weights = frozen(self._lottery.weights)

    @cached_property
    def selected(self) -> FloatArray:  # noqa: D102
        return frozen(self._lottery.selected)

    @property
    def upper(self) -> float:  # noqa: D102
        return self._lottery.upper

    def selected_of(self, tokens: IntArray) -> FloatArray:  # noqa: D102
        return self._lottery.masses_of(tokens)[0]

    def _keep_probs(self, tokens: IntArray) -> FloatArray:
        return self._lottery.masses_of(tokens)[1]

    def _chances_of(self, tokens: IntArray) -> FloatArray:
        selected, kept = self._lottery.masses_of(tokens)
        return kept * accept_probs(self.target_probs[tokens], selected)

    def _select(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        from mdsd._solvers.group_selection import draw_orders, select_drafts

        # What is left of the number, once it has said which order, says which draft.
        places, inside = draw_orders(self.weights, np.ascontiguousarray(uniforms[:, 0]))
        groups = self._lottery.groups_of(ids.ravel()).reshape(ids.shape)
        selected = select_drafts(self._lottery.orders, places, groups, inside)
        return np.asarray(ids[np.arange(len(ids)), selected])

    def _selection_probs(self, ids: IntArray) -> FloatArray:
        from mdsd._solvers.group_selection import selection_probs

        groups = self._lottery.groups_of(ids.ravel()).reshape(ids.shape)
        # What is worked out for a token takes longer than finding all places where it stands.
        tokens, places = np.unique(ids, return_inverse=True)
        kept = self._keep_probs(tokens)[places].reshape(ids.shape)
        return kept * selection_probs(self._lottery.orders, self.weights, groups)
