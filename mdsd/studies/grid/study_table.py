"""The table of a study for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from mdsd.studies.study_rows import StudyRow
from mdsd.studies.terminal import (
    Columns,
    as_points,
    as_probability,
    averaged_report,
    difference_column,
    difference_legend,
)

_LEGEND = (
    "Means over {}. Lost acceptance in points, together what is missing to 1: to the draft model "
    "(1 - bound of the best construction), to the construction (best bound - bound) and to the "
    "verifier (bound - acceptance)."
)


def study_table(
    rows: Sequence[StudyRow], positions: int, against: str | None = None
) -> RenderableType:
    """Lay out a study: one table for each draft model, temperature and filter, best first.

    Parameters
    ----------
    rows : sequence of StudyRow
    positions : int
        Positions of the study; rows averaged over fewer are listed below the tables.
    against : str, optional
        The verifier the differences to which are shown, instead of where acceptance is lost.
    """
    columns: Columns = {
        "bound": lambda row: as_probability(row.bound),
        "verifier": lambda row: row.verifier,
        "acceptance": lambda row: as_probability(row.acceptance),
        "model": lambda row: as_points(row.lost_to_model),
        "constr.": lambda row: as_points(row.lost_to_construction),
        "verif.": lambda row: as_points(row.lost_to_verifier),
    }
    legend = _LEGEND
    if against is not None:
        columns = {name: columns[name] for name in list(columns)[:3]} | difference_column(against)
        legend = f"Means over {{}}; {difference_legend(rows, against)}"
    return averaged_report(rows, positions, columns, 3, legend)
