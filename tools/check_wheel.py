"""Build the sdist, the wheel from it, and run tests against the wheel, outside the repository.

What passes from a checkout can still be missing from a wheel: data files, a package, a type marker.
So every file of the packages must be there as it is in the checkout; then a few tests suffice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_CLI = "tests/mdsd/test_cli.py::"
TESTS = (
    "tests/mdsd/test_package.py",
    "tests/mdsd/test_datasets.py",
    _CLI + "test_module_runs",
    _CLI + "test_module_reports_errors_by_its_exit_code",
    _CLI + "test_quick_commands_import_nothing_heavy",
    _CLI + "test_verifiers_are_listed",
    _CLI + "test_a_file_does_not_replace_the_table",
)
"""Tests that touch what packaging can break; the rest has run from the checkout, on the same files.
"""

PACKAGES = ("mdsd", "solvers")


def differing(site: Path) -> list[str]:
    """Files of the packages that an installation lacks, or has with other bytes."""
    files = [
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*"))
        if path.is_file() and path.parent.name != "__pycache__"
    ]
    return [
        str(file)
        for file in files
        if not (site / file).is_file() or (site / file).read_bytes() != (ROOT / file).read_bytes()
    ]


def _run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=cwd, env=env, check=True)


def main() -> int:
    """Build, unpack, look, test; give the exit code of the tests."""
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    with tempfile.TemporaryDirectory(prefix="mdsd-wheel-") as folder:
        place = Path(folder)
        site, run = place / "site", place / "run"
        # Of a copy: building writes beside the source, which may be read-only.
        source = place / "source"
        for package in PACKAGES:
            kept = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, source / package, ignore=kept)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        # Without further options: an sdist of the source, then a wheel of that sdist.
        _run(sys.executable, "-m", "build", "--outdir", str(place), str(source), cwd=place)
        (wheel,) = place.glob("mdsd-*.whl")
        _run(*pip, "install", "--no-deps", "--target", str(site), str(wheel), cwd=place)
        other = differing(site)
        if other:
            print(f"the wheel lacks, or has changed, {', '.join(other)}", file=sys.stderr)
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
