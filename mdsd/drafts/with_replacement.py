"""n independent draws from one draft distribution."""

from __future__ import annotations

from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mdsd._frozen import frozen
from mdsd._probabilities import ratio_order
from mdsd._random import find_tokens
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.drafts.declared import DeclaredDraft, product_of
from mdsd.drafts.independent import hit_of_independent, product_tuples, token_hits_of_independent
from mdsd.rules.possible import are_positive

if TYPE_CHECKING:
    from mdsd._solvers.law_parts import LawPart


class WithReplacement(DeclaredDraft):
    """`num_drafts` independent tokens from `draft_probs`; a token may be drafted twice.

    Parameters
    ----------
    draft_probs : array_like, shape (V,)
        Output distribution of the draft model.
    num_drafts : int
        n >= 1.

    Raises
    ------
    InvalidDistributionError
        If `draft_probs` is not a probability vector.
    InvalidArgumentError
        If `num_drafts` is not an integer >= 1.

    Notes
    -----
    The hit function is ``1 - (1 - q(A))**n``, which is q-convex (Hu et al., "Towards Optimal
    Multi-draft Speculative Decoding").

    Examples
    --------
    >>> draft = WithReplacement([0.2, 0.5, 0.3], 2)
    >>> float(draft.prob([1, 1]))
    0.25
    >>> draft.hit_probs([0, 1, 2]).round(2).tolist()
    [0.0, 0.36, 0.91, 1.0]
    """

    name = "with_replacement"
    successive = True
    exchangeable = True

    def __init__(self, draft_probs: ArrayLike, num_drafts: int) -> None:
        self._read(draft_probs, num_drafts)

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        return find_tokens(self._sums, rng.random((size, self.num_drafts)))

    @cached_property
    def _sums(self) -> FloatArray:
        return frozen(self.draft_probs.cumsum())

    def _prob(self, ids: IntArray) -> FloatArray:
        return np.asarray(self.draft_probs[ids].prod(axis=-1))

    def is_possible(self, draft_token_ids: IntArray) -> BoolArray:  # noqa: D102
        # The product of the probabilities may underflow for a tuple that can be drawn.
        return np.asarray(are_positive(self.draft_probs, draft_token_ids))

    def _hit_probs(self, order: IntArray) -> FloatArray:
        return hit_of_independent(self.draft_probs[order][np.newaxis], repeats=self.num_drafts)

    def _count_tuples(self) -> float:
        support = int(np.count_nonzero(self.draft_probs))
        return product_of(repeat(support, self.num_drafts if support > 1 else 0))

    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        return product_tuples([self.draft_probs] * self.num_drafts)

    def _next_probs(self, drafted: IntArray) -> FloatArray:
        return self.draft_probs

    def token_hit_probs(self) -> FloatArray:  # noqa: D102
        return token_hits_of_independent(self.draft_probs[np.newaxis], repeats=self.num_drafts)

    def prefix_order(self, target_probs: FloatArray) -> IntArray:  # noqa: D102
        return ratio_order(target_probs, self.draft_probs)

    def separate_probs(self) -> FloatArray:  # noqa: D102
        return np.broadcast_to(self.draft_probs, (self.num_drafts, self.vocab_size))

    def law_parts(self) -> tuple[LawPart, ...]:  # noqa: D102
        from mdsd._solvers.law_parts import independent_draws

        return (independent_draws(self.draft_probs[np.newaxis], self.num_drafts),)

    def best_prefix(self, target_probs: FloatArray) -> tuple[float, BoolArray]:  # noqa: D102
        from mdsd._solvers.prefix import prefix_with_replacement

        return prefix_with_replacement(target_probs, self.draft_probs, self.num_drafts)
