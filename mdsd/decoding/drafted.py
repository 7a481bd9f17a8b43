"""A tree of drafted tokens, before and after the target model has seen it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mdsd._frozen import FrozenArrays
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.trees import TreeShape

__all__ = ["DraftedTree", "DrawnTree", "Rows"]


class Rows(Protocol):
    """Probability vectors by node: an array (N + 1, V), or anything indexed like one."""

    def __getitem__(self, node: int, /) -> FloatArray:
        """Give the vector (V,) of a node."""


@dataclass(frozen=True, eq=False)
class DrawnTree(FrozenArrays):
    """Drafted tokens and the laws they were drawn from.

    Attributes
    ----------
    shape : TreeShape
        Of what was drafted. A token that was drafted twice at one node stands there twice.
    token_ids : ndarray of int64, shape (N + 1,)
        Token of each node; that of the root is the last one known.
    laws : tuple of length N + 1
        DraftDistribution of the children of each node; None for nodes without children.
    """

    shape: TreeShape
    token_ids: IntArray
    laws: tuple[DraftDistribution | None, ...]

    def child_token_ids(self, node: int) -> IntArray:
        """Tokens drafted at a node, (n,), in draft order."""
        children = self.shape.children(node)
        return self.token_ids[children.start : children.stop]

    def child(self, node: int, token_id: int) -> int | None:
        """First child of a node that has a token; None if none has."""
        drafted: list[int] = self.child_token_ids(node).tolist()
        if token_id not in drafted:
            return None
        return self.shape.children(node)[drafted.index(token_id)]

    def prefixes(self, prefix: list[int]) -> list[list[int]]:
        """Tokens up to each node, given those up to the root."""
        found = [prefix]
        for node in range(1, len(self.token_ids)):
            found.append([*found[self.shape.parents[node]], int(self.token_ids[node])])
        return found


@dataclass(frozen=True, eq=False)
class DraftedTree(DrawnTree):
    """Drafted tokens, with the target's law of the token after each node.

    Attributes
    ----------
    shape, token_ids, laws
        As in `DrawnTree`.
    target_probs : Rows
        Row k is the law, (V,), of the token that follows node k.
    """

    target_probs: Rows
