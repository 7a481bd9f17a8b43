"""The n most likely tokens: no randomness at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._typing import FloatArray, IntArray
from mdsd.drafts.top_and_tail import TopAndTail


class TopKDraft(TopAndTail):
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

    def __init__(self, draft_probs: ArrayLike, num_drafts: int) -> None:
        self._read(draft_probs, num_drafts)
        self._split(self.num_drafts)

    @classmethod
    def num_certain(cls, num_drafts: int, **options: Any) -> int:  # noqa: D102
        return num_drafts

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        return np.tile(self.top_token_ids, (size, 1))

    def _prob(self, ids: IntArray) -> FloatArray:
        return self._same_top(ids).astype(np.float64)

    def _count_tuples(self) -> float:
        return 1

    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        return self.top_token_ids[np.newaxis].copy(), np.ones(1)
