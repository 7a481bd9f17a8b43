"""The pages in docs/: their code, commands, figures and links, and how they are tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mdsd.engines.registry import default_rules, read_rule, rule_parameters
from mdsd.studies import bias

from . import commands, pages

pytestmark = pytest.mark.usefixtures("folder")

TEXTS = {page: page.read_text(encoding="utf-8") for page in pages.DOCS}
(ANALYSIS,) = (text for page, text in TEXTS.items() if page.stem == "analysis")
FIGURES = {page: re.findall(r"!\[.+?\]\((.+?)\)", text) for page, text in TEXTS.items()}
SIMULATION = "simulate --output docs/figures --dpi 150"
"""Of many runs: only what does not depend on their number is compared."""
MOST_BYTES = 150_000
WITHOUT_CODE = {"papers"}

every_page = pytest.mark.parametrize("page", pages.DOCS, ids=lambda page: page.stem)


@every_page
def test_page_does_what_it_shows(page, folder):
    blocks = pages.read_blocks(TEXTS[page])
    assert any(block.is_example or block.command for block in blocks) != (page.stem in WITHOUT_CODE)
    pages.play(TEXTS[page], folder, skipped={SIMULATION})


# --- how pages are tried -------------------------------------------------------------------------

RIGHT = """
```python
# twice.py
def twice(x):
    return 2 * x
```

```python
from twice import twice

print(twice(2))
open("left.txt", "w").close()
```

```
4
```

```python
import os

assert os.path.exists("left.txt")
```

```
$ mdsd plan-tree --acceptance 0.5 --budget 1
probability  node
     1.0000  root
     0.5000  └─ 0

depth  nodes  children  accepted
────────────────────────────────
    0      1         1    1.0000
    1      1         0    0.5000

1.5000 expected tokens for a call of the target: 1 node, depth 1; no tree within
the limits has more
acceptance by rank (given): 0.5
node: rank among its siblings, in the order tried; accepted: probability that a
step comes as deep. Acceptance is taken to depend on the rank alone
```

```sh
this is not run
```
"""


def test_right_page_passes(folder):
    pages.play(RIGHT, folder)


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("```\n4\n", "```\n5\n", 8),
        ("```\n4\n```\n", "", 8),
        ("0.5000  └─ 0", "0.6000  └─ 0", 25),
        ("Acceptance is taken to depend on the rank alone\n", "", 25),
    ],
    ids=["output", "no-output", "command", "end-of-command"],
)
def test_wrong_page_is_noticed(folder, right, wrong, line):
    assert right in RIGHT
    with pytest.raises(AssertionError, match=rf"line {line}\b"):
        pages.play(RIGHT.replace(right, wrong), folder)


def test_code_that_fails_is_noticed(folder):
    with pytest.raises(ZeroDivisionError):
        pages.play("```python\n1 / 0\n```\n", folder)


# --- what cannot be run as it stands -------------------------------------------------------------


def theory(lines: list[str]) -> list[tuple[str, ...]]:
    """Quantity, setting and theory of each row; the rest depends on the number of runs."""
    row = re.compile(r"^(\w[\w ]*?)? {2,}(.*?) {2,}(\d+\.\d{4}) ")
    return [match.groups() for line in lines if (match := row.match(line))]


def simulated_table() -> list[str]:
    (table,) = (
        block.printed for block in pages.read_blocks(ANALYSIS) if block.command == SIMULATION
    )
    return table.splitlines()


def test_simulated_table_has_the_theory_that_the_command_prints(folder):
    shown = theory(simulated_table())
    assert len(shown) == 23
    printed = commands.printed(commands.run(f"{SIMULATION} --runs 2"))
    assert theory(printed.splitlines()) == shown
    # The pictures of the page are those that the command writes.
    (figures,) = (figures for page, figures in FIGURES.items() if page.stem == "analysis")
    written = {path.name for path in (folder / "docs/figures").glob("*.png")}
    assert written == {Path(figure).name for figure in figures} - {"plan_tree.png"}


def test_numbers_of_the_text_are_those_of_the_table():
    table = "\n".join(simulated_table())
    rejections = float(re.search(r"^rejections +1 sequence +(\S+)", table, re.MULTILINE)[1])
    assert f"{rejections:.2f} rejections, acceleration {50 / rejections:.2f}" in ANALYSIS


# --- figures and links ---------------------------------------------------------------------------


@every_page
def test_figures_are_there_and_small(page):
    for figure in FIGURES[page]:
        content = (page.parent / figure).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) < MOST_BYTES


def test_no_figure_is_left_over():
    used = {(page.parent / figure).resolve() for page in FIGURES for figure in FIGURES[page]}
    assert set((pages.ROOT / "docs").glob("figures/*.png")) == used


def headings(text: str) -> set[str]:
    """Anchors of the headings of a page."""
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = re.findall(r"^#+ (.+)$", without_code, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize(
    "page", [pages.README, pages.CONTRIBUTING, *pages.DOCS], ids=lambda page: page.stem
)
def test_links_lead_somewhere(page):
    links = re.findall(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for words, link in links:
        if link.startswith("https:"):
            assert re.fullmatch(r"\d{4}\.\d{5}", words), link
            assert link == f"https://arxiv.org/abs/{words}"
            continue
        name, _, anchor = link.partition("#")
        linked = page.parent / name if name else page
        assert linked.exists(), link
        assert not anchor or anchor in headings(linked.read_text(encoding="utf-8")), link


# --- the table of rules --------------------------------------------------------------------------


def test_sources_of_rules_are_those_that_the_rules_name():
    (text,) = (text for page, text in TEXTS.items() if page.stem == "bias")
    lines = re.findall(r"^\| `([a-z_]+)(\S*)` \|.*\| (.+) \|$", text, re.MULTILINE)
    rules = {rule.name: rule for rule in default_rules() if rule.name != "optimal"}
    assert {name for name, _, _ in lines} == set(rules)
    for name, parameters, source in lines:
        assert parameters.count(":") <= len(rule_parameters(name))
        assert rules[name].source.split(", ")[0] in source
    (text,) = (text for page, text in TEXTS.items() if page.stem == "bias")
    kinds = {"sampled": "with_replacement", "top k": "top_k"}
    found = {
        (row.draft, row.num_drafts, row.label, row.temperature): row
        for row in bias("smollm2", temperatures=[0.6, 1.0])
    }
    lines = re.findall(r"^\| (sampled|top k), n = (\d) \| `(.+?)` \| (.+)$", text, re.MULTILINE)
    assert len(lines) > 15
    for kind, n, label, rest in lines:
        expected = [read_rule(label).used_by, "yes" if read_rule(label).lossless else "no"]
        for temperature in (0.6, 1.0):
            row = found[kinds[kind], int(n), label, temperature]
            expected.append(f"{row.acceptance:.3f} ± {row.stderr:.3f}")
            expected += [f"{row.total_variation:.3f}", f"{row.kl_divergence:.3f}"]
        assert [cell.strip() for cell in rest.rstrip(" |").split(" | ")] == expected
