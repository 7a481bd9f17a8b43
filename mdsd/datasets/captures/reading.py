"""Reading a capture, whole or a few positions at a time."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from mdsd._files import as_path, path_name
from mdsd.datasets.captures.folder import open_shards, read_header
from mdsd.datasets.captures.header import CaptureHeader, header_to_json
from mdsd.datasets.captures.rows import CaptureRows, logprob_columns, mass_columns, padded, select
from mdsd.datasets.captures.shards import Shard, read_group
from mdsd.datasets.dataset import Dataset
from mdsd.errors import InvalidArgumentError


@dataclass(frozen=True, eq=False)
class Capture:
    """A capture whose shards were looked at, but whose distributions are read only when asked for.

    Attributes
    ----------
    folder : path
    header : CaptureHeader
    shards : tuple of Shard
        At least one.
    """

    folder: Path
    header: CaptureHeader
    shards: tuple[Shard, ...]

    @property
    def num_positions(self) -> int:
        """Number of positions in all shards."""
        return self.blocks[-1][1]

    @property
    def draft_models(self) -> tuple[str, ...]:
        """Names of the draft models."""
        return self.header.draft_models

    @property
    def provenance(self) -> dict[str, Any]:
        """What the header says, with its own provenance beside the rest."""
        described = {**vars(self.header), "draft_models": list(self.draft_models)}
        return {**described.pop("provenance"), **described}

    @cached_property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """First position of each row group, and the one after its last."""
        sizes = [size for shard in self.shards for size in shard.group_sizes]
        return tuple(pairwise(accumulate(sizes, initial=0)))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the header and of each shard's name, size and footer."""
        parts = [header_to_json(self.header)]
        parts += [f"{shard.path.name} {shard.size} {shard.footer}\n" for shard in self.shards]
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    def at(self, folder: Path) -> Capture:
        """Give the same capture by another path to its folder."""
        shards = tuple(replace(shard, path=folder / shard.path.name) for shard in self.shards)
        return replace(self, folder=folder, shards=shards)

    def read(self, start: int, stop: int) -> Dataset:
        """Read positions ``start`` to ``stop - 1``, and no row group that has none of them.

        Parameters
        ----------
        start, stop : int
            0 <= start < stop <= `num_positions`.

        Returns
        -------
        Dataset
            Of logits, as wide as the longest of these rows.

        Raises
        ------
        InvalidArgumentError, InvalidDistributionError
            If a shard has changed, cannot be read or holds something other than distributions; the
            file, the column, the row in it and the value are named.
        """
        parts = []
        for block in range(bisect_right(self.blocks, start, key=itemgetter(1)), len(self.blocks)):
            (first, last), (shard, group) = self.blocks[block], self._places[block]
            if first >= stop:
                break
            rows = read_group(shard, group, self.header)
            parts.append(select(rows, max(start, first) - first, min(stop, last) - first))
        return self._dataset(parts)

    @cached_property
    def _places(self) -> tuple[tuple[Shard, int], ...]:
        """Shard of each block, and number of its row group there."""
        return tuple(
            (shard, group) for shard in self.shards for group in range(len(shard.group_sizes))
        )

    def _dataset(self, parts: list[CaptureRows]) -> Dataset:
        names = self.draft_models
        logits, *draft_logits = (
            padded(parts, column, np.float64(-np.inf)) for column in logprob_columns(len(names))
        )
        masses, *draft_masses = (
            np.concatenate([rows.columns[column] for rows in parts])
            for column in mass_columns(len(names))
        )
        return Dataset(
            name=self.folder.resolve().name,
            target_table=logits,
            draft_tables=dict(zip(names, draft_logits, strict=True)),
            token_ids=padded(parts, "token_ids", np.int64(-1)),
            target_kept_mass=masses,
            draft_kept_mass=dict(zip(names, draft_masses, strict=True)),
            provenance=self.provenance,
            target_kind="logits",
            draft_kind="logits",
            text_ids=np.concatenate([rows.columns["text"] for rows in parts]),
        )


def open_capture(folder: str | os.PathLike[str]) -> Capture:
    """Look at all shards of a capture: footers, columns and the numbers of the rows.

    Parameters
    ----------
    folder : path-like

    Returns
    -------
    Capture

    Raises
    ------
    InvalidArgumentError
        If it is no capture, has no shard yet, or one is missing or belongs to another capture.
    InvalidDistributionError
        If a shard cannot be read.
    """
    place = as_path(folder, "folder")
    header = read_header(place)
    shards = open_shards(place, header)
    if not shards:
        raise InvalidArgumentError(f"{path_name(place)}: is a capture without any shard yet")
    return Capture(place, header, shards)


def read_capture(folder: str | os.PathLike[str]) -> Dataset:
    """Read a capture into memory.

    Parameters
    ----------
    folder : path-like
        As `CaptureWriter` and ``mdsd capture`` write it; temporary files in it are not looked at.

    Returns
    -------
    Dataset
        Of logits: the log-probabilities that the file has, -inf and token id -1 after the end of a
        row that is shorter than the longest. `provenance` is the one of the header with the names
        of the models, vocabulary size, tokenizer hash and top_k.

    Raises
    ------
    InvalidArgumentError
        If the folder is no capture, a shard is missing, belongs to another capture or lacks a
        column, token ids do not ascend or are out of range, or a kept mass is.
    InvalidDistributionError
        If a shard cannot be read, log-probabilities are NaN or above 0, or their mass is not the
        kept mass. The file, the column and the row in it are named.

    Examples
    --------
    >>> import tempfile
    >>> from mdsd.datasets import CapturedPosition, CaptureHeader, CaptureWriter
    >>> folder = Path(tempfile.mkdtemp()) / "mine"
    >>> writer = CaptureWriter(folder, CaptureHeader("large", ["small"], 9, "77", top_k=2))
    >>> laws = np.log([0.5, 0.25]), np.log([[0.25, 0.25]])
    >>> writer.write_shard([CapturedPosition(0, 5, np.array([2, 7]), *laws, 0.75, np.array([0.5]))])
    >>> data = read_capture(folder)
    >>> data.token_ids.tolist(), data.draft_kept_mass["small"].tolist()
    ([[2, 7]], [0.5])
    """
    capture = open_capture(folder)
    return capture.read(0, capture.num_positions)
