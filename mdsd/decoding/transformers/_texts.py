"""Which slots of a key-value cache hold which tokens of a text and of what branches off from it."""

from __future__ import annotations

from collections.abc import Sequence

from mdsd._typing import BoolArray
from mdsd.decoding.token_ids import common_length

UNREAD = -1


class Branch:
    """A token behind a text.

    Attributes
    ----------
    parent : Branch or None
        The token before; None for the end of the text.
    number : int
        Tells it from all other branches of the text.
    token_id, position : int
    slot : int
        Where its keys and values are; `UNREAD` if they are nowhere yet, or it is part of the text.
    """

    __slots__ = ("number", "parent", "position", "slot", "token_id")

    def __init__(self, parent: Branch | None, number: int, token_id: int, position: int) -> None:
        self.parent, self.number = parent, number
        self.token_id, self.position = token_id, position
        self.slot = UNREAD


class CachedText:
    """One row of a cache: a text in its first slots, and branches behind it in any others.

    Attributes
    ----------
    token_ids : list of int
        The text; slot k holds its k-th token.

    Examples
    --------
    >>> text = CachedText()
    >>> new, asked = text.unread([[5, 6], [5, 6, 7], [5, 6, 8]])
    >>> [branch.token_id for branch in new], [branch.position for branch in asked]
    ([5, 6, 7, 8], [1, 2, 2])
    >>> for slot, branch in enumerate(new):
    ...     branch.slot = slot
    >>> text.keep([5, 6, 8, 9]), text.token_ids
    ([0, 1, 3], [5, 6, 8])
    """

    def __init__(self) -> None:
        self._set([])

    def _set(self, token_ids: list[int]) -> None:
        self.token_ids = token_ids
        self._end = Branch(None, 0, UNREAD, len(token_ids) - 1)
        self._branches: dict[tuple[int, int], Branch] = {}  # by number of the parent, and token id

    def unread(self, prefixes: Sequence[list[int]]) -> tuple[list[Branch], list[Branch]]:
        """Find out what has to be read for the logits after some prefixes.

        Parameters
        ----------
        prefixes : sequence of lists of int
            At least one token each.

        Returns
        -------
        tuple of (list of Branch, list of Branch)
            Tokens to read, each after those it follows; and the last token of each prefix. That is
            always read, even if it has been before: what it led to is not kept.
        """
        if not prefixes:
            return [], []
        self._shorten(prefixes)
        new: list[Branch] = []
        known = len(self.token_ids)
        asked = []
        for prefix in prefixes:
            branch = self._end
            for token_id in prefix[known:]:
                key = (branch.number, token_id)
                if key not in self._branches:
                    number = len(self._branches) + 1
                    child = Branch(branch, number, token_id, branch.position + 1)
                    self._branches[key] = child
                    new.append(child)
                branch = self._branches[key]
            if branch.slot != UNREAD:
                # An unread token takes the place of the one that was read.
                branch = Branch(branch.parent, branch.number, branch.token_id, branch.position)
                self._branches[key] = branch
                new.append(branch)
            asked.append(branch)
        return new, asked

    def _shorten(self, prefixes: Sequence[list[int]]) -> None:
        """Cut the text to what all prefixes begin with, and continue."""
        most = min(len(prefix) for prefix in prefixes) - 1
        common = min(most, *(common_length(self.token_ids, prefix) for prefix in prefixes))
        if common < len(self.token_ids):
            self._set(self.token_ids[:common])

    def keep(self, prefix: list[int]) -> list[int]:
        """Make the text what has been read of a prefix, and forget all else.

        Parameters
        ----------
        prefix : list of int

        Returns
        -------
        list of int
            Where the tokens of the text are; the caller is to move them to the first slots.
        """
        common = common_length(self.token_ids, prefix)
        slots = list(range(common))
        if common == len(self.token_ids):
            branch = self._end
            for token_id in prefix[common:]:
                child = self._branches.get((branch.number, token_id))
                if child is None or child.slot == UNREAD:
                    break
                branch = child
                slots.append(branch.slot)
        self._set(prefix[: len(slots)])
        return slots

    def see(self, visible: BoolArray, branch: Branch, slot: int) -> None:
        """Mark the slots of all that comes before a branch, and its own.

        Parameters
        ----------
        visible : ndarray of bool, shape (T, S)
            What each token that is read now sees; those are the last T slots. Only the row of the
            branch is written; that of its parent, if it is one of them, is complete.
        branch : Branch
            Stands in the last T slots.
        slot : int
            The first of these.
        """
        row = visible[branch.slot - slot]
        parent = branch.parent
        if parent is not None and parent.slot >= slot:
            row[:] = visible[parent.slot - slot]
        else:
            row[: len(self.token_ids)] = True
            while parent is not None and parent.slot != UNREAD:
                row[parent.slot] = True
                parent = parent.parent
        row[branch.slot] = True
