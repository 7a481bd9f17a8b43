"""Logits that look like probabilities: they are possible, so it is said and nothing is refused."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from mdsd._typing import AnyArray, FloatArray

Logits = tuple[AnyArray, FloatArray | float]
"""A table, and how much of the probability each row holds."""

_TOLERANCE = 2e-2
"""How far a sum may be off: that of half precision, as the type stored is no longer known."""

_said: ContextVar[bool] = ContextVar("said", default=False)


@contextmanager
def said_before() -> Iterator[None]:
    """Be quiet about data sets that are parts of one, or one read again."""
    token = _said.set(True)
    try:
        yield
    finally:
        _said.reset(token)


def warn_of_probs(name: str, target: Logits | None, drafts: Mapping[str, Logits]) -> None:
    """Warn once if every row of what should be logits has no negative number and sums to 1.

    Taken for logits, probabilities make laws that are nearly flat, on both sides, and acceptance
    is close to 1 whatever the models.

    Parameters
    ----------
    name : str
        What the data set is called.
    target : (ndarray, ndarray), optional
        The table and the kept masses, if it has logits.
    drafts : mapping of str to (ndarray, ndarray)
        Those of the draft models, if they have logits.
    """
    if _said.get():
        return
    found, keys = [], []
    if target is not None and _like_probs(*target):
        found.append("target_logits")
        keys.append("target_probs")
    models = [model for model, logits in drafts.items() if _like_probs(*logits)]
    if models:
        found.append(f"draft_logits of {', '.join(models)}")
        keys.append("draft_probs")
    if found:
        warnings.warn(
            f"{name}: {' and '.join(found)} hold nothing negative and sum to 1 in every row, "
            f"as probabilities do; if they are, give them as {' and '.join(keys)}",
            stacklevel=_level_of_caller(),
        )


def _level_of_caller() -> int:
    """Count frames up to the first that is not mdsd's: data sets are made in several ways."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "mdsd":
        level, frame = level + 1, frame.f_back
    return level


def warn_of_models(names: Iterable[str], tables: Iterable[AnyArray]) -> None:
    """Warn if the logits that models give for some positions look like probabilities."""
    pairs = zip(names, tables, strict=True)
    found = [name for name, table in pairs if _like_probs(table, 1.0)]
    if found:
        warnings.warn(
            f"logits of {', '.join(found)} hold nothing negative and sum to 1 in every row, as "
            "probabilities do; if they are, the model has to return their logarithms",
            stacklevel=2,
        )


def _like_probs(table: AnyArray, kept_mass: FloatArray | float) -> bool:
    """Tell whether rows are those of probabilities, perhaps of a part of the vocabulary.

    The law of one token is the same either way. A table that is none is for others to refuse.
    """
    array = np.asarray(table)
    if array.ndim != 2 or array.dtype.kind not in "fiu" or array.size <= len(array):
        return False
    if not (array[0].min() >= 0.0 and array.min() >= 0.0):
        return False
    sums = array.sum(axis=-1, dtype=np.float64)
    masses = np.asarray(kept_mass) if np.shape(kept_mass) == sums.shape else 1.0
    return bool((np.minimum(abs(sums - 1.0), abs(sums - masses)) <= _TOLERANCE).all())
