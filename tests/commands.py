"""Running `mdsd` in tests: its results, its errors, and what it is in a process of its own."""

from __future__ import annotations

import errno
import json
import os
import re
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import mdsd
from mdsd.cli import main

PACKAGES = str(Path(mdsd.__file__).parents[1])  # a checkout, or where the wheel was installed

LIMIT = 200.0
"""Seconds that any process of a test may take: less than the test itself may (pyproject.toml)."""


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
        timeout=LIMIT,
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
    return watch([sys.executable, "-m", "mdsd", *arguments])


def watch(command: Sequence[str], limit: float = LIMIT) -> tuple[bytes, bytes]:
    """Run a process with a terminal for its standard error; give standard output, and that.

    Both are read at once, so that neither fills up while the process waits for its reader. It is
    killed where it has not ended within `limit` seconds, with all that it started.
    """
    pty = pytest.importorskip("pty")
    stop = time.monotonic() + limit
    master, terminal = pty.openpty()
    with (
        open(master, "rb", buffering=0) as screen,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=terminal,
            env=os.environ | {"PYTHONPATH": PACKAGES, "TERM": "xterm"},
            start_new_session=True,
        ) as running,
    ):
        os.close(terminal)
        assert running.stdout is not None
        try:
            texts = _read_to_their_ends([running.stdout.fileno(), screen.fileno()], stop)
            if texts is None:
                raise subprocess.TimeoutExpired(command, limit)
            running.wait(max(stop - time.monotonic(), 0.0))
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)
            raise
    return texts[0], texts[1]


def _read_to_their_ends(files: Sequence[int], stop: float) -> list[bytes] | None:
    """Read all files at once; None where they have not all ended when the clock says `stop`."""
    parts: dict[int, list[bytes]] = {file: [] for file in files}
    with selectors.DefaultSelector() as waiting:
        for file in files:
            waiting.register(file, selectors.EVENT_READ)
        while waiting.get_map():
            left = stop - time.monotonic()
            if left <= 0.0:
                return None
            for key, _ in waiting.select(left):
                try:
                    part = os.read(key.fd, 65536)
                except OSError as error:  # so Linux says that nobody has the terminal open any more
                    if error.errno != errno.EIO:
                        raise
                    part = b""
                parts[key.fd].append(part)
                if not part:
                    waiting.unregister(key.fd)
    return [b"".join(parts[file]) for file in files]
