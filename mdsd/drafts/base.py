"""Draft distributions, and kinds of them.

Decoders, batches and studies are told how to draft before there is any output distribution to
draft from. They take a kind, ask it what it is, and have it make the draft of each row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole, refuse_entries
from mdsd._probabilities import as_float_array, check_probs
from mdsd._random import RandomSource
from mdsd._shown import Shown
from mdsd._tokens import check_token_ids
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from mdsd._solvers.law_parts import LawPart

MAX_TUPLES = 1_000_000
"""Most tuples that `DraftDistribution.tuples` enumerates."""

MAX_DEFAULT_TOKEN_HITS = 2048
"""Largest vocabulary at which the default `token_hit_probs`, a call a token, is worth its time."""


class DraftDistribution(Shown, ABC):
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

    def law_key(self) -> tuple[object, ...]:
        """Give what tells this law from others; the default is which object it is.

        Returns
        -------
        tuple
            Hashable. Of built-in drafts it is equal where the law is.
        """
        return (id(self),)

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
        rng : numpy.random.Generator, torch.Generator, int or None
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
        refuse_too_many(self, len(pairs))
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

    def separate_probs(self) -> FloatArray | None:
        """Law of each draft where they are drawn independently of each other.

        Returns
        -------
        ndarray of float64, shape (n, V), or None
            None where they are not, or the class does not say so.
        """
        return self.token_hit_probs()[np.newaxis] if self.num_drafts == 1 else None

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
        from mdsd._solvers.prefix import best_prefix

        order = self.prefix_order(target_probs)
        if order is None:
            return None
        value, length = best_prefix(target_probs[order], checked_hit_probs(self, order))
        subset = np.ones(len(order), dtype=np.bool_)
        subset[order[:length]] = False
        return value, subset

    def law_parts(self) -> tuple[LawPart, ...]:
        """Give the independent parts of this law, on disjoint tokens, for a search of its own kind.

        Returns
        -------
        tuple of solvers.law_parts.LawPart
            None by default: all that is known is `hit_probs`, and tokens are searched one by one.
        """
        return ()

    def _facts(self) -> dict[str, object]:
        return {"num_drafts": self.num_drafts, "vocab_size": self.vocab_size}


@dataclass(frozen=True)
class DraftKind:
    """A way of drafting n tokens from the output distributions of draft models.

    Made by ``kind`` of a class of draft distributions. It can be pickled and compared, and is taken
    wherever the name of a draft distribution is.

    Attributes
    ----------
    draft_type : type
        The class, which states what its drafts are.
    options : tuple of (str, object)
        Keyword arguments of `DraftDistribution.from_probs` besides the distributions and n.

    Examples
    --------
    >>> import mdsd
    >>> kind = mdsd.GreedyDraft.kind()
    >>> kind.label, kind.distinct, kind.num_certain(3)
    ('greedy', True, 2)
    >>> kind.make([0.2, 0.5, 0.3], 2)
    GreedyDraft(num_drafts=2, vocab_size=3)
    """

    draft_type: type[DraftDistribution]
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Name of the class."""
        return self.draft_type.name

    @property
    def label(self) -> str:
        """What it is called on the command line and in files: its name, then its options."""
        return ":".join([self.name, *(str(value) for _, value in self.options)])

    def __str__(self) -> str:
        return self.label

    @property
    def one_model_each(self) -> bool:
        """Whether each draft has a model of its own."""
        return self.draft_type.one_model_each

    @property
    def distinct(self) -> bool:
        """Whether the drafts of a step always differ, so that it takes n tokens to draw."""
        return self.draft_type.distinct

    @property
    def successive(self) -> bool:
        """Whether ``next_probs`` says how each token is drawn after those before it."""
        return self.draft_type.successive

    def num_certain(self, num_drafts: int) -> int:
        """Tokens that are drafted whatever chance does: so many of the most likely.

        Raises
        ------
        InvalidArgumentError
            As for `check_count`.
        """
        return self.draft_type.num_certain(self.check_count(num_drafts), **dict(self.options))

    def refusal(self, num_drafts: int) -> str | None:
        """Say why n tokens cannot be drafted so, whatever the distributions; None if they can.

        Raises
        ------
        InvalidArgumentError
            If `num_drafts` is not an integer >= 1.
        """
        count = check_whole("num_drafts", num_drafts, 1)
        return self.draft_type.refusal(count, **dict(self.options))

    def applies(self, num_drafts: int, num_models: int) -> bool:
        """Tell whether n tokens can be drafted so from M draft models.

        Raises
        ------
        InvalidArgumentError
            If `num_drafts` or `num_models` is not an integer >= 1.

        Examples
        --------
        >>> import mdsd
        >>> mdsd.SpecHubDraft.kind().applies(3, 1), mdsd.IndependentDrafts.kind().applies(3, 5)
        (False, True)
        """
        models = num_drafts if self.one_model_each else 1
        most = check_whole("num_models", num_models, 1)
        return self.refusal(num_drafts) is None and models <= most

    def check_count(self, num_drafts: int) -> int:
        """Check a number of drafts.

        Raises
        ------
        InvalidArgumentError
            If it is not an integer >= 1, or this kind has another one.
        """
        refusal = self.refusal(num_drafts)
        if refusal is not None:
            raise InvalidArgumentError(f"num_drafts is {num_drafts}; {refusal}")
        return int(num_drafts)

    def make(self, draft_probs: ArrayLike, num_drafts: int) -> DraftDistribution:
        """Make the draft distribution of n tokens.

        Parameters
        ----------
        draft_probs : array_like, shape (V,), or (n, V) where each draft has its own model
        num_drafts : int

        Raises
        ------
        InvalidArgumentError
            As for `check_count`.
        InvalidDistributionError
            If `draft_probs` is no probability vector, or too short of tokens to draw.
        """
        count = self.check_count(num_drafts)
        return self.draft_type.from_probs(draft_probs, count, **dict(self.options))

    def make_at_most(self, draft_probs: FloatArray, num_drafts: int) -> DraftDistribution:
        """Make the draft distribution of n tokens, or of all there are to draw if they are fewer.

        Parameters
        ----------
        draft_probs : ndarray of float64, shape (V,), or (m, V) of the first n of m models
        num_drafts : int

        Raises
        ------
        InvalidArgumentError
            If `num_drafts` is not an integer >= 1.
        InvalidDistributionError
            As for `make`.

        Examples
        --------
        >>> import numpy as np, mdsd
        >>> mdsd.WithoutReplacement.kind().make_at_most(np.array([0.0, 0.75, 0.25]), 3)
        WithoutReplacement(num_drafts=2, vocab_size=3)
        """
        check_whole("num_drafts", num_drafts, 1)
        if self.one_model_each:
            return self.make(draft_probs[:num_drafts], num_drafts)
        if self.distinct:
            num_drafts = min(num_drafts, int(np.count_nonzero(draft_probs)))
        return self.draft_type.from_probs_at_most(draft_probs, num_drafts, **dict(self.options))

    def example(self, num_drafts: int, vocab_size: int = 2) -> DraftDistribution:
        """Make some draft of this kind: what does not depend on its probabilities.

        Raises
        ------
        InvalidArgumentError
            As for `check_count`, or if `vocab_size` is not an integer >= 1.
        """
        least = self.check_count(num_drafts) if self.distinct else 2
        size = max(check_whole("vocab_size", vocab_size, 1), least, 2)
        uniform = np.full(size, 1.0 / size)
        return self.make([uniform] * num_drafts if self.one_model_each else uniform, num_drafts)

    def drawable(self, draft_probs: FloatArray, num_drafts: int) -> BoolArray:
        """Tell the rows of which n tokens can be drafted.

        Parameters
        ----------
        draft_probs : ndarray of float64, shape (B, V), or (B, n, V)
            Probability vectors.
        num_drafts : int

        Returns
        -------
        ndarray of bool, shape (B,)

        Raises
        ------
        InvalidArgumentError
            As for `check_count`.
        """
        count = self.check_count(num_drafts)
        if not self.draft_type.declared:
            return np.array([self._can_make(row, count) for row in draft_probs], np.bool_)
        needed = count if self.distinct else 1
        support = np.count_nonzero(draft_probs, axis=-1).reshape(len(draft_probs), -1)
        return np.asarray((support >= needed).all(axis=1))

    def _can_make(self, draft_probs: FloatArray, num_drafts: int) -> bool:
        try:
            self.make(draft_probs, num_drafts)
        except InvalidDistributionError:
            return False
        return True


def make_kind(draft_type: type[DraftDistribution], options: dict[str, Any]) -> DraftKind:
    """Make a kind of draft, with its options in the order of the class.

    Raises
    ------
    InvalidArgumentError
        If an option is missing, not known or out of range.
    """
    names = draft_type.options
    wrong = sorted(set(names).symmetric_difference(options))
    if wrong:
        state = "is missing" if wrong[0] in names else "is not known"
        raise InvalidArgumentError(
            f"option {wrong[0]} of the {draft_type.name} draft {state}; expected "
            f"{':'.join([draft_type.name, *map(str.upper, names)]) if names else 'none'}"
        )
    checked = draft_type.check_options(**options)
    return DraftKind(draft_type, tuple((name, checked[name]) for name in names))


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
    if not draft.declared:
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
    if draft.declared:
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


def count_in_words(count: float) -> str:
    """Write a count that may be astronomic."""
    return f"about {count:.3g}" if count < 1e300 else "more than 1e+300"


def refuse_too_many(draft: DraftDistribution, count: float) -> None:
    """Refuse to enumerate above `MAX_TUPLES` tuples.

    Raises
    ------
    UnsupportedError
        Naming their number.
    """
    if count > MAX_TUPLES:
        known = draft.declared  # others were counted no further
        raise UnsupportedError(
            f"the {draft.name} draft distribution has "
            f"{count_in_words(count) if known else f'more than {MAX_TUPLES:,}'} tuples; "
            f"at most {MAX_TUPLES:,} are enumerated"
        )
