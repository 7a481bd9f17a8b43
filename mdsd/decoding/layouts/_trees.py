"""Draft trees as engines store them: children of every node, read from links or from paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mdsd._typing import BoolArray, IntArray
from mdsd.decoding.layouts._inputs import PADDING
from mdsd.errors import InvalidArgumentError

__all__ = ["DraftTree", "TreeBatch", "tree_from_links", "tree_from_parents", "tree_from_paths"]


@dataclass(frozen=True)
class DraftTree:
    """Which drafted token follows which.

    Attributes
    ----------
    levels : tuple of tuple of int
        Nodes by depth, the root alone in the first; nodes that the root does not lead to are none.
    children : tuple of tuple of int, length N
        Children of each node in draft order.
    """

    levels: tuple[tuple[int, ...], ...]
    children: tuple[tuple[int, ...], ...]

    def without_padding(self, ids: IntArray) -> DraftTree:
        """Leave out nodes with the padding id, and what is below them; the root's is not looked at.

        Parameters
        ----------
        ids : ndarray of int64, shape (N,)
        """
        kept = [[node for node in below if ids[node] != PADDING] for below in self.children]
        return _grow(kept)


@dataclass(frozen=True, eq=False)
class TreeBatch:
    """Trees of N nodes each, or places for as many, as arrays.

    Attributes
    ----------
    children : ndarray of int64, shape (B, N, W)
        Children of each node in draft order, padded with -1.
    num_children : ndarray of int64, shape (B, N)
    used : ndarray of bool, shape (B, N)
        The nodes that belong to their tree.
    num_levels : ndarray of int64, shape (B,)
    """

    children: IntArray
    num_children: IntArray
    used: BoolArray
    num_levels: IntArray

    @classmethod
    def of(cls, trees: Sequence[DraftTree], size: int) -> TreeBatch:
        """Collect trees of `size` nodes."""
        widest = max((len(below) for tree in trees for below in tree.children), default=0)
        children = np.full((len(trees), size, widest), PADDING, dtype=np.int64)
        used = np.zeros((len(trees), size), dtype=np.bool_)
        for b, tree in enumerate(trees):
            for level in tree.levels:
                for node in level:
                    used[b, node] = True
                    children[b, node, : len(tree.children[node])] = tree.children[node]
        levels = np.array([len(tree.levels) for tree in trees], dtype=np.int64)
        return cls(children, (children != PADDING).sum(axis=2), used, levels)


def _grow(children: list[list[int]]) -> DraftTree:
    """Collect the nodes below the root, node 0; every node has one parent."""
    levels, level = [], [0]
    while level:
        levels.append(tuple(level))
        level = [child for node in level for child in children[node]]
    return DraftTree(tuple(levels), tuple(map(tuple, children)))


def tree_from_links(
    first_child: IntArray, next_sibling: IntArray, names: tuple[str, str]
) -> DraftTree:
    """Read a tree from the first child and the next sibling of each node, -1 where there is none.

    Parameters
    ----------
    first_child, next_sibling : ndarray of int64, shape (N,)
        Node 0 is the root. What they hold for nodes that it does not lead to is not looked at.
    names : tuple of str
        What to call them in an error.

    Raises
    ------
    InvalidArgumentError
        If a link leads out of the tree or to a node met before.
    """
    count = len(first_child)
    children: list[list[int]] = [[] for _ in range(count)]
    seen, waiting = {0}, [0]
    while waiting:
        node = waiting.pop(0)
        link, source, name = int(first_child[node]), node, names[0]
        while link != PADDING:
            if not 0 <= link < count:
                raise InvalidArgumentError(
                    f"{name}: node {source} leads to {link}; expected a node in 0..{count - 1}, "
                    "or -1"
                )
            if link in seen:
                raise InvalidArgumentError(
                    f"{name}: node {source} leads to {link}, which has its place in the tree "
                    "already"
                )
            seen.add(link)
            children[node].append(link)
            waiting.append(link)
            link, source, name = int(next_sibling[link]), link, names[1]
    return _grow(children)


def tree_from_paths(paths: IntArray, count: int, name: str) -> DraftTree:
    """Read a tree from the paths to its leaves, each padded with -1 after its end.

    Parameters
    ----------
    paths : ndarray of int64, shape (L, D)
        Nodes from the root on, which is node 0. Siblings are in draft order by their numbers,
        whatever the order of the paths.
    count : int
        N, the number of nodes.
    name : str
        What to call the paths in an error.

    Raises
    ------
    InvalidArgumentError
        If a path does not start at node 0 or leaves the tree, or two paths disagree about the
        parent of a node.
    """
    parents: dict[int, tuple[int, int]] = {0: (PADDING, 0)}
    for row, path in enumerate(paths.tolist()):
        above = PADDING
        for depth, node in enumerate(path):
            if node == PADDING and depth > 0:
                break
            if not 0 <= node < count:
                raise InvalidArgumentError(
                    f"{name} row {row}: node {node} at position {depth} is outside 0..{count - 1}"
                )
            if depth == 0 and node != 0:
                raise InvalidArgumentError(
                    f"{name} row {row} starts at node {node}; expected 0, the root"
                )
            known, other = parents.setdefault(node, (above, row))
            if known != above:
                raise InvalidArgumentError(
                    f"{name} row {row}: node {node} at position {depth} follows node {above}, "
                    + ("but it is the root" if node == 0 else f"but {known} in row {other}")
                )
            above = node
    return tree_from_parents([parents.get(node, (PADDING, 0))[0] for node in range(count)])


def tree_from_parents(parents: list[int]) -> DraftTree:
    """Read a tree from the parent of each node, -1 for the root and for nodes left out.

    Node 0 is the root; siblings are in draft order by their numbers.
    """
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent != PADDING:
            children[parent].append(node)
    return _grow(children)
