"""What the built-in draft distributions share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from inspect import isabstract
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole, read_array
from mdsd._frozen import FrozenArrays
from mdsd._probabilities import check_probs
from mdsd._random import RandomSource, generator
from mdsd._tokens import check_token_ids, read_token_ids
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.drafts.base import DraftDistribution, check_num_drafts, refuse_too_many
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, InvalidTokenError


class DeclaredDraft(FrozenArrays, DraftDistribution):
    """What the built-in laws share: checked arguments around `_prob`, `_draw` and the like.

    Attributes
    ----------
    exchangeable : bool
        Whether every set of tokens comes in all orders, so that about one tuple in n! is left when
        tuples of the same set are merged.
    """

    exchangeable: bool = False
    declared = True
    draft_probs: FloatArray

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not any(
            issubclass(base, DeclaredDraft) and not isabstract(base) for base in cls.__bases__
        ):
            return
        law = {
            name
            for base in DeclaredDraft.__mro__
            for name, part in vars(base).items()
            if callable(part) and not name.startswith("__")
        }
        changed = sorted(law.intersection(vars(cls)))
        if changed:
            raise TypeError(
                f"{cls.__name__} overrides {', '.join(changed)} of the law of "
                f"{cls.__bases__[0].__name__}, which verifiers take as built in; "
                "derive it from DraftDistribution"
            )

    def _read(self, draft_probs: Any, num_drafts: int) -> None:
        """Check n, and the one output distribution that all drafts come from."""
        self.num_drafts = check_num_drafts(num_drafts)
        self.draft_probs = check_probs(draft_probs, "draft_probs")
        self.vocab_size = len(self.draft_probs)
        if self.distinct:
            positive = np.array([np.count_nonzero(self.draft_probs)])
            refuse_short(positive, self.num_drafts, self.words)

    def law_key(self) -> tuple[object, ...]:  # noqa: D102
        return (self.own_kind, self.num_drafts, self.draft_probs.tobytes())

    def sample(self, rng: RandomSource, size: int | None = None) -> IntArray:  # noqa: D102
        count = 1 if size is None else check_whole("size", size, 0, otherwise=" or None")
        drawn = self._draw(generator(rng, "draft"), count)
        return drawn[0] if size is None else drawn

    def prob(self, draft_token_ids: ArrayLike) -> FloatArray:  # noqa: D102
        ids = check_token_ids(
            draft_token_ids, num_drafts=self.num_drafts, vocab_size=self.vocab_size
        )
        return self._prob(ids)

    def is_possible(self, draft_token_ids: IntArray) -> BoolArray:  # noqa: D102
        return np.asarray(self._prob(draft_token_ids) > 0.0)

    def next_probs(self, drafted: ArrayLike) -> FloatArray:  # noqa: D102
        ids = read_token_ids(drafted, "drafted")
        if ids.ndim != 1 or len(ids) >= self.num_drafts:
            raise InvalidTokenError(
                f"drafted has shape {ids.shape}; expected (k,) with k < {self.num_drafts}"
            )
        sizes = {"num_drafts": len(ids), "vocab_size": self.vocab_size}
        return self._next_probs(check_token_ids(ids, **sizes, name="drafted"))

    def hit_probs(self, order: ArrayLike) -> FloatArray:  # noqa: D102
        return self._hit_probs(check_order(order, self.vocab_size))

    def tuple_arrays(self) -> tuple[IntArray, FloatArray]:  # noqa: D102
        self.check_tuples()
        ids, probs = self._tuple_arrays()
        positive = probs > 0.0
        return ids[positive], probs[positive]

    def count_pairs(self) -> float:
        """Estimate the number of pairs (drafted token, set of drafts) after merging."""
        count = self._count_tuples()
        if count < np.inf and self.exchangeable:
            count //= product_of(range(1, self.num_drafts + 1))
        return self.num_drafts * max(1.0, count)

    def check_tuples(self) -> None:
        """Refuse to enumerate above `MAX_TUPLES` tuples.

        Raises
        ------
        UnsupportedError
            Naming their number.
        """
        refuse_too_many(self, self._count_tuples())

    @abstractmethod
    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        """Draw (size, n) token ids."""

    @abstractmethod
    def _prob(self, ids: IntArray) -> FloatArray:
        """Probability of tuples whose ids are within range."""

    @abstractmethod
    def _hit_probs(self, order: IntArray) -> FloatArray:
        """Hit probabilities along a checked order."""

    def _next_probs(self, drafted: IntArray) -> FloatArray:
        """Law of the token after others, whose ids are within range."""
        return super().next_probs(drafted)

    @abstractmethod
    def _count_tuples(self) -> float:
        """Size of the support: exact up to 2**53, infinite where it is astronomic."""

    @abstractmethod
    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        """Enumerate the support; a few tuples of probability 0 do no harm."""


def product_of(factors: Iterable[int]) -> float:
    """Multiply whole numbers >= 1: exact up to 2**53, rounded above, and soon done with infinity.

    Examples
    --------
    >>> from itertools import repeat
    >>> product_of([3, 4]), product_of(repeat(2, 10**9))
    (12.0, inf)
    """
    product = 1.0
    for factor in factors:
        product *= factor
        if product == np.inf:
            break
    return product


def check_order(order: ArrayLike, vocab_size: int) -> IntArray:
    """Check that `order` is a permutation of the token ids.

    Raises
    ------
    InvalidArgumentError
        If it is not.
    """
    array = read_array(order, "order", InvalidArgumentError)
    if array.shape != (vocab_size,) or array.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"order has shape {array.shape} and type {array.dtype.name}; "
            f"expected a permutation of {vocab_size} token ids"
        )
    seen = np.zeros(vocab_size, dtype=np.bool_)
    inside = (array >= 0) & (array < vocab_size)
    seen[array[inside]] = True
    if not seen.all():
        missing = int(np.argmin(seen))
        raise InvalidArgumentError(f"order is not a permutation: token id {missing} is missing")
    return array.astype(np.int64, copy=False)


def refuse_short(
    positives: IntArray, num_drafts: int, words: str, rows: str = "draft_probs"
) -> None:
    """Refuse vectors with fewer positive entries, as counted, than distinct tokens to draw.

    Raises
    ------
    InvalidDistributionError
        Naming the first such row and both numbers; `rows` may have a place for its number.
    """
    short = positives < num_drafts
    if short.any():
        row = int(short.argmax())
        raise InvalidDistributionError(
            f"{rows.format(row)} has {positives[row]} tokens with positive probability; "
            f"{words} with num_drafts={num_drafts} needs at least {num_drafts}"
        )
