"""What tells one capture from another: digests of models and vocabularies, and versions."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any, NamedTuple

import numpy as np

from mdsd._version import __version__
from mdsd.decoding import MappedModel, Model, NGramModel, TableModel
from mdsd.decoding.llama_cpp import GGUFModel
from mdsd.decoding.transformers import CausalLM

_NOT_OF_THE_MODEL = ("_name_or_path", "transformers_version")
"""Entries of a configuration that say where it was loaded from, and by what."""


def describe_model(name: str, model: Model) -> dict[str, Any]:
    """Say which model it is, so that another one of the same name is told from it.

    Parameters
    ----------
    name : str
    model : Model

    Returns
    -------
    dict
        The name, the class and, of models of this library, a SHA-256 of all that their
        distributions depend on: configuration and weights of a causal language model, the counts of
        n-grams, GGUF files. Of language models also what their last digits may depend on: type of
        number, device, attention and, on the CPU, the number of threads.

    Examples
    --------
    >>> found = describe_model("chain", TableModel([[0.5, 0.5], [1.0, 0.0]]))
    >>> found["class"], len(found["sha256"])
    ('TableModel', 64)
    """
    found: dict[str, Any] = {"name": name, "class": type(model).__name__}
    inner = _unmapped(model)
    language = _language_model(inner)
    if language is not None:
        found |= language.describe(inner)
    elif not isinstance(inner, (NGramModel, TableModel)):
        return found
    digest = hashlib.sha256()
    _add_model(digest, model)
    return found | {"sha256": digest.hexdigest()}


def _unmapped(model: Model) -> Model:
    while isinstance(model, MappedModel):
        model = model._model
    return model


def _describe_causal(causal: CausalLM) -> dict[str, Any]:
    import torch

    model = causal.model
    config = model.config.get_text_config(decoder=True)
    found = {
        "architecture": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": model.device.type,
        "attention": str(config._attn_implementation),
    }
    if model.device.type == "cpu":
        # Sums may be split among threads, and end in other last digits.
        found["threads"] = torch.get_num_threads()
    return found


def _add_model(digest: Any, model: Any) -> None:
    if isinstance(model, MappedModel):
        _add_model(digest, model._model)
        _add(digest, model._target_token_ids, model.vocab_size, model._unknown)
    elif (language := _language_model(model)) is not None:
        language.add(digest, model)
    else:
        for name, value in sorted(vars(model).items()):
            _add(digest, name, *(value if isinstance(value, list) else [value]))


def _add(digest: Any, *values: Any) -> None:
    for value in values:
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str} {value.shape}\n".encode())
            digest.update(np.ascontiguousarray(value).data)
        else:
            digest.update(f"{value!r}\n".encode())


def _add_weights(digest: Any, causal: CausalLM) -> None:
    import torch

    model = causal.model
    config = model.config.to_dict()
    for name in _NOT_OF_THE_MODEL:
        config.pop(name, None)
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, weights in sorted(model.state_dict().items()):
        digest.update(f"{name} {weights.dtype} {tuple(weights.shape)}\n".encode())
        plain = weights.detach().cpu().contiguous().reshape(-1)
        digest.update(plain.view(torch.uint8).numpy().data)


class _LanguageModel(NamedTuple):
    """How models of a class are told from others.

    Attributes
    ----------
    packages : tuple of str
        The libraries that run them.
    describe : callable
        Gives what their last digits may depend on.
    add : callable
        Adds to a digest what their distributions depend on.
    """

    packages: tuple[str, ...]
    describe: Callable[[Any], dict[str, Any]]
    add: Callable[[Any, Any], None]


_LANGUAGE_MODELS: dict[type, _LanguageModel] = {
    CausalLM: _LanguageModel(("torch", "transformers"), _describe_causal, _add_weights),
    GGUFModel: _LanguageModel(
        ("llama-cpp-python",), GGUFModel.describe, lambda digest, model: _add(digest, model.sha256)
    ),
}


def _language_model(model: Any) -> _LanguageModel | None:
    found = (language for kind, language in _LANGUAGE_MODELS.items() if isinstance(model, kind))
    return next(found, None)


def vocabulary_digest(vocabulary: Mapping[str, int]) -> str:
    """SHA-256 of the tokens with their ids, whatever order they come in.

    Examples
    --------
    >>> vocabulary_digest({"a": 0, "b": 1}) == vocabulary_digest({"b": 1, "a": 0})
    True
    """
    return hashlib.sha256(
        json.dumps(sorted((token, int(k)) for token, k in vocabulary.items())).encode()
    ).hexdigest()


def token_ids_digest(texts: Iterable[Sequence[int]]) -> str:
    """SHA-256 of texts as token ids.

    Examples
    --------
    >>> token_ids_digest([[1, 2], [3]]) == token_ids_digest([[1], [2, 3]])
    False
    """
    digest = hashlib.sha256()
    for text in texts:
        digest.update(f"{len(text)}\n".encode())
        digest.update(np.array(text, dtype="<i8").data)
    return digest.hexdigest()


def versions(models: Iterable[Model]) -> dict[str, str]:
    """Versions of what the numbers come from.

    Parameters
    ----------
    models : iterable of Model
        Language models are of the versions of the libraries that run them, too.

    Examples
    --------
    >>> list(versions([]))
    ['mdsd', 'python', 'numpy']
    """
    found = {"mdsd": __version__, "python": platform.python_version(), "numpy": np.__version__}
    used = {_language_model(_unmapped(model)) for model in models}
    for language in _LANGUAGE_MODELS.values():
        if language in used:
            found |= {name: metadata.version(name) for name in language.packages}
    return found
