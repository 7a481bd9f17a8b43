"""What the rows of a study say, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from mdsd.studies.grid.folder import Study
from mdsd.studies.grid.plots.slices import (
    TEMPERATURE,
    model_groups,
    pinned,
    values,
    verifier_losses,
)
from mdsd.studies.study_rows import StudyRow
from mdsd.studies.terminal import counted

_EQUAL = 1e-9
"""Means that differ by less are called equal: rounding decides nothing."""

_NEAR = 1e-3
"""Distance from a bound, 0.1 points, below which it is said to be attained."""

_MOST_NAMED = 5

_PARTS = {
    "lost_to_model": "the draft model",
    "lost_to_construction": "the construction",
    "lost_to_verifier": "the verifier",
}


def findings(study: Study) -> list[str]:
    """Say what was found, from the rows alone.

    Parameters
    ----------
    study : Study

    Returns
    -------
    list of str
        A sentence or two each.
    """
    rows = study.rows
    said = [
        *_best_pairs(rows),
        *_differences(rows),
        *_largest_bounds(rows),
        _wins(rows),
        _replacement(rows),
        _distances(rows),
        _largest_parts(rows),
    ]
    return [sentence for sentence in said if sentence]


def remarks(study: Study) -> list[str]:
    """Say which rows average over fewer positions than asked for, or have no numbers, and why.

    Parameters
    ----------
    study : Study

    Returns
    -------
    list of str
    """
    asked = study.plan["settings"]["positions"]
    said = []
    none = sum(row.positions == 0 for row in study.rows)
    fewer = sum(0 < row.positions < asked for row in study.rows)
    if fewer:
        said.append(
            f"{counted(fewer, 'row')} of {len(study.rows):,} average over fewer than "
            f"{counted(asked, 'position')}: at the others there are fewer than n tokens to draft. "
            "They are compared with rows over the same positions only."
        )
    if none:
        said.append(
            f"{counted(none, 'row')} of {len(study.rows):,} have no numbers: n different tokens "
            "cannot be drafted at any position."
        )
    missing = [(row.draft, found) for row in study.rows for found in row.missing]
    kinds = Counter((draft, found.what) for draft, found in missing)
    for (draft, what), count in sorted(kinds.items()):
        first = next(found for name, found in missing if (name, found.what) == (draft, what))
        said.append(
            f"{what} of {draft} was not computed for {counted(count, 'row')}; at position "
            f"{first.position}, with {first.tokens:,} tokens: {first.reason}."
        )
    return said


def pair(row: StudyRow) -> str:
    """Name draft distribution and verifier of a row."""
    return f"{row.draft} with {row.verifier}"


def cells_of(rows: Iterable[StudyRow]) -> list[list[StudyRow]]:
    """Split rows into cells: the same draft models, number of drafts, temperature and filters."""
    found: dict[tuple[Any, ...], list[StudyRow]] = {}
    for row in rows:
        label = (row.joint, row.draft_model, row.num_drafts, row.filters)
        found.setdefault(label, []).append(row)
    return list(found.values())


def comparable(cell: Sequence[StudyRow]) -> list[StudyRow]:
    """Keep the rows of a cell with numbers that average over the same positions, best first.

    Where n different tokens cannot be drafted at some positions, means of with_replacement are over
    more positions than the others: they are set apart then.
    """
    known = [row for row in cell if row.acceptance is not None]
    most = max((row.positions for row in known), default=0)
    known = [row for row in known if row.positions == most]
    return sorted(known, key=lambda row: -round(row.acceptance or 0.0, 9))


def _best_pairs(rows: Sequence[StudyRow]) -> list[str]:
    """Name the best pairs of each draft model, at the point that pictures show."""
    said = []
    for group in model_groups(rows):
        chosen, words = pinned(group.rows)
        best = comparable(chosen)[:3]
        if not best:
            continue
        first = best[0]
        error = "" if first.stderr is None else f" ± {first.stderr:.4f}"
        bound = "" if first.bound is None else f", of a bound of {first.bound:.4f}"
        rest = _and(f"{pair(row)} {row.acceptance:.4f}" for row in best[1:])
        said.append(
            f"With {group.title} at {', '.join(words)}, {pair(first)} accepts most, "
            f"{first.acceptance:.4f}{error}{bound}{f'; {rest} follow' if rest else ''}."
        )
    return said


def _differences(rows: Sequence[StudyRow]) -> list[str]:
    """Say how far verifiers are from the one they are compared with, at the same point."""
    said = []
    for group in model_groups(rows):
        chosen, words = pinned(group.rows)
        for draft in dict.fromkeys(row.draft for row in chosen):
            others = [
                row
                for row in chosen
                if row.draft == draft and row.verifier != row.reference and row.difference
            ]
            if not others:
                continue
            listed = _and(f"{row.verifier} {_change(row)}" for row in others)
            texts = others[0].texts or 0
            by = f", with standard errors by {counted(texts, 'text')}" if texts > 1 else ""
            said.append(
                f"At the same positions with {draft} drafts, {group.title}, {', '.join(words)}, "
                f"{listed} than {others[0].reference}{by}."
            )
    return said


def _change(row: StudyRow) -> str:
    """Say that a row accepts more or less than its reference, in points."""
    points = 100.0 * (row.difference or 0.0)
    known = row.difference_stderr_by_text
    error = row.difference_stderr if known is None else known
    size = f"{abs(points):.2f}" + ("" if error is None else f" ± {100.0 * error:.2f}")
    return f"accepts {size} points {'more' if points > 0.0 else 'less'}"


def _and(parts: Iterable[str]) -> str:
    """Join parts of a sentence.

    Examples
    --------
    >>> _and(["a"]), _and(["a", "b"]), _and("abc")
    ('a', 'a and b', 'a, b and c')
    """
    *first, last = [*parts] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _largest_bounds(rows: Sequence[StudyRow]) -> list[str]:
    """Name the draft distributions with the largest bounds, by temperature."""
    said = []
    for group in model_groups(rows):
        chosen, words = pinned(group.rows, TEMPERATURE)
        temperatures = values(TEMPERATURE, chosen)
        names = [_leaders([r for r in chosen if r.temperature == each]) for each in temperatures]
        if len(temperatures) < 2 or len({row.draft for row in chosen}) < 2:
            continue
        spans = []
        for name, found in groupby(zip(names, temperatures, strict=True), key=itemgetter(0)):
            own = [temperature for _, temperature in found]
            ends = (f"{each:g}" for each in sorted({own[0], own[-1]}))
            spans.append(f"of {name} at {' to '.join(ends)}")
        said.append(
            f"The largest bound by temperature, with {group.title} at {', '.join(words)}, is that "
            f"{_and(spans)}."
        )
    return said


def _leaders(rows: Sequence[StudyRow]) -> str:
    """Name the draft distributions with the largest bound over the same positions."""
    bounds = {row.draft: row for row in rows if row.bound is not None}
    most = max((row.positions for row in bounds.values()), default=0)
    means = {name: row.bound or 0.0 for name, row in bounds.items() if row.positions == most}
    best = max(means.values(), default=0.0)
    return " and ".join(name for name, bound in means.items() if bound >= best - _EQUAL) or "none"


def _wins(rows: Sequence[StudyRow]) -> str:
    """Count the cells in which a pair is best, or as good as the best."""
    wins: Counter[str] = Counter()
    cells = [cell for cell in map(comparable, cells_of(rows)) if len(cell) > 1]
    for cell in cells:
        best = cell[0].acceptance or 0.0
        wins.update(pair(row) for row in cell if (row.acceptance or 0.0) >= best - _EQUAL)
    if len(cells) < 2:
        return ""
    # By number, then in the order of the rows, which Counter keeps.
    named = wins.most_common(_MOST_NAMED)
    listed = [f"{name} in {count:,}" for name, count in named]
    if len(wins) > len(named):
        listed.append(f"{counted(len(wins) - len(named), 'more pair')} in fewer")
    return (
        f"Of the {len(cells):,} cells (draft models, n, temperature and filters) the best, or as "
        f"good as the best, is {_and(listed)}."
    )


def _replacement(rows: Sequence[StudyRow]) -> str:
    """Set the bounds of drafts without replacement against those with it."""
    gains = []
    for cell in cells_of(rows):
        known = {row.draft: row for row in cell if row.bound is not None}
        without, with_ = known.get("without_replacement"), known.get("with_replacement")
        if without is None or with_ is None or without.positions != with_.positions:
            continue
        if without.num_drafts > 1:
            gains.append((without.bound or 0.0) - (with_.bound or 0.0))
    if not gains:
        return ""
    larger = sum(gain > _EQUAL for gain in gains)
    return (
        f"The bound without replacement is larger than with it in {larger:,} of "
        f"{counted(len(gains), 'cell')} with n > 1 that have both over the same positions; the "
        f"difference lies between {_points(min(gains))} and {_points(max(gains))} points."
    )


def _distances(rows: Sequence[StudyRow]) -> str:
    """Name the pairs that attain their bounds in all cells."""
    losses = verifier_losses(rows)
    near = [" with ".join(names) for names, found in losses.items() if max(found) < _NEAR]
    if not losses:
        return ""
    if not near:
        return "No pair stays within 0.1 points of its bound in all cells."
    pairs = counted(len(losses), "pair")
    stay = "stays" if len(near) == 1 else "stay"
    return (
        f"Of {pairs}, {len(near)} {stay} within 0.1 points of the bound in all cells: {_and(near)}."
    )


def _largest_parts(rows: Sequence[StudyRow]) -> str:
    """Count the rows in which each part of the lost acceptance is the largest."""
    counts: Counter[str] = Counter()
    for row in rows:
        parts = {name: getattr(row, name) for name in _PARTS}
        if None not in parts.values() and 1.0 - (row.acceptance or 0.0) > _EQUAL:
            counts[max(parts, key=lambda name: round(parts[name], 9))] += 1
    total = sum(counts.values())
    if not total:
        return ""
    listed = _and(f"{whose} in {counts[name]:,}" for name, whose in _PARTS.items())
    return f"The largest part of what {counted(total, 'row')} lose goes to {listed}."


def _points(lost: float) -> str:
    """Write a difference of acceptances in points; rounding around zero is zero."""
    return f"{100.0 * lost:.2f}".replace("-0.00", "0.00")
