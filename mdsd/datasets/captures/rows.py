"""Positions of a capture as columns: ragged lists end to end, checked, and padded to tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mdsd._arguments import row_name
from mdsd._typing import AnyArray, BoolArray, IntArray
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, MdsdError

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
    offsets : ndarray of int64, shape (N + 1,)
        From 0 to the length of the flat arrays.
    columns : mapping of str to ndarray
        By the names of `mdsd.datasets.captures`, with or without the number of the position: shape
        (N,), and flat those of lists.
    """

    offsets: IntArray
    columns: Mapping[str, AnyArray]

    def __len__(self) -> int:
        return len(self.offsets) - 1


def is_list(column: str) -> bool:
    """Tell whether a column holds a list in each row."""
    return column == "token_ids" or "_logprobs" in column


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
    """Take rows ``start`` to ``stop``, without a copy of the columns."""
    first, last = rows.offsets[start], rows.offsets[stop]
    columns = {
        name: values[first:last] if is_list(name) else values[start:stop]
        for name, values in rows.columns.items()
    }
    return CaptureRows(rows.offsets[start : stop + 1] - first, columns)


def joined(parts: Sequence[CaptureRows]) -> CaptureRows:
    """Set rows behind one another; columns are those of the last part."""
    lengths = np.concatenate([np.diff(rows.offsets) for rows in parts])
    return CaptureRows(
        np.concatenate([[0], np.cumsum(lengths)]),
        {
            name: np.concatenate([rows.columns[name] for rows in parts])
            for name in parts[-1].columns
        },
    )


# --- checks --------------------------------------------------------------------------------------


def check_rows(rows: CaptureRows, vocab_size: int, where: str, first_row: int = 0) -> None:
    """Check that every row is a set of tokens with distributions over it.

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
    checks = _Checks(rows, vocab_size, where, first_row)
    for column in ("text", "token"):
        checks.refuse(column, rows.columns[column] < 0, "expected a number >= 0")
    for row in _first(np.diff(rows.offsets) == 0):
        raise InvalidDistributionError(f"{checks.name('token_ids', row)} is empty")
    checks.check_ids()
    num_drafts = sum(map(is_list, rows.columns)) - 2
    for columns in zip(logprob_columns(num_drafts), mass_columns(num_drafts), strict=True):
        checks.check_model(*columns)


@dataclass(frozen=True, eq=False)
class _Checks:
    rows: CaptureRows
    vocab_size: int
    where: str
    first_row: int

    def check_ids(self) -> None:
        ids, starts = self.rows.columns["token_ids"], self.rows.offsets[:-1]
        rising = ids[1:] > ids[:-1]
        rising[starts[1:] - 1] = True  # from one row to the next
        for place in _first(~rising):
            problem = f"{self.at('token_ids', place + 1)} is {ids[place + 1]} after {ids[place]}"
            raise InvalidArgumentError(f"{problem}; expected ascending ids")
        outside = np.zeros(len(ids), dtype=np.bool_)
        for ends in (starts, self.rows.offsets[1:] - 1):
            outside[ends] |= (ids[ends] < 0) | (ids[ends] >= self.vocab_size)
        self.refuse("token_ids", outside, f"expected ids from 0 to {self.vocab_size - 1}")

    def check_model(self, logprob_column: str, mass_column: str) -> None:
        values, stated = self.rows.columns[logprob_column], self.rows.columns[mass_column]
        outside = ~((stated >= 0.0) & (stated <= MOST_MASS))
        self.refuse(mass_column, outside, "expected a mass in [0, 1]")
        if not values.max() <= MOST_LOGPROB:  # NaN is not
            expected = "log-probabilities are at most 0"
            above = ~(values <= MOST_LOGPROB)
            self.refuse(logprob_column, above, expected, InvalidDistributionError)
        starts = self.rows.offsets[:-1]
        found = np.add.reduceat(np.exp(values), starts, dtype=np.float64)
        for row in _first((found == 0.0) & (np.maximum.reduceat(values, starts) == -np.inf)):
            raise InvalidDistributionError(
                f"{self.name(logprob_column, row)} has empty support: every log-probability is -inf"
            )
        for row in _first(np.abs(found - stated) > MASS_TOLERANCE):
            raise InvalidDistributionError(
                f"{self.name(logprob_column, row)} has mass {found[row]:.6g}, "
                f"but {mass_column} is {stated[row]:.6g}"
            )

    def refuse(
        self,
        column: str,
        wrong: BoolArray,
        expected: str,
        error: type[MdsdError] = InvalidArgumentError,
    ) -> None:
        """Refuse a column that is wrong somewhere, naming the first such place and its value."""
        for place in _first(wrong):
            value = self.rows.columns[column][place]
            raise error(f"{self.at(column, place)} is {value!s}; {expected}")

    def at(self, column: str, place: int) -> str:
        """Name a place in a column: its row and, in a list, the index."""
        if not is_list(column):
            return self.name(column, place)
        row = int(np.searchsorted(self.rows.offsets, place, side="right")) - 1
        return f"{self.name(column, row)}: index {place - self.rows.offsets[row]}"

    def name(self, column: str, row: int) -> str:
        return f"{self.where}: {row_name(column, [self.first_row + row])}"


def _first(bad: BoolArray) -> Iterator[int]:
    """Give the first index at which something is wrong, if there is one."""
    if bad.any():
        yield int(bad.argmax())


# --- tables --------------------------------------------------------------------------------------


def padded(parts: Sequence[CaptureRows], column: str, filling: np.int64 | np.float64) -> AnyArray:
    """Set the lists of rows under each other, shape (N, K), filled up after the end of each."""
    lengths = [np.diff(rows.offsets) for rows in parts]
    longest = max(int(found.max()) for found in lengths)
    table = np.full((sum(map(len, parts)), longest), filling)
    places = np.arange(longest)
    stop = 0
    for rows, found in zip(parts, lengths, strict=True):
        start, stop = stop, stop + len(rows)
        table[start:stop][places < found[:, np.newaxis]] = rows.columns[column]
    return table
