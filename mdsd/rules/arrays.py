"""What a rule needs of an array's library, where numpy and the array API standard differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def namespace(array: Any) -> Any:
    """Give the functions of an array's library; for numpy's arrays numpy itself.

    Examples
    --------
    >>> import numpy as np
    >>> namespace(np.ones(3)) is np
    True
    """
    if isinstance(array, np.ndarray):
        return np
    from array_api_compat import array_namespace

    return array_namespace(array)


def full(like: Any, shape: tuple[int, ...], value: float) -> Any:
    """Make an array of one number, of the type of another array and on its device."""
    if isinstance(like, np.ndarray):
        return np.full(shape, value, dtype=like.dtype)
    from array_api_compat import device

    return namespace(like).full(shape, value, dtype=like.dtype, device=device(like))


def number(like: Any, value: float) -> Any:
    """Make a number of the type of an array, on its device.

    A number of the host that meets an array as the argument of a function would be copied there,
    and the copy waited for.
    """
    return full(like, (), value)


def places(like: Any, count: int, *, real: bool = False) -> Any:
    """Make the integers ``0 .. count - 1`` on the device of an array, or as numbers of its type."""
    xp = namespace(like)
    kind = like.dtype if real else xp.int64
    if xp is np:
        return np.arange(count, dtype=kind)
    from array_api_compat import device

    return xp.arange(count, dtype=kind, device=device(like))


def concat(arrays: Sequence[Any]) -> Any:
    """Join arrays along their last axis."""
    xp = namespace(arrays[0])
    return (np.concatenate if xp is np else xp.concat)(arrays, axis=-1)


def take(rows: Any, ids: Any) -> Any:
    """Read the entries (..., m) of some tokens, each from its own row or all from the one (V,)."""
    return rows[ids] if rows.ndim == 1 else namespace(rows).take_along_axis(rows, ids, axis=-1)


def falling_order(values: Any) -> Any:
    """Sort along the last axis, largest first, ties in any order."""
    if isinstance(values, np.ndarray):
        return np.argsort(-values, axis=-1)
    return namespace(values).argsort(values, axis=-1, descending=True, stable=False)
