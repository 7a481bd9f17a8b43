"""What the decoding method cannot do, said before any model is run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from mdsd._arguments import shown
from mdsd.decoding.transformers._caches import CACHE_KEYWORDS, cache_of, new_cache
from mdsd.decoding.transformers._stateful import STATELESS, kept_state
from mdsd.errors import InvalidArgumentError, UnsupportedError

_MASKED_ATTENTION = ("sdpa", "eager")
"""Attention implementations that take a 4-D mask."""

_LAYER_TYPES = frozenset({"full_attention", "mlp", "moe"})
_OWN_POSITIONS = ("xglm",)
_MODES = ("greedy_search", "sample")
_OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")

_READ = frozenset(
    {"attention_mask", "position_ids", "cache_position", "use_cache", "logits_to_keep"}
).union(CACHE_KEYWORDS)
"""Arguments for the model that `multi_draft` reads, or replaces by its own."""

_STATEFUL = {
    "SynthIDTextWatermarkLogitsProcessor": "keeps a state from one token to the next",
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": "runs the model itself",
}
"""Logits processors that are no function of a prefix and its logits."""


def is_transformers_model(model: Any) -> bool:
    """Tell whether an object is a model of transformers, without importing it."""
    return any(
        kind.__name__ == "PreTrainedModel" and kind.__module__.startswith("transformers.")
        for kind in type(model).__mro__
    )


def forward_parameters(model: Any) -> frozenset[str]:
    """Names of the arguments of a model's forward, whatever it has been wrapped in."""
    names: set[str] = set()
    for function in (type(model).forward, model.forward):
        names |= set(inspect.signature(function).parameters)
    return frozenset(names)


def check_causal(name: str, model: Any) -> None:
    """Refuse models that cannot read a tree in one forward.

    Parameters
    ----------
    name : str
        What to call the model in an error.
    model : object

    Raises
    ------
    InvalidArgumentError
        If it is no causal language model of transformers.
    UnsupportedError
        Naming what it has, or lacks.
    """
    if not is_transformers_model(model):
        raise InvalidArgumentError(
            f"{name} is {type(model).__name__}; expected a causal language model of transformers"
        )
    _refuse(f"{name} ({type(model).__name__})", _problems(model))


def check_tokenizer(name: str, tokenizer: Any) -> None:
    """Refuse what cannot say which token an id stands for.

    Raises
    ------
    InvalidArgumentError
        Naming the argument.
    """
    if not callable(getattr(tokenizer, "get_vocab", None)) or isinstance(tokenizer, type):
        raise InvalidArgumentError(
            f"{name} is {shown(tokenizer)}; expected a tokenizer of transformers"
        )


def find_tokenizer(model: Any) -> Any:
    """Load the tokenizer that lies where a model was loaded from; None if there is none.

    Nothing is downloaded.
    """
    place = getattr(model, "name_or_path", "")
    if not place:
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(place, local_files_only=True)
    except Exception:  # of any class, as the files decide which code reads them
        return None


def _refuse(name: str, problems: Iterator[str]) -> None:
    """Raise an error about the first problem, if there is one."""
    for problem in problems:
        raise UnsupportedError(f"{name} {problem}")


def _problems(model: Any) -> Iterator[str]:
    """List, in words, why a model cannot read a tree in one forward."""
    config = model.config.get_text_config(decoder=True)
    if model.config.is_encoder_decoder:
        yield "is an encoder-decoder model; only decoder-only models are supported"
    if getattr(model, "_is_stateful", False):
        yield "has a recurrent state, which cannot be taken back; only attention is supported"
    if model.get_output_embeddings() is None:
        yield "has no language-modelling head; load it as a causal language model"
    names = forward_parameters(model)
    for needed in ("attention_mask", "position_ids"):
        if needed not in names:
            yield f"takes no {needed}, by which the tokens of a tree are told apart"
    if not names.intersection(CACHE_KEYWORDS):
        yield f"takes no key-value cache under any of the names {', '.join(CACHE_KEYWORDS)}"
    if getattr(config, "alibi", False):
        yield "has ALiBi, whose distances are not those of a tree"
    if "local" in (getattr(config, "attention_layers", None) or ()):
        yield "has local attention, whose distances are not those of a tree"
    if config.model_type in _OWN_POSITIONS:
        yield "works out positions of its own, whatever position_ids say"
    kinds = sorted(set(getattr(config, "layer_types", None) or ()) - _LAYER_TYPES)
    if kinds:
        yield f"has layers of the types {', '.join(kinds)}; only full attention is supported"
    attention = config._attn_implementation
    if attention not in _MASKED_ATTENTION:
        yield (
            f"runs attn_implementation {attention!r}, which takes no 4-D attention mask; load it "
            f"with {' or '.join(map(repr, _MASKED_ATTENTION))}"
        )
    yield from _cache_problems(new_cache(model))


def _cache_problems(cache: Any) -> Iterator[str]:
    """List, in words, why single slots of a cache cannot be kept."""
    if getattr(cache, "offloading", False):
        yield "has an offloaded cache; only a dynamic cache on the model's device is supported"
    for layer in getattr(cache, "layers", [cache]):
        kind = type(layer).__name__
        if kind not in ("DynamicLayer", "DummyLayer"):
            if getattr(layer, "is_sliding", False):
                kind = f"sliding windows ({kind})"
            yield f"has a cache of {kind}; only a DynamicCache of full attention is supported"


def check_settings(model: Any, config: Any, arguments: dict[str, Any]) -> None:
    """Refuse settings of ``generate`` that `multi_draft` does not follow.

    Parameters
    ----------
    model : PreTrainedModel
        The target.
    config : GenerationConfig
    arguments : dict
        Arguments for the model.

    Raises
    ------
    UnsupportedError
        Naming the setting.
    """
    kind = config.get_generation_mode()
    mode = str(getattr(kind, "value", kind))
    if mode not in _MODES:
        raise UnsupportedError(
            f"generation mode {mode!r} is not supported; multi_draft samples, or takes the most "
            "likely token, with num_beams=1"
        )
    if config.use_cache is False or arguments.get("use_cache") is False:
        raise UnsupportedError("use_cache=False is not supported; multi_draft keeps its caches")
    cache = cache_of(arguments)
    if cache is not None:
        _refuse(f"the target ({type(model).__name__})", _cache_problems(cache))
        if cache.get_seq_length() > 0:
            raise UnsupportedError(
                f"a cache that already holds {cache.get_seq_length()} tokens is not supported"
            )
    if config.return_dict_in_generate:
        for name in _OUTPUTS:
            if getattr(config, name, None):
                raise UnsupportedError(f"{name} is not supported; only the sequences are returned")
    for name, value in arguments.items():
        if value is not None and value is not False and name not in _READ:
            raise UnsupportedError(
                f"the argument {name} is not supported; the target is given token ids only"
            )


def check_processors(processors: Any) -> None:
    """Refuse logits processors that are no function of row, prefix and logits.

    Raises
    ------
    UnsupportedError
        Naming the first.
    """
    for processor in processors:
        for kind in type(processor).__mro__:
            if kind.__name__ in _STATEFUL:
                _refuse_processor(processor, _STATEFUL[kind.__name__])
        for function in (processor, getattr(processor, "_prefix_allowed_tokens_fn", None)):
            state = kept_state(function)
            if state is not None:
                _refuse_processor(
                    function,
                    f"keeps {state!r} from one call to the next",
                    "; if what it returns depends on row, prefix and logits alone, give it an "
                    f"attribute {STATELESS} = True",
                )


def _refuse_processor(processor: Any, why: str, otherwise: str = "") -> None:
    name = getattr(processor, "__qualname__", type(processor).__name__)
    raise UnsupportedError(
        f"{name} {why}, which is not supported: prefixes of a tree are processed whose tokens may "
        f"be rejected{otherwise}"
    )


def check_positions(given: Any, expected: Any, read: Any) -> None:
    """Refuse position ids other than those of the attention mask.

    Parameters
    ----------
    given, expected : tensor of int, shape (B, P) or (1, P)
    read : tensor of bool, shape (B, P)
        Tokens that are not padding.

    Raises
    ------
    UnsupportedError
    """
    if given.ndim != 2 or given.shape[1] != expected.shape[1]:
        raise UnsupportedError(f"position_ids of shape {tuple(given.shape)} are not supported")
    if ((given != expected) & read).any():
        raise UnsupportedError(
            f"position_ids {shown(given.tolist())} are not supported; expected those of the "
            "attention mask"
        )
