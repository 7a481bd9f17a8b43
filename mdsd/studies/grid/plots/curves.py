"""Acceptance along one axis of the grid, with bounds: a panel for each draft distribution."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from mdsd.studies.grid.folder import Study
from mdsd.studies.grid.plots.slices import (
    FILTERS,
    NUM_DRAFTS,
    Axis,
    ModelGroup,
    by_draft,
    pinned,
    set_title,
    values,
)
from mdsd.studies.panels import (
    ACCEPTANCE,
    acceptance_limits,
    draw_acceptance,
    has_numbers,
    legend,
    panel_grid,
    stable_names,
)
from mdsd.studies.study_rows import StudyRow
from mdsd.studies.terminal import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TICKS = 9
_MOST_LEVEL = 4
"""Filters that are written side by side; of more each is written upwards."""


def curves_figure(study: Study, group: ModelGroup, axis: Axis) -> Figure | None:
    """Draw acceptance along an axis, and its bound.

    Parameters
    ----------
    study : Study
    group : ModelGroup
    axis : Axis

    Returns
    -------
    matplotlib.figure.Figure or None
        None if the axis has a single value with numbers.
    """
    rows, words = pinned(group.rows, axis)
    known = values(axis, rows)
    if len(known) < 2:
        return None
    panels = by_draft(rows)
    names = stable_names(row.verifier for row in study.rows)
    places = _places(axis, known)
    width = 5.4 if len(panels) == 1 else 3.4
    figure, axes = panel_grid(len(panels), width=width, height=3.8 if axis is FILTERS else 3.0)
    for area, (draft, own) in zip(axes, panels.items(), strict=True):
        area.set_title(_panel_title(draft, own, study), fontsize=9)
        draw_acceptance(
            area,
            own,
            lambda row: places[known.index(axis.of(row))],
            places,
            names,
            joined=axis is not FILTERS,
        )
        _set_ticks(area, axis, known, places)
    axes[0].set_ylim(*acceptance_limits(rows))
    figure.supxlabel(axis.label, fontsize=9)
    figure.supylabel(ACCEPTANCE, fontsize=9)
    set_title(figure, study, f"Acceptance against {axis.name}", group, words, margin=1.3)
    legend(figure, axes, ["bound", *names])
    return figure


def _places(axis: Axis, known: Sequence[Any]) -> list[float]:
    """Place values: numbers where they are, filters side by side."""
    if axis is FILTERS:
        return [float(place) for place in range(len(known))]
    return [float(value) for value in known]


def _set_ticks(area: Axes, axis: Axis, known: Sequence[Any], places: Sequence[float]) -> None:
    gap = min(b - a for a, b in pairwise(places))
    if axis is FILTERS and len(known) <= _MOST_LEVEL:
        area.set_xticks(places, [axis.words(value).replace(", ", "\n") for value in known])
    elif axis is FILTERS:
        area.set_xticks(places, map(axis.words, known), rotation=90, fontsize=8)
    elif gap * _MOST_TICKS >= places[-1] - places[0]:
        area.set_xticks(places, [f"{value:g}" for value in known])
    else:
        from matplotlib.ticker import MaxNLocator

        whole = axis is NUM_DRAFTS
        area.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS, steps=[1, 2, 5, 10], integer=whole))


def _panel_title(draft: str, rows: Sequence[StudyRow], study: Study) -> str:
    """Name the draft distribution, and the positions where n tokens cannot be drafted at all."""
    counts = [row.positions for row in rows if has_numbers(row)]
    least, most = min(counts), max(counts)
    if least == study.plan["settings"]["positions"]:
        return draft
    span = "" if least == most else f"{least:,} to "
    return f"{draft}\n({span}{counted(most, 'position')})"
