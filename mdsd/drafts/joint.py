"""Independent groups of drafts, each over tokens of its own: a layer of a tree as one draft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole, shown
from mdsd._frozen import frozen
from mdsd._random import RandomSource
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.drafts.base import DraftDistribution, DraftKind, check_draft, checked_hit_probs
from mdsd.drafts.declared import DeclaredDraft, product_of
from mdsd.drafts.independent import IndependentDrafts
from mdsd.drafts.with_replacement import WithReplacement
from mdsd.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from mdsd._solvers.law_parts import LawPart


class JointDrafts(DeclaredDraft):
    """Groups of drafts over disjoint vocabularies, drawn independently of each other.

    Token x of group g has the id ``g V + x`` where all groups have V tokens, and in general the
    sum of the sizes of the groups before, plus x.

    Parameters
    ----------
    groups : sequence of DraftDistribution, or of sequences of them
        The drafts of each group; several over the same tokens are drawn independently, too.
    num_others : int, default 0
        Further tokens behind all groups, which are never drafted.

    Attributes
    ----------
    groups : tuple of tuples of DraftDistribution
    offsets : ndarray of int64, shape (G,)
        Id of the first token of each group.
    num_others : int

    Raises
    ------
    InvalidArgumentError
        If there is no group, a group has no draft or drafts of different vocabularies, or
        `num_others` is not an integer >= 0.

    Notes
    -----
    The hit function is ``f(S) = 1 - prod_g (1 - f_g(S_g))`` with S_g the tokens of group g. It is
    the law of the children of all nodes of a layer of a draft tree, a node a group: a token
    drafted below one node is not the same as below another. Nodes that stand for the same string
    make one group.

    Examples
    --------
    >>> from mdsd import WithoutReplacement, WithReplacement
    >>> draft = JointDrafts([WithReplacement([0.5, 0.5], 1), WithoutReplacement([0.2, 0.8], 2)])
    >>> draft
    JointDrafts(num_drafts=3, vocab_size=4)
    >>> draft.hit_probs([0, 2, 3, 1]).tolist()
    [0.0, 0.5, 1.0, 1.0, 1.0]
    """

    name = "joint"

    def __init__(
        self,
        groups: Sequence[DraftDistribution | Sequence[DraftDistribution]],
        *,
        num_others: int = 0,
    ) -> None:
        self.num_others = check_whole("num_others", num_others, 0)
        self.groups = _read_groups(groups)
        self._parts = tuple(map(_united, self.groups))
        sizes = [part.vocab_size for part in self._parts]
        self.offsets = frozen(np.cumsum([0, *sizes[:-1]]))
        self.num_drafts = sum(draft.num_drafts for group in self.groups for draft in group)
        self.vocab_size = sum(sizes) + self.num_others

    @classmethod
    def kind(cls, **options: Any) -> DraftKind:
        """Refuse: such drafts are put together, not made from output distributions."""
        raise UnsupportedError("joint drafts are put together from others: they are of no kind")

    def law_key(self) -> tuple[object, ...]:  # noqa: D102
        groups = (tuple(draft.law_key() for draft in group) for group in self.groups)
        return (type(self), self.num_others, *groups)

    def _slices(self) -> Iterator[tuple[DraftDistribution, int, slice]]:
        """Give each draft with the offset of its tokens and its places in a tuple."""
        start = 0
        for group, offset in zip(self.groups, self.offsets.tolist(), strict=True):
            for draft in group:
                yield draft, offset, slice(start, start + draft.num_drafts)
                start += draft.num_drafts

    def _draw(self, rng: np.random.Generator, size: int) -> IntArray:
        drawn = [draft.sample(rng, size) + offset for draft, offset, _ in self._slices()]
        return np.concatenate(drawn, axis=1)

    def _prob(self, ids: IntArray) -> FloatArray:
        product = np.ones(ids.shape[:-1])
        for draft, offset, places in self._slices():
            own, inside = _own_ids(draft, ids[..., places] - offset)
            product = product * np.where(inside, draft.prob(own), 0.0)
        return product

    def is_possible(self, draft_token_ids: IntArray) -> BoolArray:  # noqa: D102
        possible = np.ones(draft_token_ids.shape[:-1], dtype=np.bool_)
        for draft, offset, places in self._slices():
            own, inside = _own_ids(draft, draft_token_ids[..., places] - offset)
            possible &= inside & draft.is_possible(own)
        return possible

    def _hit_probs(self, order: IntArray) -> FloatArray:
        from mdsd._solvers.group_hits import join_hits

        group_of = np.searchsorted(self.offsets, order, side="right") - 1
        group_of[order >= self.vocab_size - self.num_others] = len(self.groups)
        hits = [
            checked_hit_probs(part, order[group_of == g] - offset)
            for g, (part, offset) in enumerate(zip(self._parts, self.offsets, strict=True))
        ]
        hits.append(np.zeros(self.num_others + 1))
        starts = np.cumsum([0, *map(len, hits[:-1])])
        return join_hits(group_of, np.concatenate(hits), starts)[0]

    def _count_tuples(self) -> float:
        return product_of(
            int(min(draft._count_tuples(), 2.0**53))
            if isinstance(draft, DeclaredDraft)
            else len(draft.tuple_arrays()[1])
            for draft, _, _ in self._slices()
        )

    def _tuple_arrays(self) -> tuple[IntArray, FloatArray]:
        ids, probs = np.zeros((1, 0), dtype=np.int64), np.ones(1)
        for draft, offset, _ in self._slices():
            own, own_probs = draft.tuple_arrays()
            left, right = len(probs), len(own_probs)
            ids = np.hstack([np.repeat(ids, right, axis=0), np.tile(own + offset, (left, 1))])
            probs = np.repeat(probs, right) * np.tile(own_probs, left)
        return ids, probs

    def token_hit_probs(self) -> FloatArray:  # noqa: D102
        others = np.zeros(self.num_others)
        return np.concatenate([*(part.token_hit_probs() for part in self._parts), others])

    def prefix_order(self, target_probs: FloatArray) -> IntArray | None:  # noqa: D102
        if len(self._parts) > 1:
            return None
        (part,) = self._parts
        order = part.prefix_order(target_probs[: part.vocab_size])
        others = np.arange(part.vocab_size, self.vocab_size)
        return None if order is None else np.concatenate([others, order])

    def law_parts(self) -> tuple[LawPart, ...]:  # noqa: D102
        found = [part.law_parts() for part in self._parts]
        if not all(found):
            return ()
        moved = zip(found, self.offsets.tolist(), strict=True)
        return tuple(part.moved(offset) for parts, offset in moved for part in parts)


class _SameTokens(DraftDistribution):
    """Several drafts over the same tokens, drawn independently: what their hits come to."""

    name = "united"

    def __init__(self, drafts: tuple[DraftDistribution, ...]) -> None:
        self._drafts = drafts
        self.num_drafts = sum(draft.num_drafts for draft in drafts)
        self.vocab_size = drafts[0].vocab_size

    def sample(self, rng: RandomSource, size: int | None = None) -> IntArray:
        return np.concatenate([draft.sample(rng, size) for draft in self._drafts], axis=-1)

    def hit_probs(self, order: ArrayLike) -> FloatArray:
        ranks = np.asarray(order)
        misses = [1.0 - checked_hit_probs(draft, ranks) for draft in self._drafts]
        return np.asarray(1.0 - np.prod(misses, axis=0))

    def token_hit_probs(self) -> FloatArray:
        misses = [1.0 - draft.token_hit_probs() for draft in self._drafts]
        return np.asarray(1.0 - np.prod(misses, axis=0))


def _united(drafts: tuple[DraftDistribution, ...]) -> DraftDistribution:
    """Give the law of all that several drafts over the same tokens draw."""
    if len(drafts) == 1:
        return drafts[0]
    first = drafts[0]
    if isinstance(first, WithReplacement) and all(_same_law(first, draft) for draft in drafts):
        return WithReplacement(first.draft_probs, sum(draft.num_drafts for draft in drafts))
    laws = [draft.separate_probs() for draft in drafts]
    known = [law for law in laws if law is not None]
    return IndependentDrafts(np.vstack(known)) if len(known) == len(laws) else _SameTokens(drafts)


def _same_law(first: WithReplacement, other: DraftDistribution) -> bool:
    """Tell whether tokens are drawn from the same probabilities, as below nodes of one string."""
    return type(other) is type(first) and np.array_equal(first.draft_probs, other.draft_probs)


def _own_ids(draft: DraftDistribution, ids: IntArray) -> tuple[IntArray, BoolArray]:
    """Give ids that a draft can be asked about, and which tuples were all its own."""
    inside = np.asarray(((ids >= 0) & (ids < draft.vocab_size)).all(axis=-1))
    return np.where(inside[..., np.newaxis], ids, 0), inside


def _read_groups(groups: Any) -> tuple[tuple[DraftDistribution, ...], ...]:
    expected = "expected a list of draft distributions, or of lists of those over the same tokens"
    if not isinstance(groups, (list, tuple)) or not groups:
        raise InvalidArgumentError(f"groups is {shown(groups)}; {expected}")
    found = []
    for g, group in enumerate(groups):
        drafts = tuple(group) if isinstance(group, (list, tuple)) else (group,)
        if not drafts:
            raise InvalidArgumentError(f"groups[{g}] is empty; {expected}")
        for draft in drafts:
            if not isinstance(draft, DraftDistribution):
                raise InvalidArgumentError(f"groups[{g}] has {shown(draft)}; {expected}")
            check_draft(draft)
        sizes = sorted({draft.vocab_size for draft in drafts})
        if len(sizes) > 1:
            raise InvalidArgumentError(
                f"groups[{g}] has drafts over {sizes[0]} and {sizes[1]} tokens; expected the same"
            )
        found.append(drafts)
    return tuple(found)
