"""A study of rules: its means are those of the positions, and the command shows the same."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd import studies
from mdsd.analysis import assess_rule
from mdsd.datasets import Dataset
from mdsd.engines.registry import default_rules
from mdsd.studies.biases.plots import bias_figure
from mdsd.studies.study_rows import columns
from mdsd.verifiers import NaiveVerifier, Verifier

from ... import commands

RNG = np.random.default_rng(3)
TARGET, DRAFT, OTHER = RNG.dirichlet(np.full(5, 0.6), (3, 7))
# At the last position the draft has two tokens only, one of which the target never has.
TARGET[-1], DRAFT[-1] = [0.5, 0.0, 0.3, 0.2, 0.0], [0.4, 0.6, 0.0, 0.0, 0.0]
DATA = Dataset.from_arrays(target_probs=TARGET, draft_probs={"small": DRAFT, "tiny": OTHER})


def found(**options: Any) -> dict[tuple[str, int, str], studies.RuleRow]:
    rows = studies.bias(DATA, **options)
    return {(row.draft, row.num_drafts, row.label): row for row in rows}


# --- the numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_means_are_those_of_the_positions(temperature):
    rows = found(temperatures=[temperature])
    assert len(rows) > 40
    kinds = {"with_replacement": mdsd.WithReplacement, "top_k": mdsd.TopKDraft}
    target, probs = (mdsd.filter_probs(table, temperature=temperature) for table in (TARGET, DRAFT))
    for (draft, n, label), row in rows.items():
        used = [k for k in range(7) if draft != "top_k" or np.count_nonzero(probs[k]) >= n]
        outcomes = [assess_rule(label, target[k], kinds[draft](probs[k], n)) for k in used]
        bounds = [mdsd.acceptance_bound(target[k], kinds[draft](probs[k], n)).value for k in used]
        rates = [outcome.acceptance for outcome in outcomes]
        assert row.positions == len(used)
        assert row.acceptance == pytest.approx(np.mean(rates), abs=1e-9)
        assert row.stderr == pytest.approx(np.std(rates, ddof=1) / len(used) ** 0.5, abs=1e-9)
        apart = [outcome.total_variation for outcome in outcomes]
        assert row.total_variation == pytest.approx(np.mean(apart), abs=1e-12)
        divergences = np.array([outcome.kl_divergence for outcome in outcomes])
        assert row.infinite_kl == np.isinf(divergences).sum()
        if row.infinite_kl:
            assert row.kl_divergence is None
        else:
            assert row.kl_divergence == pytest.approx(divergences.mean(), abs=1e-12)
        assert row.bound == pytest.approx(np.mean(bounds), abs=1e-9)
        assert row.front == min(1.0, row.bound + row.total_variation)
        assert row.acceptance <= row.front + 1e-9
        assert not row.lossless or row.total_variation == 0.0


def test_rules_are_shown_with_the_drafts_of_engines_and_on_request_with_others():
    usual, asked = found(num_drafts=[1]), found(num_drafts=[1], drafts=["with_replacement"])
    assert ("top_k", 1, "typical:0.09:0.3") in usual
    assert ("with_replacement", 1, "typical:0.09:0.3") not in usual
    assert ("with_replacement", 1, "typical:0.09:0.3") in asked
    assert {rule.label for rule in default_rules()} == {label for _, _, label in usual}


def test_rules_by_label_verifier_and_object():
    rules = ["cactus:0.5", "rrs", NaiveVerifier(), mdsd.analysis.MixtureAcceptance(0.5)]
    rows = studies.bias(DATA, rules=rules, drafts=["with_replacement"], num_drafts=[1])
    assert [row.label for row in rows] == ["cactus:0.5", "rrs", "naive", "mixture:0.5"]
    assert (rows[0].rule, rows[0].parameters) == ("cactus", "0.5")
    assert [row.lossless for row in rows] == [False, True, True, False]


def test_drafts_of_several_models():
    (row,) = studies.bias(DATA, rules=["naive"], drafts=["independent"], num_drafts=[2])
    plans = (
        mdsd.NaiveVerifier().plan(TARGET[k], mdsd.IndependentDrafts([DRAFT[k], OTHER[k]]))
        for k in range(7)
    )
    assert row.draft_model == "small+tiny"
    assert row.acceptance == pytest.approx(np.mean([plan.acceptance_rate for plan in plans]))


def test_a_rule_that_fails_is_missing_with_its_reason():
    class Failing(Verifier):
        name = "failing"
        draft_types = (mdsd.WithReplacement,)
        source = "nowhere"

        def _num_uniforms(self, draft):
            return 1

        def _plan(self, target_probs, draft):
            raise mdsd.UnsupportedError("not today")

    (row,) = studies.bias(DATA, rules=[Failing()], num_drafts=[1])
    assert (row.acceptance, row.total_variation, row.front) == (None, None, None)
    assert row.bound is not None
    assert [(each.what, each.reason) for each in row.missing] == [("failing", "not today")]


def test_texts_and_progress():
    data = Dataset.from_arrays(
        target_probs=TARGET, draft_probs={"small": DRAFT}, text_ids=[0, 0, 0, 1, 1, 2, 2]
    )
    told: list[tuple[int, int]] = []
    rows = studies.bias(
        data,
        rules=["mixture:0.5"],
        num_drafts=[1],
        progress=lambda done, total: told.append((done, total)),
    )
    assert (rows[0].texts, told[-1]) == (3, (7, 7))
    assert rows[0].stderr_by_text not in (None, rows[0].stderr)


def test_frames_have_the_columns():
    rows = studies.bias(DATA, rules=["optimal"], num_drafts=[1])
    frame = rows.to_frame("pandas")
    assert list(frame.columns) == list(columns(studies.RuleRow))


# --- the command ---------------------------------------------------------------------------------

COMMAND = "bias smollm2 --positions 6 --rule optimal,typical,over_accepting:0.1,gumbel"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_command_prints_and_writes_what_python_gives():
    report = commands.report_of(f"{COMMAND} --output out.csv --temperature 0.6,1")
    rows = studies.bias(
        "smollm2",
        rules=["optimal", "typical", "over_accepting:0.1", "gumbel"],
        positions=6,
        temperatures=[0.6, 1.0],
    )
    expected = [{name: getattr(row, name) for name in columns(studies.RuleRow)} for row in rows]
    assert report["rows"] == expected
    assert report["settings"]["rules"][:2] == ["optimal", "typical:0.01:0.1"]
    with open("out.csv", encoding="utf-8", newline="") as stream:
        written = list(csv.DictReader(stream))
    assert written == [
        {key: "" if value is None else str(value) for key, value in row.items()} for row in expected
    ]


def test_parquet_holds_what_json_holds():
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = commands.report_of(f"{COMMAND} --output out.parquet")["rows"]
    assert parquet.read_table("out.parquet").to_pylist() == rows


def test_table():
    text = commands.printed(commands.run(f"{COMMAND} --num-drafts 1"))
    assert "smollm2, with_replacement of drop2, n = 1, temperature 1" in text
    assert "smollm2, top_k of drop2, n = 1, temperature 1" in text
    (line,) = (line for line in text.splitlines() if line.startswith("over_accepting:0.1"))
    assert line.split()[1] == "no"
    assert text.splitlines()[-1].endswith("accepts.")


def test_infinite_divergences_are_shown_as_such(folder):
    np.savez(folder / "data.npz", target_probs=TARGET, draft_probs=DRAFT)
    text = commands.printed(commands.run("bias data.npz --rule mixture:0.5 --num-drafts 1"))
    (line,) = (line for line in text.splitlines() if line.startswith("mixture"))
    assert line.split()[-2] == "\N{INFINITY}"
    (row,) = commands.report_of("bias data.npz --rule mixture:0.5 --num-drafts 1")["rows"]
    assert (row["kl_divergence"], row["infinite_kl"]) == (None, 1)


def test_positions_without_enough_tokens_are_told(folder):
    np.savez(folder / "data.npz", target_probs=TARGET, draft_probs=DRAFT)
    text = commands.printed(commands.run("bias data.npz --rule naive --num-drafts 3"))
    assert "over 6 positions with n tokens to draw" in text


def test_picture(folder):
    commands.printed(commands.run(f"{COMMAND} --plot pictures --dpi 20"))
    assert [path.name for path in (folder / "pictures").iterdir()] == ["bias.png"]
    rows = studies.bias("smollm2", rules=["optimal", "mixture"], positions=6, num_drafts=[1])
    figure = bias_figure(rows)
    first = figure.axes[0]
    labels = first.get_legend_handles_labels()[1]
    assert labels == ["most at this bias", "optimal", "mixture"]
    front = first.lines[0]
    bound = rows[0].bound
    np.testing.assert_allclose(front.get_xdata(), [0.0, 1.0 - bound, 1.0])
    np.testing.assert_allclose(front.get_ydata(), [bound, 1.0, 1.0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--rule typcal", ["'typcal'", "'typical'"]),
        ("--rule cactus:1:2", ["parameters of cactus: delta"]),
        ("--rule mixture --num-drafts 3", ["nothing to compute", "mixture:0.9"]),
        ("--rule threshold --draft greedy", ["nothing to compute"]),
        ("--output x.txt", ["x.txt"]),
    ],
)
def test_bad_options_are_one_line(arguments, words):
    commands.assert_refused(commands.run(f"bias {arguments}"), *words)
    assert list(Path().iterdir()) == []


def test_settings_are_json(folder):
    report = json.loads(commands.printed(commands.run(f"{COMMAND} --json")))
    assert report["settings"]["drafts"] == ["with_replacement", "top_k"]
    assert report["settings"]["num_drafts"] == [1, 3]
