"""Verifiers by name: the built-in ones and those of other packages."""

from __future__ import annotations

from functools import cache
from inspect import signature
from typing import Any

from mdsd._arguments import check_name
from mdsd._plugins import load_plugins
from mdsd.errors import InvalidArgumentError
from mdsd.verifiers.base import Verifier
from mdsd.verifiers.built_in import BUILT_IN

ENTRY_POINT_GROUP = "mdsd.verifiers"


@cache
def _registry() -> dict[str, type[Verifier]]:
    known = {kind.name: kind for kind in BUILT_IN}
    return load_plugins(ENTRY_POINT_GROUP, "verifier", Verifier, known)


def verifier_names() -> tuple[str, ...]:
    """Names that `get_verifier` knows, built-in ones first.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> import mdsd
    >>> "optimal" in mdsd.verifier_names()
    True
    """
    return tuple(_registry())


def get_verifier(name: str, **options: Any) -> Verifier:
    """Make a verifier by name.

    Parameters
    ----------
    name : str
        One of `verifier_names`.
    **options
        Keyword arguments of its class.

    Returns
    -------
    Verifier

    Raises
    ------
    InvalidArgumentError
        If the name or an option is not known, or an option is out of range.

    Examples
    --------
    >>> import mdsd
    >>> mdsd.get_verifier("optimal", tolerance=1e-6).name
    'optimal'
    """
    known = _registry()
    kind = known[check_name("verifier", name, known)]
    try:
        signature(kind).bind(**options)
    except TypeError as error:
        raise InvalidArgumentError(f"verifier {name!r}: {error}") from None
    return kind(**options)
