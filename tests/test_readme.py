"""The README's code runs and prints what the README says."""

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
EXAMPLES = BLOCK.findall(README.read_text(encoding="utf-8"))


def test_there_are_examples():
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize(("code", "printed"), EXAMPLES, ids=range(len(EXAMPLES)))
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
