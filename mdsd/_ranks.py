"""Acceptance by rank: of the children of a node, in the order in which they are tried."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mdsd._arguments import read_numbers, row_name
from mdsd._typing import FloatArray
from mdsd.errors import InvalidArgumentError

RANK_SLACK = 1e-9
"""How far above 1 rounding may take the sum of the acceptances of one node's children."""


def read_acceptance_by_rank(values: ArrayLike) -> FloatArray:
    """Check acceptances by rank, or by depth and rank.

    Returns
    -------
    ndarray of float64, shape (R,) or (D, R)

    Raises
    ------
    InvalidArgumentError
        If it holds something else than numbers in [0, 1], has no rank, or a row sums to more
        than 1: only one child of a node can be the accepted one.

    Examples
    --------
    >>> read_acceptance_by_rank([0.8, 0.7])
    Traceback (most recent call last):
    ...
    mdsd.errors.InvalidArgumentError: acceptance_by_rank sums to 1.5; expected at most 1: the \
probability of each child to be the accepted one, not that of its test once the others failed
    """
    name = "acceptance_by_rank"
    rates = read_numbers(
        values, name, lambda shape: len(shape) in (1, 2) and 0 not in shape, "(R,) or (D, R)"
    )
    sums = np.atleast_1d(rates.sum(axis=-1))
    over = sums > 1.0 + RANK_SLACK
    if over.any():
        row = int(np.argmax(over))
        raise InvalidArgumentError(
            f"{row_name(name, [row] if rates.ndim == 2 else [])} sums to {float(sums[row]):.10g}; "
            "expected at most 1: the probability of each child to be the accepted one, not that of "
            "its test once the others failed"
        )
    return rates
