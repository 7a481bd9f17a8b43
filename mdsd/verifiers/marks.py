"""Optimal selection for drafts with replacement: every drafted token draws a mark."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from mdsd._frozen import frozen
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import WithReplacement
from mdsd.rules.accepting import accept_probs
from mdsd.verifiers.base import SelectionPlan
from solvers.marks import (
    GroupedMarks,
    MarkCoupling,
    grouped_coupling,
    optimal_coupling,
    select_smallest,
    smallest_mark_probs,
)
from solvers.ratio_groups import groups_of_tokens, spread_over_tokens

FAST_GAP = 5e-4
"""Gap at which groups of tokens are fine enough."""


class MarkPlan(SelectionPlan):
    """Select the draft with the smallest mark, then thin to the target.

    Uniforms: one mark for each draft in draft order, the accept test, the residual.

    Notes
    -----
    The marks have laws F_i with ``sum q_i F_i`` uniform, so the smallest of n selects token i
    with mass ``q_i`` times the mean of ``n (1 - u)**(n - 1)`` over F_i; `solvers.marks` spreads
    them so that this covers ``min(p, c* q)``, whose sum is alpha*. With ``fast``, tokens of nearly
    the same ratio p/q share their marks, and nothing is worked out for all tokens before one is
    rejected.
    """

    def __init__(
        self,
        target_probs: FloatArray,
        draft: WithReplacement,
        *,
        tolerance: float = 1e-9,
        fast: bool = False,
    ) -> None:
        super().__init__(target_probs, draft)
        self._draft_probs = draft.draft_probs
        self._grouped: GroupedMarks | None = None
        self._coupling: MarkCoupling
        if fast:
            self._grouped = grouped_coupling(
                target_probs, draft.draft_probs, draft.num_drafts, max(tolerance, FAST_GAP)
            )
            self._upper, self._coupling = self._grouped.upper, self._grouped.coupling
        else:
            self._upper, self._coupling = optimal_coupling(
                target_probs, draft.draft_probs, draft.num_drafts
            )
        for array in self._coupling:
            frozen(array)

    @cached_property
    def selected(self) -> FloatArray:  # noqa: D102
        if self._grouped is None:
            return self._coupling.selected
        sides = self.target_probs, self._draft_probs
        return frozen(spread_over_tokens(self._grouped.groups, self._grouped.slopes, *sides))

    @property
    def upper(self) -> float:  # noqa: D102
        return self._upper

    @property
    def num_uniforms(self) -> int:  # noqa: D102
        return self.draft.num_drafts + 2

    def selected_of(self, tokens: IntArray) -> FloatArray:  # noqa: D102
        if self._grouped is None:
            return np.asarray(self._coupling.selected[tokens])
        return np.asarray(self._draft_probs[tokens] * self._grouped.slopes[self._of(tokens)])

    def _chances_of(self, tokens: IntArray) -> FloatArray:
        return accept_probs(self.target_probs[tokens], self.selected_of(tokens))

    def _of(self, tokens: IntArray) -> IntArray:
        """Give what the coupling knows tokens as: their groups, or themselves."""
        if self._grouped is None:
            return tokens
        sides = self.target_probs, self._draft_probs
        return groups_of_tokens(self._grouped.groups, tokens, *sides)

    def _select(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        known = self._of(ids.ravel()).reshape(ids.shape)
        places = select_smallest(self._coupling, known, uniforms)
        return np.asarray(ids[np.arange(len(ids)), places])

    def _selection_probs(self, ids: IntArray) -> FloatArray:
        return smallest_mark_probs(self._coupling, self._of(ids.ravel()).reshape(ids.shape))
