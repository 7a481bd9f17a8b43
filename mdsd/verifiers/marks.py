"""Optimal selection for drafts with replacement: every drafted token draws a mark."""

from __future__ import annotations

from mdsd._frozen import frozen
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import WithReplacement
from mdsd.verifiers.base import SelectionPlan
from solvers.marks import optimal_coupling, select_smallest, smallest_mark_probs


class MarkPlan(SelectionPlan):
    """Select the draft with the smallest mark, then thin to the target.

    Uniforms: one mark for each draft in draft order, the accept test, the residual.

    Notes
    -----
    The marks have laws F_i with ``sum q_i F_i`` uniform, so the smallest of n selects token i
    with mass ``q_i`` times the mean of ``n (1 - u)**(n - 1)`` over F_i; `solvers.marks` spreads
    them so that this covers ``min(p, c* q)``, whose sum is alpha*.
    """

    def __init__(self, target_probs: FloatArray, draft: WithReplacement) -> None:
        super().__init__(target_probs, draft)
        self._upper, self._coupling = optimal_coupling(
            target_probs, draft.draft_probs, draft.num_drafts
        )
        for array in self._coupling:
            frozen(array)

    @property
    def selected(self) -> FloatArray:  # noqa: D102
        return self._coupling.selected

    @property
    def upper(self) -> float:  # noqa: D102
        return self._upper

    @property
    def num_uniforms(self) -> int:  # noqa: D102
        return self.draft.num_drafts + 2

    def _select(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        return select_smallest(self._coupling, ids, uniforms)

    def _selection_probs(self, ids: IntArray) -> FloatArray:
        return smallest_mark_probs(self._coupling, ids)
