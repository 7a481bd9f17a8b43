"""Tables of rules for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.text import Text

from mdsd.studies.biases.rule_rows import RuleRow
from mdsd.studies.fitting import FittedTable, Paragraph
from mdsd.studies.terminal import NONE, Columns, as_mean, as_probability, counted


def bias_groups(rows: Sequence[RuleRow]) -> list[tuple[str, list[RuleRow]]]:
    """Split rows into those of the same drafts and filters, each with its title."""

    def key(row: RuleRow) -> tuple[object, ...]:
        return row.draft_model, row.draft, row.num_drafts, row.filters

    groups = [list(found) for _, found in groupby(rows, key=key)]
    return [(title_of(group[0]), group) for group in groups]


def title_of(row: RuleRow) -> str:
    """Name the drafts and the filters of a row."""
    drafts = f"{row.draft} of {row.draft_model}, n = {row.num_drafts}"
    return ", ".join([drafts, *row.filters.words])


def bias_report(rows: Sequence[RuleRow], positions: int) -> RenderableType:
    """Lay out rules: one table for each draft distribution, number of drafts and filter.

    Parameters
    ----------
    rows : sequence of RuleRow
    positions : int
        Positions of the study.
    """
    columns: Columns = {
        "rule": lambda row: row.label,
        "lossless": lambda row: "yes" if row.lossless else "no",
        "acceptance": lambda row: as_mean(row.positions, row.acceptance, row.stderr),
        "TV": lambda row: as_mean(row.positions, row.total_variation, row.total_variation_stderr),
        "KL": _divergence,
        "front": lambda row: as_probability(row.front),
    }
    parts: list[RenderableType] = []
    for title, group in bias_groups(rows):
        table = FittedTable(*columns)
        for row in group:
            table.add(*(write(row) for write in columns.values()))
        parts += [Paragraph(f"{row.data}, {title}", "bold"), table, ""]
        if group[0].positions < positions:
            some = counted(group[0].positions, "position")
            parts.insert(-1, Paragraph(f"over {some} with n tokens to draw", "dim"))
    reasons = dict.fromkeys(
        f"not computed, {missing.what}: {missing.reason}" for row in rows for missing in row.missing
    )
    legend = (
        f"Means over {counted(positions, 'position')} ± standard error. TV: total variation of the "
        "output from the target; KL: its divergence from the target, in nats; front: bound + TV, "
        "the most that any rule of this bias accepts."
    )
    return Group(*parts, *(Paragraph(text, "dim") for text in (legend, *reasons)))


def _divergence(row: RuleRow) -> str | Text:
    if row.infinite_kl:
        return "\N{INFINITY}"
    return NONE if row.kl_divergence is None else f"{row.kl_divergence:.4f}"
