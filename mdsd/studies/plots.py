"""Figures of a study. Matplotlib is imported when one is drawn, without its global state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from mdsd.studies.study_rows import BoundRow, CompareRow, StudiedRow, StudyRow
from mdsd.studies.terminal import titled_groups
from mdsd.verifiers import verifier_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with all kinds of colour vision; black is the bound's.
# Verifiers take them in the order of the registry: the pale one falls to the one rarely drawn.
_COLOURS = ("#F0E442", "#56B4E9", "#009E73", "#0072B2", "#E69F00", "#CC79A7", "#999999", "#D55E00")
_BOX_COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#F0E442", "#D55E00", "#999999")
MARKERS = "os^Dv<>Pp*hX"
STYLE: Any = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9.0}
_PANEL_WIDTH, _PANEL_HEIGHT, _MOST_COLUMNS = 3.4, 2.7, 3
_LEGEND_WIDTH = 1.4


def compare_figure(rows: Sequence[CompareRow]) -> Figure:
    """Draw acceptance against the number of drafts, one panel for each draft distribution.

    Parameters
    ----------
    rows : sequence of CompareRow
        Numbers that are None are left out.

    Returns
    -------
    matplotlib.figure.Figure
    """
    import matplotlib as mpl

    panels = [
        (_panel_title(draft, title), [row for row in group if row.draft == draft])
        for title, group in titled_groups(rows)
        for draft in dict.fromkeys(row.draft for row in group)
    ]
    # A panel without a number says nothing, unless it is the only one.
    panels = [(title, panel) for title, panel in panels if any(map(has_numbers, panel))] or panels[
        :1
    ]
    names = stable_names(row.verifier for row in rows)
    with mpl.rc_context(STYLE):
        figure, axes = panel_grid(len(panels))
        for axis, (title, panel) in zip(axes, panels, strict=True):
            axis.set_title(title, fontsize=9)
            _draw_verifiers(axis, panel, names)
            counts = sorted({row.num_drafts for row in rows})
            axis.set_xticks(counts)
            axis.set_xlim(counts[0] - 0.5, counts[-1] + 0.5)
            axis.set_ylim(0.0, 1.03)
        figure.supxlabel("number of draft tokens n", fontsize=9)
        figure.supylabel("acceptance probability per step, mean over positions ± s.e.", fontsize=9)
        _set_title(figure, "Acceptance of verifiers", rows)
        legend(figure, axes, ["bound", *names])
    return figure


def bound_figure(rows: Sequence[BoundRow]) -> Figure:
    """Draw how acceptance bounds spread over positions, one panel for each draft model.

    Parameters
    ----------
    rows : sequence of BoundRow
        Rows without values are left out.

    Returns
    -------
    matplotlib.figure.Figure
    """
    import matplotlib as mpl

    counts = sorted({row.num_drafts for row in rows})
    panels = [(title, [row for row in group if row.values]) for title, group in titled_groups(rows)]
    panels = [(title, panel) for title, panel in panels if panel] or [(panels[0][0], [])]
    with mpl.rc_context(STYLE):
        figure, axes = panel_grid(len(panels), width=7.6, height=3.6, most_columns=1)
        for axis, (title, panel) in zip(axes, panels, strict=True):
            axis.set_title(title, fontsize=9)
            _draw_boxes(axis, panel, counts)
            axis.set_ylim(0.0, 1.03)
        figure.supylabel("bound of the acceptance probability per step", fontsize=9)
        figure.supxlabel(
            "over positions: box from 25% to 75%, whiskers to 10% and 90%, line median, cross mean",
            fontsize=9,
        )
        _set_title(figure, "Acceptance bounds", rows)
        legend(figure, axes, [f"n = {n}" for n in counts])
    return figure


def _set_title(figure: Figure, what: str, rows: Sequence[StudiedRow]) -> None:
    """Say what is drawn, and of what; panels name models and filters."""
    of = f"{rows[0].data}, seed {rows[0].seed}"
    figure.suptitle(f"{what}\n{fill(of, int(figure.get_size_inches()[0] * 12))}", fontsize=9)


def has_numbers(row: CompareRow | StudyRow) -> bool:
    """Tell whether there is anything to draw of a row."""
    return row.acceptance is not None or row.bound is not None


def _panel_title(draft: str, group: str) -> str:
    lines = fill(group.replace("temperature ", "temperature\N{NO-BREAK SPACE}"), 40)
    return lines if group.startswith(draft) else f"{draft}\n{lines}"


def stable_names(used: Iterable[str]) -> list[str]:
    """List verifiers, those of the registry first: a verifier has one place in all figures."""
    known = verifier_names()
    return [*known, *sorted(set(used) - set(known))]


def verifier_look(place: int) -> dict[str, Any]:
    """Give the look of the verifier at a place of `stable_names`."""
    return {"color": _COLOURS[place % len(_COLOURS)], "marker": MARKERS[place % len(MARKERS)]}


def panel_grid(
    panels: int,
    *,
    width: float = _PANEL_WIDTH,
    height: float = _PANEL_HEIGHT,
    most_columns: int = _MOST_COLUMNS,
    margin: float = _LEGEND_WIDTH,
) -> tuple[Figure, list[Axes]]:
    """Make a figure of equal panels, line by line, with a margin on the right for a legend."""
    from matplotlib.figure import Figure

    lines = math.ceil(panels / most_columns)
    columns = math.ceil(panels / lines)
    size = (columns * width + margin, lines * height + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharey=True).ravel()
    for axis in grid[panels:]:
        axis.remove()
    return figure, list(grid[:panels])


def _draw_verifiers(axis: Axes, rows: Sequence[CompareRow], names: Sequence[str]) -> None:
    axis.grid(axis="y", color="0.9")
    axis.set_axisbelow(True)
    counts = sorted({row.num_drafts for row in rows})
    bounds = {row.num_drafts: row.bound for row in rows if row.bound is not None}
    if bounds:
        xs, ys = list(bounds), list(bounds.values())
        # A single number of drafts has no line: the bound is then a dash as wide as its markers.
        ends = (xs, ys) if len(xs) > 1 else ([xs[0] - 0.3, xs[0] + 0.3], ys * 2)
        axis.plot(*ends, color="black", linestyle="--", linewidth=1.2, label="bound", zorder=3)
    here = [name for name in names if any(row.verifier == name for row in rows)]
    for place, name in enumerate(here):
        # Side by side, because optimal verifiers would hide each other.
        shift = 0.09 * (place - (len(here) - 1) / 2)
        found = {row.num_drafts: row for row in rows if row.verifier == name}
        points = [
            (n + shift, found[n].acceptance or 0.0, found[n].stderr or 0.0)
            for n in counts
            if n in found and found[n].acceptance is not None
        ]
        if not points:
            continue
        axis.errorbar(
            [x for x, _, _ in points],
            [acceptance for _, acceptance, _ in points],
            [stderr for _, _, stderr in points],
            label=name,
            **verifier_look(names.index(name)),
            markersize=4.5,
            linewidth=1.0,
            capsize=2.0,
        )
    if not axis.has_data():
        _say_nothing(axis)


def _draw_boxes(axis: Axes, rows: Sequence[BoundRow], counts: Sequence[int]) -> None:
    axis.grid(axis="y", color="0.9")
    axis.set_axisbelow(True)
    drafts = list(dict.fromkeys(row.draft for row in rows))
    width = 0.8 / len(counts)
    for place, n in enumerate(counts):
        drawn = [row for row in rows if row.num_drafts == n]
        if not drawn:
            continue
        # Without gaps: a draft distribution that has one n only shows it in the middle.
        centres = []
        for row in drawn:
            own = [
                m for m in counts if any(r.draft == row.draft and r.num_drafts == m for r in rows)
            ]
            centres.append(drafts.index(row.draft) + width * (own.index(n) - (len(own) - 1) / 2))
        colour = _BOX_COLOURS[place % len(_BOX_COLOURS)]
        boxes = axis.boxplot(
            [row.values for row in drawn],
            positions=centres,
            widths=0.8 * width,
            whis=(10, 90),
            showfliers=False,
            showmeans=True,
            patch_artist=True,
            medianprops={"color": "black"},
            meanprops={"marker": "x", "markeredgecolor": "black", "markersize": 4},
        )
        for box in boxes["boxes"]:
            box.set_facecolor(colour)
        boxes["boxes"][0].set_label(f"n = {n}")
    axis.set_xticks(range(len(drafts)), drafts)
    if drafts:
        axis.set_xlim(-0.6, len(drafts) - 0.4)
    else:
        _say_nothing(axis)


def _say_nothing(axis: Axes) -> None:
    axis.text(0.5, 0.5, "not computed", ha="center", transform=axis.transAxes, color="0.4")


def legend(figure: Figure, axes: Sequence[Axes], order: Sequence[str], **place: Any) -> None:
    """Explain everything drawn once, beside the panels unless another place is given."""
    entries: dict[str, Any] = {}
    for axis in axes:
        found, labels = axis.get_legend_handles_labels()
        entries = dict(zip(labels, found, strict=True)) | entries
    drawn = [label for label in order if label in entries]
    if drawn:
        handles = [entries[label] for label in drawn]
        figure.legend(handles, drawn, frameon=False, **{"loc": "outside right upper", **place})
