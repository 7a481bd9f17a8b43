"""Pages in Markdown, read as what a reader would type and see: the blocks of code and their output.

A page is gone through from top to bottom in one folder, where files stay for what comes below:

- ```` ```python ```` runs, in a namespace of its own, and prints the plain block that follows it;
- one that begins with a comment like ``# name.py`` is a file of that name, as is
  ``# pyproject.toml``, whose package is then as good as installed;
- a plain block that begins with ``$ mdsd`` is a command and what it prints in 80 columns.

Blocks in other languages, ``py`` and ``sh`` among them, are to be read only.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import sys
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mdsd.drafts import registry as draft_registry
from mdsd.verifiers import registry as verifier_registry

from . import commands

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
DOCS = tuple(sorted((ROOT / "docs").glob("*.md")))

_BLOCK = re.compile(
    r"^```(?P<language>\w*)\n(?P<content>.*?)^```\n"
    r"(?:\n```\n(?!\$ )(?P<printed>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
_FILE = re.compile(r"# (\w+\.(?:py|toml))\n")
_COMMAND = "$ mdsd "


@dataclass(frozen=True)
class Block:
    """A block of code, the line of the page it begins in, and what stands below it."""

    line: int
    language: str
    content: str
    printed: str

    @property
    def file_name(self) -> str | None:
        found = _FILE.match(self.content) if self.language in ("python", "toml") else None
        return found[1] if found else None

    @property
    def is_example(self) -> bool:
        return self.language == "python" and self.file_name is None

    @property
    def command(self) -> str | None:
        """A command without the "mdsd" before it, if this is one."""
        if self.language or not self.content.startswith(_COMMAND):
            return None
        return self.content.partition("\n")[0].removeprefix(_COMMAND)


def _forget_plugins() -> None:
    draft_registry._registry.cache_clear()
    verifier_registry._registry.cache_clear()


def read_blocks(text: str) -> list[Block]:
    """Find the blocks of a page; of a command its output is `printed`."""
    found = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        language, content = match["language"], match["content"]
        printed = match["printed"] or ""
        if not language and content.startswith(_COMMAND):
            printed = content.partition("\n")[2]
        found.append(Block(line, language, content, printed))
    return found


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Have modules and packages of a folder imported and found, and forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        before = set(sys.modules)
        try:
            yield
        finally:
            for name in set(sys.modules) - before:
                if (folder / f"{name}.py").exists():
                    del sys.modules[name]
            _forget_plugins()


def _install(project: dict[str, Any], folder: Path) -> None:
    """Leave what an installer would leave of a package: its name and its entry points."""
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    importlib.invalidate_caches()
    _forget_plugins()


def _compare(block: Block, printed: str) -> None:
    assert printed == block.printed, (
        f"line {block.line} prints\n{printed}\nand not, as shown,\n{block.printed}"
    )


def play(text: str, folder: Path, *, skipped: Collection[str] = ()) -> None:
    """Do what a page shows, and compare.

    Parameters
    ----------
    text : str
        The page.
    folder : Path
        Empty, and the working directory.
    skipped : collection of str
        Commands that are not run.
    """
    with _importable(folder):
        for block in read_blocks(text):
            if block.file_name is not None:
                (folder / block.file_name).write_text(block.content, encoding="utf-8")
                if block.file_name == "pyproject.toml":
                    _install(tomllib.loads(block.content)["project"], folder)
            elif block.is_example:
                seen = io.StringIO()
                with contextlib.redirect_stdout(seen):
                    exec(compile(block.content, f"line {block.line}", "exec"), {})
                _compare(block, seen.getvalue())
            elif block.command is not None and block.command not in skipped:
                printed = commands.printed(commands.run(block.command))
                _compare(block, "".join(f"{line.rstrip()}\n" for line in printed.splitlines()))
