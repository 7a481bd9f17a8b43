"""Files of models: whether they are GGUF files, and what they hold."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from mdsd._files import os_errors
from mdsd.errors import InvalidArgumentError

_MAGIC = b"GGUF"
_PART = re.compile(r"(.*-)(\d{5})(-of-)(\d{5})(\.gguf)", re.DOTALL)
_CHUNK = 2**22


def check_gguf(path: Path) -> None:
    """Check that a file begins like a GGUF file.

    Raises
    ------
    InvalidArgumentError
        If it cannot be read, or begins otherwise.
    """
    with os_errors(path) as name, path.open("rb") as stream:
        begin = stream.read(len(_MAGIC))
    if begin != _MAGIC:
        what = "is empty" if not begin else "is no GGUF file"
        raise InvalidArgumentError(f"{name}: {what}; such files begin with the letters GGUF")


def parts(path: Path) -> list[Path]:
    """Give the files of a model that is split over several, by the names that llama.cpp gives them.

    Examples
    --------
    >>> [part.name for part in parts(Path("a-00001-of-00002.gguf"))]
    ['a-00001-of-00002.gguf', 'a-00002-of-00002.gguf']
    >>> [part.name for part in parts(Path("a.gguf"))]
    ['a.gguf']
    """
    found = _PART.fullmatch(path.name)
    if found is None:
        return [path]
    start, _, middle, count, end = found.groups()
    return [path.with_name(f"{start}{k + 1:05d}{middle}{count}{end}") for k in range(int(count))]


def content_digest(path: Path) -> str:
    """SHA-256 of the files of a model.

    Raises
    ------
    InvalidArgumentError
        If one cannot be read.
    """
    digest = hashlib.sha256()
    for part in parts(path):
        with os_errors(part), part.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
