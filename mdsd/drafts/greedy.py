"""The n - 1 most likely tokens, and one sampled from the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._random import find_tokens
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts.top_and_tail import TopAndTail


class GreedyDraft(TopAndTail):
    """The top n - 1 tokens of `draft_probs`, then one sampled from the other tokens.

    Parameters
    ----------
    draft_probs : array_like, shape (V,)
        Output distribution of the draft model.
    num_drafts : int
        n >= 1.

    Attributes
    ----------
    top_token_ids : ndarray of int64, shape (n - 1,)
        T: by descending probability, ties to the lowest id.
    tail_probs : ndarray of float64, shape (V,)
        q~: the draft probabilities off T, renormalised; 0 on T.

    Raises
    ------
    InvalidDistributionError
        If `draft_probs` is not a probability vector or has fewer than n positive entries.
    InvalidArgumentError
        If `num_drafts` is not an integer >= 1.

    Notes
    -----
    The greedy draft of Hu et al., "Towards Optimal Multi-draft Speculative Decoding". The
    tuple is T in order, then the sampled token.

    Examples
    --------
    >>> draft = GreedyDraft([0.2, 0.5, 0.3], 2)
    >>> [(ids, round(p, 6)) for ids, p in draft.tuples()]
    [((1, 0), 0.4), ((1, 2), 0.6)]
    """

    name = "greedy"
    words = "the greedy draft"

    def __init__(self, draft_probs: ArrayLike, num_drafts: int) -> None:
        self._read(draft_probs, num_drafts)
        self._split(self.num_drafts - 1)

    @classmethod
    def num_certain(cls, num_drafts: int, **options: Any) -> int:  # noqa: D102
        return num_drafts - 1

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        drawn = np.empty((size, self.num_drafts), dtype=np.int64)
        drawn[:, :-1] = self.top_token_ids
        drawn[:, -1] = find_tokens(self._tail_sums, rng.random(size))
        return drawn

    def _prob(self, ids: IntArray) -> FloatArray:
        return np.asarray(np.where(self._same_top(ids), self.tail_probs[ids[..., -1]], 0.0))

    def _count_tuples(self) -> float:
        return int(np.count_nonzero(self.tail_probs))

    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        sampled = np.flatnonzero(self.tail_probs)
        ids = np.empty((len(sampled), self.num_drafts), dtype=np.int64)
        ids[:, :-1] = self.top_token_ids
        ids[:, -1] = sampled
        return ids, self.tail_probs[sampled]
