"""What every rule of an engine is made of: `EngineRule`, and the `RuleOutcome` at one position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from mdsd._frozen import FrozenArrays
from mdsd._probabilities import check_probs, check_same_vocab
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.drafts.base import check_draft
from mdsd.errors import UnsupportedError


@dataclass(frozen=True, eq=False)
class RuleOutcome(FrozenArrays):
    """What a rule does at one position, over its drafts and its own chance.

    Attributes
    ----------
    target_probs : ndarray of float64, shape (V,)
    output_law : ndarray of float64, shape (V,)
        Distribution of the emitted token.
    acceptance : float
        Probability that a draft is accepted, in [0, 1].

    Examples
    --------
    >>> from mdsd.analysis import assess_rule
    >>> from mdsd import WithReplacement
    >>> found = assess_rule("mixture:0.5", [0.5, 0.3, 0.2], WithReplacement([0.2, 0.5, 0.3], 1))
    >>> found.output_law.round(12).tolist(), round(found.acceptance, 12)
    ([0.35, 0.4, 0.25], 0.85)
    >>> round(found.total_variation, 12), round(found.kl_divergence, 6)
    (0.15, 0.046022)
    """

    target_probs: FloatArray
    output_law: FloatArray
    acceptance: float

    @property
    def total_variation(self) -> float:
        """Distance of the output law from the target, in [0, 1]; 0 where nothing is lost."""
        return float(np.maximum(self.output_law - self.target_probs, 0.0).sum())

    @property
    def kl_divergence(self) -> float:
        """``sum o log(o / p)`` of the output law o from the target, in nats.

        Infinite where a token is emitted that the target never would.
        """
        emitted = self.output_law > 0.0
        law, target = self.output_law[emitted], self.target_probs[emitted]
        if not target.all():
            return float("inf")
        # Terms that are 0 where the two agree, so that their sum is 0 there and nowhere negative.
        terms = law * (np.log(law) - np.log(target)) - law + target
        return float(np.maximum(terms, 0.0).sum() + self.target_probs[~emitted].sum())


@dataclass(frozen=True)
class Decision:
    """What a rule does with the drafts of one position that were drawn.

    Attributes
    ----------
    chances : ndarray of float64, shape (n,)
        Probability that each draft is accepted, given that those before it were not.
    rejection_law : ndarray of float64, shape (V,)
        Masses of the token emitted if none is, not necessarily normalised.
    """

    chances: FloatArray
    rejection_law: FloatArray


class EngineRule(ABC):
    """What an engine does with the drafts of one position.

    A subclass is a frozen dataclass whose fields are the parameters of the rule.

    Attributes
    ----------
    name : str
        What it is called, on the command line too.
    source : str
        Where the rule is stated.
    used_by : str
        Who has it.
    drafts : tuple of str
        Kinds of drafts that it is used with.
    lossless : bool
        Whether its output has the law of the target, whatever target and draft are.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    used_by: ClassVar[str]
    drafts: ClassVar[tuple[str, ...]]
    supported: ClassVar[str]

    @classmethod
    @abstractmethod
    def examples(cls) -> tuple[Self, ...]:
        """Give the rule with the parameters that a comparison shows."""

    @property
    @abstractmethod
    def lossless(self) -> bool:
        """Whether its output has the law of the target, whatever target and draft are."""

    @property
    def parameters(self) -> str:
        """Its parameters as the command line has them; empty if there are none."""
        return ":".join(str(getattr(self, each.name)) for each in fields(self))  # type: ignore[arg-type]

    @property
    def label(self) -> str:
        """Its name, and its parameters behind colons."""
        return ":".join(filter(None, [self.name, self.parameters]))

    @property
    def described(self) -> object:
        """Whose docstring says what it does."""
        return self

    def supports(self, draft: DraftDistribution) -> bool:
        """Tell whether the rule says what to do with such drafts.

        Parameters
        ----------
        draft : DraftDistribution
        """
        return draft.num_drafts == 1

    def outcome(self, target_probs: ArrayLike, draft: DraftDistribution) -> RuleOutcome:
        """Work out what the rule does at one position.

        Parameters
        ----------
        target_probs : array_like, shape (V,)
        draft : DraftDistribution
            Law of the drafts.

        Returns
        -------
        RuleOutcome

        Raises
        ------
        InvalidDistributionError
            If `target_probs` is no probability vector, or has another length than the draft's.
        UnsupportedError
            If the rule does not take such drafts.
        """
        check_draft(draft)
        target = check_probs(target_probs, "target_probs")
        check_same_vocab(target, draft.vocab_size, "draft.draft_probs")
        self.refuse_unsupported(draft)
        return self._outcome(target, draft)

    def refuse_unsupported(self, draft: DraftDistribution) -> None:
        """Refuse drafts that the rule does not take.

        Parameters
        ----------
        draft : DraftDistribution

        Raises
        ------
        UnsupportedError
        """
        if not self.supports(draft):
            raise UnsupportedError(
                f"rule {self.label!r} does not support {draft.num_drafts} drafts of the "
                f"{draft.name} draft distribution at one node; it takes {self.supported}"
            )

    @abstractmethod
    def _outcome(self, target: FloatArray, draft: DraftDistribution) -> RuleOutcome:
        """Work out the outcome for a checked target and supported drafts."""


class BiasedRule(EngineRule):
    """A rule that can be biased: **not lossless**, unless its parameters say so.

    It decides about drafts one after the other, and the step ends where none is accepted.
    """

    @abstractmethod
    def decide(
        self, target_probs: FloatArray, draft: DraftDistribution, draft_token_ids: IntArray
    ) -> Decision:
        """Decide about drafts that were drawn.

        Parameters
        ----------
        target_probs : ndarray of float64, shape (V,)
        draft : DraftDistribution
            Supported.
        draft_token_ids : ndarray of int64, shape (n,)

        Returns
        -------
        Decision
        """

    def _outcome(self, target: FloatArray, draft: DraftDistribution) -> RuleOutcome:
        output, acceptance = np.zeros_like(target), 0.0
        for drafted, left in zip(*draft.tuple_arrays(), strict=True):
            decision = self.decide(target, draft, drafted)
            for token, chance in zip(drafted, decision.chances, strict=True):
                output[token] += left * chance
                acceptance += left * chance
                left *= 1.0 - chance
            if left > 0.0:
                output += left * (decision.rejection_law / decision.rejection_law.sum())
        return RuleOutcome(target, output, min(1.0, float(acceptance)))


class SingleDraftRule(BiasedRule):
    """A rule for one draft, of any law, that redraws from one law whichever token was rejected."""

    drafts = ("with_replacement",)
    supported = "chains, with num_drafts = 1"

    @abstractmethod
    def accept_and_redraw(
        self, target_probs: FloatArray, draft_probs: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """State the rule.

        Parameters
        ----------
        target_probs, draft_probs : ndarray of float64, shape (V,)

        Returns
        -------
        accept_probs, rejection_law : ndarray of float64, shape (V,)
            The probability of accepting each token if it was drafted, and the law of the token
            emitted if it was not.
        """

    def decide(  # noqa: D102
        self, target_probs: FloatArray, draft: DraftDistribution, draft_token_ids: IntArray
    ) -> Decision:
        accept, law = self.accept_and_redraw(target_probs, draft.token_hit_probs())
        return Decision(accept[draft_token_ids], law)

    def _outcome(self, target: FloatArray, draft: DraftDistribution) -> RuleOutcome:
        probs = draft.token_hit_probs()
        accept, law = self.accept_and_redraw(target, probs)
        rejected = float(((1.0 - accept) * probs).sum())
        accepted = accept * probs
        return RuleOutcome(target, accepted + rejected * law, min(1.0, float(accepted.sum())))
