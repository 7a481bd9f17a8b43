"""Draft models made for shorter texts than the target: they are shown the last part of a text."""

from __future__ import annotations

import warnings
from typing import Any

from mdsd._arguments import check_whole
from mdsd.decoding.rows import Prefixes, RowModel
from mdsd.errors import InvalidArgumentError


class Notices:
    """What the user of a decoder, or of a capture, is warned of: each thing once."""

    def __init__(self) -> None:
        self._given: dict[str, str | None] = {}  # None once the warning has been given

    def add(self, about: str, message: str) -> None:
        """Have a warning given after the step, if that comes to its end and it is the first."""
        self._given.setdefault(about, message)

    def give(self) -> None:
        """Give the warnings that have not been given."""
        for about, message in self._given.items():
            if message is not None:
                self._given[about] = None
                warnings.warn(message, UserWarning, stacklevel=2)


def context_length(name: str, model: Any) -> int | None:
    """Read the longest text that a model was made for; None if it does not say.

    Raises
    ------
    InvalidArgumentError
        If it is no integer >= 1.
    """
    found = getattr(model, "context_length", None)
    return None if found is None else check_whole(f"context_length of {name}", found, 1)


def check_room(
    name: str, prompt_length: int, new_tokens: int, longest: int | None, *, ahead: int = 0
) -> None:
    """Refuse outputs for which the target would have to read longer texts than it was made for.

    Parameters
    ----------
    name : str
        What gives the number of new tokens.
    prompt_length, new_tokens : int
        The last of the new tokens is never read.
    longest : int or None
        The longest text.
    ahead : int, default 0
        Drafted tokens that it reads behind the last new token but one, whatever becomes of them.

    Raises
    ------
    InvalidArgumentError
        Naming all of them.
    """
    if longest is None or prompt_length + new_tokens - 1 + ahead <= longest:
        return
    most = longest + 1 - prompt_length - ahead
    trees = f", before trees of {ahead} levels" if ahead else ""
    raise InvalidArgumentError(
        f"{name} is {new_tokens} after a prompt of {prompt_length} tokens{trees}, but the target "
        f"was made for texts of {longest}: expected "
        f"{f'at most {most}' if most > 0 else 'a shorter prompt'}"
    )


def window_start(token: int, context_length: int | None) -> int:
    """First token that a model sees where it is asked about what follows a token.

    Windows move on by half a context at a time, so that most tokens are read once or twice and all
    but the first see at least half a context.

    Examples
    --------
    >>> [window_start(token, 4) for token in range(8)]
    [0, 0, 0, 0, 2, 2, 4, 4]
    """
    if context_length is None or token < context_length:
        return 0
    step = max(1, context_length // 2)
    return ((token - context_length) // step + 1) * step


class WindowedRows:
    """A draft model that is shown no longer texts than it was made for.

    Parameters
    ----------
    rows : RowModel
    longest : int
        The longest text.
    notices : Notices
        Told of it where a text is longer.

    Examples
    --------
    >>> from mdsd.decoding import TableModel
    >>> from mdsd.decoding.rows import PlainRows
    >>> plain = PlainRows("draft_model", TableModel([[0.5, 0.5], [0.25, 0.75]]))
    >>> windowed = WindowedRows(plain, 4, Notices())
    >>> windowed.window([0, 1, 0, 1]), windowed.window([0, 1, 0, 1, 1])
    ([0, 1, 0, 1], [0, 1, 1])
    """

    def __init__(self, rows: RowModel, longest: int, notices: Notices) -> None:
        self.name = rows.name
        self._rows, self._longest, self._notices = rows, longest, notices

    def window(self, prefix: list[int]) -> list[int]:
        """Give what is shown of a prefix."""
        start = window_start(len(prefix) - 1, self._longest)
        return prefix[start:] if start else prefix

    def logits(self, prefixes: Prefixes) -> list[Any]:  # noqa: D102
        if any(len(prefix) > self._longest for asked in prefixes for prefix in asked):
            self._notices.add(
                f"texts longer than {self.name} can read",
                f"{self.name} was made for texts of {self._longest} tokens: of longer ones it is "
                "shown the end",
            )
        return self._rows.logits([list(map(self.window, asked)) for asked in prefixes])

    def keep(self, rows: list[int], prefixes: list[list[int]]) -> None:  # noqa: D102
        self._rows.keep(rows, list(map(self.window, prefixes)))


def windowed(rows: RowModel, model: Any, notices: Notices) -> RowModel:
    """Have a model shown no longer texts than it was made for, if it says how long these are.

    Parameters
    ----------
    rows : RowModel
        Of the model.
    model : Model
    notices : Notices

    Returns
    -------
    RowModel
    """
    longest = context_length(rows.name, model)
    return rows if longest is None else WindowedRows(rows, longest, notices)
