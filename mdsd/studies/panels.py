"""What figures of studies are made of. Matplotlib is imported when one is drawn, without its state.

Acceptance is drawn the same way against the number of drafts, the temperature or the filter: where
there are few values, what is drawn at one of them stands side by side, the bound at the end of them
and as a line above them all; where there are many, it is joined by lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from textwrap import fill, wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd.studies.fitting import NO_BREAK
from mdsd.studies.study_rows import CompareRow, StudyRow
from mdsd.verifiers import verifier_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Attained = Sequence[CompareRow] | Sequence[StudyRow]

# Okabe and Ito's colours, told apart with all kinds of colour vision; black is the bound's.
# Verifiers take them in the order of the registry: the pale one falls to the one rarely drawn.
_COLOURS = ("#F0E442", "#56B4E9", "#009E73", "#0072B2", "#E69F00", "#CC79A7", "#999999", "#D55E00")
MARKERS = "os^Dv<>Pp*hX"
STYLE: Any = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9.0}
PANEL_WIDTH, PANEL_HEIGHT, _MOST_COLUMNS = 3.4, 2.7, 3
_LEGEND_WIDTH = 1.4
_LABEL_WIDTH = 18
_SHORT_NAME = 48
LETTERS_PER_INCH = 12.5
"""Of titles: what fits with a font of 9 points."""

_MOST_DODGED, _DODGED = 4, 0.66
"""Most values that things stand side by side at, and the part of the gap between two they take."""

ACCEPTANCE = "acceptance probability per step\n(mean over positions ± s.e.)"
"""Label of the axis of what `draw_acceptance` draws."""


def has_numbers(row: CompareRow | StudyRow) -> bool:
    """Tell whether there is anything to draw of a row."""
    return row.acceptance is not None or row.bound is not None


def stable_names(used: Iterable[str]) -> list[str]:
    """List verifiers, those of the registry first: a verifier has one place in all figures."""
    known = verifier_names()
    return [*known, *sorted(set(used) - set(known))]


def verifier_look(place: int) -> dict[str, Any]:
    """Give the look of the verifier at a place of `stable_names`."""
    return {"color": _COLOURS[place % len(_COLOURS)], "marker": MARKERS[place % len(MARKERS)]}


def shades(count: int, darkest: float = 0.0, lightest: float = 0.85) -> list[Any]:
    """Give colours from dark blue to yellow, rising in lightness for every kind of vision."""
    import matplotlib as mpl

    return list(mpl.colormaps["cividis"](np.linspace(darkest, lightest, count)))


def panel_grid(
    panels: int,
    *,
    width: float = PANEL_WIDTH,
    height: float = PANEL_HEIGHT,
    most_columns: int = _MOST_COLUMNS,
    margin: float = _LEGEND_WIDTH,
) -> tuple[Figure, list[Axes]]:
    """Make a figure of equal panels, line by line, with a margin on the right for a legend."""
    lines = math.ceil(panels / most_columns)
    columns = math.ceil(panels / lines)
    figure, grid = uneven_grid(lines, [width] * columns, height, margin)
    axes = [axis for line in grid for axis in line]
    for axis in axes[panels:]:
        axis.remove()
    return figure, axes[:panels]


def uneven_grid(
    lines: int, widths: Sequence[float], height: float, margin: float = _LEGEND_WIDTH
) -> tuple[Figure, list[list[Axes]]]:
    """Make a figure as `panel_grid` does, of columns of these widths; give its panels by line."""
    from matplotlib.figure import Figure

    size = (sum(widths) + margin, lines * height + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(
        lines, len(widths), squeeze=False, sharey=True, width_ratios=list(widths)
    )
    return figure, [list(line) for line in grid]


def draw_acceptance(
    area: Axes,
    rows: Attained,
    place: Callable[[Any], float],
    known: Sequence[float],
    names: Sequence[str],
    joined: bool = True,
) -> None:
    """Draw what verifiers attain at some places of an axis, and the bound.

    Parameters
    ----------
    area : matplotlib.axes.Axes
    rows : sequence of CompareRow or StudyRow
        Numbers that are None are left out.
    place : callable
        Gives the place of a row.
    known : sequence of float
        All places of the axis, in order.
    names : sequence of str
        All verifiers of the figure, as `stable_names` gives them.
    joined : bool, default True
        Whether lines between the places mean anything.
    """
    gap = min((b - a for a, b in pairwise(known)), default=1.0)
    spread = _DODGED * gap if len(known) <= _MOST_DODGED else 0.0
    margin = max(0.06 * (known[-1] - known[0]), 0.7 * spread)
    area.set_xlim(known[0] - margin, known[-1] + margin)
    area.grid(axis="y", color="0.9")
    area.set_axisbelow(True)
    drawn = {row.verifier for row in rows if row.acceptance is not None}
    here = [name for name in names if name in drawn]
    shifts = [spread * ((slot + 0.5) / (len(here) + 1) - 0.5) for slot in range(len(here) + 1)]
    for number, (name, shift) in enumerate(zip(here, shifts, strict=False)):
        found = sorted((row for row in rows if row.verifier == name), key=place)
        # Where nothing stands side by side, markers of verifiers that attain the same lie inside
        # one another. Where there is no number there is a gap: a line across would claim one.
        nested = 3.5 + min(1.1 * (len(here) - 1 - number), 5.5)
        look = verifier_look(names.index(name))
        xs = [place(row) + shift for row in found]
        area.errorbar(
            xs,
            [_number(row.acceptance) for row in found],
            [row.stderr or 0.0 for row in found],
            label=name,
            **look,
            markersize=4.5 if spread else nested,
            linestyle="-" if joined and not spread else "none",
            linewidth=1.2,
            elinewidth=0.9,
            capsize=1.5,
        )
    _draw_bound(area, {place(row): row for row in rows}, spread, shifts[-1], joined)
    if not drawn and all(row.bound is None for row in rows):
        say_nothing(area)


def _draw_bound(
    area: Axes, rows: dict[float, Any], spread: float, shift: float, joined: bool
) -> None:
    """Draw the bound: dashed, level above all that stands side by side, with its error there."""
    xs = [x for x in sorted(rows) if rows[x].bound is not None]
    if not xs:
        return
    bounds = [rows[x].bound for x in xs]
    look: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.2, "zorder": 4}
    if spread:  # below the markers, which lie on it where a verifier is optimal
        ends = [end for x in xs for end in (x - spread / 2, x + spread / 2, math.nan)]
        levels = [level for bound in bounds for level in (bound, bound, math.nan)]
        area.plot(ends, levels, label="bound", **look | {"linestyle": "-", "zorder": 1.5})
        errors = [rows[x].bound_stderr or 0.0 for x in xs]
        bars: dict[str, Any] = {"ecolor": "black", "elinewidth": 0.9, "capsize": 1.5}
        area.errorbar([x + shift for x in xs], bounds, errors, fmt="none", **bars)
        return
    if not joined or len(xs) == 1:
        look |= {"linestyle": "none", "marker": "_", "markersize": 14}
    area.plot(xs, bounds, label="bound", **look)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def acceptance_limits(rows: Attained) -> tuple[float, float]:
    """Give the ends of the axis of acceptance: all that is drawn, to the next twentieth."""
    means = [(row.acceptance, row.stderr) for row in rows]
    means += [(row.bound, row.bound_stderr) for row in rows]
    known = [(mean, stderr or 0.0) for mean, stderr in means if mean is not None]
    low = math.floor(20 * min((mean - stderr for mean, stderr in known), default=0.0) - 0.2) / 20
    high = math.ceil(20 * max((mean + stderr for mean, stderr in known), default=1.0) + 0.2) / 20
    return max(low, -0.02), min(high, 1.02)


def say_nothing(area: Axes) -> None:
    """Say in a panel that there is no number."""
    area.text(0.5, 0.5, "not computed", ha="center", transform=area.transAxes, color="0.4")


def legend(
    figure: Figure,
    axes: Sequence[Axes],
    order: Sequence[str],
    letters: int = _LABEL_WIDTH,
    **place: Any,
) -> None:
    """Explain everything drawn once, beside the panels unless another place is given."""
    entries: dict[str, Any] = {}
    for axis in axes:
        found, labels = axis.get_legend_handles_labels()
        entries = dict(zip(labels, found, strict=True)) | entries
    drawn = [label for label in order if label in entries]
    if drawn:
        handles = [entries[label] for label in drawn]
        words = [fill(label, letters) for label in drawn]
        figure.legend(handles, words, frameon=False, **{"loc": "outside right upper", **place})


def write_title(figure: Figure, what: str, parts: Sequence[str], margin: float = 0.2) -> None:
    """Write the title of a figure, its lines of about the same length.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        It grows by the lines that the title takes more than two.
    what : str
        What is shown.
    parts : sequence of str
        Of what: lines end between them, unless one is long.
    margin : float, default 0.2
        Inches on either side that stay free.
    """
    width, height = figure.get_size_inches()
    wide = int((width - 2.0 * margin) * LETTERS_PER_INCH)
    whole = ", ".join(p if len(p) > 2 * wide // 3 else p.replace(" ", NO_BREAK) for p in parts)
    lines = _even_lines(whole, wide)
    figure.suptitle("\n".join([what, *lines]).replace(NO_BREAK, " "), fontsize=9)
    figure.set_size_inches(width, height + 0.16 * max(0, len(lines) - 1))


def _even_lines(text: str, most: int) -> list[str]:
    """Wrap a text to the fewest lines there can be, and these to the least width."""
    fewest = len(wrap(text, most, break_on_hyphens=False))
    tried = (wrap(text, letters, break_on_hyphens=False) for letters in range(1, most + 1))
    return next(lines for lines in tried if len(lines) == fewest)


def shortened(name: str) -> str:
    """Cut the middle out of a long name.

    Examples
    --------
    >>> shortened("small"), len(shortened("large" * 20))
    ('small', 48)
    """
    if len(name) <= _SHORT_NAME:
        return name
    half = _SHORT_NAME // 2
    return f"{name[: half - 1]}\N{HORIZONTAL ELLIPSIS}{name[-half:]}"
