"""What `make docs` does not see: that the reference lists everything public."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from . import pages

API = {
    page.stem: page.read_text(encoding="utf-8") for page in (pages.ROOT / "docs/api").glob("*.rst")
}
PACKAGES = (
    "mdsd",
    "mdsd.analysis",
    "mdsd.datasets",
    "mdsd.decoding",
    "mdsd.decoding.layouts",
    "mdsd.decoding.llama_cpp",
    "mdsd.decoding.transformers",
    "mdsd.drafts",
    "mdsd.studies",
    "mdsd.testing",
    "mdsd.verifiers",
)


def listed(text: str) -> list[tuple[str, str]]:
    """Module and name of all that a page of the reference documents."""
    found, module, inside = [], "", False
    for line in text.splitlines():
        if line.startswith(".. "):
            directive, _, argument = line.removeprefix(".. ").partition("::")
            module = argument.strip() if directive in ("currentmodule", "automodule") else module
            inside = directive == "reference"
        elif line.startswith("   ") and inside:
            found.append((module, line.strip()))
        elif line.strip():
            inside = False
    return found


LISTED = [entry for text in API.values() for entry in listed(text)]


def missing(package: str, entries: list[tuple[str, str]]) -> list[str]:
    """Public names of a package, but for its modules, of which the reference has no object."""
    found = [getattr(import_module(module), name) for module, name in entries]
    module = import_module(package)
    public = {name: getattr(module, name) for name in module.__all__ if not name.startswith("_")}
    return [
        name
        for name, value in public.items()
        if not inspect.ismodule(value) and not any(value is each for each in found)
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_reference_has_everything_public(package):
    assert missing(package, LISTED) == []


def test_what_the_reference_lacks_is_noticed():
    fewer = [entry for entry in LISTED if entry[1] not in ("generate", "TreeShape")]
    assert len(fewer) == len(LISTED) - 2
    assert missing("mdsd.decoding", fewer) == ["TreeShape", "generate"]


def test_nothing_is_listed_twice():
    assert len(set(LISTED)) == len(LISTED)


def test_every_page_of_the_reference_can_be_reached():
    index = {line.strip() for line in API["index"].splitlines()}
    assert set(API) - {"index"} <= index


def test_all_papers_of_the_text_are_among_the_papers():
    papers = (pages.ROOT / "docs/papers.md").read_text(encoding="utf-8")
    theory = (pages.ROOT / "docs/theory.md").read_text(encoding="utf-8")
    sources = theory.partition("## Sources")[2]
    titles = [" ".join(title.split()) for title in sources.split('"')[1::2]]
    assert len(titles) >= 15
    assert [title for title in titles if title.rstrip(",.").lower() not in papers.lower()] == []


def pages_listed(index: str) -> set[str]:
    """Names that stand in the lists of contents of a page."""
    found, inside = set(), False
    for line in index.splitlines():
        if line.startswith("```"):
            inside = line.startswith("```{toctree}")
        elif inside and line and not line.startswith(":"):
            found.add(line.strip())
    return found


def test_every_page_is_in_the_contents():
    names = {path.stem for path in (pages.ROOT / "docs").glob("*.md")} - {"index"}
    listed = pages_listed((pages.ROOT / "docs/index.md").read_text(encoding="utf-8"))
    assert names - listed == set()


def test_pages_left_out_of_the_contents_are_noticed():
    assert pages_listed("text\n```{toctree}\n:hidden:\n\nstart\n```\ntrees\n") == {"start"}
