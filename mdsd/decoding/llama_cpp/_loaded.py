"""A model of llama.cpp in memory: loading it, what kind it is, and freeing it."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from pathlib import Path
from typing import Any

from mdsd._files import path_name
from mdsd.decoding.llama_cpp._files import check_gguf
from mdsd.decoding.llama_cpp._library import errors_kept, last_error, load_library
from mdsd.errors import InvalidArgumentError, UnsupportedError


class LoadedModel:
    """The model of a GGUF file, freed with the last that refers to it or when it is closed.

    Parameters
    ----------
    path : path
    num_gpu_layers : int, optional
        By default as llama.cpp decides.

    Attributes
    ----------
    name : str
        What to call it in an error.
    library : module
        llama_cpp.
    lock : RLock
        To be held where it could be closed from another thread.
    vocab_size : int
    context_length : int
        The longest text that it was trained on.

    Raises
    ------
    InvalidArgumentError
        If the file is missing, or no GGUF file, or cannot be loaded.
    UnsupportedError
        If llama-cpp-python is not installed, or the model predicts no next tokens, or cannot be
        taken back to an earlier place of a text.
    """

    def __init__(self, path: Path, num_gpu_layers: int | None = None) -> None:
        self.name = path_name(path)
        self.lock = threading.RLock()
        check_gguf(path)
        self.library = library = load_library()
        options = library.llama_model_default_params()
        if num_gpu_layers is not None:
            options.n_gpu_layers = num_gpu_layers
        with errors_kept(library) as errors:
            model = library.llama_model_load_from_file(os.fsencode(path), options)
        if not model:
            raise InvalidArgumentError(f"{self.name}: cannot be loaded: {last_error(errors)}")
        self._model: int = model
        self._free = weakref.finalize(self, _free, library, model)
        try:
            self._check_kind()
        except UnsupportedError:
            self.close()
            raise
        self.vocab_size = int(library.llama_vocab_n_tokens(self.vocabulary))
        self.context_length = int(library.llama_model_n_ctx_train(self.model))

    @property
    def model(self) -> int:
        """Pointer to the model."""
        if not self._free.alive:
            raise InvalidArgumentError(f"{self.name}: has been closed")
        return self._model

    @property
    def vocabulary(self) -> Any:
        """Pointer to its vocabulary."""
        return self.library.llama_model_get_vocab(self.model)

    def metadata(self, key: str) -> str | None:
        """Give an entry of the file's header; ``{arch}`` in the key is the architecture."""
        if "{arch}" in key:
            key = key.format(arch=self.metadata("general.architecture"))
        found = ctypes.create_string_buffer(256)
        with self.lock:
            ask = self.library.llama_model_meta_val_str
            length = ask(self.model, key.encode(), found, len(found))
        return None if length < 0 else found.value.decode(errors="replace")

    def close(self) -> None:
        """Free it; contexts of it are to be freed before."""
        self._free()

    def _check_kind(self) -> None:
        library, model = self.library, self.model
        wrong = None
        if (
            library.llama_model_has_encoder(model)
            or self.metadata("{arch}.attention.causal") == "false"
            or library.llama_model_is_diffusion(model)
        ):
            wrong = "reads texts in both directions, as encoders do"
        elif (self.metadata("{arch}.pooling_type") or "0") != "0":
            wrong = "gives embeddings of texts"
        elif library.llama_model_is_recurrent(model) or library.llama_model_is_hybrid(model):
            raise UnsupportedError(
                f"{self.name}: has a recurrent state, which cannot go back to an earlier token"
            )
        if wrong is not None:
            raise UnsupportedError(f"{self.name}: {wrong}; expected a model of the next token")


def _free(library: Any, model: int) -> None:
    with errors_kept(library):
        library.llama_model_free(model)
