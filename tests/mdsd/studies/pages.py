"""Reading pages of HTML in tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

__all__ = ["Page", "read_page"]


@dataclass
class Table:
    """A table: heads of columns and cells, as they are read."""

    heads: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def column(self, head: str) -> list[str]:
        place = self.heads.index(head)
        return [row[place] for row in self.rows]


@dataclass
class Page:
    """What a page has that tests ask for."""

    text: str = ""
    title: str = ""
    headings: list[str] = field(default_factory=list)
    paragraphs: list[str] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    terms: list[tuple[str, str]] = field(default_factory=list)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    elements: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self._inside = ""
        self._table = Table()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        page = self.page
        page.elements.append(tag)
        page.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "table":
            self._table = page.tables[str(dict(attrs)["id"])] = Table()
        elif tag == "tr":
            self._table.rows.append([])
        elif tag == "th":
            self._table.heads.append("")
        elif tag == "td":
            self._table.rows[-1].append("")
        elif tag in ("h1", "h2", "h3"):
            page.headings.append("")
        elif tag in ("li", "p"):
            page.paragraphs.append("")
        elif tag == "dt":
            page.terms.append(("", ""))
        if tag not in ("button", "code", "label", "input", "details", "summary", "a"):
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside or tag == "tbody":
            self._inside = ""
        if tag == "thead":
            self._table.rows.clear()

    def handle_data(self, data: str) -> None:
        page = self.page
        if self._inside not in ("script", "style"):
            page.text += data
        if self._inside == "title":
            page.title += data
        elif self._inside == "th":
            self._table.heads[-1] += data
        elif self._inside == "td":
            self._table.rows[-1][-1] += data.removesuffix("\n")
        elif self._inside in ("h1", "h2", "h3"):
            page.headings[-1] += data
        elif self._inside in ("li", "p"):
            page.paragraphs[-1] += data
        elif self._inside in ("dt", "dd"):
            term, meaning = page.terms[-1]
            own = self._inside == "dt"
            page.terms[-1] = (term + data, meaning) if own else (term, meaning + data)


def read_page(html: str) -> Page:
    """Read a page."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.page
