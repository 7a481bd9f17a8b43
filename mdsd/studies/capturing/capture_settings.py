"""What is to be captured, checked before any model is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mdsd._arguments import check_number, check_whole, shown
from mdsd.errors import InvalidArgumentError

DEFAULT_TOP_K = 1024
DEFAULT_NEW_TOKENS = 64

_SHARD_NUMBERS = 2**21
"""Token ids that a shard holds at most, unless its size is given: some tens of megabytes."""

_MOST_SHARD_POSITIONS = 1024
"""Even of small vocabularies: what a kill may cost."""


@dataclass(frozen=True)
class CaptureSettings:
    """A request, checked and completed.

    Parameters
    ----------
    sample, max_new_tokens, temperature, top_k, positions, min_context, positions_per_shard, seed
        As for `mdsd.studies.capture`; a `top_k` that keeps the whole vocabulary becomes None, and
        what is left open of samples gets its default.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, or is about samples where none are asked for.

    Examples
    --------
    >>> settings = CaptureSettings(sample=True)
    >>> settings.max_new_tokens, settings.temperature
    (64, 1.0)
    """

    sample: bool = False
    max_new_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = DEFAULT_TOP_K
    positions: int | None = None
    min_context: int = 1
    positions_per_shard: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.sample, bool):
            raise InvalidArgumentError(f"sample is {shown(self.sample)}; expected True or False")
        for name in ("max_new_tokens", "temperature"):
            if (value := getattr(self, name)) is not None and not self.sample:
                raise InvalidArgumentError(f"{name} is {shown(value)}; it is for samples only")
        read: dict[str, Any] = {
            "min_context": check_whole("min_context", self.min_context, 1),
            "seed": check_whole("seed", self.seed, 0, math.inf),
        }
        if self.sample:
            read |= {"max_new_tokens": DEFAULT_NEW_TOKENS, "temperature": 1.0}
        for name in ("max_new_tokens", "positions", "positions_per_shard"):
            if (value := getattr(self, name)) is not None:
                read[name] = check_whole(name, value, 1)
        if self.temperature is not None:
            read["temperature"] = check_number("temperature", self.temperature)
        if self.top_k is not None:
            most = " or None; 0 keeps all"
            kept = check_whole("top_k", self.top_k, -1, math.inf, otherwise=most)
            read["top_k"] = kept if kept > 0 else None
        self.__dict__.update(read)

    @property
    def shortest_prompt(self) -> int:
        """Tokens that a prompt needs for a position."""
        return self.min_context if self.sample else self.min_context + 1

    def kept(self, vocab_size: int) -> int | None:
        """Tokens to keep of each model; None if that is all of them."""
        return None if self.top_k is None or self.top_k >= vocab_size else self.top_k

    def shard_size(self, vocab_size: int, num_models: int) -> int:
        """Positions of a shard.

        Parameters
        ----------
        vocab_size : int
            V.
        num_models : int
            Target and draft models.

        Examples
        --------
        >>> CaptureSettings().shard_size(50_000, 2)
        1024
        >>> CaptureSettings(top_k=0).shard_size(50_000, 2)
        41
        """
        if self.positions_per_shard is not None:
            return self.positions_per_shard
        kept = self.kept(vocab_size)
        width = vocab_size if kept is None else min(vocab_size, num_models * kept)
        return max(1, min(_SHARD_NUMBERS // width, _MOST_SHARD_POSITIONS))

    def describe(self) -> dict[str, Any]:
        """Give the settings that decide what is captured, as its files state them."""
        return {
            "sample": self.sample,
            "max_new_tokens": self.max_new_tokens,
            "temperature": self.temperature,
            "seed": self.seed if self.sample else None,
            "positions": self.positions,
            "min_context": self.min_context,
        }
