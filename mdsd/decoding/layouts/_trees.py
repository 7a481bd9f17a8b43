"""Draft trees as engines store them: children of every node, read from links or from paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mdsd._typing import BoolArray, IntArray
from mdsd.decoding.layouts._inputs import PADDING
from mdsd.errors import InvalidArgumentError
from mdsd.trees import TreeShape

Tree = list[list[int]]
"""Children of each node in draft order; node 0 is the root."""


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
    def of(cls, trees: Sequence[Tree], ids: IntArray) -> TreeBatch:
        """Collect the nodes that the roots lead to, without those that have the padding id.

        Parameters
        ----------
        trees : sequence of B trees
        ids : ndarray of int64, shape (B, N)
            Token of each node; those of the roots are not looked at.
        """
        widest = max((len(below) for tree in trees for below in tree), default=0)
        children = np.full((*ids.shape, widest), PADDING, dtype=np.int64)
        used = np.zeros(ids.shape, dtype=np.bool_)
        levels = np.zeros(len(ids), dtype=np.int64)
        for b, (tree, tokens) in enumerate(zip(trees, ids.tolist(), strict=True)):
            level = [0]
            while level:
                used[b, level] = True
                levels[b] += 1
                kept = [[child for child in tree[i] if tokens[child] != PADDING] for i in level]
                for node, below in zip(level, kept, strict=True):
                    children[b, node, : len(below)] = below
                level = [child for below in kept for child in below]
        return cls(children, (children != PADDING).sum(axis=2), used, levels)

    def breadth_first(self, b: int) -> tuple[list[int], TreeShape]:
        """Give the nodes of one tree level by level, siblings side by side, and their shape."""
        nodes, parents = [0], [-1]
        for place, node in enumerate(nodes):  # which grow on the way
            below = self.children[b, node, : self.num_children[b, node]].tolist()
            nodes += below
            parents += [place] * len(below)
        return nodes, TreeShape(tuple(parents))


def tree_from_links(first_child: IntArray, next_sibling: IntArray, names: tuple[str, str]) -> Tree:
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
    children: Tree = [[] for _ in range(count)]
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
    return children


def tree_from_paths(paths: IntArray, count: int, name: str) -> Tree:
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


def tree_from_parents(parents: list[int]) -> Tree:
    """Read a tree from the parent of each node, -1 for the root and for nodes left out.

    Node 0 is the root; siblings are in draft order by their numbers.
    """
    children: Tree = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent != PADDING:
            children[parent].append(node)
    return children
