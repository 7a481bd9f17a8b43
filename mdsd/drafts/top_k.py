"""The n most likely tokens: no randomness at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._frozen import frozen
from mdsd._probabilities import check_probs, ratio_order
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts.base import DeclaredDraft, check_num_drafts, require_support

__all__ = ["TopKDraft", "most_likely"]


class TopKDraft(DeclaredDraft):
    """The `num_drafts` most likely tokens of `draft_probs`, by descending probability.

    A deterministic draft has a one-point law: whatever the draft model's softmax says, these
    tokens are drafted with probability 1, and that is the law a verifier must be told.

    Parameters
    ----------
    draft_probs : array_like, shape (V,)
        Output distribution of the draft model.
    num_drafts : int
        n >= 1.

    Attributes
    ----------
    top_token_ids : ndarray of int64, shape (n,)
        The tuple: by descending probability, ties to the lowest id.

    Raises
    ------
    InvalidDistributionError
        If `draft_probs` is not a probability vector or has fewer than n positive entries.
    InvalidArgumentError
        If `num_drafts` is not an integer >= 1.

    Examples
    --------
    >>> draft = TopKDraft([0.2, 0.5, 0.3], 2)
    >>> list(draft.tuples())
    [((1, 2), 1.0)]
    """

    name = "top_k"
    words = "the top-k draft"
    distinct = True

    def __init__(self, draft_probs: ArrayLike, num_drafts: int) -> None:
        self.num_drafts = check_num_drafts(num_drafts)
        self.draft_probs = check_probs(draft_probs, "draft_probs")
        require_support(self.draft_probs, self.num_drafts, self.words)
        self.vocab_size = len(self.draft_probs)
        self.top_token_ids = most_likely(self.draft_probs, self.num_drafts)

    @classmethod
    def num_certain(cls, num_drafts: int, **options: Any) -> int:  # noqa: D102
        return num_drafts

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        return np.tile(self.top_token_ids, (size, 1))

    def _prob(self, ids: IntArray) -> FloatArray:
        return np.asarray((ids == self.top_token_ids).all(axis=-1).astype(np.float64))

    def _hit_probs(self, order: IntArray) -> FloatArray:
        met = np.maximum.accumulate(self.token_hit_probs()[order])
        return np.concatenate([[0.0], met])

    def _count_tuples(self) -> float:
        return 1

    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        return self.top_token_ids[np.newaxis].copy(), np.ones(1)

    def token_hit_probs(self) -> FloatArray:  # noqa: D102
        hits = np.zeros(self.vocab_size)
        hits[self.top_token_ids] = 1.0
        return hits

    def prefix_order(self, target_probs: FloatArray) -> IntArray:  # noqa: D102
        # The best A is everything off the drafted tokens: exactly those of infinite ratio.
        return ratio_order(target_probs, self.token_hit_probs())


def most_likely(probs: FloatArray, count: int) -> IntArray:
    """Ids of the `count` largest entries, largest first, ties to the lowest id; read-only."""
    tokens = np.arange(len(probs) if count else 0)
    if 0 < count < len(probs):
        # All that tie with the last one stay in: a few tokens, much sooner sorted than all.
        place = len(probs) - count
        tokens = np.flatnonzero(probs >= np.partition(probs, place)[place])
    order = np.argsort(-probs[tokens], kind="stable")[:count]
    return frozen(tokens[order].astype(np.int64))
