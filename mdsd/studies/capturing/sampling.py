"""Continuations of prompts by the target's own samples."""

from __future__ import annotations

from collections.abc import Collection

from mdsd._random import draw_tokens, generator
from mdsd.filters import probs_from_logits
from mdsd.studies.capturing.reading import Reader

__all__ = ["continuation"]


def continuation(
    reader: Reader,
    prompt: list[int],
    *,
    number: int,
    seed: int,
    max_new_tokens: int,
    temperature: float,
    eos_token_ids: Collection[int],
) -> list[int]:
    """Draw tokens from a model, one after the other.

    Parameters
    ----------
    reader : Reader
        Of the model, at this text.
    prompt : list of int
    number : int
        Of the prompt. Each has its own random stream, whatever was drawn for others.
    seed : int
    max_new_tokens : int
    temperature : float
        0 takes the most likely token.
    eos_token_ids : collection of int
        Tokens that end the text.

    Returns
    -------
    list of int
        The new tokens; an end token is the last.
    """
    rng = generator(seed, "capture", number)
    text = list(prompt)
    while len(text) < len(prompt) + max_new_tokens:
        logits = reader.logits(text, len(text) - 1, len(text))[0]
        law = probs_from_logits(logits, temperature=temperature)
        text.append(int(draw_tokens(law, rng.random())))
        if text[-1] in eos_token_ids:
            break
    return text[len(prompt) :]
