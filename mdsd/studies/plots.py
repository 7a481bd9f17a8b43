"""Figures of comparisons and bounds: a line of them for each temperature."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeVar

from mdsd.studies.panels import (
    ACCEPTANCE,
    LETTERS_PER_INCH,
    PANEL_HEIGHT,
    PANEL_WIDTH,
    STYLE,
    acceptance_limits,
    draw_acceptance,
    has_numbers,
    legend,
    say_nothing,
    shades,
    shortened,
    stable_names,
    uneven_grid,
    write_title,
)
from mdsd.studies.study_rows import BoundRow, CompareRow
from mdsd.studies.terminal import counted, models_name, titled_groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AnyRow = TypeVar("AnyRow", CompareRow, BoundRow)

_LINE_HEIGHT = 3.2
_LETTERS_OF_A_LINE = 34
_LEAST_WIDTH, _TITLE_MARGIN = 2.9, 1.3
"""Inches of all panels of a line, and on either side of a title, the legend on one of them."""

_WIDEST_BOX = 0.25


def compare_figure(rows: Sequence[CompareRow]) -> Figure:
    """Draw acceptance against the number of drafts, a panel for each draft distribution.

    Parameters
    ----------
    rows : sequence of CompareRow
        Numbers that are None are left out.

    Returns
    -------
    matplotlib.figure.Figure
        With a line of panels for each draft model and temperature.
    """
    import matplotlib as mpl

    # A panel without a number says nothing, unless it is the only one.
    known = [row for row in rows if has_numbers(row)] or list(rows[:1])
    counts = {draft: sorted({row.num_drafts for row in own}) for draft, own in _by_draft(known)}
    widths = [
        max(min(0.75 + 0.55 * len(each), PANEL_WIDTH), len(draft) / LETTERS_PER_INCH + 0.2)
        for draft, each in counts.items()
    ]
    stretch = max(1.0, _LEAST_WIDTH / sum(widths))
    widths = [stretch * width for width in widths]
    names = stable_names(row.verifier for row in rows)
    lines = _lines(known)
    with mpl.rc_context(STYLE):
        figure, grid = uneven_grid(len(lines), widths, PANEL_HEIGHT)
        drawn: list[Axes] = []
        for line, (title, in_line) in zip(grid, lines, strict=True):
            panels = dict(_by_draft(in_line))
            for axis, draft, width in zip(line, counts, widths, strict=True):
                if draft not in panels:
                    axis.remove()
                    continue
                axis.set_title(_panel_title(panels[draft], rows, width), fontsize=9)
                draw_acceptance(axis, panels[draft], _num_drafts, counts[draft], names)
                axis.set_xticks(counts[draft])
                if draft == next(iter(panels)):
                    axis.set_ylabel(fill(title, _LETTERS_OF_A_LINE), fontweight="bold")
                    axis.tick_params(labelleft=True)
                drawn.append(axis)
        drawn[0].set_ylim(*acceptance_limits(known))
        figure.supylabel(ACCEPTANCE, fontsize=9)
        figure.supxlabel("n (draft tokens per step)", fontsize=9)
        _set_title(figure, "Acceptance of verifiers", rows)
        legend(figure, drawn, ["bound", *names])
    return figure


def bound_figure(rows: Sequence[BoundRow]) -> Figure:
    """Draw how acceptance bounds spread over positions.

    Parameters
    ----------
    rows : sequence of BoundRow
        Rows without values are left out.

    Returns
    -------
    matplotlib.figure.Figure
        With a panel for each draft model and temperature.
    """
    import matplotlib as mpl

    known = [row for row in rows if row.values]
    lines = _lines(known or list(rows[:1]))
    counts = sorted({row.num_drafts for row in rows})
    most = max(len(_by_draft(own)) for _, own in lines)
    with mpl.rc_context(STYLE):
        figure, grid = uneven_grid(len(lines), [max(1.25 * most + 0.8, 4.6)], _LINE_HEIGHT)
        for (axis,), (title, in_line) in zip(grid, lines, strict=True):
            axis.set_title(title, fontsize=9)
            _draw_boxes(axis, [row for row in in_line if row.values], counts)
            axis.set_ylim(0.0, 1.03)
        figure.supylabel("bound of the acceptance probability per step", fontsize=9)
        figure.supxlabel(
            "over positions: box from 25% to 75%, whiskers to 10% and 90%,\nline median, cross "
            "mean",
            fontsize=9,
        )
        _set_title(figure, "Acceptance bounds", rows)
        legend(figure, [axis for (axis,) in grid], [f"n = {n}" for n in counts])
    return figure


def _lines(rows: Sequence[AnyRow]) -> list[tuple[str, list[AnyRow]]]:
    """Split rows by draft model and filters; independent drafts come where their filters first do.

    Their models are named where they are drawn.
    """
    found: list[tuple[str, list[AnyRow]]] = []
    for title, group in titled_groups(rows):
        same = (own for _, own in found if own[0].filters == group[0].filters)
        if group[0].joint and (first := next(same, None)) is not None:
            first += group
        else:
            found.append((", ".join(group[0].filters.words) if group[0].joint else title, group))
    return found


def _by_draft(rows: Sequence[AnyRow]) -> list[tuple[str, list[AnyRow]]]:
    drafts = dict.fromkeys(row.draft for row in rows)
    return [(draft, [row for row in rows if row.draft == draft]) for draft in drafts]


def _num_drafts(row: CompareRow) -> float:
    return float(row.num_drafts)


def _name(rows: Sequence[AnyRow], letters: int) -> str:
    """Name a draft distribution, and the models of independent drafts."""
    if not rows[0].joint:
        return rows[0].draft
    draft, models = models_name(rows).split(", ", 1)
    return f"{draft}\n{fill(models, letters)}"


def _panel_title(panel: Sequence[CompareRow], rows: Sequence[CompareRow], width: float) -> str:
    """Name what is drafted, and the positions where n tokens cannot be drafted at all."""
    name = _name(panel, int(width * LETTERS_PER_INCH))
    least, most = (end(row.positions for row in panel) for end in (min, max))
    if least == max(row.positions for row in rows):
        return name
    return f"{name}\n({'' if least == most else f'{least:,} to '}{counted(most, 'position')})"


def _set_title(figure: Figure, what: str, rows: Sequence[AnyRow]) -> None:
    """Say what is drawn, and of what; panels name models and filters."""
    positions = counted(max(row.positions for row in rows), "position")
    of = [shortened(rows[0].data), positions, f"seed {rows[0].seed}"]
    write_title(figure, what, of, _TITLE_MARGIN)


def _draw_boxes(axis: Axes, rows: Sequence[BoundRow], counts: Sequence[int]) -> None:
    axis.grid(axis="y", color="0.9")
    axis.set_axisbelow(True)
    drafts = _by_draft(rows)
    width = min(0.8 / len(counts), _WIDEST_BOX)
    look: dict[str, Any] = {
        "widths": 0.8 * width,
        "whis": (10, 90),
        "showfliers": False,
        "showmeans": True,
        "patch_artist": True,
        "medianprops": {"color": "black"},
        "meanprops": {"marker": "x", "markeredgecolor": "black", "markersize": 4},
    }
    # Light to dark as n grows, and never so dark that the median is lost.
    colours = shades(len(counts), 1.0, 0.45)
    for place, (_, own) in enumerate(drafts):
        # Without gaps: a draft distribution that has one n only shows it in the middle.
        for slot, row in enumerate(own):
            centre = place + width * (slot - (len(own) - 1) / 2)
            (box,) = axis.boxplot([row.values], positions=[centre], **look)["boxes"]
            box.set_facecolor(colours[counts.index(row.num_drafts)])
            box.set_label(f"n = {row.num_drafts}")
    axis.set_xticks(range(len(drafts)), [_name(own, 20) for _, own in drafts])
    if drafts:
        axis.set_xlim(-0.6, len(drafts) - 0.4)
    else:
        say_nothing(axis)
