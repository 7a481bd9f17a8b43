"""Intervals of the acceptance bound over the positions of a log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any

from mdsd.datasets import LoggedPosition, TopLogprobs
from mdsd.drafts import Draft
from mdsd.errors import InvalidDistributionError, SolverError, UnsupportedError
from mdsd.intervals import AcceptanceInterval, acceptance_interval
from mdsd.studies.cases import Case, Progress, Steps, check_progress
from mdsd.studies.intervals.rows import IntervalRow
from mdsd.studies.intervals.settings import interval_settings
from mdsd.studies.rows import Tally
from mdsd.studies.settings import Cases

__all__ = ["interval", "run_interval"]

_NO_TOKEN = object()
"""A token that nobody else knows."""


def interval(
    log: TopLogprobs,
    *,
    num_drafts: Iterable[int] = (2, 3, 4),
    drafts: Iterable[Draft] | None = None,
    draft_models: Iterable[str] | None = None,
    positions: int | None = None,
    progress: Progress | None = None,
) -> tuple[IntervalRow, ...]:
    """Average the ends of the intervals that hold the acceptance bounds over positions.

    Parameters
    ----------
    log : TopLogprobs
        From `mdsd.datasets.read_jsonl` or `mdsd.datasets.scan_jsonl`.
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
    tuple of IntervalRow
        By draft model, draft distribution and number of drafts.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from mdsd import datasets, studies
    >>> path = Path(tempfile.mkdtemp()) / "mine.jsonl"
    >>> _ = path.write_text('{"target": {"a": -0.7, "b": -1.2}, "draft": {"a": -0.4, "b": -2.0}}')
    >>> (row,) = studies.interval(
    ...     datasets.read_jsonl(path), num_drafts=[2], drafts=["with_replacement"]
    ... )
    >>> f"{row.known_target_mass:.3f} {row.lower:.3f} {row.upper:.3f}"
    '0.798 0.749 0.951'
    """
    check_progress(progress)
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
) -> tuple[IntervalRow, ...]:
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
    tuple of IntervalRow
    """
    tallies = {case: _Tallies(case) for case in settings.cases}
    step = Steps(settings.positions, progress)
    for number, position in enumerate(islice(log.positions, settings.positions)):
        for tally in tallies.values():
            tally.add(position, number)
        step()
    return tuple(tally.row() for tally in tallies.values())


class _Tallies:
    """Numbers of one case."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._positions = 0
        self._lower, self._upper = Tally("lower"), Tally("upper")
        self._target, self._draft = Tally("known_target_mass"), Tally("known_draft_mass")

    def add(self, position: LoggedPosition, number: int) -> None:
        found: AcceptanceInterval | Exception
        try:
            found = _interval(self._case, position)
        except InvalidDistributionError:
            # The log itself was checked when it was read: there are too few tokens to draw.
            return
        except (UnsupportedError, SolverError) as error:
            found = error
        self._positions += 1
        drafts = [position.drafts[model] for model in self._case.draft_models]
        masses = [_mass(known) for known in drafts]
        tokens = len(position.target.keys() | set().union(*drafts))
        for tally, compute in (
            (self._lower, partial(_end, found, "lower")),
            (self._upper, partial(_end, found, "upper")),
            (self._target, partial(_mass, position.target)),
            (self._draft, partial(math.fsum, [mass / len(masses) for mass in masses])),
        ):
            tally.add(compute, position=number, tokens=tokens)

    def row(self) -> IntervalRow:
        lower, upper = self._lower.mean, self._upper.mean
        return IntervalRow(
            draft_model="+".join(self._case.draft_models),
            draft=self._case.kind.label,
            num_drafts=self._case.num_drafts,
            lower=lower,
            lower_stderr=self._lower.stderr,
            upper=upper,
            upper_stderr=self._upper.stderr,
            width=None if lower is None or upper is None else upper - lower,
            known_target_mass=self._target.mean,
            known_draft_mass=self._draft.mean,
            positions=self._positions,
            joint=self._case.kind.one_model_each,
            missing=tuple(t.missing for t in (self._lower, self._upper) if t.missing is not None),
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


def _end(found: AcceptanceInterval | Exception, name: str) -> float:
    if isinstance(found, Exception):
        raise found
    return float(getattr(found, name))


def _mass(known: Mapping[Any, float]) -> float:
    return math.fsum(map(math.exp, known.values()))
