r"""Write the tables of a page from the folders of studies: `docs/study.md` is kept so.

A table stands between two comments, which say what is in it::

    <!-- table: main draft_model=drop2 columns=temperature,num_drafts -->
    <!-- end -->

`main` is the name of a folder, `draft_model=drop2` chooses rows, and the columns are all pairs of
the two fields. Its rows are the verifiers by draft distribution, and each bound that none of
them attains::

    python tools/study_tables.py docs/study.md build/study
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mdsd.studies.grid import StudyRow, read_study

_TABLE = re.compile(r"(<!-- table: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)

_HEADS = {"temperature": "T = ", "num_drafts": "n = "}

_DRAFTS = {
    "with_replacement": "with replacement",
    "without_replacement": "without replacement",
    "spechub": "SpecHub",
    "greedy": "greedy",
    "top_k": "top-k",
    "independent": "independent",
}


def filled(page: str, studies: Path) -> str:
    """Fill in the tables of a page.

    Parameters
    ----------
    page : str
    studies : path
        Folder of the folders of studies.
    """

    def fill(match: re.Match[str]) -> str:
        name, *choices = match[2].split()
        wanted = dict(choice.split("=") for choice in choices)
        columns = wanted.pop("columns").split(",")
        rows = read_study(studies / name).rows
        chosen = [
            row
            for row in rows
            if all(str(getattr(row, field)) == value for field, value in wanted.items())
        ]
        if not chosen:
            raise SystemExit(f"no row of {name} has {' '.join(choices)}")
        return "".join([match[1], "\n", *table(chosen, columns), "\n", match[3]])

    return _TABLE.sub(fill, page)


def table(rows: Sequence[StudyRow], columns: Sequence[str]) -> Iterable[str]:
    """Lay out rows as a table in markdown, the largest number of each column in bold.

    Bounds are left out of that comparison, and not shown where a verifier attains them.
    """

    def point(row: StudyRow) -> tuple[float | str, ...]:
        return tuple(getattr(row, column) for column in columns)

    points = list(dict.fromkeys(point(row) for row in rows))
    if not any(isinstance(value, str) for value in points[0]):
        points.sort()
    heads = [", ".join(map(_head, columns, each)) for each in points]
    yield f"| drafts | verifier | {' | '.join(heads)} |\n"
    yield f"|---|---|{'---|' * len(points)}\n"
    attained = {
        (row.draft, row.verifier, point(row)): row.acceptance
        for row in rows
        if row.acceptance is not None
    }
    best = {
        each: max(value for (*_, other), value in attained.items() if other == each)
        for each in points
    }
    for draft in [name for name in _DRAFTS if any(row.draft == name for row in rows)]:
        own = [row for row in rows if row.draft == draft]
        for verifier in dict.fromkeys(sorted((row.verifier for row in own), key=_ORDER.index)):
            if draft in _ONE_VERIFIER and verifier != _ONE_VERIFIER[draft]:
                continue
            values = [attained.get((draft, verifier, each)) for each in points]
            yield _line(_DRAFTS[draft], verifier, values, [best[each] for each in points])
        if draft not in _ONE_VERIFIER:
            bounds = {point(row): row.bound for row in own}
            yield _line(_DRAFTS[draft], "*bound*", [bounds.get(each) for each in points])


def _head(column: str, value: float | str) -> str:
    return value if isinstance(value, str) else f"{_HEADS[column]}{value:g}"


_ORDER = ("rrs", "kseq", "spechub", "greedy", "optimal")
_ONE_VERIFIER = {"spechub": "spechub", "greedy": "greedy", "top_k": "optimal"}
"""Draft distributions whose verifier attains the bound in closed form."""


def _line(
    draft: str, verifier: str, values: Sequence[float | None], best: Sequence[float] = ()
) -> str:
    cells = ["" if value is None else f"{value:.3f}" for value in values]
    for place, most in enumerate(best):
        if cells[place] == f"{most:.3f}":
            cells[place] = f"**{cells[place]}**"
    return f"| {draft} | {verifier} | {' | '.join(cells)} |\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the page."""
    parser = argparse.ArgumentParser(description="Write the tables of a page from studies.")
    parser.add_argument("page", type=Path)
    parser.add_argument("studies", type=Path, help="folder of the folders of studies")
    options = parser.parse_args(arguments)
    page = options.page.read_text(encoding="utf-8")
    options.page.write_text(filled(page, options.studies), encoding="utf-8")


if __name__ == "__main__":
    main()
