"""What `multi_draft` returns with ``return_dict_in_generate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from mdsd.decoding.results import DecodeResult
from mdsd.decoding.transformers._caches import CACHE_KEYWORDS


@cache
def _output_class() -> Any:
    """Make the class when it is first needed: it derives from one of transformers."""
    from transformers.generation import GenerateDecoderOnlyOutput

    @dataclass
    class MultiDraftOutput(GenerateDecoderOnlyOutput):  # type: ignore[misc]
        """Output of ``generate``, and what it took.

        Attributes
        ----------
        sequences : tensor of int, shape (B, L)
        results : list of DecodeResult, length B
            What is known of each row: its new tokens, without padding, tokens by call, acceptance,
            calls and seconds, as `mdsd.decoding.generate` returns them. Calls made for several rows
            count for each of them, with an equal share of their time.
        """

        results: list[DecodeResult] | None = None

    MultiDraftOutput.__qualname__ = MultiDraftOutput.__name__  # where pickle finds it
    return MultiDraftOutput


def __getattr__(name: str) -> Any:
    if name == "MultiDraftOutput":
        return _output_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def make_output(sequences: Any, cache: Any, results: Sequence[DecodeResult]) -> Any:
    """Make the output, with the cache under the name that this version of transformers gives it."""
    kind = _output_class()
    names = {field.name for field in fields(kind)}
    keyword = next(name for name in CACHE_KEYWORDS if name in names)
    return kind(sequences=sequences, results=list(results), **{keyword: cache})
