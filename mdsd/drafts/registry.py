"""Kinds of drafts by name: the built-in ones and those of other packages."""

from __future__ import annotations

from ast import literal_eval
from functools import cache
from typing import Any

from mdsd._arguments import check_name
from mdsd._plugins import load_plugins
from mdsd.drafts.base import DraftDistribution, DraftKind
from mdsd.drafts.built_in import BUILT_IN
from mdsd.errors import InvalidArgumentError

ENTRY_POINT_GROUP = "mdsd.drafts"

Draft = str | DraftKind
"""A kind of draft, or the label of one: its name, and its options behind colons."""


@cache
def _registry() -> dict[str, type[DraftDistribution]]:
    known = {draft_type.name: draft_type for draft_type in BUILT_IN}
    # By its name a kind is read again from what a file or a row calls it.
    what = "draft distribution"
    return load_plugins(ENTRY_POINT_GROUP, what, DraftDistribution, known, same_name=True)


def draft_names() -> tuple[str, ...]:
    """Names of the draft distributions that can be made from draft models, built-in ones first.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> "greedy" in draft_names()
    True
    """
    return tuple(_registry())


def draft_types() -> tuple[type[DraftDistribution], ...]:
    """Give the classes of `draft_names`."""
    return tuple(_registry().values())


def default_kinds() -> tuple[DraftKind, ...]:
    """Give the kinds that have no options to choose."""
    return tuple(each.kind() for each in draft_types() if not each.options)


def example_kinds(num_drafts: int) -> tuple[DraftKind, ...]:
    """Give kinds of every class that draft n tokens, some for each class with options.

    Examples
    --------
    >>> any(kind.name == "spechub" for kind in example_kinds(3))
    False
    """
    found = (kind for each in draft_types() for kind in each.example_kinds(num_drafts))
    return tuple(kind for kind in found if kind.refusal(num_drafts) is None)


def read_kind(draft: Draft) -> DraftKind:
    """Read a kind of draft.

    Parameters
    ----------
    draft : str or DraftKind
        A kind, or its label such as ``"greedy"``.

    Returns
    -------
    DraftKind

    Raises
    ------
    InvalidArgumentError
        If the name or an option is not known; names those that are.

    Examples
    --------
    >>> read_kind("top_k").distinct
    True
    """
    if isinstance(draft, DraftKind):
        return draft
    known = _registry()
    name, *values = draft.split(":") if isinstance(draft, str) else (draft,)
    draft_type = known[check_name("draft", name, known)]
    names = draft_type.options
    if len(values) > len(names):
        raise InvalidArgumentError(
            f"draft is {draft!r}; options of {name}: {', '.join(names) or 'none'}"
        )
    options = dict(zip(names, map(_read_value, values), strict=False))
    return draft_type.kind(**options)


def _read_value(text: str) -> Any:
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text
