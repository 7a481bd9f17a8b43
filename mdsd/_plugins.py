"""Classes of other packages, found by their entry points."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any


def load_plugins(
    group: str,
    what: str,
    base: type[Any],
    known: Mapping[str, type[Any]],
    *,
    same_name: bool = False,
) -> dict[str, type[Any]]:
    """Add the classes of an entry-point group to those known; warn of those that cannot be used.

    Parameters
    ----------
    group : str
    what : str
        What one of them is, for the warning.
    base : type
        Class that they derive from.
    known : mapping of str to type
        Whose names are taken.
    same_name : bool, default False
        Whether a class must have the name of its entry point.
    """
    found = dict(known)
    for entry in entry_points(group=group):
        try:
            kind = entry.load()
            if not (isinstance(kind, type) and issubclass(kind, base)):
                raise TypeError(f"{entry.value} is not a subclass of mdsd.{base.__name__}")
            if entry.name in found:
                raise ValueError(f"the name {entry.name!r} is taken")
            own = getattr(kind, "name", None)
            if same_name and own != entry.name:
                raise ValueError(f"its name is {own!r}")
        except Exception as error:  # a stranger's code may fail in any way
            warnings.warn(
                f"{what} {entry.name!r} of another package cannot be used: {error}",
                RuntimeWarning,
                stacklevel=4,
            )
            continue
        found[entry.name] = kind
    return found
