"""Attained acceptance against its bound at every position: a panel for a verifier and its draft."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from mdsd._typing import FloatArray
from mdsd.studies.grid.folder import Study
from mdsd.studies.grid.plots.slices import ModelGroup, pinned, set_title, verifier_losses
from mdsd.studies.panels import panel_grid, stable_names, verifier_look
from mdsd.studies.study_rows import StudyRow
from mdsd.studies.terminal import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NEGLIGIBLE = 1e-3
WITHOUT = "without verifiers that lose less than 0.1 points"
"""Remark on figures of what is left of `losing_pairs`."""

_MOST_POINTS = 2_000
MOST_PANELS = 12


def scatter_figure(study: Study, group: ModelGroup) -> Figure | None:
    """Draw what verifiers attain against the bound, position by position.

    Parameters
    ----------
    study : Study
    group : ModelGroup

    Returns
    -------
    matplotlib.figure.Figure or None
        None if no verifier stays below its bound by 0.1 points, or there is a single position.
    """
    rows, words = pinned(group.rows)
    pairs = set(losing_pairs(rows)[:MOST_PANELS])
    drawn = [row for row in rows if (row.draft, row.verifier) in pairs and row.positions > 1]
    if not drawn:
        return None
    names = stable_names(row.verifier for row in study.rows)
    width = max(2.75, 5.4 / len(drawn))
    figure, axes = panel_grid(len(drawn), width=width, height=2.95, most_columns=4, margin=0.2)
    for axis, row in zip(axes, drawn, strict=True):
        bound, attained = _columns(study, row)
        axis.set_title(_panel_title(row, study.plan["settings"]["positions"]), fontsize=9)
        look = verifier_look(names.index(row.verifier))
        _draw(axis, bound, attained, look["color"], look["marker"])
    figure.supxlabel("acceptance bound of the position (attained on the dashed line)", fontsize=9)
    figure.supylabel("acceptance probability attained at the position", fontsize=9)
    words.append(WITHOUT)
    what = "Attained acceptance against the bound, position by position"
    set_title(figure, study, what, group, words)
    return figure


def losing_pairs(rows: list[StudyRow]) -> list[tuple[str, str]]:
    """List draft distributions and verifiers that stay below their bounds, most on average first.

    Those that stay below by less than 0.1 points on average are left out.

    Parameters
    ----------
    rows : list of StudyRow

    Returns
    -------
    list of (str, str)
    """
    means = {pair: sum(found) / len(found) for pair, found in verifier_losses(rows).items()}
    return sorted(
        (pair for pair, mean in means.items() if mean > _NEGLIGIBLE), key=lambda pair: -means[pair]
    )


def _columns(study: Study, row: StudyRow) -> tuple[FloatArray, FloatArray]:
    """Read bounds and acceptances of a row at its positions."""
    wanted = (f"{row.draft} of {row.draft_model}", row.num_drafts, row.filters)
    found, drafted = next(
        (file, each)
        for file in study.cells
        for each, _ in file.cell.asked
        if (each.label, file.cell.num_drafts, file.cell.filters) == wanted
    )
    chosen = found.column(drafted.drawable_column)
    bound = found.column(drafted.bound_column)
    return bound[chosen], found.column(drafted.acceptance_column(row.verifier))[chosen]


def _panel_title(row: StudyRow, positions: int) -> str:
    lines = [row.draft, fill(row.verifier, 30)]
    lines.append(f"mean {100 * (row.lost_to_verifier or 0.0):.2f} points below")
    if row.positions > _MOST_POINTS:
        lines.append(f"({_MOST_POINTS:,} of {row.positions:,} positions drawn)")
    elif row.positions < positions:
        lines.append(f"({counted(row.positions, 'position')})")
    return "\n".join(lines)


def _draw(axis: Axes, bound: FloatArray, attained: FloatArray, colour: str, marker: str) -> None:
    count = min(len(bound), _MOST_POINTS)
    # Evenly spaced: the same ones on every run.
    shown = np.linspace(0, len(bound) - 1, count).round().astype(np.int64)
    axis.grid(color="0.92")
    axis.set_axisbelow(True)
    axis.plot([0.0, 1.0], [0.0, 1.0], color="black", linestyle="--", linewidth=0.9, zorder=1)
    axis.scatter(
        bound[shown],
        attained[shown],
        s=13.0,
        color=colour,
        marker=marker,
        alpha=0.6 if count <= 300 else 0.3,
        linewidths=0.0,
        zorder=2,
    )
    axis.set_xlim(-0.03, 1.03)
    axis.set_ylim(-0.03, 1.03)
    ticks = (0.0, 0.25, 0.5, 0.75, 1.0)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
