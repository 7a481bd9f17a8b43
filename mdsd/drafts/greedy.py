"""The n - 1 most likely tokens, and one sampled from the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._frozen import frozen
from mdsd._probabilities import check_probs, ratio_order
from mdsd._random import draw_tokens
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts.base import DeclaredDraft, check_num_drafts, require_support
from mdsd.drafts.top_k import most_likely

__all__ = ["GreedyDraft", "hit_of_top_and_tail"]


class GreedyDraft(DeclaredDraft):
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
    distinct = True

    def __init__(self, draft_probs: ArrayLike, num_drafts: int) -> None:
        self.num_drafts = check_num_drafts(num_drafts)
        self.draft_probs = check_probs(draft_probs, "draft_probs")
        require_support(self.draft_probs, self.num_drafts, self.words)
        self.vocab_size = len(self.draft_probs)
        self.top_token_ids = most_likely(self.draft_probs, self.num_drafts - 1)
        tail = self.draft_probs.copy()
        tail[self.top_token_ids] = 0.0
        self.tail_probs: FloatArray = frozen(tail / tail.sum())

    @classmethod
    def num_certain(cls, num_drafts: int, **options: Any) -> int:  # noqa: D102
        return num_drafts - 1

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        drawn = np.empty((size, self.num_drafts), dtype=np.int64)
        drawn[:, :-1] = self.top_token_ids
        drawn[:, -1] = draw_tokens(self.tail_probs, rng.random(size))
        return drawn

    def _prob(self, ids: IntArray) -> FloatArray:
        same_top = (ids[..., :-1] == self.top_token_ids).all(axis=-1)
        return np.asarray(np.where(same_top, self.tail_probs[ids[..., -1]], 0.0))

    def _hit_probs(self, order: IntArray) -> FloatArray:
        return hit_of_top_and_tail(order, self.top_token_ids, self.tail_probs)

    def _count_tuples(self) -> float:
        return int(np.count_nonzero(self.tail_probs))

    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        sampled = np.flatnonzero(self.tail_probs)
        ids = np.empty((len(sampled), self.num_drafts), dtype=np.int64)
        ids[:, :-1] = self.top_token_ids
        ids[:, -1] = sampled
        return ids, self.tail_probs[sampled]

    def token_hit_probs(self) -> FloatArray:  # noqa: D102
        hits = self.tail_probs.copy()
        hits[self.top_token_ids] = 1.0
        return hits

    def prefix_order(self, target_probs: FloatArray) -> IntArray:  # noqa: D102
        # f(A) = 1 as soon as A meets T, so an optimal A holds the tokens off T with p > q~ only:
        # a prefix by p over f({i}), in which tokens of T have ratios of at most 1.
        return ratio_order(target_probs, self.token_hit_probs())


def hit_of_top_and_tail(order: IntArray, top: IntArray, tail_probs: FloatArray) -> FloatArray:
    """Hit probabilities along an order when `top` is always drafted and one token of the tail is.

    Parameters
    ----------
    order : ndarray of int64, shape (V,)
    top : ndarray of int64
        Tokens that are always drafted.
    tail_probs : ndarray, shape (V,)
        Distribution of the one sampled token, 0 on `top`; all 0 where none is sampled.

    Returns
    -------
    ndarray, shape (V + 1,)
        1 as soon as the prefix meets `top`, else the mass of the tail in it.
    """
    certain = np.zeros(len(order), dtype=np.bool_)
    certain[top] = True
    met = np.maximum.accumulate(certain[order])
    hits = np.where(met, 1.0, np.minimum(np.cumsum(tail_probs[order]), 1.0))
    return np.concatenate([[0.0], hits])
