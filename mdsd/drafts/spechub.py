"""The pair of SpecHub: every pair holds the most likely token."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._random import find_tokens
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.drafts.base import DraftDistribution
from mdsd.drafts.top_and_tail import TopAndTail
from mdsd.drafts.without_replacement import WithoutReplacement


class SpecHubDraft(TopAndTail):
    """Two tokens, one of them the hub a = argmax q: (i, a) with probability q_i, else (a, i).

    Parameters
    ----------
    draft_probs : array_like, shape (V,)
        Output distribution of the draft model.

    Attributes
    ----------
    hub : int
        a: the most likely token, ties to the lowest id.
    tail_probs : ndarray of float64, shape (V,)
        Distribution of the other token: q off the hub, renormalised.
    other_first : float
        Probability that the other token comes first: the mass of q off the hub.

    Raises
    ------
    InvalidDistributionError
        If `draft_probs` is not a probability vector or has fewer than 2 positive entries.

    Notes
    -----
    Sun et al., "SpecHub: Provable Acceleration to Multi-Draft Speculative Decoding": the pair
    (a, i) has probability ``q_a q_i / (1 - q_a)`` and (i, a) has q_i. As a set it is the greedy
    draft with n = 2.

    Examples
    --------
    >>> draft = SpecHubDraft([0.2, 0.5, 0.3])
    >>> [(ids, round(p, 6)) for ids, p in draft.tuples()]
    [((0, 1), 0.2), ((2, 1), 0.3), ((1, 0), 0.2), ((1, 2), 0.3)]
    """

    name = "spechub"
    words = "the SpecHub draft"
    certain_first = False
    num_drafts = 2

    def __init__(self, draft_probs: ArrayLike) -> None:
        self._read(draft_probs, 2)
        # The chance that the other token comes first is its own mass: a sum, not 1 - q_a.
        self.other_first = self._split(1)
        self.hub = int(self.top_token_ids[0])

    @classmethod
    def from_probs(  # noqa: D102
        cls, draft_probs: ArrayLike, num_drafts: int, **options: Any
    ) -> DraftDistribution:
        cls.kind(**options).check_count(num_drafts)
        return cls(draft_probs)

    @classmethod
    def from_probs_at_most(  # noqa: D102
        cls, draft_probs: ArrayLike, num_drafts: int, **options: Any
    ) -> DraftDistribution:
        if num_drafts < cls.num_drafts:
            return WithoutReplacement(draft_probs, num_drafts)  # one token, beyond doubt
        return cls(draft_probs)

    @classmethod
    def refusal(cls, num_drafts: int, **options: Any) -> str | None:  # noqa: D102
        return None if num_drafts == cls.num_drafts else "the spechub draft has 2 drafts"

    @classmethod
    def num_certain(cls, num_drafts: int, **options: Any) -> int:  # noqa: D102
        return 1

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        uniforms = rng.random((size, 2))
        others = find_tokens(self._tail_sums, uniforms[:, 0])
        pairs = np.stack([others, np.full(size, self.hub)], axis=1)
        hub_first = uniforms[:, 1] >= self.other_first
        pairs[hub_first] = pairs[hub_first, ::-1]
        return pairs

    def _prob(self, ids: IntArray) -> FloatArray:
        first, second = ids[..., 0], ids[..., 1]
        other_first = np.where(second == self.hub, self.other_first * self.tail_probs[first], 0.0)
        hub_first = np.where(
            first == self.hub, self.draft_probs[self.hub] * self.tail_probs[second], 0.0
        )
        return np.asarray(other_first + hub_first)

    def is_possible(self, draft_token_ids: IntArray) -> BoolArray:  # noqa: D102
        # One is the hub, and so the other one has mass in the tail.
        has_hub = (draft_token_ids == self.hub).any(axis=-1)
        return np.asarray(has_hub & self.tail_probs[draft_token_ids].any(axis=-1))

    def _count_tuples(self) -> float:
        return 2 * int(np.count_nonzero(self.tail_probs))

    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        others = np.flatnonzero(self.tail_probs)
        hubs = np.full(len(others), self.hub)
        ids = np.concatenate([np.stack([others, hubs], 1), np.stack([hubs, others], 1)])
        return ids.astype(np.int64), self._prob(ids)
