"""Prompts: from a file, or built in for the embedded pair of models."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from mdsd._arguments import one_line
from mdsd._files import as_path, os_errors, path_name
from mdsd.decoding.embedded import python_pages
from mdsd.errors import InvalidArgumentError

_FIELDS = ("text", "prompt")
_HELD_OUT = (
    "assert",
    "binary",
    "booleans",
    "debugger",
    "dict",
    "exprlists",
    "global",
    "identifiers",
    "integers",
    "raise",
    "return",
    "slicings",
    "specialattrs",
    "subscriptions",
    "truth",
)
"""Pages of `help()` that are in none of those that the embedded models are trained on."""


@dataclass(frozen=True)
class Prompts:
    """Texts of one source.

    Attributes
    ----------
    name : str
        Name of the file, without its folder.
    sha256 : str
        Of its content.
    texts : mapping of str to str
        By the places that they come from, for messages.
    """

    name: str
    sha256: str
    texts: Mapping[str, str]


def choose_prompts(path: Path | None, *, embedded: bool) -> Prompts:
    """Read a file of prompts, or give those of the embedded models where there is none.

    Parameters
    ----------
    path : path or None
    embedded : bool
        Whether the models are the embedded ones.

    Returns
    -------
    Prompts

    Raises
    ------
    InvalidArgumentError
        As `read_prompts`, or if other models are left without prompts.
    """
    if path is not None:
        return read_prompts(path)
    if not embedded:
        raise InvalidArgumentError(
            "prompts is missing; expected a .txt or .jsonl file of texts for models from folders"
        )
    return embedded_prompts()


def embedded_prompts() -> Prompts:
    """Give text that the embedded models were not trained on.

    Returns
    -------
    Prompts

    Raises
    ------
    UnsupportedError
        If this Python comes without the pages that `help()` shows.

    Examples
    --------
    >>> embedded_prompts().texts["the page binary"].splitlines()[0]
    'Binary arithmetic operations'
    """
    pages = python_pages(_HELD_OUT)
    content = json.dumps(list(pages.values())).encode()
    return Prompts(
        "pydoc_data.topics",
        hashlib.sha256(content).hexdigest(),
        {f"the page {name}": text for name, text in pages.items()},
    )


def read_prompts(path: Path) -> Prompts:
    """Read a file of prompts.

    Parameters
    ----------
    path : path
        In UTF-8. A name that ends in ``.txt``: paragraphs, with blank lines between them. One that
        ends in ``.jsonl``: an object in each line, with a string under ``text`` or, without that,
        ``prompt``.

    Returns
    -------
    Prompts

    Raises
    ------
    InvalidArgumentError
        If it cannot be read, is something else, or holds no prompt; file and line are named.
    """
    name = path_name(path)
    readers = {".txt": _paragraphs, ".jsonl": _records}
    read = readers.get(path.suffix.lower())
    if read is None:
        raise InvalidArgumentError(f"{name}: expected a name that ends in {' or '.join(readers)}")
    with os_errors(as_path(path)):
        content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise InvalidArgumentError(f"{name}: line {line}: is not UTF-8") from None
    # Only line ends are line ends here: not the form feeds and others of str.splitlines.
    lines = text.replace("\r\n", "\n").split("\n")
    found = {f"{name}: line {line}": text for line, text in read(name, lines) if text.strip()}
    if not found:
        raise InvalidArgumentError(f"{name}: holds no prompt")
    return Prompts(path.name, hashlib.sha256(content).hexdigest(), found)


def _paragraphs(name: str, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Give paragraphs with the numbers of their first lines."""
    for blank, group in groupby(enumerate(lines, start=1), lambda line: not line[1].strip()):
        if not blank:
            numbers, paragraph = zip(*group, strict=True)
            yield numbers[0], "\n".join(paragraph)


def _records(name: str, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Give the texts of JSON objects with the numbers of their lines."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{name}: line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"{where}: is not JSON: {one_line(error)}") from None
        fields = record if isinstance(record, dict) else {}
        text = next((fields[field] for field in _FIELDS if field in fields), None)
        if not isinstance(text, str):
            raise InvalidArgumentError(
                f"{where}: expected an object with a string under {' or '.join(_FIELDS)}"
            )
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a pair of surrogates
            raise InvalidArgumentError(f"{where}: holds what is no Unicode text") from None
        yield number, text


def encode_prompts(prompts: Prompts, encode: Callable[[str], list[int]]) -> list[list[int]]:
    """Turn prompts into token ids.

    Parameters
    ----------
    prompts : Prompts
    encode : callable
        Turns text into token ids.

    Returns
    -------
    list of lists of int

    Raises
    ------
    InvalidArgumentError
        If one cannot be written in token ids; its place is named.
    """
    found = []
    for place, text in prompts.texts.items():
        try:
            found.append(encode(text))
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{place}: {error}") from None
    return found
