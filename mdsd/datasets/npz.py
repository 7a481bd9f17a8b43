"""Reading distributions from an `.npz` file."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mdsd._arguments import one_line
from mdsd._files import as_path, os_errors, path_name
from mdsd._typing import AnyArray
from mdsd.datasets.dataset import Dataset
from mdsd.datasets.tables import KEYS, checked_tables
from mdsd.errors import InvalidArgumentError, InvalidDistributionError


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
        else 1; `text_ids` (N,), numbers or names of the texts that the positions are of, for
        standard errors by text; `provenance`, a JSON object in a string. Other keys are not read.

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
    tables = checked_tables(arrays, found, path)
    return Dataset(name=file.stem, provenance=_provenance(arrays, path), **tables)


def _read_arrays(file: Path, path: str) -> tuple[dict[str, AnyArray], list[str]]:
    """Read the arrays of `KEYS` that an archive holds; also list all its keys, for messages."""
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
            for key in sorted(KEYS.intersection(found)):
                # A member of the archive that is no array comes as bytes.
                arrays[key] = np.asarray(archive[key])
    except Exception as error:  # of any class: truncated, encrypted and forged archives make many
        reason = one_line(error)
        raise InvalidDistributionError(f"{path}: {key} cannot be read: {reason}") from None
    return arrays, found


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
