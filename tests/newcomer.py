"""What a newcomer does first, in an environment that has the installed wheel and no checkout.

`tools/check_wheel.py` runs this with the Python of that environment: the README's blocks of code
and commands, each in a process of its own, and wrong inputs, each of which gets one clear line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import mdsd

from . import commands, pages

BLOCKS = pages.read_blocks(pages.README.read_text(encoding="utf-8"))
EXAMPLES = [block for block in BLOCKS if block.is_example]
SHOWN = [block for block in BLOCKS if block.command]
MDSD = Path(sysconfig.get_path("scripts"), "mdsd")


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=commands.LIMIT
    )


@pytest.fixture(autouse=True)
def _empty(folder: Path) -> None:
    """Everything is done in an empty folder."""


def test_it_is_the_wheel_that_is_tried():
    assert Path(mdsd.__file__).is_relative_to(sysconfig.get_path("purelib"))
    assert run(MDSD, "--version").stdout.split()[-1] == mdsd.__version__


def test_there_is_something_to_try():
    assert (len(EXAMPLES) >= 3, len(SHOWN)) == (True, 1)


@pytest.mark.parametrize("block", EXAMPLES, ids=lambda block: f"line-{block.line}")
def test_code_of_the_readme_prints_what_it_shows(block):
    Path("pasted.py").write_text(block.content, encoding="utf-8")
    done = run(sys.executable, "pasted.py")
    assert (done.returncode, done.stdout) == (0, block.printed), done.stderr


@pytest.mark.parametrize("block", SHOWN, ids=lambda block: block.command)
def test_commands_of_the_readme_print_what_they_show(block):
    done = run(MDSD, *block.command.split())
    shown = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
    assert (done.returncode, shown) == (0, block.printed), done.stderr


# --- wrong inputs --------------------------------------------------------------------------------

ROWS = np.array([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2]])
FILES = {
    "one_sided.npz": {"target_probs": ROWS},
    "not_a_number.npz": {"target_logits": [[0.0, np.nan]], "draft_logits": [[0.0, 1.0]]},
    "lengths.npz": {"target_probs": ROWS, "draft_probs": ROWS[:, :2] / 0.8},
}
WRONG_COMMANDS = {
    "compare missing.npz": ["missing.npz"],
    "compare one_sided.npz": ["one_sided.npz", "draft_logits"],
    "compare not_a_number.npz": ["not_a_number.npz", "target_logits", "row 0", "nan"],
    "bound lengths.npz": ["lengths.npz", "draft_probs"],
    "compare --draft with_replacment": ["with_replacment", "'with_replacement'"],
    "compare --verifier optmal": ["optmal", "'optimal'"],
    "compare --num-drafts 0": ["num_drafts is 0", "integer >= 1"],
    "compare --temperature -1": ["temperature is -1", ">= 0"],
    "interval broken.jsonl": ["broken.jsonl", "line 2"],
    "plan-tree --acceptance 1.5 --budget 4": ["acceptance", "1.5"],
}
WRONG_CALLS = {
    "mdsd.WithReplacement([0.5, 0.6], 2)": ["draft_probs", "1.1"],
    "mdsd.WithoutReplacement([1.0, 0.0], 2)": ["draft_probs", "1 token", "2"],
    "mdsd.acceptance_bound([1.0], mdsd.GreedyDraft([0.5, 0.5], 1))": ["target_probs", "1", "2"],
    "mdsd.get_verifier('optmal')": ["verifier", "'optmal'", "'optimal'"],
    "mdsd.probs_from_logits([0.0, float('nan')])": ["logits", "nan"],
    "mdsd.NaiveVerifier().plan([0.5, 0.5], mdsd.TopKDraft([0.9, 0.1], 1)).verify([1], 0)": [
        "draft_token_ids"
    ],
}


@pytest.mark.parametrize("command", WRONG_COMMANDS)
def test_a_wrong_command_ends_with_one_line(command):
    for name, arrays in FILES.items():
        np.savez(name, **arrays)
    good = json.dumps({"target": {"a": -0.1}, "draft": {"a": -0.2}})
    Path("broken.jsonl").write_text(f"{good}\n{{oops\n", encoding="utf-8")
    before = sorted(os.listdir())
    done = run(MDSD, *command.split())
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("mdsd: ")
    assert [word for word in WRONG_COMMANDS[command] if word not in line] == [], line
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_a_wrong_call_raises_one_clear_error(call):
    done = run(sys.executable, "-c", f"import mdsd; {call}")
    line = done.stderr.splitlines()[-1]
    assert done.returncode == 1
    assert line.startswith("mdsd.errors."), done.stderr
    assert [word for word in WRONG_CALLS[call] if word not in line] == [], line
