"""The fuzz tool: it notices what is wrong, prints it ready to paste, and repeats itself."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd._solvers import token_lottery
from mdsd.testing import CheckFailure
from mdsd.testing._instances import DraftRecipe

from .. import commands
from ..verifiers import NAMES

ROOT = Path(__file__).resolve().parents[2]
FUZZ = ROOT / "tools" / "fuzz.py"

BIASED = '''
"""Verifiers with one flaw each."""
import numpy as np
from mdsd.verifiers.kseq import KSeqPlan
from mdsd.verifiers import KSeqVerifier


class BiasedPlan(KSeqPlan):
    """Lets the residual be the target."""

    def __init__(self, target_probs, draft):
        super().__init__(target_probs, draft)
        self.residual = target_probs


class Biased(KSeqVerifier):
    def _plan(self, target_probs, draft):
        return BiasedPlan(target_probs, draft)


class Boasts(KSeqVerifier):
    attains_bound = True


class Raises(KSeqVerifier):
    def _plan(self, target_probs, draft):
        raise ZeroDivisionError("of its own")


class Right(KSeqVerifier):
    pass


class NotOne:
    pass
'''


def load() -> Any:
    spec = importlib.util.spec_from_file_location("fuzz_under_test", FUZZ)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


fuzz = load()


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "flawed.py").write_text(BIASED)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    return subprocess.run(
        [sys.executable, str(FUZZ), *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=commands.LIMIT,
    )


# --- from the outside ----------------------------------------------------------------------------


def test_wrong_verifier_fails_with_a_snippet_that_shows_it(tmp_path):
    done = run(tmp_path, "--instances", "60", "--workers", "1", "--verifier", "flawed:Biased")
    assert done.returncode == 1
    assert "law: sums to the target (flawed:Biased on with_replacement)" in done.stdout
    assert done.stderr == ""
    # Pasted, the snippet fails for the same reason.
    snippet = done.stdout[done.stdout.index("# law: sums to the target") :].split("\nFAILED")[0]
    pasted = subprocess.run(
        [sys.executable, "-c", snippet],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=commands.LIMIT,
    )
    assert pasted.returncode == 1
    assert "is not the target" in pasted.stderr


def test_right_verifier_passes_in_two_processes(tmp_path):
    done = run(tmp_path, "--instances", "210", "--seed", "7", "--verifier", "flawed:Right")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("210 instances in ")
    assert "FAILED" not in done.stdout
    assert done.stderr == ""  # progress is for terminals


def test_bad_arguments(tmp_path):
    done = run(tmp_path, "--instances", "0")
    assert done.returncode == 2
    assert "--instances" in done.stderr


# --- the conformance suite ------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "failures"), [("flawed:Biased", 1), ("flawed:Right", 0)])
def test_conformance_is_checked(flawed, name, failures):
    report = fuzz.run_conformance(3, name)
    assert report.conformance == 1
    assert len(report.failures) == failures
    for failure in report.failures.values():
        assert "CheckFailure" in failure.what
        with pytest.raises(CheckFailure):
            exec(failure.snippet, {})


def test_every_verifier_has_its_share_of_seeds(monkeypatch):
    seen = []

    class AtOnce:
        def __init__(self, *arguments, **options):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *problem):
            return None

        def submit(self, task, *arguments):
            seen.append((task.__name__, *arguments))
            done = Future()
            done.set_result(fuzz.Report())
            return done

    monkeypatch.setattr(fuzz, "ProcessPoolExecutor", AtOnce)
    fuzz.fuzz(10_000, 7, 1)
    expected = [("run_conformance", seed, name) for seed in (8, 9) for name in NAMES]
    assert [task for task in seen if task[0] == "run_conformance"] == expected


# --- one chunk in this process -------------------------------------------------------------------


@pytest.fixture
def flawed(tmp_path, monkeypatch):
    (tmp_path / "flawed.py").write_text(BIASED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "flawed", raising=False)


@pytest.fixture(autouse=True)
def _only_cheap_formulations(monkeypatch):
    monkeypatch.setattr(fuzz, "FORMULATIONS", {"prefix": 1, "submodular": 1})


@pytest.fixture(autouse=True)
def _efforts_as_they_were(monkeypatch):
    """Snippets set how coarse groups are, for good: tests of the same process come after them."""
    for part in fuzz._COARSE:
        monkeypatch.setattr(token_lottery, part, getattr(token_lottery, part))


@pytest.mark.usefixtures("flawed")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Biased", "law: sums to the target"),
        ("Biased", "law: marginal_law is the target"),
        ("Boasts", "rate: optimal reaches the bound"),
        ("Raises", "ZeroDivisionError"),
    ],
)
def test_flaws_are_noticed(name, kind):
    report = fuzz.run_chunk(3, 0, 60, f"flawed:{name}")
    assert f"{kind} (flawed:{name} on with_replacement)" in report.failures
    others = {kind: failure.what for kind, failure in report.failures.items() if name not in kind}
    assert others == {}


def test_the_optimal_verifier_goes_with_both_efforts_and_in_coarse_groups(monkeypatch):
    """The certified gaps are held against the bound: those of coarse groups are not small."""
    gaps: dict[str, list[float]] = {}
    note = fuzz.Report.note

    def noting(self: Any, check: str, deviation: float, problem: Any, subject: str) -> None:
        note(self, check, deviation, problem, subject)
        if check == "rate: optimal certifies its gap":
            gaps.setdefault(subject, []).append(deviation)

    monkeypatch.setattr(fuzz.Report, "note", noting)
    before = fuzz.token_lottery.FAST
    assert not fuzz.run_chunk(3, 0, 40, None).failures
    efforts = [len(gaps[name]) for name in ("optimal", fuzz.FAST, fuzz.COARSE)]
    assert efforts == [40, 40, 40]
    assert fuzz.token_lottery.FAST is before


def test_a_certificate_that_does_not_hold_is_noticed(monkeypatch):
    """In coarse groups, where alone there is a gap to speak of."""
    upper = fuzz.token_lottery.TokenLottery.upper.fget
    monkeypatch.setattr(
        fuzz.token_lottery.TokenLottery,
        "upper",
        property(lambda self: self.attained + 0.5 * (upper(self) - self.attained)),
    )
    failures = fuzz.run_chunk(3, 0, 40, None).failures
    assert f"rate: optimal certifies its gap ({fuzz.COARSE} on independent)" in failures
    assert all(fuzz.COARSE in found for found in failures)
    for failure in failures.values():
        exec(failure.snippet, {})
        break


@pytest.mark.usefixtures("flawed")
def test_what_is_no_verifier_is_refused():
    with pytest.raises(TypeError, match="flawed:NotOne is not a Verifier"):
        fuzz.run_chunk(3, 0, 1, "flawed:NotOne")


@pytest.mark.parametrize(
    ("method", "check"),
    [
        ("hit_probs", "hit_probs: as enumerated"),
        ("token_hit_probs", "token_hit_probs: as enumerated"),
        ("prob", "tuples: as prob() declares"),
        ("tuple_arrays", "tuples: sum to 1"),
    ],
)
def test_wrong_draft_distribution_is_noticed(method, check, monkeypatch):
    right = getattr(mdsd.GreedyDraft, method)

    def wrong(self: Any, *arguments: Any) -> Any:
        found = right(self, *arguments)
        return (found[0], found[1] * (1 - 1e-9)) if isinstance(found, tuple) else found + 1e-9

    monkeypatch.setattr(mdsd.GreedyDraft, method, wrong)
    report = fuzz.run_chunk(3, 0, 30, None)
    assert f"{check} (draft on greedy)" in report.failures


def test_wrong_formulation_is_noticed(monkeypatch):
    right = mdsd.acceptance_bound

    def wrong(target_probs: Any, draft: Any, *, method: str = "auto") -> Any:
        found = right(target_probs, draft, method=method)
        if method != "submodular":
            return found
        return mdsd.AcceptanceBound(found.value - 1e-6, found.subset, method, 0.0)

    monkeypatch.setattr(mdsd, "acceptance_bound", wrong)
    report = fuzz.run_chunk(3, 0, 20, None)
    assert "bound: formulations agree (submodular on independent)" in report.failures
    assert "bound: its subset gives it (submodular on independent)" in report.failures
    failure = report.failures["bound: formulations agree (submodular on independent)"]
    assert "acceptance_bound(target_probs, draft, method='submodular')" in failure.snippet


# --- instances -----------------------------------------------------------------------------------


def test_same_seed_same_instances():
    first = list(fuzz.problems(5, 2, 30))
    assert first == list(fuzz.problems(5, 2, 30))
    assert first != list(fuzz.problems(5, 3, 30))
    assert first != list(fuzz.problems(6, 2, 30))


def test_instances_reach_everywhere():
    found = list(fuzz.problems(0, 0, 1500))
    drafts = [problem.recipe.build() for problem in found]
    kinds = {draft.name for draft in drafts}
    assert kinds == {kind.name for kind in fuzz.DRAFTS}
    assert {draft.vocab_size for draft in drafts} == set(range(1, fuzz.MAX_VOCAB_SIZE + 1))
    assert {draft.num_drafts for draft in drafts} == set(range(1, fuzz.MAX_NUM_DRAFTS + 1))
    targets = [np.array(problem.target_probs) for problem in found]
    assert any((target == 1.0).any() for target in targets)
    assert any(((target > 0) & (target < 1e-308)).any() for target in targets)
    assert any(
        problem.target_probs == problem.recipe.args[0]
        for problem in found
        if problem.recipe.kind is mdsd.WithReplacement
    )


# --- reports -------------------------------------------------------------------------------------

PROBLEM = fuzz.Problem(
    "with_replacement", [0.5, 0.5], DraftRecipe(mdsd.WithReplacement, ([0.25, 0.75], 2))
)


def test_snippets_run():
    for subject in ("draft", "auto", "submodular", "kseq", fuzz.FAST):
        exec(PROBLEM.snippet("check", subject), {})


def test_report_keeps_the_largest_deviation():
    report, other = fuzz.Report(), fuzz.Report()
    report.note("rate: as enumerated", 1e-15, PROBLEM, "kseq")
    other.note("rate: as enumerated", 3e-15, PROBLEM, "rrs")
    report.add(other)
    assert report.worst["rate: as enumerated"] == (3e-15, "rrs on with_replacement")
    assert report.checks["rate: as enumerated"] == 2
    assert not report.failures


@pytest.mark.parametrize("deviation", [2e-12, math.inf, math.nan])
def test_report_fails_beyond_the_tolerance(deviation):
    report = fuzz.Report()
    report.note("rate: as enumerated", deviation, PROBLEM, "kseq")
    assert list(report.failures) == ["rate: as enumerated (kseq on with_replacement)"]


def test_report_keeps_the_shortest_failure_of_a_kind():
    longer = fuzz.Problem("with_replacement", [0.5, 0.25, 0.25], PROBLEM.recipe)
    for order in ([PROBLEM, longer], [longer, PROBLEM]):
        report = fuzz.Report()
        for problem in order:
            report.note("rate: as enumerated", 1.0, problem, "kseq")
        (failure,) = report.failures.values()
        assert failure.count == 2
        assert "target_probs = [0.5, 0.5]" in failure.snippet
