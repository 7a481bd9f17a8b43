"""The table of a study for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType

from mdsd.studies.study_rows import StudyRow
from mdsd.studies.terminal import (
    as_points,
    as_probability,
    headed_groups,
    notes,
    plain_table,
    sections,
)

_LEGEND = (
    "Means over {}. Lost acceptance in points, together what is missing to 1: to the draft model "
    "(1 - bound of the best construction), to the construction (best bound - bound) and to the "
    "verifier (bound - acceptance)."
)


def study_table(rows: Sequence[StudyRow], positions: int) -> RenderableType:
    """Lay out a study: one table for each draft model, temperature and filter, best first.

    Parameters
    ----------
    rows : sequence of StudyRow
    positions : int
        Positions of the study; rows averaged over fewer are listed below the tables.
    """
    parts: list[RenderableType] = []
    for title, group in headed_groups(rows):
        lost = ("model", "constr.", "verif.")
        table = plain_table("draft distribution", "n", "bound", "verifier", "acceptance", *lost)
        for section in sections(group):
            for row in section:
                first = row is section[0]
                table.add_row(
                    row.draft if first else "",
                    str(row.num_drafts) if first else "",
                    as_probability(row.bound) if first else "",
                    row.verifier,
                    as_probability(row.acceptance),
                    as_points(row.lost_to_model),
                    as_points(row.lost_to_construction),
                    as_points(row.lost_to_verifier),
                )
            table.add_section()
        parts += [title, table, ""]
    return Group(*parts, *notes(rows, positions, _LEGEND))
