"""SGLang's thresholds on top of target-only sampling of trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.engines.base import BiasedRule, Decision
from mdsd.engines.mixture import check_share
from mdsd.rules.accepting import residual_or_target


@dataclass(frozen=True)
class ThresholdAcceptance(BiasedRule):
    """Draw from the target among the drafts, with two thresholds that let more of them pass.

    One number is drawn for all drafts of a node. A draft is accepted if its probability is at least
    `single`, or if the number is at most the probabilities of the drafts so far, added up, over
    `accumulated`. If none is, a token is drawn from the target without the drafts.

    Parameters
    ----------
    single : float
        In [0, 1].
    accumulated : float
        In (0, 1]. At 1 and 1, SGLang's defaults, the rule is lossless: that of `naive`.

    Raises
    ------
    InvalidArgumentError
        If one is out of range.

    Notes
    -----
    SGLang's kernel ``tree_speculative_sampling_target_only``: ``--speculative-accept-threshold-\
single`` and ``-acc``. It asks for no draft probabilities; its drafts are the top k.

    Examples
    --------
    >>> from mdsd import TopKDraft
    >>> draft = TopKDraft([0.2, 0.5, 0.3], 2)
    >>> found = ThresholdAcceptance(1.0, 0.5).outcome([0.5, 0.3, 0.2], draft)
    >>> found.output_law.round(12).tolist(), found.acceptance
    ([0.0, 0.6, 0.4], 1.0)
    """

    single: float = 1.0
    accumulated: float = 1.0

    name = "threshold"
    source = "SGLang, kernel of target-only sampling of trees"
    used_by = "SGLang, below its defaults of 1 and 1"
    drafts = ("top_k",)
    supported = "the top_k draft distribution"

    def __post_init__(self) -> None:
        vars(self).update(
            single=check_share("single", self.single),
            accumulated=check_share("accumulated", self.accumulated, positive=True),
        )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:  # noqa: D102
        singles = tuple(cls(single, 1.0) for single in (0.5, 0.3, 0.1))
        return singles + tuple(cls(1.0, accumulated) for accumulated in (0.9, 0.7, 0.5))

    @property
    def lossless(self) -> bool:  # noqa: D102
        return self.single == 1.0 and self.accumulated == 1.0

    def supports(self, draft: DraftDistribution) -> bool:  # noqa: D102
        return draft.name == "top_k"

    def decide(  # noqa: D102
        self, target_probs: FloatArray, draft: DraftDistribution, draft_token_ids: IntArray
    ) -> Decision:
        own = target_probs[draft_token_ids]
        others = target_probs.copy()
        others[draft_token_ids] = 0.0
        reached = np.minimum(own.cumsum() / self.accumulated, 1.0)
        before = np.append(0.0, reached[:-1])
        some = before < 1.0
        chances = np.where(some, (reached - before) / np.where(some, 1.0 - before, 1.0), 0.0)
        if self.accumulated == 1.0:  # what remains is a sum of what remains
            remaining = np.append(own[::-1].cumsum()[::-1], 0.0) + others.sum()
            chances = own / np.maximum(remaining[:-1], np.finfo(np.float64).tiny)
        chances[own >= self.single] = 1.0
        return Decision(chances, np.asarray(residual_or_target(others, target_probs)))
