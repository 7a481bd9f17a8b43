"""The command line: the cases from public reports, its files, its errors, its manners."""

from __future__ import annotations

import csv
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import mdsd
from mdsd.cli._delivery import progress_bar
from mdsd.decoding.verification import PATH_VERIFICATIONS
from mdsd.drafts.registry import draft_names
from mdsd.engines.registry import default_rules
from mdsd.filters import FILTER_COLUMNS

from .. import commands
from ..commands import PACKAGES, assert_refused
from ..own_kinds import HubPairDraft
from ..verifiers import NAMES

pytestmark = pytest.mark.usefixtures("folder")

ROOT = Path(__file__).parents[2]
CASES = {
    case["id"]: case
    for case in json.loads((ROOT / "tests/cases/cases.json").read_text(encoding="utf-8"))
    if case["kind"] == "cli"
}
KEYS = [
    "data",
    "draft_model",
    "draft",
    "num_drafts",
    *FILTER_COLUMNS,
    "seed",
]
COMPARE_KEYS = [
    *KEYS,
    "verifier",
    "acceptance",
    "stderr",
    "bound",
    "bound_stderr",
    "share_of_bound",
    "positions",
    "texts",
    "stderr_by_text",
    "bound_stderr_by_text",
    "reference",
    "difference",
    "difference_stderr",
    "difference_stderr_by_text",
]
BOUND_KEYS = [
    *KEYS,
    *("bound", "bound_stderr", "q10", "q50", "q90", "positions"),
    *("texts", "bound_stderr_by_text"),
]


def numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [numbers(entry) for entry in value]
    return float(value)


def save(arrays: dict[str, Any]) -> None:
    np.savez("data.npz", **{key: np.array(numbers(value)) for key, value in arrays.items()})


def call(command: str) -> Result:
    """Run a command as it is written in the cases, "mdsd" first."""
    return commands.run(command.removeprefix("mdsd"))


def rows_of(command: str) -> list[dict[str, Any]]:
    return json.loads(commands.printed(call(command)))["rows"]


SMALL = {
    "target_probs": [[0.5, 0.3, 0.2], [0.4, 0.35, 0.25]],
    "draft_probs": [[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]],
}


@pytest.fixture
def small(folder) -> None:
    save(SMALL)


# --- cases from public reports -------------------------------------------------------------------


REFUSALS = [
    name
    for name, case in CASES.items()
    if case["expected"].get("exit_code") == 2 and "command" in case["input"]
]


@pytest.mark.parametrize("name", REFUSALS)
def test_case_is_refused(name, folder):
    case = CASES[name]
    save(case["input"]["npz"])
    result = call(case["input"]["command"])
    assert_refused(result, *case["expected"]["message_names"])
    assert [path.name for path in folder.iterdir()] == ["data.npz"]


CLASSES = {
    "WithReplacement": "with_replacement",
    "WithoutReplacement": "without_replacement",
    "GreedyDraft": "greedy",
    "SpecHubDraft": "spechub",
    "TopKDraft": "top_k",
}
MEANS = CASES["cli-known-means"]["expected"]


def known_rows(label: str) -> list[dict[str, Any]]:
    """Rows of the case that "WithReplacement/rrs" or "WithReplacement/bound" stands for."""
    save(CASES["cli-known-means"]["input"]["npz"])
    kind, what = label.split("/")
    return [
        row
        for row in rows_of(CASES["cli-known-means"]["input"]["command"])
        if row["draft"] == CLASSES[kind] and what in ("bound", row["verifier"])
    ]


@pytest.mark.parametrize("label", MEANS["mean"], ids=lambda label: f"cli-known-means-{label}")
def test_known_means(label):
    column = "bound" if label.endswith("/bound") else "acceptance"
    (found,) = {row[column] for row in known_rows(label)}
    assert found == pytest.approx(MEANS["mean"][label], abs=MEANS["tolerance"])


@pytest.mark.parametrize(
    "label", MEANS["standard_error"], ids=lambda label: f"cli-known-means-{label}"
)
def test_known_standard_errors(label):
    (found,) = {row["bound_stderr"] for row in known_rows(label)}
    assert found == pytest.approx(MEANS["standard_error"][label], abs=MEANS["tolerance"])


@pytest.mark.parametrize("name", ["cli-filters-on-both-sides"])
def test_filters_on_both_sides(name):
    case = CASES[name]
    save(case["input"]["npz"])
    rows = rows_of(case["input"]["command"])
    found = {row["verifier"]: row["acceptance"] for row in rows}
    found["bound"] = rows[0]["bound"]
    found = {name: found[name] for name in case["expected"]["mean"]}
    assert found == pytest.approx(case["expected"]["mean"], abs=case["expected"]["tolerance"])


def columns_of(name: str) -> list[Any]:
    """Pair the commands of a case with their exit codes and bounds."""
    case = CASES[name]
    commands = case["input"].get("commands") or [
        re.sub(r"\bK$", str(k), case["input"]["command"]) for k in case["input"]["K"]
    ]
    expected = case["expected"]
    bounds = expected.get("bound_with_replacement") or expected["bound"]
    return [
        pytest.param(name, *entry, id=f"{name}-{entry[0].split()[-1]}")
        for entry in zip(commands, expected["exit_code"], bounds, strict=True)
    ]


@pytest.mark.parametrize(
    ("name", "command", "exit_code", "bound"),
    [*columns_of("cli-temperature-zero"), *columns_of("cli-top-k-values")],
)
def test_option_values(name, command, exit_code, bound):
    case = CASES[name]
    save(case["input"]["npz"])
    result = call(f"{command} --json")
    assert result.exit_code == exit_code
    assert result.stderr.count("\n") == (1 if exit_code else 0)
    rows = json.loads(result.stdout)["rows"] if exit_code == 0 else []
    found = [row["bound"] for row in rows if row["draft"] == "with_replacement"]
    expected = [] if bound is None else [pytest.approx(bound, abs=case["expected"]["tolerance"])]
    assert found == expected


def test_temperature_zero_leaves_other_drafts_impossible():
    case = CASES["cli-temperature-zero"]
    save(case["input"]["npz"])
    rows = rows_of(f"{case['input']['commands'][0]} --json")
    impossible = {row["draft"] for row in rows if row["positions"] == 0 and row["bound"] is None}
    assert impossible == {"without_replacement", "greedy", "spechub", "top_k"}


SEED_COMMANDS = CASES["cli-seed-and-order"]["input"]["commands"]


@pytest.mark.parametrize(
    "command", SEED_COMMANDS, ids=lambda c: f"cli-seed-and-order-{c.split()[4]}"
)
def test_seed_and_order(command):
    save(CASES["cli-seed-and-order"]["input"]["npz"])
    first, second = call(command), call(command)
    assert first.stdout_bytes == second.stdout_bytes
    expected = [row for row in rows_of(SEED_COMMANDS[0]) if row["num_drafts"] == 3]
    assert [row for row in json.loads(first.stdout)["rows"] if row["num_drafts"] == 3] == expected


def test_every_case_has_a_test():
    here = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in CASES if name not in REFUSALS and f'"{name}"' not in here] == []


# --- output --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "keys"),
    [("compare", COMPARE_KEYS), ("bound", BOUND_KEYS)],
    ids=["compare", "bound"],
)
def test_json_has_the_documented_keys(small, command, keys):
    report = json.loads(call(f"mdsd {command} data.npz --json --seed 3 --top-k 0").stdout)
    assert list(report) == ["version", "settings", "rows"]
    assert report["version"] == mdsd.__version__
    assert {tuple(row) for row in report["rows"]} == {tuple(keys)}
    assert report["settings"]["data"] == "data.npz"
    assert report["settings"]["seed"] == 3
    assert report["settings"]["top_k"] is None
    assert report["settings"]["positions"] == 2


def test_compare_says_how_estimates_were_made(small):
    settings = json.loads(call("mdsd compare data.npz --json").stdout)["settings"]
    assert settings["monte_carlo_paths"] == 1024
    assert settings["verifiers"] == list(NAMES)


@pytest.mark.parametrize("command", ["compare", "bound"])
def test_csv_holds_what_json_holds(small, command):
    options = "--num-drafts 2,3 --temperature 1,0"
    rows = rows_of(f"mdsd {command} data.npz {options} --json")
    call(f"mdsd {command} data.npz {options} --output out.csv")
    with open("out.csv", encoding="utf-8", newline="") as stream:
        found = list(csv.DictReader(stream))
    assert any(value is None for row in rows for value in row.values())
    assert found == [
        {key: "" if value is None else str(value) for key, value in row.items()} for row in rows
    ]


@pytest.mark.parametrize("command", ["compare", "bound"])
def test_parquet_holds_what_json_holds(small, command):
    import pyarrow.parquet as pq

    options = "--num-drafts 2,3 --temperature 1,0 --top-p 0.9 --seed 3"
    rows = rows_of(f"mdsd {command} data.npz {options} --json")
    call(f"mdsd {command} data.npz {options} --output out.parquet")
    assert pq.read_table("out.parquet").to_pylist() == rows


@pytest.mark.parametrize("command", ["compare", "bound"])
def test_outputs_say_what_they_are_of(small, command):
    call_ = f"mdsd {command} data.npz --num-drafts 2 --temperature 0.5 --top-p 0.9 --top-k 2"
    (heading, *_) = call(f"{call_} --seed 3").stdout.splitlines()
    assert heading == "data.npz, draft_0, temperature 0.5, top-k 2, top-p 0.9, seed 3"
    for row in rows_of(f"{call_} --seed 3 --json"):
        assert (row["data"], row["draft_model"], row["seed"]) == ("data.npz", "draft_0", 3)
        assert [row[name] for name in FILTER_COLUMNS[:3]] == [0.5, 2, 0.9]


@pytest.mark.parametrize("command", ["compare", "bound"])
@pytest.mark.parametrize(
    ("ending", "start"), [(".svg", b"<?xml"), (".pdf", b"%PDF")], ids=["svg", "pdf"]
)
def test_pictures_of_other_kinds_are_the_same_twice(small, command, ending, start):
    for name in ("one", "two"):
        call(f"mdsd {command} data.npz --num-drafts 2 --seed 5 --plot {name}{ending}")
    one, two = (Path(f"{name}{ending}").read_bytes() for name in ("one", "two"))
    assert one.startswith(start)
    assert one == two
    if ending == ".svg":  # its words are paths, each under a comment
        assert b"<!-- data.npz, 2 positions, seed 5 -->" in one


def test_json_file_is_what_is_printed(small):
    printed = call("mdsd bound data.npz --json --output out.json").stdout
    assert Path("out.json").read_text(encoding="utf-8") == printed


def test_a_file_does_not_replace_the_table(small):
    assert "with_replacement" in call("mdsd bound data.npz --output out.csv").stdout


def test_written_files_have_ordinary_rights(small):
    mask = os.umask(0o022)
    try:
        call("mdsd bound data.npz --output out.csv --plot out.png")
    finally:
        os.umask(mask)
    rights = {path: Path(path).stat().st_mode & 0o777 for path in ("out.csv", "out.png")}
    assert rights == {"out.csv": 0o644, "out.png": 0o644}


@pytest.mark.parametrize("command", ["compare", "bound"])
def test_plot_is_a_png_and_the_same_twice(small, command):
    call(f"mdsd {command} data.npz --num-drafts 2 --plot one.png")
    call(f"mdsd {command} data.npz --num-drafts 2 --plot two.png")
    one, two = Path("one.png").read_bytes(), Path("two.png").read_bytes()
    assert one.startswith(b"\x89PNG")
    assert one == two


@pytest.fixture
def no_search(monkeypatch):
    """No search for an optimal lottery succeeds."""

    def refuse(*arguments, **options):
        raise mdsd.UnsupportedError("no method at this size")

    for module in ("mdsd.verifiers.lottery", "mdsd.bounds"):  # before what it imports
        monkeypatch.setattr(f"{module}.find_lottery", refuse)


def test_not_computed_is_null(no_search):
    rows = rows_of("mdsd compare --positions 1 --num-drafts 2 --draft independent --json")
    optimal = next(row for row in rows if row["verifier"] == "optimal")
    assert optimal["draft_model"] == "drop2+drop3"
    nulls = [None] * 5
    assert [optimal[key] for key in COMPARE_KEYS[len(KEYS) + 1 :]] == [
        *nulls,
        1,
        *(1, None, None, "rrs", None, None, None),
    ]
    rrs = next(row for row in rows if row["verifier"] == "rrs")
    assert 0.0 < rrs["acceptance"] <= 1.0
    assert (rrs["bound"], rrs["share_of_bound"]) == (None, None)


def test_options_given_twice_add_up(small):
    rows = rows_of("mdsd bound data.npz --json --num-drafts 2 --draft greedy --draft top_k")
    assert [row["draft"] for row in rows] == ["greedy", "top_k"]


# --- the table -----------------------------------------------------------------------------------


TABLES = [
    "compare --positions 2",
    "compare --positions 2 --temperature 0 --draft-model ngram",
    "bound --positions 2 --temperature 1,0.5",
    "study data.npz --num-drafts 2 --workers 1",
    "interval log.jsonl --num-drafts 2",
    "simulate --runs 10 --horizon 3",
    "plan-tree --acceptance 0.6,0.2,0.1",
    "plan-tree --acceptance 0.95 --budget 30",
    "decode --max-new-tokens 4",
    "decode --compare --max-new-tokens 2 --seeds 1 --verifier optimal --draft greedy",
    "verifiers",
]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("command", TABLES)
def test_tables_fit_the_terminal(small, monkeypatch, command, columns):
    entry = {"target": {" a": -0.6, "b": -1.5}, "draft": {" a": -0.4, "b": -2.5}}
    Path("log.jsonl").write_text(f"{json.dumps(entry)}\n{json.dumps(entry)}\n")
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = commands.printed(call(f"mdsd {command}")).splitlines()
    assert len(lines) > 5
    assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("columns", [40, 60])
@pytest.mark.parametrize("command", ["compare", "bound", "study --workers 1"])
def test_narrow_tables_say_what_wide_ones_do(small, monkeypatch, command, columns):
    def words() -> list[str]:
        return re.findall(r"\d\.\d{2,}|\d+\.\d%", call(f"mdsd {line}").stdout)

    line = command.replace(" ", " data.npz ", 1) if " " in command else f"{command} data.npz"
    wide = words()
    monkeypatch.setenv("COLUMNS", str(columns))
    assert words() == wide
    assert len(wide) > 20


def test_output_in_a_pipe_has_80_columns_whatever_the_terminal(small, monkeypatch):
    wide = call("mdsd compare data.npz").stdout
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((200, 50)))
    assert call("mdsd compare data.npz").stdout == wide
    assert max(map(len, call("mdsd verifiers").stdout.splitlines())) == 80


def test_no_number_is_cut_off():
    assert "…" not in call("mdsd compare --positions 2").stdout


def test_compare_table_names_everything(small):
    text = call("mdsd compare data.npz --num-drafts 2").stdout
    words = [
        "data.npz, draft_0, temperature 1, seed 0",
        "with_replacement",
        "kseq",
        "0.9000 ± 0.0400",
        "93.1%",
    ]
    assert [word for word in words if word not in text] == []


def test_compare_table_says_what_is_missing(no_search):
    text = call("mdsd compare --positions 1 --num-drafts 2 --draft independent").stdout
    assert "not yet" in text
    assert re.search(
        r"not yet independent: no method so far for [\d,]+ tokens \(bound, optimal\)", text
    )


def test_table_says_which_positions_were_left_out():
    save({"target_probs": [[0.5, 0.5]] * 2, "draft_probs": [[1.0, 0.0], [0.5, 0.5]]})
    text = call("mdsd bound data.npz --num-drafts 2").stdout
    assert "positions with n tokens to draw: without_replacement n=2: 1" in " ".join(text.split())


def test_markup_in_a_name_is_shown_as_it_is():
    arrays = SMALL | {"draft_probs": [SMALL["draft_probs"]]}
    np.savez("data.npz", draft_names=np.array(["[red]x"]), **arrays)
    assert "data.npz, [red]x, temperature 1, seed 0" in call("mdsd bound data.npz").stdout


LISTED = [*NAMES, "block", "layers", "traversal", *draft_names(), "hybrid:num_top"]


@pytest.mark.parametrize("columns", ["40", "80"])
def test_verifiers_and_drafts_are_listed(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    lines = call("mdsd verifiers").stdout.splitlines()
    first = {line.split()[0] for line in lines if line}
    assert set(LISTED) - {"hybrid"} <= first
    assert {"typical", "mixture", "gumbel"} <= first
    together = "".join(line.strip() for line in lines)
    for text in ("typical:threshold:alpha", "SGLang, kernel"):
        assert text in together


def test_lists_as_json_say_what_each_takes():
    report = json.loads(commands.printed(call("mdsd verifiers --json")))
    assert list(report) == ["version", "verifiers", "drafts", "rules"]
    verifiers = {each["name"]: each for each in report["verifiers"]}
    assert list(verifiers) == [*mdsd.verifier_names(), *PATH_VERIFICATIONS]
    assert {name for name, each in verifiers.items() if each["verifies"] == "paths"} == {
        "block",
        "layers",
        "traversal",
    }
    assert verifiers["traversal"]["drafts"] == verifiers["rrs"]["drafts"]
    assert verifiers["layers"]["drafts"] == "every draft distribution"
    assert all(each["what"].endswith(".") for each in [*verifiers.values(), *report["drafts"]])
    drafts = {each["name"]: each["options"] for each in report["drafts"]}
    assert list(drafts) == list(draft_names())
    assert drafts["hybrid"] == ["num_top"]
    rules = {each["name"]: each for each in report["rules"]}
    assert list(rules) == list(dict.fromkeys(rule.name for rule in default_rules()))
    assert rules["relaxed"]["options"] == ["top_k", "delta"]
    assert rules["relaxed"]["used_by"] == "TensorRT-LLM, in thinking phases"
    assert rules["single"]["what"] == verifiers["single"]["what"]
    assert rules["single"]["options"] == rules["gumbel"]["options"] == []
    assert all(each["what"].endswith(".") and each["source"] for each in rules.values())


def test_verifiers_and_drafts_of_other_packages_are_listed(monkeypatch):
    class OursVerifier(mdsd.NaiveVerifier):
        """Accept as naive does."""

    for module, own in (("verifiers", OursVerifier), ("drafts", HubPairDraft)):
        path = f"mdsd.{module}.registry._registry"
        known = importlib.import_module(f"mdsd.{module}.registry")._registry()
        monkeypatch.setattr(path, lambda found={**known, "ours": own}: found)
    report = json.loads(commands.printed(call("mdsd verifiers --json")))
    for kind, name in (("verifiers", "ours"), ("drafts", "hub_pair")):
        (found,) = (each for each in report[kind] if each["name"] == name)
        assert found["package"] == "tests"
    assert "(tests)" in call("mdsd verifiers").stdout


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("compare --num-drafts x", ["--num-drafts", "'x'"]),
        ("compare --num-drafts 2,,3", ["--num-drafts", "'2,,3'"]),
        ("compare --num-drafts 0", ["num_drafts is 0"]),
        ("compare --temperature warm", ["--temperature", "'warm'"]),
        ("compare --temperature nan", ["temperature is nan"]),
        ("compare --top-k 1.5", ["--top-k", "1.5"]),
        ("compare --top-p 1.5", ["top_p is 1.5"]),
        ("compare --positions 0", ["positions is 0"]),
        ("compare --positions", ["--positions"]),
        ("compare --seed -1", ["seed is -1"]),
        ("compare --draft gredy", ["did you mean 'greedy'"]),
        ("compare --draft-model dorp2", ["did you mean 'drop2'"]),
        ("compare --verifier rss", ["did you mean 'rrs'"]),
        ("compare smolm2", ["did you mean 'smollm2'"]),
        ("compare nothere.npz", ["nothere.npz", "No such file"]),
        ("compare .", ["is a directory without capture.json"]),
        (f"compare {'x' * 300}", ["data set is"]),
        ("compare --output out.txt", ["out.txt", ".csv or .json or .parquet"]),
        (
            "compare --output gone/out.csv",
            ["gone/out.csv: cannot be written: there is no folder gone"],
        ),
        (f"compare --output {'x' * 300}.csv", ["cannot be written"]),
        ("bound --plot out.gif", ["out.gif", ".png or .svg or .pdf"]),
        ("bound --plot gone/out.png", ["gone/out.png: cannot be written: there is no folder gone"]),
        ("bound --verifier rrs", ["--verifier"]),
        ("bound --bogus", ["--bogus"]),
        ("compar", ["compar"]),
        ("bound one two", ["two"]),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_bad_options_are_one_line(folder, arguments, words):
    assert_refused(call(f"mdsd {arguments}"), *words)
    assert list(folder.iterdir()) == []


ONE_PICTURE = {
    "compare": "compare data.npz --num-drafts 2 --draft greedy",
    "bound": "bound data.npz --num-drafts 2 --draft greedy",
    "bias": "bias data.npz --num-drafts 1 --rule single",
    "plan_tree": "plan-tree --acceptance 0.5 --budget 2",
}
STUDY = "study data.npz --num-drafts 2 --draft greedy --workers 1"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("command", ONE_PICTURE)
def test_plot_is_a_file_if_it_ends_as_one_and_else_a_folder(small, folder, command):
    for plot in ("new/pictures", "mine.v2", "here.svg"):
        commands.printed(call(f"mdsd {ONE_PICTURE[command]} --plot {plot} --dpi 20"))
    assert names_in(folder / "new/pictures") == names_in(folder / "mine.v2") == [f"{command}.png"]
    assert (folder / "here.svg").read_bytes().startswith(b"<?xml")


def test_a_study_draws_into_a_folder(small, folder):
    commands.printed(call(f"mdsd {STUDY} --plot mine.v2 --dpi 20"))
    assert names_in(folder / "mine.v2")[-1] == "loss_parts.png"


@pytest.mark.parametrize(
    ("command", "option", "words"),
    [
        *((c, "--plot x.gif", ["plot is x.gif", ".png", "or a folder"]) for c in ONE_PICTURE),
        *((c, "--plot x.csv", ["plot is x.csv"]) for c in ONE_PICTURE),
        *((c, "--plot gone/a/x.png", ["there is no folder gone"]) for c in ONE_PICTURE),
        *((c, "--plot data.npz/x", ["cannot be a folder"]) for c in ONE_PICTURE),
        *((c, "--plot x.png --dpi 9", ["dpi is 9"]) for c in [*ONE_PICTURE, "study", "simulate"]),
        *(("study", f"--plot x{end}", [f"plot is x{end}"]) for end in (".png", ".pdf", ".jpeg")),
        *(("study", f"--output x{end}", [f"output is x{end}"]) for end in (".csv", ".parquet")),
        *(("simulate", f"--output x{end}", [f"output is x{end}"]) for end in (".png", ".JSON")),
        *((c, "--output gone/x.json", ["gone/x.json", "no folder gone"]) for c in ONE_PICTURE),
        ("decode", "--output gone/x.csv", ["no folder gone"]),
        ("report data.npz", "--output gone/b/x.html", ["there is no folder gone"]),
        ("interval data.npz", "--output gone/x.csv", ["there is no folder gone"]),
        ("bound data.npz", "--output data.npz/x.csv", ["data.npz is no folder"]),
        ("study", "--output x.csv/new", ["output is x.csv/new, x.csv has the name of a file"]),
        ("bound gone/x.npz", "", ["gone/x.npz: there is no folder gone"]),
        ("interval gone/x.jsonl", "", ["gone/x.jsonl: there is no folder gone"]),
        ("report gone/study", "", ["gone/study", "there is no folder gone"]),
        ("plan-tree", "--acceptance gone/x.csv", ["gone/x.csv", "there is no folder gone"]),
        ("capture new", "--prompts gone/x.txt", ["gone/x.txt", "there is no folder gone"]),
    ],
)
def test_names_that_cannot_be_meant_are_refused_before_any_work(
    small, folder, command, option, words
):
    whole = ONE_PICTURE.get(command, STUDY if command == "study" else command)
    if command == "simulate" and "--plot" in option:
        option = option.replace("--plot x.png", "--output x")
    assert_refused(call(f"mdsd {whole} {option}"), *words)
    assert names_in(folder) == ["data.npz"]


@pytest.mark.parametrize("command", [*ONE_PICTURE, "study", "simulate"])
def test_dots_per_inch_are_those_asked_for(small, folder, command):
    from PIL import Image

    whole = ONE_PICTURE.get(command, STUDY if command == "study" else command)
    where = "--output new --runs 10 --horizon 2" if command == "simulate" else "--plot new"
    dpi = 300 if command == "plan_tree" else 40
    asked = "" if dpi == 300 else f"--dpi {dpi}"  # what papers want is the default
    commands.printed(call(f"mdsd {whole} {where} {asked}"))
    paths = list((folder / "new").glob("*.png"))
    assert paths
    for path in paths:
        with Image.open(path) as image:
            assert image.info["dpi"] == pytest.approx((dpi, dpi), abs=0.1)


@pytest.mark.parametrize("option", ["--output out.csv --plot gone/out.png", "--output out.csv/"])
def test_nothing_is_computed_or_written_if_one_file_cannot_be(small, folder, monkeypatch, option):
    if option.endswith("/"):
        Path("out.csv").mkdir()
    monkeypatch.setattr("mdsd.studies.means.all_rows", lambda *_: pytest.fail("computed"))
    before = sorted(folder.iterdir())
    assert_refused(call(f"mdsd compare data.npz {option}"), "cannot be written")
    assert sorted(folder.iterdir()) == before


def test_an_error_while_computing_keeps_the_old_file(small, folder, monkeypatch):
    def fail(*_: Any) -> None:
        raise mdsd.SolverError("lp", "out\nof luck")

    Path("out.csv").write_text("old")
    monkeypatch.setattr("mdsd.studies.means.all_rows", fail)
    assert_refused(call("mdsd compare data.npz --output out.csv"), "out of luck")
    assert Path("out.csv").read_text() == "old"
    assert sorted(path.name for path in folder.iterdir()) == ["data.npz", "out.csv"]


def test_a_full_disk_leaves_nothing(small, folder, monkeypatch):
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert_refused(call("mdsd bound data.npz --output out.csv"), "out.csv", "No space left")
    assert [path.name for path in folder.iterdir()] == ["data.npz"]


# --- manners of a process ------------------------------------------------------------------------


@pytest.mark.filterwarnings("default::UserWarning")
@pytest.mark.parametrize("command", ["compare", "study --workers 1", "plan-tree"])
def test_probabilities_stored_as_logits_are_one_line_and_no_failure(folder, command):
    save({key.replace("probs", "logits"): value for key, value in SMALL.items()})
    result = call(f"mdsd {command} data.npz --json")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("mdsd: warning: data: target_logits and draft_logits of draft_0 ")
    assert "target_probs and draft_probs" in line
    assert json.loads(result.stdout)


def test_logits_stored_as_probabilities_are_refused_by_the_key_to_use(folder):
    save({**SMALL, "target_probs": [[2.0, 1.0, 0.3], [0.0, 1.0, 2.0]]})
    assert_refused(
        call("mdsd compare data.npz"), "target_probs row 0", "store them as target_logits"
    )


def process(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "mdsd", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": PACKAGES},
        **options,
    )


def test_module_runs():
    running = process("--version")
    assert running.communicate(timeout=commands.LIMIT) == (
        f"mdsd {mdsd.__version__}\n".encode(),
        b"",
    )
    assert running.returncode == 0


def test_without_a_command_it_shows_help():
    result = call("mdsd")
    assert result.exit_code == 0
    assert "Usage: mdsd" in result.stdout


def test_module_reports_errors_by_its_exit_code():
    running = process("compare", "nothere.npz")
    assert running.communicate(timeout=commands.LIMIT) == (
        b"",
        b"mdsd: nothere.npz: No such file or directory\n",
    )
    assert running.returncode == 2


def test_no_progress_bar_in_a_pipe(small):
    running = process("compare", "data.npz", "--json")
    stdout, stderr = running.communicate(timeout=commands.LIMIT)
    assert stderr == b""
    assert json.loads(stdout)["rows"]


@pytest.mark.parametrize("arguments", ["verifiers", "bound data.npz --json", "--help"])
def test_broken_pipe_is_quiet(small, arguments):
    running = process(*arguments.split())
    running.stdout.close()
    with running.stderr as stream:
        assert stream.read() == b""
    running.wait(commands.LIMIT)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", ["verifiers", "bound data.npz --json", "--help"])
def test_full_disk_is_one_line(small, arguments):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mdsd", *arguments.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": PACKAGES},
            check=False,
            timeout=commands.LIMIT,
        )
    message = b"mdsd: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, message)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (MemoryError(), 2, "not enough memory"),
        (
            MemoryError("Unable to allocate\n7 TiB"),
            2,
            "not enough memory: Unable to allocate 7 TiB",
        ),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=["memory", "memory-numpy", "interrupt"],
)
def test_what_stops_a_study_is_one_line(monkeypatch, small, error, code, message):
    def stop(*arguments):
        raise error

    monkeypatch.setattr("mdsd.studies.means.all_rows", stop)
    result = call("mdsd bound data.npz")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"mdsd: {message}\n"


@pytest.mark.parametrize("command", ["", "compare ", "bound ", "verifiers "])
def test_short_help(command):
    assert call(f"mdsd {command}-h").stdout == call(f"mdsd {command}--help").stdout != ""


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_regular_files_are_written(small, kind):
    if kind == "pipe":
        os.mkfifo("out.csv")
    else:
        os.symlink(os.devnull, "out.csv")
    result = call("mdsd bound data.npz --output out.csv")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "mdsd: out.csv: cannot be written: it is not a regular file\n"


@pytest.mark.parametrize("command", ["bound data.npz", "compare data.npz", "verifiers"])
def test_no_line_ends_in_a_blank(small, command):
    assert [
        line for line in call(f"mdsd {command}").stdout.splitlines() if line != line.rstrip()
    ] == []


def test_long_names_stay_whole():
    name = "-".join(["model"] * 30)
    laws = {"target_probs": [[0.5, 0.5]] * 2, "draft_probs": [[1.0, 0.0], [0.5, 0.5]]}
    np.savez("data.npz", **laws, draft_names=[name])
    text = call("mdsd bound data.npz --num-drafts 2 --draft without_replacement").stdout
    assert text.count(name) == 2  # the title, and the footnote about the position left out
    assert "without_replacement n=2: 1" in text.splitlines()[-1]


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_interrupt_is_one_line():
    # The signal arrives while the child is in the study: it sends it to itself from there.
    code = (
        "import os, signal, mdsd.studies.means as module\n"
        "from mdsd.cli import main\n"
        "module.all_rows = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "main(['bound'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": PACKAGES},
        check=False,
        timeout=commands.LIMIT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"mdsd: interrupted\n")


@pytest.mark.parametrize("arguments", [["verifiers"], ["--version"], ["--help"]])
def test_quick_commands_import_nothing_heavy(arguments):
    _, imported = commands.run_alone(*arguments)
    assert imported.isdisjoint({"numba", "scipy", "matplotlib", "cvxpy", "networkx", "torch"})
    assert "numpy" in imported


def test_a_bar_shows_on_a_terminal_and_on_standard_error_only(small):
    stdout, shown = commands.run_in_terminal("bound", "data.npz", "--json")
    assert json.loads(stdout)["rows"]
    assert b"positions" in shown


def test_a_long_wait_without_a_terminal_is_told_of(monkeypatch, capsys):
    monkeypatch.setattr("mdsd.cli._delivery._PATIENCE", 0.01)
    with progress_bar("positions") as progress:
        progress(3, 20)
        time.sleep(0.1)
    assert "mdsd: 3 of 20 positions after 0 s\n" in capsys.readouterr().err
