"""Speculative sampling with a single draft."""

from __future__ import annotations

import numpy as np

from mdsd._frozen import frozen
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.rules.single import TESTED, single_tests
from mdsd.verifiers.base import OneResidualPlan, Plan, Verifier, accepted_and_rejected


class SingleDraftVerifier(Verifier):
    """Accept the one draft with probability ``min(1, p / q)``, else emit from ``(p - q)+``.

    Uniforms: accept test, residual.

    Notes
    -----
    Leviathan et al., "Fast Inference from Transformers via Speculative Decoding", Algorithm 1;
    Chen et al., "Accelerating Large Language Model Decoding with Speculative Sampling". Its
    acceptance ``sum min(p, q)`` is the optimum for n = 1.

    Examples
    --------
    >>> from mdsd import SingleDraftVerifier, WithReplacement
    >>> plan = SingleDraftVerifier().plan([0.5, 0.3, 0.2], WithReplacement([0.2, 0.5, 0.3], 1))
    >>> round(plan.acceptance_rate, 12)
    0.7
    >>> plan.output_law([1]).round(12).tolist()
    [0.4, 0.6, 0.0]
    """

    name = "single"
    in_draft_order = True
    takes_successive = True
    attains_bound = True
    source = 'Leviathan et al., "Fast Inference from Transformers via Speculative Decoding"'

    def supports(self, draft: DraftDistribution) -> bool:  # noqa: D102
        return super().supports(draft) and draft.num_drafts == 1

    @property
    def supported(self) -> str:  # noqa: D102
        return f"{super().supported}, all with num_drafts=1"

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        return 2

    def _plan(self, target_probs: FloatArray, draft: DraftDistribution) -> Plan:
        return SingleDraftPlan(target_probs, draft, draft.token_hit_probs())


class SingleDraftPlan(OneResidualPlan):
    """One accept test against `draft_probs` and the residual left by it."""

    num_tests = 1
    drafts = TESTED

    def __init__(
        self, target_probs: FloatArray, draft: DraftDistribution, draft_probs: FloatArray
    ) -> None:
        super().__init__(target_probs, draft)
        self.tested = frozen(draft_probs)
        (chances,), residual = single_tests(target_probs, draft_probs)
        self.chances, self.residual = frozen(chances), frozen(residual)

    @property
    def acceptance_rate(self) -> float:  # noqa: D102
        return float(min(1.0, np.minimum(self.target_probs, self.tested).sum()))

    @property
    def _accepted_and_rejected(self) -> tuple[FloatArray, float]:
        return accepted_and_rejected([self.tested], [self.chances])

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        tested = ids[:, self.drafts]
        return self.chances[tested], tested
