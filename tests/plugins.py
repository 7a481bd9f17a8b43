"""Packages as an installer would leave them in a folder, and processes that use them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from . import commands


def install(folder: Path, name: str, body: str, group: str, entry: str) -> None:
    """Leave a module with entry points of a group, one a line."""
    (folder / f"{name}.py").write_text(body)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")


def run(code: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run code where the packages in a folder are found."""
    path = "" if folder is None else f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", path + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=commands.LIMIT,
        cwd=commands.PACKAGES,
    )
