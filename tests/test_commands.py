"""What a process that a test runs writes comes back whole, or the process is ended."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from . import commands

TESTS = Path(__file__).parent
MEGABYTE = 10**6


@pytest.mark.parametrize("first", ["stdout", "stderr"])
def test_a_process_may_fill_both_its_output_and_its_terminal(first):
    second = {"stdout": "stderr", "stderr": "stdout"}[first]
    code = "import sys\n" + "".join(
        f"sys.{name}.write('{name[3]}' * {MEGABYTE}); sys.{name}.flush()\n"
        for name in (first, second)
    )
    assert commands.watch([sys.executable, "-c", code]) == (b"o" * MEGABYTE, b"e" * MEGABYTE)


# What names its process in a file, and goes on for longer than any test.
NAMED = "import os; open({path!r}, 'w').write(str(os.getpid()))"
SLEEP = f"{NAMED}; import time; time.sleep(1000)"
ENDLESS = {
    "silent": SLEEP,
    "writing": f"{NAMED}\nwhile True: os.write(2, b'more')",
    "closed": f"import os; os.close(1); os.close(2); {SLEEP}",
    "started": "import subprocess, sys; subprocess.run([sys.executable, '-c', {sleep!r}])",
}


def goes_on(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_processes_that_never_end_are_ended_with_all_they_started(tmp_path):
    def watch_to_the_end(kind: str) -> int:
        path = str(tmp_path / kind)
        code = ENDLESS[kind].format(path=path, sleep=SLEEP.format(path=path))
        with pytest.raises(subprocess.TimeoutExpired):
            commands.watch([sys.executable, "-c", code], limit=6.0)
        return int(Path(path).read_text())

    with ThreadPoolExecutor(len(ENDLESS)) as threads:  # all at once: they take their time
        pids = dict(zip(ENDLESS, threads.map(watch_to_the_end, ENDLESS), strict=True))
    patience = time.monotonic() + 30.0
    while any(map(goes_on, pids.values())) and time.monotonic() < patience:
        time.sleep(0.01)
    assert [kind for kind, pid in pids.items() if goes_on(pid)] == []


def waits_without_a_limit(source: str) -> list[int]:
    """Lines that run a process, or wait for one to end, for as long as it takes."""
    return [
        call.lineno
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and (
            ast.unparse(call.func) in ("subprocess.run", "subprocess.check_output")
            or (ast.unparse(call.func).endswith((".wait", ".communicate")) and not call.args)
        )
        and "timeout" not in [keyword.arg for keyword in call.keywords]
    ]


@pytest.mark.parametrize(
    "source",
    ["subprocess.run(['true'], check=True)", "f(running.communicate())", "running.wait()"],
)
def test_waiting_without_a_limit_is_noticed(source):
    assert waits_without_a_limit(source) == [1]
    limited = source.replace("()", "(timeout=3)").replace("check=True", "check=True, timeout=3")
    assert waits_without_a_limit(limited) == []


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.name)
def test_every_process_has_a_limit(path):
    assert waits_without_a_limit(path.read_text(encoding="utf-8")) == []


def test_every_test_has_a_limit(request):
    assert float(request.config.getini("timeout")) > commands.LIMIT
