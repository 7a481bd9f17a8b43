"""What is taken from a model's distribution before tokens are drawn from it.

Masks, temperature, top-k, top-p and min-p, in that order, as transformers has it. A filter is a
field of `Filters`, a key of the options below, and a step of `Filters._filtered`; all else, from
decoders to the columns of a study, goes by these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import check_name, check_whole, read_array, read_number, row_name, shown
from mdsd._probabilities import as_float_array, check_probs
from mdsd._typing import BoolArray, FloatArray
from mdsd.errors import InvalidArgumentError, InvalidDistributionError


class CutOptions(TypedDict, total=False):
    """Keyword arguments of what filters at several temperatures: the fields of `Filters` but it."""

    top_k: int | None
    top_p: float
    min_p: float


class FilterOptions(CutOptions, total=False):
    """Keyword arguments of everything that filters: the fields of `Filters`."""

    temperature: float


class FilterAxes(TypedDict, total=False):
    """Keyword arguments of a grid of filters, beside its temperatures."""

    top_k: Iterable[int | None]
    top_p: Iterable[float]
    min_p: Iterable[float]


@dataclass(frozen=True)
class Filters:
    """How a model's distribution is filtered before tokens are drawn, for target and draft alike.

    Parameters
    ----------
    temperature : float, default 1.0
        Logits are divided by it; at 0 the most likely token (the lowest id on ties) is certain.
    top_k : int, optional
        Keep exactly this many tokens, the lowest ids on ties; None, 0 and -1 keep all.
    top_p : float, default 1.0
        In (0, 1]: keep the shortest prefix by descending probability whose sum reaches it.
    min_p : float, default 0.0
        In [0, 1]: keep the tokens whose probability is at least this times the largest.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range; names it and the value.

    Notes
    -----
    Order: masks, temperature, top-k, renormalise, top-p, renormalise, min-p, renormalise. What
    top-k keeps is the same before and behind min-p; top-p keeps more tokens before it than it would
    behind it, where some engines have it.

    Examples
    --------
    >>> Filters(top_k=1).of_logits([0.0, 2.0, 1.0]).tolist()
    [0.0, 1.0, 0.0]
    >>> Filters(min_p=0.5).of_probs([0.5, 0.3, 0.2]).round(6).tolist()
    [0.625, 0.375, 0.0]
    >>> Filters(temperature=0.6, top_k=0)
    Filters(temperature=0.6, top_k=None, top_p=1.0, min_p=0.0)
    """

    temperature: float = field(default=1.0, metadata={"words": "Temperature; 0 is greedy."})
    top_k: int | None = field(default=None, metadata={"words": "Keep the k most likely tokens."})
    top_p: float = field(
        default=1.0, metadata={"words": "Keep the shortest prefix that reaches this mass."}
    )
    min_p: float = field(
        default=0.0, metadata={"words": "Keep tokens of at least this times the largest."}
    )

    def __post_init__(self) -> None:
        checked = {
            "temperature": float(_check_temperature(self.temperature, ())) + 0.0,  # -0.0 is 0.0
            "top_k": _check_top_k(self.top_k),
            "top_p": _check_top_p(self.top_p),
            "min_p": _check_min_p(self.min_p),
        }
        vars(self).update(checked)

    @property
    def columns(self) -> dict[str, Any]:
        """The filters by name, as rows and files have them."""
        return {name: getattr(self, name) for name in FILTER_COLUMNS}

    @property
    def words(self) -> list[str]:
        """The temperature, and what else leaves anything out, as headings have them.

        Examples
        --------
        >>> Filters(0.5, top_k=20).words
        ['temperature 0.5', 'top-k 20']
        """
        return [
            f"{each.name.replace('_', '-')} {value:g}"
            for each, value in zip(fields(self), self.columns.values(), strict=True)
            if each.name not in CUT_COLUMNS or value != each.default
        ]

    def of_logits(self, logits: ArrayLike) -> FloatArray:
        """Turn logits into filtered probabilities; see `mdsd.probs_from_logits`."""
        scores = _read_logits(logits)
        return self._filtered(scores, self._by_row(scores), "logits")

    def of_probs(self, probs: ArrayLike) -> FloatArray:
        """Filter probabilities; see `mdsd.filter_probs`."""
        return _filter_probs(probs, self, self.temperature)

    def of_table(self, table: FloatArray, kind: str) -> FloatArray:
        """Filter what a data set holds, logits or probs by its `kind`."""
        of_kind = {"logits": self.of_logits, "probs": self.of_probs}
        return of_kind[check_name("kind", kind, of_kind)](table)

    def _by_row(self, scores: FloatArray) -> FloatArray:
        return np.full(scores.shape[:-1], self.temperature)

    def _filtered(
        self,
        scores: FloatArray,
        temperatures: FloatArray,
        name: str,
        *,
        ranks: FloatArray | None = None,
        probs: FloatArray | None = None,
    ) -> FloatArray:
        """Filter log-probabilities, with a temperature for each row.

        `ranks` orders the tokens as `scores` does, but more finely; `probs` spares the detour
        through `scores` at temperature 1.
        """
        if ranks is None:
            ranks = scores
        kept = _tempered(scores, temperatures, name, ranks, probs)
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            kept[~_top_k_mask(ranks, self.top_k)] = 0.0
            kept /= kept.sum(axis=-1, keepdims=True)
        if self.top_p < 1.0:
            _keep_nucleus(kept, self.top_p)
        if self.min_p > 0.0:
            kept[kept < self.min_p * kept.max(axis=-1, keepdims=True)] = 0.0
            kept /= kept.sum(axis=-1, keepdims=True)
        return kept


FILTER_COLUMNS: tuple[str, ...] = tuple(each.name for each in fields(Filters))
"""Names of the filters, in the order in which they are applied."""

CUT_COLUMNS = tuple(name for name in FILTER_COLUMNS if name != "temperature")
"""Names of the filters that leave tokens out."""


def read_filters(options: FilterOptions) -> Filters:
    """Read the keyword arguments of what filters.

    Raises
    ------
    InvalidArgumentError
        If one is not a filter, or out of range; names it and those that are.
    """
    check_filter_names(options, FILTER_COLUMNS)
    return Filters(**options)


def check_filter_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse keyword arguments that are no filters.

    Raises
    ------
    InvalidArgumentError
        Naming the first, and those that are known.
    """
    for name in names:
        check_name("filter", name, known)


class Filtered:
    """What holds `filters` and shows each of them as an attribute of its own."""

    filters: Filters

    @property
    def temperature(self) -> float:
        """Temperature of target and draft alike."""
        return self.filters.temperature

    @property
    def top_k(self) -> int | None:
        """Tokens kept; None for all."""
        return self.filters.top_k

    @property
    def top_p(self) -> float:
        """Mass kept; 1.0 for all."""
        return self.filters.top_p

    @property
    def min_p(self) -> float:
        """Share of the largest probability below which tokens are left out; 0.0 for none."""
        return self.filters.min_p


def probs_from_logits(
    logits: ArrayLike,
    *,
    temperature: ArrayLike = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    allowed_token_ids: ArrayLike | None = None,
) -> FloatArray:
    """Turn logits into probabilities, filtered as a sampler would.

    Parameters
    ----------
    logits : array_like, or tensor on the host, shape (..., V)
        Unnormalised log-probabilities; minus infinity masks a token.
    temperature : float or array_like of shape (...), default 1.0
        At 0 the most likely token (the lowest id on ties) gets all the mass.
    top_k : int, optional
        Keep exactly this many tokens, the lowest ids on ties; None, 0 and -1 keep all.
    top_p : float, default 1.0
        In (0, 1]: keep the shortest prefix by descending probability whose sum reaches it.
    min_p : float, default 0.0
        In [0, 1]: keep the tokens whose probability is at least this times the largest.
    allowed_token_ids : array_like of int, optional
        Mask every other token, before anything else.

    Returns
    -------
    ndarray of float64, shape (..., V)

    Raises
    ------
    InvalidDistributionError
        If the logits hold NaN or plus infinity, or a row has no token left (empty support).
    InvalidArgumentError
        If an option is out of range.

    Notes
    -----
    Order: masks, temperature, top-k, renormalise, top-p, renormalise, min-p. Use the same options
    for target and draft.

    Probabilities have logits' form and would become a law that is nearly flat. Few rows do not tell
    them apart, so nothing is said here, as it is of a whole `mdsd.datasets.Dataset`; `filter_probs`
    is for them.

    Examples
    --------
    >>> probs_from_logits([2.0, 1.0, 1.0], top_k=2).round(4).tolist()
    [0.7311, 0.2689, 0.0]
    """
    scores = _read_logits(logits)
    if allowed_token_ids is not None:
        scores[..., ~_allowed(allowed_token_ids, scores.shape[-1])] = -np.inf
    temperatures = _check_temperature(temperature, scores.shape[:-1])
    filters = Filters(top_k=top_k, top_p=top_p, min_p=min_p)
    return filters._filtered(scores, temperatures, "logits")


def filter_probs(
    probs: ArrayLike,
    *,
    temperature: ArrayLike = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> FloatArray:
    """Apply temperature, top-k, top-p and min-p to probabilities.

    Parameters
    ----------
    probs : array_like, or tensor on the host, shape (..., V)
        Probabilities; temperature T means ``p**(1/T)``, renormalised.
    temperature, top_k, top_p, min_p
        As for `probs_from_logits`.

    Returns
    -------
    ndarray of float64, shape (..., V)

    Raises
    ------
    InvalidDistributionError
        If `probs` is not a probability vector along its last axis.
    InvalidArgumentError
        If an option is out of range.

    Examples
    --------
    >>> filter_probs([0.4, 0.3, 0.2, 0.1], top_k=2, top_p=0.55).tolist()
    [1.0, 0.0, 0.0, 0.0]
    """
    return _filter_probs(probs, Filters(top_k=top_k, top_p=top_p, min_p=min_p), temperature)


def _filter_probs(probs: ArrayLike, filters: Filters, temperature: ArrayLike) -> FloatArray:
    values, _ = as_float_array(probs, "probs")
    checked = check_probs(probs, "probs", ndim=max(1, values.ndim))
    # Ranked as they came in: a division or a logarithm may merge neighbouring floats.
    ranks = values.astype(np.float64, copy=False)
    with np.errstate(divide="ignore"):
        scores = np.log(checked)
    temperatures = _check_temperature(temperature, scores.shape[:-1])
    return filters._filtered(scores, temperatures, "probs", ranks=ranks, probs=checked)


def _read_logits(logits: ArrayLike) -> FloatArray:
    values, _ = as_float_array(logits, "logits")
    if values.ndim == 0 or values.shape[-1] == 0:
        raise InvalidDistributionError(f"logits has shape {values.shape}; expected (..., V)")
    scores = np.array(values, dtype=np.float64)
    bad = np.isnan(scores) | np.isposinf(scores)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InvalidDistributionError(
            f"{row_name('logits', index[:-1])}: index {index[-1]} is {float(scores[index])!r}"
        )
    return scores


def _allowed(token_ids: ArrayLike, vocab_size: int) -> BoolArray:
    ids = read_array(token_ids, "allowed_token_ids", InvalidArgumentError)
    if ids.shape == (0,):
        ids = ids.astype(np.int64)  # an empty list reads as float64
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"allowed_token_ids has shape {ids.shape} and holds {ids.dtype.name} values; "
            "expected a list of integers"
        )
    outside = (ids < 0) | (ids >= vocab_size)
    if outside.any():
        raise InvalidArgumentError(
            f"allowed_token_ids holds {ids[outside][0]}, outside 0..{vocab_size - 1}"
        )
    mask = np.zeros(vocab_size, dtype=np.bool_)
    mask[ids] = True
    return mask


def _tempered(
    scores: FloatArray,
    temperatures: FloatArray,
    name: str,
    ranks: FloatArray,
    probs: FloatArray | None,
) -> FloatArray:
    """Apply the temperature of each row; refuse rows without any token."""
    peak = scores.max(axis=-1, keepdims=True)
    empty = np.isneginf(peak[..., 0])
    if empty.any():
        row = tuple(int(i) for i in np.argwhere(np.atleast_1d(empty))[0])
        raise InvalidDistributionError(f"{row_name(name, row)} has empty support")
    if probs is not None and (temperatures == 1.0).all():
        return probs.copy()
    # Subtract the maximum first: a tiny temperature then overflows to minus infinity only.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        tempered = np.exp((scores - peak) / temperatures[..., np.newaxis])
    cold = temperatures == 0.0
    if cold.any():
        first = np.argmax(ranks, axis=-1)[..., np.newaxis] == np.arange(scores.shape[-1])
        tempered = np.where(cold[..., np.newaxis], first, tempered)
    tempered /= tempered.sum(axis=-1, keepdims=True)
    return np.asarray(tempered)


def _top_k_mask(ranks: FloatArray, count: int) -> BoolArray:
    """Mark the `count` largest entries of each row, the lowest ids on ties."""
    place = ranks.shape[-1] - count
    least = np.partition(ranks, place, axis=-1)[..., place, np.newaxis]
    above = ranks > least
    tied = ranks == least
    room = count - above.sum(axis=-1, keepdims=True)
    return np.asarray(above | (tied & (np.cumsum(tied, axis=-1) <= room)))


def _keep_nucleus(probs: FloatArray, nucleus: float) -> None:
    """Cut each row to its shortest prefix, by descending probability, that reaches `nucleus`."""
    for row in probs.reshape(-1, probs.shape[-1]):
        order = np.argsort(-row, kind="stable")
        sums = np.cumsum(row[order])
        kept = int(np.searchsorted(sums, nucleus, side="left")) + 1
        row[order[kept:]] = 0.0
        row /= row.sum()


def _check_temperature(temperature: ArrayLike, rows: tuple[int, ...]) -> FloatArray:
    given = read_array(temperature, "temperature", InvalidArgumentError)
    if given.dtype.kind not in "fiu":
        raise InvalidArgumentError(f"temperature is {shown(temperature)}; expected a number")
    with np.errstate(over="ignore"):
        values = given.astype(np.float64)
    wrong = ~((values >= 0.0) & (values < np.inf))
    if wrong.any():
        index = tuple(np.argwhere(wrong)[0])
        raise InvalidArgumentError(
            f"{row_name('temperature', index)} is {float(values[index])!r}; "
            "expected a finite number >= 0"
        )
    if values.ndim and values.shape != rows:
        raise InvalidArgumentError(
            f"temperature has shape {values.shape}; expected one number, or one per row {rows}"
        )
    return np.broadcast_to(values, rows)


def _check_top_k(top_k: Any) -> int | None:
    if top_k is None:
        return None
    # Whatever is more than there are tokens keeps all.
    count = check_whole("top_k", top_k, -1, np.inf, otherwise=" or None; None, 0, -1 keep all")
    return count if count > 0 else None


def _check_top_p(top_p: Any) -> float:
    nucleus = read_number(top_p)
    if not 0.0 < nucleus <= 1.0:
        raise InvalidArgumentError(f"top_p is {shown(top_p)}; expected a number in (0, 1]")
    return nucleus


def _check_min_p(min_p: Any) -> float:
    share = read_number(min_p)
    if not 0.0 <= share <= 1.0:
        raise InvalidArgumentError(f"min_p is {shown(min_p)}; expected a number in [0, 1]")
    return share
