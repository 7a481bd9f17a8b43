"""Medusa's typical acceptance: what the target finds likely enough is accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from mdsd._arguments import check_number
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.engines.base import BiasedRule, Decision, RuleOutcome, SingleDraftRule


@dataclass(frozen=True)
class TypicalAcceptance(SingleDraftRule):
    """Accept a draft if ``p > min(threshold, alpha exp(-H(p)))``, else emit the likeliest token.

    Of several drafts that pass, the likeliest under the target is accepted. Nothing is left to
    chance but the draft: the output is as far from the target as certainty is.

    Parameters
    ----------
    threshold : float
        Probability that is always enough; finite and >= 0.
    alpha : float
        Factor of the threshold that falls with the entropy H of the target; finite and >= 0.

    Raises
    ------
    InvalidArgumentError
        If one is no finite number >= 0.

    Notes
    -----
    Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads",
    Section 3.3.1 (there epsilon and delta, with ``delta = sqrt(epsilon)`` advised). Medusa and the
    typical acceptance sampler of vLLM up to 0.9 have 0.09 and 0.3; both emit the likeliest token
    where no draft passes. Their entropy adds 1e-5 to each probability in the logarithm; here it is
    the entropy.

    Examples
    --------
    >>> from mdsd import TopKDraft
    >>> rule = TypicalAcceptance(0.09, 0.3)
    >>> rule.outcome([0.5, 0.3, 0.2], TopKDraft([0.2, 0.5, 0.3], 1)).output_law.tolist()
    [0.0, 1.0, 0.0]
    """

    threshold: float = 0.09
    alpha: float = 0.3

    name = "typical"
    source = 'Cai et al., "Medusa", arXiv 2401.10774'
    used_by = "Medusa, vLLM up to 0.9"
    drafts = ("top_k",)
    supported = "one draft, or several of the top_k draft distribution"

    def __post_init__(self) -> None:
        for name in ("threshold", "alpha"):
            vars(self)[name] = check_number(name, getattr(self, name))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:  # noqa: D102
        return tuple(cls(threshold, alpha) for threshold, alpha in _EXAMPLES)

    @property
    def lossless(self) -> bool:  # noqa: D102
        return False

    def supports(self, draft: DraftDistribution) -> bool:  # noqa: D102
        return draft.num_drafts == 1 or draft.name == "top_k"

    def accept_and_redraw(  # noqa: D102
        self, target_probs: FloatArray, draft_probs: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        live = target_probs[target_probs > 0.0]
        entropy = -float((live * np.log(live)).sum())
        limit = min(self.threshold, self.alpha * np.exp(-entropy))
        return (target_probs > limit).astype(np.float64), likeliest(target_probs)

    def decide(  # noqa: D102
        self, target_probs: FloatArray, draft: DraftDistribution, draft_token_ids: IntArray
    ) -> Decision:
        passes, law = self.accept_and_redraw(target_probs, target_probs)
        worth = passes[draft_token_ids] * target_probs[draft_token_ids]
        chances = np.zeros(len(draft_token_ids))
        best = int(np.argmax(worth))
        chances[best] = passes[draft_token_ids[best]]
        return Decision(chances, law)

    def _outcome(self, target: FloatArray, draft: DraftDistribution) -> RuleOutcome:
        if draft.num_drafts == 1:
            return super()._outcome(target, draft)
        return BiasedRule._outcome(self, target, draft)


_EXAMPLES = ((0.01, 0.1), (0.09, 0.3), (0.25, 0.5), (0.49, 0.7))
"""Medusa's own, and others with the square root that the paper advises."""


def likeliest(target: FloatArray) -> FloatArray:
    """Put all mass on the likeliest token, the lowest id on ties."""
    law = np.zeros_like(target)
    law[np.argmax(target)] = 1.0
    return law
