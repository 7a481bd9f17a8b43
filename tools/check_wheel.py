"""Build the sdist, the wheel from it, and run tests against the wheel, outside the repository.

What passes from a checkout can still be missing from a wheel: data files, a package, a type marker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TESTS = ("tests/mdsd/test_package.py", "tests/mdsd/test_datasets.py", "tests/mdsd/test_cli.py")
"""Tests that touch what packaging can break; the rest has run from the checkout."""

WANTED = (
    "mdsd/py.typed",
    "solvers/py.typed",
    "mdsd/data/smollm2.npz",
    "mdsd/data/README.md",
    "mdsd/studies/grid/report/page/report.html",
    "mdsd/studies/grid/report/page/report.css",
    "mdsd/studies/grid/report/page/report.js",
)


def _run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=cwd, env=env, check=True)


def main() -> int:
    """Build, unpack, look, test; give the exit code of the tests."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    with tempfile.TemporaryDirectory(prefix="mdsd-wheel-") as folder:
        place = Path(folder)
        site, run = place / "site", place / "run"
        # Without further options: an sdist of the source, then a wheel of that sdist.
        _run(sys.executable, "-m", "build", "--outdir", str(place), str(ROOT), cwd=place)
        (wheel,) = place.glob("mdsd-*.whl")
        _run(*pip, "install", "--no-deps", "--target", str(site), str(wheel), cwd=place)
        missing = [name for name in WANTED if not (site / name).is_file()]
        if missing:
            print(f"the wheel lacks {', '.join(missing)}", file=sys.stderr)
            return 1
        # The tests and their configuration, without the packages next to them.
        run.mkdir()
        shutil.copytree(ROOT / "tests", run / "tests")
        shutil.copy(ROOT / "pyproject.toml", run)
        env = {**os.environ, "PYTHONPATH": str(site)}
        where = "import mdsd, solvers; print(mdsd.__file__, solvers.__file__, sep='\\n')"
        found = subprocess.run(
            (sys.executable, "-c", where), cwd=run, env=env, check=True, capture_output=True
        )
        if any(not line.startswith(str(site)) for line in found.stdout.decode().split("\n")[:2]):
            print(f"the wheel is not what is imported: {found.stdout.decode()}", file=sys.stderr)
            return 1
        done = subprocess.run(
            (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS),
            cwd=run,
            env=env,
            check=False,
        )
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
