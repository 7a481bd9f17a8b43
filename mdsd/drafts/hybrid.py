"""The most likely tokens, and others drawn without replacement beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole
from mdsd._probabilities import ratio_order
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.drafts.base import DraftDistribution, DraftKind, check_num_drafts
from mdsd.drafts.top_and_tail import TopAndTail
from mdsd.drafts.without_replacement import WithoutReplacement
from mdsd.errors import InvalidArgumentError

if TYPE_CHECKING:
    from mdsd._solvers.law_parts import LawPart


class HybridDraft(TopAndTail):
    """The `num_top` most likely tokens, then tokens drawn without replacement from the others.

    Parameters
    ----------
    draft_probs : array_like, shape (V,)
        Output distribution of the draft model.
    num_drafts : int
        n >= 1.
    num_top : int
        m in 0 .. n: tokens that are drafted whatever chance does.

    Attributes
    ----------
    top_token_ids : ndarray of int64, shape (m,)
        T: by descending probability, ties to the lowest id.
    tail_probs : ndarray of float64, shape (V,)
        q~: the draft probabilities off T, renormalised; 0 on T, and everywhere if m = n.

    Raises
    ------
    InvalidDistributionError
        If `draft_probs` is not a probability vector or has fewer than n positive entries.
    InvalidArgumentError
        If `num_drafts` is not an integer >= 1, or `num_top` not an integer in 0 .. n.

    Notes
    -----
    The hit function is 1 on every set that meets T, else that of drawing n - m tokens from q~
    without replacement. With m = 0 this is `WithoutReplacement`, with n - 1 `GreedyDraft`, with n
    `TopKDraft`; in between it never leaves out a token that the draft model is sure of, and still
    draws from the tail.

    Examples
    --------
    >>> draft = HybridDraft([0.1, 0.5, 0.3, 0.1], 3, num_top=1)
    >>> [(ids, round(p, 6)) for ids, p in draft.tuples() if ids[1] == 2]
    [((1, 2, 0), 0.3), ((1, 2, 3), 0.3)]
    >>> HybridDraft.kind(num_top=1).label
    'hybrid:1'
    """

    name = "hybrid"
    words = "the hybrid draft"
    options = ("num_top",)
    successive = True

    def __init__(self, draft_probs: ArrayLike, num_drafts: int, num_top: int) -> None:
        count = check_num_drafts(num_drafts)
        self.num_top = check_whole("num_top", num_top, 0)
        refusal = self.refusal(count, num_top=self.num_top)
        if refusal is not None:
            raise InvalidArgumentError(f"num_drafts is {num_drafts}; {refusal}")
        self._read(draft_probs, num_drafts)
        self._split(self.num_top)
        drawn = self.num_drafts - self.num_top
        self._tail = WithoutReplacement(self.tail_probs, drawn) if drawn else None

    @classmethod
    def check_options(cls, **options: Any) -> dict[str, Any]:  # noqa: D102
        return {"num_top": check_whole("num_top", options["num_top"], 0)}

    @classmethod
    def refusal(cls, num_drafts: int, **options: Any) -> str | None:  # noqa: D102
        num_top: int = options["num_top"]
        few = num_drafts < num_top
        return f"the hybrid draft has the {num_top} most likely tokens at least" if few else None

    @classmethod
    def num_certain(cls, num_drafts: int, **options: Any) -> int:  # noqa: D102
        return int(options["num_top"])

    @classmethod
    def example_kinds(cls, num_drafts: int) -> tuple[DraftKind, ...]:  # noqa: D102
        return tuple(cls.kind(num_top=m) for m in range(num_drafts + 1))

    @classmethod
    def from_probs_at_most(  # noqa: D102
        cls, draft_probs: ArrayLike, num_drafts: int, **options: Any
    ) -> DraftDistribution:
        return cls(draft_probs, num_drafts, min(options["num_top"], num_drafts))

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        drawn = np.empty((size, self.num_drafts), dtype=np.int64)
        drawn[:, : self.num_top] = self.top_token_ids
        if self._tail is not None:
            drawn[:, self.num_top :] = self._tail._draw(rng, size)
        return drawn

    def _prob(self, ids: IntArray) -> FloatArray:
        same_top = self._same_top(ids)
        if self._tail is None:
            return same_top.astype(np.float64)
        return np.asarray(np.where(same_top, self._tail._prob(ids[..., self.num_top :]), 0.0))

    def is_possible(self, draft_token_ids: IntArray) -> BoolArray:  # noqa: D102
        # The product of the probabilities may underflow for a tuple that can be drawn.
        same_top = self._same_top(draft_token_ids)
        if self._tail is None:
            return same_top
        return same_top & self._tail.is_possible(draft_token_ids[..., self.num_top :])

    def _next_probs(self, drafted: IntArray) -> FloatArray:
        if len(drafted) < self.num_top or self._tail is None:
            certain = np.zeros(self.vocab_size)
            certain[self.top_token_ids[len(drafted)]] = 1.0
            return certain
        return self._tail._next_probs(drafted[self.num_top :])

    def _hit_probs(self, order: IntArray) -> FloatArray:
        hits = np.zeros(len(order) + 1) if self._tail is None else self._tail._hit_probs(order)
        hits[1:][np.logical_or.accumulate(self._certain()[order])] = 1.0
        return hits

    def _count_tuples(self) -> float:
        return 1.0 if self._tail is None else self._tail._count_tuples()

    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        if self._tail is None:
            return self.top_token_ids[np.newaxis].copy(), np.ones(1)
        drawn, probs = self._tail._tuple_arrays()
        top = np.tile(self.top_token_ids, (len(drawn), 1))
        return np.concatenate([top, drawn], axis=1), probs

    def token_hit_probs(self) -> FloatArray:  # noqa: D102
        hits = np.zeros(self.vocab_size) if self._tail is None else self._tail.token_hit_probs()
        hits[self.top_token_ids] = 1.0
        return hits

    def prefix_order(self, target_probs: FloatArray) -> IntArray:  # noqa: D102
        # f(A) = 1 as soon as A meets T, which is never better than A = {}: an optimal A is one of
        # the tail, whose hit function is q-convex.
        order = ratio_order(target_probs, self.tail_probs)
        certain = self._certain()[order]
        return np.concatenate([order[~certain], order[certain]])

    def _tail_parts(self) -> tuple[LawPart, ...]:
        return () if self._tail is None else self._tail.law_parts()
