"""NaiveTree: single-draft verification of the first draft, the others by coincidence."""

from __future__ import annotations

import numpy as np

from mdsd._typing import FloatArray
from mdsd.drafts import DraftDistribution, WithReplacement
from mdsd.rules.sums import any_of
from mdsd.verifiers.base import Plan, Verifier
from mdsd.verifiers.single import SingleDraftPlan


class NaiveTreeVerifier(Verifier):
    """Verify the first draft alone; a residual token is accepted if it happens to be drafted.

    Uniforms: accept test of the first draft, residual.

    Notes
    -----
    Acceptance ``sum min(p, q) + sum (p - q)+ (1 - (1 - q)**(n - 1))``: a baseline.

    Examples
    --------
    >>> from mdsd import NaiveTreeVerifier, WithReplacement
    >>> plan = NaiveTreeVerifier().plan([0.5, 0.3, 0.2], WithReplacement([0.2, 0.5, 0.3], 2))
    >>> round(plan.acceptance_rate, 12)
    0.76
    """

    name = "naive_tree"
    in_draft_order = True
    draft_types = (WithReplacement,)

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        return 2

    def _plan(self, target_probs: FloatArray, draft: WithReplacement) -> Plan:
        return NaiveTreePlan(target_probs, draft, draft.draft_probs)


class NaiveTreePlan(SingleDraftPlan):
    """The single-draft plan, with the other drafts counted."""

    @property
    def acceptance_rate(self) -> float:  # noqa: D102
        p, q = self.target_probs, self.tested
        alone, others = super().acceptance_rate, self.draft.num_drafts - 1
        if others == 0:
            return alone
        return min(1.0, alone + float(np.maximum(p - q, 0.0) @ any_of(q, others)))
