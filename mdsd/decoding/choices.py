"""Every random decision of a decoder, asked of one object.

Whoever answers decides what a run of the decoder is: `RandomChoices` draws, and
`mdsd.decoding.enumeration` follows every answer with its probability through the very same code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from mdsd._random import RandomSource, draw_tokens, generator
from mdsd._typing import FloatArray, IntArray
from mdsd.batch.verification import verify_one
from mdsd.drafts import DraftDistribution
from mdsd.verifiers import Verifier
from mdsd.verifiers.base import Plan, SelectionPlan


class Choices(ABC):
    """Answers to the questions that a decoder leaves to chance."""

    @abstractmethod
    def drafts(self, draft: DraftDistribution) -> IntArray:
        """Draw the tokens that are drafted at one node.

        Parameters
        ----------
        draft : DraftDistribution

        Returns
        -------
        ndarray of int64, shape (n,)
            In draft order.
        """

    def plan(self, verifier: Verifier, target_probs: FloatArray, draft: DraftDistribution) -> Plan:
        """Plan a verification, for `select`; nothing is left to chance here.

        Parameters
        ----------
        verifier : Verifier
            Supports `draft`.
        target_probs : ndarray of float64, shape (V,)
        draft : DraftDistribution

        Returns
        -------
        Plan
        """
        return verifier._plan(target_probs, draft)  # a step checks its laws before it begins

    @abstractmethod
    def verify(
        self,
        verifier: Verifier,
        target_probs: FloatArray,
        draft: DraftDistribution,
        draft_token_ids: IntArray,
    ) -> int:
        """Verify the drafts of one node.

        Parameters
        ----------
        verifier : Verifier
            Supports `draft`.
        target_probs : ndarray of float64, shape (V,)
        draft : DraftDistribution
        draft_token_ids : ndarray of int64, shape (n,)

        Returns
        -------
        int
            The emitted token.
        """

    @abstractmethod
    def accept(self, probability: float) -> bool:
        """Make an accept test.

        Parameters
        ----------
        probability : float
            In [0, 1].

        Returns
        -------
        bool
        """

    @abstractmethod
    def token(self, masses: FloatArray) -> int:
        """Draw a token.

        Parameters
        ----------
        masses : ndarray of float64, shape (V,)
            At least 0, not necessarily normalised, one of them positive.

        Returns
        -------
        int
        """

    @abstractmethod
    def select(self, plan: SelectionPlan, draft_token_ids: IntArray) -> int:
        """Select one of the drafts as a plan does, without its accept test.

        Parameters
        ----------
        plan : SelectionPlan
        draft_token_ids : ndarray of int64, shape (n,)

        Returns
        -------
        int
            Position of the selected token, the first if it was drafted twice; -1 where none is.
        """


class RandomChoices(Choices):
    """Draws; drafting and verifying each from a stream of its own.

    Parameters
    ----------
    rng : numpy.random.Generator, torch.Generator, int or None
        An integer seeds both streams, differently; a generator serves both.

    Examples
    --------
    >>> choices = RandomChoices(0)
    >>> choices.token(np.array([0.0, 3.0, 0.0])), choices.accept(0.0)
    (1, False)
    """

    def __init__(self, rng: RandomSource) -> None:
        self._draft = generator(rng, "draft")
        self._verify = generator(rng, "verify")

    def drafts(self, draft: DraftDistribution) -> IntArray:  # noqa: D102
        return draft.sample(self._draft)

    def verify(  # noqa: D102
        self,
        verifier: Verifier,
        target_probs: FloatArray,
        draft: DraftDistribution,
        draft_token_ids: IntArray,
    ) -> int:
        return verify_one(verifier, target_probs, draft, draft_token_ids, self._verify)

    def accept(self, probability: float) -> bool:  # noqa: D102
        return bool(self._verify.random() < probability)

    def token(self, masses: FloatArray) -> int:  # noqa: D102
        return int(draw_tokens(masses, self._verify.random()))

    def select(self, plan: SelectionPlan, draft_token_ids: IntArray) -> int:  # noqa: D102
        # The last two uniforms of a plan are its accept test and its residual.
        uniforms = self._verify.random((1, plan.num_uniforms - 2))
        token = plan._select(draft_token_ids[np.newaxis], uniforms)[0]
        kept = float(plan._keep_probs(np.array([token]))[0])
        if kept < 1.0 and not self.accept(kept):
            return -1
        return int(np.argmax(draft_token_ids == token))
