"""A key-value cache of llama.cpp, and reading tokens into it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mdsd._typing import AnyArray, BoolArray
from mdsd.decoding.llama_cpp._library import errors_kept, last_error
from mdsd.decoding.llama_cpp._loaded import LoadedModel
from mdsd.errors import UnsupportedError

NUM_SEQUENCES = 128
"""Of a cache: leaves of trees, of all levels of one step. Logits of as many are allotted."""

_SPARE = NUM_SEQUENCES
"""One more, of tokens that nobody asked about."""

_CALL = 512
"""Most tokens of one call of ``llama_decode``, which computes them batch by batch."""


class Context:
    """A cache of the tokens that a model has read; a `Memory`.

    Parameters
    ----------
    loaded : LoadedModel
        It is not freed before the cache.
    num_cells, batch_size, num_threads : int
        Tokens that it holds, that are computed together, and threads that compute them.

    Raises
    ------
    UnsupportedError
        If llama.cpp cannot make it, as where there is too little memory; or the model has none.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        num_cells: int,
        batch_size: int,
        num_threads: int,
    ) -> None:
        self._loaded, self._batch_size = loaded, batch_size
        self._library = library = loaded.library
        self._several_threads = num_threads > 1
        self._call = _CALL - _CALL % batch_size  # whole batches
        options = library.llama_context_default_params()
        options.n_ctx = num_cells
        options.n_batch, options.n_ubatch = _CALL, batch_size
        options.n_seq_max = NUM_SEQUENCES + 1
        options.kv_unified = True  # branches share the cells of what they have in common
        options.swa_full = True  # a sliding window over all cells: a text can be cut anywhere
        options.n_threads = options.n_threads_batch = num_threads
        options.no_perf = True
        with errors_kept(library) as errors:
            self._pointer = library.llama_init_from_model(loaded.model, options)
        if not self._pointer:
            raise UnsupportedError(
                f"{loaded.name}: llama.cpp makes no cache for {num_cells} tokens: "
                f"{last_error(errors)}"
            )
        self.num_cells = int(library.llama_n_ctx(self._pointer)) - 1
        self._memory = library.llama_get_memory(self._pointer)
        if not self._memory:
            self.close()
            raise UnsupportedError(f"{loaded.name}: keeps no keys and values, as encoders do")

    def close(self) -> None:
        """Free it."""
        pointer, self._pointer = self._pointer, None
        if pointer:
            with errors_kept(self._library):
                self._library.llama_free(pointer)

    def clear(self) -> None:
        """Make all cells free."""
        self._library.llama_memory_clear(self._memory, False)

    def copy(self, source: int, sequence: int, start: int, stop: int) -> None:
        """Put the cells of a sequence at some positions into another one as well."""
        self._library.llama_memory_seq_cp(self._memory, source, sequence, start, stop)

    def remove(self, sequence: int, start: int) -> None:
        """Take the cells from a position on out of a sequence; those of none are free."""
        self._library.llama_memory_seq_rm(self._memory, sequence, start, -1)

    def read(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[Sequence[int]],
        wanted: BoolArray,
    ) -> AnyArray:
        """Read tokens, in one call of ``llama_decode`` if they are no more than 512.

        Parameters
        ----------
        token_ids, positions : sequence of int, length T
            Each token after those it follows.
        sequences : sequence of sequences of int, length T
            Where each belongs; it sees what is earlier in the first of them.
        wanted : ndarray of bool, shape (T,)

        Returns
        -------
        ndarray of float32, shape (W, V)
            Logits after the tokens that are wanted.
        """
        tokens, places, own = list(token_ids), list(positions), list(sequences)
        asked = wanted
        if self._several_threads and len(tokens) % self._call % self._batch_size == 1:
            # Attention of a token alone is split among threads, and summed in another order.
            tokens, places, own = [*tokens, 0], [*places, 0], [*own, [_SPARE]]
            asked = np.append(wanted, False)
        parts = []
        for start in range(0, len(tokens), self._call):
            part = slice(start, start + self._call)
            parts.append(self._decode(tokens[part], places[part], own[part], asked[part]))
        if len(tokens) > len(token_ids):
            self.remove(_SPARE, 0)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _decode(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[Sequence[int]],
        wanted: BoolArray,
    ) -> AnyArray:
        library = self._library
        tokens, places = (np.array(each, dtype=np.int32) for each in (token_ids, positions))
        counts = np.array([len(own) for own in sequences], dtype=np.int32)
        numbers = np.array([each for own in sequences for each in own], dtype=np.int32)
        lists = (numbers.ctypes.data + 4 * (np.cumsum(counts) - counts)).astype(np.uintp)
        asked = wanted.astype(np.int8)
        batch = library.llama_batch(
            n_tokens=len(tokens),
            token=_pointer(tokens, ctypes.POINTER(ctypes.c_int32)),
            pos=_pointer(places, ctypes.POINTER(ctypes.c_int32)),
            n_seq_id=_pointer(counts, ctypes.POINTER(ctypes.c_int32)),
            seq_id=_pointer(lists, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
            logits=_pointer(asked, ctypes.POINTER(ctypes.c_int8)),
        )
        with errors_kept(library) as errors:
            failed = library.llama_decode(self._pointer, batch)
        if failed:
            raise UnsupportedError(
                f"{self._loaded.name}: llama.cpp cannot read {len(tokens)} tokens (code {failed}): "
                f"{last_error(errors)}"
            )
        count, vocab_size = int(asked.sum()), self._loaded.vocab_size
        if not count:
            return np.zeros((0, vocab_size), dtype=np.float32)
        rows = library.llama_get_logits(self._pointer)
        return np.ctypeslib.as_array(rows, shape=(count, vocab_size)).copy()


def _pointer(values: NDArray[np.generic], kind: Any) -> Any:
    return ctypes.cast(values.ctypes.data, kind)
