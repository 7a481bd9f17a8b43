"""K-SEQ (SpecTr): one common acceptance rule for all drafts."""

from __future__ import annotations

from typing import cast

import numpy as np

from mdsd._frozen import frozen
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution, WithReplacement
from mdsd.rules.kseq import kseq_tests
from mdsd.rules.sums import any_of
from mdsd.verifiers.base import OneResidualPlan, Plan, Verifier, accepted_and_rejected


class KSeqVerifier(Verifier):
    """Accept each draft in turn with probability ``min(1, p / (rho q))``.

    Uniforms: one accept test for each draft in draft order, then the residual.

    Notes
    -----
    Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport", Algorithm 2. rho is the
    root in [1, n] of ``1 - (1 - beta)**n = rho beta`` with ``beta = sum min(p / rho, q)``; the
    acceptance is ``1 - (1 - beta)**n``.

    Examples
    --------
    >>> from mdsd import KSeqVerifier, WithReplacement
    >>> plan = KSeqVerifier().plan([0.5, 0.3, 0.2], WithReplacement([0.2, 0.5, 0.3], 2))
    >>> round(plan.acceptance_rate, 9), round(plan.rho, 9)
    (0.791355287, 1.456776436)
    """

    name = "kseq"
    in_draft_order = True
    draft_types = (WithReplacement,)
    source = 'Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport"'

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        return draft.num_drafts + 1

    def _plan(self, target_probs: FloatArray, draft: WithReplacement) -> Plan:
        return KSeqPlan(target_probs, draft)


class KSeqPlan(OneResidualPlan):
    """The same test for every draft.

    Attributes
    ----------
    rho : float
        Root of the K-SEQ equation, in [1, n].
    """

    def __init__(self, target_probs: FloatArray, draft: WithReplacement) -> None:
        from mdsd.rules.kernels import kseq_root_and_overlap

        super().__init__(target_probs, draft)
        self.num_tests = draft.num_drafts
        q = draft.draft_probs
        self.rho, _ = kseq_root_and_overlap(target_probs, 1.0, q, 1.0, draft.num_drafts)
        (chances,), residual = kseq_tests(target_probs, q, self.rho, draft.num_drafts)
        self.chances, self.residual = frozen(chances), frozen(residual)
        self.beta = float(min(1.0, q @ chances))

    @property
    def acceptance_rate(self) -> float:  # noqa: D102
        return float(any_of(np.array(self.beta), self.num_tests))

    @property
    def _accepted_and_rejected(self) -> tuple[FloatArray, float]:
        q = cast(WithReplacement, self.draft).draft_probs
        accepted, failed = accepted_and_rejected([q], [self.chances])
        # The tests are alike: a geometric series of their failures.
        any_passed = self.acceptance_rate
        repeated = any_passed / self.beta if self.beta > 0.0 else 0.0
        return accepted * repeated, failed**self.num_tests

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        return self.chances[ids], ids
