"""The figures of docs/trees.md: that the tool still draws them, from numbers that add up."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree_figures(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    module = importlib.import_module("tree_figures")
    monkeypatch.setattr(module, "TREES", 2)
    return module


def test_both_pictures_of_the_page_are_written(tree_figures, monkeypatch, tmp_path, capsys):
    page = (ROOT / "docs" / "trees.md").read_text("utf-8")
    monkeypatch.setattr(sys, "argv", ["tree_figures.py", str(tmp_path / "new")])
    tree_figures.main()
    written = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert set(written) == set(re.findall(r"\(figures/(\w+\.png)\)", page))
    assert all(content.startswith(b"\x89PNG") for content in written.values())
    # A line for each verifier and way of drafting; kseq takes one of them.
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(tree_figures.LOOKS) - 1


def test_numbers_are_chances_that_fall_with_depth(tree_figures):
    found = tree_figures.accepted_by_layer("without_replacement")
    assert set(found) == set(tree_figures.LOOKS) - {"kseq"}
    for name, rows in found.items():
        assert rows.shape == (2, 3)
        assert rows.min() >= 0.0
        assert rows.max() <= 1.0 + 1e-12
        if name != "layers":  # whose weights may grow, given the tree down to a layer
            assert (np.diff(rows, axis=1) <= 1e-12).all()
