"""Running `mdsd` in tests: its results, its errors, and what it is in a process of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import mdsd
from mdsd.cli import main

PACKAGES = str(Path(mdsd.__file__).parents[1])  # a checkout, or where the wheel was installed


def run(command: str) -> Result:
    """Run a command as it is written in a shell, without the "mdsd" before it."""
    return CliRunner().invoke(main, shlex.split(command), prog_name="mdsd")


def printed(result: Result) -> str:
    """What a command printed that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def report_of(command: str) -> dict[str, Any]:
    """What a command writes as JSON."""
    report: dict[str, Any] = json.loads(printed(run(f"{command} --json")))
    return report


def assert_refused(result: Result, *words: str) -> None:
    """Check that a command ended with one line on standard error that has all the words."""
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("mdsd: ")
    assert [word for word in words if word not in line] == []


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code that ends well in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": PACKAGES, **environment},
        check=True,
    )


def run_alone(*arguments: str, **environment: str) -> tuple[str, set[str]]:
    """Run a command in a process of its own; give what it prints and the packages it imports."""
    done = run_python(
        "import sys; from mdsd.cli import main\n"
        f"try: main({list(arguments)!r})\n"
        "finally: print(sorted({m.split('.')[0] for m in sys.modules}), file=sys.stderr)",
        **environment,
    )
    return done.stdout, set(re.findall(r"'(\w+)'", done.stderr))


def run_in_terminal(*arguments: str) -> tuple[bytes, bytes]:
    """Run a command with a terminal for its standard error; give standard output, and that."""
    pty = pytest.importorskip("pty")
    master, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "mdsd", *arguments],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=os.environ | {"PYTHONPATH": PACKAGES, "TERM": "xterm"},
    ) as running:
        os.close(terminal)
        stdout = running.stdout.read()
    shown = os.read(master, 65536)
    os.close(master)
    return stdout, shown
