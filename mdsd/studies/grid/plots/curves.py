"""Acceptance along one axis of the grid, with bounds: a panel for each draft distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from textwrap import fill
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
from mdsd.studies.plots import has_numbers, legend, panel_grid, stable_names, verifier_look
from mdsd.studies.study_rows import StudyRow
from mdsd.studies.terminal import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TICKS = 9
_MOST_LEVEL = 4
"""Filters that are written side by side; of more each is written upwards."""

_LABEL_WIDTH = 18


def curves_figure(study: Study, group: ModelGroup, axis: Axis) -> Figure | None:
    """Draw acceptance along an axis: a line for each verifier, and the bound dashed.

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
    margin = 0.06 * (places[-1] - places[0])
    width = 5.4 if len(panels) == 1 else 3.4
    figure, axes = panel_grid(len(panels), width=width, height=3.8 if axis is FILTERS else 3.0)
    for area, (draft, own) in zip(axes, panels.items(), strict=True):
        area.set_title(_panel_title(draft, own, study), fontsize=9)
        line = "none" if axis is FILTERS else "-"
        _draw(area, own, lambda row: places[known.index(axis.of(row))], names, line)
        area.set_xlim(places[0] - margin, places[-1] + margin)
        _set_ticks(area, axis, known, places)
    axes[0].set_ylim(*_limits(rows))
    figure.supxlabel(axis.label, fontsize=9)
    figure.supylabel("acceptance probability per step\n(mean over positions ± s.e.)", fontsize=9)
    set_title(figure, study, f"Acceptance against {axis.name}", group, words, margin=1.3)
    legend(figure, axes, ["bound", *(fill(name, _LABEL_WIDTH) for name in names)])
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


def _draw(
    area: Axes,
    rows: Sequence[StudyRow],
    place: Callable[[StudyRow], float],
    names: Sequence[str],
    line: str,
) -> None:
    area.grid(axis="y", color="0.9")
    area.set_axisbelow(True)
    here = [name for name in names if any(row.verifier == name for row in rows)]
    for number, name in enumerate(here):
        found = sorted((row for row in rows if row.verifier == name), key=place)
        # From large to small: markers of verifiers that attain the same lie inside one another.
        # Where there is no number there is a gap: a line across it would claim one.
        size = 3.5 + min(1.1 * (len(here) - 1 - number), 5.5)
        area.errorbar(
            [place(row) for row in found],
            [_number(row.acceptance) for row in found],
            [row.stderr or 0.0 for row in found],
            label=fill(name, _LABEL_WIDTH),
            **verifier_look(names.index(name)),
            markersize=size,
            linestyle=line,
            linewidth=1.2,
            elinewidth=0.7,
            capsize=1.5,
        )
    bounds = {place(row): row.bound for row in rows if row.bound is not None}
    look: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.2}
    if line == "none" or len(bounds) == 1:
        look = {"color": "black", "linestyle": "none", "marker": "_", "markersize": 14}
    xs = sorted(bounds)
    area.plot(xs, [bounds[x] for x in xs], label="bound", zorder=4, **look)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _limits(rows: Sequence[StudyRow]) -> tuple[float, float]:
    """Give the ends of the axis of acceptance: all that is drawn, to the next twentieth."""
    drawn = [row for row in rows if row.acceptance is not None]
    lows = [(row.acceptance or 0.0) - (row.stderr or 0.0) for row in drawn]
    highs = [(row.acceptance or 0.0) + (row.stderr or 0.0) for row in drawn]
    bounds = [row.bound for row in rows if row.bound is not None]
    low = math.floor(20 * min([*lows, *bounds]) - 0.2) / 20
    high = math.ceil(20 * max([*highs, *bounds]) + 0.2) / 20
    return max(low, -0.02), min(high, 1.02)
