"""A tree of drafted tokens that the target model has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mdsd._frozen import FrozenArrays
from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.trees import TreeShape


class Rows(Protocol):
    """Vectors by node: an array (N + 1, V), or anything indexed like one."""

    def __getitem__(self, node: int, /) -> AnyArray:
        """Give the vector (V,) of a node."""


@dataclass(frozen=True, eq=False)
class DraftedTree(FrozenArrays):
    """Drafted tokens, the laws they were drawn from, and the target's distributions.

    Attributes
    ----------
    shape : TreeShape
        Of what was drafted. A token that was drafted twice at one node stands there twice.
    token_ids : ndarray of int64, shape (N + 1,)
        Token of each node; that of the root is the last one known.
    laws : tuple of length N + 1
        DraftDistribution of the children of each node; None for nodes without children.
    target_probs : Rows
        Row k is the distribution, (V,), of the token that follows node k.
    worths : ndarray of float64, shape (N + 1,), or None
        What the drafts planned below each node are worth, in some measure: known before any draft
        of the tree is drawn. None, by default, where nothing is known so early.
    position : int or None
        Tokens of the text up to the root; None, by default, where the tree does not say.
    """

    shape: TreeShape
    token_ids: IntArray
    laws: tuple[DraftDistribution | None, ...]
    target_probs: Rows
    worths: FloatArray | None = None
    position: int | None = None

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
