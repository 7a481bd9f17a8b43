"""Shapes of draft trees: which drafted token follows which."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Any, Protocol, TypeAlias

from mdsd._arguments import check_whole, shown
from mdsd._shown import Shown, cut
from mdsd.errors import InvalidArgumentError

MAX_NODES = 100_000
"""Most drafted nodes of a tree; beyond it a branching is taken for a mistake."""

_MOST_DRAWN = 200
"""Most drafted nodes of a tree that a notebook draws."""


@dataclass(frozen=True, repr=False)
class TreeShape(Shown):
    """Which drafted token follows which, in one step of a decoder.

    Node 0 is the root, the last token known; every other node is a drafted token. Nodes stand in
    breadth-first order: level by level, the children of one node side by side in draft order, and
    those of an earlier node first. Nodes of one level may have different numbers of children.

    Parameters
    ----------
    parents : sequence of int, length N + 1
        Parent of each node: -1 for the root, and never falling from there on.

    Attributes
    ----------
    parents : tuple of int, length N + 1
    num_nodes : int
        N, the number of drafted nodes: all but the root.
    depth : int
        Most drafted tokens on one path; 0 for the root alone.
    depths : tuple of int, length N + 1
        Depth of each node, 0 for the root.
    leaves : tuple of int
        Nodes without children, in order; of the root alone, the root.
    branching : tuple of int, or None
        Children of each node by level, where all nodes of a level have as many; else None.

    Raises
    ------
    InvalidArgumentError
        If `parents` is no such sequence; names the first node that is wrong.

    Examples
    --------
    The root has two children, the first of which has two of its own:

    >>> shape = TreeShape([-1, 0, 0, 1, 1])
    >>> shape.num_nodes, shape.depth, shape.depths, shape.leaves
    (4, 2, (0, 1, 1, 2, 2), (2, 3, 4))
    >>> shape.children(1), shape.path(4), shape.branching
    (range(3, 5), (1, 4), None)
    >>> TreeShape.from_branching([2, 1]).parents
    (-1, 0, 0, 1, 2)
    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parents", _read_parents(self.parents))

    @classmethod
    def chain(cls, depth: int) -> TreeShape:
        """Give the chain of `depth` drafted tokens, each the only child of the one before.

        Parameters
        ----------
        depth : int
            At least 1.

        Returns
        -------
        TreeShape

        Raises
        ------
        InvalidArgumentError
            If `depth` is not an integer >= 1, or more than `MAX_NODES`.

        Examples
        --------
        >>> TreeShape.chain(3).parents
        (-1, 0, 1, 2)
        """
        return cls.k_ary(1, depth)

    @classmethod
    def k_ary(cls, num_drafts: int, depth: int) -> TreeShape:
        """Give the tree in which every node down to `depth` - 1 has `num_drafts` children.

        Parameters
        ----------
        num_drafts, depth : int
            At least 1 each.

        Returns
        -------
        TreeShape

        Raises
        ------
        InvalidArgumentError
            If one of them is not an integer >= 1, or the tree has more than `MAX_NODES` nodes.

        Examples
        --------
        >>> TreeShape.k_ary(3, 4).num_nodes
        120
        """
        num_drafts = check_whole("num_drafts", num_drafts, 1)
        levels = check_whole("depth", depth, 1)
        described = f"{num_drafts} drafts at each of {levels} levels"
        return cls(_parents_of(repeat(num_drafts, levels), described))

    @classmethod
    def from_branching(cls, branching: Iterable[int]) -> TreeShape:
        """Give the tree in which every node of a level has the same number of children.

        Parameters
        ----------
        branching : sequence of int
            Children of the root, of each node of level 1, and so on; at least 1 each.

        Returns
        -------
        TreeShape

        Raises
        ------
        InvalidArgumentError
            If it is empty, an entry is not an integer >= 1, or the tree has more than `MAX_NODES`
            nodes.

        Examples
        --------
        >>> TreeShape.from_branching([3, 2, 1]).num_nodes
        15
        """
        counts = _read_list(branching, "tree", "the numbers of children by level, such as [3, 2]")
        if not counts:
            raise InvalidArgumentError("tree is empty; expected at least one number of children")
        checked = [check_whole(f"tree[{k}]", count, 1) for k, count in enumerate(counts)]
        return cls(_parents_of(checked, f"branching {shown(checked)}"))

    @classmethod
    def from_paths(cls, paths: Iterable[Iterable[int]]) -> TreeShape:
        """Give the tree whose nodes are named by the ranks of the children on the way to them.

        Parameters
        ----------
        paths : iterable of sequences of int
            One for each drafted node, in any order: ``(0,)`` is the root's first child, ``(0, 2)``
            that child's third. With a node its parent and the siblings before it are listed too.

        Returns
        -------
        TreeShape

        Raises
        ------
        InvalidArgumentError
            If a path is empty, listed twice or no sequence of integers >= 0, or what must be
            listed with it is not.

        Notes
        -----
        Medusa and EAGLE write their trees in this way (there ranks may leave gaps).

        Examples
        --------
        >>> TreeShape.from_paths([(0,), (0, 0), (1,), (0, 1)]).parents
        (-1, 0, 0, 1, 1)
        """
        listed = [
            tuple(
                check_whole(f"paths[{k}]", rank, 0)
                for rank in _read_list(path, f"paths[{k}]", "ranks of children")
            )
            for k, path in enumerate(_read_list(paths, "paths", "one path for each node"))
        ]
        # By length and then by ranks is breadth-first.
        ordered = sorted({(), *listed}, key=lambda path: (len(path), path))
        places = {path: node for node, path in enumerate(ordered)}
        seen: set[tuple[int, ...]] = set()
        for k, path in enumerate(listed):
            if not path or path in seen:
                what = "listed twice" if path else "the root, which is never drafted"
                raise InvalidArgumentError(f"paths[{k}] is {path}: {what}")
            seen.add(path)
            before = (*path[:-1], path[-1] - 1) if path[-1] > 0 else path[:-1]
            if before not in places:
                raise InvalidArgumentError(f"paths[{k}] is {path}, but {before} is not listed")
        return cls((-1, *(places[path[:-1]] for path in places if path)))

    @property
    def num_nodes(self) -> int:
        """Number of drafted nodes."""
        return len(self.parents) - 1

    @property
    def depth(self) -> int:
        """Most drafted tokens on one path."""
        return self.depths[-1]

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node."""
        found = [0]
        for parent in self.parents[1:]:
            found.append(found[parent] + 1)
        return tuple(found)

    @property
    def leaves(self) -> tuple[int, ...]:
        """Nodes without children, in order."""
        inner = set(self.parents)
        return tuple(node for node in range(len(self.parents)) if node not in inner)

    @property
    def branching(self) -> tuple[int, ...] | None:
        """Children of each node by level, where all nodes of a level have as many; else None."""
        counts: list[int] = []
        for depth in range(self.depth):
            found = {len(self.children(node)) for node in self.level(depth)}
            if len(found) > 1:
                return None
            counts += found
        return tuple(counts)

    def children(self, node: int) -> range:
        """Nodes that follow `node`, in draft order.

        Parameters
        ----------
        node : int
            In ``0 .. N``.

        Returns
        -------
        range

        Raises
        ------
        InvalidArgumentError
            If there is no such node.
        """
        self._check_node(node)
        return range(bisect_left(self.parents, node), bisect_right(self.parents, node))

    def level(self, depth: int) -> range:
        """Nodes at a depth; none below the deepest.

        Parameters
        ----------
        depth : int
            At least 0.

        Returns
        -------
        range

        Raises
        ------
        InvalidArgumentError
            If `depth` is not an integer >= 0.
        """
        depth = check_whole("depth", depth, 0)
        return range(bisect_left(self.depths, depth), bisect_right(self.depths, depth))

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes on the way to `node`: the root left out, the node itself last.

        Parameters
        ----------
        node : int
            In ``0 .. N``.

        Returns
        -------
        tuple of int

        Raises
        ------
        InvalidArgumentError
            If there is no such node.
        """
        self._check_node(node)
        found = []
        while node > 0:
            found.append(int(node))
            node = self.parents[node]
        return tuple(reversed(found))

    def truncated(self, depth: int) -> TreeShape:
        """Give the tree without the nodes below a depth.

        Parameters
        ----------
        depth : int
            At least 0, which leaves the root alone.

        Returns
        -------
        TreeShape
            With the same numbers for the nodes that are left.

        Raises
        ------
        InvalidArgumentError
            If `depth` is not an integer >= 0.
        """
        depth = check_whole("depth", depth, 0)
        if depth >= self.depth:
            return self
        return TreeShape(self.parents[: self.level(depth).stop])

    def _facts(self) -> dict[str, object]:
        regular = self.branching
        listed = {"parents": self.parents} if regular is None else {"branching": regular}
        cuts = {name: cut(values, "in all") for name, values in listed.items()}
        return {"num_nodes": self.num_nodes, "depth": self.depth, **cuts}

    def _repr_html_(self) -> str:
        return super()._repr_html_() + self._drawing()

    def _drawing(self) -> str:
        """Draw the tree, unless it has too many nodes to see one."""
        if self.num_nodes > _MOST_DRAWN:
            return ""
        # Children follow their parents, so a parent's place is known once all behind it are; the
        # depth-first order of the leaves is that of their paths.
        places = [0.0] * len(self.parents)
        for column, leaf in enumerate(sorted(self.leaves, key=self.path)):
            places[leaf] = float(column)
        for node in reversed(range(len(places))):
            below = self.children(node)
            if below:
                places[node] = (places[below[0]] + places[below[-1]]) / 2.0
        points = [(12 + 20 * x, 12 + 28 * y) for x, y in zip(places, self.depths, strict=True)]
        edges = (
            f"M{points[parent][0]:g} {points[parent][1]}L{points[node][0]:g} {points[node][1]}"
            for node, parent in enumerate(self.parents)
            if node
        )
        dots = (f'<circle cx="{x:g}" cy="{y}" r="4"/>' for x, y in points)
        width, height = 24 + 20 * (len(self.leaves) - 1), 24 + 28 * self.depth
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'fill="currentColor" stroke="currentColor"><path d="{"".join(edges)}"/>'
            f"{''.join(dots)}</svg>"
        )

    def _check_node(self, node: int) -> None:
        if type(node) is not int or not 0 <= node < len(self.parents):
            check_whole("node", node, 0, self.num_nodes)


class HasTree(Protocol):
    """What was made for a tree, such as `mdsd.analysis.TreePlan`."""

    @property
    def tree(self) -> TreeShape:
        """The tree."""


TreeLike: TypeAlias = TreeShape | Iterable[int] | HasTree
"""A tree, its numbers of children by level, or what was made for one."""


def read_tree(tree: TreeLike) -> TreeShape:
    """Read a tree in any of the forms that decoders take.

    Parameters
    ----------
    tree : TreeShape, sequence of int, or object with a ``tree`` attribute that is a TreeShape
        A list gives the numbers of children by level, as for `TreeShape.from_branching`.

    Returns
    -------
    TreeShape

    Raises
    ------
    InvalidArgumentError
        If it is none of these.

    Examples
    --------
    >>> read_tree([2, 1]) == TreeShape.from_branching([2, 1])
    True
    """
    given: Any = tree
    shape = tree if isinstance(tree, TreeShape) else getattr(tree, "tree", None)
    return shape if isinstance(shape, TreeShape) else TreeShape.from_branching(given)


def _read_list(values: Any, name: str, expected: str) -> list[Any]:
    try:
        if isinstance(values, (str, bytes)):
            raise TypeError
        # An array gives its own integers, or rows of them, which are refused one by one.
        return list(values)
    except TypeError:
        raise InvalidArgumentError(f"{name} is {shown(values)}; expected {expected}") from None


def _read_parents(values: Any) -> tuple[int, ...]:
    given = _read_list(values, "parents", "the parent of each node, -1 for the root first")
    parents = tuple(
        check_whole(f"parents[{node}]", parent, -1) for node, parent in enumerate(given)
    )
    if not parents or parents[0] != -1:
        raise InvalidArgumentError(
            f"parents is {shown(list(parents))}; expected -1, for the root, first"
        )
    if len(parents) > MAX_NODES + 1:
        raise InvalidArgumentError(
            f"parents has {len(parents) - 1} drafted nodes; expected at most {MAX_NODES:,}"
        )
    for node in range(1, len(parents)):
        least = max(parents[node - 1], 0)
        if not least <= parents[node] < node:
            raise InvalidArgumentError(
                f"parents[{node}] is {parents[node]}; expected {least}..{node - 1}: nodes stand in "
                "breadth-first order, children after their parent and those of earlier nodes first"
            )
    return parents


def _parents_of(branching: Iterable[int], described: str) -> tuple[int, ...]:
    parents = [-1]
    start = 0
    for count in branching:
        stop = len(parents)
        if stop + (stop - start) * count > MAX_NODES + 1:
            raise InvalidArgumentError(f"tree with {described} has more than {MAX_NODES:,} nodes")
        parents += [node for node in range(start, stop) for _ in range(count)]
        start = stop
    return tuple(parents)
