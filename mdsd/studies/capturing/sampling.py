"""Continuations of prompts by the target's own samples."""

from __future__ import annotations

from collections.abc import Collection

from mdsd._random import draw_tokens, generator
from mdsd.filters import probs_from_logits
from mdsd.studies.capturing.reading import Reader
from mdsd.studies.capturing.settings import Sampling

__all__ = ["continued"]


def continued(
    reader: Reader,
    prompt: list[int],
    number: int,
    sampling: Sampling,
    eos_token_ids: Collection[int],
) -> list[int]:
    """Continue a prompt by tokens drawn from a model, one after the other.

    Parameters
    ----------
    reader : Reader
        Of the model, at this text.
    prompt : list of int
    number : int
        Of the prompt. Each has its own random stream, whatever was drawn for others.
    sampling : Sampling
    eos_token_ids : collection of int
        Tokens that end the text.

    Returns
    -------
    list of int
        The prompt and the new tokens; an end token is the last.
    """
    rng = generator(sampling.seed, "capture", number)
    text = list(prompt)
    while len(text) < len(prompt) + sampling.max_new_tokens:
        logits = reader.logits(text, len(text) - 1, len(text))[0]
        probs = probs_from_logits(logits, temperature=sampling.temperature)
        text.append(int(draw_tokens(probs, rng.random())))
        if text[-1] in eos_token_ids:
            break
    return text
