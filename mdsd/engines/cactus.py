"""Cactus: the target's law, with more of it on the token that was drafted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from mdsd._arguments import check_number
from mdsd._probabilities import ratios
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.engines.base import BiasedRule, Decision, RuleOutcome
from mdsd.rules.accepting import accept_probs, left_over


@dataclass(frozen=True)
class CactusAcceptance(BiasedRule):
    """Verify a draft x against a law h that has ``p + sqrt(2 delta p (1 - p))`` of it.

    The other tokens have the rest in proportion to the target. x is accepted with probability
    ``min(1, h(x) / q(x))``, else a token is redrawn from ``(h - q)+``.

    Parameters
    ----------
    delta : float
        Bound on the divergence of h from the target, to second order; finite and >= 0. At 0 the
        rule is lossless.

    Raises
    ------
    InvalidArgumentError
        If `delta` is no finite number >= 0.

    Notes
    -----
    Hao and Mou, "Cactus: Accelerating Auto-Regressive Decoding with Constrained Acceptance
    Speculative Sampling". As h depends on the draft, the output law is no h: the divergence of the
    output can exceed that of each of them.

    Examples
    --------
    >>> from mdsd import WithReplacement
    >>> draft = WithReplacement([0.2, 0.5, 0.3], 1)
    >>> found = CactusAcceptance(0.01).outcome([0.5, 0.3, 0.2], draft)
    >>> round(found.acceptance, 4), round(found.total_variation, 4)
    (0.8214, 0.1214)
    """

    delta: float

    name = "cactus"
    source = 'Hao and Mou, "Cactus", arXiv 2604.04987'
    used_by = "the code of its authors"
    drafts = ("with_replacement",)
    supported = "chains, with num_drafts = 1"

    def __post_init__(self) -> None:
        vars(self).update(delta=check_number("delta", self.delta))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:  # noqa: D102
        return tuple(cls(delta) for delta in (0.001, 0.01, 0.1, 1.0))

    @property
    def lossless(self) -> bool:  # noqa: D102
        return self.delta == 0.0

    def _raised(self, target: FloatArray) -> FloatArray:
        """Give h of each token if it is the one that was drafted."""
        raised = target + np.sqrt(2.0 * self.delta * target * np.maximum(1.0 - target, 0.0))
        return np.minimum(raised, 1.0)

    def decide(  # noqa: D102
        self, target_probs: FloatArray, draft: DraftDistribution, draft_token_ids: IntArray
    ) -> Decision:
        probs, (token,) = draft.token_hit_probs(), draft_token_ids
        raised = self._raised(target_probs)[token]
        others = target_probs.copy()
        others[token] = 0.0
        law = others * ((1.0 - raised) / max(others.sum(), np.finfo(np.float64).tiny))
        law[token] = raised
        chance = accept_probs(law[draft_token_ids], probs[draft_token_ids])
        return Decision(chance, left_over(law, probs))

    def _outcome(self, target: FloatArray, draft: DraftDistribution) -> RuleOutcome:
        # Of a draft x that is rejected, token i has (s p - q)+ of the redraw, with s the factor of
        # the tokens that are not x: sums over all x above i's ratio q / p, in order of s.
        probs = draft.token_hit_probs()
        raised = self._raised(target)
        accept = np.asarray(accept_probs(raised, probs))
        rejected = np.flatnonzero((1.0 - accept) * probs > 0.0)
        factors = (1.0 - raised[rejected]) / (1.0 - target[rejected])
        rejected = rejected[np.argsort(factors)]
        factors = np.sort(factors)

        limits = ratios(probs, target)
        order = np.argsort(limits)
        sums = [np.append(0.0, masses[order].cumsum()) for masses in (target, probs)]
        below = np.searchsorted(limits[order], factors)
        left = factors * sums[0][below] - sums[1][below]
        lost = (1.0 - accept[rejected]) * probs[rejected]
        # No more is lost at a token than is left of the others.
        weights = lost / np.maximum(left, lost)
        above = len(factors) - np.searchsorted(factors, limits, side="right")

        def from_above(values: FloatArray) -> FloatArray:
            return np.append(values[::-1].cumsum()[::-1], 0.0)[len(factors) - above]

        redrawn = np.maximum(
            target * from_above(weights * factors) - probs * from_above(weights), 0.0
        )
        accepted = accept * probs
        return RuleOutcome(target, accepted + redrawn, min(1.0, float(accepted.sum())))
