"""Checking the tables of a target and its drafts, from files and from memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from mdsd._arguments import refuse_entries, shown
from mdsd._probabilities import as_float_array, check_probs
from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

Kind = Literal["logits", "probs"]

_OF_A_SIDE = ("logits", "probs", "kept_mass")
KEYS = frozenset(
    {
        *(f"{side}_{array}" for side in ("target", "draft") for array in _OF_A_SIDE),
        *("draft_names", "token_ids", "text_ids", "provenance"),
    }
)
"""Names of arrays in an `.npz` file."""

_ID_RANGE = (-1, np.inf, "token ids >= 0, or -1 at padding")
_MASS_RANGE = (0.0, 1.0 + 1e-6, "masses in [0, 1]")
"""Least and largest value, with room for rounding, and both in words."""

_Number = TypeVar("_Number", np.float64, np.int64)


def checked_tables(
    arrays: Mapping[str, AnyArray],
    found: Sequence[str],
    path: str,
    models: Mapping[str, AnyArray] | None = None,
) -> dict[str, Any]:
    """Check arrays under the keys of an `.npz` file, and give the fields of a `Dataset`.

    Parameters
    ----------
    arrays : mapping of str to ndarray
    found : sequence of str
        All keys that were given, for messages.
    path : str
        What messages begin with.
    models : mapping of str to ndarray, optional
        The arrays of the draft key by the names of their models, instead of one of all.

    Returns
    -------
    dict
        All but `name` and `provenance`.

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As `mdsd.datasets.read_npz`.
    """
    target_key, target_kind = _choose_key("target", found, path)
    draft_key, draft_kind = _choose_key("draft", found, path)
    target = arrays[target_key]
    if models is None:
        drafts = arrays[draft_key]
        _check_shapes(target_key, target, draft_key, drafts, path)
        tables = list(drafts.reshape(-1, *target.shape))
        several = drafts.ndim == 3
        labels = [f"{draft_key}[{k}]" if several else draft_key for k in range(len(tables))]
        names = _draft_names(arrays, len(tables), path)
    else:
        check_model_names(f"{path}: {draft_key}", models)
        names, tables = list(models), list(models.values())
        labels = [f"{draft_key}[{model!r}]" for model in names]
        for label, table in zip(labels, tables, strict=True):
            _check_shapes(target_key, target, label, table, path)

    checked_target = _check(target_kind, "target")(target, f"{path}: {target_key}")
    checked_drafts = [
        _check(draft_kind, "draft")(table, f"{path}: {label}")
        for label, table in zip(labels, tables, strict=True)
    ]

    token_ids = np.broadcast_to(np.arange(target.shape[1]), target.shape)
    draft_mass = _extra(arrays, "draft_kept_mass", np.ones((len(names), len(target))), path)
    return {
        "target_table": checked_target,
        "draft_tables": dict(zip(names, checked_drafts, strict=True)),
        "token_ids": _extra(arrays, "token_ids", token_ids, path),
        "target_kept_mass": _extra(arrays, "target_kept_mass", np.ones(len(target)), path),
        "draft_kept_mass": dict(zip(names, draft_mass, strict=True)),
        "target_kind": target_kind,
        "draft_kind": draft_kind,
        "text_ids": _text_ids(arrays, len(target), path),
    }


def _choose_key(side: str, found: Sequence[str], path: str) -> tuple[str, Kind]:
    """Find the one key of a side, and what it holds."""
    keys: dict[str, Kind] = {f"{side}_logits": "logits", f"{side}_probs": "probs"}
    present = [key for key in keys if key in found]
    if len(present) != 1:
        problem = "needs one of" if not present else "needs only one of"
        raise InvalidArgumentError(
            f"{path}: {problem} {', '.join(keys)}; keys found: {', '.join(found) or 'none'}"
        )
    return present[0], keys[present[0]]


def _check_shapes(
    target_key: str, target: AnyArray, draft_key: str, drafts: AnyArray, path: str
) -> None:
    """Check axes and types of both sides, and that they have the same positions and tokens."""
    whole = draft_key in KEYS  # not the one table of a model
    stacked = "(N, V) or (M, N, V)" if whole else "(N, V)"
    sides = ((target_key, target, "(N, V)"), (draft_key, drafts, stacked))
    for key, values, expected in sides:
        if values.dtype.kind not in "fiu":
            raise InvalidDistributionError(
                f"{path}: {key} holds {values.dtype} values; expected real numbers"
            )
        if values.ndim != 2 and not (values.ndim == 3 and key == draft_key and whole):
            raise InvalidDistributionError(
                f"{path}: {key} has shape {values.shape}; expected {expected}"
            )
        if values.size == 0:
            raise InvalidDistributionError(
                f"{path}: {key} is empty: its shape is {values.shape}; expected {expected}"
            )
    for axis, word in ((-2, "positions"), (-1, "tokens")):
        if target.shape[axis] != drafts.shape[axis]:
            raise InvalidDistributionError(
                f"{path}: {target_key} has {target.shape[axis]} {word} "
                f"but {draft_key} has {drafts.shape[axis]}"
            )


def _check(kind: Kind, side: str) -> Callable[[AnyArray, str], FloatArray]:
    if kind == "logits":
        return _check_logits
    return partial(check_probs, ndim=2, of_logits=f"store them as {side}_logits")


def _check_logits(logits: AnyArray, label: str) -> FloatArray:
    wide = np.array(as_float_array(logits, label)[0], dtype=np.float64)
    for bad in (np.isnan(wide), wide == np.inf):
        refuse_entries(label, wide, bad, "logits are finite or -inf", InvalidDistributionError)
    masked = np.flatnonzero((wide == -np.inf).all(axis=1))
    if len(masked):
        raise InvalidDistributionError(
            f"{label} row {masked[0]} has empty support: every logit is -inf"
        )
    return wide


def _draft_names(arrays: Mapping[str, AnyArray], num_drafts: int, path: str) -> list[str]:
    if "draft_names" not in arrays:
        return [f"draft_{model}" for model in range(num_drafts)]
    given = arrays["draft_names"]
    if given.dtype.kind != "U" or given.shape != (num_drafts,) or len(set(given)) < num_drafts:
        raise InvalidArgumentError(
            f"{path}: draft_names must be {num_drafts} different strings, one for each draft model;"
            f" got {shown(given.tolist())}"
        )
    check_model_names(f"{path}: draft_names", given.tolist())
    return [str(name) for name in given]


def _extra(
    arrays: Mapping[str, AnyArray], key: str, default: NDArray[_Number], path: str
) -> NDArray[_Number]:
    """Read token ids or kept masses, of the shape and the kind of type of their default."""
    values = arrays.get(key, default)
    castable = np.can_cast(values.dtype, default.dtype) and values.dtype.kind != "b"
    if values.shape != default.shape or not castable:
        raise InvalidArgumentError(
            f"{path}: {key} has shape {values.shape} of {values.dtype}; "
            f"expected {default.shape} of {default.dtype}"
        )
    low, high, expected = _ID_RANGE if default.dtype.kind == "i" else _MASS_RANGE
    if values is not default and not (values.min() >= low and values.max() <= high):
        outside = ~((values >= low) & (values <= high))
        refuse_entries(f"{path}: {key}", values, outside, f"expected {expected}")
    # No copy: the default ids are one row seen N times, and N copies of 150,000 ids are not small.
    return values.astype(default.dtype, copy=False)


def _text_ids(arrays: Mapping[str, AnyArray], num_positions: int, path: str) -> IntArray | None:
    """Read which text each position is of; names become numbers, in the order they come in."""
    values = arrays.get("text_ids")
    if values is None:
        return None
    if values.shape != (num_positions,) or values.dtype.kind not in "iuU":
        raise InvalidArgumentError(
            f"{path}: text_ids has shape {values.shape} of {values.dtype}; "
            f"expected ({num_positions},) integers or strings"
        )
    return number_texts(values.tolist())


def number_texts(names: Iterable[Any]) -> IntArray:
    """Give numbers to texts by their names, in the order they come in.

    Examples
    --------
    >>> number_texts(["story", "story", "news", "story"]).tolist()
    [0, 0, 1, 0]
    """
    numbers: dict[Any, int] = {}
    found = [numbers.setdefault(name, len(numbers)) for name in names]
    return np.array(found, dtype=np.int64)


def check_model_names(what: str, names: Iterable[Any]) -> None:
    """Check that names can stand in lists on the command line, in tables and in files.

    Raises
    ------
    InvalidArgumentError
        If one is no str, not printable, holds a comma, or comes twice.
    """
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or name in seen:
            raise InvalidArgumentError(f"{what} holds {shown(name)}; expected different strings")
        if name != name.strip() or not name or not name.isprintable() or "," in name:
            raise InvalidArgumentError(
                f"{what} holds {shown(name)}; expected printable names without commas"
            )
        seen.add(name)
