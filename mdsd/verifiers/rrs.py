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
from mdsd.rules.accepting import accept_probs, residual_or_target
from mdsd.rules.rrs import rrs_tests
from mdsd.verifiers.base import Plan, SequentialPlan, Verifier, accepted_and_rejected, closing_law

_MAX_PATHS = 1_000_000
"""Most rejection paths that are enumerated for an exact acceptance rate."""


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
    takes_successive = True
    source = 'Yang et al., "Multi-Candidate Speculative Decoding"'

    def __init__(self, *, monte_carlo_paths: int = 4096, seed: int = 0) -> None:
        self.monte_carlo_paths = check_whole("monte_carlo_paths", monte_carlo_paths, 2)
        self.seed = check_whole("seed", seed, 0, math.inf)

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        return draft.num_drafts + 1

    def _plan(self, target_probs: FloatArray, draft: Any) -> Plan:
        if isinstance(draft, WithoutReplacement):
            return PathRRSPlan(target_probs, draft, self.monte_carlo_paths, self.seed)
        if isinstance(draft, IndependentDrafts):
            return ChainRRSPlan(target_probs, draft, list(draft.draft_probs))
        if isinstance(draft, WithReplacement):
            return ChainRRSPlan(target_probs, draft, [draft.draft_probs] * draft.num_drafts)
        from mdsd.verifiers._successive import SuccessiveRRSPlan

        return SuccessiveRRSPlan(target_probs, draft, self.monte_carlo_paths, self.seed)


class ChainRRSPlan(SequentialPlan):
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
    def acceptance_rate(self) -> float:  # noqa: D102
        return min(1.0, float(accepted_and_rejected(self._vectors, self.chances)[0].sum()))

    def marginal_law(self) -> FloatArray:  # noqa: D102
        return closing_law(*accepted_and_rejected(self._vectors, self.chances), self.residual)

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        return self.chances[np.arange(self.num_tests), ids], ids


class PathRRSPlan(SequentialPlan):
    """Drafts without replacement: caps and residual depend on the tokens rejected before."""

    def __init__(
        self, target_probs: FloatArray, draft: WithoutReplacement, paths: int, seed: int
    ) -> None:
        from mdsd.verifiers._rejection_paths import path_tables

        super().__init__(target_probs, draft)
        self.num_tests = draft.num_drafts
        self._draft_probs = draft.draft_probs
        self._paths, self._seed = paths, seed
        self._tables = path_tables(target_probs, draft.draft_probs)

    @cached_property
    def _rate(self) -> tuple[float, float]:
        """Acceptance rate and its standard error."""
        from mdsd.verifiers import _rejection_rates as rates

        p, q, n = self.target_probs, self._draft_probs, self.num_tests
        if n == 1:
            return float(min(1.0, np.minimum(p, q).sum())), 0.0
        exact = rates.exact_rejection(self._tables, n, _MAX_PATHS)
        if not math.isnan(exact):
            return min(1.0, max(0.0, 1.0 - exact)), 0.0
        rejected = rates.sample_rejection(
            self._tables, n, self._paths, np.uint64(self._seed % 2**64)
        )
        # Neighbours come from neighbouring strata: what they differ by is what is left of the
        # scatter, and some more, where the variance of all would take the strata for scatter too.
        steps, count = np.diff(rejected), len(rejected)
        stderr = math.sqrt(float(steps @ steps) / (2 * count * (count - 1)))
        return min(1.0, max(0.0, 1.0 - float(rejected.mean()))), stderr

    @property
    def acceptance_rate(self) -> float:  # noqa: D102
        return self._rate[0]

    @property
    def acceptance_stderr(self) -> float:  # noqa: D102
        return self._rate[1]

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        from mdsd.verifiers._rejection_paths import path_caps

        return path_caps(self._tables, ids)[0], ids

    def _residual_masses(self, ids: IntArray) -> FloatArray:
        from mdsd.verifiers._rejection_paths import path_caps

        caps = path_caps(self._tables, ids)[1]
        return residual_or_target(self._above(caps[:, np.newaxis]), self.target_probs)

    def _draw_residual(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        from mdsd.verifiers._rejection_paths import draw_residuals

        return draw_residuals(self._tables, ids, uniforms)

    def _above(self, cap: float | FloatArray) -> FloatArray:
        """``(p - c q)+``; a cap so high that the product overflows leaves nothing."""
        with np.errstate(over="ignore"):
            return np.asarray(np.maximum(self.target_probs - cap * self._tables.drafted, 0.0))

    def marginal_law(self) -> FloatArray:
        """Law of the emitted token, followed along the likeliest rejection path.

        What is emitted after some rejections does not depend on which tokens were rejected, so one
        path shows the law of them all, without enumeration.

        Returns
        -------
        ndarray of float64, shape (V,)
        """
        from mdsd.verifiers._rejection_paths import path_state

        accepted = np.zeros(len(self.target_probs))
        rest, reached = self._tables.drafted.copy(), 1.0
        path = np.empty(self.num_tests, dtype=np.int64)
        for k in range(self.num_tests):
            cap, mass, remaining = path_state(self._tables, path[:k])
            with np.errstate(over="ignore"):  # infinite wherever the test passes anyway
                wanted = np.minimum(self._above(cap) / mass * remaining, rest)
            chances = accept_probs(wanted, rest)
            drafted = rest / remaining
            accepted += reached * drafted * chances
            rejected = drafted * (1.0 - chances)
            reached *= float(rejected.sum())
            path[k] = int(rejected.argmax())
            rest[path[k]] = 0.0
        return closing_law(accepted, reached, self._residual_masses(path[np.newaxis])[0])
