"""Draft models over another vocabulary than the target's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_whole, row_name
from mdsd._frozen import frozen
from mdsd._probabilities import as_float_array, check_probs
from mdsd._tokens import read_token_ids, refuse_outside
from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.decoding.models import Model, check_model, model_logits
from mdsd.decoding.rows import Prefixes, RowModel
from mdsd.errors import InvalidDistributionError, InvalidTokenError, UnsupportedError
from mdsd.filters import probs_from_logits

UNKNOWN = -1
"""In place of the target's id of a draft token that the target does not have."""


def map_vocabulary(
    draft_probs: ArrayLike, target_token_ids: ArrayLike, vocab_size: int
) -> FloatArray:
    """Write the distributions of a draft model over the target's token ids.

    Parameters
    ----------
    draft_probs : array_like, shape (..., W)
        Probabilities over the draft model's own W token ids.
    target_token_ids : array_like of int, shape (W,)
        Target's id of each draft token; -1 for a token that the target does not have. Draft tokens
        of the same target id add up.
    vocab_size : int
        V, the number of the target's token ids.

    Returns
    -------
    ndarray of float64, shape (..., V)
        0 for tokens that the draft model cannot propose. What it gives to tokens that the target
        does not have is spread over the others in proportion.

    Raises
    ------
    InvalidDistributionError
        If a row is no probability vector, or has no mass on tokens of the target.
    InvalidTokenError
        If `target_token_ids` are not W integers in ``-1 .. V - 1``.
    InvalidArgumentError
        If `vocab_size` is not an integer >= 1.

    Examples
    --------
    >>> map_vocabulary([0.2, 0.3, 0.5], [3, 0, -1], 5).tolist()
    [0.6, 0.0, 0.0, 0.4, 0.0]
    """
    values, _ = as_float_array(draft_probs, "draft_probs")
    probs = check_probs(values, "draft_probs", ndim=max(1, values.ndim))
    size = check_whole("vocab_size", vocab_size, 1)
    ids = _check_map(target_token_ids, probs.shape[-1], size)
    mapped = _mapped(probs, ids, size)
    _refuse_empty(mapped)
    return mapped


def _mapped(probs: FloatArray, ids: IntArray, size: int) -> FloatArray:
    """Do what `map_vocabulary` does; rows without mass on tokens of the target are 0."""
    known = ids >= 0
    # Transposed, tokens come first, so that those of one target id add up in one call.
    by_token = np.zeros((size, *probs.shape[:-1][::-1]))
    np.add.at(by_token, ids[known], probs[..., known].T)
    mapped = by_token.T
    masses = mapped.sum(axis=-1, keepdims=True)
    return np.ascontiguousarray(mapped / np.where(masses > 0.0, masses, 1.0))


def _refuse_empty(mapped: FloatArray) -> None:
    empty = ~mapped.any(axis=-1)
    if empty.any():
        row = np.argwhere(empty)[0] if empty.ndim else ()
        raise InvalidDistributionError(
            f"{row_name('draft_probs', row)} has no mass on tokens that the target has"
        )


def _check_map(target_token_ids: ArrayLike, width: int, vocab_size: int) -> IntArray:
    ids = read_token_ids(target_token_ids, "target_token_ids")
    if ids.shape != (width,):
        raise InvalidTokenError(
            f"target_token_ids has shape {ids.shape}; expected ({width},), an id for each token of "
            "the draft model"
        )
    outside = (ids < -1) | (ids >= vocab_size)
    refuse_outside(ids, outside, vocab_size, "target_token_ids", least=-1)
    return ids.astype(np.int64)


class MappedModel:
    """A draft model over its own vocabulary, seen as one over the target's.

    Parameters
    ----------
    model : Model
        Over W token ids.
    target_token_ids : array_like of int, shape (W,)
        As for `map_vocabulary`. A target token that several draft tokens stand for is read as the
        first of them.
    vocab_size : int
        V.
    unknown_token_id : int, optional
        Draft token that the model reads where a prefix holds a token it does not know; by default
        such tokens are left out.

    Attributes
    ----------
    vocab_size : int
        V.
    context_length : int or None
        That of the model, if it has one.

    Raises
    ------
    InvalidArgumentError
        If `model` is no model, or `vocab_size` or `unknown_token_id` is out of range.
    InvalidTokenError
        If `target_token_ids` are not W integers in ``-1 .. V - 1``.

    Notes
    -----
    What the draft model is shown changes how well it drafts, never the law of the output.

    Examples
    --------
    >>> from mdsd.decoding import TableModel
    >>> small = TableModel([[0.5, 0.5], [0.0, 1.0]])
    >>> model = MappedModel(small, [2, 0], vocab_size=4)
    >>> model.logits([[3, 2]]).round(4).tolist()
    [[-0.6931, -inf, -0.6931, -inf]]
    """

    def __init__(
        self,
        model: Model,
        target_token_ids: ArrayLike,
        vocab_size: int,
        *,
        unknown_token_id: int | None = None,
    ) -> None:
        self._model: Model = check_model("model", model)
        self.vocab_size = check_whole("vocab_size", vocab_size, 1)
        self.context_length: int | None = getattr(model, "context_length", None)
        self._target_token_ids = frozen(
            _check_map(target_token_ids, self._model.vocab_size, self.vocab_size)
        )
        self._draft_ids: dict[int, int] = {}
        for own, token in enumerate(self._target_token_ids.tolist()):
            if token >= 0:
                self._draft_ids.setdefault(token, own)
        self._unknown = unknown_token_id
        if unknown_token_id is not None:
            most = self._model.vocab_size - 1
            check_whole("unknown_token_id", unknown_token_id, 0, most, otherwise=" or None")

    def logits(self, prefixes: Sequence[Sequence[int]]) -> FloatArray:
        """Give the model's log-probabilities over the target's token ids.

        Parameters
        ----------
        prefixes : sequence of sequences of int
            Target token ids.

        Returns
        -------
        ndarray of float64, shape (B, V)
            Minus infinity for tokens that the model cannot propose.

        Raises
        ------
        InvalidDistributionError
            If what the model returns is no (B, W) logits, or has no mass on tokens of the target.
        """
        read = [self._read(prefix) for prefix in prefixes]
        probs = self._written(model_logits("model", self._model, read))
        _refuse_empty(probs)
        return _logarithms(probs)

    def forget(self) -> None:
        """Have the model let go of what it has read, if it keeps anything."""
        forget = getattr(self._model, "forget", None)
        if forget is not None:
            forget()

    def _read(self, prefix: Sequence[int]) -> list[int]:
        """Give the prefix as the model reads it, in its own token ids."""
        found = (self._draft_ids.get(int(token), self._unknown) for token in prefix)
        return [token for token in found if token is not None]

    def _written(self, logits: AnyArray) -> FloatArray:
        """Turn the model's logits, (B, W), into probabilities over the target's ids."""
        return _mapped(probs_from_logits(logits), self._target_token_ids, self.vocab_size)


def over_vocabulary(model: Model, tokenizer: Any, target_tokenizer: Any, vocab_size: int) -> Model:
    """Write a draft model over the target's token ids, unless it has them already.

    Parameters
    ----------
    model : Model
    tokenizer, target_tokenizer : PreTrainedTokenizer or GGUFTokenizer
        Those of the draft model and of the target: they have ``get_vocab()``, and may have
        ``unk_token_id``. Where both have ``get_pieces()``, tokens are told by the text they stand
        for, however their files write it.
    vocab_size : int
        V of the target. Either model may have more logits, or fewer, than its tokenizer has tokens.

    Returns
    -------
    Model
        A `MappedModel` by the tokens that the ids stand for, or the model itself.

    Raises
    ------
    UnsupportedError
        If the tokenizers have no token in common.
    """
    both = (tokenizer, target_tokenizer)
    method = "get_pieces" if all(hasattr(each, "get_pieces") for each in both) else "get_vocab"
    theirs, known = (getattr(each, method)() for each in both)
    if theirs == known and model.vocab_size == vocab_size:
        return model
    ids = np.full(model.vocab_size, UNKNOWN)
    for token, number in theirs.items():
        found = known.get(token, UNKNOWN)
        if number < len(ids) and found < vocab_size:
            ids[number] = found
    if ids.max() < 0:
        raise UnsupportedError("the draft model has no token in common with the target")
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is not None and unknown >= len(ids):
        unknown = None
    return MappedModel(model, ids, vocab_size, unknown_token_id=unknown)


def fit_vocabulary(model: Model, target: Model) -> Model:
    """Write a draft model over the target's token ids, where these differ and it is known how.

    Parameters
    ----------
    model, target : Model
        Both with an attribute ``tokenizer``, which is looked at where the vocabularies differ in
        size, and ``given_tokenizer``, None if the user gave none; or without them.

    Returns
    -------
    Model
        As `over_vocabulary` gives it; the model itself where nothing has to be done, or can be.
    """
    name = "given_tokenizer" if model.vocab_size == target.vocab_size else "tokenizer"
    own, known = (getattr(each, name, None) for each in (model, target))
    if own is None or known is None:
        return model
    return over_vocabulary(model, own, known, target.vocab_size)


class MappedRows:
    """The rows of a model over another vocabulary.

    Where the model gives all its mass to tokens that the target does not have, its logits are minus
    infinity: there is nothing to draft.

    Parameters
    ----------
    mapped : MappedModel
    rows : RowModel
        Of the model inside.
    """

    def __init__(self, mapped: MappedModel, rows: RowModel) -> None:
        self.name, self._mapped, self._rows = rows.name, mapped, rows

    def logits(self, prefixes: Prefixes) -> list[Any]:  # noqa: D102
        read = [[self._mapped._read(prefix) for prefix in asked] for asked in prefixes]
        return [
            _logarithms(self._mapped._written(on_host(own))) if len(own) else own
            for own in self._rows.logits(read)
        ]

    def keep(self, rows: list[int], prefixes: list[list[int]]) -> None:  # noqa: D102
        self._rows.keep(rows, [self._mapped._read(prefix) for prefix in prefixes])


def on_host(logits: Any) -> AnyArray:
    """Copy logits to the host, in float32 if they are a tensor."""
    found: AnyArray = logits.float().cpu().numpy() if hasattr(logits, "cpu") else logits
    return found


def _logarithms(probs: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probs))
