"""Optimal selection for drafts with replacement: every drafted token draws a mark."""

from __future__ import annotations

import numpy as np

from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import WithReplacement
from mdsd.verifiers.base import SelectionPlan, frozen

__all__ = ["MarkPlan"]


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
        from solvers.marks import couple_marks

        q, n = draft.draft_probs, draft.num_drafts
        order = draft.prefix_order(target_probs)
        upper, _ = draft.best_prefix(target_probs)
        cap = _cap_with_overlap(target_probs, q, order[q[order] > 0.0], upper)
        total = float(np.minimum(target_probs, cap * q).sum())
        coupling = couple_marks(target_probs, q, n, cap, total)
        super().__init__(target_probs, draft, coupling.selected, upper)
        self._coupling = coupling
        for array in vars(coupling).values():
            frozen(array)

    @property
    def num_uniforms(self) -> int:  # noqa: D102
        return self.draft.num_drafts + 2

    def _select(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        from solvers.marks import draw_marks

        winners = draw_marks(self._coupling, ids, uniforms).argmin(axis=1)
        return np.asarray(np.take_along_axis(ids, winners[:, np.newaxis], axis=1)[:, 0])

    def _selection_probs(self, ids: IntArray) -> FloatArray:
        from solvers.marks import smallest_mark_probs

        return smallest_mark_probs(self._coupling, ids)


def _cap_with_overlap(p: FloatArray, q: FloatArray, order: IntArray, overlap: float) -> float:
    """Smallest c with ``sum min(p, c q) >= overlap``, or the largest ratio p/q where none has it.

    `order` holds the tokens with q > 0 by descending ratio.
    """
    with np.errstate(over="ignore"):
        ratios = np.minimum(p[order] / q[order], np.finfo(np.float64).max)
    capped = np.cumsum(q[order])  # mass of q at and above each ratio
    uncapped = np.append(np.cumsum(p[order][::-1])[::-1][1:], 0.0)  # mass of p below it
    # At c = ratios[k] the overlap is uncapped[k] + c capped[k], falling with k; between two
    # ratios it is linear in c.
    with np.errstate(over="ignore"):
        enough = np.flatnonzero(uncapped + ratios * capped >= overlap)
    if len(enough) == 0:
        return float(ratios[0])
    k = int(enough[-1])
    cap = (overlap - uncapped[k]) / capped[k]
    lowest = float(ratios[k + 1]) if k + 1 < len(ratios) else 0.0
    return float(min(max(cap, lowest), ratios[k]))
