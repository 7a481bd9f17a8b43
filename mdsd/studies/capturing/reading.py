"""A model that reads one text from its beginning, many positions in one call, or continues it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from mdsd._random import draw_tokens, generator
from mdsd._typing import AnyArray
from mdsd.decoding import MappedModel, Model
from mdsd.decoding.decoder import draft_rows
from mdsd.decoding.rows import PlainRows
from mdsd.decoding.windows import Notices, window_start
from mdsd.errors import InvalidDistributionError
from mdsd.filters import probs_from_logits
from mdsd.studies.capturing.capture_settings import CaptureSettings

_BLOCK = 256
"""Positions of a call: a forward of this length is about as quick, by token, as a longer one."""

_BLOCK_LOGITS = 2**24
"""Logits that a call may return, 64 megabytes in float32."""


def blocks(first: int, stop: int, vocab_size: int) -> Iterator[tuple[int, int]]:
    """Cut positions into ranges for which a model is asked in one call.

    Examples
    --------
    >>> list(blocks(3, 300, 4096))
    [(3, 259), (259, 300)]
    """
    size = _block_size(vocab_size)
    for start in range(first, stop, size):
        yield start, min(start + size, stop)


class Reader:
    """A model at one text.

    Parameters
    ----------
    name : str
        What to call the model in an error.
    model : Model
        One that keeps what it has read is told to ``forget`` it, so that nothing depends on the
        texts before; one with a ``context_length`` is never shown more.
    text_name : str
        What to call the text in an error.
    notices : Notices
        Told of positions that are left out.
    """

    def __init__(self, name: str, model: Model, text_name: str, notices: Notices) -> None:
        self._name, self._model, self._text_name = name, model, text_name
        self._notices = notices
        self._rows = draft_rows(name, model, PlainRows, notices)
        self._context_length: int | None = getattr(model, "context_length", None)
        self._forget = getattr(model, "forget", None)
        self._start, self._read = -1, 0

    def logits(self, text: list[int], first: int, stop: int) -> AnyArray:
        """Give the logits of the tokens that follow some tokens of the text.

        Parameters
        ----------
        text : list of int
            It may grow from one call to the next.
        first, stop : int
            Range of the tokens; no call is about one before those of earlier calls.

        Returns
        -------
        ndarray, shape (stop - first, V)
            Minus infinity where all that a `MappedModel` proposes is unknown to the target.

        Raises
        ------
        InvalidDistributionError
            If the model returns something else than logits of a distribution: text and token are
            named.
        """
        parts = []
        while first < stop:
            start = window_start(first, self._context_length)
            end = first + 1
            while end < stop and window_start(end, self._context_length) == start:
                end += 1
            self._go_to(text, start, first)
            prefixes = [text[start : token + 1] for token in range(first, end)]
            (rows,) = self._rows.logits([prefixes])
            self._check(rows, first)
            parts.append(rows)
            self._read = end
            first = end
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _go_to(self, text: list[int], start: int, first: int) -> None:
        """Have a model that keeps what it reads begin at a window, and read up to a token."""
        if start != self._start:
            self._start, self._read = start, start
            if self._forget is not None:
                self._forget()
        if self._forget is not None:
            size = _block_size(self._model.vocab_size)
            # Not all in one call, which may take more memory than there is.
            for stop in range(self._read + size, first, size):
                self._rows.logits([[text[start:stop]]])

    def _check(self, rows: AnyArray, first: int) -> None:
        peaks = rows.max(axis=1)  # NaN if there is one
        bad = ~np.isfinite(peaks)
        if isinstance(self._model, MappedModel) and (lost := peaks == -np.inf).any():
            self._notices.add(
                f"positions without {self._name}",
                f"{self._name} proposes only tokens that the target does not have, first after "
                f"token {first + int(lost.argmax())} of {self._text_name}: such positions are left "
                "out",
            )
            bad &= ~lost
        if not bad.any():
            return
        row = int(bad.argmax())
        wrong = np.flatnonzero(~(rows[row] < np.inf))
        what = "no token is possible"
        if len(wrong):
            what = f"index {wrong[0]} is {float(rows[row, wrong[0]])!r}"
        raise InvalidDistributionError(
            f"logits of {self._name} after token {first + row} of {self._text_name}: {what}"
        )


def continued(
    reader: Reader,
    prompt: list[int],
    number: int,
    settings: CaptureSettings,
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
    settings : CaptureSettings
        Of samples.
    eos_token_ids : collection of int
        Tokens that end the text.

    Returns
    -------
    list of int
        The prompt and the new tokens; an end token is the last.
    """
    rng = generator(settings.seed, "capture", number)
    text = list(prompt)
    while len(text) < len(prompt) + (settings.max_new_tokens or 0):
        logits = reader.logits(text, len(text) - 1, len(text))[0]
        probs = probs_from_logits(logits, temperature=settings.temperature or 0.0)
        text.append(int(draw_tokens(probs, rng.random())))
        if text[-1] in eos_token_ids:
            break
    return text


def _block_size(vocab_size: int) -> int:
    return max(1, min(_BLOCK, _BLOCK_LOGITS // vocab_size))
