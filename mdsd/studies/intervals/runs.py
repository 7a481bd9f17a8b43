"""Intervals of the acceptance bound over the positions of a log."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from mdsd.datasets import LoggedPosition, TopLogprobs, scan_jsonl
from mdsd.drafts import Draft
from mdsd.errors import InvalidDistributionError, SolverError, UnsupportedError
from mdsd.intervals import AcceptanceInterval, acceptance_interval
from mdsd.studies.cases import Case, Progress, Steps, check_progress
from mdsd.studies.frames import Rows
from mdsd.studies.intervals.interval_rows import IntervalRow
from mdsd.studies.intervals.interval_settings import interval_settings
from mdsd.studies.study_rows import Mean, Missing
from mdsd.studies.study_settings import Cases

_NO_TOKEN = object()
"""A token that nobody else knows."""


def interval(
    log: str | os.PathLike[str] | TopLogprobs,
    *,
    num_drafts: Iterable[int] = (2, 3, 4),
    drafts: Iterable[Draft] | None = None,
    draft_models: Iterable[str] | None = None,
    positions: int | None = None,
    progress: Progress | None = None,
) -> Rows[IntervalRow]:
    """Average the ends of the intervals that hold the acceptance bounds over positions.

    Parameters
    ----------
    log : str, path-like or TopLogprobs
        The path of a `.jsonl` file, or what `mdsd.datasets.read_jsonl` or `scan_jsonl` read.
    num_drafts : iterable of int, default (2, 3, 4)
        Numbers n of draft tokens.
    drafts : iterable of (str or DraftKind), optional
        Of with_replacement, without_replacement, independent and greedy; all that apply if None.
        "independent" takes the first n draft models and needs as many.
    draft_models : iterable of str, optional
        Draft models for all but "independent"; the first of the log if None.
    positions : int, optional
        Use only the first ones.
    progress : callable, optional
        Called with (positions done, all positions).

    Returns
    -------
    Rows of IntervalRow
        By draft model, draft distribution and number of drafts.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from mdsd import studies
    >>> path = Path(tempfile.mkdtemp()) / "mine.jsonl"
    >>> _ = path.write_text('{"target": {"a": -0.7, "b": -1.2}, "draft": {"a": -0.4, "b": -2.0}}')
    >>> (row,) = studies.interval(path, num_drafts=[2], drafts=["with_replacement"])
    >>> f"{row.known_target_mass:.3f} {row.lower:.3f} {row.upper:.3f}"
    '0.798 0.749 0.951'
    """
    check_progress(progress)
    if isinstance(log, (str, os.PathLike)):
        log = scan_jsonl(log)
    settings = interval_settings(
        log,
        num_drafts=num_drafts,
        drafts=drafts,
        draft_models=draft_models,
        positions=positions,
    )
    return run_interval(log, settings, progress)


def run_interval(
    log: TopLogprobs, settings: Cases, progress: Progress | None = None
) -> Rows[IntervalRow]:
    """Compute intervals as settings that were checked before say.

    Parameters
    ----------
    log : TopLogprobs
        Gone through once.
    settings : Cases
    progress : callable, optional
        Called with (positions done, all positions).

    Returns
    -------
    Rows of IntervalRow
    """
    found: dict[Case, list[_Ends]] = {case: [] for case in settings.cases}
    missing: dict[Case, Missing] = {}
    step = Steps(settings.positions, progress)
    for number, position in enumerate(islice(log.positions, settings.positions)):
        for case, known in found.items():
            drafts = [position.drafts[model] for model in case.draft_models]
            ends = AcceptanceInterval(math.nan, math.nan)
            try:
                ends = _interval(case, position)
            except InvalidDistributionError:
                # The log itself was checked when it was read: there are too few tokens to draw.
                continue
            except (UnsupportedError, SolverError) as error:
                tokens = len(position.target.keys() | set().union(*drafts))
                missing.setdefault(case, Missing("lower", number, tokens, str(error)))
            drafted = math.fsum(_mass(tokens) / len(drafts) for tokens in drafts)
            known.append((ends.lower, ends.upper, _mass(position.target), drafted))
        step()
    return Rows(_row(case, known, missing.get(case)) for case, known in found.items())


_Ends = tuple[float, float, float, float]
"""Of one position: lower and upper end, known mass of the target and of the draft."""


def _row(case: Case, known: list[_Ends], missing: Missing | None) -> IntervalRow:
    columns = np.array(known).reshape(-1, 4).T
    lower, upper = (Mean(values, missing) for values in columns[:2])
    return IntervalRow(
        draft_model="+".join(case.draft_models),
        draft=case.kind.label,
        num_drafts=case.num_drafts,
        lower=lower.mean,
        lower_stderr=lower.stderr,
        upper=upper.mean,
        upper_stderr=upper.stderr,
        width=None if lower.mean is None or upper.mean is None else upper.mean - lower.mean,
        known_target_mass=Mean(columns[2]).mean,
        known_draft_mass=Mean(columns[3]).mean,
        positions=len(known),
        joint=case.kind.one_model_each,
        missing=() if missing is None else (missing, replace(missing, what="upper")),
    )


def _interval(case: Case, position: LoggedPosition) -> AcceptanceInterval:
    drafts = [_not_empty(position.drafts[model]) for model in case.draft_models]
    known = drafts if case.kind.one_model_each else drafts[0]
    return acceptance_interval(
        _not_empty(position.target), known, draft=case.kind, num_drafts=case.num_drafts
    )


def _not_empty(known: Mapping[Any, float]) -> Mapping[Any, float]:
    """Give at least one token: where a log tells nothing, one that is never drawn tells no more."""
    return known or {_NO_TOKEN: -math.inf}


def _mass(known: Mapping[Any, float]) -> float:
    return math.fsum(map(math.exp, known.values()))
