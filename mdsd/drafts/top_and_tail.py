"""What drafts with certain tokens share: the most likely tokens, and the law of the others."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from mdsd._frozen import frozen
from mdsd._probabilities import ratio_order
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.drafts.declared import DeclaredDraft

if TYPE_CHECKING:
    from mdsd._solvers.law_parts import LawPart


class TopAndTail(DeclaredDraft):
    """Drafts that hold the most likely tokens, and of the others one at most.

    Attributes
    ----------
    top_token_ids : ndarray of int64, shape (m,)
        T: by descending probability, ties to the lowest id.
    tail_probs : ndarray of float64, shape (V,)
        q~: the draft probabilities off T, renormalised; 0 on T, and everywhere if m = n.
    """

    distinct = True
    top_token_ids: IntArray
    tail_probs: FloatArray

    def _split(self, num_top: int) -> float:
        """Tell the top tokens from the tail, and give the mass of that."""
        self.top_token_ids = most_likely(self.draft_probs, num_top)
        tail = self.draft_probs.copy()
        tail[self.top_token_ids] = 0.0
        mass = float(tail.sum())
        self.tail_probs = frozen(tail / mass if num_top < self.num_drafts else 0.0 * tail)
        return mass

    @cached_property
    def _tail_sums(self) -> FloatArray:
        return frozen(self.tail_probs.cumsum())

    def _certain(self) -> BoolArray:
        certain = np.zeros(self.vocab_size, dtype=np.bool_)
        certain[self.top_token_ids] = True
        return certain

    def _same_top(self, ids: IntArray) -> BoolArray:
        """Tell which tuples begin with T."""
        own = ids[..., : len(self.top_token_ids)]
        return np.asarray((own == self.top_token_ids).all(axis=-1))

    def _hit_probs(self, order: IntArray) -> FloatArray:
        hits = np.concatenate([[0.0], np.minimum(np.cumsum(self.tail_probs[order]), 1.0)])
        hits[1:][np.logical_or.accumulate(self._certain()[order])] = 1.0
        return hits

    def token_hit_probs(self) -> FloatArray:  # noqa: D102
        hits = self.tail_probs.copy()
        hits[self.top_token_ids] = 1.0
        return hits

    def law_parts(self) -> tuple[LawPart, ...]:  # noqa: D102
        from mdsd._solvers.law_parts import certain_tokens

        top: tuple[LawPart, ...] = ()
        if len(self.top_token_ids):
            top = (certain_tokens(self.top_token_ids, self.vocab_size),)
        return top if len(self.top_token_ids) == self.num_drafts else top + self._tail_parts()

    def _tail_parts(self) -> tuple[LawPart, ...]:
        """Give the law of the drawn tokens, as `law_parts` does."""
        from mdsd._solvers.law_parts import independent_draws

        return (independent_draws(self.tail_probs[np.newaxis], 1),)

    def prefix_order(self, target_probs: FloatArray) -> IntArray:  # noqa: D102
        # f(A) = 1 as soon as A meets T, so an optimal A holds the tokens off T with p > q~ only:
        # a prefix by p over f({i}), in which tokens of T have ratios of at most 1.
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
