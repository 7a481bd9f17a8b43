"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Protocol, TypeVar

from rich.console import Group, RenderableType
from rich.text import Text

from mdsd.studies.fitting import NO_BREAK, FittedTable, Paragraph
from mdsd.studies.study_rows import BoundRow, CompareRow, Missing, StudyRow

AnyRow = TypeVar("AnyRow", CompareRow, BoundRow, StudyRow)

NONE = "\N{EN DASH}"
"""What stands in a table for a number that there is not."""

Columns = Mapping[str, Callable[[Any], str | Text]]
"""What writes the cells of a row, by the heads of the columns."""

_NOT_YET = Text("not yet", style="dim")
_IMPOSSIBLE = Text(NONE, style="dim")


def compare_report(
    rows: Sequence[CompareRow], positions: int, against: str | None = None
) -> RenderableType:
    """Lay out a comparison: one table for each draft model and filter, best first.

    Parameters
    ----------
    rows : sequence of CompareRow
    positions : int
        Positions of the study; rows averaged over fewer are listed below the tables.
    against : str, optional
        The verifier the differences to which are shown.
    """
    columns: Columns = {
        "bound": _bound,
        "verifier": lambda row: row.verifier,
        "acceptance": lambda row: as_mean(row.positions, row.acceptance, row.stderr),
        "share": lambda row: "" if row.share_of_bound is None else f"{row.share_of_bound:.1%}",
    }
    legend = "Means over {} ± standard error; share: acceptance / bound."
    if against is not None:
        # In the room that the error of the bound and the share had.
        columns = {name: columns[name] for name in columns if name != "share"}
        columns |= {
            "bound": lambda row: as_probability(row.bound),
            **difference_column(against),
        }
        legend = (
            "Means over {} ± standard error, taken over positions; "
            f"{difference_legend(rows, against)}"
        )
    return averaged_report(rows, positions, columns, 3, legend)


def bound_report(rows: Sequence[BoundRow], positions: int) -> RenderableType:
    """Lay out bounds: one table for each draft model and filter.

    Parameters
    ----------
    rows : sequence of BoundRow
    positions : int
        Positions of the study; rows averaged over fewer are listed below the tables.
    """
    quantiles = {name: partial(_quantile, name) for name in ("q10", "q50", "q90")}
    legend = "Means over {} ± standard error; quantiles over positions."
    return averaged_report(rows, positions, {"bound": _bound, **quantiles}, 1, legend)


def averaged_report(
    rows: Sequence[AnyRow], positions: int, columns: Columns, shared: int, legend: str
) -> RenderableType:
    """Lay out means over positions: one table for each draft model and filter, and notes.

    Parameters
    ----------
    rows : sequence of CompareRow, BoundRow or StudyRow
    positions : int
        Positions of the study; rows averaged over fewer are listed below the tables.
    columns : mapping of str to callable
        What follows the columns that all of these tables begin with.
    shared : int
        As for `sectioned`.
    legend : str
        What the numbers are.
    """
    drafted: Columns = {
        "draft distribution": lambda row: row.draft,
        "n": lambda row: str(row.num_drafts),
    }
    tables = sectioned(headed_groups(rows), {**drafted, **columns}, shared)
    return Group(*tables, *notes(rows, positions, legend))


def _bound(row: CompareRow | BoundRow) -> Text:
    return as_mean(row.positions, row.bound, row.bound_stderr)


def _quantile(name: str, row: BoundRow) -> str:
    return "" if getattr(row, name) is None else as_probability(getattr(row, name))


def titled_groups(rows: Sequence[AnyRow]) -> list[tuple[str, list[AnyRow]]]:
    """Split rows into those that share a table or a panel, each with its title.

    Rows share a draft model and filters; independent drafts, whose models change with their
    number, are a group of their own for each of these.
    """

    def key(row: AnyRow) -> tuple[Any, ...]:
        return row.joint and row.draft, None if row.joint else row.draft_model, row.filters

    titled: list[tuple[str, list[AnyRow]]] = []
    for _, found in groupby(rows, key=key):
        group: list[AnyRow] = list(found)
        titled.append((", ".join([models_name(group), *group[0].filters.words]), group))
    return titled


def headed_groups(rows: Sequence[AnyRow]) -> list[tuple[Paragraph, list[AnyRow]]]:
    """Split rows as `titled_groups` does, under headings that name data and seed as well."""
    return [
        (Paragraph(f"{group[0].data}, {title}, seed {group[0].seed}", "bold"), group)
        for title, group in titled_groups(rows)
    ]


class _OfModels(Protocol):
    @property
    def draft_model(self) -> str: ...
    @property
    def draft(self) -> str: ...
    @property
    def joint(self) -> bool: ...


def models_name(rows: Sequence[_OfModels]) -> str:
    """Name the draft model of rows that share it, or all models of independent drafts."""
    if not rows[0].joint:
        return rows[0].draft_model
    most = max((row.draft_model for row in rows), key=len)
    return f"{rows[0].draft}, the first n of {most.replace('+', ', ')}"


def sectioned(
    groups: Iterable[tuple[RenderableType, Sequence[Any]]], columns: Columns, shared: int
) -> list[RenderableType]:
    """Lay out a table for each group of rows.

    Parameters
    ----------
    groups : iterable of (heading, sequence of rows)
    columns : mapping of str to callable
        What writes the cell of a row, by the heads of the columns.
    shared : int
        Rows that agree in so many first columns are a section, which has them in its first line
        only.
    """
    parts: list[RenderableType] = []
    for heading, group in groups:
        table = FittedTable(*columns, shared=shared)
        for row in group:
            table.add(*(write(row) for write in columns.values()))
        parts += [heading, table, ""]
    return parts


def counted(count: int, noun: str) -> str:
    """Write a number with its noun.

    Examples
    --------
    >>> counted(1, "run"), counted(2_000, "run")
    ('1 run', '2,000 runs')
    """
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def as_probability(value: float | None) -> str:
    """Write a probability, if there is one.

    Examples
    --------
    >>> as_probability(0.25)
    '0.2500'
    """
    return NONE if value is None else f"{value:.4f}"


def as_points(lost: float | None) -> str:
    """Write a loss, if there is one, in points of acceptance; rounding below zero is none.

    Examples
    --------
    >>> as_points(0.125), as_points(-1e-17)
    ('12.50', '0.00')
    """
    return NONE if lost is None else f"{max(0.0, round(100 * lost, 2)):.2f}"


def difference_column(against: str) -> dict[str, Callable[[Any], str]]:
    """Make the column of differences to a verifier."""
    return {f"minus {against}": as_difference}


def as_difference(row: CompareRow | StudyRow) -> str:
    """Write the mean difference of a row to its reference, in points, with its error by text.

    Where texts are not known the error is the one over positions.
    """
    if row.difference is None:
        return NONE
    known = row.difference_stderr_by_text
    error = row.difference_stderr if known is None else known
    return f"{as_change(row.difference)}" + ("" if error is None else f" ± {100 * error:.2f}")


def as_change(difference: float) -> str:
    """Write a difference of acceptances in points, with its sign.

    Examples
    --------
    >>> as_change(0.0125), as_change(-1e-9)
    ('+1.25', '0.00')
    """
    points = round(100 * difference, 2)
    return f"{points:+.2f}" if points else "0.00"


def difference_legend(rows: Sequence[CompareRow] | Sequence[StudyRow], against: str) -> str:
    """Say what the differences to a verifier are, and of what scatter their errors."""
    texts = max((row.texts or 0 for row in rows), default=0)
    by = f"clustered by text ({counted(texts, 'text')})" if texts > 1 else "over positions"
    return (
        f"minus {against}: differences at the same positions, in points, ± standard error of "
        f"pairs, {by}."
    )


def as_mean(positions: int, mean: float | None, stderr: float | None) -> Text:
    """Write a mean over positions, or that there are no positions or no mean."""
    if mean is None:
        return _IMPOSSIBLE if positions == 0 else _NOT_YET
    return Text(f"{mean:.4f}" if stderr is None else f"{mean:.4f} ± {stderr:.4f}")


def notes(rows: Sequence[AnyRow], positions: int, legend: str) -> list[RenderableType]:
    """Say what the numbers are, which positions were left out, and what is not computed and why."""
    notes = [legend.format(counted(positions, "position"))]
    for title, group in titled_groups(rows):
        short = {
            f"{row.draft} n={row.num_drafts}: {row.positions:,}".replace(" ", NO_BREAK): None
            for row in group
            if row.positions < positions
        }
        if short:
            notes.append(f"{title}, positions with n tokens to draw: {'; '.join(short)}")
    for draft in dict.fromkeys(row.draft for row in rows):
        missing = [m for row in rows if row.draft == draft for m in row.missing]
        if missing:
            notes.append(_why(draft, missing))
    return [Paragraph(note, "dim") for note in notes]


def _why(draft: str, missing: Sequence[Missing]) -> str:
    things = ", ".join(dict.fromkeys(m.what for m in missing))
    tokens = missing[0].tokens
    return f"not yet {draft}: no method so far for {tokens:,} tokens ({things})"
