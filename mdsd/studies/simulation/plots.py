"""Figures of a simulation: counted points, with error bars, over the lines of theory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd.studies.panels import MARKERS, STYLE, shades
from mdsd.studies.simulation.runs import Simulation
from mdsd.studies.simulation.simulation_rows import BiasRow, RejectionsRow, SavedRow
from mdsd.studies.simulation.simulation_settings import SimulationSettings
from mdsd.studies.simulation.simulation_table import chain_name, sequences
from mdsd.studies.study_rows import Row
from mdsd.studies.terminal import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ERROR_BARS = 3
"""Standard errors that a bar is long to either side."""

_POINTS: Any = {"linestyle": "none", "markersize": 4.0, "capsize": 2.5}
_MOST_CURVES, _MOST_POINTS = 4, 10

# Blue and vermilion of Okabe and Ito, told apart with all kinds of colour vision.
_RULES = {
    "optimal": ("#0072B2", "o", "Decoding-OPT: redraw from (p \N{MINUS SIGN} bq)+"),
    "target": ("#D55E00", "s", "Decoding-UNO: redraw from the target p"),
}
_TITLES = {"position": "one position", "chain": "along the chain"}


def simulation_figures(found: Simulation, settings: SimulationSettings) -> Mapping[str, Figure]:
    """Draw the three figures of a simulation.

    Parameters
    ----------
    found : Simulation
    settings : SimulationSettings

    Returns
    -------
    dict of (str, matplotlib.figure.Figure)
        By the names of the tables that they show.
    """
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        return {
            "rejections": _rejections_figure(found.rejections, settings),
            "batch_improvement": _saved_figure(found.batch_improvement, settings),
            "pareto_front": _front_figure(found.pareto_front, settings),
        }


def _rejections_figure(rows: Sequence[RejectionsRow], settings: SimulationSettings) -> Figure:
    from matplotlib.ticker import MaxNLocator

    figure, (axis, below) = _panels(
        "Rejections of speculative decoding", settings, (2, 1), (5.6, 5.4), [3.0, 1.0]
    )
    below.axhline(0.0, color="black", linewidth=0.8)
    sizes = _curves(settings.batch_sizes)
    horizons = _horizons(settings.horizon)
    width = settings.horizon / len(horizons)
    for place, (size, colour) in enumerate(zip(sizes, shades(len(sizes)), strict=True)):
        mine = [row for row in rows if row.batch_size == size]
        axis.plot(_column(mine, "horizon"), _column(mine, "theory"), color=colour)
        shown = [row for row in mine if row.horizon in horizons]
        look = {"yerr": _bars(shown), "color": colour, "marker": MARKERS[place], **_POINTS}
        xs = _column(shown, "horizon")
        axis.errorbar(xs, _column(shown, "simulation"), label=sequences(size), **look)
        # Side by side, because they would hide each other.
        shift = 0.15 * width * (place - (len(sizes) - 1) / 2)
        differences = [row.simulation - row.theory for row in shown]
        below.errorbar([x + shift for x in xs], differences, **look)
    for either in (axis, below):
        either.set_xlim(0.0, 1.05 * settings.horizon)
        either.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True))
    axis.tick_params(labelbottom=False)
    axis.set_ylabel("rejections up to T")
    axis.set_ylim(bottom=0.0)
    axis.legend(frameon=False, loc="upper left")
    below.set_ylabel("simulation\n\N{MINUS SIGN} theory")
    below.set_xlabel("horizon T (tokens decoded)")
    return figure


def _saved_figure(rows: Sequence[SavedRow], settings: SimulationSettings) -> Figure:
    figure, (axis,) = _panels("What a batch of draft sequences saves", settings)
    dashed: Any = {"color": "black", "linestyle": "--", "linewidth": 1.2}
    axis.axhline(rows[0].limit, label="limit of a growing batch", **dashed)
    colour = _RULES["optimal"][0]
    theory = _column(rows, "batch_size"), _column(rows, "theory")
    axis.plot(*theory, color=colour, label="theory")
    simulated = [row for row in rows if row.simulation is not None]
    points = _column(simulated, "batch_size"), _column(simulated, "simulation")
    look = {"color": colour, "marker": "o", "label": "simulation", **_POINTS}
    axis.errorbar(*points, _bars(simulated), **look)
    axis.set_xscale("log", base=2)
    axis.set_xticks(_powers_of_two(max(settings.batch_sizes)))
    axis.xaxis.set_major_formatter(lambda size, _: f"{size:g}")
    axis.minorticks_off()
    axis.set_xlabel("batch size M (draft sequences of a round)")
    axis.set_ylabel(f"rejections saved in {counted(settings.horizon, 'token')}")
    figure.legend(loc="outside lower center", frameon=False, ncols=3)
    return figure


def _front_figure(rows: Sequence[BiasRow], settings: SimulationSettings) -> Figure:
    figure, axes = _panels("What bias buys", settings, (1, len(_TITLES)), (7.6, 4.2))
    for axis, (scope, title) in zip(axes, _TITLES.items(), strict=True):
        axis.set_title(title, fontsize=9)
        for redraw, (colour, marker, label) in _RULES.items():
            mine = [row for row in rows if (row.scope, row.redraw) == (scope, redraw)]
            down = [row for row in mine if row.quantity == "rejections"]
            across = [row for row in mine if row.quantity == "total_variation"]
            axis.plot(_column(across, "theory"), _column(down, "theory"), color=colour)
            xs, ys = ([r for r in line if r.simulation is not None] for line in (across, down))
            points = _column(xs, "simulation"), _column(ys, "simulation")
            look = {"color": colour, "marker": marker, "label": label, **_POINTS}
            axis.errorbar(*points, _bars(ys), _bars(xs), **look)
        # Points on the axes are shown whole.
        axis.set_xlim(left=-0.03 * axis.get_xlim()[1])
        axis.set_ylim(bottom=-0.03 * axis.get_ylim()[1])
    axes[0].set_xlabel("total variation from the target")
    axes[0].set_ylabel("probability of a rejection")
    axes[1].set_xlabel(f"total variation, {counted(settings.horizon, 'position')} added up")
    axes[1].set_ylabel(f"rejections in {counted(settings.horizon, 'token')}")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", frameon=False, ncols=2)
    return figure


def _panels(
    title: str,
    settings: SimulationSettings,
    grid: tuple[int, int] = (1, 1),
    size: tuple[float, float] = (5.6, 4.0),
    heights: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    runs = counted(settings.runs, "run")
    figure.suptitle(
        f"{title}\n{chain_name(settings)}, seed {settings.seed}\n"
        f"lines: theory; points: {runs} \N{PLUS-MINUS SIGN} {_ERROR_BARS} s.e.",
        fontsize=9,
    )
    axes = list(figure.subplots(*grid, squeeze=False, height_ratios=heights).ravel())
    for axis in axes:
        axis.grid(color="0.9")
        axis.set_axisbelow(True)
    return figure, axes


def _column(rows: Iterable[Row], name: str) -> list[Any]:
    return [getattr(row, name) for row in rows]


def _bars(rows: Iterable[Row]) -> list[float]:
    return [_ERROR_BARS * stderr for stderr in _column(rows, "stderr")]


def _curves(batch_sizes: Sequence[int]) -> list[int]:
    """Batch sizes whose rejections are drawn: the first, the last, and of many few between."""
    places = np.linspace(0, len(batch_sizes) - 1, min(len(batch_sizes), _MOST_CURVES))
    return [batch_sizes[round(place)] for place in places]


def _horizons(horizon: int) -> list[int]:
    """Horizons at which points are drawn: the last, and of many few before."""
    count = min(horizon, _MOST_POINTS)
    return [round(horizon * (k + 1) / count) for k in range(count)]


def _powers_of_two(largest: int) -> list[int]:
    """Give ticks for batch sizes."""
    powers = [1 << k for k in range(largest.bit_length())]
    return powers if len(powers) < 9 else powers[::2]
