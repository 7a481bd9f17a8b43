"""What is to be captured, checked before any model is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from mdsd._arguments import check_number, check_whole, shown
from mdsd.errors import InvalidArgumentError

__all__ = ["DEFAULT_NEW_TOKENS", "DEFAULT_TOP_K", "CaptureSettings", "Sampling", "capture_settings"]

DEFAULT_TOP_K = 1024
DEFAULT_NEW_TOKENS = 64

_SHARD_NUMBERS = 2**21
"""Token ids that a shard holds at most, unless its size is given: some tens of megabytes."""

_MOST_SHARD_POSITIONS = 1024
"""Even of small vocabularies: what a kill may cost."""


@dataclass(frozen=True)
class Sampling:
    """How the target continues prompts.

    Attributes
    ----------
    max_new_tokens : int
        Length of a continuation.
    temperature : float
        That it is drawn at.
    seed : int
    """

    max_new_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class CaptureSettings:
    """A checked request.

    Attributes
    ----------
    sampling : Sampling or None
        Where the positions are those of the target's own continuations of the prompts, how these
        are drawn; None where they are those of the prompts.
    top_k : int or None
        Most probable tokens kept of each model; None for the whole vocabulary.
    positions : int or None
        Most positions; None for all.
    min_context : int
        Fewest tokens before a position.
    positions_per_shard : int or None
        None for as many as make a shard of some tens of megabytes.
    """

    sampling: Sampling | None
    top_k: int | None
    positions: int | None
    min_context: int
    positions_per_shard: int | None

    @property
    def shortest_prompt(self) -> int:
        """Tokens that a prompt needs for a position."""
        return self.min_context if self.sampling else self.min_context + 1

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
        >>> capture_settings().shard_size(50_000, 2)
        1024
        >>> capture_settings(top_k=0).shard_size(50_000, 2)
        41
        """
        if self.positions_per_shard is not None:
            return self.positions_per_shard
        kept = self.kept(vocab_size)
        width = vocab_size if kept is None else min(vocab_size, num_models * kept)
        return max(1, min(_SHARD_NUMBERS // width, _MOST_SHARD_POSITIONS))

    def describe(self) -> dict[str, Any]:
        """Give the settings that decide what is captured, as its files state them."""
        drawn = dict.fromkeys(field.name for field in fields(Sampling))  # None without samples
        return {
            "sample": self.sampling is not None,
            **(drawn if self.sampling is None else vars(self.sampling)),
            "positions": self.positions,
            "min_context": self.min_context,
        }


def capture_settings(
    *,
    sample: bool = False,
    max_new_tokens: int | None = None,
    temperature: float | None = None,
    top_k: int | None = DEFAULT_TOP_K,
    positions: int | None = None,
    min_context: int = 1,
    positions_per_shard: int | None = None,
    seed: int = 0,
) -> CaptureSettings:
    """Check the options of a capture.

    Parameters
    ----------
    sample, max_new_tokens, temperature, top_k, positions, min_context, positions_per_shard, seed
        As for `mdsd.studies.capture`.

    Returns
    -------
    CaptureSettings

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, or is about samples where none are asked for.

    Examples
    --------
    >>> capture_settings(sample=True).sampling
    Sampling(max_new_tokens=64, temperature=1.0, seed=0)
    """
    if not isinstance(sample, bool):
        raise InvalidArgumentError(f"sample is {shown(sample)}; expected True or False")
    for name, value in (("max_new_tokens", max_new_tokens), ("temperature", temperature)):
        if value is not None and not sample:
            raise InvalidArgumentError(f"{name} is {shown(value)}; it is for samples only")
    if top_k is not None:
        top_k = check_whole("top_k", top_k, -1, math.inf, otherwise=" or None; 0 keeps all")
    length = DEFAULT_NEW_TOKENS if max_new_tokens is None else max_new_tokens
    sampling = Sampling(
        check_whole("max_new_tokens", length, 1),
        check_number("temperature", 1.0 if temperature is None else temperature),
        check_whole("seed", seed, 0, math.inf),
    )
    counts = {"positions": positions, "positions_per_shard": positions_per_shard}
    return CaptureSettings(
        sampling if sample else None,
        top_k if top_k is not None and top_k > 0 else None,
        min_context=check_whole("min_context", min_context, 1),
        **{name: n if n is None else check_whole(name, n, 1) for name, n in counts.items()},
    )
