"""Reading distributions from an `.npz` file."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mdsd._arguments import one_line, refuse_entries, shown
from mdsd._files import as_path, os_errors, path_name
from mdsd._probabilities import as_float_array, check_probs
from mdsd._typing import AnyArray, FloatArray
from mdsd.datasets.dataset import Dataset, Kind, check_model_names
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

_OF_A_SIDE = ("logits", "probs", "kept_mass")
_KEYS = {
    *(f"{side}_{array}" for side in ("target", "draft") for array in _OF_A_SIDE),
    *("draft_names", "token_ids", "provenance"),
}

_ID_RANGE = (-1, np.inf, "token ids >= 0, or -1 at padding")
_MASS_RANGE = (0.0, 1.0 + 1e-6, "masses in [0, 1]")
"""Least and largest value, with room for rounding, and both in words."""

_Number = TypeVar("_Number", np.float64, np.int64)


def read_npz(path: str | os.PathLike[str]) -> Dataset:
    """Read a target and its drafts from an `.npz` file.

    Parameters
    ----------
    path : path-like
        An archive as `numpy.savez` writes it, with

        - `target_logits` or `target_probs`, shape (N, V);
        - `draft_logits` or `draft_probs`, shape (N, V) or, for M draft models, (M, N, V).

        Optional, as in the embedded files: `draft_names` (M,), else draft_0, draft_1, ...;
        `token_ids` (N, V), else 0 to V - 1; `target_kept_mass` (N,) and `draft_kept_mass` (M, N),
        else 1; `provenance`, a JSON object in a string. Other keys are not read.

    Returns
    -------
    Dataset
        Probabilities are renormalised in float64 within the mass tolerance of the type they are
        stored in; logits are as in the file.

    Raises
    ------
    InvalidArgumentError
        If the file or a key is missing, or a key contradicts another.
    InvalidDistributionError
        If an array cannot be read or is not a table of distributions: wrong shape or type, NaN,
        negative probabilities, mass off 1, a logit of +inf, no logit above -inf. File, key, row and
        value are named.

    Warns
    -----
    UserWarning
        If logits look like probabilities, as for `Dataset`.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.npz"
    >>> np.savez(path, target_probs=[[0.5, 0.3, 0.2]], draft_logits=np.zeros((2, 1, 3)))
    >>> data = read_npz(path)
    >>> data.target_kind, data.draft_kind, list(data.draft_tables)
    ('probs', 'logits', ['draft_0', 'draft_1'])
    """
    file = as_path(path)
    path = path_name(file)  # for messages from here on
    arrays, found = _read_arrays(file, path)
    target_key, target_kind = _choose_key("target", found, path)
    draft_key, draft_kind = _choose_key("draft", found, path)
    target, drafts = arrays[target_key], arrays[draft_key]
    _check_shapes(target_key, target, draft_key, drafts, path)

    checked_target = _check(target_kind, "target")(target, f"{path}: {target_key}")
    tables = drafts.reshape(-1, *target.shape)
    labels = [draft_key if drafts.ndim == 2 else f"{draft_key}[{k}]" for k in range(len(tables))]
    checked_drafts = [
        _check(draft_kind, "draft")(table, f"{path}: {label}")
        for label, table in zip(labels, tables, strict=True)
    ]

    names = _draft_names(arrays, len(tables), path)
    token_ids = np.broadcast_to(np.arange(target.shape[1]), target.shape)
    draft_mass = _extra(arrays, "draft_kept_mass", np.ones((len(names), len(target))), path)
    return Dataset(
        name=file.stem,
        target_table=checked_target,
        draft_tables=dict(zip(names, checked_drafts, strict=True)),
        token_ids=_extra(arrays, "token_ids", token_ids, path),
        target_kept_mass=_extra(arrays, "target_kept_mass", np.ones(len(target)), path),
        draft_kept_mass=dict(zip(names, draft_mass, strict=True)),
        provenance=_provenance(arrays, path),
        target_kind=target_kind,
        draft_kind=draft_kind,
    )


def _read_arrays(file: Path, path: str) -> tuple[dict[str, AnyArray], list[str]]:
    """Read the arrays of `_KEYS` that an archive holds; also list all its keys, for messages."""
    with os_errors(file), file.open("rb") as stream:
        # numpy would read an .npy file as well, and takes anything else for a pickle.
        is_archive = zipfile.is_zipfile(stream)
    if not is_archive:
        raise InvalidArgumentError(f"{path}: is not an .npz archive; numpy.savez writes one")

    arrays: dict[str, AnyArray] = {}
    key = "archive"
    try:
        with np.load(file, allow_pickle=False) as archive:
            found = archive.files
            for key in sorted(_KEYS.intersection(found)):
                # A member of the archive that is no array comes as bytes.
                arrays[key] = np.asarray(archive[key])
    except Exception as error:  # of any class: truncated, encrypted and forged archives make many
        reason = one_line(error)
        raise InvalidDistributionError(f"{path}: {key} cannot be read: {reason}") from None
    return arrays, found


def _choose_key(side: str, found: list[str], path: str) -> tuple[str, Kind]:
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
    sides = ((target_key, target, "(N, V)"), (draft_key, drafts, "(N, V) or (M, N, V)"))
    for key, values, expected in sides:
        if values.dtype.kind not in "fiu":
            raise InvalidDistributionError(
                f"{path}: {key} holds {values.dtype} values; expected real numbers"
            )
        if values.ndim != 2 and not (values.ndim == 3 and key == draft_key):
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


def _provenance(arrays: Mapping[str, AnyArray], path: str) -> dict[str, Any]:
    if "provenance" not in arrays:
        return {}
    try:
        provenance = json.loads(str(arrays["provenance"]))
    except json.JSONDecodeError:
        provenance = None
    if not isinstance(provenance, dict):
        raise InvalidArgumentError(f"{path}: provenance is not a JSON object in a string")
    return provenance
