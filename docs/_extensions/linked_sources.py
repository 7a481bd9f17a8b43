"""Pages for what the documentation links to outside its folder: sources, tables of benchmarks.

The pages in docs/ are read in a checkout as well, so their links lead to files beside them, such
as ``../mdsd/bounds.py``. Here each of these files becomes a page of the site.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = "files"
"""Where the pages stand; removed and written anew with every build."""

ROOT = Path(os.environ["MDSD_ROOT"])
"""The checkout."""

_LINK = re.compile(r"\]\(((?:\.\./)+)([\w./-]+?)/?(#[\w-]+)?\)")


def page_of(path: str) -> str:
    """Name the page that shows a file or folder of the checkout.

    Parameters
    ----------
    path : str
        Relative to the checkout.
    """
    return f"{FOLDER}/{path.removesuffix('.md')}" + ("/index" if (ROOT / path).is_dir() else "")


def _first_line(path: Path) -> str:
    words = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return words.partition("\n")[0]


def _folder_page(path: str) -> tuple[str, list[str]]:
    """List the modules of a folder with what each is for; gives the page and the modules."""
    modules = [str(each.relative_to(ROOT)) for each in sorted((ROOT / path).glob("*.py"))]
    lines = [
        f"- [{Path(each).name}](/{page_of(each)}.md): {_first_line(ROOT / each)}"
        for each in modules
    ]
    return f"# {path}/\n\n" + "\n".join(lines) + "\n", modules


def _file_page(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    return f"# {path}\n\n``````{{code-block}} python\n:linenos:\n\n{text}\n``````\n"


def _write_pages(app: Sphinx) -> None:
    source = Path(app.srcdir)
    shutil.rmtree(source / FOLDER, ignore_errors=True)
    waiting = sorted(
        {
            match[2]
            for page in source.glob("*.md")
            for match in _LINK.finditer(page.read_text(encoding="utf-8"))
        }
    )
    written = set()
    while waiting:
        path = waiting.pop()
        if path in written:
            continue
        written.add(path)
        if (ROOT / path).is_dir():
            text, modules = _folder_page(path)
            waiting += modules
        elif path.endswith(".md"):
            text = (ROOT / path).read_text(encoding="utf-8")
            text = text if text.startswith("# ") else f"# {path}\n\n{text}"
        else:
            text = _file_page(path)
        page = source / f"{page_of(path)}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"---\norphan: true\n---\n\n{text}", encoding="utf-8")


def _lead_to_pages(app: Sphinx, docname: str, content: list[str]) -> None:
    """Have links to files lead to their pages."""

    def target(match: re.Match[str]) -> str:
        return f"](/{page_of(match[2])}.md{match[3] or ''})"

    if docname.startswith(f"{FOLDER}/"):
        return
    content[0] = _LINK.sub(target, content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to the build."""
    app.connect("builder-inited", _write_pages)
    app.connect("source-read", _lead_to_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
