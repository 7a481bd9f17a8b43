"""A cell at one block of positions: the bound of every construction, and what verifiers attain.

This is what worker processes run. One thread does all of it, and nothing depends on what else the
study asks for, so that a block gives the same bits wherever and whenever it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mdsd._typing import AnyArray, BoolArray, FloatArray, IntArray
from mdsd.batch import acceptance_bounds, acceptance_rates
from mdsd.batch._threads import limit_threads
from mdsd.bounds import acceptance_bound
from mdsd.datasets import Dataset
from mdsd.drafts import IndependentDrafts
from mdsd.errors import SolverError, UnsupportedError
from mdsd.studies.grid.cells import Cell, Construction
from mdsd.studies.grid.settings import GridSettings
from mdsd.studies.positions import filtered
from mdsd.studies.rows import Missing
from mdsd.studies.settings import search_tolerance

__all__ = ["BlockValues", "block_values"]

_FAILURES = (UnsupportedError, SolverError)


@dataclass(frozen=True, eq=False)
class BlockValues:
    """Numbers of a cell at a block of positions.

    Attributes
    ----------
    columns : mapping of str to ndarray of bool or float64, shape (B,)
        By the names that `Construction` gives them: truth values where its tokens can be drafted,
        and numbers, NaN elsewhere and throughout a column that is missing.
    missing : mapping of str to Missing
        Why such a column is.
    """

    columns: Mapping[str, AnyArray]
    missing: Mapping[str, Missing]


def block_values(block: Dataset, start: int, cell: Cell, settings: GridSettings) -> BlockValues:
    """Compute the columns of a cell at some positions.

    Parameters
    ----------
    block : Dataset
        These positions.
    start : int
        Number of the first one, of which the seeds of estimates are made.
    cell : Cell
    settings : GridSettings

    Returns
    -------
    BlockValues
    """
    from threadpoolctl import threadpool_limits

    columns: dict[str, AnyArray] = {}
    missing: dict[str, Missing] = {}
    # The sums that BLAS splits among threads would end in other digits on other machines.
    with threadpool_limits(1), limit_threads(1):
        laws = _Laws(block, cell, settings.seeds(range(start, start + block.num_positions)))

        def fill(
            column: str, what: str, construction: Construction, compute: Callable[[IntArray], Any]
        ) -> None:
            rows = np.flatnonzero(columns[construction.drawable_column])
            columns[column] = np.full(block.num_positions, np.nan)
            found, failure = _computed(rows, compute)
            if failure is None:
                columns[column][rows] = found
                return
            row, reason = failure
            tokens = laws.live_tokens(construction, row)
            missing[column] = Missing(what, start + row, tokens, reason)

        asked = dict(cell.judged)
        for construction in cell.constructions:
            columns[construction.drawable_column] = laws.drawable(construction)
            bounds = partial(laws.bounds, construction)
            fill(construction.bound_column, "bound", construction, bounds)
            for name in asked.get(construction, ()):
                rates = partial(laws.rates, construction, settings, name)
                fill(construction.acceptance_column(name), name, construction, rates)
    return BlockValues(columns, missing)


def _computed(
    rows: IntArray, compute: Callable[[IntArray], Any]
) -> tuple[FloatArray, tuple[int, str] | None]:
    """Compute the numbers of some rows; if that fails, tell the first row that does, and why."""
    if not len(rows):
        return np.empty(0), None
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
    for row in rows:
        try:
            compute(np.array([row]))
        except _FAILURES as error:
            return int(row), str(error)
    return int(rows[0]), str(failed)  # a verifier of another package may fail in batches only


class _Laws:
    """Filtered laws of all models of a cell at all positions of a block."""

    def __init__(self, block: Dataset, cell: Cell, seeds: IntArray) -> None:
        self._cell, self._seeds = cell, seeds
        self._target = filtered(block.target_logits, block.target_kind, cell.filters)
        self._drafts = {
            model: filtered(block.draft_logits[model], block.draft_kind, cell.filters)
            for model in cell.draft_models
        }

    def drawable(self, construction: Construction) -> BoolArray:
        """Tell the positions at which n tokens can be drafted."""
        needed = self._cell.num_drafts if construction.draws_distinct else 1
        support = np.count_nonzero(self._drafts[construction.draft_models[0]], axis=1)
        return np.asarray(support >= needed)

    def live_tokens(self, construction: Construction, row: int) -> int:
        """Count the tokens with probability under the target or a draft at one position."""
        target, drafted = self._pairs(construction, np.array([row]))
        return int(((target[0] > 0.0) | (drafted.reshape(-1, target.shape[1]) > 0.0).any(0)).sum())

    def bounds(self, construction: Construction, rows: IntArray) -> FloatArray:
        """Compute the acceptance bounds at some positions."""
        target, drafted = self._pairs(construction, rows)
        tolerance = search_tolerance(target.shape[1])
        if len(construction.draft_models) > 1:
            return np.array(
                [_joint_bound(p, laws, tolerance) for p, laws in zip(target, drafted, strict=True)]
            )
        found: FloatArray = acceptance_bounds(
            target, drafted, draft=construction.draft, num_drafts=self._cell.num_drafts
        )
        return found

    def rates(
        self,
        construction: Construction,
        settings: GridSettings,
        name: str,
        rows: IntArray,
    ) -> FloatArray:
        """Compute what a verifier attains at some positions."""
        target, drafted = self._pairs(construction, rows)
        found: FloatArray = acceptance_rates(
            target,
            drafted,
            draft=construction.draft,
            num_drafts=self._cell.num_drafts,
            verifier=settings.verifier(name, search_tolerance(target.shape[1])),
            seeds=self._seeds[rows],
        )
        return found

    def _pairs(self, construction: Construction, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Give the laws of the target and of the drafts: (B, V), or (B, n, V) for independent."""
        drafted = [self._drafts[model][rows] for model in construction.draft_models]
        joint = construction.draft == IndependentDrafts.name
        return self._target[rows], np.stack(drafted, axis=1) if joint else drafted[0]


def _joint_bound(target: FloatArray, drafted: FloatArray, tolerance: float) -> float:
    """Bound independent drafts, without the tokens that no side has."""
    live = (target > 0.0) | (drafted > 0.0).any(axis=0)
    draft = IndependentDrafts(list(drafted[:, live]))
    return acceptance_bound(target[live], draft, tolerance=tolerance).value
