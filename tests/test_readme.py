"""The code of the README and of the pages in docs/ runs and prints what stands below it."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
PAGES = (README, *sorted((README.parent / "docs").glob("*.md")))
EXAMPLES = {page: BLOCK.findall(page.read_text(encoding="utf-8")) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_there_are_examples(page):
    assert len(EXAMPLES[page]) >= 4


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        pytest.param(*block, id=f"{page.stem}-{place}")
        for page, blocks in EXAMPLES.items()
        for place, block in enumerate(blocks)
    ],
)
def test_example_prints_what_stands_below_it(code, printed):
    seen = io.StringIO()
    with contextlib.redirect_stdout(seen):
        exec(code, {})
    assert seen.getvalue() == printed


def test_table_is_what_the_command_prints():
    (shown,) = re.findall(
        r"^```\n\$ mdsd (.*?)\n(.*?)^```$", README.read_text("utf-8"), re.S | re.M
    )
    arguments, table = shown
    done = subprocess.run(
        [sys.executable, "-m", "mdsd", *arguments.split()],
        env={**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
        cwd=README.parent,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert printed == table.splitlines()
