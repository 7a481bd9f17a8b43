"""A cell at one block of positions: the bounds of its drafts, and what verifiers attain.

This is what worker processes run. One thread does all of it, and nothing depends on what else the
study asks for, so that a block gives the same bits wherever and whenever it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from mdsd._typing import AnyArray, BoolArray, FloatArray, IntArray
from mdsd.batch import acceptance_bounds, acceptance_rates
from mdsd.batch._rules import bound_of
from mdsd.batch._threads import limit_threads
from mdsd.bounds import acceptance_bound
from mdsd.datasets import Dataset, Source
from mdsd.drafts import DraftDistribution, DraftKind
from mdsd.errors import SolverError, UnsupportedError
from mdsd.filters import Filters
from mdsd.studies.cases import Progress, Steps
from mdsd.studies.cells import TEXT_COLUMN, Cell, DraftedFrom
from mdsd.studies.study_rows import Missing
from mdsd.studies.study_settings import StudySettings, search_tolerance

_STEP_NUMBERS = 2**20
"""Drafts times tokens of the positions computed in one step, of which progress is told."""

_FAILURES = (UnsupportedError, SolverError)


@dataclass(frozen=True, eq=False)
class BlockValues:
    """Numbers of a cell at a block of positions.

    Attributes
    ----------
    columns : mapping of str to ndarray of bool, float64 or int64, shape (B,)
        By the names that `DraftedFrom` gives them: truth values where its tokens can be drafted,
        and numbers, NaN elsewhere and throughout a column that is missing. Besides `TEXT_COLUMN`:
        numbers of texts, NaN where the data do not say.
    missing : mapping of str to Missing
        Why such a column is.
    """

    columns: Mapping[str, AnyArray]
    missing: Mapping[str, Missing]

    def column(self, name: str) -> AnyArray:
        """Give one column."""
        return self.columns[name]


class FilteredBlock:
    """Filtered distributions at some positions, each made when it is first asked for.

    Parameters
    ----------
    block : Dataset
    filters : Filters
    """

    def __init__(self, block: Dataset, filters: Filters) -> None:
        self._block, self._filters = block, filters
        self._drafts: dict[str, FloatArray] = {}
        self.target = filters.of_table(block.target_table, block.target_kind)

    @property
    def text_ids(self) -> AnyArray:
        """Which text each position is of, (B,); NaN where the data do not say."""
        known = self._block.text_ids
        return np.full(len(self.target), np.nan) if known is None else known

    def draft(self, model: str) -> FloatArray:
        """Give the output distributions of a draft model, shape (B, V)."""
        if model not in self._drafts:
            table = self._block.draft_tables[model]
            self._drafts[model] = self._filters.of_table(table, self._block.draft_kind)
        return self._drafts[model]


def study_blocks(source: Source, positions: int) -> Iterator[tuple[int, int]]:
    """List the blocks of a study of the first positions."""
    for start, stop in source.blocks:
        if start < positions:
            yield start, min(stop, positions)


def all_values(
    source: Source, settings: StudySettings, progress: Progress | None = None
) -> dict[Cell, BlockValues]:
    """Compute all cells at all positions, in memory.

    Parameters
    ----------
    source : Source
    settings : StudySettings
    progress : callable, optional
        Called with (steps done, all steps); a step is a cell at a position.

    Returns
    -------
    dict of (Cell, BlockValues)
    """
    step = Steps(len(settings.cells) * settings.positions, progress)
    parts: dict[Cell, list[BlockValues]] = {cell: [] for cell in settings.cells}
    for start, stop in study_blocks(source, settings.positions):
        data = source.read(start, stop)
        for filters, cells in groupby(settings.cells, key=lambda cell: cell.filters):
            block = FilteredBlock(data, filters)
            for cell in cells:
                parts[cell].append(block_values(block, start, cell, settings, step))
    return {cell: _joined(cell, found) for cell, found in parts.items()}


def _joined(cell: Cell, parts: Sequence[BlockValues]) -> BlockValues:
    columns = {
        name: np.concatenate([part.columns[name] for part in parts]) for name in cell.columns
    }
    missing: dict[str, Missing] = {}
    for part in parts:
        missing = {**part.missing, **missing}
    return BlockValues(columns, missing)


def block_values(
    block: FilteredBlock,
    start: int,
    cell: Cell,
    settings: StudySettings,
    step: Callable[[int], object] = lambda _: None,
) -> BlockValues:
    """Compute the columns of a cell at some positions.

    Parameters
    ----------
    block : FilteredBlock
        These positions, under the filters of the cell.
    start : int
        Number of the first one, of which the seeds of estimates are made.
    cell : Cell
    settings : StudySettings
    step : callable, optional
        Told of positions that are done, so many at a time as take a moment.

    Returns
    -------
    BlockValues
    """
    from threadpoolctl import threadpool_limits

    columns: dict[str, AnyArray] = {TEXT_COLUMN: block.text_ids}
    missing: dict[str, Missing] = {}
    asked = dict(cell.asked)
    seeds = settings.seeds(range(start, start + len(block.target)))
    size = len(block.target)
    few = max(1, _STEP_NUMBERS // (block.target.shape[1] * cell.num_drafts))
    # The sums that BLAS splits among threads would end in other digits on other machines.
    with threadpool_limits(1), limit_threads(1):
        made = [
            (each, _Drafted(block, each, cell.num_drafts, settings, seeds)) for each in cell.drafted
        ]
        for each, drafted in made:
            columns[each.drawable_column] = drafted.drawable
            names = (each.bound_column, *map(each.acceptance_column, asked.get(each, ())))
            columns |= {name: np.full(size, np.nan) for name in names}
        for first in range(0, size, few):
            stop = min(first + few, size)
            for each, drafted in made:
                wanted = {each.bound_column: ("bound", drafted.bounds)} | {
                    each.acceptance_column(name): (name, partial(drafted.rates, name))
                    for name in asked.get(each, ())
                }
                for rows in drafted.parts(first, stop):
                    for column, (what, compute) in wanted.items():
                        if column in missing:
                            continue
                        found, failure = _computed(rows, compute)
                        if failure is None:
                            columns[column][rows] = found
                            continue
                        row, reason = failure
                        columns[column][:] = np.nan
                        tokens = drafted.live_tokens(row)
                        missing[column] = Missing(what, start + row, tokens, reason)
            step(stop - first)
    return BlockValues(columns, missing)


def _computed(
    rows: IntArray, compute: Callable[[IntArray], Any]
) -> tuple[FloatArray, tuple[int, str] | None]:
    """Compute the numbers of some rows; if that fails, tell the first row that does, and why."""
    try:
        found = np.asarray(compute(rows))
    except _FAILURES as error:
        return np.empty(0), _first_failure(rows, compute, error)
    for place in np.flatnonzero(~np.isfinite(found))[:1]:
        return found, (int(rows[place]), f"its value is {float(found[place])!r}")
    return found, None


def _first_failure(
    rows: IntArray, compute: Callable[[IntArray], Any], failed: Exception
) -> tuple[int, str]:
    for row in rows if len(rows) > 1 else ():
        try:
            compute(np.array([row]))
        except _FAILURES as error:
            return int(row), str(error)
    return int(rows[0]), str(failed)  # a verifier of another package may fail in batches only


class _Drafted:
    """Drafts of one kind at all positions of a block."""

    def __init__(
        self,
        block: FilteredBlock,
        drafted: DraftedFrom,
        num_drafts: int,
        settings: StudySettings,
        seeds: AnyArray,
    ) -> None:
        self._settings, self._seeds = settings, seeds
        self._kind, self._num_drafts = settings.kind(drafted.draft), num_drafts
        tables = [block.draft(model) for model in drafted.draft_models]
        self._target = block.target
        self._probs = np.stack(tables, axis=1) if self._kind.one_model_each else tables[0]
        self._tolerance = search_tolerance(block.target.shape[1])
        self._compiled = bound_of(self._kind.example(num_drafts)) is not None
        self._made: tuple[int, FloatArray, DraftDistribution] | None = None
        self.drawable = self._kind.drawable(self._probs, num_drafts)

    def parts(self, start: int, stop: int) -> list[IntArray]:
        """Split some positions, where n tokens can be drafted, into those computed together."""
        rows = start + np.flatnonzero(self.drawable[start:stop])
        if self._compiled or not len(rows):
            return [rows] * bool(len(rows))
        # One by one, so that what is found for the bound of a draft serves its verifiers.
        return np.split(rows, len(rows))

    def live_tokens(self, row: int) -> int:
        """Count the tokens with probability under the target or a draft at one position."""
        return int(np.count_nonzero(self._live(row)))

    def bounds(self, rows: IntArray) -> FloatArray:
        """Compute the acceptance bounds at some positions."""
        if not self._compiled:
            return np.array(
                [acceptance_bound(*self._at(row), tolerance=self._tolerance).value for row in rows]
            )
        found: FloatArray = acceptance_bounds(
            self._target[rows], self._probs[rows], draft=self._kind, num_drafts=self._num_drafts
        )
        return found

    def rates(self, name: str, rows: IntArray) -> FloatArray:
        """Compute what a verifier attains at some positions."""
        if not self._compiled:
            return np.array([self._rate(name, row) for row in rows])
        found: FloatArray = acceptance_rates(
            self._target[rows],
            self._probs[rows],
            draft=self._kind,
            num_drafts=self._num_drafts,
            verifier=self._settings.verifier_for_many(name, self._tolerance),
            seeds=self._seeds[rows],
        )
        return found

    def _rate(self, name: str, row: int) -> float:
        verifier = self._settings.verifier(name, self._tolerance, int(self._seeds[row]))
        return verifier.plan(*self._at(row)).acceptance_rate

    def _at(self, row: int) -> tuple[FloatArray, DraftDistribution]:
        """Give target and draft at one position, the same ones for all that is asked of it."""
        if self._made is None or self._made[0] != row:
            made = at_position(self._kind, self._num_drafts, self._target[row], self._probs[row])
            self._made = row, *made
        return self._made[1:]

    def _live(self, row: int) -> BoolArray:
        return _live_tokens(self._target[row], self._probs[row])


def at_position(
    kind: DraftKind, num_drafts: int, target: FloatArray, probs: FloatArray
) -> tuple[FloatArray, DraftDistribution]:
    """Make target and draft of one position, without the tokens that neither has.

    Parameters
    ----------
    kind : DraftKind
    num_drafts : int
    target : ndarray of float64, shape (V,)
    probs : ndarray of float64, shape (V,), or (n, V) where each draft has its own model

    Returns
    -------
    target : ndarray of float64, shape (W,)
    draft : DraftDistribution
    """
    # Padding, and tokens that no side has, change nothing but the size; of a distribution that is
    # not known here they may be a part.
    if not kind.draft_type.declared:
        return target, kind.make(probs, num_drafts)
    kept = _live_tokens(target, probs)
    return target[kept], kind.make(probs[..., kept], num_drafts)


def _live_tokens(target: FloatArray, probs: FloatArray) -> BoolArray:
    return np.asarray((target > 0.0) | (np.atleast_2d(probs) > 0.0).any(axis=0))
