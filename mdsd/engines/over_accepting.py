"""The rule of Yin et al.: every draft is accepted with a little more than its due."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from mdsd._arguments import check_name, check_number
from mdsd._typing import FloatArray
from mdsd.engines.base import SingleDraftRule
from mdsd.rules.biased import REDRAWS, Redraw, accept_and_redraw


@dataclass(frozen=True)
class OverAcceptance(SingleDraftRule):
    """Accept a draft with probability ``min(1, (p + eps) / q)``, else redraw.

    Parameters
    ----------
    epsilon : float
        Over-acceptance, finite and >= 0: at 0, with the optimal rejection law, the rule is
        lossless; from 1 on every draft is accepted.
    redraw : {"optimal", "target"}
        Rejection law: ``(p - b q)+``, normalised (Decoding-OPT), or the target (Decoding-UNO).

    Raises
    ------
    InvalidArgumentError
        If `epsilon` is no finite number >= 0, or `redraw` is not known.

    Notes
    -----
    Yin et al., "A Theoretical Perspective for Speculative Decoding Algorithm", Section 4. With the
    optimal rejection law no rule of the same bias accepts more.

    Examples
    --------
    >>> from mdsd import WithReplacement
    >>> draft = WithReplacement([0.2, 0.5, 0.3], 1)
    >>> found = OverAcceptance(0.1).outcome([0.5, 0.3, 0.2], draft)
    >>> round(found.acceptance, 12), round(found.total_variation, 12)
    (0.9, 0.2)
    """

    epsilon: float
    redraw: Redraw = "optimal"

    name = "over_accepting"
    source = 'Yin et al., "A Theoretical Perspective for Speculative Decoding Algorithm"'
    used_by = "none; no rule of its bias accepts more"

    def __post_init__(self) -> None:
        check_name("redraw", self.redraw, REDRAWS)
        vars(self).update(epsilon=check_number("epsilon", self.epsilon))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:  # noqa: D102
        return tuple(cls(epsilon) for epsilon in (0.01, 0.05, 0.1, 0.2))

    @property
    def lossless(self) -> bool:  # noqa: D102
        return self.epsilon == 0.0 and self.redraw == "optimal"

    @property
    def parameters(self) -> str:  # noqa: D102
        return str(self.epsilon) + ("" if self.redraw == "optimal" else f":{self.redraw}")

    def accept_and_redraw(  # noqa: D102
        self, target_probs: FloatArray, draft_probs: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        found: tuple[Any, Any] = accept_and_redraw(
            target_probs, draft_probs, self.epsilon, self.redraw
        )
        return found
