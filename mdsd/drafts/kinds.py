"""A kind of draft: a class of draft distributions and its options, as a value.

Decoders, batches and studies are told how to draft before there is any output distribution to
draft from. They take a kind, ask it what it is, and have it make the draft of each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole
from mdsd._typing import BoolArray, FloatArray
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

if TYPE_CHECKING:
    from mdsd.drafts.base import DraftDistribution


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
        size = max(check_whole("vocab_size", vocab_size, 1), self.check_count(num_drafts), 2)
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
            f"{', '.join(names) or 'none'}"
        )
    checked = draft_type.check_options(**options)
    return DraftKind(draft_type, tuple((name, checked[name]) for name in names))
