"""Compilation: what warming up reaches, what a process says of it, and what works without a cache.

Kernels of this test are small ones of its own, or found in the cache: nothing here compiles long.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..commands import LIMIT, PACKAGES, run, run_python

REACHED = """
import importlib, mdsd, pkgutil
from mdsd import warmup
from numba.core.dispatcher import Dispatcher

for name in {jobs}:
    warmup.run_job(name)
kernels = {{}}
for found in pkgutil.walk_packages(mdsd.__path__, "mdsd."):
    if "transformers" in found.name or found.name.endswith(("__main__", "economize")):
        continue  # of other packages, or a command
    for kernel in vars(importlib.import_module(found.name)).values():
        if isinstance(kernel, Dispatcher):
            kernels[f"{{kernel.__module__}}.{{kernel.__name__}}"] = kernel
# What was called, and what that calls: of kernels found in the cache, those inside show nowhere.
waiting = [kernel for kernel in kernels.values() if kernel.overloads]
reached = set()
while waiting:
    kernel = waiting.pop()
    if kernel not in reached:
        reached.add(kernel)
        named = kernel.py_func.__code__.co_names
        called = [kernel.py_func.__globals__.get(name) for name in named]
        waiting += [each for each in called if isinstance(each, Dispatcher)]
assert len(kernels) > 50
print(*sorted(name for name, kernel in kernels.items() if kernel not in reached))
"""

LEFT_OUT = {
    "mdsd._solvers._compiled._nothing",  # a kernel to ask questions of
    "mdsd._solvers.marks.draw_marks",  # which tests alone call, with what it calls
    "mdsd._solvers.marks._level",
}


def unreached(jobs: tuple[str, ...]) -> set[str]:
    return set(run_python(REACHED.format(jobs=jobs)).stdout.split())


def test_warming_up_reaches_every_kernel():
    assert unreached(("batches", "plans", "trees")) - LEFT_OUT == set()


def test_kernels_that_are_not_reached_are_found():
    assert "mdsd.batch._kernels.verify_rows" in unreached(())


SLOW = """
from mdsd._solvers import _compiled

_compiled._PATIENCE = {patience}
for k in range(3):
    space = {{"__name__": {module!r}}}
    exec("def f(x):\\n    return x + 1.0", space)
    assert _compiled.compiled()(space["f"])(1.0) == 2.0
"""


def test_a_process_says_once_that_it_compiles():
    done = run_python(SLOW.format(patience=0.001, module="mdsd.made_up"))
    (line,) = done.stderr.splitlines()
    assert line.startswith("mdsd: compiling")
    assert "mdsd warmup" in line


@pytest.mark.parametrize(
    ("patience", "module"), [(100.0, "mdsd.made_up"), (0.001, "a_package_of_the_user")]
)
def test_nothing_is_said_of_little_or_of_what_others_compile(patience, module):
    assert run_python(SLOW.format(patience=patience, module=module)).stderr == ""


def test_nothing_is_said_while_nothing_is_compiled():
    code = (
        "from mdsd._solvers import _compiled\n"
        "_compiled._PATIENCE = 0.0\n"
        "from mdsd._solvers.sorting import falling_order\n"
        "import numpy as np, time\n"
        "assert falling_order(np.array([1.0, 2.0])).tolist() == [1, 0]\n"
        "time.sleep(0.1)"
    )
    run_python(code)  # into the cache, if it was not there
    assert run_python(code).stderr == ""


def test_standard_error_that_is_closed_stops_nothing():
    code = "import sys; sys.stderr = None\n" + SLOW.format(patience=0.001, module="mdsd.made_up")
    assert run_python(code).stderr == ""


@pytest.fixture
def read_only(tmp_path: Path) -> Path:
    """Copy the package to where the caches of its kernels cannot be."""
    for package in ("mdsd", "solvers"):
        shutil.copytree(
            Path(PACKAGES, package),
            tmp_path / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        for folder in [tmp_path / package, *(tmp_path / package).rglob("*")]:
            # A file in the way stops the superuser too.
            if folder.is_dir():
                (folder / "__pycache__").write_text("")
    return tmp_path


def run_read_only(packages: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "XDG_"))}
    home = packages / "home"
    home.write_text("")  # no folder
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment | {"PYTHONPATH": str(packages), "HOME": str(home)},
        cwd=packages,
        timeout=LIMIT,
        check=False,
    )


def test_all_works_where_nothing_can_be_kept(read_only):
    code = (
        "import numpy as np, mdsd; from mdsd._solvers._compiled import cache_folder\n"
        "assert mdsd.__file__.startswith({folder!r}) and cache_folder() is None\n"
        "from mdsd._solvers.sorting import falling_order\n"
        "print(falling_order(np.array([1.0, 2.0])).tolist())"
    )
    done = run_read_only(read_only, "-c", code.format(folder=str(read_only)))
    assert (done.returncode, done.stdout) == (0, "[1, 0]\n"), done.stderr


@pytest.mark.parametrize("guarded", [True, False], ids=["ours", "numba-alone"])
def test_without_a_home_none_is_made_up(read_only, guarded):
    code = (
        "import os.path, numba; os.path.expanduser = lambda path: path\n"
        "from mdsd._solvers import _compiled\n"
        f"_compiled._has_a_place = {'_compiled._has_a_place' if guarded else 'bool'}\n"
        "import mdsd._solvers.sorting"
    )
    done = run_read_only(read_only, "-c", code)
    assert done.returncode == 0, done.stderr
    assert Path(read_only, "~").exists() is not guarded


def test_numba_alone_refuses_to_work_there(read_only):
    code = "import numba, solvers; exec(compile({source!r}, solvers.__file__, 'exec'))"
    source = "@numba.njit(cache=True)\ndef f(x):\n    return x"
    done = run_read_only(read_only, "-c", code.format(source=source))
    assert done.returncode == 1
    assert "no locator available" in done.stderr


def test_warmup_says_where_what_it_compiled_is_kept(monkeypatch):
    monkeypatch.setattr("mdsd.warmup.warm_up", lambda progress: Path("/some/where"))
    result = run("warmup")
    assert result.exit_code == 0
    assert re.fullmatch(r"compiled in \d+ s, kept in /some/where\n", result.stdout)
    assert len(result.stderr.splitlines()) == 1


def test_warmup_says_that_nothing_could_be_kept(monkeypatch):
    monkeypatch.setattr("mdsd.warmup.warm_up", lambda progress: None)
    assert "NUMBA_CACHE_DIR" in run("warmup").stdout
