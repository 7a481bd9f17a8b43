"""Independent draws from n different draft distributions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import shown
from mdsd._frozen import frozen
from mdsd._probabilities import check_probs, ratio_order
from mdsd._random import find_tokens
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.drafts.base import DraftDistribution
from mdsd.drafts.declared import DeclaredDraft, product_of
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

if TYPE_CHECKING:
    from mdsd._solvers.law_parts import LawPart


class IndependentDrafts(DeclaredDraft):
    """One token from each of n draft models, independently.

    Parameters
    ----------
    draft_probs : sequence of n array_like, each of shape (V,)
        Output distribution of each draft model, in draft order.

    Raises
    ------
    InvalidDistributionError
        If there is none, one is not a probability vector, or their lengths differ.

    Notes
    -----
    The hit function is ``1 - prod_j (1 - q_j(A))``. Unless n = 1 it is not q-convex: the optimal
    subset need not be a prefix of any order known beforehand.

    Examples
    --------
    >>> draft = IndependentDrafts([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    >>> [(ids, p) for ids, p in draft.tuples()]
    [((1, 0), 0.5), ((1, 2), 0.5)]
    """

    name = "independent"
    one_model_each = True
    successive = True

    def __init__(self, draft_probs: ArrayLike) -> None:
        models: Any = draft_probs  # a number has no length
        try:
            count = len(models)
        except TypeError:
            count = -1
        if count < 1:
            given = "missing" if draft_probs is None or count == 0 else shown(draft_probs)
            raise InvalidDistributionError(
                f"draft_probs is {given}; expected one probability vector for each draft"
            )
        vectors = [check_probs(q, f"draft_probs[{j}]") for j, q in enumerate(models)]
        for j, vector in enumerate(vectors):
            if len(vector) != len(vectors[0]):
                raise InvalidDistributionError(
                    f"draft_probs[{j}] has {len(vector)} tokens but draft_probs[0] has "
                    f"{len(vectors[0])}"
                )
        self.draft_probs = frozen(np.stack(vectors))
        self.num_drafts, self.vocab_size = self.draft_probs.shape

    @classmethod
    def from_probs(  # noqa: D102
        cls, draft_probs: ArrayLike, num_drafts: int, **options: Any
    ) -> DraftDistribution:
        cls.kind(**options).check_count(num_drafts)
        draft = cls(draft_probs)
        if draft.num_drafts != num_drafts:
            raise InvalidArgumentError(
                f"num_drafts is {num_drafts}; draft_probs has {draft.num_drafts} vectors"
            )
        return draft

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        uniforms = rng.random((size, self.num_drafts))
        columns = [find_tokens(sums, uniforms[:, j]) for j, sums in enumerate(self._sums)]
        return np.stack(columns, axis=1)

    @cached_property
    def _sums(self) -> FloatArray:
        return frozen(self.draft_probs.cumsum(axis=1))

    def _each_prob(self, ids: IntArray) -> FloatArray:
        return self.draft_probs[np.arange(self.num_drafts), ids]

    def _prob(self, ids: IntArray) -> FloatArray:
        return np.asarray(self._each_prob(ids).prod(axis=-1))

    def is_possible(self, draft_token_ids: IntArray) -> BoolArray:  # noqa: D102
        return np.asarray(self._each_prob(draft_token_ids).all(axis=-1))

    def _hit_probs(self, order: IntArray) -> FloatArray:
        return hit_of_independent(self.draft_probs[:, order])

    def _count_tuples(self) -> float:
        return product_of(np.count_nonzero(self.draft_probs, axis=1).tolist())

    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        return product_tuples(list(self.draft_probs))

    def _next_probs(self, drafted: IntArray) -> FloatArray:
        return np.asarray(self.draft_probs[len(drafted)])

    def token_hit_probs(self) -> FloatArray:  # noqa: D102
        return token_hits_of_independent(self.draft_probs)

    def prefix_order(self, target_probs: FloatArray) -> IntArray | None:  # noqa: D102
        if self.num_drafts == 1:
            return ratio_order(target_probs, self.draft_probs[0])
        return None

    def separate_probs(self) -> FloatArray:  # noqa: D102
        return self.draft_probs

    def law_parts(self) -> tuple[LawPart, ...]:  # noqa: D102
        from mdsd._solvers.law_parts import independent_draws

        return (independent_draws(self.draft_probs, self.num_drafts),)


def hit_of_independent(ordered_probs: FloatArray, *, repeats: int = 1) -> FloatArray:
    """Hit probabilities of every prefix for independent drafts.

    Parameters
    ----------
    ordered_probs : ndarray, shape (m, V)
        Draft probabilities with the columns in the order asked for.
    repeats : int, default 1
        How many tokens are drawn from each of the m distributions.

    Returns
    -------
    ndarray, shape (V + 1,)
        ``1 - prod_j (1 - q_j(A_k))**repeats``, with no cancellation at either end: small masses are
        summed from the front, remaining masses from the back.
    """
    log_miss = np.zeros(ordered_probs.shape[1] + 1)
    for q in ordered_probs:
        inside = np.concatenate([[0.0], np.cumsum(q)])
        outside = np.concatenate([np.cumsum(q[::-1])[::-1], [0.0]])
        with np.errstate(divide="ignore"):
            log_miss += np.where(inside < 0.5, np.log1p(-np.minimum(inside, 0.5)), np.log(outside))
    return np.asarray(0.0 - np.expm1(repeats * log_miss))


def token_hits_of_independent(draft_probs: FloatArray, *, repeats: int = 1) -> FloatArray:
    """Probability that each token is drafted by independent drafts.

    Parameters
    ----------
    draft_probs : ndarray, shape (m, V)
    repeats : int, default 1
        How many tokens are drawn from each of the m distributions.

    Returns
    -------
    ndarray, shape (V,)
    """
    if len(draft_probs) * repeats == 1:
        return np.asarray(draft_probs[0].copy())  # exact, where logarithms would cost a digit
    with np.errstate(divide="ignore"):
        log_miss = repeats * np.log1p(-draft_probs).sum(axis=0)
    return np.asarray(0.0 - np.expm1(log_miss))


def product_tuples(vectors: Sequence[FloatArray]) -> tuple[IntArray, FloatArray]:
    """Enumerate the product of the supports, in lexicographic order, with product probabilities."""
    supports = [np.flatnonzero(q) for q in vectors]
    grid = np.meshgrid(*supports, indexing="ij")
    ids = np.stack([axis.ravel() for axis in grid], axis=1).astype(np.int64)
    probs = np.ones(len(ids))
    for j, q in enumerate(vectors):
        probs *= q[ids[:, j]]
    return ids, np.asarray(probs)
