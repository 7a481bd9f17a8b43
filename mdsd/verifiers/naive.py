"""Naive speculative sampling (NSS): draw from the target and look whether it was drafted."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.rules.naive import TESTED, naive_tests
from mdsd.verifiers.base import Plan, SequentialPlan, Verifier


class NaiveVerifier(Verifier):
    """Draw a token from the target; it counts as accepted if it is among the drafts.

    Exact matching is unbiased because the target's own sample is what is emitted; the drafts only
    decide whether it was foreseen. Uniforms: the draw from the target.

    Notes
    -----
    Acceptance ``sum p_i f({i})`` with f({i}) the probability that token i is drafted. For the
    top-k draft, whose tokens are known beforehand, that is the optimum.

    Examples
    --------
    >>> from mdsd import NaiveVerifier, WithReplacement
    >>> plan = NaiveVerifier().plan([0.7, 0.2, 0.1], WithReplacement([0.7, 0.2, 0.1], 1))
    >>> round(plan.acceptance_rate, 12)
    0.54
    """

    name = "naive"
    draft_types = (DraftDistribution,)
    source = 'Miao et al., "SpecInfer"'

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        return 1

    def _plan(self, target_probs: FloatArray, draft: DraftDistribution) -> Plan:
        return NaivePlan(target_probs, draft)


class NaivePlan(SequentialPlan):
    """No accept test at all: the residual is the target."""

    num_tests = 0

    def __init__(self, target_probs: FloatArray, draft: DraftDistribution) -> None:
        super().__init__(target_probs, draft)
        _, self.residual = naive_tests(target_probs)

    @cached_property
    def acceptance_rate(self) -> float:  # noqa: D102
        return min(1.0, float(self.target_probs @ self.draft.token_hit_probs()))

    def marginal_law(self) -> FloatArray:  # noqa: D102
        return np.asarray(self.residual / self.residual.sum())

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        return np.empty((len(ids), 0)), ids[:, TESTED]
