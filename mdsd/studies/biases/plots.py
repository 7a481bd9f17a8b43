"""Pictures of rules: what each accepts against its bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from mdsd.engines.registry import default_rules
from mdsd.studies.biases.bias_table import bias_groups
from mdsd.studies.biases.rule_rows import RuleRow
from mdsd.studies.panels import (
    STYLE,
    legend,
    panel_grid,
    say_nothing,
    shortened,
    verifier_look,
    write_title,
)
from mdsd.studies.terminal import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FRONT = "most at this bias"
_LOSSLESS_MARKERS = "*osDv^<>"


def bias_figure(rows: Sequence[RuleRow]) -> Figure:
    """Draw acceptance against total variation, one panel for each kind of drafts.

    The dashed line begins at the lossless optimum: no rule lies above it.

    Parameters
    ----------
    rows : sequence of RuleRow
        Numbers that are None are left out.

    Returns
    -------
    matplotlib.figure.Figure
    """
    import matplotlib as mpl

    panels = bias_groups(rows)
    looks = _looks(rows)
    with mpl.rc_context(STYLE):
        figure, axes = panel_grid(len(panels), margin=1.6)
        for axis, (title, group) in zip(axes, panels, strict=True):
            axis.set_title(fill(title, 40), fontsize=9)
            _draw_rules(axis, group, looks)
            axis.set_xlim(-0.02, 1.0)
            axis.set_ylim(0.0, 1.03)
        figure.supxlabel("total variation of the output from the target", fontsize=9)
        figure.supylabel("acceptance, mean over positions ± s.e.", fontsize=9)
        positions = counted(max(row.positions for row in rows), "position")
        write_title(
            figure, "What rules accept, and their bias", [shortened(rows[0].data), positions]
        )
        legend(figure, axes, [_FRONT, *looks])
    return figure


def _looks(rows: Sequence[RuleRow]) -> dict[str, dict[str, Any]]:
    """Give the looks of rules, those of the library first: each has one look in all figures.

    There are more rules than colours, so lossless ones are as black as the line that begins at the
    optimum, and differ by their markers.
    """
    biased = {row.rule for row in rows if not row.lossless}
    known = [rule.name for rule in default_rules()]
    names = dict.fromkeys((*known, *sorted(row.rule for row in rows)))
    black = [name for name in names if name not in biased]
    coloured = [name for name in names if name in biased]
    looks = {name: verifier_look(k) for k, name in enumerate(coloured)}
    for k, name in enumerate(black):
        marker = _LOSSLESS_MARKERS[k % len(_LOSSLESS_MARKERS)]
        looks[name] = {"color": "black", "marker": marker, "markerfacecolor": "white"}
    return {name: looks[name] for name in names}


def _draw_rules(
    axis: Axes, rows: Sequence[RuleRow], looks: Mapping[str, Mapping[str, Any]]
) -> None:
    axis.grid(color="0.9")
    axis.set_axisbelow(True)
    bound = rows[0].bound
    if bound is not None:
        line = [0.0, 1.0 - bound, 1.0], [bound, 1.0, 1.0]
        axis.plot(*line, color="black", linestyle="--", linewidth=1.0, label=_FRONT)
    for name in dict.fromkeys(row.rule for row in rows):
        points = sorted(
            (row.total_variation, row.acceptance, row.stderr or 0.0)
            for row in rows
            if row.rule == name and row.acceptance is not None and row.total_variation is not None
        )
        if points:
            apart, accepted, errors = zip(*points, strict=True)
            axis.errorbar(
                apart,
                accepted,
                errors,
                label=name,
                **looks[name],
                markersize=4.5,
                linewidth=0.8,
                capsize=2.0,
            )
    if not axis.has_data():
        say_nothing(axis)
