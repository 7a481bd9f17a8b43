"""Recursive rejection sampling (RRS)."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from mdsd._arguments import check_whole
from mdsd._frozen import frozen
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution, IndependentDrafts, WithoutReplacement, WithReplacement
from mdsd.rules.rrs import FOLLOWED, rrs_tests
from mdsd.verifiers.base import OneResidualPlan, Plan, Verifier, accepted_and_rejected


class RRSVerifier(Verifier):
    """Test the drafts one after another, each against what the rejections before it left.

    Uniforms: one accept test for each draft in draft order, then the residual.

    Parameters
    ----------
    monte_carlo_paths : int, default 4096
        Rejection paths sampled for the acceptance rate without replacement where enumeration is
        too large; the plan then reports a standard error.
    seed : int, default 0
        Seed of that sampling.

    Raises
    ------
    InvalidArgumentError
        If `monte_carlo_paths` is not an integer >= 2 or `seed` not an integer >= 0.

    Notes
    -----
    Yang et al., "Multi-Candidate Speculative Decoding"; Jeon et al., "Recursive Speculative
    Decoding". It takes every draft that says how each of its tokens is drawn after those before it
    (`DraftDistribution.next_probs`). With replacement and for independent drafts the residuals are
    the same for every path and the rate is exact; without replacement it is exact for n <= 2 and
    small supports.

    Examples
    --------
    >>> from mdsd import RRSVerifier, WithoutReplacement, WithReplacement
    >>> p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    >>> round(RRSVerifier().plan(p, WithReplacement(q, 3)).acceptance_rate, 12)
    0.808
    >>> round(RRSVerifier().plan(p, WithoutReplacement(q, 2)).acceptance_rate, 9)
    0.808571429
    """

    name = "rrs"
    in_draft_order = True
    takes_successive = True
    source = 'Yang et al., "Multi-Candidate Speculative Decoding"'

    def __init__(self, *, monte_carlo_paths: int = 4096, seed: int = 0) -> None:
        self.monte_carlo_paths = check_whole("monte_carlo_paths", monte_carlo_paths, 2)
        self.seed = check_whole("seed", seed, 0, math.inf)

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        return draft.num_drafts + 1

    def _plan(self, target_probs: FloatArray, draft: Any) -> Plan:
        if isinstance(draft, WithoutReplacement):
            from mdsd.verifiers._path_rrs import PathRRSPlan

            return PathRRSPlan(target_probs, draft, self.monte_carlo_paths, self.seed)
        if isinstance(draft, IndependentDrafts):
            return ChainRRSPlan(target_probs, draft, list(draft.draft_probs))
        if isinstance(draft, WithReplacement):
            if draft.num_drafts > FOLLOWED:
                from mdsd.verifiers._steady_rrs import SteadyRRSPlan

                return SteadyRRSPlan(target_probs, draft)
            return ChainRRSPlan(target_probs, draft, [draft.draft_probs] * draft.num_drafts)
        from mdsd.verifiers._successive import SuccessiveRRSPlan

        return SuccessiveRRSPlan(target_probs, draft, self.monte_carlo_paths, self.seed)


class ChainRRSPlan(OneResidualPlan):
    """Independent drafts: the law tested in round k does not depend on the rejected tokens.

    Attributes
    ----------
    chances : ndarray, shape (n, V)
        Probability that round k accepts each token.
    """

    def __init__(
        self, target_probs: FloatArray, draft: DraftDistribution, vectors: list[FloatArray]
    ) -> None:
        super().__init__(target_probs, draft)
        self.num_tests = len(vectors)
        chances, residual = rrs_tests(target_probs, vectors)
        self.chances, self.residual = frozen(np.stack(chances)), frozen(residual)
        self._vectors = vectors

    @cached_property
    def _accepted_and_rejected(self) -> tuple[FloatArray, float]:
        return accepted_and_rejected(self._vectors, self.chances)

    @property
    def acceptance_rate(self) -> float:  # noqa: D102
        return min(1.0, float(self._accepted_and_rejected[0].sum()))

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        return self.chances[np.arange(self.num_tests), ids], ids
