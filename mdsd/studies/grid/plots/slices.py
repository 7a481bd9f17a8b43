"""What of a study one picture shows: rows of the same draft models, at one point of other axes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mdsd.filters import CUT_COLUMNS, Filters
from mdsd.studies.grid.folder import Study
from mdsd.studies.panels import has_numbers, shortened, write_title
from mdsd.studies.study_rows import StudyRow
from mdsd.studies.terminal import counted, models_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FILE_NAME = 40


@dataclass(frozen=True)
class Axis:
    """An axis of the grid along which rows can be drawn.

    Attributes
    ----------
    name : str
        As file names have it.
    label : str
        As figures have it.
    of : callable
        Gives the value of a row.
    pick : callable
        Chooses, of sorted values, the one that is shown where another axis is drawn.
    words : callable
        Writes a value for a title.
    order : callable, optional
        Gives what values are sorted by; themselves if None.
    """

    name: str
    label: str
    of: Callable[[StudyRow], Any]
    pick: Callable[[Sequence[Any]], Any]
    words: Callable[[Any], str]
    order: Callable[[Any], Any] | None = None


def middle(ordered: Sequence[Any]) -> Any:
    """Give the value in the middle, of two the larger one.

    Examples
    --------
    >>> middle([1, 2, 3]), middle([1, 2])
    (2, 2)
    """
    return ordered[len(ordered) // 2]


def _cuts(filters: Filters) -> Filters:
    """Leave out the temperature, which is an axis of its own."""
    return replace(filters, temperature=Filters().temperature)


def _cut_words(filters: Filters) -> str:
    return ", ".join(filters.words[1:]) or "no filter"


def _strictness(filters: Filters) -> list[float]:
    """Order filters by how far each is from leaving nothing out."""
    distances = []
    for name in CUT_COLUMNS:
        value, default = getattr(filters, name), getattr(Filters(), name)
        if default is None:  # a number of tokens, of which fewer leave out more
            distances.append(-math.inf if value is None else -value)
        else:
            distances.append(abs(value - default))
    return distances


TEMPERATURE = Axis(
    name="temperature",
    label="temperature (0: argmax)",
    of=lambda row: row.temperature,
    pick=lambda temperatures: min(temperatures, key=lambda temperature: abs(temperature - 1.0)),
    words=lambda temperature: f"temperature {temperature:g}",
)
NUM_DRAFTS = Axis(
    name="n",
    label="n (draft tokens per step)",
    of=lambda row: row.num_drafts,
    pick=middle,
    words=lambda n: f"n = {n}",
)
FILTERS = Axis(
    name="filter",
    label="filter of target and draft",
    of=lambda row: _cuts(row.filters),
    # The fewest tokens left out first.
    order=_strictness,
    pick=lambda cuts: cuts[0],
    words=_cut_words,
)


@dataclass(frozen=True)
class ModelGroup:
    """Rows that share pictures: those of a draft model, or of independent drafts.

    Attributes
    ----------
    title : str
    suffix : str
        What tells the files of its pictures from those of other groups; empty if there are none.
    rows : tuple of StudyRow
    """

    title: str
    suffix: str
    rows: tuple[StudyRow, ...]


def model_groups(rows: Iterable[StudyRow]) -> list[ModelGroup]:
    """Split rows by draft model; independent drafts, whose models change with n, are one group.

    Parameters
    ----------
    rows : iterable of StudyRow

    Returns
    -------
    list of ModelGroup
        Without those that have no number at all.
    """
    found: dict[tuple[str, str], list[StudyRow]] = {}
    for row in rows:
        models = (row.draft, "") if row.joint else ("", row.draft_model)
        found.setdefault(models, []).append(row)
    groups = [group for group in found.values() if any(map(has_numbers, group))]
    suffixes = _suffixes(map(models_name, groups)) if len(groups) > 1 else [""] * len(groups)
    return [
        ModelGroup(_title(group), suffix, tuple(group))
        for suffix, group in zip(suffixes, groups, strict=True)
    ]


def _title(group: list[StudyRow]) -> str:
    if not group[0].joint:
        return f"draft model {shortened(group[0].draft_model)}"
    return ", ".join(map(shortened, models_name(group).split(", ")))


def _suffixes(names: Iterable[str]) -> list[str]:
    """Make parts of file names of names that can be anything; no two differ in case alone."""
    found: list[str] = []
    for name in names:
        short = re.sub(r"[^A-Za-z0-9.-]+", "-", name.split(",")[0]).strip("-.")[:_FILE_NAME]
        suffix, count = f"_{short or 'model'}", 1
        while suffix.lower() in map(str.lower, found):
            count += 1
            suffix = f"_{short or 'model'}_{count}"
        found.append(suffix)
    return found


def values(axis: Axis, rows: Iterable[StudyRow]) -> list[Any]:
    """List the values on an axis that have numbers, in order."""
    return sorted({axis.of(row) for row in rows if has_numbers(row)}, key=axis.order)


def pinned(rows: Sequence[StudyRow], *free: Axis) -> tuple[list[StudyRow], list[str]]:
    """Keep one value of each axis that is not drawn.

    Parameters
    ----------
    rows : sequence of StudyRow
    *free : Axis
        Axes that keep all their values.

    Returns
    -------
    rows : list of StudyRow
        Those with these values.
    words : list of str
        The values, as a title says them.
    """
    words: list[str] = []
    kept = list(rows)
    for axis in (NUM_DRAFTS, TEMPERATURE, FILTERS):
        if axis in free:
            continue
        known = values(axis, kept)
        if not known:
            return [], words
        chosen = axis.pick(known)
        kept = [row for row in kept if axis.of(row) == chosen]
        words.append(axis.words(chosen))
    return kept, words


def by_draft(rows: Iterable[StudyRow]) -> dict[str, list[StudyRow]]:
    """Split rows by draft distribution, without those that have no number at all."""
    found: dict[str, list[StudyRow]] = {}
    for row in rows:
        found.setdefault(row.draft, []).append(row)
    return {draft: own for draft, own in found.items() if any(map(has_numbers, own))}


def verifier_losses(rows: Iterable[StudyRow]) -> dict[tuple[str, str], list[float]]:
    """List what each verifier stays below the bounds of each draft distribution, where known."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.lost_to_verifier is not None:
            found.setdefault((row.draft, row.verifier), []).append(row.lost_to_verifier)
    return found


def set_title(
    figure: Figure,
    study: Study,
    what: str,
    group: ModelGroup,
    words: Iterable[str],
    margin: float = 0.2,
) -> None:
    """Write the title of a picture: what it shows, and of what.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        It grows by the lines that the title takes more than two.
    study : Study
    what : str
    group : ModelGroup
    words : iterable of str
        Values of the axes that are not drawn, and remarks.
    margin : float, default 0.2
        Inches on either side that stay free.
    """
    positions = counted(study.plan["settings"]["positions"], "position")
    seed = f"seed {study.plan['settings']['seed']}"
    of = [shortened(study.plan["data"]["name"]), group.title, *words, positions, seed]
    write_title(figure, what, of, margin)
