"""`mdsd decode`: text, tables, files and errors."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import mdsd
from mdsd.decoding import GrowingTree, embedded_pair, generate
from mdsd.decoding.verification import PATH_VERIFICATIONS

from .. import commands
from ..commands import assert_refused

pytestmark = pytest.mark.usefixtures("folder")

KEYS = [
    "verifier",
    "draft",
    "scheme",
    "tree",
    "num_nodes",
    "tokens_per_target_call",
    "stderr",
    "acceptance_by_depth",
    "drafted_by_depth",
    "accepted_lengths",
    "synthetic_acceptance_rates",
    "tokens",
    "target_calls",
    "draft_calls",
    "runs",
    "drafting_seconds",
    "target_seconds",
    "verification_seconds",
    "verification_share",
]
COMPARED_KEYS = [
    "verifier",
    "draft",
    "scheme",
    "tree",
    "num_nodes",
    "tokens_per_target_call",
    "stderr",
    "acceptance_by_depth",
    "reference",
    "difference",
    "difference_stderr",
    "target_calls",
    "draft_calls",
    "runs",
    "drafting_seconds",
    "target_seconds",
    "verification_seconds",
    "verification_share",
]
SHORT = "--tree 2,1 --max-new-tokens 6 --seeds 2"


def call(arguments: str) -> Result:
    return commands.run(f"decode {arguments}")


def report_of(arguments: str) -> dict[str, Any]:
    return commands.report_of(f"decode {arguments}")


def untimed(row: dict[str, Any]) -> dict[str, Any]:
    timed = ("drafting_seconds", "target_seconds", "verification_seconds", "verification_share")
    return {key: value for key, value in row.items() if key not in timed}


# --- one run -------------------------------------------------------------------------------------


def test_text_is_that_of_generate():
    pair = embedded_pair()
    result = generate(
        pair.target,
        pair.draft_model,
        pair.vocabulary.encode("The operator"),
        draft="greedy",
        verifier="optimal",
        tree=[2, 2],
        max_new_tokens=20,
        temperature=0.7,
        top_k=40,
        top_p=0.9,
        eos_token_id=pair.vocabulary.eos_token_id,
        rng=5,
    )
    options = (
        "--prompt 'The operator' --draft greedy --verifier optimal --tree 2,2 --max-new-tokens 20 "
        "--temperature 0.7 --top-k 40 --top-p 0.9 --seed 5"
    )
    text = pair.vocabulary.decode(result.token_ids)
    assert call(options).stdout.startswith(f"The operator{text}\n\n")
    report = report_of(options)
    assert report["text"] == text
    (row,) = report["rows"]
    assert row["tokens_per_target_call"] == result.tokens_per_target_call
    assert row["acceptance_by_depth"] == pytest.approx(result.acceptance_by_depth, abs=1e-12)
    assert row["drafted_by_depth"] == result.drafted_by_depth.tolist()
    assert row["accepted_lengths"] == result.accepted_lengths.tolist()
    rates = row["synthetic_acceptance_rates"]
    assert rates == result.synthetic_acceptance_rates.tolist()
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == row["acceptance_by_depth"][0]


def test_table_shows_acceptance_by_depth():
    options = "--tree 3,2,1 --max-new-tokens 30"
    (row,) = report_of(options)["rows"]
    text = call(options).stdout
    for depth in (1, 2, 3):
        steps = row["drafted_by_depth"][depth - 1]
        share = row["acceptance_by_depth"][depth - 1]
        assert re.search(rf"^ +{depth} +{steps} +{share:.3f}$", text, re.MULTILINE)
    words = [
        "rrs, without_replacement, tree 3,2,1",
        f"30 tokens in {row['target_calls']} calls of the target",
        f"{row['tokens_per_target_call']:.2f} per call",
        "verifying",
    ]
    assert [word for word in words if word not in text] == []


def test_trees_that_grow():
    pair = embedded_pair()
    result = generate(
        pair.target,
        pair.draft_model,
        pair.vocabulary.encode("The"),
        draft="with_replacement",
        verifier="block",
        tree=GrowingTree(8, 4),
        max_new_tokens=20,
        eos_token_id=pair.vocabulary.eos_token_id,
        rng=3,
    )
    options = (
        "--draft with_replacement --verifier block --grow 8 --depth 4 --max-new-tokens 20 --seed 3"
    )
    report = report_of(options)
    assert report["text"] == pair.vocabulary.decode(result.token_ids)
    (row,) = report["rows"]
    assert list(row) == KEYS
    assert (row["scheme"], row["tree"], row["num_nodes"]) == ("growing", [], 8)
    assert row["drafted_by_depth"] == result.drafted_by_depth.tolist()
    assert "block, with_replacement, growing trees of 8 drafts at most" in call(options).stdout


def test_json_has_the_documented_keys():
    report = report_of("--max-new-tokens 5 --seed 3 --top-k -1")
    assert list(report) == ["version", "settings", "text", "rows"]
    assert report["version"] == mdsd.__version__
    assert [list(row) for row in report["rows"]] == [KEYS]
    assert report["settings"] == {
        "target": "embedded 4-gram",
        "draft_models": ["embedded 2-gram"],
        "prompt": "The",
        "max_new_tokens": 5,
        "temperature": 1.0,
        "top_k": None,
        "top_p": 1.0,
        "min_p": 0.0,
        "seeds": [3],
    }
    (row,) = report["rows"]
    assert (row["draft"], row["verifier"], row["scheme"]) == ("without_replacement", "rrs", "tree")
    assert (row["tree"], row["num_nodes"], row["runs"]) == ([3, 2, 1], 15, 1)
    assert row["stderr"] is None


def test_same_seed_same_text():
    first, again, other = (report_of(f"--seed {seed}") for seed in (7, 7, 8))
    assert first["text"] == again["text"] != other["text"]
    assert untimed(first["rows"][0]) == untimed(again["rows"][0])


@pytest.mark.parametrize(
    "options",
    ["", "--verifier kseq --draft with_replacement", "--verifier block", "--tree 1,1,1,1"],
    ids=lambda options: options or "default",
)
def test_greedy_text_is_the_targets(options):
    pair = embedded_pair()
    ids = pair.vocabulary.encode("The value")
    for _ in range(12):
        ids.append(int(pair.target.logits([ids])[0].argmax()))
    expected = pair.vocabulary.decode(ids).removeprefix("The value")
    found = report_of(
        f"--prompt 'The value' --temperature 0 --max-new-tokens 12 --seed 9 {options}"
    )
    assert found["text"] == expected


def test_chains_of_the_batch_scheme():
    options = "--scheme batch --draft with_replacement --num-drafts 2 --depth 3 --max-new-tokens 8"
    (row,) = report_of(options)["rows"]
    assert (row["scheme"], row["tree"], row["num_nodes"]) == ("batch", [2, 1, 1], 6)
    assert "rrs, with_replacement, chains 2 x 3" in call(options).stdout


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_files_hold_what_is_printed(ending):
    result = call(f"--max-new-tokens 8 --json --output out.{ending}")
    written = Path(f"out.{ending}").read_text(encoding="utf-8")
    if ending == "json":
        assert written == result.stdout
        return
    (row,) = json.loads(result.stdout)["rows"]
    (found,) = csv.DictReader(written.splitlines())
    assert list(found) == KEYS
    assert found == {
        key: " ".join(map(str, value)) if isinstance(value, list) else str(value or "")
        for key, value in row.items()
    }


def test_text_comes_before_the_run_is_over():
    """Pieces reach standard output one by one, not in one piece at the end."""
    code = (
        "import sys, mdsd.cli._commands as cli; pieces = []; cli._stream = pieces.append\n"
        "try: cli.main(['decode', '--max-new-tokens', '30'])\n"
        "finally: print(len(pieces), file=sys.stderr)"
    )
    assert int(commands.run_python(code).stderr) > 5


# --- a comparison --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    return report_of(f"--compare {SHORT} --seed 3")


def test_comparison_has_every_verifier(compared):
    found = {row["verifier"] for row in compared["rows"]}
    # On a tree whose second level has single drafts.
    assert found == {*mdsd.verifier_names(), *PATH_VERIFICATIONS} - {"spechub"}
    assert {row["scheme"] for row in compared["rows"]} == {"tree", "batch"}
    assert compared["settings"]["seeds"] == [3, 4]
    assert [list(row) for row in compared["rows"]] == [COMPARED_KEYS] * len(compared["rows"])
    assert all(row["target_calls"] == 12 and row["runs"] == 2 for row in compared["rows"])
    assert {row["num_nodes"] for row in compared["rows"]} == {4}
    assert all(row["stderr"] >= 0.0 for row in compared["rows"])
    assert "text" not in compared


def test_rows_do_not_depend_on_each_other(compared):
    alone = report_of(f"--compare {SHORT} --seed 3 --verifier optimal --draft greedy,top_k")
    assert {row["draft"] for row in alone["rows"]} == {"greedy", "top_k"}
    whole = [untimed(row) for row in compared["rows"]]
    assert [row for row in map(untimed, alone["rows"]) if row not in whole] == []


def test_comparison_table_fits_and_names_everything():
    text = call(f"--compare {SHORT} --num-drafts 2 --depth 2".replace("--tree 2,1", "")).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    words = ["verifier", "tokens/call", "difference", "verify", "spechub", "1 x 6", "2 x 3", "2,2"]
    assert [word for word in words if word not in text] == []
    number = r"\d\.\d\d ± \d\.\d\d"
    pattern = rf"traversal +without_replacement +2,2 +{number} +[-+]{number} +\d+\.\d%\n"
    assert re.search(pattern, text)
    assert re.search(rf"rrs +without_replacement +2,2 +{number} +\d+\.\d%\n", text)
    assert "6 trees along each of 2 texts" in text
    assert "difference: to rrs or naive on the same trees" in " ".join(text.split())


def test_comparison_says_which_verifier_does_not_apply():
    text = call(f"--compare {SHORT}").stdout
    assert text.splitlines()[-1] == "not for this tree and these drafts: spechub"


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--draft gredy", ["did you mean 'greedy'"]),
        ("--verifier blok", ["did you mean 'block'"]),
        ("--verifier kseq", ["kseq", "without_replacement"]),
        ("--verifier rrs,optimal", ["rrs, optimal", "comparison"]),
        ("--scheme batches", ["scheme", "'batches'"]),
        ("--scheme batch --tree 3,2", ["tree and scheme"]),
        ("--tree x", ["--tree", "'x'"]),
        ("--tree 2,0", ["tree[1] is 0"]),
        ("--tree 2 --depth 2", ["tree and depth"]),
        ("--grow x", ["--grow", "'x'"]),
        ("--grow 0", ["grow is 0"]),
        ("--grow 8 --tree 2,1", ["grow and tree"]),
        ("--grow 8 --scheme batch", ["grow and scheme"]),
        ("--grow 8 --verifier kseq", ["kseq", "without_replacement"]),
        ("--compare --grow 8", ["grow is 8", "single run only"]),
        ("--num-drafts 0", ["num_drafts is 0"]),
        ("--num-drafts 9 --depth 9", ["more than 100,000 nodes"]),
        ("--temperature -1", ["temperature is -1"]),
        ("--temperature 1,2", ["--temperature", "'1,2'"]),
        ("--top-k 1.5", ["--top-k"]),
        ("--top-p 2", ["top_p is 2"]),
        ("--max-new-tokens 0", ["max_new_tokens is 0"]),
        ("--prompt ''", ["prompt is ''"]),
        ("--prompt caf\N{LATIN SMALL LETTER E WITH ACUTE}", ["no piece can spell"]),
        ("--seed -1", ["seed is -1"]),
        ("--seeds 2", ["seeds is 2", "comparison"]),
        ("--compare --seeds 0", ["seeds is 0"]),
        ("--compare --verifier kseq --draft greedy", ["nothing to run"]),
        ("--target nothere", ["draft_model is missing"]),
        ("--draft-model nothere", ["target is missing"]),
        ("--target nothere --draft-model .", ["'nothere'", "no folder"]),
        ("--output out.txt", ["out.txt", ".csv or .json"]),
        ("--output gone/out.csv", ["gone/out.csv", "there is no folder gone"]),
        ("--plot out.png", ["--plot"]),
        ("data.npz", ["data.npz"]),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_bad_options_are_one_line(folder, arguments, words):
    assert_refused(call(arguments), *words)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "broken"),
    [("", "runs.generate"), (f"--compare {SHORT}", "drawn_trees.compare_on_trees")],
    ids=["run", "comparison"],
)
@pytest.mark.parametrize(
    ("error", "code"),
    [(mdsd.SolverError("lottery", "out\nof luck"), 2), (KeyboardInterrupt(), 130)],
    ids=["error", "interrupt"],
)
def test_what_stops_a_decoder_is_one_line(folder, monkeypatch, arguments, broken, error, code):
    def stop(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(f"mdsd.studies.decoding.{broken}", stop)
    Path("out.csv").write_text("old")
    result = call(f"{arguments} --output out.csv")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["out.csv"]
    assert Path("out.csv").read_text() == "old"


def test_models_from_folders_need_the_extra(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = call("--target . --draft-model .")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "pip install 'mdsd[models]'" in result.stderr
    assert result.stderr.count("\n") == 1


# --- manners -------------------------------------------------------------------------------------


def test_help_is_short_and_imports_nothing_heavy():
    shown, imported = commands.run_alone("decode", "-h", COLUMNS="80")
    assert call("-h").stdout == call("--help").stdout
    assert "--max-new-tokens" in shown
    assert imported.isdisjoint({"numba", "scipy", "torch", "transformers", "pydoc_data"})
    assert "click" in imported


def test_a_bar_shows_on_a_terminal_and_on_standard_error_only():
    arguments = f"decode --compare {SHORT} --verifier rrs --json".split()
    stdout, shown = commands.run_in_terminal(*arguments)
    assert json.loads(stdout)["rows"]
    assert b"texts" in shown
