"""The layouts in which servers return log-probabilities, taken apart into positions.

OpenAI: `chat.completions` (`choices[0].logprobs.content[i].top_logprobs`) and the older
`completions` (`choices[0].logprobs.top_logprobs[i]`). vLLM: both, and `prompt_logprobs`. SGLang:
`meta_info.input_top_logprobs` and `output_top_logprobs`, and the endpoints of OpenAI. llama-server:
`completion_probabilities`, with entries as of a chat, and the endpoints of OpenAI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from mdsd._arguments import shown
from mdsd.datasets.logs.known import (
    Known,
    Problem,
    Token,
    from_entries,
    from_ids,
    from_map,
    from_triples,
    token_name,
)

_FIELDS = ("prompt_logprobs", "logprobs")

_LLAMA = "completion_probabilities"


def read_side(value: Any, place: str) -> list[Known | None]:
    """Read all positions of one side of a line.

    Parameters
    ----------
    value : object
        JSON: a position, a list of them, or what holds such a list in a server's response.
    place : str
        The field, for messages.

    Returns
    -------
    list of (Known or None)
        None for positions at which the log has nothing, such as the first token of a prompt.

    Examples
    --------
    >>> read_side({"the": -0.5, "a": -1.5}, "target")[0].logprobs
    {'the': -0.5, 'a': -1.5}
    >>> prompt = [None, {"5": {"logprob": -0.25, "rank": 1, "decoded_token": "the"}}]
    >>> [position and position.logprobs for position in read_side(prompt, "target")]
    [None, {5: -0.25}]
    """
    if isinstance(value, list) and not _is_position(value):
        return _read_positions(value, place)
    if not isinstance(value, dict):
        return [_read_position(value, place)]
    if isinstance(value.get("choices"), list):
        return _read_response(value, place)
    if isinstance(value.get("meta_info"), dict):
        return _read_meta_info(value["meta_info"], f"{place}.meta_info")
    if _is_map(value):
        return [_read_position(value, place)]
    if any(_holds_more(value, field) for field in _FIELDS):
        return _read_only({f"{place}.{field}": value.get(field) for field in _FIELDS})
    if _holds_more(value, _LLAMA) or isinstance(value.get("content"), str):
        return _read_llama(value.get(_LLAMA), f"{place}.{_LLAMA}")
    if isinstance(value.get("content", 0.0), (list, type(None))):
        return _read_content(value["content"], f"{place}.content")
    if isinstance(value.get("tokens"), list):
        return _read_completion(value, place)
    return [_read_position(value, place)]


def _is_map(value: Mapping[str, Any]) -> bool:
    """Tell whether all values are log-probabilities; null alone may be a field without any."""
    entries = value.values()
    numbers = {float, int, type(None)}
    return all(type(x) in numbers for x in entries) and any(
        x is not None and x < 0 for x in entries
    )


def _holds_more(value: Mapping[str, Any], field: str) -> bool:
    """Tell whether a field is there that is not the log-probability of a token of that text."""
    return isinstance(value.get(field, 0.0), (dict, list, type(None)))


def _read_response(value: Mapping[str, Any], place: str) -> list[Known | None]:
    choices = value["choices"]
    if len(choices) != 1 or not isinstance(choices[0], dict):
        raise Problem(f"{place}.choices has {len(choices)} entries; expected one choice")
    found = {f"{place}.prompt_logprobs": value.get("prompt_logprobs")}
    found |= {f"{place}.choices[0].{field}": choices[0].get(field) for field in _FIELDS}
    return _read_only(found)


def _read_only(fields: Mapping[str, Any]) -> list[Known | None]:
    """Read the one field that has something."""
    given = {place: value for place, value in fields.items() if value not in (None, [], {})}
    if not given:
        raise Problem(f"{' and '.join(fields)} hold nothing; expected log-probabilities")
    if len(given) > 1:
        raise Problem(f"{' and '.join(given)} are both given; leave one of them out")
    ((place, value),) = given.items()
    return read_side(value, place)


def _read_meta_info(value: Mapping[str, Any], place: str) -> list[Known | None]:
    """Read the prompt's positions and then those of the output."""
    found: list[Known | None] = []
    for part in ("input", "output"):
        field = f"{part}_top_logprobs"
        positions = value.get(field) or []
        if not isinstance(positions, list):
            raise Problem(f"{place}.{field} is {shown(positions)}; expected a list")
        own = value.get(f"{part}_token_logprobs")
        tokens = own if isinstance(own, list) and len(own) == len(positions) else []
        found += _read_positions(positions, f"{place}.{field}", map(_triple_token, tokens))
    if not found:
        raise Problem(
            f"{place} has neither input_top_logprobs nor output_top_logprobs; ask for "
            "top_logprobs_num"
        )
    return found


def _triple_token(entry: Any) -> Token | None:
    token = entry[1] if isinstance(entry, list) and len(entry) > 1 else None
    return token if isinstance(token, int) else None


def _read_content(value: Any, place: str) -> list[Known | None]:
    """Read the positions of the chat endpoint."""
    if value is None:
        raise Problem(f"{place} is null; expected log-probabilities")
    for k, entry in enumerate(value):
        # Without them its own token and log-probability look like those of a top of one.
        if not isinstance(entry, dict) or not isinstance(entry.get("top_logprobs"), list):
            raise Problem(f"{place}[{k}] has no list of top_logprobs; ask for them")
    return _read_positions(value, place)


def _read_llama(positions: Any, place: str) -> list[Known | None]:
    """Read the positions of llama-server's own endpoint."""
    if not isinstance(positions, list):
        raise Problem(f"{place} is {shown(positions)}; expected a list: ask for n_probs")
    for k, entry in enumerate(positions):
        if isinstance(entry, dict) and ("top_probs" in entry or "probs" in entry):
            raise Problem(
                f"{place}[{k}] has no list of top_logprobs but probabilities that filters may have "
                "changed; ask for n_probs without post_sampling_probs"
            )
    return _read_content(positions, place)


def _read_completion(value: Mapping[str, Any], place: str) -> list[Known | None]:
    tokens, positions = value["tokens"], value.get("top_logprobs")
    if not isinstance(positions, list) or len(positions) != len(tokens):
        what = f"{len(positions)} entries" if isinstance(positions, list) else shown(positions)
        raise Problem(
            f"{place}.top_logprobs has {what}; expected one for each of {len(tokens)} tokens"
        )
    for k, token in enumerate(tokens):
        if not isinstance(token, str):
            raise Problem(f"{place}.tokens[{k}] is {shown(token)}; expected a string")
    return _read_positions(positions, f"{place}.top_logprobs", tokens)


def _is_position(value: Sequence[Any]) -> bool:
    """Tell whether a list is one of the tokens of a position, not of positions."""
    first = next(iter(value), None)
    if isinstance(first, dict):
        return isinstance(first.get("token"), str) and "top_logprobs" not in first
    return isinstance(first, list) and bool(first) and not isinstance(first[0], (dict, list))


def _read_positions(
    values: Sequence[Any], place: str, sampled: Iterable[Any] = ()
) -> list[Known | None]:
    """Read positions, with the tokens sampled there if fields beside this one have them."""
    return [
        _read_position(value, f"{place}[{k}]", token)
        for k, (value, token) in enumerate(zip_longest(values, sampled))
    ]


def _read_position(value: Any, place: str, sampled: Any = None) -> Known | None:
    """Read one position.

    Parameters
    ----------
    value : object
        None or something empty, a map, a list of tokens, or an object with such a list.
    place : str
    sampled : object, optional
        Id or text of the token that was sampled, where a field beside this one has it.
    """
    if isinstance(value, dict) and isinstance(value.get("top_logprobs"), list):
        text = value.get("token")
        own = None if text is None else token_name(text, value.get("bytes"), place)
        return _read_position(value["top_logprobs"], f"{place}.top_logprobs", own)
    if value in (None, [], {}):
        return None
    if isinstance(value, list):
        read = from_triples if isinstance(value[0], list) else from_entries
        return read(value, place, sampled)
    if not isinstance(value, dict):
        raise Problem(
            f"{place} is {shown(value)}; expected a map of token to log-probability, a list of "
            "tokens with their log-probabilities, or a response that holds one"
        )
    if any(isinstance(entry, dict) for entry in value.values()):
        return from_ids(value, place)
    return from_map(value, place, sampled)
