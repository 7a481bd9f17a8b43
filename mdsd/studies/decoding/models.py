"""Pairs of models with the tokenizer between them and text: embedded, or from local folders."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mdsd._arguments import one_line, shown
from mdsd.decoding import Model, embedded_pair
from mdsd.decoding.vocabulary import over_vocabulary
from mdsd.errors import InvalidArgumentError, UnsupportedError


@dataclass(frozen=True, eq=False)
class TextModels:
    """Models to generate text with.

    Attributes
    ----------
    target : Model
    draft_models : tuple of Model
        Over the target's vocabulary. All but independent drafts use the first.
    encode : callable
        Turns text into token ids.
    decode : callable
        Turns token ids into text.
    eos_token_ids : tuple of int
        Tokens that end a text; none if there are no such tokens.
    names : tuple of str
        Of the target and the draft models, for the settings of a report.
    vocabulary : mapping of str to int
        Token ids of the target by the tokens they stand for.
    """

    target: Model
    draft_models: tuple[Model, ...]
    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    eos_token_ids: tuple[int, ...]
    names: tuple[str, ...]
    vocabulary: Mapping[str, int] = field(default_factory=dict)


def choose_models(target: Path | None, draft_models: Sequence[Path]) -> TextModels:
    """Load models from folders, or give the embedded pair where there are none.

    Parameters
    ----------
    target : path or None
    draft_models : sequence of paths

    Returns
    -------
    TextModels

    Raises
    ------
    InvalidArgumentError, UnsupportedError
        If only one of both is given, or as for `folder_models`.
    """
    if target is None and not draft_models:
        return embedded_models()
    if target is None or not draft_models:
        missing = "target" if target is None else "draft_model"
        raise InvalidArgumentError(f"{missing} is missing; expected folders of both models or none")
    return folder_models(target, draft_models)


def embedded_models() -> TextModels:
    """Give the embedded n-gram pair.

    Returns
    -------
    TextModels

    Examples
    --------
    >>> models = embedded_models()
    >>> models.decode(models.encode("The value of"))
    'The value of'
    """
    pair = embedded_pair()
    return TextModels(
        pair.target,
        (pair.draft_model,),
        pair.vocabulary.encode,
        pair.vocabulary.decode,
        (pair.vocabulary.eos_token_id,),
        (f"embedded {pair.target.order}-gram", f"embedded {pair.draft_model.order}-gram"),
        {piece: token for token, piece in enumerate(pair.vocabulary.pieces)},
    )


def folder_models(target: Path, draft_models: Sequence[Path]) -> TextModels:
    """Load causal language models of transformers from local folders; nothing is downloaded.

    Parameters
    ----------
    target : path
        As ``save_pretrained`` writes it, with its tokenizer, or with a single GGUF file.
    draft_models : sequence of paths
        The same. A draft model whose folder has no tokenizer, or an equal one, shares the target's
        token ids; those of another tokenizer are mapped by the tokens they stand for.

    Returns
    -------
    TextModels
        In float32, on the CPU.

    Raises
    ------
    UnsupportedError
        If torch or transformers is not installed, or a model cannot read a tree of tokens.
    InvalidArgumentError
        If a folder is missing, or cannot be loaded.
    """
    for name, folder in [("target", target), *(("draft_model", path) for path in draft_models)]:
        if not folder.is_dir():
            raise InvalidArgumentError(f"{name} is {shown(str(folder))}, which is no folder")
    transformers = _transformers()
    from mdsd.decoding.transformers import CausalLM

    def load(folder: Path) -> Any:
        return CausalLM(_load(transformers.AutoModelForCausalLM, folder, dtype="float32").eval())

    tokenizer = _load(transformers.AutoTokenizer, target)
    loaded = load(target)
    drafters: list[Model] = []
    for folder in draft_models:
        own = _load(transformers.AutoTokenizer, folder) if _has_tokenizer(folder) else tokenizer
        drafters.append(over_vocabulary(load(folder), own, tokenizer, loaded.vocab_size))

    def decode(token_ids: list[int]) -> str:
        text: str = tokenizer.decode(
            token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    return TextModels(
        loaded,
        tuple(drafters),
        lambda text: list(tokenizer(text)["input_ids"]),
        decode,
        _end_tokens(loaded.model, tokenizer),
        (str(target), *map(str, draft_models)),
        tokenizer.get_vocab(),
    )


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
        given = tokenizer.eos_token_id
    ends = given if isinstance(given, (list, tuple)) else [given]
    return tuple(int(token) for token in ends if token is not None)
