"""Rows of a study: the numbers of each cell, averaged over its positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from mdsd._typing import AnyArray
from mdsd.datasets import Source
from mdsd.studies.cases import Progress
from mdsd.studies.cells import TEXT_COLUMN, Cell, DraftedFrom
from mdsd.studies.frames import Rows
from mdsd.studies.study_rows import (
    BoundRow,
    CompareRow,
    Mean,
    Missing,
    StudiedRow,
    StudyRow,
    Texts,
    best_first,
)
from mdsd.studies.study_settings import StudySettings
from mdsd.studies.values import all_values

AnyRow = TypeVar("AnyRow", bound=StudiedRow)

_ROUNDING = 1e-9
"""Means that differ by less are the same."""


class CellValues(Protocol):
    """Numbers of a cell at all positions, in memory or in a file."""

    @property
    def missing(self) -> Mapping[str, Missing]: ...  # noqa: D102
    @property
    def column(self) -> Callable[[str], AnyArray]: ...  # noqa: D102


def all_rows(
    average: Callable[..., list[AnyRow]],
    source: Source,
    settings: StudySettings,
    progress: Progress | None,
) -> Rows[AnyRow]:
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
    Rows of StudiedRow
        In the order of the cases.
    """
    about = {"data": source.name, "seed": settings.seed}
    if settings.verifiers:
        average = partial(average, against=settings.against)
    found = all_values(source, settings, progress).items()
    rows = [row for cell, values in found for row in average(cell, values, about)]
    places = {
        (case.kind.label, "+".join(case.draft_models), case.num_drafts, case.filters): place
        for place, case in enumerate(settings.asked.cases)
    }
    return Rows(
        sorted(
            rows, key=lambda row: places[row.draft, row.draft_model, row.num_drafts, row.filters]
        )
    )


def compare_rows(
    cell: Cell, found: CellValues, about: Mapping[str, Any], against: str | None = None
) -> list[CompareRow]:
    """Average what verifiers attain, and the bounds of their drafts.

    Parameters
    ----------
    cell : Cell
    found : CellValues
    about : mapping
        The columns `data` and `seed`.
    against : str, optional
        The verifier with which all are compared, where it supports the drafts.

    Returns
    -------
    list of CompareRow
        By draft distribution, best verifier first.
    """
    rows = []
    for drafted, verifiers in cell.asked:
        shared, bound, rates = _averaged(cell, found, drafted, verifiers, against)
        rows += best_first(CompareRow(**about, **shared, **_of(bound, *rate)) for rate in rates)
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
        shared, bound, _ = _averaged(cell, found, drafted)
        shared |= {
            "bound": bound.mean,
            "bound_stderr": bound.stderr,
            "bound_stderr_by_text": bound.stderr_by_text,
            **bound.quantiles,
        }
        values = tuple(bound.values.tolist())
        rows.append(BoundRow(**about, **shared, values=values, missing=_missing(bound)))
    return rows


def study_rows(
    cell: Cell, found: CellValues, about: Mapping[str, Any], against: str | None = None
) -> list[StudyRow]:
    """Average what verifiers attain, and say where the rest is lost, as `compare_rows` does.

    Returns
    -------
    list of StudyRow
        By draft distribution, best verifier first.
    """
    best = _best_drafts(cell, found)
    rows = []
    for drafted, verifiers in cell.asked:
        shared, bound, rates = _averaged(cell, found, drafted, verifiers, against)
        shared["best_draft"], largest = best[drafted]
        shared["lost_to_model"] = _difference(1.0, largest)
        shared["lost_to_construction"] = _difference(largest, bound.mean)
        rows += best_first(
            StudyRow(
                **about,
                **shared,
                **rate.quantiles,
                **_of(bound, verifier, rate, difference),
                lost_to_verifier=_difference(bound.mean, rate.mean),
            )
            for verifier, rate, difference in rates
        )
    return rows


def _averaged(
    cell: Cell,
    found: CellValues,
    drafted: DraftedFrom,
    verifiers: Sequence[str] = (),
    against: str | None = None,
) -> tuple[dict[str, Any], Mean, Iterator[tuple[str, Mean, Mean]]]:
    """Average over the positions at which n tokens can be drafted: what it is, bound and rates.

    Beside the rate of each verifier stands what it has more than that of another one.
    """
    chosen = found.column(drafted.drawable_column)
    text_ids = found.column(TEXT_COLUMN)[chosen]
    texts = None if np.isnan(text_ids).any() or not len(text_ids) else Texts(text_ids)

    def mean(column: str) -> Mean:
        return Mean(found.column(column)[chosen], found.missing.get(column), texts)

    shared = {
        "draft_model": "+".join(cell.draft_models),
        "draft": drafted.draft,
        "num_drafts": cell.num_drafts,
        "filters": cell.filters,
        "joint": cell.joint,
        "positions": int(chosen.sum()),
        "texts": None if texts is None else texts.count,
    }
    if not verifiers:
        return shared, mean(drafted.bound_column), iter(())
    shared["reference"] = reference = against if against in verifiers else None
    other = Mean(()) if reference is None else mean(drafted.acceptance_column(reference))

    def rates() -> Iterator[tuple[str, Mean, Mean]]:
        for name in verifiers:
            own = mean(drafted.acceptance_column(name))
            known = len(own.values) == len(other.values)
            yield name, own, Mean(own.values - other.values if known else (), texts=texts)

    return shared, mean(drafted.bound_column), rates()


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


def _of(bound: Mean, verifier: str, rate: Mean, difference: Mean) -> dict[str, Any]:
    """Give the columns of a verifier beside its bound, and beside another one."""
    known = rate.mean is not None and bound.mean
    return {
        "verifier": verifier,
        "acceptance": rate.mean,
        "stderr": rate.stderr,
        "bound": bound.mean,
        "bound_stderr": bound.stderr,
        "stderr_by_text": rate.stderr_by_text,
        "bound_stderr_by_text": bound.stderr_by_text,
        "difference": difference.mean,
        "difference_stderr": difference.stderr,
        "difference_stderr_by_text": difference.stderr_by_text,
        "share_of_bound": rate.mean / bound.mean if known else None,  # type: ignore[operator]
        "missing": _missing(bound, rate),
    }


def _missing(*means: Mean) -> tuple[Missing, ...]:
    return tuple(each.missing for each in means if each.missing is not None)


def _difference(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part
