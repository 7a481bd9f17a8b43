"""The tables of docs/study.md: how they are filled in, and that they are what a study gives."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mdsd import studies

ROOT = Path(__file__).parents[2]
STUDY, CHOOSING = (
    (ROOT / "docs" / name).read_text("utf-8") for name in ("study.md", "choosing.md")
)
TABLE = re.compile(r"<!-- table: (\w+) (.*?) -->\n\n(.*?)\n<!-- end -->", re.DOTALL)
DRAFTS = {"with replacement": "with_replacement", "greedy": "greedy", "top-k": "top_k"}
"""Those whose numbers take no time, as the page and as the library call them."""
CHEAP = ("rrs", "kseq", "greedy")


@pytest.fixture(scope="module")
def study_tables() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("study_tables")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def cells(line: str) -> list[str]:
    """What stands in a line of a table."""
    return [cell.strip(" *") for cell in line.strip("|").split("|")]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    studies.study(
        "smollm2",
        num_drafts=[1, 2],
        drafts=["with_replacement", "greedy", "spechub"],
        verifiers=["kseq", "rrs", "greedy", "spechub"],
        draft_models=["ngram", "drop2"],
        positions=4,
        output=folder / "tiny",
    )
    return folder


def test_table_is_filled_in_from_a_study(study_tables, kept):
    tiny = "<!-- table: tiny draft_model=drop2 columns=num_drafts -->"
    page = f"before\n{tiny}\nold\n<!-- end -->\nafter"
    filled = study_tables.filled(page, kept)
    rows = {
        (row.draft, row.verifier, row.num_drafts): f"{row.acceptance:.3f}"
        for row in study_tables.read_study(kept / "tiny").rows
        if row.draft_model == "drop2"
    }
    head, rule, *lines = filled.splitlines()[3:-3]
    assert head == "| drafts | verifier | n = 1 | n = 2 |"
    assert set(rule) == {"|", "-"}
    shown = [cells(line) for line in lines]
    assert [line[:2] for line in shown] == [
        ["with replacement", "rrs"],
        ["with replacement", "kseq"],
        ["with replacement", "bound"],
        ["SpecHub", "spechub"],
        ["greedy", "greedy"],
    ]
    assert shown[1][2:] == [rows["with_replacement", "kseq", n] for n in (1, 2)]
    assert shown[3][2:] == ["", rows["spechub", "spechub", 2]]
    best = max(value for (*_, n), value in rows.items() if n == 2)
    assert [line for line in lines if f"**{best}**" in line]
    # Filled in once more, it stays as it is.
    assert study_tables.filled(filled, kept) == filled
    assert filled.startswith("before\n")
    assert filled.endswith("\nafter")


def test_columns_of_names_are_in_the_order_of_the_study(study_tables, kept):
    page = "<!-- table: tiny num_drafts=2 columns=draft_model -->\n<!-- end -->"
    assert "| drafts | verifier | ngram | drop2 |" in study_tables.filled(page, kept)


def test_table_without_rows_is_an_error(study_tables, kept):
    page = "<!-- table: tiny draft_model=drop9 columns=num_drafts -->\n<!-- end -->"
    with pytest.raises(SystemExit, match="drop9"):
        study_tables.filled(page, kept)


def grid_of(name: str, choices: str) -> dict[str, list]:
    """The grid of the cells that a table shows."""
    wanted = dict(choice.split("=") for choice in choices.split())
    temperatures = {
        "main": [0.6, 1.0],
        "drafts": [0.6, 1.0],
        "temperature": [round(0.1 * k, 1) for k in range(1, 11)],
    }[name]
    counts = {"main": [2, 3, 4], "drafts": list(range(1, 9)), "temperature": [3]}[name]
    models = ["drop2", "drop3", "context32", "context8", "ngram"]
    return {
        "temperatures": [float(wanted["temperature"])] if "temperature" in wanted else temperatures,
        "num_drafts": [int(wanted["num_drafts"])] if "num_drafts" in wanted else counts,
        "draft_models": [wanted["draft_model"]] if "draft_model" in wanted else models,
    }


TABLES = [
    pytest.param(*match, id=f"{match[0]}-{place}")
    for place, match in enumerate(TABLE.findall(STUDY))
    if match[0] != "fresh"  # of a capture that is not kept
]


def test_tables_of_the_other_page_are_among_them():
    assert TABLE.findall(CHOOSING)
    assert set(TABLE.findall(CHOOSING)) <= set(TABLE.findall(STUDY))


@pytest.mark.parametrize(("name", "choices", "table"), TABLES)
def test_table_of_the_page_is_what_a_study_gives(name, choices, table):
    grid = grid_of(name, choices)
    rows = studies.study("smollm2", **grid, drafts=DRAFTS.values(), verifiers=CHEAP)
    rows += studies.study("smollm2", **grid, drafts=["top_k"], verifiers=["naive"])
    compared = 0
    for drafts, verifier, *values in map(cells, table.splitlines()[2:]):
        if drafts not in DRAFTS:
            continue
        # The optimum of these drafts is their bound.
        judge = verifier if verifier in CHEAP else {"top-k": "naive"}.get(drafts, "rrs")
        own = [row for row in rows if (row.draft, row.verifier) == (DRAFTS[drafts], judge)]
        found = [row.acceptance if judge == verifier else row.bound for row in own]
        assert values == [f"{value:.3f}" for value in found]
        compared += 1
    assert compared == 6
