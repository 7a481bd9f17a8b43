"""The optimal verifier of the SpecHub pair."""

from __future__ import annotations

import numpy as np

from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution, SpecHubDraft
from mdsd.verifiers.base import (
    Plan,
    SequentialPlan,
    Verifier,
    accept_probs,
    closing_law,
    frozen,
    residual_or_target,
)

__all__ = ["SpecHubVerifier"]


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
        drawn_first = draft.other_first * draft.tail_probs  # mass of (i, a)
        drawn_second = draft.draft_probs[draft.hub] * draft.tail_probs  # mass of (a, i)
        left = target_probs.copy()
        first_chances = accept_probs(left, drawn_first)
        accepted_first = drawn_first * first_chances
        left = np.maximum(left - accepted_first, 0.0)
        second_chances = accept_probs(left, drawn_second)
        accepted_second = drawn_second * second_chances
        left = np.maximum(left - accepted_second, 0.0)

        # The hub is reached with the mass its partners left, in the two cases in turn.
        reached = [
            float((drawn_first - accepted_first).sum()),
            float((drawn_second - accepted_second).sum()),
        ]
        hub_chances = []
        for mass in reached:
            chance = float(accept_probs(left[self.hub : self.hub + 1], np.array([mass]))[0])
            hub_chances.append(chance)
            left[self.hub] = max(left[self.hub] - mass * chance, 0.0)
        first_chances[self.hub], second_chances[self.hub] = hub_chances
        self.chances = frozen(np.stack([first_chances, second_chances]))
        self._accepted = accepted_first + accepted_second
        self._accepted[self.hub] = reached[0] * hub_chances[0] + reached[1] * hub_chances[1]
        frozen(self._accepted)
        self._rejected = sum(m * (1.0 - c) for m, c in zip(reached, hub_chances, strict=True))
        self.residual = frozen(residual_or_target(left, target_probs))

    @property
    def acceptance_rate(self) -> float:
        return float(min(1.0, self._accepted.sum()))

    def marginal_law(self) -> FloatArray:
        return closing_law(self._accepted, self._rejected, self.residual)

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        hub_first = ids[:, :1] == self.hub
        tested = np.where(hub_first, ids[:, ::-1], ids)
        return self.chances[hub_first.astype(np.int64), tested], tested
