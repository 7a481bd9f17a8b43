"""The solvers under a name of mdsd's own, beside a module `solvers` of somebody else."""

from __future__ import annotations

import shutil
from pathlib import Path
from textwrap import indent

import pytest

from ..commands import PACKAGES
from ..plugins import run

USE = """
import mdsd
draft = mdsd.WithReplacement([0.2, 0.5, 0.3], 2)
assert round(mdsd.acceptance_bound([0.5, 0.3, 0.2], draft).value, 12) == 0.86
assert mdsd.get_verifier("optimal").plan([0.5, 0.3, 0.2], draft).verify([0, 1], rng=0)
"""
MINE = """
import solvers
assert solvers.MINE == "mine" and not hasattr(solvers, "__distribution__")
"""


@pytest.mark.parametrize(
    ("form", "code"),
    [("solvers.py", USE + MINE), ("solvers/__init__.py", MINE + USE)],
    ids=["module-later", "package-before"],
)
def test_a_module_called_solvers_is_left_alone(tmp_path, form, code):
    (tmp_path / form).parent.mkdir(exist_ok=True)
    (tmp_path / form).write_text("MINE = 'mine'")
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_processes_that_are_spawned_know_both(tmp_path):
    (tmp_path / "solvers.py").write_text("MINE = 'mine'")
    (tmp_path / "work.py").write_text("def work(_):" + indent(USE + MINE, "    "))
    code = (
        "import multiprocessing, solvers, work\n"
        "with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "    print(pool.map(work.work, [0]))"
    )
    done = run(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "[None]\n"), done.stderr


BOTH = """
import mdsd, numpy as np, solvers
from mdsd._solvers import sorting as own
from solvers import sorting as plain
assert solvers.__distribution__ == "mdsd"
for module, name in ((own, "mdsd._solvers.sorting"), (plain, "solvers.sorting")):
    assert module.falling_order.__module__ == module.__name__ == name
    assert module.falling_order(np.array([1.0, 2.0])).tolist() == [1, 0]
    print(module.falling_order._cache._impl.filename_base)
"""


def test_alone_the_package_is_there_under_both_names():
    """By file and function numba keeps results: two modules of one file must not share theirs."""
    done = run(BOTH)
    assert done.returncode == 0, done.stderr
    own, plain = done.stdout.split()
    assert own.startswith("sorting.falling_order-")
    assert plain.startswith("sorting.solvers.falling_order-")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Copy the packages, without links, as a checkout on a system without them has them."""
    for package in ("mdsd", "solvers"):
        shutil.copytree(
            Path(PACKAGES, package),
            tmp_path / package,
            ignore=shutil.ignore_patterns("__pycache__", "_solvers", "data"),
        )
    (tmp_path / "mdsd" / "_solvers").write_text("../solvers")
    return tmp_path


WHERE = """
import mdsd, sys
from mdsd._solvers.errors import SolverFailure
assert mdsd.errors.SolverFailure is SolverFailure
assert getattr(sys.modules.get("solvers"), "MINE", "mine") == "mine"
print(mdsd._solvers.errors.__file__)
"""


@pytest.mark.parametrize("before", ["", MINE], ids=["alone", "mine-before"])
def test_without_a_link_the_folder_beside_mdsd_is_loaded(copied, tmp_path, before):
    if before:
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "solvers.py").write_text("MINE = 'mine'")
    done = run(f"sys.path.insert(0, {str(tmp_path / 'mine')!r})\n{before}{WHERE}", copied)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == copied / "solvers" / "errors.py"


@pytest.mark.parametrize("owner", ["", "__distribution__ = 'another'", None])
def test_without_a_link_another_package_in_that_folder_is_noticed(copied, owner):
    if owner is None:
        shutil.rmtree(copied / "solvers")
    else:
        (copied / "solvers" / "__init__.py").write_text(owner)
    done = run("import mdsd", copied)
    assert done.returncode == 1
    words = "is missing" if owner is None else "does not belong to mdsd"
    assert f"ImportError: {copied / 'solvers'}" in done.stderr
    assert words in done.stderr
