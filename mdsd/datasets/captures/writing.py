"""Writing a capture, shard by shard, and going on with one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mdsd._arguments import check_type, check_whole, read_array, row_name, shown
from mdsd._files import as_path, os_errors, path_name
from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.datasets.captures.folder import (
    HEADER_NAME,
    check_folder,
    open_shards,
    read_header,
    shard_path,
    write_header,
)
from mdsd.datasets.captures.header import CaptureHeader, check_same_header
from mdsd.datasets.captures.rows import (
    CaptureRows,
    check_rows,
    joined,
    logprob_columns,
    mass_columns,
)
from mdsd.datasets.captures.shards import read_group, write_shard
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, MdsdError


@dataclass(frozen=True, eq=False)
class CapturedPosition:
    """What the target and M draft models say about the next token at one position.

    Attributes
    ----------
    text : int
        Which text.
    token : int
        Number of the last token of the context in it.
    token_ids : ndarray of int64, shape (K,)
        The tokens that are kept, ascending.
    target_logprobs : ndarray of float64, shape (K,)
        Natural logarithm of the probability of each under the target at temperature 1, -inf for
        0. They are of the whole distribution, so their mass is `target_kept_mass` and not 1.
    draft_logprobs : ndarray of float64, shape (M, K)
        The same of each draft model.
    target_kept_mass : float
        Probability of the K tokens under the target, before the log-probabilities are rounded to
        float32; 1 where they are the whole vocabulary.
    draft_kept_mass : ndarray of float64, shape (M,)
        The same of each draft model.
    """

    text: int
    token: int
    token_ids: IntArray = field(repr=False)
    target_logprobs: FloatArray = field(repr=False)
    draft_logprobs: FloatArray = field(repr=False)
    target_kept_mass: float
    draft_kept_mass: FloatArray = field(repr=False)


class CaptureWriter:
    """A capture that grows by whole shards.

    Parameters
    ----------
    folder : path-like
        Made if it is not there. One that holds a capture with the same header is gone on with,
        after a look at all its shards; temporary files of a writer that was killed are removed.
    header : CaptureHeader

    Attributes
    ----------
    num_shards, num_positions : int
        How many are complete: what comes next has these numbers.

    Raises
    ------
    InvalidArgumentError
        If the folder cannot be made, holds anything that is no part of a capture or a capture
        with another header, or a shard is missing or belongs elsewhere.
    InvalidDistributionError
        If a shard cannot be read.

    Notes
    -----
    One writer at a time: of two that write the same shard one is refused, so nothing is lost, but
    the shards of both would be mixed.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "mine"
    >>> header = CaptureHeader("large", ["small"], vocab_size=9, tokenizer_hash="77", top_k=2)
    >>> writer = CaptureWriter(folder, header)
    >>> writer.write_shard(
    ...     [
    ...         CapturedPosition(
    ...             text=0,
    ...             token=5,
    ...             token_ids=np.array([2, 7]),
    ...             target_logprobs=np.log([0.5, 0.25]),
    ...             draft_logprobs=np.log([[0.25, 0.25]]),
    ...             target_kept_mass=0.75,
    ...             draft_kept_mass=np.array([0.5]),
    ...         )
    ...     ]
    ... )
    >>> again = CaptureWriter(folder, header)
    >>> again.num_shards, again.num_positions
    (1, 1)
    """

    def __init__(self, folder: str | os.PathLike[str], header: CaptureHeader) -> None:
        self._folder = as_path(folder, "folder")
        check_type("header", header, CaptureHeader)
        self._header = header
        self._claim()
        shards = open_shards(self._folder, header)
        self._num_shards = len(shards)
        self._num_positions = sum(shard.num_positions for shard in shards)

    @property
    def folder(self) -> Path:
        """Where the capture is."""
        return self._folder

    @property
    def header(self) -> CaptureHeader:
        """What all its shards have in common."""
        return self._header

    @property
    def num_shards(self) -> int:
        """Number of complete shards."""
        return self._num_shards

    @property
    def num_positions(self) -> int:
        """Number of positions in them."""
        return self._num_positions

    def write_shard(self, positions: Sequence[CapturedPosition]) -> None:
        """Write the next shard: when this returns it is on the disk, before it is not there at all.

        Parameters
        ----------
        positions : sequence of CapturedPosition
            At least one.

        Raises
        ------
        InvalidArgumentError
            If there are none, an array has the wrong shape or type, ids do not ascend or are out
            of range, a kept mass is not in [0, 1], or the file cannot be written.
        InvalidDistributionError
            If log-probabilities are NaN or above 0, or their mass is not the kept mass.
        """
        rows = self._checked(positions)
        path = shard_path(self._folder, self._num_shards)
        write_shard(path, rows, self._header, self._num_positions)
        self._num_shards += 1
        self._num_positions += len(rows)

    def extend_shard(self, positions: Sequence[CapturedPosition]) -> None:
        """Add positions to the last shard: it is replaced, on the disk, by the longer one.

        Parameters
        ----------
        positions : sequence of CapturedPosition
            At least one.

        Raises
        ------
        InvalidArgumentError, InvalidDistributionError
            As `write_shard`, or if there is no shard yet, or it cannot be read.
        """
        if not self._num_shards:
            raise InvalidArgumentError(f"{path_name(self._folder)}: has no shard to be extended")
        rows = self._checked(positions)
        last = open_shards(self._folder, self._header)[-1]
        groups = range(len(last.group_sizes))
        whole = joined([*(read_group(last, group, self._header) for group in groups), rows])
        write_shard(last.path, whole, self._header, last.first_position, replacing=True)
        self._num_positions += len(rows)

    def _checked(self, positions: Sequence[CapturedPosition]) -> CaptureRows:
        rows = _as_rows(positions, len(self._header.draft_models))
        check_rows(rows, self._header.vocab_size, "positions")
        return rows

    def _claim(self) -> None:
        """Make the folder a capture with this header, unless it is one."""
        folder = self._folder
        with os_errors(folder, "cannot be a folder: "):
            folder.mkdir(parents=True, exist_ok=True)
        leftovers = check_folder(folder)
        path = folder / HEADER_NAME
        if begun := path.exists():
            check_same_header(read_header(folder), self._header, path_name(path), "this capture")
        for leftover in leftovers:
            with suppress(OSError):
                leftover.unlink()
        if not begun:
            write_header(folder, self._header)


def _as_rows(positions: Sequence[CapturedPosition], num_drafts: int) -> CaptureRows:
    """Read positions and set their columns end to end."""
    if not isinstance(positions, Sequence) or len(positions) == 0:
        raise InvalidArgumentError(
            f"positions is {shown(positions)}; expected a sequence of CapturedPosition, not empty"
        )
    ids, tables, masses = [], [], []
    for row, position in enumerate(positions):
        check_type(row_name("positions", [row]), position, CapturedPosition)
        for name in ("text", "token"):
            check_whole(f"positions: {row_name(name, [row])}", getattr(position, name), 0)
        ids.append(_array(position, "token_ids", row, None).astype(np.int64))
        count = len(ids[-1])
        target = _array(position, "target_logprobs", row, (count,))
        drafts = _array(position, "draft_logprobs", row, (num_drafts, count))
        tables.append(np.vstack([target, drafts]))
        target_mass = _array(position, "target_kept_mass", row, ())
        draft_mass = _array(position, "draft_kept_mass", row, (num_drafts,))
        masses.append([float(mass) for mass in (target_mass, *draft_mass)])
    with np.errstate(over="ignore"):
        logprobs = np.concatenate(tables, axis=1).astype(np.float32)
    return CaptureRows(
        np.concatenate([[0], np.cumsum([len(part) for part in ids])]),
        {
            "text": np.array([position.text for position in positions], dtype=np.int64),
            "token": np.array([position.token for position in positions], dtype=np.int64),
            "token_ids": np.concatenate(ids),
            **dict(zip(logprob_columns(num_drafts), logprobs, strict=True)),
            **dict(zip(mass_columns(num_drafts), np.array(masses).T.copy(), strict=True)),
        },
    )


def _array(
    position: CapturedPosition, name: str, row: int, shape: tuple[int, ...] | None
) -> AnyArray:
    """Read a field of a position: numbers of this shape, or of one axis."""
    of_logprobs = name.endswith("logprobs")
    error: type[MdsdError] = InvalidDistributionError if of_logprobs else InvalidArgumentError
    where = f"positions: {row_name(name, [row])}"
    array = read_array(getattr(position, name), where, error)
    kinds = "iu" if name == "token_ids" else "fiu"
    if array.dtype.kind not in kinds:
        expected = "integers" if kinds == "iu" else "real numbers"
        raise error(f"{where} holds {array.dtype.name} values; expected {expected}")
    if (array.ndim != 1) if shape is None else (array.shape != shape):
        raise error(
            f"{where} has shape {array.shape}; expected {'(K,)' if shape is None else shape}"
        )
    return array
