"""What simulations of decoding on a chain share: draws by row, and counts of rejections."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mdsd._frozen import FrozenArrays
from mdsd._typing import FloatArray, IntArray

DEFAULT_RUNS = 100_000
"""Runs of a simulation, unless asked otherwise."""

_BLOCK = 1 << 16
"""Most runs simulated side by side: their arrays stay in the cache."""


@dataclass(frozen=True, eq=False)
class SimulatedRejections(FrozenArrays):
    """Number of rejections in a simulation.

    Attributes
    ----------
    mean : float
        Mean number of rejections up to the horizon.
    stderr : float
        Its standard error (runs - 1 in the variance).
    runs : int
        Independent sequences simulated.
    mean_by_horizon, stderr_by_horizon : ndarray of float64, shape (T,)
        The same up to each position: entry t - 1 counts positions 1 to t of the same runs.

    Examples
    --------
    >>> from mdsd.analysis import simulate_rejections
    >>> chain, other = [[0.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]
    >>> found = simulate_rejections(chain, other, 3, [0.5, 0.5], runs=10, rng=0)
    >>> found.mean, found.stderr, found.mean_by_horizon.tolist()
    (3.0, 0.0, [1.0, 2.0, 3.0])
    """

    mean: float
    stderr: float
    runs: int
    mean_by_horizon: FloatArray
    stderr_by_horizon: FloatArray


class RejectionTally:
    """Counts rejections by horizon over any number of runs, in exact integers."""

    def __init__(self, horizon: int) -> None:
        self._sums = [0] * horizon
        self._squares = [0] * horizon

    def add(self, position: int, counts: IntArray) -> None:
        """Add the rejections that some runs have had up to a position."""
        self._sums[position] += int(counts.sum())
        self._squares[position] += int(counts @ counts)

    def result(self, runs: int) -> SimulatedRejections:
        """Give the means and their standard errors."""
        means = [total / runs for total in self._sums]
        errors = [
            math.sqrt((runs * square - total * total) / (runs - 1)) / runs
            for total, square in zip(self._sums, self._squares, strict=True)
        ]
        return SimulatedRejections(means[-1], errors[-1], runs, np.array(means), np.array(errors))


class RowSampler:
    """Draws tokens from the rows of a matrix, for many rows at once, by inverse CDF.

    Parameters
    ----------
    masses : ndarray of float64, shape (S, V)
        Masses >= 0, not necessarily normalised. A row without mass cannot be drawn from.

    Notes
    -----
    Buckets are half-open and the search ends at the last token with mass, so no token of mass 0 is
    drawn. All searches take the same steps, whose number depends on V only.

    Examples
    --------
    >>> import numpy as np
    >>> sampler = RowSampler(np.array([[0.5, 0.0, 0.5], [0.0, 3.0, 0.0]]))
    >>> sampler.draw(np.array([0, 0, 1]), np.array([0.4, 0.5, 0.9])).tolist()
    [0, 2, 1]
    """

    def __init__(self, masses: FloatArray) -> None:
        count, vocab_size = masses.shape
        cumulative = np.cumsum(masses, axis=1)
        self._totals = np.ascontiguousarray(cumulative[:, -1])
        # The first id at which the sum reaches its total is the last one with mass.
        self._last = np.argmax(cumulative == self._totals[:, np.newaxis], axis=1)
        self._steps = [1 << k for k in reversed(range(vocab_size.bit_length()))]
        self._width = 2 * self._steps[0] - 1
        # Beyond the vocabulary every sum is too large, so that no step needs a bound.
        padded = np.full((count, self._width), np.inf)
        padded[:, :vocab_size] = cumulative
        self._sums = padded.ravel()

    def draw(self, rows: IntArray, uniforms: FloatArray) -> IntArray:
        """Draw one token for each row number, (B,), from a uniform in [0, 1), (B,)."""
        sought = uniforms * self._totals[rows]
        first = rows * self._width
        place = first.copy()  # of the first sum above the one sought, among those ruled in
        for step in self._steps:
            place += step * (self._sums[place + (step - 1)] <= sought)
        return np.asarray(np.minimum(place - first, self._last[rows]))


def blocks(runs: int) -> Iterator[int]:
    """Cut a number of runs into numbers that are simulated side by side.

    Examples
    --------
    >>> list(blocks(150_000))
    [65536, 65536, 18928]
    """
    for start in range(0, runs, _BLOCK):
        yield min(_BLOCK, runs - start)


def mean_and_stderr(values: FloatArray) -> tuple[float, float]:
    """Mean of one number a run, and its standard error; NaN for a single one."""
    scatter = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return float(values.mean()), scatter / math.sqrt(len(values))
