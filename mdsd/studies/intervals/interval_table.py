"""Intervals for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType

from mdsd.studies.fitting import NO_BREAK, Paragraph
from mdsd.studies.intervals.interval_rows import IntervalRow
from mdsd.studies.terminal import Columns, as_mean, counted, models_name, sectioned


def interval_report(rows: Sequence[IntervalRow], positions: int) -> RenderableType:
    """Lay out intervals: one table for each draft model.

    Parameters
    ----------
    rows : sequence of IntervalRow
    positions : int
        Positions of the study; rows averaged over fewer are listed below the tables.
    """
    columns: Columns = {
        "draft distribution": lambda row: row.draft,
        "n": lambda row: str(row.num_drafts),
        "lower": lambda row: as_mean(row.positions, row.lower, row.lower_stderr),
        "upper": lambda row: as_mean(row.positions, row.upper, row.upper_stderr),
        "width": lambda row: "" if row.width is None else f"{row.width:.4f}",
        "known": _known,
    }
    found = groupby(rows, key=lambda row: row.joint or row.draft_model)
    groups = (list(group) for _, group in found)
    headed = ((Paragraph(models_name(group), "bold"), group) for group in groups)
    notes = [Paragraph(note, "dim") for note in _notes(rows, positions)]
    return Group(*sectioned(headed, columns, shared=1), *notes)


def _known(row: IntervalRow) -> str:
    if row.width is None:
        return ""
    return f"{row.known_target_mass:.3f} / {row.known_draft_mass:.3f}"


def _notes(rows: Sequence[IntervalRow], positions: int) -> list[str]:
    notes = [
        f"The mean acceptance bound over {counted(positions, 'position')} lies between the means "
        "of the lower and the upper ends (± standard error); known: mean probability of the "
        "tokens in the log, target / draft."
    ]
    short = [
        f"{row.draft_model} {row.draft} n={row.num_drafts}: {row.positions:,}".replace(
            " ", NO_BREAK
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
