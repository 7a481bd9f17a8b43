"""Heat maps over temperature and number of drafts, with the numbers in the cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd._typing import FloatArray
from mdsd.studies.grid.folder import Study
from mdsd.studies.grid.plots.scatter import MOST_PANELS, WITHOUT, losing_pairs
from mdsd.studies.grid.plots.slices import (
    NUM_DRAFTS,
    TEMPERATURE,
    ModelGroup,
    by_draft,
    pinned,
    set_title,
    values,
)
from mdsd.studies.panels import panel_grid
from mdsd.studies.study_rows import StudyRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

_MOST_VALUES = 12
"""Along one axis: of more, some are left out."""

_CELL_WIDTH, _CELL_HEIGHT = 0.4, 0.3
_MOST_WIDTH = 11.0
_DARK = 0.18
"""Luminance on which black and white have the same contrast."""


def acceptance_heat_map(study: Study, group: ModelGroup) -> Figure | None:
    """Draw the acceptance of the best verifier of each draft distribution.

    Parameters
    ----------
    study : Study
    group : ModelGroup

    Returns
    -------
    matplotlib.figure.Figure or None
        None unless there are several temperatures and several n.
    """
    return _figure(
        study,
        group,
        lambda rows: [(draft, _best_verifier(own)) for draft, own in by_draft(rows).items()],
        "the best verifier of each draft distribution",
        what="Acceptance over temperature and n",
        label="acceptance probability\nper step",
        number=lambda row: row.acceptance,
        form=".3f",
        colours="cividis",
        power=1.0,
    )


def loss_heat_map(study: Study, group: ModelGroup) -> Figure | None:
    """Draw what verifiers stay below the bound of their draft distribution.

    Parameters
    ----------
    study : Study
    group : ModelGroup

    Returns
    -------
    matplotlib.figure.Figure or None
        None unless there are several temperatures and several n, and verifiers below their bounds.
    """
    return _figure(
        study,
        group,
        lambda rows: losing_pairs(rows)[:MOST_PANELS],
        WITHOUT,
        what="Acceptance lost to the verifier over temperature and n",
        label="bound minus acceptance\n(points)",
        number=lambda row: (
            None if row.lost_to_verifier is None else max(0.0, 100 * row.lost_to_verifier)
        ),
        form=".2f",
        colours="cividis_r",
        power=0.5,  # a few points are as interesting as many
    )


def _best_verifier(rows: Sequence[StudyRow]) -> str:
    """Choose the verifier with most numbers, and of these the one with the largest ones."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row.verifier, [])
        if row.acceptance is not None:
            found[row.verifier].append(row.acceptance)
    return max(found, key=lambda name: (len(found[name]), round(math.fsum(found[name]), 9)))


def _figure(
    study: Study,
    group: ModelGroup,
    choose: Callable[[list[StudyRow]], list[tuple[str, str]]],
    remark: str,
    *,
    what: str,
    label: str,
    number: Callable[[StudyRow], float | None],
    form: str,
    colours: str,
    power: float,
) -> Figure | None:
    import matplotlib as mpl
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    rows, words = pinned(group.rows, TEMPERATURE, NUM_DRAFTS)
    panels = {}
    for draft, verifier in choose(rows):
        own = [row for row in rows if (row.draft, row.verifier) == (draft, verifier)]
        if min(len(values(axis, own)) for axis in (TEMPERATURE, NUM_DRAFTS)) > 1:
            panels[f"{draft}\n{fill(verifier, 24)}"] = own
    if not panels:
        return None
    drawn = [row for own in panels.values() for row in own]
    temperatures, temperatures_said = _thinned(values(TEMPERATURE, drawn), "temperatures")
    counts, counts_said = _thinned(values(NUM_DRAFTS, drawn), "n")
    tables = [_table(own, temperatures, counts, number) for own in panels.values()]
    finite = np.concatenate([table[np.isfinite(table)] for table in tables])
    scale = PowerNorm(power, float(finite.min()), float(finite.max()))
    paint = ScalarMappable(scale, mpl.colormaps[colours].with_extremes(bad="0.93"))
    width = max(_CELL_WIDTH * len(temperatures) + 0.45, 2.4, 4.6 / len(panels))
    figure, axes = panel_grid(
        len(panels),
        width=width,
        height=max(_CELL_HEIGHT * len(counts) + 0.75, 2.2),
        most_columns=max(1, int(_MOST_WIDTH // width)),
    )
    for axis, name, table in zip(axes, panels, tables, strict=True):
        axis.set_title(name, fontsize=9)
        axis.imshow(
            np.ma.masked_invalid(table),
            cmap=paint.cmap,
            norm=scale,
            aspect="auto",
            interpolation="nearest",
            origin="lower",
        )
        _write_numbers(axis, table, form, paint)
        axis.set_xticks(range(len(temperatures)), [f"{each:g}" for each in temperatures])
        axis.set_yticks(range(len(counts)), [f"{n}" for n in counts])
        axis.tick_params(length=0, labelsize=8)
        axis.spines[:].set_visible(False)
        axis.set_xticks(np.arange(len(temperatures) - 1) + 0.5, minor=True)
        axis.set_yticks(np.arange(len(counts) - 1) + 0.5, minor=True)
        axis.grid(which="minor", color="white", linewidth=0.8)
        axis.tick_params(which="minor", length=0)
    figure.supxlabel(TEMPERATURE.label, fontsize=9)
    figure.supylabel(NUM_DRAFTS.label, fontsize=9)
    height = figure.get_size_inches()[1]
    bar = figure.colorbar(paint, ax=axes, label=label, shrink=0.9, aspect=5.0 * height)
    bar.outline.set_visible(False)
    set_title(figure, study, what, group, [*words, remark, *temperatures_said, *counts_said])
    return figure


def _thinned(known: list[Any], plural: str) -> tuple[list[Any], list[str]]:
    """Keep as many values as fit, the first and the last among them, and say so."""
    if len(known) <= _MOST_VALUES:
        return known, []
    chosen = np.linspace(0, len(known) - 1, _MOST_VALUES).round().astype(int)
    return [known[place] for place in chosen], [f"{_MOST_VALUES} of {len(known)} {plural}"]


def _table(
    rows: Sequence[StudyRow],
    temperatures: Sequence[float],
    counts: Sequence[int],
    number: Callable[[StudyRow], float | None],
) -> FloatArray:
    """Arrange numbers by n and temperature, NaN where there is none."""
    table = np.full((len(counts), len(temperatures)), np.nan)
    for row in rows:
        found = number(row)
        if found is not None and row.temperature in temperatures and row.num_drafts in counts:
            table[counts.index(row.num_drafts), temperatures.index(row.temperature)] = found
    return table


def _write_numbers(axis: Axes, table: FloatArray, form: str, paint: ScalarMappable) -> None:
    colours = np.asarray(paint.to_rgba(table))
    # Relative luminance, close enough to choose what is written on it.
    light = colours[..., :3] ** 2.2 @ (0.2126, 0.7152, 0.0722)
    for (line, column), value in np.ndenumerate(table):
        known = math.isfinite(value)
        axis.text(
            column,
            line,
            format(value, form) if known else "\N{EN DASH}",
            ha="center",
            va="center",
            fontsize=7.5,
            color="white" if known and light[line, column] < _DARK else "black",
        )
