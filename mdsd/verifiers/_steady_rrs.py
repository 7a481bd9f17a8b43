"""Recursive rejection of many drafts with replacement."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from mdsd._frozen import frozen
from mdsd._solvers.rejection_caps import before_draws, rejection_caps
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import WithReplacement
from mdsd.rules.accepting import accept_probs, left_over
from mdsd.verifiers.base import OneResidualPlan


class SteadyRRSPlan(OneResidualPlan):
    """Test every draft against what is left, which has a closed form for each.

    What `mdsd.rules.rrs` finds draft by draft, in a size and a time that do not grow with n.
    """

    def __init__(self, target_probs: FloatArray, draft: WithReplacement) -> None:
        super().__init__(target_probs, draft)
        self.num_tests = draft.num_drafts
        self._draft_probs = draft.draft_probs
        self._caps = rejection_caps(target_probs, self._draft_probs, self.num_tests)
        self._offered = frozen(self._caps.caps[-1] * self._draft_probs)
        self.residual = frozen(left_over(target_probs, self._offered))

    @cached_property
    def _accepted_and_rejected(self) -> tuple[FloatArray, float]:
        return np.minimum(self.target_probs, self._offered), float(self._caps.lefts[-1])

    @property
    def acceptance_rate(self) -> float:
        return min(1.0, float(self._accepted_and_rejected[0].sum()))

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        caps, lefts = before_draws(self._caps, np.arange(self.num_tests))
        p, q = self.target_probs[ids], self._draft_probs[ids]
        return accept_probs(np.maximum(p - caps * q, 0.0), lefts * q), ids
