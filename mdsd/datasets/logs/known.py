"""One position of one side: the tokens that are known to be its most probable ones.

Servers report the k most probable tokens, and with them the token that was sampled or that stands
in the prompt, wherever it ranks. Everything below relies on one rule: the tokens that are left are
at least as probable as all others, except that one of a map may be there because it was sampled.
Leaving out a token too many only makes intervals wider, so it is done wherever a log says which
token may not belong to the top.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from mdsd._arguments import read_number, shown
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, MdsdError

Token = int | str | bytes
"""A token: its id; its text; or its bytes, where these are no text in UTF-8."""

_PLACEHOLDER = -9999.0
"""What OpenAI returns for a token outside its top, and vLLM for a log-probability of -inf."""

_ROUNDING = 1e-3
"""How far above 1 a probability or their sum may come out: a log has its numbers rounded."""

_TOKEN_ID = re.compile(r"token_id:([0-9]{1,18})")
"""How vLLM writes a token where it is asked to return tokens as token ids."""

_MOST_DIGITS = 18

_ESCAPED = re.compile(r"bytes:(?=.*\\x)((?:\\x[0-9a-fA-F]{2}|[^\\])+)", re.DOTALL)
"""How OpenAI's completions write a token with bytes that are no text; others stay as they are."""

_BYTE = re.compile(rb"\\x([0-9a-fA-F]{2})")


class Problem(Exception):
    """A line cannot be read.

    Parameters
    ----------
    text : str
        The field and what is wrong with it; file and line are added by whoever knows them.
    error : type of MdsdError
        What to raise then.
    """

    def __init__(self, text: str, error: type[MdsdError] = InvalidArgumentError) -> None:
        super().__init__(text)
        self.error = error


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What a log tells of one side at one position.

    Attributes
    ----------
    logprobs : dict of Token to float
        The most probable tokens; all others are at most as probable as the last of them, or the
        last but one if it may be the sampled one and nothing says so.
    by_id : bool or None
        Whether the log names tokens by their ids; None if it names none.
    sampled : Token or None
        The token that was sampled or stands in the prompt, if the log says which.
    """

    logprobs: dict[Token, float]
    by_id: bool | None
    sampled: Token | None = None


def token_name(text: Any, raw: Any, place: str) -> Token | None:
    r"""Name a token by its bytes, however they are written.

    The name is the text that they are in UTF-8, and the bytes themselves where they are none.

    Parameters
    ----------
    text : object
        Must be a string.
    raw : object
        A list of bytes; None or an empty one if they are those of the text.
    place : str
        The field, for messages.

    Returns
    -------
    Token or None
        None if the text is one that several tokens have: none at all, or one with the replacement
        character for bytes that are no text.

    Examples
    --------
    >>> token_name(" the", [32, 116, 104, 101], "token"), token_name("token_id:7", None, "token")
    (' the', 7)
    >>> token_name("\N{REPLACEMENT CHARACTER}", [240, 159], "token")
    b'\xf0\x9f'
    >>> token_name(r"bytes:\xf0\x9f", None, "token"), token_name(r"bytes:\xc3\xa9", None, "token")
    (b'\xf0\x9f', 'é')
    >>> token_name("\N{REPLACEMENT CHARACTER}", None, "token")
    """
    if not isinstance(text, str):
        raise Problem(f"{place}.token is {shown(text)}; expected a string")
    found = _TOKEN_ID.fullmatch(text)
    if found:
        return int(found[1])
    own = b"" if raw is None else _listed(raw, place)
    escaped = None if own else _ESCAPED.fullmatch(text)
    if escaped:
        own = _BYTE.sub(_byte, escaped[1].encode("utf-8", "surrogatepass"))
    if own:
        try:
            text = own.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return own
    if not text or "\N{REPLACEMENT CHARACTER}" in text:
        return None
    # One string for all positions: a log repeats the tokens of a vocabulary.
    return sys.intern(text)


def _listed(values: Any, place: str) -> bytes:
    try:
        if isinstance(values, list):
            return bytes(values)
    except (TypeError, ValueError):
        pass
    raise Problem(f"{place}.bytes is {shown(values)}; expected a list of bytes or null")


def _byte(escaped: re.Match[bytes]) -> bytes:
    return bytes.fromhex(escaped[1].decode())


def from_map(value: Mapping[str, Any], place: str, sampled: Any = None) -> Known:
    """Read a map of token to log-probability, as the completions endpoint returns it.

    Parameters
    ----------
    value : mapping of str to object
    place : str
    sampled : object, optional
        The text of the sampled token, if it is known. Servers add it to the map wherever it ranks.

    Returns
    -------
    Known

    Examples
    --------
    >>> from_map({" cat": -0.7, " dog": -1.2, " axolotl": -9.5}, "target", " axolotl").logprobs
    {' cat': -0.7, ' dog': -1.2}
    """
    names = [token_name(text, None, place) for text in value]
    own = None if sampled is None else token_name(sampled, None, place)
    return _known(names, _logprobs(value, place), place, own, doubtful=own)


def from_entries(value: Sequence[Any], place: str, sampled: Token | None = None) -> Known:
    """Read a list of {token, logprob, bytes}, the `top_logprobs` of the chat endpoint.

    OpenAI and llama-server return the most probable tokens in their order. vLLM puts the sampled
    token first, in some versions even if it comes again in its rank, and cuts the list to the
    length asked for: if the first is the least probable of all and comes once, it is that one, and
    may rank anywhere.

    Parameters
    ----------
    value : sequence of object
    place : str
    sampled : Token, optional

    Returns
    -------
    Known

    Examples
    --------
    >>> listed = [{"token": " axolotl", "logprob": -9.5}, {"token": " cat", "logprob": -0.7}]
    >>> from_entries(listed, "target").logprobs
    {' cat': -0.7}
    """
    for k, entry in enumerate(value):
        if not isinstance(entry, dict) or "token" not in entry:
            raise Problem(f"{place}[{k}] is {shown(entry)}; expected an object with a token")
        if "logprob" not in entry:
            raise Problem(f"{place}[{k}] has no logprob")
    names = [
        token_name(entry["token"], entry.get("bytes"), f"{place}[{k}]")
        for k, entry in enumerate(value)
    ]
    logprobs = _logprobs(dict(enumerate(value)), place, "logprob")
    return _known(names, logprobs, place, sampled, doubtful=names[0])


def from_ids(value: Mapping[str, Any], place: str) -> Known:
    """Read a map of token id to {logprob, rank, decoded_token}, as vLLM returns it.

    The token of the prompt is there even if it ranks below the others: a rank after a gap is left
    out.

    Examples
    --------
    >>> values = {"9": {"logprob": -9.5, "rank": 812}, "4": {"logprob": -0.7, "rank": 1}}
    >>> from_ids(values, "target").logprobs
    {4: -0.7}
    """
    names: list[int] = []
    for key, entry in value.items():
        if not (key.isascii() and key.isdigit() and len(key) <= _MOST_DIGITS):
            raise Problem(f"{place} has the key {shown(key)}; expected token ids")
        if not isinstance(entry, dict) or "logprob" not in entry:
            raise Problem(f"{place}[{shown(key)}] is {shown(entry)}; expected one with a logprob")
        names.append(int(key))
    logprobs = _logprobs(value, place, "logprob")
    ranks = [entry.get("rank") for entry in value.values()]
    if all(rank is None for rank in ranks):
        return _known(names, logprobs, place)
    for key, rank in zip(value, ranks, strict=True):
        if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
            raise Problem(f"{place}[{shown(key)}].rank is {shown(rank)}; expected an integer >= 1")
    given = set(ranks)
    gap = next(rank for rank in count(1) if rank not in given)
    kept = {name for name, rank in zip(names, ranks, strict=True) if rank < gap}
    return _known(names, logprobs, place, kept=kept)


def from_triples(value: Sequence[Any], place: str, sampled: Token | None = None) -> Known:
    """Read a list of [logprob, token id, text], as SGLang returns it: the top and no more.

    Examples
    --------
    >>> from_triples([[-0.7, 4, " cat"], [-1.2, 6, None]], "target").logprobs
    {4: -0.7, 6: -1.2}
    """
    for k, entry in enumerate(value):
        pair = isinstance(entry, list) and len(entry) in (2, 3)
        token = entry[1] if pair else None
        if not isinstance(token, int) or isinstance(token, bool) or token < 0:
            raise Problem(f"{place}[{k}] is {shown(entry)}; expected [logprob, token id, text]")
    logprobs = _logprobs(dict(enumerate(value)), place, 0)
    return _known([entry[1] for entry in value], logprobs, place, sampled)


def _logprobs(entries: Mapping[Any, Any], place: str, field: Any = None) -> list[float]:
    """Check log-probabilities, or those in a field of each entry; those a little above 0 are 0.

    Null is minus infinity, which JSON cannot hold.
    """
    found = []
    for key, entry in entries.items():
        value = entry if field is None else entry[field]
        number = (
            value if type(value) is float else -math.inf if value is None else read_number(value)
        )
        if not number <= _ROUNDING:  # NaN, too
            inner = "" if field is None else "[0]" if field == 0 else f".{field}"
            raise Problem(
                f"{place}[{shown(key)}]{inner} is {shown(value)}; "
                "expected a log-probability, a number <= 0",
                InvalidDistributionError,
            )
        found.append(min(number, 0.0))
    return found


def _known(
    names: Sequence[Token | None],
    logprobs: Sequence[float],
    place: str,
    sampled: Token | None = None,
    doubtful: Token | None = None,
    kept: Container[Token] | None = None,
) -> Known:
    """Leave out what is not known to be among the most probable tokens.

    Parameters
    ----------
    names : sequence of Token or None
        None for a token whose name is not its own.
    logprobs : sequence of float
    place : str
    sampled : Token, optional
    doubtful : Token, optional
        One that may be there because it was sampled, if it is the least probable.
    kept : container of Token, optional
        Those of the top; all are if None.
    """
    pairs = dict.fromkeys(zip(names, logprobs, strict=True))
    named = {name: logprob for name, logprob in pairs if name is not None}
    if len(named) < sum(name is not None for name, _ in pairs):
        again = next(name for name, logprob in pairs if name is not None and named[name] != logprob)
        raise Problem(f"{place} has the token {shown(again)} twice", InvalidDistributionError)
    kinds = {isinstance(name, int) for name in named}
    if len(kinds) > 1:
        raise Problem(f"{place} names some tokens by id and some by text")
    mass = math.fsum(math.exp(logprob) for _, logprob in pairs)
    if mass > 1.0 + _ROUNDING:
        raise Problem(
            f"{place} holds probabilities that sum to {mass:.6g}; expected log-probabilities of "
            "one law",
            InvalidDistributionError,
        )
    # Of tokens without a name nothing is known, so neither are those below them the next ones.
    floor = max((logprob for name, logprob in pairs if name is None), default=_PLACEHOLDER)
    if doubtful is not None and names.count(doubtful) == 1:
        # It is of the top if it is at least as probable as all that were not reported together.
        own = named[doubtful]
        last = all(own < logprob for name, logprob in pairs if name != doubtful)
        if last and math.exp(own) < 1.0 - mass:
            floor = max(floor, own)
    return Known(
        {
            name: logprob
            for name, logprob in named.items()
            if logprob > floor and (kept is None or name in kept)
        },
        kinds.pop() if kinds else None,
        sampled,
    )
