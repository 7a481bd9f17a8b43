"""Models of GGUF files as models of `mdsd.decoding`."""

from __future__ import annotations

import os
import weakref
from functools import cached_property, partial
from typing import Any

import numpy as np

from mdsd._arguments import check_whole, shown
from mdsd._files import as_path
from mdsd._typing import AnyArray
from mdsd.batch._threads import _available_cores
from mdsd.decoding.llama_cpp._context import NUM_SEQUENCES, Context
from mdsd.decoding.llama_cpp._files import content_digest
from mdsd.decoding.llama_cpp._loaded import LoadedModel
from mdsd.decoding.llama_cpp._sequences import TEXT, CachedTree
from mdsd.decoding.llama_cpp.tokenizer import GGUFTokenizer
from mdsd.decoding.token_ids import read_sequence, shared_start
from mdsd.errors import InvalidTokenError

_AHEAD = 256
"""Tokens of a prompt that are read together with a tree; others before it."""

_FIRST_CELLS = 1024
"""Tokens that a cache has room for at first; it is made anew with twice as many as needed."""


class GGUFModel:
    """A causal language model in a GGUF file, run by llama.cpp, as a `mdsd.decoding.Model`.

    Parameters
    ----------
    path : path-like
        The file; of a model in several parts the first. Kept open until `close`.
    num_threads : int, optional
        By default all cores that the process may use.
    batch_size : int, default 32
        Most tokens that are computed together (``n_ubatch``). From 64 on the logits of a text may
        depend on what else is read with it.
    num_gpu_layers : int, optional
        Layers to put on a GPU, -1 for all; by default as llama.cpp decides.

    Attributes
    ----------
    path : Path
    vocab_size : int
        V.
    context_length : int
        The longest text that the model was trained on.
    tokenizer : GGUFTokenizer

    Raises
    ------
    InvalidArgumentError
        If the file is missing, is no GGUF file, or cannot be loaded, as one that was cut off; or an
        option is out of range.
    UnsupportedError
        If llama-cpp-python is not installed, or the model is an encoder, one of embeddings, or has
        a recurrent state.

    Notes
    -----
    All prefixes of a call, the nodes of a tree, are read in one call of ``llama_decode``: each leaf
    is a sequence of the cache, and what leaves have in common belongs to all of theirs. (More than
    127 leaves, or 512 tokens that are new, take several.) Keys and values of what the prefixes have
    in common with those of the call before are kept, and what was rejected is removed; of an
    accepted path, the tokens that stand behind rejected ones in the cache are read again. The cache
    grows with the text. Threads may share a model: each call waits for the one before it.

    Logits are float32, as llama.cpp computes them with its own settings: flash attention where it
    decides so, keys and values in float16. Its kernels for CPUs sum in another order for 64 tokens
    and more at once, for one token by several threads, and for tokens that are in another order in
    the cache, which quantised weights amplify to differences of 1 in a logit. None of it happens
    here: the logits of a text are the same in whatever pieces it is read, but for types of weights,
    float32 and float16 among them, whose products are summed in another order for one token than
    for several (float32: 1e-5 in a logit, and 4e-3 in one of some thousand texts).

    Examples
    --------
    With a model of one's own, which drafts for itself by n-grams::

        from mdsd.decoding import NGramModel, generate
        from mdsd.decoding.llama_cpp import GGUFModel

        with GGUFModel("model.gguf") as target:
            prompt_ids = target.tokenizer.encode("The value of")
            draft_model = NGramModel(prompt_ids, target.vocab_size, 2)
            result = generate(target, draft_model, prompt_ids, max_new_tokens=16)
            print(target.tokenizer.decode(result.token_ids.tolist()))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        num_threads: int | None = None,
        batch_size: int = 32,
        num_gpu_layers: int | None = None,
    ) -> None:
        self.path = as_path(path)
        self.num_threads = (
            _available_cores()
            if num_threads is None
            else check_whole("num_threads", num_threads, 1, 512)
        )
        self.batch_size = check_whole("batch_size", batch_size, 2, 512)
        if num_gpu_layers is not None:
            check_whole("num_gpu_layers", num_gpu_layers, -1, 2**16)
        self._num_gpu_layers = num_gpu_layers
        self._loaded = loaded = LoadedModel(self.path, num_gpu_layers)
        self._contexts: list[Context] = []
        self._free = weakref.finalize(self, _close, self._contexts)
        self.vocab_size = loaded.vocab_size
        self.context_length = loaded.context_length
        self.tokenizer = GGUFTokenizer(loaded)
        self._open(1)

    @property
    def given_tokenizer(self) -> GGUFTokenizer:
        """The tokenizer, which is always known."""
        return self.tokenizer

    @cached_property
    def sha256(self) -> str:
        """Of the file, or of its parts together."""
        return content_digest(self.path)

    def describe(self) -> dict[str, Any]:
        """Say what its last digits may depend on, but for the weights."""
        loaded = self._loaded
        return {
            "architecture": loaded.metadata("general.architecture"),
            "file_type": loaded.metadata("general.file_type"),
            "threads": self.num_threads,
            "batch_size": self.batch_size,
        }

    def logits(self, prefixes: list[list[int]]) -> AnyArray:
        """Give the logits after some prefixes, from one call of llama.cpp.

        Parameters
        ----------
        prefixes : list of lists of int
            At least one token each.

        Returns
        -------
        ndarray of float32, shape (B, V)

        Raises
        ------
        InvalidTokenError
            If a prefix is empty or longer than `context_length`, or holds what is no token id.
        InvalidArgumentError
            If the model has been closed.
        UnsupportedError
            If llama.cpp cannot read them, as where there is too little memory.
        """
        with self._loaded.lock:
            self._loaded.model  # noqa: B018  unless closed
            asked = self._read_prefixes(prefixes)
            if not asked:
                return np.zeros((0, self.vocab_size), dtype=np.float32)
            try:
                if not self._contexts:
                    self._open(1)
                return self._logits(asked)
            except BaseException:
                # It may stand anywhere in the text.
                self._drop()
                raise

    def forget(self) -> None:
        """Let go of all that has been read: the next call reads its prefixes whole.

        Raises
        ------
        InvalidArgumentError
            If the model has been closed.
        """
        with self._loaded.lock:
            self._loaded.model  # noqa: B018  unless closed
            if self._contexts and self._context.num_cells < _FIRST_CELLS:
                self._context.clear()
                self._tree = CachedTree(self._context, NUM_SEQUENCES)
            else:
                # The next is as in the beginning, so that nothing depends on the texts before.
                self._drop()

    def close(self) -> None:
        """Free the memory of the model; it cannot be asked any more."""
        with self._loaded.lock:
            self._free()
            self._loaded.close()

    def __enter__(self) -> GGUFModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # Pointers mean nothing in another process, which loads the file itself.
        load = partial(
            GGUFModel,
            num_threads=self.num_threads,
            batch_size=self.batch_size,
            num_gpu_layers=self._num_gpu_layers,
        )
        return load, (self.path,)

    @property
    def _context(self) -> Context:
        return self._contexts[0]

    def _open(self, num_tokens: int) -> None:
        """Make an empty cache, with room for so many tokens at least."""
        size = _FIRST_CELLS
        while size <= num_tokens:
            size *= 2
        self._drop()  # before, so that there is room for both at no time
        self._contexts.append(
            Context(
                self._loaded,
                num_cells=size,
                batch_size=self.batch_size,
                num_threads=self.num_threads,
            )
        )
        self._tree = CachedTree(self._context, NUM_SEQUENCES)

    def _drop(self) -> None:
        """Free the cache; the next call makes one."""
        _close(self._contexts)

    def _read_prefixes(self, prefixes: Any) -> list[list[int]]:
        try:
            rows = list(prefixes)
        except TypeError:
            raise InvalidTokenError(
                f"prefixes is {shown(prefixes)}; expected lists of token ids"
            ) from None
        asked = []
        for row, prefix in enumerate(rows):
            name = f"prefixes row {row}"
            text = read_sequence(name, prefix, self.vocab_size, least=1)
            if len(text) > self.context_length:
                raise InvalidTokenError(
                    f"{name} has {len(text)} tokens; expected at most {self.context_length}, "
                    f"as {self._loaded.name} was made for"
                )
            asked.append(text)
        return asked

    def _logits(self, prefixes: list[list[int]]) -> AnyArray:
        self._read_shared(shared_start(prefixes))
        tree = self._tree
        new, asked = tree.unread(prefixes)
        places = None if self._is_full(len(new)) else tree.place(new)
        if places is None:
            # Without the branches of the calls before.
            tree.forget_branches()
            new, asked = tree.unread(prefixes)
            if self._is_full(len(new)):
                self._open(tree.num_cells + len(new))
                return self._logits(prefixes)
            places = tree.place(new)
        if places is None:
            tree.forget_branches()  # those that are not read now
            middle = len(prefixes) // 2
            return np.concatenate(
                [self._logits(prefixes[:middle]), self._logits(prefixes[middle:])]
            )
        ends = {id(node) for node in asked}
        wanted = np.array([id(node) in ends for node in new])
        rows = self._context.read(
            [node.token_id for node in new], [node.position for node in new], places, wanted
        )
        row_of = {id(node): row for row, node in enumerate(n for n in new if id(n) in ends)}
        order = [row_of[id(node)] for node in asked]
        return rows if order == list(range(len(rows))) else rows[order]

    def _is_full(self, num_new: int) -> bool:
        return self._tree.num_cells + num_new > self._context.num_cells

    def _read_shared(self, text: list[int]) -> None:
        """Read a long text ahead, so that what is left of it goes into one call with a tree."""
        self._tree.go_to(text)
        unread = len(text) - len(self._tree.token_ids)
        if unread <= _AHEAD:
            return
        if self._is_full(unread):
            self._open(len(text))
        start = len(self._tree.token_ids)
        unread = len(text) - start
        stop = start + (unread - 1) // _AHEAD * _AHEAD
        positions = range(start, stop)
        unwanted = np.zeros(len(positions), dtype=np.bool_)
        self._context.read(text[start:stop], positions, [[TEXT]] * len(positions), unwanted)
        self._tree.extend(text[start:stop])


def _close(contexts: list[Context]) -> None:
    while contexts:
        contexts.pop().close()
