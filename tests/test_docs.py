"""The commands and figures of the pages in docs/: what a page shows is what the commands give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from . import commands

pytestmark = pytest.mark.usefixtures("folder")

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
TEXT = (DOCS / "analysis.md").read_text(encoding="utf-8")
COMMANDS = dict(re.findall(r"^```\n\$ mdsd (.*?)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE))
FIGURES = {page: re.findall(r"!\[.+?\]\((.+?)\)", page.read_text("utf-8")) for page in PAGES}
MOST_BYTES = 100_000


def printed(command: str) -> list[str]:
    return commands.printed(commands.run(command)).splitlines()


def theory(lines: list[str]) -> list[tuple[str, ...]]:
    """Quantity, setting and theory of each row; the rest depends on the number of runs."""
    row = re.compile(r"^(\w[\w ]*?)? {2,}(.*?) {2,}(\d+\.\d{4}) ")
    return [match.groups() for line in lines if (match := row.match(line))]


def test_planned_tree_is_what_the_command_prints():
    (command,) = [command for command in COMMANDS if command.startswith("plan-tree")]
    assert printed(command) == COMMANDS[command].splitlines()


def test_simulated_table_has_the_theory_that_the_command_prints(folder):
    (command,) = [command for command in COMMANDS if command.startswith("simulate")]
    shown = theory(COMMANDS[command].splitlines())
    assert len(shown) == 23
    assert theory(printed(f"{command} --runs 2")) == shown
    # The pictures of the page are those that the command writes.
    named = {Path(figure).name for figure in FIGURES[DOCS / "analysis.md"]}
    written = {path.name for path in (folder / "docs/figures").glob("*.png")}
    assert written == named - {"plan_tree.png"}


def test_numbers_of_the_text_are_those_of_the_table():
    (table,) = [shown for command, shown in COMMANDS.items() if command.startswith("simulate")]
    rejections = float(re.search(r"^rejections +1 sequence +(\S+)", table, re.MULTILINE)[1])
    assert f"{rejections:.2f} rejections, acceleration {50 / rejections:.2f}" in TEXT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_figures_are_there_and_small(page):
    assert FIGURES[page]
    for figure in FIGURES[page]:
        content = (DOCS / figure).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) < MOST_BYTES


def test_no_figure_is_left_over():
    used = {(DOCS / figure).resolve() for figures in FIGURES.values() for figure in figures}
    assert set(DOCS.glob("figures/*.png")) == used
