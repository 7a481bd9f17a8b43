"""The names in the folder of a capture, and opening what they stand for."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mdsd._arguments import shown
from mdsd._extras import require
from mdsd._files import new_file, os_errors, path_name
from mdsd.datasets.captures.header import CaptureHeader, header_from_json, header_to_json
from mdsd.datasets.captures.shards import Shard, open_shard
from mdsd.errors import InvalidArgumentError

HEADER_NAME = "capture.json"

_SHARD = re.compile(r"shard-(\d{5,})\.parquet")
_TEMPORARY = re.compile(r"\.(capture\.json|shard-\d{5,}\.parquet)\.\d+\.tmp")


def shard_path(folder: Path, number: int) -> Path:
    """Name a shard.

    Examples
    --------
    >>> shard_path(Path("mine"), 3).name
    'shard-00003.parquet'
    """
    return folder / f"shard-{number:05d}.parquet"


def is_capture(folder: str | os.PathLike[str]) -> bool:
    """Tell whether a folder has the header of a capture."""
    return os.path.isfile(Path(folder) / HEADER_NAME)


def check_folder(folder: Path) -> list[Path]:
    """Refuse what cannot become the folder of a capture.

    Returns
    -------
    list of path
        What a writer left there that was killed.

    Raises
    ------
    InvalidArgumentError
        If there is something else in its place, or in it.
    UnsupportedError
        If libraries that captures need are not installed.
    """
    require("study", "a capture")
    with os_errors(folder, "cannot be a folder: ") as where:
        if folder.exists() and not folder.is_dir():
            raise InvalidArgumentError(f"{where}: cannot be a folder: there is a file of that name")
        found = sorted(folder.iterdir()) if folder.exists() else []
    names = [path.name for path in found]
    for name in names:
        if not (name == HEADER_NAME or _SHARD.fullmatch(name) or _TEMPORARY.fullmatch(name)):
            raise InvalidArgumentError(f"{where}: holds {shown(name)}, no part of a capture")
    if HEADER_NAME not in names and any(map(_SHARD.fullmatch, names)):
        raise InvalidArgumentError(f"{where}: holds shards but no {HEADER_NAME}")
    return [path for path in found if _TEMPORARY.fullmatch(path.name)]


def read_header(folder: Path) -> CaptureHeader:
    """Read ``capture.json``.

    Raises
    ------
    InvalidArgumentError
        If the folder or the file is missing, or the file is something else.
    """
    path = folder / HEADER_NAME
    with os_errors(folder) as name:
        os.scandir(folder).close()  # there, and a folder
    if not os.path.lexists(path):
        raise InvalidArgumentError(
            f"{name}: is a directory without {HEADER_NAME}; `mdsd capture` writes one"
        )
    with os_errors(path) as name:
        return header_from_json(path.read_bytes(), name)


def write_header(folder: Path, header: CaptureHeader, *, replacing: bool = False) -> None:
    """Write ``capture.json``.

    Raises
    ------
    InvalidArgumentError
        If it is there, unless it is to be replaced, or cannot be written.
    """
    with new_file(folder / HEADER_NAME, replacing=replacing) as stream:
        stream.write(header_to_json(header).encode())


def open_shards(folder: Path, header: CaptureHeader) -> tuple[Shard, ...]:
    """Open all shards, whose numbers leave none out.

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As `open_shard`, or if a shard is missing.
    UnsupportedError
        If libraries that captures need are not installed.
    """
    require("study", "a capture")
    with os_errors(folder):
        found = {path.name for path in folder.iterdir() if _SHARD.fullmatch(path.name)}
    shards: list[Shard] = []
    first_position = 0
    for number in range(len(found)):
        path = shard_path(folder, number)
        if path.name not in found:
            later = min(found - {shard.path.name for shard in shards})
            raise InvalidArgumentError(f"{path_name(path)}: is missing, but there is {later}")
        shards.append(open_shard(path, header, first_position))
        first_position += shards[-1].num_positions
    return tuple(shards)
