"""Arrays and mappings that stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

_Scalar = TypeVar("_Scalar", bound=np.generic)


def frozen(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Mark an array read-only."""
    array.setflags(write=False)
    return array


class FrozenArrays:
    """Objects whose arrays are read-only, and are so again after a copy or a trip through pickle.

    numpy forgets the flag on the way, and a `MappingProxyType` does not travel at all. A dataclass
    of this kind marks the arrays among its fields when it is made, and keeps mappings as read-only
    copies.
    """

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, Mapping):
                self.__dict__[name] = MappingProxyType(dict(value))
        _freeze(vars(self).values())

    def __getstate__(self) -> tuple[dict[str, Any], list[str]]:
        views = [name for name, v in vars(self).items() if isinstance(v, MappingProxyType)]
        return {**vars(self), **{name: dict(vars(self)[name]) for name in views}}, views

    def __setstate__(self, state: tuple[dict[str, Any], list[str]]) -> None:
        values, views = state
        self.__dict__.update(values)
        self.__dict__.update({name: MappingProxyType(values[name]) for name in views})
        _freeze(vars(self).values())


def _freeze(values: Iterable[Any]) -> None:
    for value in values:
        if isinstance(value, np.ndarray):
            frozen(value)
        elif isinstance(value, (list, tuple)):
            _freeze(value)
        elif isinstance(value, MappingProxyType):
            _freeze(value.values())
