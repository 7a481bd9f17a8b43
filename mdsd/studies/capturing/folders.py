"""The folder of a capture: whether it is the one to go on with, and where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mdsd._arguments import shown
from mdsd._files import path_name
from mdsd.datasets.captures import CaptureHeader, CaptureWriter, is_capture, open_capture
from mdsd.datasets.captures.folder import read_header, shard_path, write_header
from mdsd.datasets.captures.shards import read_group
from mdsd.errors import InvalidArgumentError
from mdsd.studies.output import check_writable


def open_writer(folder: Path, header: CaptureHeader) -> CaptureWriter:
    """Begin a capture, go on with one, or extend one that was asked for fewer positions.

    Parameters
    ----------
    folder : path
    header : CaptureHeader

    Returns
    -------
    CaptureWriter

    Raises
    ------
    InvalidArgumentError
        If the folder holds the capture of another command, naming what differs first; or anything
        else; or it takes no new file.
    InvalidDistributionError
        If a shard cannot be read.
    """
    if is_capture(folder):
        found = read_header(folder)
        for place, there, here in _differences(vars(found), vars(header), ""):
            if place == "provenance settings positions" and _is_more(here, there):
                continue
            raise InvalidArgumentError(
                f"{path_name(folder)}: holds another capture, whose {place} is {shown(there)} and "
                f"not {shown(here)}; the same command would go on with it"
            )
        if found != header:
            write_header(folder, header, replacing=True)
    writer = CaptureWriter(folder, header)
    path = shard_path(folder, writer.num_shards)
    check_writable(path, [path.suffix])
    return writer


def _is_more(here: int | None, there: int | None) -> bool:
    """Tell whether so many positions are more than others, None being all there are."""
    return there is not None and (here is None or here > there)


def _differences(there: Any, here: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Go through what differs between two trees of JSON: its place, and both values."""
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for name in {**here, **there}:
            inner = f"{place} {name}".strip()
            yield from _differences(there.get(name), here.get(name), inner)
    elif there != here:
        yield place, there, here


def last_place(writer: CaptureWriter) -> tuple[int, int]:
    """Find the text and the token of the last position of a capture.

    Parameters
    ----------
    writer : CaptureWriter

    Returns
    -------
    tuple of int
        ``(-1, -1)`` if it has none.
    """
    if not writer.num_shards:
        return -1, -1
    shard = open_capture(writer.folder).shards[-1]
    rows = read_group(shard, len(shard.group_sizes) - 1, writer.header)
    return int(rows.columns["text"][-1]), int(rows.columns["token"][-1])
