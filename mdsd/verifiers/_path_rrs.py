"""Recursive rejection without replacement, by sums along one sort of the tokens."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import WithoutReplacement
from mdsd.rules.accepting import accept_probs, residual_or_target
from mdsd.verifiers._rejection_paths import draw_residuals, path_caps, path_state, path_tables
from mdsd.verifiers._rejection_rates import exact_rejection, sample_rejection
from mdsd.verifiers._successive import SuccessiveRRSPlan
from mdsd.verifiers.base import closing_law

_MAX_PATHS = 1_000_000
"""Most rejection paths that are enumerated for an exact acceptance rate."""


class PathRRSPlan(SuccessiveRRSPlan):
    """Drafts without replacement: caps and residual depend on the tokens rejected before."""

    def __init__(
        self, target_probs: FloatArray, draft: WithoutReplacement, paths: int, seed: int
    ) -> None:
        super().__init__(target_probs, draft, paths, seed)
        self._drafted = draft.draft_probs
        self._tables = path_tables(target_probs, draft.draft_probs)

    @cached_property
    def _rate(self) -> tuple[float, float]:
        """Acceptance rate and its standard error."""
        p, q, n = self.target_probs, self._drafted, self.num_tests
        if n == 1:
            return float(min(1.0, np.minimum(p, q).sum())), 0.0
        exact = exact_rejection(self._tables, n, _MAX_PATHS)
        if not math.isnan(exact):
            return min(1.0, max(0.0, 1.0 - exact)), 0.0
        seed = np.uint64(self._seed % 2**64)
        rejected, variance = sample_rejection(self._tables, n, self._paths, seed)
        return min(1.0, max(0.0, 1.0 - rejected)), math.sqrt(variance)

    def _tests(self, ids: IntArray) -> tuple[FloatArray, IntArray]:
        return path_caps(self._tables, ids)[0], ids

    def _residual_masses(self, ids: IntArray) -> FloatArray:
        caps = path_caps(self._tables, ids)[1]
        return residual_or_target(self._above(caps[:, np.newaxis]), self.target_probs)

    def _draw_residual(self, ids: IntArray, uniforms: FloatArray) -> IntArray:
        return draw_residuals(self._tables, ids, uniforms)

    def _above(self, cap: float | FloatArray) -> FloatArray:
        """``(p - c q)+``; a cap so high that the product overflows leaves nothing."""
        with np.errstate(over="ignore"):
            return np.asarray(np.maximum(self.target_probs - cap * self._tables.drafted, 0.0))

    def marginal_law(self) -> FloatArray:
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
