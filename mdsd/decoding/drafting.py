"""Drafting a tree, level by level."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mdsd._frozen import frozen
from mdsd._typing import FloatArray, IntArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree, Rows
from mdsd.decoding.growth import FixedCounts, GrownCounts, LevelCounts, TreeGrowth
from mdsd.drafts import DraftDistribution, DraftKind
from mdsd.trees import TreeShape

Draw = Callable[[DraftDistribution, int, Choices], IntArray]
"""Draws the tokens of a node, from their law, how many tokens are before them, and `Choices`."""


def by_chance(draft: DraftDistribution, position: int, choices: Choices) -> IntArray:
    """Draw drafts that nothing but their law says anything of."""
    return choices.drafts(draft)


class Drafting:
    """A tree of drafted tokens while it grows, until the target model has seen it.

    Parameters
    ----------
    kind : DraftKind
        How the children of a node are drafted.
    tree : TreeShape or TreeGrowth
        The tree where all tokens asked for can be drawn, or the rule by which it grows.
    prefix : list of int
        Tokens up to the root, which is the last of them.
    depth : int, optional
        Most levels to draft; by default all.
    in_draft_order : bool, default False
        Whether the verifier tries drafts in the order drawn.
    draw : callable, optional
        `StepVerification.draw` of the verification; by chance alone if it is not given.

    Attributes
    ----------
    paths : list of lists of int
        Tokens up to each node, `prefix` included.
    prefixes : list of lists of int
        Those of the last level that may have children; none when the tree is complete.
    levels_asked : int
        How often the draft models have been asked.

    Examples
    --------
    >>> from mdsd.decoding.choices import RandomChoices
    >>> from mdsd import WithoutReplacement
    >>> drafting = Drafting(WithoutReplacement.kind(), TreeShape.chain(2), [7])
    >>> drafting.prefixes
    [[7]]
    >>> certain = np.array([[0.0, 1.0, 0.0]])
    >>> while drafting.prefixes:
    ...     drafting.grow([certain], RandomChoices(0))
    >>> drafting.paths
    [[7], [7, 1], [7, 1, 1]]
    """

    def __init__(
        self,
        kind: DraftKind,
        tree: TreeShape | TreeGrowth,
        prefix: list[int],
        depth: int | None = None,
        *,
        in_draft_order: bool = False,
        draw: Draw = by_chance,
    ) -> None:
        self._kind, self._draw = kind, draw
        self._parents = [-1]
        self._laws: list[DraftDistribution | None] = [None]
        self.paths = [prefix]
        self.levels_asked = 0
        most = tree.depth if depth is None else min(depth, tree.depth)
        self._counts: LevelCounts = (
            FixedCounts(tree.truncated(most))
            if isinstance(tree, TreeShape)
            else GrownCounts(tree, kind, most, in_draft_order=in_draft_order)
        )
        self._find_inner(0, 0)

    def _find_inner(self, above: int, first: int) -> None:
        """Find the nodes of the last level that may get children.

        The level begins with the node `first`, and the one above it with `above`.
        """
        parents = [max(parent - above, -1) for parent in self._parents[first:]]
        asked = self._counts.asked(parents, [path[-1] for path in self.paths[first:]])
        self._first = first
        self._inner = [first + place for place in asked]
        self.prefixes = [self.paths[node] for node in self._inner]

    def grow(self, draft_probs: Sequence[FloatArray], choices: Choices) -> None:
        """Draft the next level.

        Parameters
        ----------
        draft_probs : sequence of ndarray of float64, shape (B, V)
            After each of `prefixes`, by each of the draft models. Where one gives 0 to all tokens
            nothing is drafted.
        choices : Choices
        """
        if not self._inner:
            return
        first = len(self.paths)
        self.levels_asked += 1
        # All of them before any token of the level is drawn.
        counts = self._counts.counts(draft_probs)
        for node, count, *rows in zip(self._inner, counts, *draft_probs, strict=True):
            if count == 0 or not all(row.any() for row in rows):
                continue
            probs = np.array(rows) if self._kind.one_model_each else rows[0]
            self._laws[node] = draft = self._kind.make_at_most(probs, count)
            for token in self._draw(draft, len(self.paths[node]), choices).tolist():
                self._parents.append(node)
                self._laws.append(None)
                self.paths.append([*self.paths[node], token])
        self._find_inner(self._first, first)

    def tree(self, target_probs: Rows) -> DraftedTree:
        """Give what has been drafted, with what the target model says of it.

        Parameters
        ----------
        target_probs : Rows
            Row k is the distribution, (V,), of the token that follows path k.

        Returns
        -------
        DraftedTree
            A token that was drafted twice at one node stands there twice.
        """
        token_ids = frozen(np.array([path[-1] for path in self.paths], dtype=np.int64))
        return DraftedTree(
            TreeShape(tuple(self._parents)),
            token_ids,
            tuple(self._laws),
            target_probs,
            self._counts.worths(),
            len(self.paths[0]),
        )
