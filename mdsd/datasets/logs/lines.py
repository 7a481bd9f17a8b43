"""One line of a log: what its sides tell of the same positions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mdsd._arguments import one_line, shown
from mdsd.datasets.logs.known import Known, Problem, Token
from mdsd.datasets.logs.layouts import read_side
from mdsd.errors import InvalidDistributionError


@dataclass(frozen=True, slots=True, eq=False)
class LoggedPosition:
    """The most probable next tokens under the target and its drafts, after the same text.

    Tokens are ids, texts, or bytes where these are no text; all others are at most as probable as
    the last of those known. Where a map does not say which token was sampled, that one may be the
    last, and all others are at most as probable as the last but one.

    Attributes
    ----------
    line : int
        Line of the file, counted from 1.
    target : mapping of token to float
        Natural log-probabilities.
    drafts : mapping of str to mapping of token to float
        The same for each draft model.
    """

    line: int
    target: Mapping[Token, float]
    drafts: Mapping[str, Mapping[Token, float]]


def read_line(content: bytes, number: int) -> tuple[tuple[str, ...], list[LoggedPosition]]:
    """Read a line.

    Parameters
    ----------
    content : bytes
        With the end of the line, if it has one.
    number : int

    Returns
    -------
    tuple of (tuple of str, list of LoggedPosition)
        Names of the draft models, and the positions at which all sides know something.

    Raises
    ------
    Problem
        Naming the field and the value.
    """
    try:
        line = json.loads(content.decode("utf-8"), object_pairs_hook=_object)
        if not isinstance(line, dict):
            raise Problem(f"is {shown(line)}; expected an object with target and draft")
        sides = {name: read_side(value, place) for name, (place, value) in _sides(line).items()}
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1} is {content[error.start]:#04x}"
        raise Problem(f"is no text in UTF-8: {place}") from None
    except json.JSONDecodeError as error:
        cut = "" if content.endswith(b"\n") else "; the file may be cut off in this line"
        raise Problem(f"is no JSON: {error.msg} at column {error.colno}{cut}") from None
    except ValueError as error:  # an integer of more digits than Python reads
        raise Problem(f"is no JSON that can be read: {one_line(error)}") from None
    except RecursionError:
        raise Problem("is nested too deeply") from None
    names = tuple(name for name in sides if name)
    return names, list(_positions(sides, number))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its members; Python would take the last of equal keys and say nothing."""
    found = dict(pairs)
    if len(found) < len(pairs):
        again = next((key for key, value in pairs if found[key] != value), None)
        if again is None:
            return found
        raise Problem(f"has the key {shown(again)} twice in one object", InvalidDistributionError)
    return found


def _sides(line: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Find the target, under the name "", and the draft models, each with its field."""
    given = [key for key in ("draft", "drafts") if key in line]
    if "target" not in line or len(given) != 1:
        raise Problem(
            "needs target and one of draft, drafts; "
            f"keys found: {', '.join(shown(key) for key in line) or 'none'}"
        )
    if given == ["draft"]:
        return {"": ("target", line["target"]), "draft": ("draft", line["draft"])}
    drafts = line["drafts"]
    if not isinstance(drafts, dict) or not drafts:
        raise Problem(f"drafts is {shown(drafts)}; expected an object of draft models by name")
    for name in drafts:
        # The command line takes lists of names, and tables and files hold them.
        if name != name.strip() or not name or not name.isprintable() or "," in name:
            raise Problem(f"drafts has {shown(name)}; expected printable names without commas")
    return {
        "": ("target", line["target"]),
        **{name: (f"drafts.{name}", side) for name, side in drafts.items()},
    }


def _positions(
    sides: Mapping[str, Sequence[Known | None]], number: int
) -> Iterator[LoggedPosition]:
    """Put the sides together, position by position."""
    target = sides[""]
    for name, side in sides.items():
        if len(side) != len(target):
            raise Problem(f"target has {len(target)} positions but {_called(name)} has {len(side)}")
    for position in range(len(target)):
        known = {name: side[position] for name, side in sides.items()}
        found = {name: side for name, side in known.items() if side is not None}
        if not found:
            continue
        for name in known:
            if name not in found:
                raise Problem(
                    f"{_called(name)} has no log-probabilities at position {position}, "
                    f"but {_called(next(iter(found)))} has"
                )
        _check_vocabulary(found, position)
        if position + 1 < len(target):
            _check_sampled(found, position)
        drafts = {name: MappingProxyType(side.logprobs) for name, side in found.items() if name}
        yield LoggedPosition(number, MappingProxyType(found[""].logprobs), MappingProxyType(drafts))


def _check_vocabulary(known: dict[str, Known], position: int) -> None:
    """Refuse sides that name tokens differently: none would be the same token."""
    # The first side of each kind.
    kinds = {side.by_id: _called(name) for name, side in reversed(known.items())}
    if True in kinds and False in kinds:
        raise Problem(
            f"{kinds[True]} has token ids and {kinds[False]} texts at position {position}; "
            "expected the same vocabulary on all sides"
        )


def _check_sampled(known: Mapping[str, Known], position: int) -> None:
    """Refuse sides that went on with different tokens: later positions follow different texts."""
    tokens: dict[Token, str] = {}
    for name, side in known.items():
        if side.sampled is not None:
            tokens.setdefault(side.sampled, _called(name))
    if len(tokens) > 1:
        (one, first), (other, second), *_ = tokens.items()
        raise Problem(
            f"{first} goes on with {shown(one)} at position {position} but "
            f"{second} with {shown(other)}; expected the same text on all sides"
        )


def _called(name: str) -> str:
    return name or "target"
