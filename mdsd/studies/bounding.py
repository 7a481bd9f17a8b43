"""Acceptance bounds over the positions of a data set."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Unpack

from mdsd.datasets import Dataset
from mdsd.datasets.sources import open_given
from mdsd.drafts import Draft
from mdsd.filters import CUT_COLUMNS, CutOptions, check_filter_names
from mdsd.studies.cases import Progress, check_progress
from mdsd.studies.frames import Rows
from mdsd.studies.means import all_rows, bound_rows
from mdsd.studies.study_rows import BoundRow
from mdsd.studies.study_settings import study_settings


def bound(
    dataset: str | os.PathLike[str] | Dataset,
    *,
    num_drafts: Iterable[int] = (2, 3, 4),
    drafts: Iterable[Draft] | None = None,
    draft_models: Iterable[str] | None = None,
    temperatures: Iterable[float] = (1.0,),
    positions: int | None = None,
    progress: Progress | None = None,
    **filters: Unpack[CutOptions],
) -> Rows[BoundRow]:
    """Average the acceptance bounds of draft distributions over positions.

    Parameters
    ----------
    dataset : str, path-like or Dataset
        The name of an embedded data set, the path of an `.npz` file or of the folder of a capture,
        or a data set in memory.
    num_drafts, drafts, draft_models, temperatures, positions, progress, **filters
        As for `compare`.

    Returns
    -------
    Rows of BoundRow
        A tuple that `Rows.to_frame` makes a data frame of. By draft model, temperature, draft
        distribution and number of drafts. Numbers that were not
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
    check_filter_names(filters, CUT_COLUMNS)
    source = open_given("dataset", dataset)
    settings = study_settings(
        source,
        BoundRow,
        num_drafts=num_drafts,
        drafts=drafts,
        draft_models=draft_models,
        temperatures=temperatures,
        positions=positions,
        **filters,
    )
    return all_rows(bound_rows, source, settings, progress)
