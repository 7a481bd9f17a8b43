"""Any law on tuples, given tuple by tuple."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole, read_array
from mdsd._frozen import frozen
from mdsd._probabilities import check_probs
from mdsd._random import find_tokens
from mdsd._tokens import check_token_ids
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts.base import DraftKind
from mdsd.drafts.declared import DeclaredDraft
from mdsd.errors import InvalidDistributionError, InvalidTokenError, UnsupportedError


class ExplicitDraft(DeclaredDraft):
    """A draft distribution listed tuple by tuple.

    Parameters
    ----------
    token_ids : array_like of int, shape (m, n)
        The tuples in draft order; the same tuple may be listed twice.
    probs : array_like, shape (m,)
        Probability of each tuple.
    vocab_size : int
        V.

    Attributes
    ----------
    token_ids : ndarray of int64, shape (m', n)
        The different tuples in lexicographic order, whatever order they were given in.
    probs : ndarray of float64, shape (m',)
        Probability of each; those of a tuple that was listed more than once are added up.

    Raises
    ------
    InvalidTokenError
        If an id is not an integer in ``0 .. V - 1``.
    InvalidDistributionError
        If `probs` is not a probability vector with one entry for each tuple.
    InvalidArgumentError
        If `vocab_size` is not an integer >= 1.

    Examples
    --------
    >>> draft = ExplicitDraft([[0, 1], [2, 1]], [0.25, 0.75], vocab_size=3)
    >>> draft.hit_probs([0, 1, 2]).tolist()
    [0.0, 0.25, 1.0, 1.0]
    """

    name = "explicit"

    def __init__(self, token_ids: ArrayLike, probs: ArrayLike, *, vocab_size: int) -> None:
        self.vocab_size = check_whole("vocab_size", vocab_size, 1)
        ids = read_array(token_ids, "token_ids", InvalidTokenError)
        if ids.ndim != 2 or ids.shape[1] == 0:
            raise InvalidTokenError(f"token_ids has shape {ids.shape}; expected (m, n) with n >= 1")
        self.num_drafts = ids.shape[1]
        checked = check_token_ids(
            ids, num_drafts=self.num_drafts, vocab_size=self.vocab_size, ndim=2, name="token_ids"
        )
        masses = check_probs(probs, "probs")
        if len(masses) != len(checked):
            raise InvalidDistributionError(
                f"probs has {len(masses)} entries for {len(checked)} tuples of token_ids"
            )
        distinct, place = np.unique(checked, axis=0, return_inverse=True)
        self.token_ids = frozen(np.ascontiguousarray(distinct))
        merged = np.zeros(len(distinct))
        np.add.at(merged, place.ravel(), masses)
        self.probs = frozen(merged)

    @classmethod
    def kind(cls, **options: Any) -> DraftKind:
        """Refuse: such drafts are listed, not made from output distributions."""
        raise UnsupportedError("explicit drafts are listed tuple by tuple: they are of no kind")

    def law_key(self) -> tuple[object, ...]:  # noqa: D102
        return (type(self), self.vocab_size, self.token_ids.tobytes(), self.probs.tobytes())

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        return self.token_ids[find_tokens(self._sums, rng.random(size))]

    @cached_property
    def _sums(self) -> FloatArray:
        return frozen(self.probs.cumsum())

    def _prob(self, ids: IntArray) -> FloatArray:
        flat = ids.reshape(-1, self.num_drafts)
        # One row at a time keeps memory at the size of the table.
        found = np.array([self.probs[(self.token_ids == row).all(axis=1)].sum() for row in flat])
        return found.reshape(ids.shape[:-1]).astype(np.float64)

    def _hit_probs(self, order: IntArray) -> FloatArray:
        rank = np.empty(self.vocab_size, dtype=np.int64)
        rank[order] = np.arange(self.vocab_size)
        first = rank[self.token_ids].min(axis=1)
        gains = np.bincount(first, weights=self.probs, minlength=self.vocab_size)
        return np.concatenate([[0.0], np.minimum(np.cumsum(gains), 1.0)])

    def _count_tuples(self) -> float:
        return len(self.probs)

    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        return self.token_ids.copy(), self.probs.copy()

    def token_hit_probs(self) -> FloatArray:  # noqa: D102
        hits = np.zeros(self.vocab_size)
        for row, mass in zip(self.token_ids, self.probs, strict=True):
            hits[np.unique(row)] += mass
        return np.minimum(hits, 1.0)
