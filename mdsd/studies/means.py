"""Rows of a study: the numbers of each cell, averaged over its positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from mdsd._typing import AnyArray, FloatArray
from mdsd.datasets import Source
from mdsd.studies.cases import Progress
from mdsd.studies.cells import Cell, DraftedFrom
from mdsd.studies.rows import (
    BoundRow,
    CompareRow,
    Missing,
    StudiedRow,
    StudyRow,
    best_first,
    mean_of,
    quantiles_of,
    stderr_of,
)
from mdsd.studies.settings import StudySettings
from mdsd.studies.values import all_values

__all__ = ["all_rows", "bound_rows", "compare_rows", "study_rows"]

AnyRow = TypeVar("AnyRow", bound=StudiedRow)

_ROUNDING = 1e-9
"""Means that differ by less are the same."""


class CellValues(Protocol):
    """Numbers of a cell at all positions, in memory or in a file."""

    @property
    def missing(self) -> Mapping[str, Missing]: ...
    @property
    def column(self) -> Callable[[str], AnyArray]: ...


def all_rows(
    average: Callable[[Cell, CellValues, Mapping[str, Any]], list[AnyRow]],
    source: Source,
    settings: StudySettings,
    progress: Progress | None,
) -> tuple[AnyRow, ...]:
    """Compute all cells in memory, and average them.

    Parameters
    ----------
    average : callable
        `compare_rows` or another of its kind.
    source : Source
    settings : StudySettings
    progress : callable or None
        Called with (steps done, all steps).

    Returns
    -------
    tuple of StudiedRow
        In the order of the cases.
    """
    about = {"data": source.name, "seed": settings.seed}
    found = all_values(source, settings, progress).items()
    rows = [row for cell, values in found for row in average(cell, values, about)]
    places = {
        (case.kind.label, "+".join(case.draft_models), case.num_drafts, case.filters): place
        for place, case in enumerate(settings.asked.cases)
    }
    return tuple(
        sorted(
            rows, key=lambda row: places[row.draft, row.draft_model, row.num_drafts, row.filters]
        )
    )


def compare_rows(cell: Cell, found: CellValues, about: Mapping[str, Any]) -> list[CompareRow]:
    """Average what verifiers attain, and the bounds of their drafts.

    Parameters
    ----------
    cell : Cell
    found : CellValues
    about : mapping
        The columns `data` and `seed`.

    Returns
    -------
    list of CompareRow
        By draft distribution, best verifier first.
    """
    rows = []
    for drafted, verifiers in cell.asked:
        means = _Means(cell, found, drafted)
        shared = {**about, **_label(cell, drafted), "positions": means.positions}
        rows += best_first(
            CompareRow(**shared, **_compared(means.bound, rate), **_named(name, means.bound, rate))
            for name, rate in means.rates(verifiers)
        )
    return rows


def bound_rows(cell: Cell, found: CellValues, about: Mapping[str, Any]) -> list[BoundRow]:
    """Average bounds, as `compare_rows` does.

    Returns
    -------
    list of BoundRow
        By draft distribution.
    """
    rows = []
    for drafted, _ in cell.asked:
        means = _Means(cell, found, drafted)
        bound = means.bound
        rows.append(
            BoundRow(
                **about,
                **_label(cell, drafted),
                **bound.quantiles,
                bound=bound.mean,
                bound_stderr=bound.stderr,
                positions=means.positions,
                values=tuple(bound.values.tolist()),
                missing=_missing(bound),
            )
        )
    return rows


def study_rows(cell: Cell, found: CellValues, about: Mapping[str, Any]) -> list[StudyRow]:
    """Average what verifiers attain, and say where the rest is lost, as `compare_rows` does.

    Returns
    -------
    list of StudyRow
        By draft distribution, best verifier first.
    """
    best = _best_drafts(cell, found)
    rows = []
    for drafted, verifiers in cell.asked:
        means = _Means(cell, found, drafted)
        bound, (name, largest) = means.bound, best[drafted]
        shared = {
            **about,
            **_label(cell, drafted),
            "positions": means.positions,
            "best_draft": name,
            "lost_to_model": _difference(1.0, largest),
            "lost_to_construction": _difference(largest, bound.mean),
        }
        rows += best_first(
            StudyRow(
                **shared,
                **_compared(bound, rate),
                **rate.quantiles,
                **_named(verifier, bound, rate),
                lost_to_verifier=_difference(bound.mean, rate.mean),
            )
            for verifier, rate in means.rates(verifiers)
        )
    return rows


class _Mean:
    """Mean, standard error and quantiles over positions, or why there are none."""

    def __init__(self, values: FloatArray, missing: Missing | None) -> None:
        self.missing = missing
        self.values = values if missing is None else values[:0]
        self.mean, self.stderr = mean_of(self.values), stderr_of(self.values)

    @property
    def quantiles(self) -> dict[str, Any]:
        shares = (0.1, 0.5, 0.9)
        return dict(zip(("q10", "q50", "q90"), quantiles_of(self.values, shares), strict=True))


class _Means:
    """Means of what one way of drafting attains, over the positions at which it can draft."""

    def __init__(self, cell: Cell, found: CellValues, drafted: DraftedFrom) -> None:
        self._found, self._drafted = found, drafted
        self._chosen = found.column(drafted.drawable_column)
        self.positions = int(self._chosen.sum())
        self.bound = self._mean(drafted.bound_column)

    def rates(self, verifiers: tuple[str, ...]) -> Iterator[tuple[str, _Mean]]:
        for name in verifiers:
            yield name, self._mean(self._drafted.acceptance_column(name))

    def _mean(self, column: str) -> _Mean:
        values = self._found.column(column)[self._chosen]
        return _Mean(values, self._found.missing.get(column))


def _best_drafts(
    cell: Cell, found: CellValues
) -> dict[DraftedFrom, tuple[str | None, float | None]]:
    """Name the draft with the largest mean bound over the positions of each draft asked for."""
    drawable = {each: found.column(each.drawable_column) for each in cell.drafted}
    means: dict[tuple[DraftedFrom, DraftedFrom], float] = {}
    for other in cell.drafted:  # one column of numbers in memory at a time
        if other.bound_column in found.missing:
            continue
        values = found.column(other.bound_column)
        for own, _ in cell.asked:
            chosen = drawable[own]
            # Where only some of the positions allow it, its mean would not compare.
            if chosen.any() and drawable[other][chosen].all():
                means[own, other] = float(values[chosen].mean())
    best: dict[DraftedFrom, tuple[str | None, float | None]] = {}
    for own, _ in cell.asked:
        best[own] = None, None
        # Its own first: where another is as good, nothing is lost to the way of drafting.
        for other in dict.fromkeys([own, *cell.drafted]):
            mean, largest = means.get((own, other)), best[own][1]
            if mean is not None and (largest is None or mean > largest + _ROUNDING):
                best[own] = other.label if len(cell.draft_models) > 1 else other.draft, mean
    return best


def _label(cell: Cell, drafted: DraftedFrom) -> dict[str, Any]:
    """Give the columns that say what a row is about."""
    return {
        "draft_model": "+".join(cell.draft_models),
        "draft": drafted.draft,
        "num_drafts": cell.num_drafts,
        "filters": cell.filters,
        "joint": cell.joint,
    }


def _named(verifier: str, bound: _Mean, rate: _Mean) -> dict[str, Any]:
    return {"verifier": verifier, "missing": _missing(bound, rate)}


def _compared(bound: _Mean, rate: _Mean) -> dict[str, Any]:
    known = rate.mean is not None and bound.mean
    return {
        "acceptance": rate.mean,
        "stderr": rate.stderr,
        "bound": bound.mean,
        "bound_stderr": bound.stderr,
        "share_of_bound": rate.mean / bound.mean if known else None,  # type: ignore[operator]
    }


def _missing(*means: _Mean) -> tuple[Missing, ...]:
    return tuple(each.missing for each in means if each.missing is not None)


def _difference(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part
