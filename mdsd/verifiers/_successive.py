"""Recursive rejection of any drafts that say how each token is drawn after those before it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property

import numpy as np

from mdsd._random import draw_tokens
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.errors import UnsupportedError
from mdsd.rules.accepting import Tests
from mdsd.rules.rrs import rrs_tests
from mdsd.verifiers.base import SequentialPlan, accepted_and_rejected, closing_law

_MOST_TUPLES = 4096
"""Tuples up to which the acceptance rate is exact: each takes n passes over the vocabulary."""


class SuccessiveRRSPlan(SequentialPlan):
    """Test every draft against what is left, with the law it was drawn from.

    Parameters
    ----------
    target_probs : ndarray of float64, shape (V,)
    draft : DraftDistribution
        Which is `successive`.
    paths : int
        Tuples drawn for the acceptance rate where there are too many to enumerate.
    seed : int
        Of these draws.
    """

    def __init__(
        self, target_probs: FloatArray, draft: DraftDistribution, paths: int, seed: int
    ) -> None:
        super().__init__(target_probs, draft)
        self.num_tests = draft.num_drafts
        self._paths, self._seed = paths, seed

    def _draft_probs(self, ids: IntArray, count: int) -> list[FloatArray]:
        """Distribution of each of the first drafts of a tuple, given those before it."""
        return [self.draft.next_probs(ids[:k]) for k in range(count)]

    def _rule(self, ids: IntArray) -> Tests:
        return rrs_tests(self.target_probs, self._draft_probs(ids, self.num_tests))

    def _of_each(self, ids: IntArray, ask: Callable[[IntArray], FloatArray]) -> FloatArray:
        """Ask about each row of ids, once about those that are equal."""
        tuples, place = np.unique(ids, axis=0, return_inverse=True)
        return np.array([ask(row) for row in tuples])[place.ravel()]

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        places = np.arange(self.num_tests)
        chances = self._of_each(ids, lambda row: np.stack(self._rule(row).chances)[places, row])
        return chances.reshape(ids.shape), ids

    def _residual_masses(self, ids: IntArray) -> FloatArray:
        return self._of_each(ids, lambda row: self._rule(row).residual)

    def _draw_residual(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        tuples, place = np.unique(ids, axis=0, return_inverse=True)
        drawn = np.empty(len(ids), dtype=np.int64)
        for k, row in enumerate(tuples):
            own = place.ravel() == k
            drawn[own] = draw_tokens(self._rule(row).residual, uniforms[own])
        return drawn

    @cached_property
    def _rate(self) -> tuple[float, float]:
        """Acceptance rate and its standard error."""
        with suppress(UnsupportedError):
            ids, probs = self.draft.tuple_arrays()
            if len(probs) <= _MOST_TUPLES:
                return min(1.0, max(0.0, 1.0 - float(probs @ self._rejections(ids)))), 0.0
        rejected = self._rejections(self.draft.sample(self._seed, self._paths))
        # Tuples rarer than one in so many may not have been drawn.
        stderr = math.hypot(rejected.std(ddof=1) / math.sqrt(self._paths), 1.0 / self._paths)
        return min(1.0, max(0.0, 1.0 - float(rejected.mean()))), stderr

    def _rejections(self, ids: IntArray) -> FloatArray:
        """Probability that all tests of each tuple fail."""
        return np.asarray((1.0 - self._tests(ids)[0]).prod(axis=1))

    @property
    def acceptance_rate(self) -> float:
        return self._rate[0]

    @property
    def acceptance_stderr(self) -> float:
        return self._rate[1]

    def marginal_law(self) -> FloatArray:
        """Law of the emitted token, followed along the likeliest rejection path.

        What is emitted after some rejections does not depend on which tokens were rejected, so one
        path shows the law of them all, without enumeration.

        Returns
        -------
        ndarray of float64, shape (V,)
        """
        path = np.empty(self.num_tests, dtype=np.int64)
        for k in range(self.num_tests):
            drafted = self._draft_probs(path, k + 1)
            chances, residual = rrs_tests(self.target_probs, drafted)
            rejected = drafted[k] * (1.0 - chances[k])
            path[k] = int((rejected if rejected.any() else drafted[k]).argmax())
        return closing_law(*accepted_and_rejected(drafted, chances), residual)
