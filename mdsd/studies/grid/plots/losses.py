"""Stacked bars of what acceptance lacks to 1: which part to change first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mdsd.studies.grid.folder import Study
from mdsd.studies.grid.plots.slices import ModelGroup, by_draft, pinned, set_title
from mdsd.studies.panels import legend
from mdsd.studies.study_rows import StudyRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, with hatching for those who see none. From the outside: what stays lost
# whatever is drafted, then what another draft would save, then what another verifier would.
_PARTS = (
    ("lost_to_model", "lost to the draft model", "#0072B2", ""),
    ("lost_to_construction", "lost to the construction", "#E69F00", "////"),
    ("lost_to_verifier", "lost to the verifier", "#D55E00", "...."),
)
_WIDTH, _BAR_HEIGHT = 9.2, 0.21
_MOST_HEIGHT = 60.0


def losses_figure(study: Study, group: ModelGroup) -> Figure | None:
    """Draw the parts of the lost acceptance: a bar for each draft distribution and verifier.

    Parameters
    ----------
    study : Study
    group : ModelGroup

    Returns
    -------
    matplotlib.figure.Figure or None
        None if no row has all parts.
    """
    from matplotlib.figure import Figure

    chosen, words = pinned(group.rows)
    drawn = by_draft(row for row in chosen if _lost(row) is not None)
    if not drawn:
        return None
    # The best draft distribution on top, and in it the best verifier.
    sections = sorted(drawn.items(), key=lambda item: -round(item[1][0].bound or 0.0, 9))
    lines: list[tuple[str, StudyRow | None]] = []
    for draft, own in sections:
        lines += [(draft, None), *((row.verifier, row) for row in own)]
    height = min(_BAR_HEIGHT * len(lines) + 1.7, _MOST_HEIGHT)
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axis = figure.subplots()
    left = _left_end([row for _, row in lines if row is not None])
    axis.set_yticks(range(len(lines)), [label for label, _ in lines])
    for place, (text, (_, row)) in enumerate(zip(axis.get_yticklabels(), lines, strict=True)):
        if row is None:
            text.set_fontweight("bold")
        else:
            _draw_bar(axis, row, place, left, study)
    if left > 0.0:
        _mark_break(axis, left, len(lines))
    axis.set_xlim(left, 1.0)
    axis.set_ylim(len(lines) - 0.4, -2.0)
    axis.tick_params(axis="y", length=0)
    for name in ("top", "right", "left"):
        axis.spines[name].set_visible(False)
    begin = f"; bars cut below {left:g}" if left > 0.0 else ""
    axis.set_xlabel(
        f"probability per step, mean over positions (losses counted back from 1{begin})"
    )
    _write_heads(axis)
    what = "Where the lost acceptance goes"
    set_title(figure, study, what, group, words)
    order = ["accepted", *(label for _, label, *_ in reversed(_PARTS))]
    legend(figure, [axis], order, 40, loc="outside lower center", ncols=4)
    return figure


def _lost(row: StudyRow) -> list[float] | None:
    """Give the parts in the order drawn; rounding below zero is none."""
    parts = [getattr(row, name) for name, *_ in _PARTS]
    return None if None in parts else [max(0.0, part) for part in parts]


def _left_end(rows: Sequence[StudyRow]) -> float:
    """Start at 0, unless what is lost, which is what is compared, would be the smaller part."""
    least = min(row.acceptance or 0.0 for row in rows)
    return 0.0 if least < 0.5 else math.floor(10 * (least - 0.1)) / 10


def _mark_break(axis: Axes, left: float, lines: int) -> None:
    """Cut the bars and their axis by a white zigzag where they do not begin at 0."""
    heights = [0.25 * step - 0.5 for step in range(4 * lines + 1)]
    place, out = left + 0.03 * (1.0 - left), 0.006 * (1.0 - left)
    xs = [place + (out if step % 2 else -out) for step in range(len(heights))]
    for colour, width in (("0.45", 5.0), ("white", 3.4)):
        axis.plot(xs, heights, color=colour, linewidth=width, clip_on=False, zorder=5)


def _draw_bar(axis: Axes, row: StudyRow, place: float, left: float, study: Study) -> None:
    end = 1.0
    for (_, label, colour, hatch), part in zip(_PARTS, _lost(row) or (), strict=True):
        axis.barh(
            place,
            -part,
            left=end,
            height=0.8,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.4,
            label=label,
        )
        end -= part
    axis.barh(place, left - end, left=end, height=0.8, color="0.88", label="accepted", zorder=0)
    short = row.positions < study.plan["settings"]["positions"]
    note = f"{row.positions:,} pos." if short else ""
    numbers = [f"{row.acceptance:.3f}", *(f"{100 * part:.1f}" for part in _lost(row) or ())]
    for number, text in enumerate([numbers[0], *reversed(numbers[1:]), note]):
        _write(axis, text, place, number)


def _write_heads(axis: Axes) -> None:
    for number, text in enumerate(("accepted", "verifier", "constr.", "model")):
        _write(axis, text, -0.8, number, color="0.35")
    _write(axis, "points lost to the", -1.6, 2.5, color="0.35")


def _write(axis: Axes, text: str, place: float, column: float, color: str = "black") -> None:
    """Write into a column of numbers to the right of the bars."""
    axis.annotate(
        text,
        (1.0, place),
        xytext=(42.0 + 44.0 * column, 0.0),
        textcoords="offset points",
        ha="right",
        va="center_baseline",
        fontsize=8,
        color=color,
        annotation_clip=False,
    )
