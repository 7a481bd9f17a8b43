"""Which sequences of a key-value cache hold which tokens of a text and of what branches off it.

A cache of llama.cpp keeps tokens in cells, each at a position and in any number of sequences; a
token sees the cells of its own sequence at earlier positions. A tree is read in one call by giving
each of its leaves a sequence, and every node all sequences of the leaves below it. What the leaves
have in common, and what was read before, they share without a copy.

Cells are taken in order, the first that is free. What a token sees is summed in the order of the
cells, so that its logits depend on its text alone only where that is the order of the text, too: no
cell is left free between others. The text is in the first cells; of a path that is accepted, what
follows it without a gap is kept, and the rest is read again with what comes next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from mdsd.decoding.token_ids import common_length, shared_start

TEXT = 0
"""The sequence of the text; all others are of branches."""


class Memory(Protocol):
    """The cells of a key-value cache."""

    def copy(self, source: int, sequence: int, start: int, stop: int) -> None:
        """Put the cells of a sequence at some positions into another one as well."""

    def remove(self, sequence: int, start: int) -> None:
        """Take the cells from a position on out of a sequence; those of none are free."""


class Node:
    """A token behind the text.

    Attributes
    ----------
    token_id, position : int
    parent : Node or None
        The token before; None for the last of the text.
    children : dict of int to Node
        By their tokens.
    sequence, cell : int
        One that holds it, and where it is, once it has been read.
    """

    __slots__ = ("cell", "children", "parent", "position", "sequence", "token_id")

    def __init__(self, token_id: int, position: int, parent: Node | None) -> None:
        self.token_id, self.position, self.parent = token_id, position, parent
        self.children: dict[int, Node] = {}
        self.sequence, self.cell = TEXT, -1


class CachedTree:
    """What a cache holds: a text, and branches behind it.

    Parameters
    ----------
    memory : Memory
        Empty.
    num_sequences : int
        That it can tell apart.

    Attributes
    ----------
    token_ids : list of int
        The text.
    num_cells : int
        Cells that are in use: so many, from the first on.
    """

    def __init__(self, memory: Memory, num_sequences: int) -> None:
        self._memory = memory
        self._free = list(range(num_sequences - 1, TEXT, -1))
        self._used: set[int] = set()
        self._children: dict[int, Node] = {}
        self._num_nodes = 0
        self.token_ids: list[int] = []

    @property
    def num_cells(self) -> int:
        """Cells that are in use."""
        return len(self.token_ids) + self._num_nodes

    def go_to(self, prefix: list[int]) -> None:
        """Make the text what has been read of a prefix, and keep the branches that go on from it.

        Parameters
        ----------
        prefix : list of int
        """
        known = common_length(self.token_ids, prefix)
        if known < len(self.token_ids):
            self.forget_branches()
            self._memory.remove(TEXT, known)
            del self.token_ids[known:]
            return
        children, last = self._children, None
        for token in prefix[known:]:
            node = children.get(token)
            if node is None or node.cell != len(self.token_ids):
                children = {}  # none of them goes on from the prefix without a gap
                break
            last, children = node, node.children
            self.token_ids.append(token)
        if last is not None:
            self._memory.copy(last.sequence, TEXT, known, len(self.token_ids))
        if children is self._children:
            return
        kept = list(_below(children))
        others = self._num_nodes - len(kept) - (len(self.token_ids) - known)
        self._num_nodes = len(kept)
        if others:  # whose cells would be free between
            self.forget_branches()
            return
        self._release(self._used - {node.sequence for node in kept})
        self._children = children
        for child in children.values():
            child.parent = None

    def forget_branches(self) -> None:
        """Keep nothing but the text."""
        self._release(set(self._used))
        self._children, self._num_nodes = {}, 0

    def _release(self, sequences: set[int]) -> None:
        for sequence in sequences:
            self._memory.remove(sequence, 0)
        self._used -= sequences
        self._free += sequences

    def unread(self, prefixes: Sequence[list[int]]) -> tuple[list[Node], list[Node]]:
        """Find out what has to be read for the logits after some prefixes.

        Parameters
        ----------
        prefixes : sequence of lists of int
            At least one, each of one token at least. The text becomes what all of them begin with,
            as far as it has been read.

        Returns
        -------
        new : list of Node
            Tokens to read, each after those it follows. The last of a prefix is always one, even if
            it has been read before: what it led to is not kept.
        asked : list of Node
            The last token of each prefix.
        """
        common = shared_start(prefixes)
        self.go_to(common)
        new: list[Node] = []
        end: Node | None = None
        for token in common[len(self.token_ids) :]:
            end = self._follow(end, token, new)
        asked: dict[tuple[int, ...], Node] = {}
        # Shorter ones first, which others may go through.
        rests = dict.fromkeys(tuple(prefix[len(common) :]) for prefix in prefixes)
        for rest in sorted(rests, key=len):
            node = end
            for token in rest[:-1]:
                node = self._follow(node, token, new)
            asked[rest] = self._append(node, rest[-1], new)
        return _in_depth(new), [asked[tuple(prefix[len(common) :])] for prefix in prefixes]

    def _follow(self, parent: Node | None, token: int, new: list[Node]) -> Node:
        children = self._children if parent is None else parent.children
        found = children.get(token)
        return self._append(parent, token, new) if found is None else found

    def _append(self, parent: Node | None, token: int, new: list[Node]) -> Node:
        """Add a token to be read, in place of the one that may be there with all behind it."""
        children = self._children if parent is None else parent.children
        position = len(self.token_ids) if parent is None else parent.position + 1
        children[token] = node = Node(token, position, parent)
        new.append(node)
        return node

    def place(self, new: list[Node]) -> list[list[int]] | None:
        """Give new tokens their sequences, which then hold all that comes before.

        Parameters
        ----------
        new : list of Node
            As `unread` gives them.

        Returns
        -------
        list of lists of int, or None
            The sequences of each; None if there are too few: nothing has changed in the cache, and
            `forget_branches` is to be called, as the new tokens stay unread.
        """
        leaves = sum(not node.children for node in new)
        if leaves > len(self._free):
            return None
        places: dict[int, list[int]] = {id(node): [] for node in new}
        for node in reversed(new):
            own, parent = places[id(node)], node.parent
            if not node.children:
                own.append(self._free.pop())
                self._used.add(own[0])
            node.sequence = own[0]
            above = None if parent is None else places.get(id(parent))
            if above is not None:
                above += own
            elif node.position:
                source = TEXT if parent is None else parent.sequence
                for sequence in own:
                    self._memory.copy(source, sequence, 0, node.position)
        for node in new:
            node.cell = self.num_cells
            self._num_nodes += 1
        return [places[id(node)] for node in new]

    def extend(self, token_ids: Sequence[int]) -> None:
        """Take note that tokens were read as the next of the text, behind which nothing branches.

        Parameters
        ----------
        token_ids : sequence of int
        """
        self.forget_branches()
        self.token_ids += token_ids


def _in_depth(new: list[Node]) -> list[Node]:
    """Order nodes by paths, the first children first: that is the path most often accepted."""
    fresh = {id(node) for node in new}
    waiting = [node for node in reversed(new) if id(node.parent) not in fresh]
    found = []
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += reversed(node.children.values())
    return found


def _below(children: dict[int, Node]) -> Iterator[Node]:
    """Go through all nodes of some subtrees."""
    waiting = list(children.values())
    while waiting:
        node = waiting.pop()
        waiting += node.children.values()
        yield node
