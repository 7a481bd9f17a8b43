"""What is wrong with a line of a log: found where the line is taken apart, told with its number."""

from __future__ import annotations

from mdsd.errors import InvalidArgumentError, MdsdError

__all__ = ["Problem"]


class Problem(Exception):
    """A line cannot be read.

    Parameters
    ----------
    text : str
        The field and what is wrong with it; file and line are added by whoever knows them.
    error : type of MdsdError
        What to raise then.
    """

    def __init__(self, text: str, error: type[MdsdError] = InvalidArgumentError) -> None:
        super().__init__(text)
        self.error = error
