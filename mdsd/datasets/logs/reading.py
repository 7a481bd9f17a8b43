"""Reading a log: all of it into memory, or line by line whenever it is gone through."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mdsd._files import as_path, os_errors, path_name
from mdsd.datasets.logs.known import Problem
from mdsd.datasets.logs.lines import LoggedPosition, read_line
from mdsd.errors import InvalidArgumentError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, eq=False)
class TopLogprobs:
    """The most probable next tokens of a target and its drafts, position by position.

    What is known of each distribution is its top, so acceptance can be bounded from below and above
    only: see `mdsd.acceptance_interval` and `mdsd.studies.interval`.

    Attributes
    ----------
    name : str
        The file's name without its ending.
    draft_models : tuple of str
        Names of the draft models, the same at every position.
    positions : collection of LoggedPosition
        In the order of the file. It can be gone through more than once.
    """

    name: str
    draft_models: tuple[str, ...]
    positions: Collection[LoggedPosition] = field(repr=False)

    @property
    def num_positions(self) -> int:
        """Number of positions."""
        return len(self.positions)


def read_jsonl(path: str | os.PathLike[str]) -> TopLogprobs:
    """Read a log of top log-probabilities into memory.

    Parameters
    ----------
    path : path-like
        Text in UTF-8, one JSON object per line, with

        - `target`: what a server returned for the target;
        - `draft`: the same for its draft, or `drafts`: an object of several by name. The name of
          the one draft is "draft".

        Other keys are not read; blank lines are skipped. A side is one position,

        - a map of token to log-probability,
        - a list of {"token", "logprob", "bytes"}, the `top_logprobs` of OpenAI's chat endpoint, or
          an object that has it,
        - a map of token id to {"logprob", "rank", "decoded_token"} of vLLM,
        - a list of [logprob, token id, text] of SGLang,

        or many: a list of such positions, `{"content": [...]}` of the chat endpoint,
        `{"tokens": [...], "top_logprobs": [...]}` of the older completions, `prompt_logprobs` or
        `logprobs` with one of these, `meta_info` of SGLang, `completion_probabilities` of
        llama-server, or a whole response with one choice.

    Returns
    -------
    TopLogprobs

    Raises
    ------
    InvalidArgumentError
        If the file or a line cannot be read, a field is missing, or the sides of a line differ in
        their positions, their text or the way they name tokens.
    InvalidDistributionError
        If a value is no log-probability, those of a position sum to more than 1, or a token or a
        key is there twice with different values. File, line, field and value are named.

    See Also
    --------
    scan_jsonl : The same for logs that do not fit into memory.

    Notes
    -----
    Both sides must be of one vocabulary and at temperature 1, as servers return them if they are
    not asked for processed ones.

    The tokens kept of a position are its most probable ones:

    - The sampled token, which servers add, is left out if it may rank below others: by its rank
      (vLLM), as the first of a chat endpoint's list though the least probable there, or as the
      least probable of a completion's map. Listed twice, it is known to be of the top.
    - A map of one position alone, or of ids without ranks, does not say which token was sampled: it
      is kept whole, and its least probable token may be that one. Intervals hold either way.
    - Left out are -9999.0, which stands for "very unlikely" at OpenAI and for minus infinity at
      vLLM, minus infinity itself, and null, which SGLang writes for it.
    - A token is its bytes: `bytes`, those that a completion's text has in escapes after "bytes:",
      or the text in UTF-8. Texts that several tokens share (an empty one, or one with the
      replacement character for broken UTF-8) name none; they and all tokens below them are left
      out. Ask for token ids where the server offers them.

    Positions that are null or empty on all sides, such as the first of a prompt, are skipped.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.jsonl"
    >>> _ = path.write_text('{"target": {"the": -0.2, "a": -2.5}, "draft": {"the": -0.5}}')
    >>> log = read_jsonl(path)
    >>> log.num_positions, log.draft_models
    (1, ('draft',))
    >>> dict(log.positions[0].drafts["draft"])
    {'the': -0.5}
    """
    file = as_path(path)
    positions = tuple(_go_through(file))
    return TopLogprobs(file.stem, tuple(positions[0].drafts), positions)


def scan_jsonl(path: str | os.PathLike[str]) -> TopLogprobs:
    """Check a log of top log-probabilities, and read it again whenever it is gone through.

    Parameters
    ----------
    path : path-like
        As for `read_jsonl`.

    Returns
    -------
    TopLogprobs
        Of any size: no more than one line is in memory. Going through its positions raises
        InvalidArgumentError if the file has changed since.

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As for `read_jsonl`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.jsonl"
    >>> _ = path.write_text('{"target": {"the": -0.2, "a": -2.5}, "draft": {"the": -0.5}}')
    >>> [position.line for position in scan_jsonl(path).positions]
    [1]
    """
    file = as_path(path)
    version = _version(file)
    if not file.is_file() and not file.is_dir():
        raise InvalidArgumentError(f"{path_name(file)}: is no file that can be read twice")
    models: tuple[str, ...] = ()
    count = 0
    for position in _go_through(file):
        models, count = models or tuple(position.drafts), count + 1
    return TopLogprobs(file.stem, models, _FilePositions(file, version, count))


class _FilePositions(Collection[LoggedPosition]):
    """The positions of a file that was checked before."""

    def __init__(self, file: Path, version: tuple[int, int], count: int) -> None:
        self._file = file
        self._version = version
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[LoggedPosition]:
        if _version(self._file) != self._version:
            raise InvalidArgumentError(f"{path_name(self._file)}: has changed since it was read")
        return _go_through(self._file)

    def __contains__(self, position: object) -> bool:
        return any(position is found for found in self)


def _version(file: Path) -> tuple[int, int]:
    with os_errors(file):
        status = file.stat()
    return status.st_size, status.st_mtime_ns


def _go_through(file: Path) -> Iterator[LoggedPosition]:
    """Read positions line by line.

    Raises
    ------
    InvalidArgumentError
        If the file cannot be read, or holds no position.
    MdsdError
        If a line cannot be read, naming it.
    """
    models: tuple[str, ...] | None = None
    number = count = 0
    try:
        with os_errors(file) as name, file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                content = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                if not content.strip():
                    continue
                drafts, positions = read_line(content, number)
                if models is None:
                    models = drafts
                elif set(drafts) != set(models):
                    raise Problem(
                        f"has the draft models {', '.join(drafts)}; those before have "
                        f"{', '.join(models)}"
                    )
                count += len(positions)
                yield from positions
    except Problem as problem:
        raise problem.error(f"{name}: line {number}: {problem}") from None
    if models is None:
        raise InvalidArgumentError(f"{name}: is empty; expected one JSON object per line")
    if count == 0:
        raise InvalidArgumentError(f"{name}: has no position with log-probabilities")
