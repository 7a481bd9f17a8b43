"""What a shell completes: names of all kinds, quickly, and nothing where there is trouble."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mdsd
from mdsd.datasets.captures.header import CaptureHeader, header_to_json
from mdsd.drafts.registry import draft_names

from .. import commands
from ..own_kinds import HubPairDraft

LAWS = {"target_probs": [[0.5, 0.5]], "draft_probs": [[[0.5, 0.5]], [[0.4, 0.6]]]}
STEPS = list(mdsd.verifier_names())
PATHS = ["block", "layers", "traversal"]
LABELS = [*(n for n in draft_names() if n != "hybrid"), *(f"hybrid:{m}" for m in range(5))]


def completed(line: str, shell: str = "bash") -> list[str]:
    """What a shell is told for a line; bash splits words at colons and equals signs."""
    split = line.replace(":", " : ").replace("=", " = ") if shell == "bash" else line
    words = ["mdsd", *split.split(), *([""] if line.endswith((" ", ":")) else [])]
    place = words[-1] if shell == "fish" else str(len(words) - 1)
    environment = {"COMP_WORDS": " ".join(words), "COMP_CWORD": place}
    environment["_MDSD_COMPLETE"] = f"{shell}_complete"
    result = commands.CliRunner().invoke(commands.main, prog_name="mdsd", env=environment)
    assert (result.exit_code, result.stderr) == (0, "")
    return [line for line in result.stdout.splitlines() if line]


@pytest.fixture(autouse=True)
def _data(folder: Path) -> None:
    np.savez("named.npz", **LAWS, draft_names=["big", "tiny"])
    np.savez("other.npz", **LAWS)
    Path("captured").mkdir()
    header = CaptureHeader("large", ["small", "smaller"], 9, "x", top_k=None)
    Path("captured/capture.json").write_text(header_to_json(header))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("comp", ["compare"]),
        ("compare smo", ["smollm2"]),
        ("study ", ["smollm2", "captured", "named.npz", "other.npz"]),
        ("compare --draft ", LABELS),
        ("bound --draft greedy,sp", ["greedy,spechub"]),
        ("plan-tree --draft hybrid:", ["0", "1", "2", "3", "4"]),
        ("study --draft greedy,hybrid:3", ["3"]),
        ("interval log.jsonl --draft ind", ["independent"]),
        ("compare --verifier ", STEPS),
        ("study --verifier=kse", ["kseq"]),
        ("compare --verifier rrs,optimal,k", ["rrs,optimal,kseq"]),
        ("compare --verifier rrs,rr", []),
        ("decode --verifier ", [*STEPS, *PATHS]),
        ("plan-tree --verifier tr", ["traversal"]),
        ("bias --rule single,ty", ["single,typical"]),
        ("decode --scheme ", ["tree", "batch"]),
        ("compare --draft-model drop2,dr", ["drop2,drop3"]),
        ("study named.npz --draft-model ", ["big", "tiny"]),
        ("bound named.npz --temperature 1 --draft-model t", ["tiny"]),
        ("plan-tree named.npz --draft-model b", ["big"]),
        ("compare captured --draft-model small", ["small", "smaller"]),
        ("compare other.npz --draft-model ", ["draft_0"]),
        ("compare gone.npz --draft-model ", []),
        ("compare captured/capture.json --draft-model ", []),
    ],
)
def test_names_are_completed(line, expected):
    assert completed(line) == [f"plain,{name}" for name in expected]


@pytest.mark.parametrize("line", ["compare named", "compare captured/", "report capt"])
def test_other_files_are_left_to_the_shell(line):
    assert completed(line)[0].startswith("file,")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_labels_stay_whole_in_shells_that_do_not_split_them(shell):
    assert "hybrid:1" in " ".join(completed("compare --draft hybrid:1", shell))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_shells_that_replace_a_word_get_the_option_in_it_back(shell):
    told = " ".join(completed("compare --verifier=rrs,k", shell))
    assert "--verifier=rrs,kseq" in told
    assert "--" not in " ".join(completed("compare --verifier rrs,k", shell))


def test_fish_is_told_to_keep_the_commas_of_lists():
    environment = {"_MDSD_COMPLETE": "fish_source"}
    result = commands.CliRunner().invoke(commands.main, prog_name="mdsd", env=environment)
    assert 'string split -m 1 "," $completion' in result.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_switches_completion_on_is_printed(shell):
    environment = {"_MDSD_COMPLETE": f"{shell}_source"}
    result = commands.CliRunner().invoke(commands.main, prog_name="mdsd", env=environment)
    assert result.exit_code == 0
    assert f"_MDSD_COMPLETE={shell}_complete" in result.stdout


def test_kinds_of_other_packages_are_completed(monkeypatch):
    monkeypatch.setattr("mdsd.drafts.registry._registry", lambda: {"hub_pair": HubPairDraft})
    assert completed("compare --draft hub") == ["plain,hub_pair"]


def test_completing_imports_nothing_heavy():
    code = (
        "import os, sys; os.environ.update(_MDSD_COMPLETE='bash_complete', COMP_CWORD='3', "
        "COMP_WORDS='mdsd compare --draft-model dr')\n"
        "from mdsd.cli import main\n"
        "try: main(prog_name='mdsd')\n"
        "finally: print(sorted(sys.modules).__repr__().replace(\"'\", '\"'))"
    )
    *names, modules = commands.run_python(code).stdout.splitlines()
    assert names == ["plain,drop2", "plain,drop3"]
    imported = {name.partition(".")[0] for name in json.loads(modules)}
    assert imported.isdisjoint({"numba", "scipy", "pyarrow", "rich", "matplotlib", "networkx"})
