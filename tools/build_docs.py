"""Build the site of the documentation, any warning being an error.

::

    python tools/build_docs.py build/site

Without a folder it is built and thrown away. Nothing is written into the checkout but that folder:
pages that are generated, and pictures that examples draw, are made in a copy of docs/.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(site: Path | None) -> int:
    """Build into a folder; give the exit code of Sphinx."""
    with tempfile.TemporaryDirectory(prefix="mdsd-docs-") as folder:
        place = Path(folder)
        # What is built is the text of this checkout, with the package that is installed.
        shutil.copytree(ROOT / "docs", place / "docs")
        options = ["--builder", "html", "--fail-on-warning", "--keep-going", "--quiet"]
        done = subprocess.run(
            [sys.executable, "-m", "sphinx", *options, str(place / "docs"), str(place / "site")],
            env={**os.environ, "MDSD_ROOT": str(ROOT), "MPLBACKEND": "agg"},
            check=False,
        )
        if done.returncode == 0 and site is not None:
            shutil.rmtree(site, ignore_errors=True)
            shutil.copytree(place / "site", site, ignore=shutil.ignore_patterns(".doctrees"))
            print(f"{site / 'index.html'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
