"""n-gram models: counts of a text, interpolated between orders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole
from mdsd._frozen import FrozenArrays, frozen
from mdsd._typing import FloatArray, IntArray
from mdsd.decoding.token_ids import read_sequence


class NGramModel(FrozenArrays):
    """The next token given the last ``order - 1`` of them, from counts of a text.

    Parameters
    ----------
    token_ids : array_like of int, shape (T,)
        The text; at least one token.
    vocab_size : int
        V.
    order : int
        Length of the longest n-gram counted: 1 for single tokens, 2 for pairs, and so on.

    Raises
    ------
    InvalidTokenError
        If `token_ids` are not integers in ``0 .. V - 1``, or there are none.
    InvalidArgumentError
        If `vocab_size` or `order` is not an integer >= 1.

    Notes
    -----
    Witten-Bell interpolation (Bell, Cleary and Witten, "Text Compression", method C): a context
    seen c times with t different next tokens gives each its count and shares t more counts out as
    the context without its first token would; below single tokens comes the uniform distribution.
    So every token has positive probability. The n-grams of each length are numbered in sorted
    order, each written as its first tokens' number times V plus its last token, so that a context
    is found by bisection and its continuations lie side by side.

    Examples
    --------
    >>> model = NGramModel([0, 1, 0, 1, 0, 2], vocab_size=3, order=2)
    >>> np.exp(model.logits([[2, 0]])).round(4).tolist()
    [[0.1778, 0.5333, 0.2889]]
    """

    def __init__(self, token_ids: ArrayLike, vocab_size: int, order: int) -> None:
        self.vocab_size = check_whole("vocab_size", vocab_size, 1)
        self.order = check_whole("order", order, 1)
        tokens = np.array(read_sequence("token_ids", token_ids, self.vocab_size, least=1))
        self._grams: list[IntArray] = []
        self._counts: list[FloatArray] = []
        numbers = np.zeros(len(tokens), dtype=np.int64)
        for length in range(1, min(self.order, len(tokens)) + 1):
            last = tokens[length - 1 :]
            grams, numbers, counts = np.unique(
                numbers[: len(last)] * self.vocab_size + last,
                return_inverse=True,
                return_counts=True,
            )
            self._grams.append(frozen(grams))
            self._counts.append(frozen(counts.astype(np.float64)))

    def logits(self, prefixes: Sequence[Sequence[int]]) -> FloatArray:
        """Give the log-probabilities of the token after each prefix.

        Parameters
        ----------
        prefixes : sequence of sequences of int
            May be empty, or shorter than a context; tokens never seen end the context.

        Returns
        -------
        ndarray of float64, shape (B, V)
        """
        rows = [self._probs(prefix) for prefix in prefixes]
        return np.log(np.array(rows).reshape(len(rows), self.vocab_size))

    def _probs(self, prefix: Sequence[int]) -> FloatArray:
        probs = np.full(self.vocab_size, 1.0 / self.vocab_size)
        for length in range(1, len(self._grams) + 1):
            if length > len(prefix) + 1:
                break
            first, stop = self._continuations(prefix[len(prefix) + 1 - length :])
            if first == stop:
                break  # longer contexts were never continued either
            counts = self._counts[length - 1][first:stop]
            tokens = self._grams[length - 1][first:stop] % self.vocab_size
            probs *= len(counts)
            probs[tokens] += counts
            probs /= counts.sum() + len(counts)
        return probs

    def _continuations(self, context: Sequence[int]) -> tuple[int, int]:
        """Range of the n-grams that continue a context; empty if there are none."""
        number = 0
        for length, token in enumerate(context, start=1):
            grams = self._grams[length - 1]
            gram = number * self.vocab_size + token
            number = int(grams.searchsorted(gram))
            known = 0 <= token < self.vocab_size and number < len(grams)
            if not known or grams[number] != gram:
                return 0, 0
        grams, start = self._grams[len(context)], number * self.vocab_size
        first, stop = grams.searchsorted([start, start + self.vocab_size])
        return int(first), int(stop)
