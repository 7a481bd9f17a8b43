"""The names in the folder of a capture, and opening what they stand for."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mdsd._files import path_name
from mdsd.datasets.captures.header import CaptureHeader, header_from_json
from mdsd.datasets.captures.shards import Shard, open_shard
from mdsd.errors import InvalidArgumentError

__all__ = [
    "HEADER_NAME",
    "is_capture",
    "is_shard",
    "is_temporary",
    "open_shards",
    "read_header",
    "shard_path",
]

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


def is_temporary(path: Path) -> bool:
    """Tell whether a file is what a writer left that was killed."""
    return _TEMPORARY.fullmatch(path.name) is not None


def is_shard(path: Path) -> bool:
    """Tell whether a file has the name of a shard."""
    return _SHARD.fullmatch(path.name) is not None


def read_header(folder: Path) -> CaptureHeader:
    """Read ``capture.json``.

    Raises
    ------
    InvalidArgumentError
        If the folder or the file is missing, or the file is something else.
    """
    path = folder / HEADER_NAME
    if not os.path.isdir(folder):
        reason = "Not a directory" if os.path.exists(folder) else "No such file or directory"
        raise InvalidArgumentError(f"{path_name(folder)}: {reason}")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InvalidArgumentError(
            f"{path_name(folder)}: is a directory without {HEADER_NAME}; `mdsd capture` writes one"
        ) from None
    except OSError as error:
        raise InvalidArgumentError(f"{path_name(path)}: {error.strerror}") from None
    return header_from_json(content, path_name(path))


def open_shards(folder: Path, header: CaptureHeader) -> tuple[Shard, ...]:
    """Open all shards, whose numbers leave none out.

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As `open_shard`, or if a shard is missing.
    """
    try:
        found = {path.name for path in folder.iterdir() if is_shard(path)}
    except OSError as error:
        raise InvalidArgumentError(f"{path_name(folder)}: {error.strerror}") from None
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
