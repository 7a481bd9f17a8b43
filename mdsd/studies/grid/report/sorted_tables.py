"""The tables of a report: cells of text, numbers among them told by their columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mdsd.filters import FILTER_COLUMNS
from mdsd.studies.grid.plots.slices import verifier_losses
from mdsd.studies.grid.report.findings import cells_of, comparable
from mdsd.studies.study_rows import StudyRow
from mdsd.studies.terminal import NONE, as_change, as_points, as_probability, counted

MOST_ROWS = 10_000
"""Rows of a table that a page holds; the rest is in the files of the study."""

_LONG_NAME = 32


Column = tuple[str, Callable[[Any], str]]
"""The head of a column, and what writes its cells."""


@dataclass(frozen=True)
class Table:
    """A table to sort.

    Attributes
    ----------
    key : str
        Its name in the page.
    title : str
    about : str
        What the numbers are.
    words : tuple of Column
        The columns of words, which come first.
    numbers : tuple of Column
    entries : sequence
        What the columns write.
    """

    key: str
    title: str
    about: str
    words: tuple[Column, ...]
    numbers: tuple[Column, ...]
    entries: Sequence[Any]

    @property
    def note(self) -> str:
        """What the numbers are, and what is left out."""
        if len(self.entries) <= MOST_ROWS:
            return self.about
        return (
            f"{self.about} The first {MOST_ROWS:,} of {counted(len(self.entries), 'row')}; all are "
            "in the files study.csv and study.parquet."
        )

    @cached_property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The cells as printed."""
        columns = (*self.words, *self.numbers)
        shown = self.entries[:MOST_ROWS]
        return tuple(tuple(write(entry) for _, write in columns) for entry in shown)

    @property
    def has_long_names(self) -> bool:
        """Whether the first column is as wide as several others."""
        return any(len(row[0]) > _LONG_NAME for row in self.rows)


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100.0 * value:.2f}"


def _change(value: float | None) -> str:
    return NONE if value is None else as_change(value)


def _count(value: int | None) -> str:
    return NONE if value is None else str(value)


def _filter(value: float | None) -> str:
    return "all" if value is None else f"{value:g}"


def _columns(write: Callable[[Any], str], attributes: Mapping[str, str]) -> tuple[Column, ...]:
    """Make columns of attributes of the rows, by their heads."""

    def column(name: str) -> Callable[[Any], str]:
        return lambda row: write(getattr(row, name))

    return tuple((head, column(name)) for head, name in attributes.items())


_NAMES = _columns(
    str, {"draft model": "draft_model", "draft distribution": "draft", "verifier": "verifier"}
)
_POINT = (
    *_columns(str, {"n": "num_drafts"}),
    *_columns(
        _filter, {name.replace("_", "\N{NON-BREAKING HYPHEN}"): name for name in FILTER_COLUMNS}
    ),
)
_ACCEPTANCE = _columns(as_probability, {"acceptance": "acceptance", "s.e.": "stderr"})
_BY_TEXT = _columns(as_probability, {"s.e. by text": "stderr_by_text"})
_DIFFERENCE = (
    *_columns(_change, {"difference": "difference"}),
    *_columns(
        as_points, {"s.e.": "difference_stderr", "s.e. by text": "difference_stderr_by_text"}
    ),
)
_TEXTS = _columns(_count, {"texts": "texts"})
_BOUND = (
    *_columns(as_probability, {"bound": "bound", "bound s.e.": "bound_stderr"}),
    *_columns(_percent, {"share of bound (%)": "share_of_bound"}),
)
_QUANTILES = _columns(as_probability, {"10%": "q10", "median": "q50", "90%": "q90"})
_LOST = _columns(
    as_points,
    {f"lost to {part}": f"lost_to_{part}" for part in ("model", "construction", "verifier")},
)
_POSITIONS = _columns(str, {"positions": "positions"})


def report_tables(rows: Sequence[StudyRow]) -> tuple[Table, ...]:
    """Lay out the tables of a report.

    Parameters
    ----------
    rows : sequence of StudyRow

    Returns
    -------
    tuple of Table
    """
    best = [cell[0] for cell in map(comparable, cells_of(rows)) if cell]
    by_text = _BY_TEXT if any(row.texts is not None for row in rows) else ()
    best_draft: Column = ("best construction", lambda row: row.best_draft or NONE)
    return (
        Table(
            "best",
            "The best of each cell",
            "Of rows over the same positions; of equal ones the first. Losses in points.",
            _NAMES,
            (*_POINT, *_ACCEPTANCE, *_BOUND[:1], *_LOST, *_POSITIONS),
            best,
        ),
        *_difference_tables(rows),
        _distance_table(rows),
        Table(
            "acceptance",
            "Acceptance",
            "Means over positions with their standard errors, and quantiles over positions.",
            _NAMES,
            (*_POINT, *_ACCEPTANCE, *by_text, *_QUANTILES, *_BOUND, *_POSITIONS),
            rows,
        ),
        Table(
            "losses",
            "Where the lost acceptance goes",
            "In points; with the acceptance the three parts add up to 100.",
            (*_NAMES, best_draft),
            (*_POINT, *_ACCEPTANCE[:1], *_LOST),
            rows,
        ),
    )


def _difference_tables(rows: Sequence[StudyRow]) -> Iterator[Table]:
    """Lay out what each verifier accepts more or less than the reference, if there is one."""
    compared = [row for row in rows if row.difference is not None]
    if not compared:
        return
    by_text = any(row.texts is not None for row in compared)
    numbers = (*_DIFFERENCE, *_TEXTS) if by_text else _DIFFERENCE[:2]
    yield Table(
        "differences",
        f"Differences to {compared[0].reference}",
        "Acceptance minus that of the reference at the same positions, in points, with the "
        "standard error of pairs over positions"
        + (" and, as positions of one text have much in common, over texts." if by_text else "."),
        _NAMES,
        (*_POINT, *_ACCEPTANCE[:1], *numbers, *_POSITIONS),
        compared,
    )


def _distance_table(rows: Sequence[StudyRow]) -> Table:
    """Lay out what each verifier stays below the bound of each draft distribution."""
    words: tuple[Column, ...] = (
        ("draft distribution", lambda entry: entry[0][0]),
        ("verifier", lambda entry: entry[0][1]),
    )
    numbers: tuple[Column, ...] = (
        ("rows", lambda entry: str(len(entry[1]))),
        ("least", lambda entry: as_points(min(entry[1]))),
        ("mean", lambda entry: as_points(sum(entry[1]) / len(entry[1]))),
        ("most", lambda entry: as_points(max(entry[1]))),
    )
    return Table(
        "distances",
        "How far verifiers stay below their bounds",
        "Bound minus acceptance in points, over all rows that have both.",
        words,
        numbers,
        list(verifier_losses(rows).items()),
    )
