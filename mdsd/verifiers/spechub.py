"""The optimal verifier of the SpecHub pair."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from mdsd._frozen import frozen
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution, SpecHubDraft
from mdsd.rules.spechub import case_masses, spechub_tests, tested_in_turn
from mdsd.verifiers.base import Plan, SequentialPlan, Verifier, closing_law


class SpecHubVerifier(Verifier):
    """Test the other token first, then the hub, each against what earlier cases left of p.

    Cases in turn: (i, a) accepts i against p_i; (a, i) accepts i against the rest of p_i; the hub
    in (i, a), then in (a, i), against the rest of p_a. Uniforms: accept test of the other token,
    accept test of the hub, residual.

    Notes
    -----
    Sun et al., "SpecHub: Provable Acceleration to Multi-Draft Speculative Decoding". Its
    acceptance equals that of the greedy draft with n = 2.

    Examples
    --------
    >>> from mdsd import SpecHubDraft, SpecHubVerifier
    >>> plan = SpecHubVerifier().plan([0.5, 0.3, 0.2], SpecHubDraft([0.2, 0.5, 0.3]))
    >>> round(plan.acceptance_rate, 12)
    0.9
    """

    name = "spechub"
    draft_types = (SpecHubDraft,)
    attains_bound = True
    source = 'Sun et al., "SpecHub: Provable Acceleration to Multi-Draft Speculative Decoding"'

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        return 3

    def _plan(self, target_probs: FloatArray, draft: SpecHubDraft) -> Plan:
        return SpecHubPlan(target_probs, draft)


class SpecHubPlan(SequentialPlan):
    """Two accept tests whose probabilities depend on which of the pair is the hub.

    Attributes
    ----------
    chances : ndarray of float64, shape (2, V)
        Probability that each token is accepted once it is tested: in (i, a), in (a, i).
    """

    num_tests = 2

    def __init__(self, target_probs: FloatArray, draft: SpecHubDraft) -> None:
        super().__init__(target_probs, draft)
        self.hub = draft.hub
        is_hub = np.arange(draft.vocab_size) == draft.hub
        cases = case_masses(draft.draft_probs, is_hub)
        chances, residual = spechub_tests(target_probs, is_hub, cases)
        self._cases = frozen(np.stack(cases))
        self.chances, self.residual = frozen(np.stack(chances)), frozen(residual)

    @cached_property
    def _accepted_and_rejected(self) -> tuple[FloatArray, float]:
        passed = self._cases * self.chances
        reached = (self._cases - passed).sum(axis=1)  # the hub, in each case
        accepted, chances = passed.sum(axis=0), self.chances[:, self.hub]
        accepted[self.hub] = reached @ chances
        return frozen(accepted), float(reached @ (1.0 - chances))

    @property
    def acceptance_rate(self) -> float:  # noqa: D102
        return float(min(1.0, self._accepted_and_rejected[0].sum()))

    def marginal_law(self) -> FloatArray:  # noqa: D102
        return closing_law(*self._accepted_and_rejected, self.residual)

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        hub_first = ids[:, :1] == self.hub
        tested = tested_in_turn(ids, hub_first)
        return self.chances[hub_first.astype(np.int64), tested], tested
