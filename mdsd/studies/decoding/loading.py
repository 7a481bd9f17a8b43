"""What loads the model that is at a path: a GGUF file, or a folder of transformers."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mdsd._arguments import one_line, shown
from mdsd.decoding import Model
from mdsd.errors import InvalidArgumentError, UnsupportedError

GGUF = ".gguf"
"""What names of GGUF files end in."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model with what stands between it and text.

    Attributes
    ----------
    model : Model
    tokenizer : object or None
        With ``get_vocab()``, as `over_vocabulary` takes it; None if there is none.
    encode, decode : callable
        Turn text into token ids, and back.
    eos_token_ids : tuple of int
        Tokens that end a text.
    """

    model: Model
    tokenizer: Any
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    eos_token_ids: tuple[int, ...]


def check_path(name: str, path: Path) -> None:
    """Check that a path can be that of a model, before any is loaded.

    Raises
    ------
    InvalidArgumentError
        If it is neither a folder nor named like a GGUF file.
    """
    if not path.is_dir() and not _is_gguf(path):
        raise InvalidArgumentError(
            f"{name} is {shown(str(path))}, which is no folder, nor a file whose name ends in "
            f"{GGUF}"
        )


def load_model(path: Path) -> LoadedModel:
    """Load the model that is at a path.

    Parameters
    ----------
    path : path
        A file that ends in ``.gguf``, which llama.cpp runs; or a folder as ``save_pretrained``
        writes it or with a single GGUF file, for transformers.

    Returns
    -------
    LoadedModel
        One of transformers in float32, on the CPU.

    Raises
    ------
    UnsupportedError
        If the libraries that it needs are not installed, or the model cannot read a tree of tokens.
    InvalidArgumentError
        If it cannot be loaded.
    """
    return _load_file(path) if _is_gguf(path) else _load_folder(path)


def _is_gguf(path: Path) -> bool:
    return path.suffix.lower() == GGUF and not path.is_dir()


def _load_file(path: Path) -> LoadedModel:
    from mdsd.decoding.llama_cpp import GGUFModel

    model = GGUFModel(path)
    tokenizer = model.tokenizer
    return LoadedModel(
        model, tokenizer, tokenizer.encode, tokenizer.decode, tokenizer.eos_token_ids
    )


def _load_folder(folder: Path) -> LoadedModel:
    transformers = _transformers()
    from mdsd.decoding.transformers import CausalLM

    tokenizer: Any = None
    if _has_tokenizer(folder):
        tokenizer = _load(transformers.AutoTokenizer, folder)
    model = CausalLM(_load(transformers.AutoModelForCausalLM, folder, dtype="float32").eval())

    def encode(text: str) -> list[int]:
        return list(tokenizer(text)["input_ids"])

    def decode(token_ids: list[int]) -> str:
        text: str = tokenizer.decode(
            token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    return LoadedModel(model, tokenizer, encode, decode, _end_tokens(model.model, tokenizer))


def _transformers() -> Any:
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as error:
        raise UnsupportedError(
            f"models from folders need torch and transformers: pip install 'mdsd[models]' ({error})"
        ) from None
    # Its bars and warnings would stand between the text and its table.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _load(kind: Any, folder: Path, **options: Any) -> Any:
    """Load a model or a tokenizer, whatever the folder holds it as."""
    files = sorted(folder.glob("*.gguf"))
    if files and not (folder / "config.json").exists():
        if len(files) > 1:
            raise InvalidArgumentError(f"{folder}: holds {len(files)} GGUF files; expected one")
        options["gguf_file"] = files[0].name
    try:
        with redirect_stderr(io.StringIO()):  # bars that know no other way to be turned off
            return kind.from_pretrained(folder, local_files_only=True, **options)
    except Exception as error:  # of any class, as the file decides which code reads it
        raise InvalidArgumentError(f"{folder}: cannot be loaded: {one_line(error)}") from None


def _has_tokenizer(folder: Path) -> bool:
    return any(folder.glob("tokenizer*")) or any(folder.glob("*.gguf"))


def _end_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    given = getattr(model.generation_config, "eos_token_id", None)
    if given is None:
        given = getattr(tokenizer, "eos_token_id", None)
    ends = given if isinstance(given, (list, tuple)) else [given]
    return tuple(int(token) for token in ends if token is not None)
