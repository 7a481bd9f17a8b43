"""Runs of a decoder, and what several of them come to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from mdsd.decoding import DecodeResult, generate
from mdsd.decoding.results import count_at_least, falling_rates
from mdsd.studies.decoding.cases import DecoderCase
from mdsd.studies.decoding.decoder_settings import DecodeSettings
from mdsd.studies.decoding.models import TextModels
from mdsd.studies.study_rows import DecoderRow


def ratio_of_totals(tops: Sequence[float], bottoms: Sequence[float]) -> tuple[float, float | None]:
    """Estimate a ratio of two means over independent runs.

    Parameters
    ----------
    tops, bottoms : sequence of float, length N
        The two numbers of each run.

    Returns
    -------
    ratio : float
        Sum of `tops` over sum of `bottoms`: runs count by what they took.
    stderr : float or None
        Its standard error from the scatter over runs (N - 1), linearised at the ratio; None for a
        single run.

    Examples
    --------
    >>> ratio_of_totals([10, 20], [5, 5])
    (3.0, 1.0)
    >>> ratio_of_totals([10], [5])
    (2.0, None)
    """
    over, under = np.asarray(tops, dtype=float), np.asarray(bottoms, dtype=float)
    ratio, count = float(over.sum() / under.sum()), len(over)
    if count == 1:
        return ratio, None
    scatter = np.std(over - ratio * under, ddof=1) / under.mean()
    return ratio, float(scatter / math.sqrt(count))


def decoder_row(case: DecoderCase, results: Sequence[DecodeResult]) -> DecoderRow:
    """Pool runs of one decoder.

    Parameters
    ----------
    case : DecoderCase
    results : sequence of DecodeResult
        One for each run; at least one.

    Returns
    -------
    DecoderRow
    """
    tokens = [len(result.token_ids) for result in results]
    calls = [result.target_calls for result in results]
    ratio, stderr = ratio_of_totals(tokens, calls)
    depth = max(len(result.drafted_by_depth) for result in results)
    drafted = np.zeros(depth)
    for result in results:
        drafted[: len(result.drafted_by_depth)] += result.drafted_by_depth
    lengths = np.concatenate([result.accepted_lengths for result in results])
    acceptance = count_at_least(lengths, depth) / drafted
    seconds = [result.seconds for result in results]
    verification = sum(time.verification for time in seconds)
    return DecoderRow(
        **case.label,
        tokens_per_target_call=ratio,
        stderr=stderr,
        acceptance_by_depth=tuple(acceptance.tolist()),
        drafted_by_depth=tuple(map(int, drafted)),
        accepted_lengths=tuple(lengths.tolist()),
        synthetic_acceptance_rates=tuple(falling_rates(acceptance).tolist()),
        tokens=sum(tokens),
        target_calls=sum(calls),
        draft_calls=sum(result.draft_calls for result in results),
        runs=len(results),
        drafting_seconds=sum(time.drafting for time in seconds),
        target_seconds=sum(time.target for time in seconds),
        verification_seconds=verification,
        verification_share=verification / sum(time.total for time in seconds),
    )


def run_decode(
    models: TextModels, settings: DecodeSettings, write: Callable[[str], object] | None = None
) -> tuple[str, DecoderRow]:
    """Generate a text.

    Parameters
    ----------
    models : TextModels
    settings : DecodeSettings
        From `decode_settings`.
    write : callable, optional
        Called with each piece of the text, the prompt first, as soon as it is known.

    Returns
    -------
    text : str
        What follows the prompt.
    row : DecoderRow
    """
    (case,), (seed,) = settings.cases, settings.seeds
    _warm_up(models, settings, case)
    text = _Text(models, settings, write)
    result = _run(models, settings, case, seed, text.append)
    text.end()
    return text.written, decoder_row(case, [result])


def _warm_up(models: TextModels, settings: DecodeSettings, case: DecoderCase) -> None:
    """Take one step: what is compiled or loaded at the first is no part of the time of a step."""
    _run(models, replace(settings, max_new_tokens=1), case, settings.seeds[0])


def _run(
    models: TextModels,
    settings: DecodeSettings,
    case: DecoderCase,
    seed: int,
    callback: Callable[[list[int]], object] | None = None,
) -> DecodeResult:
    return generate(
        **case.options(models),
        **settings.filters.columns,
        prompt_ids=settings.prompt_ids,
        max_new_tokens=settings.max_new_tokens,
        eos_token_id=settings.eos_token_ids or None,
        rng=seed,
        callback=callback,
    )


class _Text:
    """Text of tokens that come one after the other, handed on as far as it is certain."""

    def __init__(
        self,
        models: TextModels,
        settings: DecodeSettings,
        write: Callable[[str], object] | None,
    ) -> None:
        self._decode, self._write = models.decode, write or (lambda piece: None)
        self._token_ids = list(settings.prompt_ids)
        # Decoded together with the prompt: a tokenizer may write a token otherwise at the start.
        self._start = len(self._decode(self._token_ids))
        self.written = ""
        self._write(settings.prompt)

    def append(self, token_ids: list[int]) -> None:
        self._token_ids += token_ids
        # A character of which only some bytes are there yet.
        self._advance(self._decode(self._token_ids).rstrip("\N{REPLACEMENT CHARACTER}"))

    def end(self) -> None:
        self._advance(self._decode(self._token_ids))

    def _advance(self, text: str) -> None:
        piece = text[self._start + len(self.written) :]
        self.written += piece
        if piece:
            self._write(piece)
