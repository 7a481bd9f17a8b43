"""Where a study reads its positions from: a block at a time, in any process.

A source that was opened by a name or a path is small: into another process it takes only that and
the fingerprint of the content. The files are opened there when they are first needed, and each
process keeps what it opened last.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np

from mdsd._arguments import check_name, check_whole, shown
from mdsd._files import as_path, path_name
from mdsd.datasets.captures import Capture, open_capture
from mdsd.datasets.dataset import Dataset
from mdsd.datasets.embedded import embedded_file, load, names
from mdsd.datasets.mistaken import said_before
from mdsd.datasets.npz import read_npz
from mdsd.errors import InvalidArgumentError

LOG_SUFFIX = ".jsonl"

BLOCK_NUMBERS = 2_000_000
"""About how many numbers a table of one block has."""


class Source(Protocol):
    """Positions of a target and its drafts, to be read a block at a time. It can be pickled.

    Attributes
    ----------
    name : str
        Name or path as it was given.
    num_positions : int
    draft_models : tuple of str
    provenance : mapping
        Where the numbers come from.
    fingerprint : str
        SHA-256 of the content: of the file, of the arrays of a `Dataset`, or of the header and the
        footer of each shard of a capture, which holds one of its content.
    blocks : tuple of (int, int)
        All positions in parts that fit into memory, each from the first number up to the second:
        always the same for the same content.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def num_positions(self) -> int: ...  # noqa: D102
    @property
    def draft_models(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def provenance(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def fingerprint(self) -> str: ...  # noqa: D102
    @property
    def blocks(self) -> tuple[tuple[int, int], ...]: ...  # noqa: D102

    def read(self, start: int, stop: int) -> Dataset:
        """Read positions ``start`` to ``stop - 1``.

        Parameters
        ----------
        start, stop : int
            0 <= start < stop <= `num_positions`.

        Returns
        -------
        Dataset
            Checked as `read_npz` and `read_capture` check theirs.

        Raises
        ------
        InvalidArgumentError
            If the range is none, or the content is no longer what it was when it was opened.
        InvalidDistributionError
            If what is read is not a table of distributions.
        """
        ...


def open_source(data: str | os.PathLike[str] | Dataset) -> Source:
    """Open data to read a block of positions at a time.

    Parameters
    ----------
    data : str, path-like or Dataset
        The name of an embedded data set, the path of an `.npz` file or of the folder of a capture,
        or a data set in memory, which travels whole into other processes.

    Returns
    -------
    Source

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        If there is no such data set or file, or as `read_npz` and `read_capture`; the distributions
        in a capture are looked at only when they are read.

    Examples
    --------
    >>> source = open_source("smollm2")
    >>> source.num_positions, source.blocks
    (144, ((0, 144),))
    >>> source.read(10, 13).target_table.shape
    (3, 3173)
    """
    return open_given("data", data)


def open_given(argument: str, data: Any) -> Source:
    """Open data as `open_source` does, given as an argument of another name."""
    if isinstance(data, Dataset):
        return _Table(data)
    if isinstance(data, str):
        looks_like_a_path = (
            data.lower().endswith((".npz", LOG_SUFFIX)) or os.sep in data or os.path.exists(data)
        )
        if data in names() or not looks_like_a_path:
            return _stored(data, check_name("data set", data, names()))
    elif not isinstance(data, os.PathLike):
        raise InvalidArgumentError(
            f"{argument} is {shown(data)} of type {type(data).__name__}; "
            "expected a name, a path or a Dataset"
        )
    path = as_path(data, argument)
    if path.suffix.lower() == LOG_SUFFIX:
        raise InvalidArgumentError(
            f"{path_name(path)}: a log of top log-probabilities holds no whole laws; "
            "`mdsd interval` and mdsd.studies.interval show what is known of its bounds"
        )
    return _stored(os.fspath(data), os.path.abspath(path))


# --- contents ------------------------------------------------------------------------------------


_TABLES = (
    *("target_table", "draft_tables", "token_ids", "target_kept_mass", "draft_kept_mass"),
    "text_ids",
)
"""Attributes of a data set that hold arrays of its positions, or one for each draft model."""


@dataclass(frozen=True, eq=False)
class _Table:
    """A source in memory; `digest` is the one of the file that it was read from."""

    dataset: Dataset
    digest: str | None = None

    @property
    def name(self) -> str:
        return self.dataset.name

    @property
    def num_positions(self) -> int:
        return self.dataset.num_positions

    @property
    def draft_models(self) -> tuple[str, ...]:
        return tuple(self.dataset.draft_tables)

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self.dataset.provenance

    @cached_property
    def fingerprint(self) -> str:
        return self.digest or self._digest_of_arrays()

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        count = self.num_positions
        step = max(BLOCK_NUMBERS // self.dataset.vocab_size, 1)
        return tuple((start, min(start + step, count)) for start in range(0, count, step))

    def read(self, start: int, stop: int) -> Dataset:
        """Cut positions out, without a copy."""
        start, stop = _range(start, stop, self.num_positions)
        cut: dict[str, Any] = {}
        for name in _TABLES:
            table = getattr(self.dataset, name)
            if isinstance(table, Mapping):
                cut[name] = {model: own[start:stop] for model, own in table.items()}
            elif table is not None:
                cut[name] = table[start:stop]
        with said_before():
            return replace(self.dataset, **cut)

    def _digest_of_arrays(self) -> str:
        data = self.dataset
        described = (data.target_kind, data.draft_kind, self.draft_models)
        digest = hashlib.sha256(repr((described, data.target_table.shape)).encode())
        for start, stop in self.blocks:
            part = self.read(start, stop)
            for table in (getattr(part, name) for name in _TABLES):
                arrays = table.values() if isinstance(table, Mapping) else [table]
                for array in (each for each in arrays if each is not None):
                    digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def _range(start: int, stop: int, num_positions: int) -> tuple[int, int]:
    stop = check_whole("stop", stop, 1, num_positions)
    return check_whole("start", start, 0, stop - 1), stop


_Contents = _Table | Capture
"""What was opened."""


# --- sources -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _StoredSource:
    """A source that is opened again, once, in each process it comes to."""

    name: str
    place: str
    fingerprint: str

    @property
    def num_positions(self) -> int:
        return self._contents.num_positions

    @property
    def draft_models(self) -> tuple[str, ...]:
        return self._contents.draft_models

    @property
    def provenance(self) -> Mapping[str, Any]:
        return self._contents.provenance

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        return self._contents.blocks

    def read(self, start: int, stop: int) -> Dataset:
        contents = self._contents
        return contents.read(*_range(start, stop, contents.num_positions))

    @property
    def _contents(self) -> _Contents:
        return _opened.get(self.place, self.fingerprint)


class _Opened:
    """What a process opened last, by place and fingerprint."""

    MOST = 2

    def __init__(self) -> None:
        self._lock = Lock()
        self._contents: OrderedDict[tuple[str, str], _Contents] = OrderedDict()

    def open(self, name: str, place: str) -> str:
        """Open a place anew, under the name that errors call it by; give its fingerprint."""
        contents = _open(name, place)
        with self._lock:
            self._keep(place, contents)
        return contents.fingerprint

    def get(self, place: str, fingerprint: str) -> _Contents:
        """Give the contents that a place had, if it has them still."""
        with self._lock:  # of several threads, one reads
            with said_before():
                contents = self._contents.get((place, fingerprint)) or _open(place, place)
            if contents.fingerprint != fingerprint:
                raise InvalidArgumentError(
                    f"{path_name(Path(place))}: has changed since it was opened"
                )
            self._keep(place, contents)
            return contents

    def _keep(self, place: str, contents: _Contents) -> None:
        self._contents[place, contents.fingerprint] = contents
        self._contents.move_to_end((place, contents.fingerprint))
        while len(self._contents) > self.MOST:
            self._contents.popitem(last=False)


_opened = _Opened()


def _stored(name: str, place: str) -> _StoredSource:
    return _StoredSource(name, place, _opened.open(name, place))


def _open(name: str, place: str) -> _Contents:
    """Open the embedded data set, the folder or the file of this name, to be found at a place."""
    if place in names():
        with embedded_file(place) as path:
            return _Table(load(place), _file_digest(path))
    if os.path.isdir(place):
        return open_capture(name).at(Path(place))
    return _Table(read_npz(name), _file_digest(Path(place)))


def _file_digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
