"""A study of a grid: its numbers, and that its folder is the same however it came about."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import mdsd
from mdsd import datasets, studies
from mdsd.errors import InvalidArgumentError, MdsdError, UnsupportedError
from mdsd.studies.grid import read_study
from mdsd.studies.grid.workers import run_tasks
from mdsd.studies.study_rows import CompareRow, StudyRow, columns, record

from ...captures import write_synthetic_capture
from ...commands import LIMIT, PACKAGES, assert_refused, printed, report_of, run

SINGLE = ("with_replacement", "without_replacement", "greedy", "spechub", "top_k")
SMALL: dict[str, Any] = {
    "num_drafts": [1, 2],
    "temperatures": [0.0, 0.7],
    "verifiers": ["rrs", "kseq", "greedy", "naive"],
    "drafts": ["with_replacement", "without_replacement", "greedy"],
    "positions": 20,
}


def find(rows, **wanted):
    (row,) = (row for row in rows if all(getattr(row, k) == v for k, v in wanted.items()))
    return row


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Stopped(Exception):
    """Thrown into a study."""


def stop_after(count: int):
    def progress(done: int, total: int) -> None:
        if done == count:
            raise Stopped

    return progress


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 positions of 60 tokens in five shards."""
    folder = tmp_path_factory.mktemp("data") / "capture"
    write_synthetic_capture(folder, 40, tokens=60, positions_per_shard=8, seed=3)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, capture: Path) -> Path:
    """The study of that capture, in one go."""
    folder = tmp_path_factory.mktemp("studies") / "whole"
    studies.study(capture, **SMALL, output=folder)
    return folder


# --- the numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("filters", [{}, {"top_k": 20}, {"top_p": 0.8}], ids=str)
def test_rows_are_those_of_compare_and_bound(filters):
    options = {"num_drafts": [1, 2, 3], "temperatures": [0.6], "positions": 6, "seed": 3}
    options |= {"draft_models": ["drop3", "ngram"], "drafts": ["independent", *SINGLE]}
    lists = {name: [value] for name, value in filters.items()}
    rows = studies.study("smollm2", **options, **lists)
    data = datasets.load("smollm2")
    expected = studies.compare(data, **options, **filters)
    shared = [name for name in columns(CompareRow) if name in columns(StudyRow)]
    assert len(shared) == len(columns(CompareRow))

    def compared(row):
        return tuple(getattr(row, name) for name in shared)

    assert {compared(row) for row in rows} == {compared(row) for row in expected}
    assert len(rows) == len(expected)
    del options["seed"]
    bounds = {
        (row.draft_model, row.draft, row.num_drafts, row.bound, row.bound_stderr, row.positions)
        for row in studies.bound(data, **options, **filters)
    }
    assert bounds == {
        (row.draft_model, row.draft, row.num_drafts, row.bound, row.bound_stderr, row.positions)
        for row in rows
    }


def test_three_drafts_are_estimated_within_their_error():
    options = {"drafts": ["without_replacement"], "verifiers": ["rrs"], "num_drafts": [3]}
    (row,) = studies.study("smollm2", **options, positions=5, top_k=[90])
    # 90 ** 2 paths: enumerated by plans, estimated here.
    data = datasets.load("smollm2")
    target, drafted = (
        mdsd.probs_from_logits(table[:5], top_k=90)
        for table in (data.target_table, data.draft_tables["drop2"])
    )
    exact = np.mean(
        [
            mdsd.RRSVerifier().plan(p, mdsd.WithoutReplacement(q, 3)).acceptance_rate
            for p, q in zip(target, drafted, strict=True)
        ]
    )
    # Standard deviation about 5e-5 at each position: 5 of them, six standard errors.
    assert row.acceptance == pytest.approx(exact, abs=1.5e-4)
    assert row.acceptance != exact


def test_losses_add_up():
    rows = studies.study("smollm2", num_drafts=[2, 3], temperatures=[0.0, 1.0], positions=2)
    checked = [row for row in rows if row.acceptance is not None]
    assert len(checked) > 30
    for row in checked:
        lost = (row.lost_to_model, row.lost_to_construction, row.lost_to_verifier)
        assert sum(lost) == pytest.approx(1.0 - row.acceptance, abs=1e-12)
        assert lost[0] > -1e-12
        assert lost[1] >= 0.0


def test_best_construction_is_the_largest_mean_bound():
    row, *_ = studies.study("smollm2", num_drafts=[2], drafts=["top_k"], positions=30)
    bounds = studies.bound(datasets.load("smollm2"), num_drafts=[2], drafts=SINGLE, positions=30)
    best = max(bounds, key=lambda each: each.bound)
    assert row.best_draft == best.draft
    assert row.lost_to_model == pytest.approx(1.0 - best.bound, abs=1e-12)
    assert row.lost_to_construction == pytest.approx(best.bound - row.bound, abs=1e-12)


def test_best_construction_of_several_models_may_be_of_one(tmp_path):
    # The second model has no token of the target.
    near, far = [[0.2, 0.5, 0.3, 0.0]], [[0.0, 0.0, 0.0, 1.0]]
    drafted = np.array([near, far])
    np.savez(tmp_path / "two.npz", target_probs=[[0.5, 0.3, 0.2, 0.0]], draft_probs=drafted)
    row, *_ = studies.study(tmp_path / "two.npz", num_drafts=[2], drafts=["independent"])
    assert row.best_draft == "without_replacement of draft_0"
    # The target against one draft of `near`, the other being of no use; and against two of it.
    assert row.bound == pytest.approx(0.7, abs=1e-9)
    assert 1.0 - row.lost_to_model == pytest.approx(0.9857142857, abs=1e-9)
    assert row.lost_to_construction == pytest.approx(0.2857142857, abs=1e-9)


def test_best_construction_is_one_that_can_draft_wherever_the_row_does(tmp_path):
    # At the second position only one token can be drafted.
    p, q = [[0.4, 0.6], [0.4, 0.6]], [[0.7, 0.3], [1.0, 0.0]]
    np.savez(tmp_path / "short.npz", target_probs=p, draft_probs=q)
    rows = studies.study(tmp_path / "short.npz", num_drafts=[2], verifiers=["naive"])
    with_, without = (find(rows, draft=name) for name in SINGLE[:2])
    assert (with_.positions, with_.best_draft) == (2, "with_replacement")
    assert (without.positions, without.best_draft, without.bound) == (1, "without_replacement", 1.0)


def test_rows_do_not_depend_on_the_other_cells():
    judges = ["rrs", "kseq", "greedy"]
    many = studies.study(
        "smollm2", num_drafts=[1, 3], temperatures=[0.5, 1.0], positions=5, verifiers=judges
    )
    one = studies.study(
        "smollm2",
        num_drafts=[3],
        temperatures=[0.5],
        positions=5,
        drafts=["without_replacement"],
        verifiers=["rrs"],
    )
    assert set(one) <= set(many)


def test_quantiles_are_over_positions(whole):
    study = read_study(whole)
    row = find(study.rows, draft="greedy", verifier="greedy", num_drafts=2, temperature=0.7)
    cell = next(c for c in study.cells if c.cell.num_drafts == 2 and c.cell.temperature == 0.7)
    drafted = next(c for c, _ in cell.cell.asked if c.draft == "greedy")
    values = cell.column(drafted.acceptance_column("greedy"))
    assert len(values) == 20
    assert [row.q10, row.q50, row.q90] == pytest.approx(np.quantile(values, [0.1, 0.5, 0.9]))
    assert row.stderr == pytest.approx(values.std(ddof=1) / np.sqrt(20))


def test_numbers_of_each_position_are_those_of_its_plan(whole, capture):
    data = datasets.read_capture(capture)
    study = read_study(whole)
    cell = next(c for c in study.cells if c.cell.num_drafts == 2 and c.cell.temperature == 0.7)
    drafted = next(c for c, _ in cell.cell.asked if c.draft == "with_replacement")
    bounds = cell.column(drafted.bound_column)
    rates = cell.column(drafted.acceptance_column("kseq"))
    (model,) = cell.cell.draft_models
    for position in range(20):
        p = mdsd.probs_from_logits(data.target_table[position], temperature=0.7)
        q = mdsd.probs_from_logits(data.draft_tables[model][position], temperature=0.7)
        draft = mdsd.WithReplacement(q, 2)
        assert bounds[position] == pytest.approx(mdsd.acceptance_bound(p, draft).value, abs=1e-12)
        plan = mdsd.get_verifier("kseq").plan(p, draft)
        assert rates[position] == pytest.approx(plan.acceptance_rate, abs=1e-12)


class Refusing(mdsd.NaiveVerifier):
    """Refuses wide laws."""

    name = "refusing"

    def _plan(self, target_probs: Any, draft: Any) -> Any:
        if draft.vocab_size > 900:
            raise UnsupportedError(f"no method for {draft.vocab_size} tokens")
        return super()._plan(target_probs, draft)


def test_what_cannot_be_computed_is_missing_with_its_reason(tmp_path):
    rows = studies.study(
        "smollm2",
        num_drafts=[2],
        drafts=["greedy"],
        verifiers=[Refusing(), "greedy"],
        positions=4,
        output=tmp_path / "study",
    )
    refused, greedy = find(rows, verifier="refusing"), find(rows, verifier="greedy")
    assert refused.acceptance is refused.lost_to_verifier is refused.stderr is refused.q50 is None
    assert refused.bound == greedy.bound is not None
    (missing,) = refused.missing
    assert (missing.what, missing.position) == ("refusing", 0)
    assert missing.reason.startswith("no method for ")
    assert (greedy.missing, greedy.acceptance) == ((), pytest.approx(greedy.bound))
    assert read_study(tmp_path / "study").rows == rows


class Unsteady(mdsd.NaiveVerifier):
    """Fails once, or has no number."""

    name = "unsteady"
    calls = 0

    def __init__(self, fault: int | float) -> None:
        self.fault = fault

    def _plan(self, target_probs: Any, draft: Any) -> Any:
        plan = super()._plan(target_probs, draft)
        self.calls += 1
        if self.fault == self.calls:
            raise UnsupportedError("not this time")
        if np.isnan(self.fault):
            kind = type(plan)
            plan.__class__ = type(kind.__name__, (kind,), {"acceptance_rate": self.fault})
        return plan


@pytest.mark.parametrize(
    ("fault", "reason"), [(3, "not this time"), (float("nan"), "its value is nan")], ids=str
)
def test_fault_of_a_verifier_is_missing_with_its_reason(fault, reason):
    options = {"num_drafts": [2], "drafts": ["greedy"], "positions": 5, "top_k": [30]}
    (row,) = studies.study("smollm2", **options, verifiers=[Unsteady(fault)])
    (missing,) = row.missing
    assert (row.acceptance, missing.position, missing.reason) == (None, 0, reason)
    # At most 30 of each law.
    assert 30 <= missing.tokens <= 60


def test_estimates_depend_on_the_seed_and_the_position_only():
    options = {"drafts": ["without_replacement"], "verifiers": ["rrs"], "num_drafts": [3]}
    first, again, other = (
        studies.study("smollm2", **options, positions=8, seed=seed)[0] for seed in (1, 1, 2)
    )
    assert first == again
    assert first.acceptance != other.acceptance
    assert first.acceptance == pytest.approx(other.acceptance, abs=0.02)


# --- the folder ----------------------------------------------------------------------------------


def test_folder_has_the_rows_as_csv_and_parquet(whole, capture):
    import pyarrow.parquet as pq

    rows = studies.study(capture, **SMALL)
    assert read_study(whole).rows == rows
    table = pq.read_table(whole / "study.parquet").to_pylist()
    assert table == [record(row) for row in rows]
    header, *lines = (whole / "study.csv").read_text().splitlines()
    assert header.split(",") == list(table[0])
    assert len(lines) == len(rows)
    assert sorted(contents(whole)) == [
        *(f"cells/{number:04d}.parquet" for number in range(4)),
        "study.csv",
        "study.json",
        "study.parquet",
    ]
    plan = json.loads((whole / "study.json").read_text())
    assert plan["settings"]["temperatures"] == [0.0, 0.7]
    assert plan["data"]["positions"] == 40


@pytest.mark.parametrize("stops", [[1], [3, 4, 7], [11]], ids=str)
def test_stopped_study_goes_on_to_the_same_bytes(tmp_path, whole, capture, stops):
    folder = tmp_path / "study"
    for stop in stops:
        with pytest.raises(Stopped):
            studies.study(capture, **SMALL, output=folder, progress=stop_after(stop))
        assert not (folder / "study.csv").exists()
        with pytest.raises(InvalidArgumentError, match="not finished"):
            read_study(folder)
    done: list[int] = []
    studies.study(capture, **SMALL, output=folder, progress=lambda now, _: done.append(now))
    # 4 cells of 3 blocks each: nothing is done twice.
    assert done == list(range(stops[-1] + 1, 13))
    assert contents(folder) == contents(whole)


def test_finished_study_does_nothing_again(tmp_path, whole, capture):
    folder = tmp_path / "study"
    shutil.copytree(whole, folder)
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    rows = studies.study(capture, **SMALL, output=folder, progress=stop_after(1))
    assert rows == read_study(whole).rows
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == stamps


def test_positions_clip_the_blocks(whole, capture):
    assert read_study(whole).cells[0].column("bound, greedy of draft").shape == (20,)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"seed": 1}, "settings.seed"),
        ({"positions": 21}, "settings.positions"),
        ({"temperatures": [0.7]}, "settings.temperatures"),
        ({"verifiers": ["rrs"]}, "settings.verifiers"),
    ],
    ids=str,
)
def test_folder_of_another_study_is_refused(tmp_path, whole, capture, change, word):
    folder = tmp_path / "study"
    shutil.copytree(whole, folder)
    with pytest.raises(InvalidArgumentError, match=word):
        studies.study(capture, **{**SMALL, **change}, output=folder)
    assert contents(folder) == contents(whole)


def test_folder_of_other_data_is_refused(tmp_path, whole):
    folder = tmp_path / "study"
    shutil.copytree(whole, folder)
    with pytest.raises(InvalidArgumentError, match=r"data\.fingerprint"):
        studies.study("smollm2", **SMALL, output=folder)
    assert contents(folder) == contents(whole)


def test_folder_with_other_files_is_refused(tmp_path, capture):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InvalidArgumentError, match=r"thesis\.tex"):
        studies.study(capture, **SMALL, output=tmp_path)
    assert contents(tmp_path) == {"thesis.tex": b"years of work"}


def test_file_in_place_of_the_folder_is_refused(tmp_path, capture):
    (tmp_path / "study").write_text("mine")
    with pytest.raises(InvalidArgumentError, match="study: cannot be a folder"):
        studies.study(capture, **SMALL, output=tmp_path / "study")


def test_cell_exchanged_for_another_is_noticed(tmp_path, whole, capture):
    folder = tmp_path / "study"
    shutil.copytree(whole, folder)
    shutil.copy(folder / "cells" / "0001.parquet", folder / "cells" / "0000.parquet")
    with pytest.raises(InvalidArgumentError, match=r"0000\.parquet: holds another cell"):
        studies.study(capture, **SMALL, output=folder)


def test_column_without_a_number_keeps_its_type(tmp_path, capture):
    import pyarrow.parquet as pq

    options = {"num_drafts": [1], "drafts": ["greedy"], "verifiers": ["greedy"], "positions": 1}
    (row,) = studies.study(capture, **options, output=tmp_path / "study")
    assert row.stderr is row.top_k is None
    schema = pq.read_schema(tmp_path / "study" / "study.parquet")
    assert [str(schema.field(name).type) for name in ("stderr", "top_k")] == ["double", "int64"]


def test_pictures_may_lie_in_the_folder(folder):
    command = f"{QUICK} --temperature 0.5,1 --output kept --plot kept/pictures"
    first = printed(run(command))
    assert list((folder / "kept" / "pictures").glob("*.png"))
    assert printed(run(command)) == first


@pytest.mark.parametrize(
    "damage",
    [lambda raw: raw[:-10], lambda raw: raw[:900] + b"\xff" * 99 + raw[999:]],
    ids=["cut", "overwritten"],
)
@pytest.mark.parametrize("name", ["cells/0002.parquet", "parts/0001/000000008.parquet"])
def test_damaged_file_is_named_and_kept(tmp_path, capture, name, damage):
    folder = tmp_path / "study"
    with pytest.raises(Stopped):
        studies.study(capture, **SMALL, output=folder, progress=stop_after(5))
    if name.startswith("cells"):
        studies.study(capture, **SMALL, output=folder)
        (folder / "study.csv").unlink()
    file = folder / name
    file.write_bytes(damage(file.read_bytes()))
    before = file.read_bytes()
    with pytest.raises(InvalidArgumentError, match=f"{file}: cannot be read"):
        studies.study(capture, **SMALL, output=folder)
    assert file.read_bytes() == before
    # As the message says: without it, the study goes on.
    file.unlink()
    studies.study(capture, **SMALL, output=folder)
    assert (folder / "study.csv").exists()


def test_leftovers_of_a_kill_are_no_obstacle(tmp_path, whole, capture):
    folder = tmp_path / "study"
    shutil.copytree(whole, folder)
    (folder / "study.csv").unlink()
    (folder / ".study.csv.77.tmp").write_bytes(b"half")
    (folder / "cells" / ".0001.parquet.77.tmp").write_bytes(b"half")
    studies.study(capture, **SMALL, output=folder)
    assert contents(folder) == contents(whole)


class Killed(BaseException):
    """What a kill is in a process that goes on."""


def kill_at(monkeypatch: pytest.MonkeyPatch, number: float) -> list[str]:
    """Let the n-th change of any file, and all that follow, not happen; list those that did."""
    done: list[str] = []

    def mortal(name: str):
        change = getattr(os, name)

        def changed(*arguments: Any, **options: Any) -> Any:
            if len(done) + 1 >= number:
                raise Killed
            done.append(name)
            return change(*arguments, **options)

        return changed

    for name in ("link", "mkdir", "replace", "rmdir", "unlink"):
        monkeypatch.setattr(os, name, mortal(name))
    return done


def test_study_killed_at_any_change_goes_on_to_the_same_bytes(tmp_path, capture):
    options = {"num_drafts": [1, 2], "drafts": ["greedy"], "verifiers": ["greedy"]}
    options |= {"positions": 16}  # 2 cells of 2 blocks
    with pytest.MonkeyPatch.context() as patch:
        changes = kill_at(patch, np.inf)
        studies.study(capture, **options, output=tmp_path / "whole")
    assert {"link", "mkdir", "replace", "rmdir", "unlink"} == set(changes)
    for number in range(1, len(changes) + 1):
        folder = tmp_path / f"killed at {number}"
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, number)
            with pytest.raises(Killed):
                studies.study(capture, **options, output=folder)
        studies.study(capture, **options, output=folder)
        assert contents(folder) == contents(tmp_path / "whole"), changes[:number]
        assert not (folder / "parts").exists()


def test_second_study_in_a_folder_is_refused(tmp_path, whole, capture):
    folder = tmp_path / "study"
    refused: list[str] = []

    def start_another(done: int, total: int) -> None:
        with pytest.raises(InvalidArgumentError) as error:
            studies.study(capture, **SMALL, output=folder)
        refused.append(str(error.value))

    pytest.importorskip("fcntl")
    studies.study(capture, **SMALL, output=folder, progress=start_another)
    assert refused == [f"{folder}: another process is writing to it"] * 12
    assert contents(folder) == contents(whole)


@pytest.mark.parametrize("name", ["cells/mine.txt", "parts/mine.txt", "study.csv", ".mine.7.tmp"])
def test_names_of_a_study_that_is_none_are_refused(tmp_path, capture, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("years of work")
    with pytest.raises(InvalidArgumentError, match=f"holds '{name.partition('/')[0]}'"):
        studies.study(capture, **SMALL, output=tmp_path)
    assert contents(tmp_path) == {name: b"years of work"}


def test_strange_files_beside_those_of_a_study_stay(tmp_path, capture, whole):
    folder = tmp_path / "study"
    shutil.copytree(whole, folder)
    (folder / "study.csv").unlink()
    strange = [folder / "cells" / ".mine.tmp", folder / "cells" / "notes.txt", folder / "mine.html"]
    for file in strange:
        file.write_text("mine")
    studies.study(capture, **SMALL, output=folder)
    assert {file.read_text() for file in strange} == {"mine"}
    for file in strange:
        file.unlink()
    assert contents(folder) == contents(whole)


@pytest.mark.parametrize(
    "change",
    [{"cells": 0}, {"cells": None}, {"data": 3}, {"data": {}}, {"settings": []}, {"version": None}],
    ids=str,
)
def test_damaged_plan_is_named_and_kept(tmp_path, whole, capture, change):
    folder = tmp_path / "study"
    shutil.copytree(whole, folder)
    plan = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps(plan | change))
    before = contents(folder)
    for ask in (lambda: read_study(folder), lambda: studies.study(capture, **SMALL, output=folder)):
        with pytest.raises(InvalidArgumentError, match="is not what a study writes"):
            ask()
    assert contents(folder) == before


def test_verifiers_of_one_name_are_told_apart(tmp_path, capture):
    options = {"num_drafts": [3], "drafts": ["without_replacement"], "positions": 8}
    given = [mdsd.RRSVerifier(monte_carlo_paths=9)]
    rows = studies.study(capture, **options, verifiers=given, output=tmp_path)
    again = [mdsd.RRSVerifier(monte_carlo_paths=9)]
    assert studies.study(capture, **options, verifiers=again, output=tmp_path) == rows
    for other in ("rrs", mdsd.RRSVerifier(monte_carlo_paths=10)):
        with pytest.raises(InvalidArgumentError, match=r"settings\.given_verifiers"):
            studies.study(capture, **options, verifiers=[other], output=tmp_path)


class Bound(mdsd.NaiveVerifier):
    """Has the name of a column."""

    name = "bound"


def test_what_no_file_can_hold_is_refused_before_any_work(tmp_path, capture):
    data = datasets.read_capture(capture)
    told = dataclasses.replace(data, provenance={"made": {1, 2}})
    for asked, options, words in (
        (capture, {"top_k": [2**40]}, "top_k is 1099511627776"),
        (capture, {"verifiers": [Bound()]}, "'bound, with_replacement of draft' has the name"),
        (told, {}, "provenance cannot be JSON"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            studies.study(asked, **SMALL | options, output=tmp_path / "study")
    assert contents(tmp_path) == {}


def test_negative_zero_is_temperature_0(capture):
    options = {"num_drafts": [1], "drafts": ["greedy"], "verifiers": ["greedy"]}
    (row,) = studies.study(capture, **options, temperatures=[-0.0, 0.0])
    assert str(row.temperature) == "0.0"


def test_numbers_of_numpy_are_options_too(tmp_path, capture):
    counts = np.array([1, 2])
    options = {"num_drafts": counts, "top_k": counts, "positions": counts[1], "seed": counts[0]}
    rows = studies.study(capture, **options, output=tmp_path / "study")
    assert read_study(str(tmp_path / "study")).rows == rows


# --- other processes -----------------------------------------------------------------------------


def test_two_workers_leave_the_same_bytes(tmp_path, whole, capture):
    studies.study(capture, **SMALL, output=tmp_path / "study", workers=2)
    assert contents(tmp_path / "study") == contents(whole)


def test_data_in_memory_reach_the_workers(capture, whole):
    data = datasets.read_capture(capture)
    rows = studies.study(data, **SMALL, workers=2)
    assert {row.data for row in rows} == {data.name}
    expected = read_study(whole).rows
    assert rows == tuple(dataclasses.replace(row, data=data.name) for row in expected)


def start_study(folder: Path, capture: Path, workers: int) -> subprocess.Popen[bytes]:
    code = (
        "import sys, pathlib\n"
        "from mdsd import studies\n"
        f"studies.study({str(capture)!r}, **{SMALL!r}, output={str(folder)!r}, workers={workers})\n"
    )
    environment = os.environ | {"PYTHONPATH": PACKAGES}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)


def wait_for_a_part(running: subprocess.Popen[Any], folder: Path) -> None:
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        try:
            if list(folder.glob("parts/*/*.parquet")):
                return
        except FileNotFoundError:  # it was joined just now
            return
        assert running.poll() is None
        time.sleep(0.005)
    pytest.fail("no part was written")


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_study_goes_on_to_the_same_bytes(tmp_path, whole, capture, workers):
    folder = tmp_path / "study"
    running = start_study(folder, capture, workers)
    wait_for_a_part(running, folder)
    workers_of_it = psutil.Process(running.pid).children(recursive=True)
    running.kill()
    running.wait(LIMIT)
    # They see that they work for nobody any more.
    assert psutil.wait_procs(workers_of_it, timeout=30)[1] == []
    studies.study(capture, **SMALL, output=folder)
    assert contents(folder) == contents(whole)


@pytest.mark.skipif(os.name != "posix", reason="a terminal interrupts its group of processes")
@pytest.mark.parametrize("workers", [1, 2])
def test_interrupted_command_is_one_line_and_goes_on(tmp_path, capture, workers):
    command = [sys.executable, "-m", "mdsd", "study", str(capture), "--workers", str(workers)]
    command += ["--temperature", "0.5,0.6,0.7,0.8,0.9,1", "--draft", "greedy", "--output"]
    command += [str(tmp_path / "study")]
    options = {"env": os.environ | {"PYTHONPATH": PACKAGES}, "text": True}
    running = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        **options,
    )
    wait_for_a_part(running, tmp_path / "study")
    os.killpg(running.pid, signal.SIGINT)
    # All that have its standard error are gone when it ends: workers, too.
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (130, "mdsd: interrupted\n")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT, **options)
    assert (tmp_path / "study" / "study.csv").exists()


@pytest.fixture
def cluster():
    """A Dask cluster of two worker processes on this machine."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made


# What Dask leaves behind when its processes end, some of them killed.
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_cluster_that_loses_a_worker_leaves_the_same_bytes(tmp_path, whole, capture, cluster):
    killed: list[int] = []

    def kill_one_half_way(done: int, total: int) -> None:
        if done == total // 2:
            killed.append(cluster.workers[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    folder = tmp_path / "study"
    address = cluster.scheduler_address
    studies.study(capture, **SMALL, output=folder, scheduler=address, progress=kill_one_half_way)
    assert killed
    assert contents(folder) == contents(whole)


def test_scheduler_that_does_not_answer_is_named():
    dask = pytest.importorskip("dask")
    pytest.importorskip("distributed")  # before its settings are changed, or they go with them
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.2s"}),
        pytest.raises(InvalidArgumentError, match=r"scheduler is 'tcp://127\.0\.0\.1:9'"),
    ):
        studies.study("smollm2", positions=1, scheduler="tcp://127.0.0.1:9")


@pytest.mark.parametrize("address", ["", "tcp://127.0.0.1:x", "foo://127.0.0.1:9"])
def test_scheduler_that_is_no_address_is_named(address):
    pytest.importorskip("distributed")
    with pytest.raises(InvalidArgumentError, match=f"scheduler is '{address}'"):
        studies.study("smollm2", positions=1, scheduler=address)


def test_scheduler_that_is_no_address_is_one_line():
    pytest.importorskip("distributed")
    # In a process of its own: a client that was made of it would complain when Python ends.
    refused = subprocess.run(
        [sys.executable, "-m", "mdsd", "study", "--positions", "1", "--scheduler", "nonsense"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": PACKAGES},
        timeout=LIMIT,
    )
    (line,) = refused.stderr.splitlines()
    assert line.startswith("mdsd: scheduler is 'nonsense'; it does not answer: ")
    assert refused.returncode == 2


# What Dask leaves behind when its processes end.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_scheduler_without_workers_is_named(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("mdsd.studies.grid.workers._PATIENCE", 0.2)
    with (
        distributed.LocalCluster(n_workers=0, processes=True, dashboard_address=None) as empty,
        pytest.raises(InvalidArgumentError, match="it has no workers"),
    ):
        studies.study("smollm2", positions=1, scheduler=empty.scheduler_address)


def test_scheduler_without_distributed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UnsupportedError, match=r"mdsd\[cluster\]"):
        studies.study("smollm2", positions=1, scheduler="tcp://127.0.0.1:9")


def test_killed_local_worker_is_one_error():
    with pytest.raises(MdsdError, match="a worker process was killed"):
        list(run_tasks(os._exit, [1, 2], 2, None))


# --- the command ---------------------------------------------------------------------------------

QUICK = (
    "study --positions 5 --num-drafts 2 --draft greedy,top_k --verifier greedy,naive --workers 1"
)


def test_command_prints_where_the_acceptance_goes():
    lines = printed(run(QUICK)).splitlines()
    assert lines[0] == "smollm2, drop2, temperature 1, seed 0"
    assert lines[1].split() == [
        *("draft", "distribution", "n", "bound", "verifier", "acceptance"),
        *("model", "constr.", "verif."),
    ]
    (row,) = (line.split() for line in lines if line.startswith("greedy"))
    _, n, bound, verifier, acceptance, *lost = row
    assert (n, verifier, bound) == ("2", "greedy", acceptance)
    assert float(acceptance) + sum(map(float, lost)) / 100 == pytest.approx(1.0, abs=2e-4)


def test_command_gives_the_rows_as_json():
    report = report_of(f"{QUICK} --top-k 0,40 --top-p 1,0.9 --temperature 1,0.5")
    rows = studies.study(
        "smollm2",
        positions=5,
        num_drafts=[2],
        drafts=["greedy", "top_k"],
        verifiers=["greedy", "naive"],
        top_k=[None, 40],
        top_p=[1.0, 0.9],
        temperatures=[1.0, 0.5],
    )
    assert [row["acceptance"] for row in report["rows"]] == [row.acceptance for row in rows]
    assert report["settings"]["top_k"] == [None, 40]
    assert len(rows) == 3 * 8


def test_command_keeps_the_study_and_draws_it(folder):
    printed(run(f"{QUICK} --temperature 0.5,1 --output kept --plot drawn"))
    assert (folder / "kept" / "study.csv").exists()
    pictures = sorted((folder / "drawn").glob("*.png"))
    assert pictures
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--workers 0", ["workers is 0"]),
        ("--workers 2 --scheduler tcp://127.0.0.1:9", ["workers", "scheduler"]),
        ("--temperature -1", ["temperature is -1"]),
        ("--top-p 0", ["top_p is 0"]),
        ("--top-k -2", ["top_k is -2"]),
        ("--draft gredy", ["greedy"]),
        ("--draft-model drop9", ["drop2"]),
        ("--verifier rsr", ["rrs"]),
        ("--positions 0", ["positions is 0"]),
        ("--seed -1", ["seed is -1"]),
        ("--num-drafts 0", ["num_drafts is 0"]),
    ],
)
def test_bad_option_is_one_line_and_no_folder(folder, options, words):
    assert_refused(run(f"study {options} --output kept --plot drawn"), *words)
    assert list(folder.iterdir()) == []


def test_missing_data_is_one_line_and_no_folder(folder):
    assert_refused(run("study nowhere.npz --output kept"), "nowhere.npz")
    assert list(folder.iterdir()) == []
