"""The data sets that come with the library."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import resources
from pathlib import Path

from mdsd._arguments import check_name
from mdsd.datasets.dataset import Dataset
from mdsd.datasets.npz import read_npz
from mdsd.datasets.tables import number_texts

_NAMES = ("smollm2",)


def names() -> tuple[str, ...]:
    """Names of the embedded data sets.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> names()
    ('smollm2',)
    """
    return _NAMES


def load(name: str) -> Dataset:
    """Load an embedded data set.

    Parameters
    ----------
    name : str
        One of `names()`. "smollm2": SmolLM2-135M-Instruct and five drafts of its own vocabulary at
        144 positions of varied text, the most probable tokens of each.

    Returns
    -------
    Dataset

    Raises
    ------
    InvalidArgumentError
        If there is no data set of that name.

    Examples
    --------
    >>> data = load("smollm2")
    >>> data.target_table.shape == data.draft_tables["drop2"].shape == data.token_ids.shape
    True
    >>> bool(data.target_kept_mass.mean() > 0.99)
    True
    """
    check_name("data set", name, _NAMES)
    with embedded_file(name) as path:
        data = read_npz(path)
    texts = (text for text, _ in data.provenance["positions"])
    return replace(data, text_ids=number_texts(texts))


def embedded_file(name: str) -> AbstractContextManager[Path]:
    """Find the file of an embedded data set: a path as long as the context lasts."""
    return resources.as_file(resources.files("mdsd") / "data" / f"{name}.npz")
