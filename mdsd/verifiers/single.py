"""Speculative sampling with a single draft."""

from __future__ import annotations

import numpy as np

from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution, IndependentDrafts, WithoutReplacement, WithReplacement
from mdsd.verifiers.base import (
    Plan,
    SequentialPlan,
    Verifier,
    accept_probs,
    closing_law,
    frozen,
    residual_or_target,
)

__all__ = ["SingleDraftVerifier"]


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
    draft_types = (WithReplacement, WithoutReplacement, IndependentDrafts)
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
        # The marginal law of the only draft, whichever of the three classes declares it.
        return SingleDraftPlan(target_probs, draft, draft.token_hit_probs())


class SingleDraftPlan(SequentialPlan):
    """One accept test against `draft_probs` and the residual left by it."""

    num_tests = 1

    def __init__(
        self, target_probs: FloatArray, draft: DraftDistribution, draft_probs: FloatArray
    ) -> None:
        super().__init__(target_probs, draft)
        self.tested = frozen(draft_probs)
        self.chances = frozen(accept_probs(target_probs, draft_probs))
        left = np.maximum(target_probs - draft_probs, 0.0)
        self.residual = frozen(residual_or_target(left, target_probs))

    @property
    def acceptance_rate(self) -> float:
        return float(min(1.0, np.minimum(self.target_probs, self.tested).sum()))

    def marginal_law(self) -> FloatArray:
        return closing_law(
            self.tested * self.chances, float(self.tested @ (1.0 - self.chances)), self.residual
        )

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        return self.chances[ids[:, :1]], ids[:, :1]
