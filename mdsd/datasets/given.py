"""Data sets of arrays that are given in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mdsd._arguments import is_bfloat16_tensor, read_array, read_json_object, shown
from mdsd._typing import AnyArray
from mdsd.datasets.tables import check_model_names, checked_tables
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

_CALL = "Dataset.from_arrays"
"""What messages begin with, as those about a file do with its path."""

_BY_MODEL = ("draft_probs", "draft_logits")
_NO_LAWS = ("token_ids", "text_ids", "target_kept_mass", "draft_kept_mass")


def fields_of_arrays(
    given: Mapping[str, Any], provenance: Mapping[str, Any] | None, name: str
) -> dict[str, Any]:
    """Check the arguments of `Dataset.from_arrays`, and give the fields that it is made of.

    Parameters
    ----------
    given : mapping of str to object
        Those that are arrays, or mappings of them; None where one was left out.
    provenance, name
        As there.

    Returns
    -------
    dict

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As there.
    """
    check_model_names("name", [name])
    where = {} if provenance is None else read_json_object("provenance", provenance)
    known = {key: value for key, value in given.items() if value is not None}
    by_model = {
        key: {model: _read(table, f"{key}[{model!r}]") for model, table in known[key].items()}
        for key in _BY_MODEL
        if isinstance(known.get(key), Mapping)
    }
    models = next(iter(by_model.values()), None)
    if models is not None and not models:
        raise InvalidArgumentError(
            f"{_CALL}: {next(iter(by_model))} is empty; expected a table for each draft model"
        )
    masses = known.get("draft_kept_mass")
    if isinstance(masses, Mapping):
        if models is None or masses.keys() != models.keys():
            raise InvalidArgumentError(
                f"{_CALL}: draft_kept_mass is of {shown(list(masses))}; expected the names of the "
                f"draft models: {shown(list(models or ()))}"
            )
        known["draft_kept_mass"] = [masses[model] for model in models]
    arrays = {key: _read(value, key) for key, value in known.items() if key not in by_model}
    tables = checked_tables(arrays, list(known), _CALL, models)
    return {"name": name, "provenance": where, **tables}


def _read(value: Any, key: str) -> AnyArray:
    error = InvalidArgumentError if key in _NO_LAWS else InvalidDistributionError
    plain = value.float() if is_bfloat16_tensor(value) else value
    return np.asarray(read_array(plain, f"{_CALL}: {key}", error))
