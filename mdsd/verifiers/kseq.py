"""K-SEQ (SpecTr): one common acceptance rule for all drafts."""

from __future__ import annotations

import math

import numpy as np

from mdsd._probabilities import ratio_order, ratios
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution, WithReplacement
from mdsd.verifiers.base import (
    Plan,
    SequentialPlan,
    Verifier,
    accept_probs,
    closing_law,
    frozen,
    residual_or_target,
)

__all__ = ["KSeqVerifier"]


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
    draft_types = (WithReplacement,)
    source = 'Sun et al., "SpecTr: Fast Speculative Decoding via Optimal Transport"'

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        return draft.num_drafts + 1

    def _plan(self, target_probs: FloatArray, draft: WithReplacement) -> Plan:
        return KSeqPlan(target_probs, draft)


class KSeqPlan(SequentialPlan):
    """The same test for every draft.

    Attributes
    ----------
    rho : float
        Root of the K-SEQ equation, in [1, n].
    """

    def __init__(self, target_probs: FloatArray, draft: WithReplacement) -> None:
        super().__init__(target_probs, draft)
        self.num_tests = draft.num_drafts
        q = draft.draft_probs
        self.rho = _kseq_root(target_probs, q, draft.num_drafts)
        self.chances = frozen(accept_probs(target_probs, self.rho * q))
        accepted_once = q * self.chances
        self.beta = float(min(1.0, accepted_once.sum()))
        # n tests accept a token with its one-test mass times (1 - (1 - beta)**n) / beta.
        some = _any_of(self.beta, draft.num_drafts)
        self._accepted = frozen(accepted_once * (some / self.beta if self.beta > 0.0 else 1.0))
        left = np.maximum(target_probs - self._accepted, 0.0)
        self.residual = frozen(residual_or_target(left, target_probs))

    @property
    def acceptance_rate(self) -> float:
        return _any_of(self.beta, self.draft.num_drafts)

    def marginal_law(self) -> FloatArray:
        rejected = (1.0 - self.beta) ** self.draft.num_drafts
        return closing_law(self._accepted, rejected, self.residual)

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        return self.chances[ids], ids


def _any_of(beta: float, num_drafts: int) -> float:
    """``1 - (1 - beta)**n`` without cancellation."""
    if beta >= 1.0:
        return 1.0
    return -math.expm1(num_drafts * math.log1p(-beta))


def _kseq_root(p: FloatArray, q: FloatArray, num_drafts: int) -> float:
    """Root in [1, n], rounded up so that the accepted mass of a token never exceeds p."""
    if num_drafts == 1:
        return 1.0
    # Along the tokens by p/q, sum min(p, rho q) is a prefix of rho q and a suffix of p.
    order = ratio_order(p, q)
    descending = -ratios(p, q)[order]
    drafted = np.concatenate([[0.0], np.cumsum(q[order])])
    wanted = np.concatenate([np.cumsum(p[order][::-1])[::-1], [0.0]])

    def excess(rho: float) -> float:
        k = int(np.searchsorted(descending, -rho, side="left"))
        overlap = float(wanted[k] + rho * drafted[k])
        return _any_of(min(1.0, overlap / rho), num_drafts) - overlap

    low, high = 1.0, float(num_drafts)
    if not np.minimum(p, q).any():
        return high  # every rho is a root, as nothing is ever accepted
    if excess(low) <= 0.0:
        return low
    while True:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return high
        if excess(middle) > 0.0:
            low = middle
        else:
            high = middle
