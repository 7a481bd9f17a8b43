"""What all shards of a capture have in common, and how it is written as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from mdsd._arguments import check_whole, one_line, read_json_object, shown
from mdsd._frozen import FrozenArrays
from mdsd.datasets.tables import check_model_names
from mdsd.errors import InvalidArgumentError

_FORMAT = {"format": "mdsd capture", "format_version": 1}


@dataclass(frozen=True)
class CaptureHeader(FrozenArrays):
    """What a capture is a capture of; the same for all its shards.

    Parameters
    ----------
    target : str
        Name of the target model.
    draft_models : sequence of str
        Names of the draft models, in the order of the tables: different, printable, no commas.
    vocab_size : int
        V; token ids are 0 to V - 1.
    tokenizer_hash : str
        Anything that two vocabularies share only if they are the same.
    top_k : int or None
        How many of the most probable tokens of each model were kept, at least; a row holds their
        union. None: the whole vocabulary.
    provenance : mapping, optional
        What else is to be remembered, as far as JSON can hold it.

    Raises
    ------
    InvalidArgumentError
        If a field is out of its range, or the provenance is no JSON object.

    Examples
    --------
    >>> header = CaptureHeader("large", ["small"], 50_000, "sha256:77a1", top_k=1024)
    >>> header.draft_models
    ('small',)
    """

    target: str
    draft_models: tuple[str, ...]
    vocab_size: int
    tokenizer_hash: str
    top_k: int | None
    provenance: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for name in ("target", "tokenizer_hash"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise InvalidArgumentError(f"{name} is {shown(value)}; expected a str, not empty")
        given: Any = self.draft_models
        if not isinstance(given, (tuple, list)) or not given:
            raise InvalidArgumentError(
                f"draft_models is {shown(given)}; expected a tuple of names, not empty"
            )
        check_model_names("draft_models", given)
        top_k = self.top_k
        self.__dict__.update(
            draft_models=tuple(given),
            vocab_size=check_whole("vocab_size", self.vocab_size, 1),
            top_k=top_k if top_k is None else check_whole("top_k", top_k, 1, otherwise=" or None"),
            provenance=read_json_object("provenance", self.provenance),
        )
        super().__post_init__()


def header_to_json(header: CaptureHeader) -> str:
    """Write a header so that equal ones are the same text."""
    described = {**_FORMAT, **vars(header), "provenance": dict(header.provenance)}
    return json.dumps(described, indent=2, sort_keys=True, allow_nan=False) + "\n"


def header_from_json(text: str | bytes, where: str) -> CaptureHeader:
    """Read what `header_to_json` wrote.

    Raises
    ------
    InvalidArgumentError
        If it is anything else; `where` begins the message.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # not JSON, or not even text
        reason = one_line(error)
        raise InvalidArgumentError(f"{where}: is not the JSON of a capture: {reason}") from None
    if not isinstance(found, dict) or found.get("format") != _FORMAT["format"]:
        raise InvalidArgumentError(f"{where}: is not the JSON of a capture")
    version, expected = found.get("format_version"), _FORMAT["format_version"]
    if version != expected:
        raise InvalidArgumentError(
            f"{where}: format_version is {shown(version)}; expected {expected}"
        )
    names = [field.name for field in fields(CaptureHeader)]
    for name in names:
        if name not in found:
            raise InvalidArgumentError(f"{where}: {name} is missing")
    try:
        return CaptureHeader(**{name: found[name] for name in names})
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: {error}") from None


def of_shards(header: CaptureHeader) -> CaptureHeader:
    """Give what shards say of their capture: all but the number of positions that was asked for.

    So that one to which more are added has the same shards as if all had been asked for at first.
    """
    settings = header.provenance.get("settings")
    if not isinstance(settings, Mapping) or "positions" not in settings:
        return header
    kept = {name: value for name, value in settings.items() if name != "positions"}
    return replace(header, provenance={**header.provenance, "settings": kept})


def check_same_header(found: CaptureHeader, expected: CaptureHeader, where: str, of: str) -> None:
    """Refuse a header that differs, naming the field.

    Raises
    ------
    InvalidArgumentError
        With both values.
    """
    for name, there in vars(expected).items():
        here = getattr(found, name)
        if here != there:
            raise InvalidArgumentError(
                f"{where}: {name} is {_written(here)}, but {_written(there)} in {of}"
            )


def _written(value: Any) -> str:
    return shown(dict(value) if isinstance(value, Mapping) else value)
