"""Pictures of rules: what each accepts against its bias."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
_OPTIMUM = "optimal"


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
    names = _stable_names(row.rule for row in rows)
    with mpl.rc_context(STYLE):
        figure, axes = panel_grid(len(panels), margin=1.6)
        for axis, (title, group) in zip(axes, panels, strict=True):
            axis.set_title(fill(title, 40), fontsize=9)
            _draw_rules(axis, group, names)
            axis.set_xlim(-0.02, 1.0)
            axis.set_ylim(0.0, 1.03)
        figure.supxlabel("total variation of the output from the target", fontsize=9)
        figure.supylabel("acceptance, mean over positions ± s.e.", fontsize=9)
        positions = counted(max(row.positions for row in rows), "position")
        write_title(
            figure, "What rules accept, and their bias", [shortened(rows[0].data), positions]
        )
        legend(figure, axes, [_FRONT, *names])
    return figure


def _stable_names(used: Iterable[str]) -> list[str]:
    """List rules, those of the library first: a rule has one look in all figures."""
    known = dict.fromkeys(rule.name for rule in default_rules())
    return [*known, *sorted(set(used) - set(known))]


def _draw_rules(axis: Axes, rows: Sequence[RuleRow], names: Sequence[str]) -> None:
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
                **_look(name, names),
                markersize=4.5,
                linewidth=0.8,
                capsize=2.0,
            )
    if not axis.has_data():
        say_nothing(axis)


def _look(name: str, names: Sequence[str]) -> dict[str, Any]:
    """Give the look of a rule; the optimum is as black as the line that begins at it."""
    if name == _OPTIMUM:
        return {"color": "black", "marker": "*"}
    return verifier_look([each for each in names if each != _OPTIMUM].index(name))
