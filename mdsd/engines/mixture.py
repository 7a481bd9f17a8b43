"""Verify against a mixture of target and draft, as ensembles of the two do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from mdsd._arguments import check_number
from mdsd._typing import FloatArray
from mdsd.engines.base import SingleDraftRule
from mdsd.errors import InvalidArgumentError
from mdsd.rules.accepting import accept_probs, left_over


@dataclass(frozen=True)
class MixtureAcceptance(SingleDraftRule):
    """Verify a draft losslessly against ``w p + (1 - w) q`` instead of the target p.

    Parameters
    ----------
    weight : float
        w, in [0, 1]: at 1 the rule is lossless, at 0 every draft is accepted.

    Raises
    ------
    InvalidArgumentError
        If `weight` is no number in [0, 1].

    Notes
    -----
    Fu et al., "Speculative Ensemble: Fast Large Language Model Ensemble via Speculation", for an
    ensemble of target and draft. The output law is the mixture. Its distance from the target is
    ``1 - w`` times that of the draft, and so is what it accepts more: no rule of the same bias
    accepts more.

    Examples
    --------
    >>> from mdsd import WithReplacement
    >>> draft = WithReplacement([0.2, 0.5, 0.3], 1)
    >>> MixtureAcceptance(0.5).outcome([0.5, 0.3, 0.2], draft).output_law.round(12).tolist()
    [0.35, 0.4, 0.25]
    """

    weight: float

    name = "mixture"
    source = 'Fu et al., "Speculative Ensemble", arXiv 2502.01662'
    used_by = "ensembles of target and draft"

    def __post_init__(self) -> None:
        vars(self).update(weight=check_share("weight", self.weight))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:  # noqa: D102
        return tuple(cls(weight) for weight in (0.9, 0.75, 0.5, 0.25))

    @property
    def lossless(self) -> bool:  # noqa: D102
        return self.weight == 1.0

    def accept_and_redraw(  # noqa: D102
        self, target_probs: FloatArray, draft_probs: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        mixed = self.weight * target_probs + (1.0 - self.weight) * draft_probs
        # What the mixture has more than the draft is w times what the target has.
        left = left_over(target_probs, draft_probs)
        return np.asarray(accept_probs(mixed, draft_probs)), left / left.sum()


def check_share(name: str, value: float, *, positive: bool = False) -> float:
    """Check a number in [0, 1], or in (0, 1]."""
    number = check_number(name, value, positive=positive)
    if number > 1.0:
        raise InvalidArgumentError(f"{name} is {value!r}; expected at most 1")
    return number
