"""Sorting of masses and of their ratios in compiled code.

Numbers >= 0 order as the bits they are stored in, so they can be dealt out digit by digit like
cards: no comparison that a processor would have to guess the outcome of, and ties stay in place.
"""

from __future__ import annotations

import numpy as np

from ._compiled import compiled
from ._typing import FloatArray, IntArray

_DIGITS = 8
"""Digits of a key, of eight bits each."""

_FEW = 64
"""Keys that are sooner inserted one by one than counted by their digits."""


@compiled(inner=True)
def _insert_each(keys: FloatArray) -> IntArray:
    order = np.arange(len(keys))
    for i in range(1, len(keys)):
        key, place = keys[i], i
        while place > 0 and keys[order[place - 1]] < key:
            order[place] = order[place - 1]
            place -= 1
        order[place] = i
    return order


@compiled()
def falling_order(keys: FloatArray) -> IntArray:
    """Sort numbers >= 0, largest first, ties by place, in linear time.

    Parameters
    ----------
    keys : ndarray, shape (V,)
        Numbers >= 0, infinity among them; no NaN.

    Returns
    -------
    ndarray of int64, shape (V,)
        Places of the numbers in that order.

    Notes
    -----
    Radix sort from the least digit on. A digit that all keys share is passed over.

    Examples
    --------
    >>> import numpy as np
    >>> falling_order(np.array([0.2, 0.5, 0.0, 0.5])).tolist()
    [1, 3, 0, 2]
    """
    size = len(keys)
    if size <= _FEW:
        return _insert_each(keys)
    # Complements fall where the keys rise; adding 0 takes the sign from a negative zero.
    left = ~(keys + 0.0).view(np.uint64)
    counts = np.zeros((_DIGITS, 256), dtype=np.int64)
    digit, eight = np.uint64(255), np.uint64(8)
    for i in range(size):
        key = left[i]
        for d in range(_DIGITS):
            counts[d, key & digit] += 1
            key >>= eight
    order, placed = np.arange(size), np.empty(size, dtype=np.int64)
    right = np.empty_like(left)
    for d in range(_DIGITS):
        shift, starts = np.uint64(8 * d), counts[d]
        if starts[(left[0] >> shift) & digit] == size:
            continue
        total = 0
        for value in range(256):
            total += starts[value]
            starts[value] = total - starts[value]
        for i in range(size):
            value = (left[i] >> shift) & digit
            place = starts[value]
            right[place], placed[place] = left[i], order[i]
            starts[value] = place + 1
        left, right = right, left
        order, placed = placed, order
    return order
