"""Compare verifiers over the positions of a data set."""

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
from mdsd.studies.means import all_rows, compare_rows
from mdsd.studies.study_rows import CompareRow
from mdsd.studies.study_settings import study_settings
from mdsd.verifiers import Verifier


def compare(
    dataset: str | os.PathLike[str] | Dataset,
    *,
    num_drafts: Iterable[int] = (2, 3, 4),
    drafts: Iterable[Draft] | None = None,
    draft_models: Iterable[str] | None = None,
    verifiers: Iterable[str | Verifier] | None = None,
    against: str | None = None,
    temperatures: Iterable[float] = (1.0,),
    positions: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **filters: Unpack[CutOptions],
) -> Rows[CompareRow]:
    """Average the acceptance of verifiers, and the bound they cannot exceed, over positions.

    Parameters
    ----------
    dataset : str, path-like or Dataset
        The name of an embedded data set, the path of an `.npz` file or of the folder of a capture,
        or a data set in memory.
    num_drafts : iterable of int, default (2, 3, 4)
        Numbers n of draft tokens.
    drafts : iterable of (str or DraftKind), optional
        Kinds of drafts, or their labels; all that apply if None. "spechub" applies to n = 2;
        "independent" takes the first n draft models and needs as many.
    draft_models : iterable of str, optional
        Draft models for all but "independent"; the first of the data set if None.
    verifiers : iterable of str or Verifier, optional
        Names or verifiers of one's own; all registered ones if None. Each is used where it
        supports the draft distribution.
    against : str, optional
        The verifier with which all are compared, position by position; it joins `verifiers`. If
        None, "rrs" where it is among them.
    temperatures : iterable of float, default (1.0,)
    positions : int, optional
        Use only the first ones.
    seed : int, default 0
        Seed of acceptance rates that are estimated; a verifier given as an object keeps its own.
    progress : callable, optional
        Called with (steps done, all steps).
    **filters
        Of target and draft alike, such as `top_k` and `top_p` of `mdsd.probs_from_logits`.

    Returns
    -------
    Rows of CompareRow
        A tuple that `Rows.to_frame` makes a data frame of. By draft model, temperature, draft
        distribution and number of drafts, best first; a row's numbers do not depend on which other
        rows were asked for. Numbers that were not computed are None. They are those of `study` for
        the same data and options.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.

    Examples
    --------
    >>> from mdsd import datasets, studies
    >>> rows = studies.compare(
    ...     datasets.load("smollm2"), num_drafts=[2], drafts=["greedy"], positions=5
    ... )
    >>> [(row.verifier, round(row.acceptance, 3), row.positions) for row in rows]
    [('greedy', 0.735, 5), ('optimal', 0.735, 5), ('naive', 0.269, 5)]
    """
    check_progress(progress)
    check_filter_names(filters, CUT_COLUMNS)
    source = open_given("dataset", dataset)
    settings = study_settings(
        source,
        CompareRow,
        num_drafts=num_drafts,
        drafts=drafts,
        draft_models=draft_models,
        verifiers=verifiers,
        against=against,
        temperatures=temperatures,
        positions=positions,
        seed=seed,
        **filters,
    )
    return all_rows(compare_rows, source, settings, progress)
