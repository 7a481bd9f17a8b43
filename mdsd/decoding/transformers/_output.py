"""What `multi_draft` returns with ``return_dict_in_generate``; imports transformers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from transformers.generation import GenerateDecoderOnlyOutput

from mdsd.decoding.transformers._caches import CACHE_KEYWORDS

if TYPE_CHECKING:
    from mdsd.decoding.results import DecodeResult


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


def make_output(sequences: Any, cache: Any, results: list[DecodeResult]) -> MultiDraftOutput:
    """Make the output, with the cache under the name that this version of transformers gives it."""
    names = {field.name for field in fields(GenerateDecoderOnlyOutput)}
    keyword = next(name for name in CACHE_KEYWORDS if name in names)
    return MultiDraftOutput(sequences=sequences, results=results, **{keyword: cache})
