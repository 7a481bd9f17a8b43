"""Pages for what the documentation links to outside its folder: sources, tables of benchmarks.

The pages in docs/ are read in a checkout as well, so their links lead to files beside them, such
as ``../mdsd/bounds.py``. Here each of these files becomes a page of the site.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(os.environ["MDSD_ROOT"])
"""The checkout."""

PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "README.md": "index.md",
    "docs/gallery/README.rst": "examples/index.rst",
}
"""Files that are pages under another name."""

_LINK = re.compile(r"\]\((?P<path>[\w./\\-]+)(?P<anchor>#[\w-]+)?\)")


def page_of(path: str) -> str:
    """Name the page that shows a file or folder of the checkout.

    Parameters
    ----------
    path : str
        Relative to the checkout.
    """
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"files/{path.removesuffix('.md')}" + ("/index.md" if _is_folder(path) else ".md")


def led_to_pages(text: str, folder: str, found: Callable[[str], object]) -> str:
    """Have the links of a page lead to pages.

    Parameters
    ----------
    text : str
    folder : str
        Where in the checkout the page is.
    found : callable
        Called with each file and folder that is linked to.
    """

    def lead(match: re.Match[str]) -> str:
        path = os.path.normpath(Path(folder, match["path"].replace("\\", "")))
        if not (ROOT / path).exists():
            return match[0]
        found(path)
        return f"](/{page_of(path)}{match['anchor'] or ''})"

    return _LINK.sub(lead, text)


def _is_folder(path: str) -> bool:
    return (ROOT / path).is_dir()


def _folder_page(path: str) -> str:
    """List the modules of a folder, with what each is for."""
    lines = [f"# {path}/", ""]
    for module in sorted((ROOT / path).glob("*.py")):
        words = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
        lines.append(f"- [`{module.name}`]({module.name}): {words.partition(chr(10))[0]}")
    return "\n".join(lines) + "\n"


def _page(path: str, found: Callable[[str], object]) -> str:
    if _is_folder(path):
        return led_to_pages(_folder_page(path), path, found)
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        titled = text if text.startswith("# ") else f"# {path}\n\n{text}"
        return led_to_pages(titled, str(Path(path).parent), found)
    return f"# {path}\n\n``````{{code-block}} python\n:linenos:\n\n{text}\n``````\n"


def _write_pages(app: Sphinx) -> None:
    """Write a page for each file that can be reached, but for those in docs/."""
    source = Path(app.srcdir)
    waiting = {"CHANGELOG.md", "CONTRIBUTING.md"}
    for page in source.glob("*.md"):
        led_to_pages(page.read_text(encoding="utf-8"), "docs", waiting.add)
    written: set[str] = set()
    while waiting - written:
        path = (waiting - written).pop()
        written.add(path)
        page = source / page_of(path)
        if path.startswith("docs/") or page.exists():
            continue
        page.parent.mkdir(parents=True, exist_ok=True)
        orphan = "" if path in PAGES else "---\norphan: true\n---\n\n"
        page.write_text(orphan + _page(path, waiting.add), encoding="utf-8")


def _lead(app: Sphinx, docname: str, content: list[str]) -> None:
    if "/" not in docname:
        content[0] = led_to_pages(content[0], "docs", id)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to the build."""
    app.connect("builder-inited", _write_pages)
    app.connect("source-read", _lead)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
