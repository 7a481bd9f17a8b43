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
    from mdsd._solvers.hitting import _step
    from mdsd._solvers.prefix_draws import FEWEST_TOKENS
    from mdsd.batch._value_kernels import value_rows

    if value == Value.BOUND_WITHOUT and target.rows.shape[1] >= FEWEST_TOKENS:
        return values_of_rows(partial(_bound_without_replacement, num_drafts), target, drafted)
    values = np.empty(len(target.rows))
    sides = (target.rows, target.masses, drafted.rows, drafted.masses)
    work = partial(value_rows, int(value), num_drafts, _step(num_drafts), *sides, values)
    over_rows(work, *target.rows.shape)
    return values


def _bound_without_replacement(num_drafts: int, row: int, p: FloatArray, q: FloatArray) -> float:
    # Called row by row, which costs nothing beside so many tokens: inside `value_rows` it would
    # have to be compiled together with all the other values.
    from mdsd._solvers.hitting import _step
    from mdsd._solvers.prefix_draws import value_without_replacement
    from mdsd.batch._value_kernels import bound_over_all_prefixes

    found = value_without_replacement(p, q, num_drafts)
    if found is not None:
        return found
    return min(float(bound_over_all_prefixes(p, q, num_drafts, _step(num_drafts))), 1.0)


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
