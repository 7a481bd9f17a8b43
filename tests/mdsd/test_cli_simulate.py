"""`mdsd simulate`: files, output and errors."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import mdsd

from .. import commands
from ..commands import assert_refused

pytestmark = pytest.mark.usefixtures("folder")

SMALL = "--vocab-size 3 --horizon 4 --batch-sizes 2 --epsilons 0,0.1 --runs 100 --dpi 40"
FILES = [
    "batch_improvement.csv",
    "batch_improvement.png",
    "pareto_front.csv",
    "pareto_front.png",
    "rejections.csv",
    "rejections.png",
]
COMPARED = ["theory", "simulation", "stderr", "z"]
COLUMNS = {
    "rejections": ["batch_size", "horizon", *COMPARED],
    "batch_improvement": ["batch_size", "limit", *COMPARED],
    "pareto_front": ["scope", "redraw", "epsilon", "quantity", *COMPARED],
}


def call(arguments: str) -> Result:
    return commands.run(f"simulate {arguments}")


def report_of(arguments: str) -> dict[str, Any]:
    return commands.report_of(f"simulate {arguments}")


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_json_has_settings_and_three_tables():
    report = report_of(f"{SMALL} --seed 3 --stationary")
    assert list(report) == ["version", "settings", *COLUMNS]
    assert report["version"] == mdsd.__version__
    assert report["settings"] == {
        "vocab_size": 3,
        "horizon": 4,
        "stationary": True,
        "batch_sizes": [1, 2],
        "epsilons": [0.0, 0.1],
        "runs": 100,
        "seed": 3,
    }
    for name, columns in COLUMNS.items():
        assert {tuple(row) for row in report[name]} == {tuple(columns)}


def test_every_figure_has_a_picture_and_a_table(folder):
    result = call(f"{SMALL} --output new/figures")
    assert (result.exit_code, result.stderr) == (0, "")
    assert files_in(folder / "new/figures") == FILES
    report = report_of(SMALL)
    for name, columns in COLUMNS.items():
        assert (folder / f"new/figures/{name}.png").read_bytes().startswith(b"\x89PNG")
        with (folder / f"new/figures/{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == columns
        assert rows == [
            {key: "" if value is None else str(value) for key, value in row.items()}
            for row in report[name]
        ]


def test_seed_decides_everything(folder):
    first, again = call(f"{SMALL} --output a"), call(f"{SMALL} --output b")
    assert first.stdout == again.stdout
    assert call(f"{SMALL} --seed 1").stdout != first.stdout
    for name in FILES:
        assert (folder / "a" / name).read_bytes() == (folder / "b" / name).read_bytes()


def test_without_a_folder_nothing_is_written(folder):
    assert call(SMALL).stdout.startswith("quantity")
    assert files_in(folder) == []


def test_an_older_folder_keeps_its_other_files(folder):
    (folder / "out").mkdir()
    (folder / "out/notes.txt").write_text("mine")
    (folder / "out/rejections.csv").write_text("old")
    assert call(f"{SMALL} --output out").exit_code == 0
    assert files_in(folder / "out") == sorted([*FILES, "notes.txt"])
    assert (folder / "out/notes.txt").read_text() == "mine"
    assert (folder / "out/rejections.csv").read_text() != "old"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--runs 1", ["runs is 1"]),
        ("--runs many", ["--runs", "'many'"]),
        ("--vocab-size 0", ["vocab_size is 0"]),
        ("--horizon -1", ["horizon is -1"]),
        ("--vocab-size 9999", ["9999", "50", "entries"]),
        ("--batch-sizes 2,0", ["batch_sizes[1] is 0"]),
        ("--batch-sizes 2,,4", ["--batch-sizes", "'2,,4'"]),
        ("--epsilons -0.1", ["epsilons[0] is -0.1"]),
        ("--epsilons nan", ["epsilons[0] is nan"]),
        ("--seed -1", ["seed is -1"]),
        ("--output file", ["file", "cannot be a folder"]),
        ("--output file/sub", ["file/sub", "cannot be a folder"]),
        ("--bogus", ["--bogus"]),
        ("one", ["one"]),
    ],
)
def test_bad_options_are_one_line(folder, arguments, words):
    (folder / "file").write_text("old")
    assert_refused(call(f"--output new/figures {arguments}"), *words)
    assert files_in(folder) == ["file"]
    assert (folder / "file").read_text() == "old"


@pytest.mark.parametrize("where", ["run_simulation", "simulation_files"])
@pytest.mark.parametrize("error", [mdsd.SolverError("lp", "out of luck"), KeyboardInterrupt()])
def test_an_error_while_computing_leaves_nothing(folder, monkeypatch, where, error):
    def fail(*_: Any) -> None:
        raise error

    module = "runs" if where == "run_simulation" else "files"
    monkeypatch.setattr(f"mdsd.studies.simulation.{module}.{where}", fail)
    result = call(f"{SMALL} --output new/figures")
    assert result.exit_code == (130 if isinstance(error, KeyboardInterrupt) else 2)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert files_in(folder) == []


def test_a_full_disk_leaves_nothing(folder, monkeypatch):
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    result = call(f"{SMALL} --output out")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "No space left" in result.stderr
    assert files_in(folder) == []


def test_a_file_that_cannot_be_written_is_found_out_first(folder, monkeypatch):
    (folder / "out/rejections.png").mkdir(parents=True)
    monkeypatch.setattr(
        "mdsd.studies.simulation.runs.run_simulation", lambda *_: pytest.fail("computed")
    )
    result = call(f"{SMALL} --output out")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "rejections.png: cannot be written: it is a folder" in result.stderr
    assert files_in(folder / "out") == ["rejections.png"]


def test_short_help_and_no_line_ends_in_a_blank():
    assert call("-h").stdout == call("--help").stdout != ""
    assert [line for line in call(SMALL).stdout.splitlines() if line != line.rstrip()] == []
