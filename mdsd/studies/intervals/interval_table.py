"""Intervals for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from mdsd.studies.intervals.interval_rows import IntervalRow
from mdsd.studies.terminal import Paragraph, as_mean, counted, models_name, plain_table


def interval_report(rows: Sequence[IntervalRow], positions: int) -> RenderableType:
    """Lay out intervals: one table for each draft model.

    Parameters
    ----------
    rows : sequence of IntervalRow
    positions : int
        Positions of the study; rows averaged over fewer are listed below the tables.
    """
    parts: list[RenderableType] = []
    for _, found in groupby(rows, key=lambda row: row.joint or row.draft_model):
        group = list(found)
        table = plain_table("draft distribution", "n", "lower", "upper", "width", "known")
        for _, section in groupby(group, key=lambda row: row.draft):
            for index, row in enumerate(section):
                table.add_row(row.draft if index == 0 else "", str(row.num_drafts), *_cells(row))
            table.add_section()
        parts += [Paragraph(models_name(group), "bold"), table, ""]
    return Group(*parts, *(Paragraph(note, "dim") for note in _notes(rows, positions)))


def _cells(row: IntervalRow) -> list[Text | str]:
    ends = [
        as_mean(row.positions, row.lower, row.lower_stderr),
        as_mean(row.positions, row.upper, row.upper_stderr),
    ]
    if row.width is None:
        return [*ends]
    return [*ends, f"{row.width:.4f}", f"{row.known_target_mass:.3f} / {row.known_draft_mass:.3f}"]


def _notes(rows: Sequence[IntervalRow], positions: int) -> list[str]:
    notes = [
        f"The mean acceptance bound over {counted(positions, 'position')} lies between the means "
        "of the lower and the upper ends (± standard error); known: mean probability of the "
        "tokens in the log, target / draft."
    ]
    short = [
        f"{row.draft_model} {row.draft} n={row.num_drafts}: {row.positions:,}".replace(
            " ", "\N{NO-BREAK SPACE}"
        )
        for row in rows
        if row.positions < positions
    ]
    if short:
        notes.append(f"positions with n tokens to draw: {'; '.join(short)}")
    for row in rows:
        if row.missing:
            notes.append(f"not yet {row.draft} n={row.num_drafts}: {row.missing[0].reason}")
    return notes
