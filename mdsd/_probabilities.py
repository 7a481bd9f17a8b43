"""The one place where probability vectors are checked and renormalised.

Mass may be off 1 by what the arithmetic of its type explains (`MASS_TOLERANCE`); within that it is
renormalised in float64, beyond it the vector is refused. Negative entries are never forgiven.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd._arguments import is_bfloat16_tensor, read_array, refuse_entries, row_name
from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.errors import InvalidDistributionError

MASS_TOLERANCE = {"float64": 1e-5, "float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-2}
"""Largest accepted distance of a probability vector's sum from 1, by the type it came in."""

_MISSING_DRAFT = (
    ": give the probabilities the tokens were drawn from "
    "(a deterministic draft is a TopKDraft, an ExplicitDraft or a one-hot vector)"
)


def as_float_array(values: Any, name: str) -> tuple[AnyArray, str]:
    """Read `values` as an array of real numbers.

    Parameters
    ----------
    values : array_like
        Anything numpy can read; bfloat16 tensors too.
    name : str
        What to call it in an error.

    Returns
    -------
    tuple of (ndarray, str)
        The array in its own type, or in float64 if that is wider, and the name of the type whose
        mass tolerance applies.

    Raises
    ------
    InvalidDistributionError
        If it is missing or holds something other than real numbers.
    """
    if values is None:
        raise InvalidDistributionError(
            f"{name} is missing{_MISSING_DRAFT if 'draft' in name else ''}"
        )
    if is_bfloat16_tensor(values):
        # numpy has no such type; every bfloat16 is a float32.
        return read_array(values.float(), name, InvalidDistributionError), "bfloat16"
    array = read_array(values, name, InvalidDistributionError)
    kind = array.dtype.name
    if kind in MASS_TOLERANCE:
        return array, kind
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return array.astype(np.float64), "float64"
    if array.dtype.kind in "iu":
        return array, "float64"
    raise InvalidDistributionError(f"{name} holds {kind} values; expected real numbers")


def check_probs(
    values: Any,
    name: str,
    *,
    ndim: int = 1,
    of_logits: str = "probs_from_logits makes probabilities of them",
) -> FloatArray:
    """Check probability vectors along the last axis and renormalise them in float64.

    Parameters
    ----------
    values : array_like, shape (V,) for ``ndim=1``, (B, V) for ``ndim=2``, ...
        Probabilities of each token.
    name : str
        What to call the argument in an error.
    ndim : int, default 1
        Number of axes expected.
    of_logits : str
        What to do with logits, which an error asks about where a row may hold them.

    Returns
    -------
    ndarray of float64
        A new, contiguous, read-only array whose rows sum to 1.

    Raises
    ------
    InvalidDistributionError
        If it is missing, empty, of the wrong shape, or holds NaN, infinite or negative entries or
        a row whose mass is off 1 by more than `MASS_TOLERANCE`; the row and the value are named.

    Examples
    --------
    >>> check_probs([1, 3], "target_probs")
    Traceback (most recent call last):
    ...
    mdsd.errors.InvalidDistributionError: target_probs sums to 4, not to 1 within 1e-05 (float64); \
logits? probs_from_logits makes probabilities of them
    """
    array, kind = as_float_array(values, name)
    if array.ndim != ndim:
        expected = {1: "(V,)", 2: "(B, V)", 3: "(B, n, V)"}.get(ndim, f"{ndim} axes")
        raise InvalidDistributionError(f"{name} has shape {array.shape}; expected {expected}")
    if array.shape[-1] == 0:
        raise InvalidDistributionError(f"{name} is empty: a vocabulary has at least one token")
    probs = np.asarray(array, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mass = probs.sum(axis=-1)
    # One pass each; offenders are located only when there are some. NaN fails both comparisons.
    if probs.size and not (probs.min() >= 0.0 and np.isfinite(mass).all()):
        bad = ~((probs >= 0.0) & (probs < np.inf))
        row = tuple(np.argwhere(bad)[0][:-1]) if bad.any() else ...
        expected = f"probabilities are finite and not negative{_if_logits(probs[row], of_logits)}"
        refuse_entries(name, probs, bad, expected, InvalidDistributionError)
    off = np.abs(mass - 1.0) > MASS_TOLERANCE[kind]
    if off.any():
        where = tuple(np.argwhere(off)[0]) if ndim > 1 else ()
        raise InvalidDistributionError(
            f"{row_name(name, where)} sums to {float(mass[where]):.10g}, "
            f"not to 1 within {MASS_TOLERANCE[kind]:g} ({kind})"
            f"{_if_logits(probs[where], of_logits)}"
        )
    probs = np.asarray(np.divide(probs, mass[..., np.newaxis], order="C"))
    probs.setflags(write=False)
    return probs


def _if_logits(row: FloatArray, remedy: str) -> str:
    """End a message about a row that may be meant as logits: not one off 1 by rounding or a cut."""
    most = row.max()
    if not most < np.inf:  # NaN is not
        return ""
    with np.errstate(over="ignore"):
        mass = row.sum()
    outside = row.min() < 0.0 or most > 1.0 or mass > 1.5
    if not outside or abs(mass - 1.0) <= max(MASS_TOLERANCE.values()):
        return ""
    return f"; {'log-probabilities' if most <= 0.0 else 'logits'}? {remedy}"


def check_same_vocab(
    target_probs: FloatArray, vocab_size: int, drafted: str = "draft_probs"
) -> None:
    """Refuse a target and a draft over vocabularies of different length.

    Parameters
    ----------
    target_probs : ndarray, shape (..., V)
    vocab_size : int
        Of the draft.
    drafted : str, default "draft_probs"
        The argument that the draft was given as.

    Raises
    ------
    InvalidDistributionError
        Naming both lengths.
    """
    if target_probs.shape[-1] != vocab_size:
        raise InvalidDistributionError(
            f"target_probs has {target_probs.shape[-1]} tokens but {drafted} has {vocab_size}; "
            "append zeros to the shorter one if its missing tokens cannot occur"
        )


def ratios(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide masses without a warning: ``x / 0`` is infinite, ``0 / 0`` is 0.

    Parameters
    ----------
    numerator, denominator : ndarray
        Masses >= 0, of shapes that broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> ratios(np.array([0.0, 0.5, 0.5]), np.array([0.0, 0.0, 0.25])).tolist()
    [0.0, inf, 2.0]
    """
    found = np.zeros(np.broadcast_shapes(numerator.shape, denominator.shape))
    with np.errstate(divide="ignore", over="ignore"):
        return np.divide(numerator, denominator, out=found, where=numerator > 0.0)


def ratio_order(numerator: FloatArray, denominator: FloatArray) -> IntArray:
    """Sort tokens by ``numerator / denominator``, largest first, ties to the lowest id.

    A token with denominator 0 counts as infinite, unless its numerator is 0 too: then it comes
    last, among the tokens of ratio 0.

    Examples
    --------
    >>> import numpy as np
    >>> ratio_order(np.array([0.2, 0.5, 0.0, 0.3]), np.array([0.2, 0.0, 0.0, 0.8])).tolist()
    [1, 0, 3, 2]
    """
    positive = numerator > 0.0
    # By a power of two, which changes no ratio but keeps those to subnormal numbers finite.
    ratio = ratios(numerator, denominator * 2.0**512)
    unbounded = np.isinf(ratio)
    # Tokens of ratio 0 or infinity, which filters make many of, need no sorting; among the others
    # ties are rare, and the stable sort that keeps them by id takes twice as long.
    tokens = np.flatnonzero(positive & ~unbounded)
    falling = -ratio[tokens]
    order = np.argsort(falling)
    ranked = falling[order]
    if (ranked[1:] == ranked[:-1]).any():
        order = np.argsort(falling, kind="stable")
    return np.concatenate([np.flatnonzero(unbounded), tokens[order], np.flatnonzero(~positive)])
