"""Build the sdist, the wheel from it, and run tests against the wheel, outside the repository.

What passes from a checkout can still be missing from a wheel: data files, a package, a type marker.
So every file of the packages must be there as it is in the checkout; then a few tests suffice, and
what a newcomer does first, all in a fresh environment that has the wheel and what it needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_CLI = "tests/mdsd/test_cli.py::"
TESTS = (
    "tests/newcomer.py",
    "tests/mdsd/test_package.py",
    "tests/mdsd/test_own_solvers.py",
    "tests/mdsd/test_datasets.py",
    _CLI + "test_module_runs",
    _CLI + "test_module_reports_errors_by_its_exit_code",
    _CLI + "test_quick_commands_import_nothing_heavy",
    _CLI + "test_verifiers_and_drafts_are_listed",
    _CLI + "test_a_file_does_not_replace_the_table",
)
"""Tests that touch what packaging can break; the rest has run from the checkout, on the same files.
"""

PACKAGES = {"mdsd": "mdsd", "mdsd/_solvers": "solvers", "solvers": "solvers"}
"""Where packages are installed, and where their files are in the checkout."""


def differing(site: Path) -> list[str]:
    """Files of the packages that an installation lacks, or has with other bytes."""
    files = {
        Path(package, path.relative_to(ROOT / folder)): path
        for package, folder in PACKAGES.items()
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.parent.name != "__pycache__"
    }
    return [
        str(file)
        for file, path in files.items()
        if not (site / file).is_file() or (site / file).read_bytes() != path.read_bytes()
    ]


def make_environment(place: Path) -> tuple[Path, Path]:
    """Make an environment that finds the packages of this one, but not the checkout.

    Returns
    -------
    python, site : Path
        Its Python, and where packages are installed.
    """
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    asked = subprocess.run((python, "-c", code), check=True, capture_output=True, text=True)
    site = Path(asked.stdout.strip())
    # A folder that is named in this way is searched, but what leads from it to a checkout is not.
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python, site


def keep_compiled(site: Path) -> None:
    """Take over what is compiled of the same sources, which are told by their time and size."""
    for package, folder in PACKAGES.items():
        for source in (ROOT / folder).rglob("*.py"):
            shutil.copystat(source, site / package / source.relative_to(ROOT / folder))
        for compiled in (ROOT / folder).rglob("*.nb[ci]"):
            place = site / package / compiled.relative_to(ROOT / folder)
            place.parent.mkdir(exist_ok=True)
            shutil.copy2(compiled, place)


def _run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=cwd, env=env, check=True)


def main() -> int:
    """Build, unpack, look, test; give the exit code of the tests."""
    with tempfile.TemporaryDirectory(prefix="mdsd-wheel-") as temporary:
        place = Path(temporary)
        # Of a copy: building writes beside the source, which may be read-only.
        source = place / "source"
        ignored = shutil.ignore_patterns("__pycache__")
        for folder in ("mdsd", "solvers"):
            shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=ignored)
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        run = place / "run"
        python, site = make_environment(place / "venv")
        # Without further options: an sdist of the source, then a wheel of that sdist.
        _run(sys.executable, "-m", "build", "--outdir", str(place), str(source), cwd=place)
        (wheel,) = place.glob("mdsd-*.whl")
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        _run(*pip, "--python", str(python), "install", "--no-deps", str(wheel), cwd=place)
        other = differing(site)
        if other:
            print(f"the wheel lacks, or has changed, {', '.join(other)}", file=sys.stderr)
            return 1
        # The tests and their configuration, without the packages next to them.
        keep_compiled(site)
        run.mkdir()
        shutil.copytree(ROOT / "tests", run / "tests")
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, run)
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        where = "import mdsd, solvers; print(mdsd.__file__, solvers.__file__, sep='\\n')"
        found = subprocess.run(
            (python, "-c", where), cwd=run, env=env, check=True, capture_output=True
        )
        if any(not line.startswith(str(site)) for line in found.stdout.decode().split("\n")[:2]):
            print(f"the wheel is not what is imported: {found.stdout.decode()}", file=sys.stderr)
            return 1
        done = subprocess.run(
            (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS),
            cwd=run,
            env=env,
            check=False,
        )
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
