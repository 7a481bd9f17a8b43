"""Drafting a tree, level by level."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mdsd._frozen import frozen
from mdsd._typing import FloatArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree, Rows
from mdsd.drafts import DraftDistribution, DraftKind
from mdsd.trees import TreeShape


class Drafting:
    """A tree of drafted tokens while it grows, until the target model has seen it.

    Parameters
    ----------
    kind : DraftKind
        How the children of a node are drafted.
    shape : TreeShape
        Of the tree where all tokens asked for can be drawn.
    prefix : list of int
        Tokens up to the root, which is the last of them.

    Attributes
    ----------
    paths : list of lists of int
        Tokens up to each node, `prefix` included.
    prefixes : list of lists of int
        Those of the last level that are to have children; none when the tree is complete.

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

    def __init__(self, kind: DraftKind, shape: TreeShape, prefix: list[int]) -> None:
        self._kind, self._shape = kind, shape
        self._parents = [-1]
        self._laws: list[DraftDistribution | None] = [None]
        self.paths = [prefix]
        self._planned = [0]  # the node of `shape` that each drafted one stands for
        self._find_inner(0)

    def _find_inner(self, first: int) -> None:
        """Find the nodes of the last level, which begins with `first`, that get children."""
        level = range(first, len(self.paths))
        self._inner = [node for node in level if self._shape.children(self._planned[node])]
        self.prefixes = [self.paths[node] for node in self._inner]

    def grow(self, draft_probs: Sequence[FloatArray], choices: Choices) -> None:
        """Draft the next level.

        Parameters
        ----------
        draft_probs : sequence of ndarray of float64, shape (B, V)
            After each of `prefixes`, by each of the draft models.
        choices : Choices
        """
        first = len(self.paths)
        for node, *rows in zip(self._inner, *draft_probs, strict=True):
            children = self._shape.children(self._planned[node])
            probs = np.array(rows) if self._kind.one_model_each else rows[0]
            self._laws[node] = draft = self._kind.make_at_most(probs, len(children))
            for child, token in zip(children, choices.drafts(draft).tolist(), strict=False):
                self._parents.append(node)
                self._laws.append(None)
                self.paths.append([*self.paths[node], token])
                self._planned.append(child)
        self._find_inner(first)

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
        shape = TreeShape(tuple(self._parents))
        return DraftedTree(shape, token_ids, tuple(self._laws), target_probs)
