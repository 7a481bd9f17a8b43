"""Verifiers as engines have them: their output is the target's, whatever they accept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from mdsd._typing import FloatArray
from mdsd.drafts import DraftDistribution
from mdsd.engines.base import EngineRule, RuleOutcome
from mdsd.verifiers import Verifier, get_verifier


@dataclass(frozen=True)
class VerifierRule(EngineRule):
    """A verifier of this library, which is lossless.

    Parameters
    ----------
    verifier : Verifier

    Examples
    --------
    >>> from mdsd import SingleDraftVerifier, WithReplacement
    >>> rule = VerifierRule(SingleDraftVerifier())
    >>> found = rule.outcome([0.5, 0.3, 0.2], WithReplacement([0.2, 0.5, 0.3], 1))
    >>> round(found.acceptance, 12), found.total_variation
    (0.7, 0.0)
    """

    verifier: Verifier

    drafts = ("with_replacement", "top_k")

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the verifier."""
        return self.verifier.name

    @property
    def source(self) -> str:  # type: ignore[override]
        """Where the verifier is stated."""
        return self.verifier.source

    @property
    def used_by(self) -> str:  # type: ignore[override]
        """Who has it."""
        return _USED_BY.get(self.name, "this library")

    @property
    def supported(self) -> str:  # type: ignore[override]
        """The draft distributions that the verifier is lossless for."""
        return self.verifier.supported

    @property
    def parameters(self) -> str:
        """Empty: a verifier is known by its name."""
        return ""

    @property
    def described(self) -> object:
        """The verifier."""
        return self.verifier

    @classmethod
    def examples(cls) -> tuple[Self, ...]:  # noqa: D102
        return tuple(cls(get_verifier(name).for_many()) for name in _USED_BY)

    @property
    def lossless(self) -> bool:  # noqa: D102
        return True

    def supports(self, draft: DraftDistribution) -> bool:  # noqa: D102
        return self.verifier.supports(draft)

    def _outcome(self, target: FloatArray, draft: DraftDistribution) -> RuleOutcome:
        return RuleOutcome(target, target, self.verifier.plan(target, draft).acceptance_rate)


_USED_BY = {
    "optimal": "none; the most that is lossless",
    "single": (
        "vLLM with draft probabilities, SGLang and TensorRT-LLM with rejection sampling (chains)"
    ),
    "naive": "SGLang (trees), llama.cpp, vLLM and TensorRT-LLM without draft probabilities",
}
"""Who has the verifiers that a comparison shows, in its order."""
