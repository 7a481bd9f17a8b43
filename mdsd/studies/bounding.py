"""Acceptance bounds over the positions of a data set."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from mdsd.datasets import Dataset
from mdsd.studies.positions import Case, Progress, bound_value, check_progress, visits
from mdsd.studies.rows import BoundRow, Tally
from mdsd.studies.settings import Settings, bound_settings

__all__ = ["bound", "run_bound"]


def bound(
    dataset: Dataset,
    *,
    num_drafts: Iterable[int] = (2, 3, 4),
    drafts: Iterable[str] | None = None,
    draft_models: Iterable[str] | None = None,
    temperatures: Iterable[float] = (1.0,),
    top_k: int | None = None,
    top_p: float = 1.0,
    positions: int | None = None,
    progress: Progress | None = None,
) -> tuple[BoundRow, ...]:
    """Average the acceptance bounds of draft distributions over positions.

    Parameters
    ----------
    dataset : Dataset
        From `mdsd.datasets.load` or `mdsd.datasets.read_npz`.
    num_drafts, drafts, draft_models, temperatures, top_k, top_p, positions, progress
        As for `compare`.

    Returns
    -------
    tuple of BoundRow
        By draft model, temperature, draft distribution and number of drafts. Numbers that were not
        computed are None.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.

    Examples
    --------
    >>> from mdsd import datasets, studies
    >>> rows = studies.bound(
    ...     datasets.load("smollm2"), drafts=["with_replacement", "greedy"], positions=5
    ... )
    >>> for row in rows:
    ...     print(f"{row.draft:16} {row.num_drafts} {row.bound:.3f}")
    with_replacement 2 0.821
    with_replacement 3 0.893
    with_replacement 4 0.922
    greedy           2 0.735
    greedy           3 0.775
    greedy           4 0.790
    """
    check_progress(progress)
    settings = bound_settings(
        dataset,
        num_drafts=num_drafts,
        drafts=drafts,
        draft_models=draft_models,
        temperatures=temperatures,
        top_k=top_k,
        top_p=top_p,
        positions=positions,
    )
    return run_bound(dataset, settings, progress)


def run_bound(
    dataset: Dataset, settings: Settings, progress: Progress | None = None
) -> tuple[BoundRow, ...]:
    """Compute bounds as settings that were checked before say.

    Parameters
    ----------
    dataset : Dataset
    settings : Settings
        From `bound_settings`.
    progress : callable, optional
        Called with (steps done, all steps).

    Returns
    -------
    tuple of BoundRow
    """
    tallies = {case: Tally("bound") for case in settings.cases}
    drawable = dict.fromkeys(settings.cases, 0)
    for visit in visits(dataset, settings, progress):
        drawable[visit.case] += 1
        tallies[visit.case].add(
            partial(bound_value, visit, settings.search_tolerance),
            position=visit.position,
            tokens=visit.draft.vocab_size,
        )
    return tuple(_row(case, tallies[case], drawable[case]) for case in settings.cases)


def _row(case: Case, tally: Tally, positions: int) -> BoundRow:
    q10, q50, q90 = tally.quantiles((0.1, 0.5, 0.9))
    return BoundRow(
        **case.label,
        bound=tally.mean,
        bound_stderr=tally.stderr,
        q10=q10,
        q50=q50,
        q90=q90,
        positions=positions,
        values=tally.values,
        missing=() if tally.missing is None else (tally.missing,),
    )
