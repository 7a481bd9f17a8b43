"""What a draft distribution says of its law: independent parts on disjoint tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._typing import FloatArray, IntArray
from .grouped_law import (
    CERTAIN,
    DRAWS,
    INDEPENDENT,
    GroupedLaw,
    group_certain,
    group_draws,
    group_independent,
)


@dataclass(frozen=True, eq=False)
class LawPart:
    """One of the independent parts of a law.

    Attributes
    ----------
    kind : int
        ``CERTAIN``, ``INDEPENDENT`` or ``DRAWS`` of `solvers.grouped_law`.
    num_drafts : int
        Tokens that are drafted.
    probs : ndarray, shape (n, V)
        Law of each draw, or one row if they all have the same; none for certain tokens.
    tokens : ndarray of int64, shape (m,)
        Those that are certain, ascending.
    vocab_size : int
        V.
    offset : int, default 0
        What to add to the tokens of the part to have them in the vocabulary of all.
    """

    kind: int
    num_drafts: int
    probs: FloatArray
    tokens: IntArray
    vocab_size: int
    offset: int = 0

    def group(self, target_masses: FloatArray, num_singles: int, num_buckets: int) -> GroupedLaw:
        """Group the tokens by the ratio of their target masses, (V,), to those of the draws."""
        if self.kind == CERTAIN:
            return group_certain(target_masses, self.tokens)
        if self.kind == INDEPENDENT:
            return group_independent(
                target_masses, self.probs, self.num_drafts, num_singles, num_buckets
            )
        return group_draws(target_masses, self.probs[0], self.num_drafts, num_singles, num_buckets)

    def moved(self, by: int) -> LawPart:
        """Give the same part further on in the vocabulary."""
        return LawPart(
            self.kind, self.num_drafts, self.probs, self.tokens, self.vocab_size, self.offset + by
        )


_NO_TOKENS = np.empty(0, dtype=np.int64)


def certain_tokens(tokens: IntArray, vocab_size: int) -> LawPart:
    """Tokens that are drafted whatever chance does.

    Examples
    --------
    >>> certain_tokens(np.array([4, 2]), 5).tokens.tolist()
    [2, 4]
    """
    return LawPart(CERTAIN, len(tokens), np.empty((0, vocab_size)), np.sort(tokens), vocab_size)


def independent_draws(probs: FloatArray, num_drafts: int) -> LawPart:
    """One draw from each of n laws, (n, V), or n from one, (1, V)."""
    rows = np.ascontiguousarray(probs)
    return LawPart(INDEPENDENT, num_drafts, rows, _NO_TOKENS, rows.shape[1])


def draws_without_replacement(weights: FloatArray, num_draws: int) -> LawPart:
    """Draw n tokens from one law, (V,), each without those before it."""
    if num_draws == 1:
        return independent_draws(weights[np.newaxis], 1)
    rows = np.ascontiguousarray(weights)[np.newaxis]
    return LawPart(DRAWS, num_draws, rows, _NO_TOKENS, rows.shape[1])
