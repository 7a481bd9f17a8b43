"""`mdsd plan-tree`: output, files and errors."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import mdsd
from mdsd.analysis import plan_tree, plan_tree_by_count

from .. import commands
from ..commands import assert_refused

pytestmark = pytest.mark.usefixtures("folder")

KEYS = ["node", "parent", "depth", "rank", "acceptance", "probability"]


def call(arguments: str) -> Result:
    return commands.run(f"plan-tree {arguments}")


def report_of(arguments: str) -> dict[str, Any]:
    return commands.report_of(f"plan-tree {arguments}")


def save_data() -> None:
    np.savez(
        "data.npz",
        target_probs=[[0.5, 0.3, 0.2], [0.4, 0.35, 0.25]],
        draft_probs=[[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]],
    )


def test_given_acceptance():
    report = report_of("--acceptance 0.6,0.2,0.1 --budget 9 --max-depth 3 --max-branching 2")
    plan = plan_tree([0.6, 0.2, 0.1], 9, max_depth=3, max_branching=2)
    assert report["version"] == mdsd.__version__
    assert report["settings"] == {
        "budget": 9,
        "max_depth": 3,
        "max_branching": 2,
        "acceptance": "0.6,0.2,0.1",
    }
    assert report["acceptance_by_rank"] == [0.6, 0.2, 0.1]
    assert report["acceptance_stderr"] is None
    assert report["expected_tokens"] == plan.expected_tokens
    assert report["parents"] == list(plan.tree.parents)
    assert [list(row) for row in report["rows"]] == [KEYS] * plan.tree.num_nodes


def test_branching_of_a_balanced_tree():
    assert report_of("--acceptance 0.3,0.3,0.3 --budget 12")["branching"] == [3, 3]
    assert report_of("--acceptance 0.6,0.2 --budget 5")["branching"] is None


def test_measured_acceptance_can_be_given_again(folder):
    save_data()
    measured = report_of("data.npz --ranks 3 --seed 2 --budget 6 --draft with_replacement")
    assert measured["settings"] == {
        "budget": 6,
        "max_depth": None,
        "max_branching": None,
        "data": "data.npz",
        "positions": 2,
        "draft_model": "draft_0",
        "draft": "with_replacement",
        "verifier": "rrs",
        "ranks": 3,
        "temperature": 1.0,
        "top_k": None,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": 2,
    }
    assert len(measured["acceptance_by_rank"]) == len(measured["acceptance_stderr"]) == 3
    (folder / "measured.json").write_text(json.dumps(measured))
    again = report_of("--acceptance measured.json --budget 6")
    for key in ("acceptance_by_rank", "expected_tokens", "parents", "rows"):
        assert again[key] == measured[key]


def test_embedded_data_are_measured_if_nothing_is_given():
    report = report_of("--positions 3 --ranks 2 --budget 4")
    assert report["settings"]["data"] == "smollm2"
    assert report["acceptance_by_rank"][0] > report["acceptance_by_rank"][1] > 0.0


def test_acceptance_by_depth_comes_in_a_file(folder):
    (folder / "rates.csv").write_text("0.9,0.05\n0.3,0.3\n")
    report = report_of("--acceptance rates.csv")
    assert report["parents"] == list(plan_tree([[0.9, 0.05], [0.3, 0.3]], 16).tree.parents)
    text = " ".join(call("--acceptance rates.csv").stdout.split())
    assert "rank and depth, 2 ranks at 2 depths, from rates.csv" in text


def test_a_plan_for_a_verifier_by_count(folder):
    save_data()
    report = report_of("data.npz --verifier optimal --ranks 3 --budget 6 --draft with_replacement")
    assert report["settings"]["verifier"] == "optimal"
    assert "trees" not in report["settings"]
    table = report["acceptance_by_count"]
    assert np.triu(table, 1).tolist() == np.zeros((3, 3)).tolist()
    plan = plan_tree_by_count(table, 6)
    assert report["parents"] == list(plan.tree.parents)
    assert report["expected_tokens"] == plan.expected_tokens
    assert [list(row) for row in report["rows"]] == [KEYS] * plan.tree.num_nodes
    (folder / "measured.json").write_text(json.dumps(report))
    assert_refused(call("--acceptance measured.json"), "measured.json", "no 'acceptance_by_rank'")


@pytest.mark.parametrize("verifier", ["layers", "block", "traversal"])
def test_a_tree_is_searched_for_a_verifier_of_paths(verifier):
    save_data()
    arguments = f"data.npz --verifier {verifier} --ranks 2 --budget 4 --trees 20 --seed 3"
    report = report_of(arguments)
    assert report == report_of(arguments)
    assert report["settings"]["verifier"] == verifier
    assert report["settings"]["trees"] == 20
    assert [list(row) for row in report["rows"]] == [KEYS] * (len(report["parents"]) - 1)
    assert report["expected_tokens"] == pytest.approx(1.0 + sum(report["accepted_by_depth"]))
    text = " ".join(call(arguments).stdout.split())
    assert f"expected tokens for a call of the target with {verifier}" in text
    assert "20 trees drawn from recorded positions" in text


def test_a_search_where_nothing_is_accepted():
    np.savez("data.npz", target_probs=[[1.0, 0.0, 0.0]], draft_probs=[[0.0, 0.5, 0.5]])
    report = report_of("data.npz --verifier layers --ranks 2 --budget 3 --trees 4")
    assert report["expected_tokens"] == 1.0
    assert report["gain"] == 0.0
    assert report["parents"] == [-1]
    text = call("data.npz --verifier block --ranks 2 --budget 3 --trees 4").stdout
    assert "1.0000 ± 0.0000 expected tokens" in text


def test_files(folder):
    result = call("--acceptance 0.5,0.25 --budget 4 --output tree.csv --plot tree.png")
    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == ["tree.csv", "tree.png"]
    assert Path("tree.png").read_bytes().startswith(b"\x89PNG")
    report = report_of("--acceptance 0.5,0.25 --budget 4 --output tree.json")
    assert json.loads(Path("tree.json").read_text()) == report
    with Path("tree.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [{key: str(value) for key, value in row.items()} for row in report["rows"]]


def test_text_shows_tree_levels_and_tokens():
    text = call("--acceptance 0.5,0.2 --budget 4").stdout
    assert "     0.1250  │     └─ 0\n" in text
    assert "2.0750 expected tokens" in text
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_a_deep_tree_is_not_cut_off():
    lines = call("--acceptance 1 --budget 40").stdout.splitlines()
    assert lines[41] == f"     1.0000  {' ' * 39}└0"
    lines = call("--acceptance 1 --budget 100").stdout.splitlines()
    assert lines[101] == f"     1.0000  …{' ' * 64}└0"


def test_a_tree_of_nothing():
    text = call("--acceptance 0,0 --budget 4").stdout
    assert "1.0000 expected tokens" in text
    assert "4 nodes allowed: more than 0 add nothing" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--acceptance 0.6,0.5", ["acceptance_by_rank", "sums to 1.1"]),
        ("--acceptance 0.6,x", ["acceptance is 'x'"]),
        ("--acceptance ''", ["acceptance is ''"]),
        ("--acceptance 0.6,nan", ["acceptance_by_rank", "nan"]),
        ("--acceptance=-0.1", ["acceptance_by_rank", "-0.1"]),
        ("--acceptance 1.5", ["acceptance_by_rank", "1.5"]),
        ("--acceptance gone.csv", ["gone.csv", "No such file"]),
        ("--acceptance bad.json", ["bad.json", "no JSON"]),
        ("--acceptance 0.5 --budget 0", ["budget is 0"]),
        ("--acceptance 0.5 --budget 1.5", ["--budget", "1.5"]),
        ("--acceptance 0.5 --max-depth 0", ["max_depth is 0"]),
        ("--acceptance 0.5 --max-branching -2", ["max_branching is -2"]),
        ("--acceptance 0.5 smollm2", ["acceptance and DATA"]),
        ("--acceptance 0.5 --ranks 3", ["acceptance and ranks"]),
        ("--acceptance 0.5 --temperature 1", ["acceptance and temperature"]),
        ("--acceptance 0.5 --output tree.txt", ["tree.txt", ".csv or .json or .parquet"]),
        ("--acceptance 0.5 --plot tree.gif", ["tree.gif", ".png or .svg or .pdf"]),
        ("--acceptance 0.5 --output tree.csv --plot gone/tree.png", ["gone/tree.png"]),
        ("--acceptance 0.5 --verifier layers", ["acceptance and verifier"]),
        ("--acceptance 0.5 --trees 9", ["acceptance and trees"]),
        ("--verifier layrs", ["verifier is 'layrs'", "did you mean 'layers'"]),
        ("--verifier single", ["verifier 'single' does not support", "num_drafts=2"]),
        ("--verifier optimal --trees 9", ["trees is 9", "verifier is 'optimal'"]),
        ("--verifier layers --trees 1", ["trees is 1"]),
        ("--ranks 0", ["ranks is 0"]),
        ("--draft greedy", ["greedy"]),
        ("--draft-model dorp2", ["did you mean 'drop2'"]),
        ("--positions 0", ["positions is 0"]),
        ("--seed -1", ["seed is -1"]),
        ("smolm2", ["did you mean 'smollm2'"]),
        ("gone.npz", ["gone.npz", "No such file"]),
    ],
)
def test_bad_options_are_one_line(folder, monkeypatch, arguments, words):
    (folder / "bad.json").write_text("[0.5")
    monkeypatch.setattr(
        "mdsd.studies.planning.acceptance.measured_acceptance", lambda *_: pytest.fail("measured")
    )
    assert_refused(call(arguments), *words)
    assert [path.name for path in folder.iterdir()] == ["bad.json"]


def test_limits_are_checked_before_anything_is_measured(monkeypatch):
    monkeypatch.setattr(
        "mdsd.studies.planning.acceptance.measured_acceptance", lambda *_: pytest.fail("measured")
    )
    assert call("--budget 0").exit_code == 2


def test_short_help():
    assert call("-h").stdout == call("--help").stdout != ""
