"""n successive draws from one draft distribution, each without the tokens drawn before."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mdsd._frozen import frozen
from mdsd._probabilities import ratio_order
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.drafts.arrivals import FEW, Clocks, clock_each, repeats, set_clocks
from mdsd.drafts.declared import DeclaredDraft, product_of
from mdsd.rules.possible import are_distinct, are_positive

if TYPE_CHECKING:
    from mdsd._solvers.law_parts import LawPart


class WithoutReplacement(DeclaredDraft):
    """`num_drafts` distinct tokens: each is drawn from `draft_probs` without those before it.

    Parameters
    ----------
    draft_probs : array_like, shape (V,)
        Output distribution of the draft model.
    num_drafts : int
        n >= 1.

    Raises
    ------
    InvalidDistributionError
        If `draft_probs` is not a probability vector or has fewer than n positive entries.
    InvalidArgumentError
        If `num_drafts` is not an integer >= 1.

    Notes
    -----
    The hit function is q-convex (Hu et al., "Towards Optimal Multi-draft Speculative Decoding");
    it is computed from the exponential-arrivals form in `solvers.hitting`, within 1e-12 for 64
    drafts and more, whatever the weights.

    Examples
    --------
    >>> draft = WithoutReplacement([0.2, 0.5, 0.3], 2)
    >>> round(float(draft.prob([1, 0])), 12)
    0.2
    >>> float(draft.prob([1, 1]))
    0.0
    >>> draft.hit_probs([0, 1, 2]).round(6).tolist()
    [0.0, 0.485714, 1.0, 1.0]
    """

    name = "without_replacement"
    words = "drawing without replacement"
    distinct = True
    successive = True
    exchangeable = True

    def __init__(self, draft_probs: ArrayLike, num_drafts: int) -> None:
        self._read(draft_probs, num_drafts)

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        few = size * self.vocab_size <= FEW
        clocks = clock_each(self.draft_probs) if few else self._clocks
        return clocks.draw(rng, size, self.num_drafts)

    @cached_property
    def _clocks(self) -> Clocks:
        return set_clocks(self.draft_probs, self.num_drafts)

    def _prob(self, ids: IntArray) -> FloatArray:
        flat = ids.reshape(-1, self.num_drafts)
        remaining = remaining_masses(self.draft_probs, flat[:, :-1])
        # A token drawn before has no mass left, and an exhausted remainder no tokens.
        chances = np.where(repeats(flat), 0.0, self.draft_probs[flat])
        ratios = np.divide(chances, remaining, out=np.zeros_like(chances), where=remaining > 0.0)
        return np.asarray(ratios.prod(axis=1).reshape(ids.shape[:-1]))

    def is_possible(self, draft_token_ids: IntArray) -> BoolArray:  # noqa: D102
        positive = are_positive(self.draft_probs, draft_token_ids)
        return np.asarray(positive & are_distinct(draft_token_ids))

    def _hit_probs(self, order: IntArray) -> FloatArray:
        from mdsd._solvers.hitting import prefix_hits

        return prefix_hits(self.draft_probs[order], self.num_drafts)

    def _count_tuples(self) -> float:
        support = int(np.count_nonzero(self.draft_probs))
        return product_of(range(support, support - self.num_drafts, -1))

    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        support = np.flatnonzero(self.draft_probs)
        weights = self.draft_probs[support]
        places, probs = np.empty((1, 0), dtype=np.int64), np.ones(1)
        for _ in range(self.num_drafts):
            left = np.tile(weights, (len(places), 1))
            np.put_along_axis(left, places, 0.0, axis=1)
            # A ratio first: the remaining mass alone may be too small to divide by.
            probs = probs[:, np.newaxis] * (left / left.sum(axis=1, keepdims=True))
            rows, new = np.nonzero(left)
            places = np.concatenate([places[rows], new[:, np.newaxis]], axis=1)
            probs = probs[rows, new]
        return support[places], probs

    def _next_probs(self, drafted: IntArray) -> FloatArray:
        left = self.draft_probs.copy()
        left[drafted] = 0.0
        return np.asarray(left / left.sum())

    def token_hit_probs(self) -> FloatArray:  # noqa: D102
        return self.draft_probs.copy() if self.num_drafts == 1 else self._token_hits.copy()

    @cached_property
    def _token_hits(self) -> FloatArray:
        # Naive verification asks for it at every plan.
        from mdsd._solvers.hitting import token_hits

        return frozen(token_hits(self.draft_probs, self.num_drafts))

    def prefix_order(self, target_probs: FloatArray) -> IntArray:  # noqa: D102
        return ratio_order(target_probs, self.draft_probs)

    def best_prefix(self, target_probs: FloatArray) -> tuple[float, BoolArray] | None:  # noqa: D102
        from mdsd._solvers.prefix_draws import prefix_without_replacement

        found = prefix_without_replacement(target_probs, self.draft_probs, self.num_drafts)
        return super().best_prefix(target_probs) if found is None else found

    def law_parts(self) -> tuple[LawPart, ...]:  # noqa: D102
        from mdsd._solvers.law_parts import draws_without_replacement

        return (draws_without_replacement(self.draft_probs, self.num_drafts),)


def remaining_masses(draft_probs: FloatArray, removed: IntArray) -> FloatArray:
    """Mass that is left after each token of a sequence is removed in turn.

    Parameters
    ----------
    draft_probs : ndarray, shape (V,)
        Draft probabilities summing to 1.
    removed : ndarray of int64, shape (B, m)
        Tokens in the order they were removed; removing one twice changes nothing.

    Returns
    -------
    ndarray, shape (B, m + 1)
        Entry k is the mass left after the first k removals. It is the sum of what remains wherever
        ``1 - removed`` would lose digits.
    """
    gone = np.where(repeats(removed), 0.0, draft_probs[removed]).cumsum(axis=1)
    left = np.concatenate([np.ones((len(removed), 1)), 1.0 - gone], axis=1)
    for row, k in zip(*np.nonzero(gone > 0.5), strict=True):
        rest = draft_probs.copy()
        rest[removed[row, : k + 1]] = 0.0
        left[row, k + 1] = rest.sum()
    return left
