"""The table of docs/trees.md: that the tool gives what the page shows."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "trees.md").read_text("utf-8")
(TABLE,) = re.findall(
    r"<!-- table of tools/tree_tables.py -->\n\n(.*?)\n\n<!-- end -->", PAGE, re.DOTALL
)


@pytest.fixture(scope="module")
def tree_tables() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("tree_tables")
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
def test_first_lines_are_what_the_tool_gives(tree_tables, draft):
    line = tree_tables.line(3, [2, 1], draft)
    assert line in TABLE.splitlines()
    assert re.fullmatch(r"\| V = 3, 2,1, with(out)? \|( \d\.\d{4} \|){6}( \d+\.\d\d% \|){2}", line)


def test_all_lines_are_there_and_none_is_above_the_program(tree_tables):
    head, rule, *lines = TABLE.splitlines()
    assert len(lines) == len(tree_tables.CASES) * len(tree_tables.DRAFTS)
    assert set(rule) == {"|", "-"}
    assert head.count("|") == rule.count("|") == lines[0].count("|")
    for line in lines:
        bound, *accepted = (float(cell) for cell in re.findall(r"\d\.\d{4}", line))
        assert len(accepted) == len(tree_tables.VERIFIERS)
        assert max(accepted) <= bound
