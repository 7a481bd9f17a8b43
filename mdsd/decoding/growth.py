"""Trees that grow with what was drafted: who decides, and what is shown to them.

How many children a node gets may depend on tokens and draft probabilities of earlier levels, and
on what the draft model says after the node itself, but on nothing drawn there: chosen afterwards,
by which tokens came up, they would be drawn from another law than the verifier is told of. So the
numbers of children are asked for before a level is drawn, for all nodes above it at once, and who
is asked is shown the levels there are and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from mdsd._arguments import check_whole, shown
from mdsd._frozen import FrozenArrays
from mdsd._typing import FloatArray, IntArray
from mdsd.decoding.preference import worth_below
from mdsd.drafts import DraftKind
from mdsd.errors import InvalidArgumentError
from mdsd.trees import MAX_NODES, TreeLike, TreeShape, read_tree


@dataclass(frozen=True, eq=False)
class DraftedLevel(FrozenArrays):
    """The deepest level of a tree so far, and the levels above: all that growth may depend on.

    Attributes
    ----------
    kind : DraftKind
        How the children of a node are drafted.
    above : DraftedLevel or None
        The level above; None at the root.
    parents : tuple of int, length B
        Place in the level above of each node's parent; nodes of one parent stand side by side, in
        draft order. At the root -1.
    token_ids : tuple of int, length B
        Token of each node; at the root the last one known.
    draft_probs : tuple of ndarray of float64, shape (B, V)
        What each of the draft models says of the token that follows each node: the law, or with
        independent drafts the laws, from which its children are going to be drawn. Read-only.
    levels_left : int
        Levels that may be drafted below this one, at least 1: the depth of the tree, or fewer where
        the output is not to be as long.
    drafts_left : int
        Drafts that the budget has left for them.
    in_draft_order : bool
        Whether the verifier tries drafts in the order drawn.

    Examples
    --------
    >>> import numpy as np, mdsd
    >>> level = DraftedLevel(
    ...     mdsd.WithoutReplacement.kind(), None, (-1,), (7,), (np.array([[0.5, 0.5]]),), 3, 8
    ... )
    >>> level.depth, level.spread.tolist(), level.at(0) is level
    (0, [0.5], True)
    """

    kind: DraftKind
    above: DraftedLevel | None
    parents: tuple[int, ...]
    token_ids: tuple[int, ...]
    draft_probs: tuple[FloatArray, ...]
    levels_left: int
    drafts_left: int
    in_draft_order: bool = False

    @cached_property
    def depth(self) -> int:
        """Depth of its nodes, 0 at the root."""
        return 0 if self.above is None else self.above.depth + 1

    @cached_property
    def spread(self) -> FloatArray:
        """Probability that two draws from the draft model differ, after each node: (B,).

        0 where the draft model is certain. Of several models the mean.
        """
        equal = [np.einsum("bv,bv->b", probs, probs) for probs in self.draft_probs]
        return np.asarray(np.maximum(1.0 - np.mean(equal, axis=0), 0.0))

    @cached_property
    def support(self) -> IntArray:
        """Tokens that the draft model gives positive probability, after each node: (B,).

        Of several models the least number.
        """
        found = [np.count_nonzero(probs, axis=-1) for probs in self.draft_probs]
        return np.asarray(np.min(found, axis=0))

    def at(self, depth: int) -> DraftedLevel:
        """Give a level that has been drafted.

        Parameters
        ----------
        depth : int
            Of its nodes: 0 for the root, at most that of this level.

        Returns
        -------
        DraftedLevel

        Raises
        ------
        InvalidArgumentError
            If it is no integer, or the level is not known yet.
        """
        if check_whole("depth", depth, 0) > self.depth:
            raise InvalidArgumentError(
                f"depth is {depth}, but levels 0..{self.depth} are all there is yet: numbers of "
                "children are decided before these are drawn"
            )
        level = self
        while level.depth > depth and level.above is not None:
            level = level.above
        return level

    def can_draft(self, count: int) -> bool:
        """Tell whether a node can have so many children: whether the kind of drafts allows it.

        Parameters
        ----------
        count : int
            At least 1.

        Returns
        -------
        bool

        Raises
        ------
        InvalidArgumentError
            If `count` is not an integer >= 1.
        """
        return self.kind.applies(check_whole("count", count, 1), len(self.draft_probs))


class TreeGrowth(ABC):
    """A rule by which trees grow, level by level, with what was drafted.

    A rule of one's own derives from this class, has the three attributes, and says in `children`
    how many children the nodes of a level get. There is no ``__init__`` of the base class to call.
    Decoders take it as ``tree=``.

    Attributes
    ----------
    depth : int
        Most levels, at least 1.
    budget : int
        Most drafted tokens in all, at least 1.
    max_children : int
        Most children of a node, at least 1.

    Notes
    -----
    With any rule a decoder is as lossless as its verifier is on all fixed trees: given the levels
    above, the drafts of a level have the laws that the verifier is told of, whatever numbers of
    them were asked for. That takes a function of the level and of nothing else; one that draws lots
    of its own, or remembers other trees, makes outputs that a seed does not give again.

    Examples
    --------
    Two children for tokens of which the draft model was sure, one for the others:

    >>> from mdsd.decoding import TableModel, TreeGrowth, generate
    >>> class Sure(TreeGrowth):
    ...     depth, budget, max_children = 3, 14, 2
    ...     def children(self, level):
    ...         if level.above is None:
    ...             return [2]
    ...         (probs,) = level.above.draft_probs
    ...         drafted = probs[list(level.parents), list(level.token_ids)]
    ...         return [1 + (prob > 0.5) for prob in drafted.tolist()]
    >>> model = TableModel([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    >>> len(generate(model, model, [0], tree=Sure(), max_new_tokens=6, rng=0).token_ids)
    6
    """

    depth: int
    budget: int
    max_children: int

    @abstractmethod
    def children(self, level: DraftedLevel) -> Sequence[int]:
        """Say how many children each node of a level gets.

        Parameters
        ----------
        level : DraftedLevel
            The deepest there is; also shows those above.

        Returns
        -------
        sequence of int, length B
            From 0 to `max_children`, `level.drafts_left` at most in all, and each but 0 such that
            `level.can_draft`. A node gets fewer where so many tokens cannot be drawn.
        """


TreeOption: TypeAlias = TreeLike | TreeGrowth
"""What decoders take as ``tree=``: a fixed tree, or a rule by which trees grow."""


def read_tree_option(tree: TreeOption) -> TreeShape | TreeGrowth:
    """Read a tree, or check the sizes of a rule by which trees grow.

    Raises
    ------
    InvalidArgumentError
        If it is neither, or a size of the rule is out of range.
    """
    given: Any = tree
    if isinstance(given, type) and issubclass(given, TreeGrowth):
        raise InvalidArgumentError(f"tree is the class {given.__name__}; expected an object of it")
    if not isinstance(tree, TreeGrowth):
        return read_tree(tree)
    for size in ("depth", "budget", "max_children"):
        label = f"{size} of {type(tree).__name__}"
        check_whole(label, getattr(tree, size, None), 1, MAX_NODES)
    return tree


class LevelCounts(Protocol):
    """Numbers of children, level by level, of one tree while it is drafted."""

    def asked(self, parents: Sequence[int], token_ids: Sequence[int]) -> Sequence[int]:
        """Take in a level; give the places in it of nodes that may get children.

        Parameters
        ----------
        parents : sequence of int, length B
            Place in the level above of each node's parent; [-1] for the root.
        token_ids : sequence of int, length B
        """

    def counts(self, draft_probs: Sequence[FloatArray]) -> Sequence[int]:
        """Give the number of children of each of them, after what the draft models say there."""

    def worths(self) -> FloatArray | None:
        """Give what is planned below each node, (N + 1,), if no draft has a say in it."""


class FixedCounts:
    """Those of a fixed tree; where fewer tokens were drawn than it has, the last are missing.

    Parameters
    ----------
    shape : TreeShape

    Examples
    --------
    >>> counts = FixedCounts(TreeShape([-1, 0, 0, 2]))
    >>> counts.asked([-1], [7]), counts.counts([])
    ([0], [2])
    >>> counts.asked([0, 0], [3, 4]), counts.counts([])
    ([1], [1])
    """

    def __init__(self, shape: TreeShape) -> None:
        self._shape = shape
        self._level: list[int] = []  # nodes of the tree, one for each that was drafted
        self._nodes: list[int] = []
        self._counts: list[int] = []

    def asked(self, parents: Sequence[int], token_ids: Sequence[int]) -> Sequence[int]:  # noqa: D102
        children = [iter(self._shape.children(node)) for node in self._level]
        self._level = [0 if parent < 0 else next(children[parent]) for parent in parents]
        self._nodes += self._level
        counts = [len(self._shape.children(node)) for node in self._level]
        self._counts = [count for count in counts if count]
        return [place for place, count in enumerate(counts) if count]

    def counts(self, draft_probs: Sequence[FloatArray]) -> Sequence[int]:  # noqa: D102
        return self._counts

    def worths(self) -> FloatArray:  # noqa: D102
        return worth_below(self._shape)[self._nodes]


class GrownCounts:
    """Those that a rule gives, checked.

    Parameters
    ----------
    growth : TreeGrowth
    kind : DraftKind
        How the children of a node are drafted.
    depth : int
        Most levels, as many as those of the rule at most.
    in_draft_order : bool, default False
        Whether the verifier tries drafts in the order drawn.
    """

    def __init__(
        self, growth: TreeGrowth, kind: DraftKind, depth: int, *, in_draft_order: bool = False
    ) -> None:
        self._in_draft_order = in_draft_order
        self._growth, self._kind = growth, kind
        self._levels_left, self._drafts_left = depth + 1, int(growth.budget) + 1
        self._level: DraftedLevel | None = None
        self._nodes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    def asked(self, parents: Sequence[int], token_ids: Sequence[int]) -> Sequence[int]:  # noqa: D102
        self._levels_left -= 1
        self._drafts_left -= len(parents)
        self._nodes = tuple(parents), tuple(token_ids)
        return range(len(parents)) if self._levels_left and self._drafts_left else ()

    def counts(self, draft_probs: Sequence[FloatArray]) -> Sequence[int]:  # noqa: D102
        # Copies: the laws of the drafts are made from the arrays themselves.
        shown_probs = tuple(np.array(probs) for probs in draft_probs)
        left = self._levels_left, self._drafts_left
        level = DraftedLevel(
            self._kind, self._level, *self._nodes, shown_probs, *left, self._in_draft_order
        )
        self._level = level
        return _checked_counts(self._growth, level, self._growth.children(level))

    def worths(self) -> None:
        """Say nothing: what is below a node depends on drafts beside it."""


def _checked_counts(growth: TreeGrowth, level: DraftedLevel, given: Any) -> list[int]:
    name = f"children of {type(growth).__name__} at depth {level.depth}"
    try:
        counts = list(given)
    except TypeError:
        counts = []
    if len(counts) != len(level.parents):
        raise InvalidArgumentError(
            f"{name} is {shown(given)}; expected {len(level.parents)} numbers, one for each node"
        )
    most = int(growth.max_children)
    found = [check_whole(f"{name}: entry {k}", c, 0, most) for k, c in enumerate(counts)]
    if sum(found) > level.drafts_left:
        raise InvalidArgumentError(
            f"{name} is {shown(found)}; expected at most {level.drafts_left} in all, which the "
            f"budget of {growth.budget} has left"
        )
    for place, count in enumerate(found):
        if count and not level.can_draft(count):
            why = level.kind.refusal(count) or f"there are {len(level.draft_probs)} draft models"
            raise InvalidArgumentError(f"{name}: entry {place} is {count}; {why}")
    return found
