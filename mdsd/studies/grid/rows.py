"""Rows of a study: the columns of `compare`, quantiles, and where the lost acceptance goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mdsd._typing import FloatArray
from mdsd.studies.grid.cell_files import CellFile
from mdsd.studies.grid.cells import Cell, Construction
from mdsd.studies.rows import Missing, Row, best_first, mean_of, quantiles_of, stderr_of

__all__ = ["StudyRow", "study_rows"]

_ROUNDING = 1e-9
"""Means that differ by less are the same."""


@dataclass(frozen=True)
class StudyRow(Row):
    """Acceptance of one verifier in one cell of a grid, and the parts of what it lacks to 1.

    Attributes
    ----------
    draft_model : str
        Name of the draft model; "a+b" for independent drafts of a and b.
    draft : str
        Name of the draft distribution.
    num_drafts : int
        n, the tokens drafted in one step.
    temperature : float
    top_k : int or None
    top_p : float
        Filters of target and draft alike; None and 1 keep all tokens.
    verifier : str
    acceptance : float or None
        Mean probability that the emitted token is one of the drafts.
    stderr : float or None
        Its standard error over positions (N - 1); None for a single position.
    q10, q50, q90 : float or None
        Quantiles of the acceptance over positions, interpolated linearly.
    bound, bound_stderr : float or None
        Mean and standard error of the acceptance bound alpha* of the draft distribution.
    share_of_bound : float or None
        `acceptance` over `bound`.
    best_draft : str or None
        The construction with the largest mean bound over the same positions, among all that these
        draft models allow, whether or not the study asked for it.
    lost_to_model : float or None
        1 minus that bound: no way of drafting n tokens from these models does without it.
    lost_to_construction : float or None
        That bound minus `bound`.
    lost_to_verifier : float or None
        `bound` minus `acceptance`. The three add up to 1 minus `acceptance`.
    positions : int
        Positions averaged over: those at which n tokens can be drafted.
    missing : tuple of Missing
        Why numbers are None although there were positions.
    """

    draft_model: str
    draft: str
    num_drafts: int
    temperature: float
    top_k: int | None
    top_p: float
    verifier: str
    acceptance: float | None
    stderr: float | None
    q10: float | None
    q50: float | None
    q90: float | None
    bound: float | None
    bound_stderr: float | None
    share_of_bound: float | None
    best_draft: str | None
    lost_to_model: float | None
    lost_to_construction: float | None
    lost_to_verifier: float | None
    positions: int
    missing: tuple[Missing, ...] = field(default=(), repr=False, metadata={"column": False})


def study_rows(found: CellFile) -> list[StudyRow]:
    """Average the numbers of a cell over its positions.

    Parameters
    ----------
    found : CellFile

    Returns
    -------
    list of StudyRow
        By draft distribution, best verifier first.
    """
    cell = found.cell
    masks = found.columns([each.drawable_column for each in cell.constructions])
    drawable = {each: masks[each.drawable_column] for each in cell.constructions}
    bounds: dict[Construction, _Summary] = {}
    means: dict[tuple[Construction, Construction], float] = {}
    for other in cell.constructions:  # one column in memory at a time
        missing = found.missing.get(other.bound_column)
        values = found.column(other.bound_column)
        for own, _ in cell.judged:
            chosen = drawable[own]
            if own == other:
                bounds[own] = _Summary(values[chosen], missing)
            # Where only some of the positions allow it, its mean would not compare.
            if missing is None and chosen.any() and drawable[other][chosen].all():
                means[own, other] = float(values[chosen].mean())
    rows: list[StudyRow] = []
    for construction, verifiers in cell.judged:
        chosen, bound = drawable[construction], bounds[construction]
        best = _best(construction, cell, means)
        judged = []
        for verifier in verifiers:
            column = construction.acceptance_column(verifier)
            rate = _Summary(found.column(column)[chosen], found.missing.get(column))
            judged.append(_row(cell, construction, verifier, bound, rate, *best, int(chosen.sum())))
        rows += best_first(judged)
    return rows


class _Summary:
    """Mean, standard error and quantiles over positions, or why there are none."""

    def __init__(self, values: FloatArray, missing: Missing | None) -> None:
        self.missing = missing
        known = values if missing is None else values[:0]
        self.mean, self.stderr = mean_of(known), stderr_of(known)
        self.quantiles = quantiles_of(known, (0.1, 0.5, 0.9))


def _best(
    own: Construction, cell: Cell, means: Mapping[tuple[Construction, Construction], float]
) -> tuple[Construction | None, float | None]:
    """Find the construction with the largest mean bound over the positions of a row."""
    best: tuple[Construction | None, float | None] = (None, None)
    # Its own first: where another is as good, nothing is lost to the construction.
    for construction in dict.fromkeys([own, *cell.constructions]):
        mean = means.get((own, construction))
        if mean is not None and (best[1] is None or mean > best[1] + _ROUNDING):
            best = construction, mean
    return best


def _row(
    cell: Cell,
    construction: Construction,
    verifier: str,
    bound: _Summary,
    rate: _Summary,
    best: Construction | None,
    best_bound: float | None,
    positions: int,
) -> StudyRow:
    several = len(cell.draft_models) > 1
    q10, q50, q90 = rate.quantiles
    return StudyRow(
        **cell.label,
        draft=construction.draft,
        verifier=verifier,
        acceptance=rate.mean,
        stderr=rate.stderr,
        q10=q10,
        q50=q50,
        q90=q90,
        bound=bound.mean,
        bound_stderr=bound.stderr,
        share_of_bound=_ratio(rate.mean, bound.mean),
        best_draft=None if best is None else best.label if several else best.draft,
        lost_to_model=_difference(1.0, best_bound),
        lost_to_construction=_difference(best_bound, bound.mean),
        lost_to_verifier=_difference(bound.mean, rate.mean),
        positions=positions,
        missing=tuple(each.missing for each in (bound, rate) if each.missing is not None),
    )


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _difference(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part
