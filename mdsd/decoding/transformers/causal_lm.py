"""Models of transformers as models of `mdsd.decoding`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd._typing import AnyArray
from mdsd.decoding.token_ids import shared_start
from mdsd.decoding.transformers._rows import CachedRows
from mdsd.decoding.transformers._support import check_causal, check_tokenizer, find_tokenizer
from mdsd.decoding.vocabulary import on_host

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class CausalLM:
    """A causal language model of transformers, as a `mdsd.decoding.Model`.

    Parameters
    ----------
    model : PreTrainedModel
        Decoder-only, with full attention (``eager`` or ``sdpa``).
    tokenizer : PreTrainedTokenizer, optional
        By default the one that lies where the model was loaded from, on this machine, if there is
        one: it is looked at where a target and a draft model have vocabularies of different sizes.

    Attributes
    ----------
    model : PreTrainedModel
    given_tokenizer : PreTrainedTokenizer or None
        As given.
    vocab_size : int
        V: the number of logits.
    context_length : int or None
        The longest prefix that the model was made for; None if its configuration does not say.

    Raises
    ------
    InvalidArgumentError
        If `model` is no model of transformers.
    UnsupportedError
        If it is an encoder-decoder model, has a sliding window or a recurrent state, or its
        attention implementation takes no 4-D mask.

    Notes
    -----
    All prefixes of a call are read in one forward of the model. Keys and values of what they have
    in common with those of the call before are kept, so that a decoder's steps and levels read new
    tokens only. Wrapped in a `MappedModel` it can draft for a model with another vocabulary.

    Examples
    --------
    With two models of transformers that have the same tokens::

        from mdsd.decoding import generate
        from mdsd.decoding.transformers import CausalLM

        result = generate(
            CausalLM(target), CausalLM(draft_model), prompt_ids, tree=[3, 2, 1], max_new_tokens=8
        )
        print(result.tokens_per_target_call, result.seconds)
    """

    def __init__(self, model: PreTrainedModel, tokenizer: Any = None) -> None:
        check_causal("model", model)
        if tokenizer is not None:
            check_tokenizer("tokenizer", tokenizer)
        self.model, self.given_tokenizer = model, tokenizer
        self.vocab_size = int(model.get_output_embeddings().weight.shape[0])
        longest = getattr(
            model.config.get_text_config(decoder=True), "max_position_embeddings", None
        )
        self.context_length = None if longest is None else int(longest)

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer; None if none is known."""
        if self.given_tokenizer is not None:
            return self.given_tokenizer
        return find_tokenizer(self.model)

    @cached_property
    def _rows(self) -> CachedRows:
        return CachedRows("model", self.model, 1)

    def logits(self, prefixes: list[list[int]]) -> AnyArray:
        """Give the logits after some prefixes, in one forward.

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
            If a prefix is empty.
        """
        if not len(prefixes):
            return np.zeros((0, self.vocab_size), dtype=np.float32)
        asked = [list(prefix) for prefix in prefixes]
        self._rows.keep([0], [shared_start(asked)])
        return on_host(self._rows.logits([asked])[0])

    def forget(self) -> None:
        """Let go of all that has been read: the next call reads its prefixes whole."""
        self.__dict__.pop("_rows", None)
