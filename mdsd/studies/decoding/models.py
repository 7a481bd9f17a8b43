"""Pairs of models with the tokenizer between them and text: embedded, or loaded from paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mdsd.decoding import Model, embedded_pair
from mdsd.decoding.vocabulary import over_vocabulary
from mdsd.errors import InvalidArgumentError
from mdsd.studies.decoding.loading import check_path, load_model


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
    """Load models, or give the embedded pair where there are none.

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
        If only one of both is given, or as for `load_models`.
    """
    if target is None and not draft_models:
        return embedded_models()
    if target is None or not draft_models:
        missing = "target" if target is None else "draft_model"
        raise InvalidArgumentError(f"{missing} is missing; expected both models or none")
    return load_models(target, draft_models)


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


def load_models(target: Path, draft_models: Sequence[Path]) -> TextModels:
    """Load language models from this machine; nothing is downloaded.

    Parameters
    ----------
    target : path
        A GGUF file, or a folder of a model of transformers with its tokenizer: see
        `mdsd.studies.decoding.loading.load_model`.
    draft_models : sequence of paths
        The same. A draft model whose folder has no tokenizer, or an equal one, shares the target's
        token ids; those of another tokenizer are mapped by the tokens they stand for.

    Returns
    -------
    TextModels

    Raises
    ------
    InvalidArgumentError, UnsupportedError
        As `load_model`.
    UnsupportedError
        If a draft model has no token in common with the target.
    """
    named = [("target", target), *(("draft_model", path) for path in draft_models)]
    for name, path in named:
        check_path(name, path)
    loaded, *others = (load_model(path) for _, path in named)
    tokenizer = loaded.tokenizer
    if tokenizer is None:
        raise InvalidArgumentError(f"{target}: holds no tokenizer, which a target needs")
    size = loaded.model.vocab_size
    return TextModels(
        loaded.model,
        tuple(
            over_vocabulary(each.model, each.tokenizer or tokenizer, tokenizer, size)
            for each in others
        ),
        loaded.encode,
        loaded.decode,
        loaded.eos_token_ids,
        tuple(str(path) for _, path in named),
        tokenizer.get_vocab(),
    )
