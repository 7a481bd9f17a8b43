"""Acceptance bounds and rates of whole batches, by compiled code on all cores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from mdsd._typing import FloatArray
from mdsd.batch._inputs import BatchProbs
from mdsd.batch._rules import Value
from mdsd.batch._threads import over_rows


def closed_values(
    value: Value, target: BatchProbs, drafted: BatchProbs, num_drafts: int
) -> FloatArray:
    """Compute a value in closed form of each row, (B,)."""
    from mdsd.batch._value_kernels import value_rows
    from solvers.hitting import _step

    values = np.empty(len(target.rows))
    sides = (target.rows, target.masses, drafted.rows, drafted.masses)
    work = partial(value_rows, int(value), num_drafts, _step(num_drafts), *sides, values)
    over_rows(work, *target.rows.shape)
    return values


def values_of_rows(
    value: Callable[[int, FloatArray, FloatArray], float], target: BatchProbs, drafted: BatchProbs
) -> FloatArray:
    """Compute ``value(row, p, q)`` of each row, (B,), on its tokens that can be produced."""
    from mdsd.batch._value_kernels import live_pair

    values = np.empty(len(target.rows))

    def work(start: int, stop: int) -> None:
        for r in range(start, stop):
            sides = target.rows[r], target.masses[r], drafted.rows[r], drafted.masses[r]
            values[r] = value(r, *live_pair(*sides))

    over_rows(work, *target.rows.shape)
    return values
