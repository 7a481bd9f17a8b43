"""Drafting a tree, level by level."""

from __future__ import annotations

import numpy as np

from mdsd._frozen import frozen
from mdsd._typing import FloatArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DrawnTree
from mdsd.decoding.laws import node_law
from mdsd.drafts import DraftDistribution
from mdsd.trees import TreeShape

__all__ = ["Drafting"]


class Drafting:
    """A tree of drafted tokens while it grows.

    Parameters
    ----------
    draft : str
        Name of the draft distribution.
    shape : TreeShape
        Of the tree where all tokens asked for can be drawn.
    prefix : list of int
        Tokens up to the root, which is the last of them.

    Attributes
    ----------
    prefixes : list of lists of int
        Tokens up to each node of the last level that is to have children; none when the tree is
        complete.

    Examples
    --------
    >>> from mdsd.decoding.choices import RandomChoices
    >>> drafting = Drafting("without_replacement", TreeShape.chain(2), [7])
    >>> drafting.prefixes
    [[7]]
    >>> certain = np.array([[0.0, 1.0, 0.0]])
    >>> while drafting.prefixes:
    ...     drafting.grow(certain, RandomChoices(0))
    >>> drafting.tree().token_ids.tolist()
    [7, 1, 1]
    """

    def __init__(self, draft: str, shape: TreeShape, prefix: list[int]) -> None:
        self._draft, self._shape = draft, shape
        self._parents, self._tokens = [-1], [prefix[-1]]
        self._laws: list[DraftDistribution | None] = [None]
        self._paths = [prefix]
        self._planned = [0]  # the node of `shape` that each drafted one stands for
        self._level = range(0)
        self._next_level()

    def _next_level(self) -> None:
        self._level = range(self._level.stop, len(self._tokens))
        self._inner = [node for node in self._level if self._shape.children(self._planned[node])]
        self.prefixes = [self._paths[node] for node in self._inner]

    def grow(self, draft_probs: FloatArray, choices: Choices) -> None:
        """Draft the next level.

        Parameters
        ----------
        draft_probs : ndarray of float64, shape (B, V), or (B, m, V) for independent drafts
            After each of `prefixes`.
        choices : Choices
        """
        for node, row in zip(self._inner, draft_probs, strict=True):
            children = self._shape.children(self._planned[node])
            self._laws[node] = law = node_law(self._draft, row, len(children))
            drafted = choices.drafts(law).tolist()
            for child, token in zip(children, drafted, strict=False):
                self._parents.append(node)
                self._tokens.append(token)
                self._laws.append(None)
                self._paths.append([*self._paths[node], token])
                self._planned.append(child)
        self._next_level()

    def tree(self) -> DrawnTree:
        """Give what has been drafted.

        Returns
        -------
        DrawnTree
        """
        token_ids = frozen(np.array(self._tokens, dtype=np.int64))
        return DrawnTree(TreeShape(tuple(self._parents)), token_ids, tuple(self._laws))
