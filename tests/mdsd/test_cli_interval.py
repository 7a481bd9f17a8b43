"""`mdsd interval`: output, files and errors, and that other commands refuse its logs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import mdsd
from mdsd import datasets, studies
from mdsd.studies.study_rows import columns, record

from .. import commands
from ..commands import assert_refused

pytestmark = pytest.mark.usefixtures("folder")

KEYS = list(columns(studies.IntervalRow))
LINES = [
    {
        "target": {" the": -0.5, " a": -1.5},
        "drafts": {"small": {" the": -0.7, " a": -1.1}, "[red]tiny": {" a": -0.3}},
    },
    {
        "target": [None, {" cat": -0.2}],
        "drafts": {"small": [None, {" cat": -0.9}], "[red]tiny": [{}, {" dog": 0.0}]},
    },
]


@pytest.fixture(autouse=True)
def log(folder: Path) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def call(arguments: str) -> Result:
    return commands.run(f"interval {arguments}")


def report_of(arguments: str) -> dict[str, Any]:
    return commands.report_of(f"interval {arguments}")


def test_json_has_settings_and_the_rows_of_the_library():
    report = report_of("log.jsonl --num-drafts 1,2 --num-drafts 1")
    assert report["version"] == mdsd.__version__
    assert report["settings"] == {
        "data": "log.jsonl",
        "positions": 2,
        "draft_models": ["small"],
        "drafts": ["with_replacement", "without_replacement", "independent", "greedy"],
        "num_drafts": [1, 2],
    }
    rows = studies.interval(datasets.read_jsonl("log.jsonl"), num_drafts=[1, 2])
    assert report["rows"] == [record(row) for row in rows]
    assert [list(row) for row in report["rows"]] == [KEYS] * 8


def test_options():
    report = report_of("log.jsonl --draft greedy,greedy --draft-model [red]tiny --positions 1")
    assert report["settings"]["positions"] == 1
    assert {(row["draft_model"], row["draft"]) for row in report["rows"]} == {
        ("[red]tiny", "greedy")
    }
    assert [row["num_drafts"] for row in report["rows"]] == [2, 3, 4]


def test_files(folder):
    report = report_of("log.jsonl --output rows.json")
    assert json.loads(Path("rows.json").read_text()) == report
    result = call("log.jsonl --output rows.csv")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "small" in result.stdout
    with Path("rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {key: "" if value is None else str(value) for key, value in row.items()}
        for row in report["rows"]
    ]
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["log.jsonl", "rows.csv", "rows.json"]


def test_table():
    text = call("log.jsonl --draft-model [red]tiny --num-drafts 2").stdout
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line != line.rstrip()] == []
    assert lines[0] == "[red]tiny"
    # The second position drafts " dog" for certain, and cannot draft another token beside it.
    row = report_of("log.jsonl --draft-model [red]tiny --num-drafts 2")["rows"][0]
    shown = next(line.split() for line in lines if line.startswith("with_replacement"))
    assert shown == [
        "with_replacement",
        "2",
        f"{row['lower']:.4f}",
        "±",
        f"{row['lower_stderr']:.4f}",
        f"{row['upper']:.4f}",
        "±",
        f"{row['upper_stderr']:.4f}",
        f"{row['width']:.4f}",
        f"{row['known_target_mass']:.3f}",
        "/",
        f"{row['known_draft_mass']:.3f}",
    ]
    joined = " ".join(text.split())
    assert "independent, the first n of small, [red]tiny" in joined
    assert "with n tokens to draw: [red]tiny without_replacement n=2: 1; [red]tiny greedy" in joined
    assert "over 2 positions" in joined


def test_table_says_what_is_missing(monkeypatch):
    def fail(*_: Any, **options: Any) -> None:
        raise mdsd.SolverError("search", "stopped")

    monkeypatch.setattr("mdsd.studies.intervals.runs.acceptance_interval", fail)
    text = " ".join(call("log.jsonl --num-drafts 2 --draft greedy").stdout.split())
    assert "not yet" in text
    assert "not yet greedy n=2: method 'search'" in text


def test_a_position_without_enough_tokens_is_a_dash():
    Path("one.jsonl").write_text('{"target": {"a": 0}, "draft": {"a": 0}}')
    text = call("one.jsonl --num-drafts 2 --draft greedy").stdout
    assert "\N{EN DASH}" in text
    assert "draft greedy n=2: 0" in " ".join(text.split())


def test_a_bar_shows_on_a_terminal_and_on_standard_error_only():
    stdout, shown = commands.run_in_terminal("interval", "log.jsonl", "--json", "--draft", "greedy")
    assert json.loads(stdout)["rows"]
    assert b"positions" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", ["LOG.jsonl"]),
        ("gone.jsonl", ["gone.jsonl", "No such file"]),
        (".", ["directory"]),
        ("bad.jsonl", ["bad.jsonl: line 2: target['a'] is 'x'"]),
        ("log.jsonl more", ["more"]),
        ("log.jsonl --num-drafts 0", ["num_drafts is 0"]),
        ("log.jsonl --num-drafts x", ["--num-drafts", "'x'"]),
        ("log.jsonl --draft gredy", ["did you mean 'greedy'"]),
        ("log.jsonl --draft top_k", ["'top_k'", "with_replacement"]),
        ("log.jsonl --draft independent --num-drafts 3", ["nothing to compute"]),
        ("log.jsonl --draft-model smal", ["did you mean 'small'"]),
        ("log.jsonl --positions 0", ["positions is 0"]),
        ("log.jsonl --temperature 1", ["--temperature"]),
        ("log.jsonl --output rows.txt", ["rows.txt", ".csv or .json"]),
        ("log.jsonl --output gone/rows.csv", ["gone/rows.csv", "there is no folder gone"]),
    ],
)
def test_bad_options_are_one_line(folder, monkeypatch, arguments, words):
    Path("bad.jsonl").write_text('\n{"target": {"a": "x"}, "draft": {"a": 0}}')
    monkeypatch.setattr(
        "mdsd.studies.intervals.runs.run_interval", lambda *_: pytest.fail("computed")
    )
    assert_refused(call(arguments), *words)
    assert sorted(path.name for path in folder.iterdir()) == ["bad.jsonl", "log.jsonl"]


@pytest.mark.parametrize("command", ["compare", "bound", "study", "plan-tree"])
@pytest.mark.parametrize("name", ["log.jsonl", "gone.jsonl", "./LOG.JSONL"])
def test_other_commands_say_where_a_log_belongs(folder, command, name):
    result = commands.run(f"{command} {name}")
    assert_refused(result, Path(name).name, "no whole laws", "`mdsd interval`")
    assert [path.name for path in folder.iterdir()] == ["log.jsonl"]


def test_short_help():
    assert call("-h").stdout == call("--help").stdout != ""
