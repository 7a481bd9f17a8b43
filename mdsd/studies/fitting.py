"""Text and tables for the terminal that fit its width, whatever it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import fill

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

NO_BREAK = "\N{NO-BREAK SPACE}"

_FILE_WIDTH, _LEAST_WIDTH = 80, 20
_WORDS = frozenset(
    {"draft distribution", "verifier", "tree", "quantity", "setting", "rule", "lossless"}
)
"""Heads of the columns of words, which stand to the left; numbers stand to the right."""

_MOST_LETTERS = 19
"""Of a word in a table: of longer ones the end is left out."""


class Paragraph:
    """Text that is wrapped at blanks only, and there not at `NO_BREAK`, printed as a blank too.

    A name wider than the terminal stays whole.
    """

    def __init__(self, text: str, style: str = "", indent: str = "") -> None:
        self._text = text
        self._style = style
        self._indent = indent  # of all lines but the first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = fill(
            self._text,
            options.max_width,
            subsequent_indent=self._indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield Text(lines.replace(NO_BREAK, " "), style=self._style, no_wrap=True, overflow="ignore")


class FittedTable:
    """A table that has its lines in the widest form that fits; no number is ever cut.

    In a narrow terminal what the lines of a section share stands above them, and in a narrower one
    each line is a sentence.

    Parameters
    ----------
    *names : str
        Heads of the columns.
    shared : int, default 0
        Lines that agree in so many first columns are a section, which has them in its first line
        only.
    """

    def __init__(self, *names: str, shared: int = 0) -> None:
        self._names, self._shared = names, shared
        self._lines: list[list[Text]] = []

    def add(self, *cells: str | Text) -> None:
        """Add a line."""
        texts = [Text(cell) if isinstance(cell, str) else cell.copy() for cell in cells]
        for name, text in zip(self._names, texts, strict=True):
            if name in _WORDS:
                text.truncate(_MOST_LETTERS, overflow="ellipsis")
        self._lines.append(texts)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for first in dict.fromkeys((0, self._shared)):
            for gap in (2, 1):
                if self._width(first, gap) <= options.max_width:
                    yield from self._table(first, gap)
                    return
        yield from self._sentences()

    def _width(self, first: int, gap: int) -> int:
        widths = self._widths()[first:]
        return sum(widths) + gap * (len(widths) - 1)

    def _widths(self) -> list[int]:
        heads = [Text(name) for name in self._names]
        columns = zip(heads, *self._lines, strict=True)
        return [max(cell.cell_len for cell in column) for column in columns]

    def _sections(self) -> Iterator[tuple[list[Text], list[list[Text]]]]:
        for shared, lines in groupby(self._lines, key=lambda line: line[: self._shared]):
            yield shared, list(lines)

    def _table(self, first: int, gap: int) -> Iterator[RenderableType]:
        """Lay the columns out from one on; what those before it say stands above."""
        yield self._line([Text(name, "bold") for name in self._names], first, gap)
        yield Text("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * self._width(first, gap))
        for number, (shared, lines) in enumerate(self._sections()):
            if number and self._shared:
                yield ""
            if first:
                yield self._sentence(shared)
            for index, line in enumerate(lines):
                repeated = [Text()] * self._shared if index else shared
                yield self._line([*repeated, *line[self._shared :]], first, gap)

    def _line(self, cells: Sequence[Text], first: int, gap: int) -> Text:
        placed = []
        for name, width, cell in zip(self._names, self._widths(), cells, strict=True):
            aligned = cell.copy()
            aligned.align("left" if name in _WORDS else "right", width)
            placed.append(aligned)
        return Text(" " * gap, no_wrap=True, overflow="ignore").join(placed[first:])

    def _sentences(self) -> Iterator[RenderableType]:
        for number, (shared, lines) in enumerate(self._sections()):
            if number and self._shared:
                yield ""
            if shared:
                yield self._sentence(shared)
            for line in lines:
                yield self._sentence(line, self._shared)

    def _sentence(self, cells: Sequence[Text], first: int = 0) -> Paragraph:
        """Say what stands in some columns, the first of them before the others."""
        said = [
            cell.plain if name in _WORDS else f"{name} {cell.plain}"
            for name, cell in zip(self._names, cells, strict=False)
            if cell.plain
        ][first:]
        joined = ", ".join(part.replace(" ", NO_BREAK) for part in said[1:])
        return Paragraph(f"{said[0]}: {joined}" if joined else said[0], indent="  ")


def print_report(report: RenderableType) -> None:
    """Print a report on standard output: as wide as the terminal, 80 columns in files and pipes.

    The environment variable COLUMNS comes before either. Blanks at the end of a line are left out.
    """
    console = Console(highlight=False)
    if not (console.is_terminal or os.environ.get("COLUMNS", "").isdigit()):
        console.width = _FILE_WIDTH
    console.width = max(console.width, _LEAST_WIDTH)
    with console.capture() as capture:
        console.print(report, crop=False)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    sys.stdout.write("\n".join([*lines, ""]))
