"""Optimal selection for drafts with replacement: every drafted token draws a mark."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from mdsd._frozen import frozen
from mdsd._solvers.marks import (
    accept_smallest,
    grouped_coupling,
    select_smallest,
    smallest_mark_probs,
)
from mdsd._solvers.ratio_groups import groups_of_tokens, spread_over_tokens
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import WithReplacement
from mdsd.verifiers.base import SelectionPlan

FAST_GAP = 1e-3
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
        gap = max(tolerance, FAST_GAP) if fast else 0.0
        self._marks = grouped_coupling(target_probs, self._draft_probs, draft.num_drafts, gap)

    @cached_property
    def selected(self) -> FloatArray:  # noqa: D102
        sides = self.target_probs, self._draft_probs
        return frozen(spread_over_tokens(self._marks.groups, self._marks.slopes, *sides))

    @property
    def upper(self) -> float:  # noqa: D102
        return self._marks.upper

    @property
    def num_uniforms(self) -> int:  # noqa: D102
        return self.draft.num_drafts + 2

    def selected_of(self, tokens: IntArray) -> FloatArray:  # noqa: D102
        slopes = self._marks.slopes[self._groups_of(tokens)]
        return np.asarray(self._draft_probs[tokens] * slopes)

    def _accept(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        marks, sides = self._marks, (self.target_probs, self._draft_probs)
        return accept_smallest(marks.groups, marks.coupling, marks.slopes, *sides, ids, uniforms)

    def _groups_of(self, tokens: IntArray) -> IntArray:
        groups = self._marks.groups
        found = groups_of_tokens(groups, tokens.ravel(), self.target_probs, self._draft_probs)
        return found.reshape(tokens.shape)

    def _select(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        places = select_smallest(self._marks.coupling, self._groups_of(ids), uniforms)
        return np.asarray(ids[np.arange(len(ids)), places])

    def _selection_probs(self, ids: IntArray) -> FloatArray:
        return smallest_mark_probs(self._marks.coupling, self._groups_of(ids))
