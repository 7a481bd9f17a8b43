"""Objects that say what they are: in a line of code, and as a small table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from mdsd._arguments import shown
from mdsd._typing import IntArray


class Words(str):
    """A text that stands without quotation marks where others have them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Shown:
    """What classes derive from that give facts about themselves, by name, and nothing more.

    Examples
    --------
    >>> class Coin(Shown):
    ...     def _facts(self):
    ...         return {"sides": 2, "name": "<euro>"}
    >>> Coin()
    Coin(sides=2, name='<euro>')
    >>> print(Coin()._repr_html_())  # doctest: +ELLIPSIS
    <table><caption>Coin</caption><tr><th>sides</th><td>2</td></tr>...<td>&lt;euro&gt;</td></tr></table>
    """

    def _facts(self) -> Mapping[str, object]:
        raise NotImplementedError

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._facts().items())
        return f"{type(self).__name__}({given})"

    def _repr_html_(self) -> str:
        facts = ((_head(name), _cell(value)) for name, value in self._facts().items())
        return html_table(type(self).__name__, facts)


def cut(values: Sequence[int] | IntArray, noun: str) -> Words:
    """Write a list for `_facts`: its first entries, and how many there are of them.

    Examples
    --------
    >>> cut([3, 5], "tokens"), cut(range(8), "tokens")
    ([3, 5], [0, 1, 2, 3, 4, 5, ...] of 8 tokens)
    """
    text = shown(np.asarray(values[:7]).tolist())
    return Words(text if len(values) < 7 else f"{text} of {len(values):,} {noun}")


def html_table(caption: str, rows: Iterable[Iterable[str]]) -> str:
    """Write a table whose cells are already HTML."""
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption>{body}</table>"


def html_rows(heads: Iterable[str], lines: Iterable[Iterable[object]]) -> Iterable[Iterable[str]]:
    """Give the rows of a table with a line of heads, for `html_table`."""
    return [map(_head, heads), *(map(_cell, line) for line in lines)]


def _head(text: str) -> str:
    return f"<th>{escape(text)}</th>"


def _cell(value: object) -> str:
    return f"<td>{escape(str(value))}</td>"
