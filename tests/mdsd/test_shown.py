"""What objects say of themselves: in one line, and as a small table of a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

import mdsd
from mdsd import studies
from mdsd.analysis import plan_tree
from mdsd.datasets import Dataset
from mdsd.trees import TreeShape

P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
MANY = np.full(2000, 1 / 2000)
HOSTILE = Dataset.from_arrays(
    target_probs=[P], draft_probs={"<b>&": [Q]}, name="<script>alert(1)</script>"
)
DRAFT = mdsd.WithReplacement(Q, 2)
THINGS = {
    "data": HOSTILE,
    "draft": DRAFT,
    "plan": mdsd.RRSVerifier().plan(P, DRAFT),
    "bound": mdsd.acceptance_bound(MANY, mdsd.WithReplacement(MANY, 3)),
    "interval": mdsd.AcceptanceInterval(0.5, 0.75),
    "tree": TreeShape.from_branching([3, 2, 1]),
    "deep": TreeShape.chain(5000),
    "uneven": TreeShape([-1, 0, 0, 1, 1, 2]),
    "tree-plan": plan_tree([0.6, 0.2], 5),
    "rows": studies.bound(HOSTILE, num_drafts=[2], draft_models=["<b>&"]),
}


class _Tags(HTMLParser):
    """Reads HTML as a browser does, and fails where a tag stays open."""

    VOID = ("path", "circle")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("kind", THINGS)
def test_a_thing_is_shown_in_short_and_as_html(kind):
    thing = THINGS[kind]
    first = repr(thing).split("\n")[0]
    assert type(thing).__name__ in first or kind == "rows"
    assert len(first) < 300
    page = thing._repr_html_()
    read = _Tags()
    read.feed(page)
    assert read.open == []
    assert read.seen <= {"table", "caption", "tr", "th", "td", "svg", "path", "circle"}
    assert len(page) < 3000


def test_what_is_shown():
    assert repr(THINGS["bound"]).startswith("AcceptanceBound(value=")
    assert "subset=[0, 1, 2, 3, 4, 5, ...] of 2,000 tokens, method='prefix'" in repr(
        THINGS["bound"]
    )
    assert repr(THINGS["tree"]) == "TreeShape(num_nodes=15, depth=3, branching=[3, 2, 1])"
    assert repr(THINGS["uneven"]) == (
        "TreeShape(num_nodes=5, depth=2, parents=[-1, 0, 0, 1, 1, 2])"
    )
    assert repr(THINGS["tree-plan"]).startswith("TreePlan(tree=TreeShape(num_nodes=5, depth=4")
    assert "draft_models=['<b>&']" in repr(HOSTILE)
    read = _Tags()
    read.feed(HOSTILE._repr_html_())
    assert "<script>alert(1)</script>" in read.text


def test_a_tree_is_drawn_with_its_nodes_in_place():
    page = THINGS["uneven"]._repr_html_()
    assert page.count("<circle") == 6
    # Two leaves below the first child, one below the second: columns 0, 1, 2.
    assert '<circle cx="22" cy="40" r="4"/><circle cx="52" cy="40" r="4"/>' in page
    assert "<svg" not in THINGS["deep"]._repr_html_()
