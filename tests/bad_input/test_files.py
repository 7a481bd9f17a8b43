"""Files and commands that are refused: one line, and nothing is written."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import mdsd
from mdsd.cli import main
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, MdsdError

from .values import INF, NAN, P, Q

LAWS = {"target_probs": [P, Q], "draft_probs": [Q, P]}
NOT_SAVED = object()


def saved(**changes: Any) -> dict[str, Any]:
    """Give the arrays of a good file with some of them changed, or left out."""
    return {k: v for k, v in {**LAWS, **changes}.items() if v is not NOT_SAVED}


FILES: dict[str, tuple[dict[str, Any], type[MdsdError], tuple[str, ...]]] = {
    "no_keys": ({"logits": [P]}, InvalidArgumentError, ("target_logits", "keys found: logits")),
    "no_target": (saved(target_probs=NOT_SAVED), InvalidArgumentError, ("target_probs",)),
    "no_draft": (saved(draft_probs=NOT_SAVED), InvalidArgumentError, ("draft_probs",)),
    "two_targets": (saved(target_logits=[P, Q]), InvalidArgumentError, ("target_logits",)),
    "two_drafts": (saved(draft_logits=[P, Q]), InvalidArgumentError, ("draft_logits",)),
    "objects": (
        saved(target_probs=np.array([[0.5, None]], dtype=object)),
        InvalidDistributionError,
        ("target_probs", "Object arrays"),
    ),
    "strings": (saved(target_probs=[["a", "b"]]), InvalidDistributionError, ("target_probs", "U1")),
    "complex": (
        saved(draft_probs=[[1j, 0j]]),
        InvalidDistributionError,
        ("draft_probs", "complex"),
    ),
    "bool": (saved(draft_probs=[[True, False]]), InvalidDistributionError, ("draft_probs", "bool")),
    "target_vector": (saved(target_probs=P), InvalidDistributionError, ("target_probs", "(3,)")),
    "target_cube": (
        saved(target_probs=[[P, Q]]),
        InvalidDistributionError,
        ("target_probs", "(1, 2, 3)"),
    ),
    "draft_vector": (saved(draft_probs=Q), InvalidDistributionError, ("draft_probs", "(3,)")),
    "no_positions": (
        saved(target_probs=np.zeros((0, 3)), draft_probs=np.zeros((0, 3))),
        InvalidDistributionError,
        ("target_probs", "empty"),
    ),
    "no_models": (
        saved(draft_probs=np.zeros((0, 2, 3))),
        InvalidDistributionError,
        ("draft_probs",),
    ),
    "positions_differ": (
        saved(draft_probs=[Q]),
        InvalidDistributionError,
        ("draft_probs", "1", "2"),
    ),
    "tokens_differ": (
        saved(draft_probs=[[0.5, 0.5]] * 2),
        InvalidDistributionError,
        ("draft_probs", "2", "3"),
    ),
    "nan": (
        saved(target_probs=[P, [NAN, 0.5, 0.5]]),
        InvalidDistributionError,
        ("target_probs row 1", "index 0", "nan"),
    ),
    "negative": (
        saved(draft_probs=[Q, [0.6, 0.5, -0.1]]),
        InvalidDistributionError,
        ("draft_probs row 1", "index 2", "-0.1"),
    ),
    "mass": (saved(draft_probs=[Q, [0.6, 0.5, 0.1]]), InvalidDistributionError, ("row 1", "1.2")),
    "second_model": (
        saved(draft_probs=[[P, Q], [Q, [0.6, 0.5, 0.1]]]),
        InvalidDistributionError,
        ("draft_probs[1] row 1", "1.2"),
    ),
    "logit_inf": (
        {"target_logits": [[0.0, INF]], "draft_logits": [[0.0, 1.0]]},
        InvalidDistributionError,
        ("target_logits row 0", "index 1", "inf"),
    ),
    "logits_masked": (
        {"target_logits": [[0.0, 1.0]], "draft_logits": [[-INF, -INF]]},
        InvalidDistributionError,
        ("draft_logits row 0", "empty support"),
    ),
    "too_few_names": (
        saved(draft_probs=[LAWS["draft_probs"]] * 2, draft_names=["a"]),
        InvalidArgumentError,
        ("draft_names", "['a']"),
    ),
    "same_names": (
        saved(draft_probs=[LAWS["draft_probs"]] * 2, draft_names=["a", "a"]),
        InvalidArgumentError,
        ("draft_names", "['a', 'a']"),
    ),
    "number_names": (saved(draft_names=[1]), InvalidArgumentError, ("draft_names", "[1]")),
    "names_of_two_lines": (saved(draft_names=["a\nb"]), InvalidArgumentError, ("draft_names",)),
    "empty_name": (saved(draft_names=[""]), InvalidArgumentError, ("draft_names",)),
    "name_with_comma": (saved(draft_names=["a,b"]), InvalidArgumentError, ("draft_names", "a,b")),
    "token_ids_shape": (
        saved(token_ids=[[0, 1, 2]]),
        InvalidArgumentError,
        ("token_ids", "(1, 3)"),
    ),
    "token_ids_float": (
        saved(token_ids=[[0.0, 1.0, 2.0]] * 2),
        InvalidArgumentError,
        ("token_ids", "float64"),
    ),
    "token_ids_bool": (
        saved(token_ids=[[True, False, True]] * 2),
        InvalidArgumentError,
        ("token_ids", "bool"),
    ),
    "token_ids_negative": (
        saved(token_ids=[[0, 1, 2], [0, 1, -7]]),
        InvalidArgumentError,
        ("token_ids", "-7"),
    ),
    "kept_mass_shape": (
        saved(target_kept_mass=[1.0]),
        InvalidArgumentError,
        ("target_kept_mass", "(1,)"),
    ),
    "kept_mass_nan": (
        saved(target_kept_mass=[1.0, NAN]),
        InvalidArgumentError,
        ("target_kept_mass", "nan"),
    ),
    "kept_mass_above_one": (
        saved(draft_kept_mass=[[1.0, 2.5]]),
        InvalidArgumentError,
        ("draft_kept_mass", "2.5"),
    ),
    "provenance_text": (saved(provenance="mine"), InvalidArgumentError, ("provenance", "JSON")),
    "provenance_list": (saved(provenance="[]"), InvalidArgumentError, ("provenance", "JSON")),
}


def contents(folder: Any) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", FILES)
def test_bad_file_is_refused(kind, tmp_path):
    arrays, error, words = FILES[kind]
    path = tmp_path / "mine.npz"
    np.savez(path, **{key: np.array(value) for key, value in arrays.items()})
    before = contents(tmp_path)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(MdsdError) as caught:
            mdsd.datasets.read_npz(path)
    message = str(caught.value)
    assert caught.type is error
    assert [word for word in ("mine.npz", *words) if word not in message] == [], message
    assert len(message.splitlines()) == 1, message
    assert [str(warning.message) for warning in warned] == []
    assert contents(tmp_path) == before


COMMANDS = {
    "missing_file": ("compare other.npz", "other.npz"),
    "folder": ("compare .", "directory"),
    "not_an_archive": ("bound text.npz", "text.npz"),
    "unknown_verifier": ("compare mine.npz --verifier optmal", "optimal"),
    "unknown_draft": ("bound mine.npz --draft greddy", "greedy"),
    "unknown_model": ("bound mine.npz --draft-model draft_1", "draft_0"),
    "empty_list": ("bound mine.npz --num-drafts ,", "--num-drafts"),
    "no_positions": ("bound mine.npz --positions 0", "positions"),
    "many_drafts": (
        "bound mine.npz --draft greedy --num-drafts 99999999999999999999",
        "num_drafts",
    ),
    "temperature": ("bound mine.npz --temperature -1", "-1"),
    "top_p": ("bound mine.npz --top-p 0", "top_p"),
    "min_p": ("bound mine.npz --min-p 2", "min_p"),
    "ending": ("bound mine.npz --output x.txt", ".csv"),
    "plot_ending": ("bound mine.npz --output x.csv --plot x.jpg", ".png"),
    "study_temperature": ("study mine.npz --temperature -1 --output kept", "-1"),
    "study_workers": ("study mine.npz --workers 0 --output kept", "workers"),
    "study_missing_file": ("study other.npz --output kept", "other.npz"),
    "study_file_for_a_folder": ("study mine.npz --output text.npz", "text.npz"),
    "report_missing": ("report kept --output report.html", "kept"),
    "report_ending": ("report kept --output report.pdf", ".html"),
    "log": ("compare mine.jsonl", "mdsd interval"),
    "log_missing": ("interval mine.jsonl --output x.csv", "mine.jsonl"),
    "log_line": ("interval text.npz --output x.csv", "line 1"),
    "log_ending": ("interval text.npz --output x.txt", ".csv"),
    "no_folder": ("bound mine.npz --output x.csv --plot no/x.png", "no/x.png"),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_bad_command_leaves_nothing(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, word = COMMANDS[kind]
    np.savez("mine.npz", **LAWS)
    (tmp_path / "text.npz").write_text("no archive")
    before = contents(tmp_path)
    output = [] if "--output" in command else ["--output", "rows.csv", "--plot", "rows.png"]
    result = CliRunner().invoke(main, [*command.split(), *output], prog_name="mdsd")
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert word in line
    assert contents(tmp_path) == before
