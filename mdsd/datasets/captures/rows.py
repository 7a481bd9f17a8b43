"""Positions of a capture as columns: ragged lists end to end, checked, and padded to tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mdsd._arguments import row_name
from mdsd._frozen import frozen
from mdsd._typing import AnyArray, BoolArray, FloatArray, IntArray
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

__all__ = [
    "CaptureRows",
    "check_rows",
    "logprob_columns",
    "mass_columns",
    "padded_ids",
    "padded_logprobs",
    "select",
]

MOST_LOGPROB = 1e-4
MOST_MASS = 1.0 + 1e-6
MASS_TOLERANCE = 1e-2
"""Room for rounding: of log-probabilities above 0, of masses above 1, and of the kept mass that a
row states against the one of its log-probabilities, which may have been float16 or bfloat16."""


@dataclass(frozen=True, eq=False)
class CaptureRows:
    """N positions; the lists of row i are at ``offsets[i]`` to ``offsets[i + 1]``.

    Attributes
    ----------
    text, token : ndarray of int64, shape (N,)
        Which text, and the number of the last token of the context in it.
    offsets : ndarray of int64, shape (N + 1,)
        From 0 to the length of the flat arrays.
    token_ids : ndarray of int32 or int64, flat
    logprobs : tuple of ndarray of float32, flat
        Of the target and of each draft model.
    kept_masses : tuple of ndarray of float64, shape (N,)
        The same order.
    """

    text: IntArray
    token: IntArray
    offsets: IntArray
    token_ids: NDArray[np.int32] | IntArray
    logprobs: tuple[NDArray[np.float32], ...]
    kept_masses: tuple[FloatArray, ...]

    def __len__(self) -> int:
        return len(self.text)


def logprob_columns(num_drafts: int) -> tuple[str, ...]:
    """Name the columns of log-probabilities.

    Examples
    --------
    >>> logprob_columns(2)
    ('target_logprobs', 'draft_logprobs_0', 'draft_logprobs_1')
    """
    return ("target_logprobs", *(f"draft_logprobs_{model}" for model in range(num_drafts)))


def mass_columns(num_drafts: int) -> tuple[str, ...]:
    """Name the columns of kept masses.

    Examples
    --------
    >>> mass_columns(1)
    ('target_kept_mass', 'draft_kept_mass_0')
    """
    return ("target_kept_mass", *(f"draft_kept_mass_{model}" for model in range(num_drafts)))


def select(rows: CaptureRows, start: int, stop: int) -> CaptureRows:
    """Take rows ``start`` to ``stop``, without a copy of the flat arrays."""
    first, last = rows.offsets[start], rows.offsets[stop]
    return CaptureRows(
        text=rows.text[start:stop],
        token=rows.token[start:stop],
        offsets=rows.offsets[start : stop + 1] - first,
        token_ids=rows.token_ids[first:last],
        logprobs=tuple(values[first:last] for values in rows.logprobs),
        kept_masses=tuple(masses[start:stop] for masses in rows.kept_masses),
    )


# --- checks --------------------------------------------------------------------------------------


def check_rows(rows: CaptureRows, vocab_size: int, where: str, first_row: int = 0) -> None:
    """Check that every row is a set of tokens with laws over it.

    Parameters
    ----------
    rows : CaptureRows
    vocab_size : int
        V; token ids are below it.
    where : str
        What begins a message, such as the file.
    first_row : int, default 0
        The number of the first row there.

    Raises
    ------
    InvalidDistributionError
        If log-probabilities are NaN or above 0, all of a row are -inf, or their mass is not the
        kept mass of the row.
    InvalidArgumentError
        If token ids do not rise or are out of range, or a kept mass is, or a number of a text.
    """
    _Checks(rows, vocab_size, where, first_row).run()


@dataclass(frozen=True, eq=False)
class _Checks:
    rows: CaptureRows
    vocab_size: int
    where: str
    first_row: int

    def run(self) -> None:
        rows = self.rows
        for column, numbers in (("text", rows.text), ("token", rows.token)):
            for row in _first(numbers < 0):
                raise InvalidArgumentError(
                    f"{self._row(column, row)} is {numbers[row]}; expected a number >= 0"
                )
        for row in _first(np.diff(rows.offsets) == 0):
            raise InvalidDistributionError(f"{self._row('token_ids', row)} is empty")
        self._check_ids()
        num_drafts = len(rows.logprobs) - 1
        columns = zip(
            logprob_columns(num_drafts),
            rows.logprobs,
            mass_columns(num_drafts),
            rows.kept_masses,
            strict=True,
        )
        for logprob_column, values, mass_column, masses in columns:
            self._check_masses(mass_column, masses)
            self._check_logprobs(logprob_column, values, mass_column, masses)

    def _check_ids(self) -> None:
        ids, starts = self.rows.token_ids, self.rows.offsets[:-1]
        rising = ids[1:] > ids[:-1]
        rising[starts[1:] - 1] = True  # from one row to the next
        for place in _first(~rising):
            row, index = self._find(place + 1)
            problem = f"index {index} is {ids[place + 1]} after {ids[place]}"
            raise InvalidArgumentError(
                f"{self._row('token_ids', row)}: {problem}; expected ascending ids"
            )
        ends = self.rows.offsets[1:] - 1
        for out in (starts[ids[starts] < 0], ends[ids[ends] >= self.vocab_size]):
            for place in out[:1]:
                row, index = self._find(place)
                raise InvalidArgumentError(
                    f"{self._row('token_ids', row)}: index {index} is {ids[place]}; "
                    f"expected ids from 0 to {self.vocab_size - 1}"
                )

    def _check_masses(self, column: str, masses: FloatArray) -> None:
        for row in _first(~((masses >= 0.0) & (masses <= MOST_MASS))):
            raise InvalidArgumentError(
                f"{self._row(column, row)} is {float(masses[row])!r}; expected a mass in [0, 1]"
            )

    def _check_logprobs(
        self, column: str, values: NDArray[np.float32], mass_column: str, stated: FloatArray
    ) -> None:
        if not values.max() <= MOST_LOGPROB:  # NaN is not
            for place in _first(~(values <= MOST_LOGPROB)):
                row, index = self._find(place)
                raise InvalidDistributionError(
                    f"{self._row(column, row)}: index {index} is {values[place]!s}; "
                    "log-probabilities are at most 0"
                )
        starts = self.rows.offsets[:-1]
        found = np.add.reduceat(np.exp(values), starts, dtype=np.float64)
        for row in _first((found == 0.0) & (np.maximum.reduceat(values, starts) == -np.inf)):
            raise InvalidDistributionError(
                f"{self._row(column, row)} has empty support: every log-probability is -inf"
            )
        for row in _first(np.abs(found - stated) > MASS_TOLERANCE):
            raise InvalidDistributionError(
                f"{self._row(column, row)} has mass {found[row]:.6g}, "
                f"but {mass_column} is {stated[row]:.6g}"
            )

    def _row(self, column: str, row: int) -> str:
        return f"{self.where}: {row_name(column, [self.first_row + row])}"

    def _find(self, place: int) -> tuple[int, int]:
        """Find the row of a place in the flat arrays, and the index in it."""
        row = int(np.searchsorted(self.rows.offsets, place, side="right")) - 1
        return row, int(place - self.rows.offsets[row])


def _first(bad: BoolArray) -> Iterator[int]:
    """Give the first index at which something is wrong, if there is one."""
    if bad.any():
        yield int(bad.argmax())


# --- tables --------------------------------------------------------------------------------------


def padded_ids(parts: Sequence[CaptureRows]) -> IntArray:
    """Set rows under each other: shape (N, K), -1 after the end of a row."""
    table = np.full(_shape(parts), -1, dtype=np.int64)
    _fill(table, parts, [rows.token_ids for rows in parts])
    return frozen(table)


def padded_logprobs(parts: Sequence[CaptureRows], model: int) -> FloatArray:
    """Set the log-probabilities of one model under each other, -inf after the end of a row."""
    table = np.full(_shape(parts), -np.inf)
    _fill(table, parts, [rows.logprobs[model] for rows in parts])
    return frozen(table)


def _shape(parts: Sequence[CaptureRows]) -> tuple[int, int]:
    longest = max(int(np.diff(rows.offsets).max()) for rows in parts)
    return sum(map(len, parts)), longest


def _fill(
    table: NDArray[np.float64] | IntArray,
    parts: Sequence[CaptureRows],
    flat: Sequence[AnyArray],
) -> None:
    columns = np.arange(table.shape[1])
    stop = 0
    for rows, values in zip(parts, flat, strict=True):
        start, stop = stop, stop + len(rows)
        inside = columns < np.diff(rows.offsets)[:, np.newaxis]
        table[start:stop][inside] = values
