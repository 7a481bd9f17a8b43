"""Arrays that stay as they are."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["FrozenArrays", "frozen"]

_Scalar = TypeVar("_Scalar", bound=np.generic)


def frozen(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Mark an array read-only."""
    array.setflags(write=False)
    return array


class FrozenArrays:
    """Objects whose arrays are read-only, and are so again after a copy or a trip through pickle.

    numpy forgets the flag on the way.
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        _freeze(state.values())


def _freeze(values: Any) -> None:
    for value in values:
        if isinstance(value, np.ndarray):
            frozen(value)
        elif isinstance(value, (list, tuple)):
            _freeze(value)
