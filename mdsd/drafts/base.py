"""The base class of draft distributions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from inspect import isabstract
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole, read_array, refuse_entries
from mdsd._frozen import FrozenArrays
from mdsd._probabilities import as_float_array, check_probs, ratio_order
from mdsd._random import RandomSource, generator
from mdsd._tokens import check_token_ids, read_token_ids
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.drafts.kinds import DraftKind, make_kind
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from solvers.token_lottery import GroupedLaw

MAX_TUPLES = 1_000_000
"""Most tuples that `DraftDistribution.tuples` enumerates."""

MAX_DEFAULT_TOKEN_HITS = 2048
"""Largest vocabulary at which the default `token_hit_probs`, a call a token, is worth its time."""


class DraftDistribution(ABC):
    """Joint law of the `num_drafts` tokens drafted in one step, over `vocab_size` token ids.

    A user's own draft distribution derives from this class and gives `num_drafts`, `vocab_size`,
    `hit_probs` and `sample`: that is enough for bounds and for the ``optimal`` verifier. There is
    no ``__init__`` of the base class to call. Every further method has a default that either works
    from those four or says what is missing. `hit_probs` is checked when it is first asked for.

    A class whose drafts are made from output distributions, by its constructor or `from_probs`, is
    a kind of draft: ``kind()`` of it is taken wherever the name of a draft distribution is. What
    batches, decoders and studies have to know of it beforehand, it states by the class attributes
    below and by `refusal` and `num_certain`.

    The built-in draft distributions are final: verifiers know their laws by their class and work
    from `draft_probs`, past any method that a subclass might change. A class derived from one of
    them may add to it, but overriding a part of the law raises TypeError.

    Attributes
    ----------
    name : str
        Name of the kind, as on the command line.
    words : str
        What drafting so is called in a message.
    options : tuple of str
        Names of what `from_probs` takes besides output distributions and n, and of attributes that
        hold it.
    distinct : bool
        Whether the tokens of a step always differ, so that it takes n tokens to draw.
    one_model_each : bool
        Whether each draft has an output distribution of its own.
    certain_first : bool
        Whether the tokens that are certain come first in a tuple, most likely first; else, where
        one is certain, it is either the first or the last.
    successive : bool
        Whether `next_probs` says how each token is drawn after those before it.
    declared : bool
        Whether the law is built in, so that it is known from class and probabilities alone.
    num_drafts : int
        n, the number of tokens drafted together.
    vocab_size : int
        V, the number of token ids.

    Examples
    --------
    A draft that proposes one of two fixed tokens, and nothing else:

    >>> import numpy as np
    >>> class CoinDraft(DraftDistribution):
    ...     name, num_drafts, vocab_size = "coin", 1, 3
    ...     def hit_probs(self, order):
    ...         return np.concatenate([[0.0], np.cumsum(np.array([0.5, 0.5, 0.0])[order])])
    ...     def sample(self, rng, size=None):
    ...         shape = (1,) if size is None else (size, 1)
    ...         return np.random.default_rng(rng).integers(0, 2, shape)
    >>> CoinDraft().token_hit_probs().tolist()
    [0.5, 0.5, 0.0]
    """

    name: str = "custom"
    words: ClassVar[str] = ""
    options: ClassVar[tuple[str, ...]] = ()
    distinct: ClassVar[bool] = False
    one_model_each: ClassVar[bool] = False
    certain_first: ClassVar[bool] = True
    successive: ClassVar[bool] = False
    declared: ClassVar[bool] = False
    num_drafts: int
    vocab_size: int

    @classmethod
    def kind(cls, **options: Any) -> DraftKind:
        """Describe drafts of this class, with its options, before there is anything to draft from.

        Parameters
        ----------
        **options
            What `from_probs` takes besides output distributions and n.

        Returns
        -------
        DraftKind

        Raises
        ------
        InvalidArgumentError
            If an option is missing, not known or out of range.
        """
        return make_kind(cls, options)

    @property
    def own_kind(self) -> DraftKind:
        """The kind of this draft."""
        return DraftKind(type(self), tuple((name, getattr(self, name)) for name in self.options))

    @classmethod
    def check_options(cls, **options: Any) -> dict[str, Any]:
        """Check the options of a kind, and give them as they are kept; the default keeps all."""
        return options

    @classmethod
    def from_probs(
        cls, draft_probs: ArrayLike, num_drafts: int, **options: Any
    ) -> DraftDistribution:
        """Make a draft from output distributions, as the constructor does by default.

        Parameters
        ----------
        draft_probs : array_like, shape (V,), or (n, V) where each draft has its own
        num_drafts : int
        **options
            Of this kind.

        Raises
        ------
        InvalidArgumentError
            If the kind does not draft n tokens, or an option is not one of its own.
        InvalidDistributionError
            If `draft_probs` is no probability vector, or too short of tokens to draw.
        """
        constructor: Any = cls
        count = cls.kind(**options).check_count(num_drafts)
        made: DraftDistribution = constructor(draft_probs, count, **options)
        return made

    @classmethod
    def from_probs_at_most(
        cls, draft_probs: ArrayLike, num_drafts: int, **options: Any
    ) -> DraftDistribution:
        """Make a draft of n tokens although the kind may need more than there are left to draw."""
        return cls.from_probs(draft_probs, num_drafts, **options)

    @classmethod
    def refusal(cls, num_drafts: int, **options: Any) -> str | None:
        """Say why this kind cannot draft n tokens, whatever the distributions; None if it can."""
        return None

    @classmethod
    def num_certain(cls, num_drafts: int, **options: Any) -> int:
        """Tokens that are drafted whatever chance does: so many of the most likely."""
        return 0

    @classmethod
    def example_kinds(cls, num_drafts: int) -> tuple[DraftKind, ...]:
        """Give kinds of n drafts to try code on; a class with options says with which ones."""
        return () if cls.options else (cls.kind(),)

    @abstractmethod
    def sample(self, rng: RandomSource, size: int | None = None) -> IntArray:
        """Draw the draft tokens of one step, or of `size` independent steps.

        Parameters
        ----------
        rng : numpy.random.Generator, int or None
            Source of randomness; an integer seeds the drafting stream.
        size : int, optional
            Number of steps.

        Returns
        -------
        ndarray of int64, shape (n,) or (size, n)
            Token ids in draft order.
        """

    @abstractmethod
    def hit_probs(self, order: ArrayLike) -> FloatArray:
        """Probability that some draft is among the first k tokens of an order, for every k.

        Parameters
        ----------
        order : array_like of int, shape (V,)
            A permutation of the token ids.

        Returns
        -------
        ndarray of float64, shape (V + 1,)
            Entry k is f(first k tokens of `order`); entry 0 is 0.
        """

    def prob(self, draft_token_ids: ArrayLike) -> FloatArray:
        """Probability of an ordered tuple of draft tokens.

        Parameters
        ----------
        draft_token_ids : array_like of int, shape (..., n)
            Token ids in draft order.

        Returns
        -------
        ndarray of float64, shape (...)
            0 for a tuple that cannot be drawn.

        Raises
        ------
        InvalidTokenError
            If an id is not an integer in ``0 .. V - 1``.
        UnsupportedError
            If this draft distribution does not declare tuple probabilities.
        """
        raise UnsupportedError(f"the {self.name} draft distribution does not declare prob()")

    def is_possible(self, draft_token_ids: IntArray) -> BoolArray:
        """Tell which tuples the law can produce (all of them, where it does not declare `prob`).

        Parameters
        ----------
        draft_token_ids : ndarray of int64, shape (..., n)
            Token ids within range.

        Returns
        -------
        ndarray of bool, shape (...)
        """
        if type(self).prob is DraftDistribution.prob:
            return np.ones(draft_token_ids.shape[:-1], dtype=np.bool_)
        return np.asarray(self.prob(draft_token_ids) > 0.0)

    def tuples(self) -> Iterator[tuple[tuple[int, ...], float]]:
        """Enumerate the support.

        Returns
        -------
        iterator of (tuple of int, float)
            Every tuple of positive probability with its probability.

        Raises
        ------
        UnsupportedError
            Above `MAX_TUPLES` tuples, or if the law does not enumerate its support.
        """
        ids, probs = self.tuple_arrays()
        return zip(map(tuple, ids.tolist()), probs.tolist(), strict=True)

    def tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        """Enumerate the support as arrays: ids (M, n) and probabilities (M,).

        Raises
        ------
        UnsupportedError
            As for `tuples`.
        InvalidTokenError, InvalidDistributionError
            If what `tuples` of a user's own class lists is no law of tuples.
        """
        if type(self).tuples is DraftDistribution.tuples:
            raise UnsupportedError(f"the {self.name} draft distribution does not list its tuples()")
        pairs = list(islice(self.tuples(), MAX_TUPLES + 1))
        _refuse_too_many(self, len(pairs))
        label = f"tuples() of the {self.name} draft distribution"
        ids = check_token_ids(
            [ids for ids, _ in pairs],
            num_drafts=self.num_drafts,
            vocab_size=self.vocab_size,
            ndim=2,
            name=label,
        )
        return ids, check_probs([prob for _, prob in pairs], label)

    def next_probs(self, drafted: IntArray) -> FloatArray:
        """Distribution of the next draft token, given those before it.

        Parameters
        ----------
        drafted : ndarray of int64, shape (k,)
            The first k < n tokens of a tuple that can be drawn.

        Returns
        -------
        ndarray of float64, shape (V,)

        Raises
        ------
        InvalidTokenError
            If these are not less than n integers in ``0 .. V - 1``.
        UnsupportedError
            If the class is not `successive`.
        """
        raise UnsupportedError(f"the {self.name} draft distribution does not declare next_probs()")

    def token_hit_probs(self) -> FloatArray:
        """Probability that each token is among the drafts.

        Returns
        -------
        ndarray of float64, shape (V,)
            f({i}) for every token i. The default asks `hit_probs` once for each token.
        """
        tokens = np.arange(self.vocab_size)
        return np.array([self.hit_probs(np.roll(tokens, -i))[1] for i in tokens])

    def prefix_order(self, target_probs: FloatArray) -> IntArray | None:
        """Give an order of the tokens of which some prefix solves subset selection, if known.

        Parameters
        ----------
        target_probs : ndarray of float64, shape (V,)

        Returns
        -------
        ndarray of int64, shape (V,), or None
            For q-convex laws the tokens by target over draft probability, largest first; None
            where the optimal subset need not be a prefix of any order known beforehand.
        """
        return None

    def best_prefix(self, target_probs: FloatArray) -> tuple[float, BoolArray] | None:
        """Solve subset selection along `prefix_order`, if there is such an order.

        Parameters
        ----------
        target_probs : ndarray of float64, shape (V,)

        Returns
        -------
        tuple of (float, ndarray of bool, shape (V,)), or None
            The value 1 + p(H) - Q(H), and membership of H.
        """
        from solvers.prefix import best_prefix

        order = self.prefix_order(target_probs)
        if order is None:
            return None
        value, length = best_prefix(target_probs[order], checked_hit_probs(self, order))
        subset = np.ones(len(order), dtype=np.bool_)
        subset[order[:length]] = False
        return value, subset

    def grouped_laws(self, target_probs: FloatArray) -> Iterator[GroupedLaw]:
        """Give this law as the search for an optimal lottery sees it, from coarse to fine groups.

        Parameters
        ----------
        target_probs : ndarray of float64, shape (V,)

        Yields
        ------
        solvers.token_lottery.GroupedLaw
            The default is one law, token by token, from `hit_probs` and `token_hit_probs`.
        """
        from solvers.token_lottery import SingleTokens

        default = type(self).token_hit_probs is DraftDistribution.token_hit_probs
        if default and self.vocab_size > MAX_DEFAULT_TOKEN_HITS:
            token_hits = np.ones(self.vocab_size)  # V calls of hit_probs would outlast the search
        else:
            token_hits = self.token_hit_probs()
        first = self.prefix_order(target_probs)
        if first is None:
            first = ratio_order(target_probs, token_hits)
        yield SingleTokens(self.hit_probs, token_hits, first)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_drafts={self.num_drafts}, vocab_size={self.vocab_size})"


def check_num_drafts(num_drafts: int) -> int:
    """Check a number of drafts.

    Raises
    ------
    InvalidArgumentError
        If it is not an integer >= 1.
    """
    return check_whole("num_drafts", num_drafts, 1)


def check_draft(draft: object) -> None:
    """Check that an argument is a draft distribution, and that a user's own has its sizes.

    Raises
    ------
    InvalidArgumentError
        If it is none, or `num_drafts` or `vocab_size` is not an integer >= 1.
    """
    if not isinstance(draft, DraftDistribution):
        raise InvalidArgumentError(
            f"draft is {type(draft).__name__}; expected a DraftDistribution such as WithReplacement"
        )
    if not isinstance(draft, DeclaredDraft):
        for size in ("num_drafts", "vocab_size"):
            label = f"{size} of the {draft.name} draft distribution"
            check_whole(label, getattr(draft, size, None), 1)


def checked_hit_probs(draft: DraftDistribution, order: IntArray) -> FloatArray:
    """Ask a draft distribution for its hit probabilities, and check those of a user's own.

    Raises
    ------
    InvalidDistributionError
        If they are not V + 1 numbers that rise from 0 to 1.
    """
    hits = draft.hit_probs(order)
    if isinstance(draft, DeclaredDraft):
        return hits
    label = f"hit_probs of the {draft.name} draft distribution"
    given, _ = as_float_array(hits, label)
    if given.shape != (draft.vocab_size + 1,):
        raise InvalidDistributionError(
            f"{label} has shape {given.shape}; expected ({draft.vocab_size + 1},)"
        )
    values = given.astype(np.float64, copy=False)
    wrong = ~np.isfinite(values)
    with np.errstate(invalid="ignore"):
        wrong[1:] |= np.diff(values) < -1e-12
    wrong[0] |= abs(values[0]) > 1e-12
    wrong[-1] |= abs(values[-1] - 1.0) > 1e-9
    rising = "expected numbers that rise from 0 to 1"
    refuse_entries(label, values, wrong, rising, InvalidDistributionError)
    return values


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


def count_in_words(count: float) -> str:
    """Write a count that may be astronomic."""
    return f"about {count:.3g}" if count < 1e300 else "more than 1e+300"


def _refuse_too_many(draft: DraftDistribution, count: float) -> None:
    if count > MAX_TUPLES:
        known = isinstance(draft, DeclaredDraft)  # others were counted no further
        raise UnsupportedError(
            f"the {draft.name} draft distribution has "
            f"{count_in_words(count) if known else f'more than {MAX_TUPLES:,}'} tuples; "
            f"at most {MAX_TUPLES:,} are enumerated"
        )


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
        _refuse_too_many(self, self._count_tuples())

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
