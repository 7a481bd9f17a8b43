"""`mdsd capture`: laws, prompts, samples, and going on after a kill."""

from __future__ import annotations

import functools
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
import pyarrow.parquet as pq
import pytest
from click.testing import Result

from mdsd.datasets import CaptureWriter, read_capture
from mdsd.decoding import embedded, embedded_pair
from mdsd.decoding.embedded import python_pages
from mdsd.studies.capturing import positions as capturing_positions
from mdsd.studies.capturing import runs
from mdsd.studies.capturing.prompts import embedded_prompts

from .. import commands
from ..commands import assert_refused, printed

pytestmark = pytest.mark.usefixtures("folder")

TEXTS = ("The value of an expression is", "An object", "If the type of the object\nis a list")
PROMPTS = "\n\n".join(TEXTS) + "\n"
SMALL = "out --prompts p.txt --top-k 5"


@pytest.fixture(autouse=True)
def prompts(folder: Path) -> None:
    (folder / "p.txt").write_text(PROMPTS)


def call(arguments: str) -> Result:
    return commands.run(f"capture {arguments}")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def columns(folder: Path) -> dict[str, list[Any]]:
    """The columns of all shards, as any reader of parquet files sees them."""
    tables = [pq.read_table(path).to_pydict() for path in sorted(folder.glob("*.parquet"))]
    return {name: [entry for table in tables for entry in table[name]] for name in tables[0]}


@functools.cache
def encoded(text: str) -> tuple[int, ...]:
    return tuple(embedded_pair().vocabulary.encode(text))


def laws(prefix: list[int]) -> np.ndarray:
    """Probabilities of target and draft model after a prefix, by the definition: (2, V)."""
    pair = embedded_pair()
    weights = [np.exp(model.logits([prefix])[0]) for model in (pair.target, pair.draft_model)]
    return np.array([weight / weight.sum() for weight in weights])


def union(probs: np.ndarray, top_k: int) -> list[int]:
    kept: set[int] = set()
    for law in probs:
        kept |= set(sorted(range(len(law)), key=lambda token: (-law[token], token))[:top_k])
    return sorted(kept)


def assert_laws(rows: dict[str, list[Any]], texts: dict[int, list[int]], top_k: int) -> None:
    """Check each row against laws worked out anew, after a prefix of its text."""
    for row, (text, token) in enumerate(zip(rows["text"], rows["token"], strict=True)):
        probs = laws(texts[text][: token + 1])
        ids = rows["token_ids"][row]
        assert ids == union(probs, top_k)
        for law, name in zip(probs, ("target", "draft"), strict=True):
            number = "" if name == "target" else "_0"
            logprobs = rows[f"{name}_logprobs{number}"][row]
            np.testing.assert_allclose(logprobs, np.log(law[ids]), rtol=1e-6, atol=1e-7)
            mass = rows[f"{name}_kept_mass{number}"][row]
            assert mass == pytest.approx(law[ids].sum(), abs=1e-12)


# --- what is captured ----------------------------------------------------------------------------


def test_positions_and_laws_are_those_of_the_prompts(folder):
    printed(call(SMALL))
    rows = columns(folder / "out")
    texts = [list(encoded(text)) for text in TEXTS]
    expected = [(k, token) for k, text in enumerate(texts) for token in range(len(text) - 1)]
    assert list(zip(rows["text"], rows["token"], strict=True)) == expected
    assert rows["position"] == list(range(len(expected)))
    assert_laws(rows, dict(enumerate(texts)), 5)


def test_the_check_of_laws_can_fail(folder):
    printed(call(SMALL))
    rows = columns(folder / "out")
    texts = {k: list(encoded(text)) for k, text in enumerate(TEXTS)}
    with pytest.raises(AssertionError):
        assert_laws(rows, texts, 4)
    rows["target_kept_mass"][0] += 1e-9
    with pytest.raises(AssertionError):
        assert_laws(rows, texts, 5)


@pytest.mark.parametrize("top_k", [0, -1, 4096, 10_000])
def test_the_whole_vocabulary(folder, top_k):
    printed(call(f"out --prompts p.txt --positions 3 --top-k {top_k}"))
    vocab_size = embedded_pair().target.vocab_size
    data = read_capture(folder / "out")
    assert (data.token_ids == np.arange(vocab_size)).all()
    assert json.loads((folder / "out/capture.json").read_text())["top_k"] is None
    prefix = list(encoded(TEXTS[0]))[:3]
    for logprobs, law in zip(
        (data.target_table, *data.draft_tables.values()), laws(prefix), strict=True
    ):
        np.testing.assert_allclose(logprobs[2], np.log(law), rtol=1e-6)
    assert data.target_kept_mass == pytest.approx(1.0, abs=1e-12)


def test_both_kinds_of_prompts_are_the_same(folder):
    lines = [json.dumps({"text": TEXTS[0], "prompt": 3}), "", json.dumps({"prompt": TEXTS[1]})]
    lines.append(json.dumps({"text": TEXTS[2], "more": [1]}))
    (folder / "p.jsonl").write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")
    (folder / "crlf.txt").write_bytes(("\n" + PROMPTS + " \n\n").replace("\n", "\r\n").encode())
    found = []
    for name in ("p.txt", "p.jsonl", "crlf.txt"):
        printed(call(f"out-{name} --prompts {name} --top-k 5"))
        found.append(columns(folder / f"out-{name}"))
    assert found[0] == found[1] == found[2]


def test_prompts_that_are_too_short_are_passed_over(folder):
    least = len(encoded(TEXTS[1]))
    printed(call(f"{SMALL} --min-context {least}"))
    rows = columns(folder / "out")
    lengths = [len(encoded(text)) for text in TEXTS]
    expected = [(k, t) for k in (0, 2) for t in range(least - 1, lengths[k] - 1)]
    assert list(zip(rows["text"], rows["token"], strict=True)) == expected


def runs_of_tokens(text: str, length: int = 8) -> set[tuple[int, ...]]:
    ids = encoded(text)
    return {ids[start : start + length] for start in range(len(ids) - length + 1)}


def test_prompts_that_are_built_in_are_not_what_the_models_were_trained_on(folder):
    pages = python_pages(embedded._TOPICS).values()
    known = set().union(*map(runs_of_tokens, pages))
    shares = {
        place: len(known & found) / len(found)
        for place, text in embedded_prompts().texts.items()
        for found in [runs_of_tokens(text)]
    }
    assert max(shares.values()) < 0.2
    printed(call("out --positions 9"))
    assert read_capture(folder / "out").provenance["prompts"]["name"] == "pydoc_data.topics"


def test_header_says_what_it_is_and_not_where(folder):
    printed(call(f"{SMALL} --positions 4"))
    text = (folder / "out/capture.json").read_text()
    header = json.loads(text)
    assert (header["target"], header["draft_models"]) == ("embedded 4-gram", ["embedded 2-gram"])
    assert (header["top_k"], header["vocab_size"]) == (5, embedded_pair().target.vocab_size)
    assert re.fullmatch("[0-9a-f]{64}", header["tokenizer_hash"])
    provenance = header["provenance"]
    assert provenance["prompts"]["name"] == "p.txt"
    assert provenance["settings"]["positions"] == 4
    assert {"mdsd", "python", "numpy"} == set(provenance["versions"])
    assert all(len(model["sha256"]) == 64 for model in provenance["models"].values())
    assert str(folder) not in text
    assert os.sep not in text


def test_the_same_command_makes_the_same_bytes(folder):
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere/p.txt").write_text(PROMPTS)
    printed(call(SMALL))
    printed(call("two --prompts elsewhere/p.txt --top-k 5"))
    assert content(folder / "out") == content(folder / "two")


def test_closing_lines_are_about_the_capture(folder):
    lines = printed(call(f"{SMALL} --positions-per-shard 4")).splitlines()
    data = read_capture(folder / "out")
    overlap = np.minimum(
        np.exp(data.target_table), np.exp(data.draft_tables["embedded 2-gram"])
    ).sum(axis=1)
    size = sum(len(shard) for name, shard in content(folder / "out").items() if "shard" in name)
    shards = -(-data.num_positions // 4)
    assert lines == [
        f"out: {data.num_positions} positions, in {shards} shards of {size / 1e3:.1f} kB",
        f"kept mass: target {data.target_kept_mass.mean():.4f}, embedded 2-gram "
        f"{data.draft_kept_mass['embedded 2-gram'].mean():.4f}",
        f"overlap with the target: embedded 2-gram {overlap.mean():.4f}",
    ]


def test_progress_is_shown_on_a_terminal(folder):
    stdout, shown = commands.run_in_terminal("capture", *SMALL.split())
    assert stdout.startswith(b"out: ")
    assert b"positions" in shown


# --- samples -------------------------------------------------------------------------------------


def sampled(number: int, seed: int, length: int, temperature: float) -> list[int]:
    """Continue a prompt by the inverse of the cumulative distribution, in token order."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(4, number)))
    text = list(encoded(TEXTS[number]))
    for _ in range(length):
        heated = laws(text)[0] ** (1 / temperature)
        sums = np.cumsum(heated / heated.sum())
        text.append(int(np.searchsorted(sums, rng.random() * sums[-1], side="right")))
    return text


def test_samples_are_drawn_from_the_target(folder):
    options = "--sample --max-new-tokens 6 --temperature 0.7 --seed 3"
    printed(call(f"{SMALL} {options}"))
    rows = columns(folder / "out")
    texts = {number: sampled(number, 3, 6, 0.7) for number in range(3)}
    assert not any(embedded_pair().vocabulary.eos_token_id in text for text in texts.values())
    expected = [(k, len(encoded(TEXTS[k])) - 1 + step) for k in range(3) for step in range(6)]
    assert list(zip(rows["text"], rows["token"], strict=True)) == expected
    assert_laws(rows, texts, 5)
    texts = {number: sampled(number, 4, 6, 0.7) for number in range(3)}
    with pytest.raises(AssertionError):
        assert_laws(rows, texts, 5)


def test_samples_are_those_of_the_seed(folder):
    options = "--sample --max-new-tokens 6"
    for name, more in {"a": "", "b": "--seed 0", "c": "--seed 1"}.items():
        printed(call(f"{name} --prompts p.txt --top-k 5 {options} {more}"))
    assert content(folder / "a") == content(folder / "b")
    assert columns(folder / "a") != columns(folder / "c")


# --- going on ------------------------------------------------------------------------------------

PAUSES = {
    "between shards": (CaptureWriter, "write_shard"),
    "in a shard": (runs, "captured_position"),
}


def interrupt(monkeypatch: pytest.MonkeyPatch, place: tuple[Any, str], times: int) -> None:
    """Have a function stop everything when it is called once more than `times`."""
    owner, name = place
    original, left = getattr(owner, name), [times]

    def count(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(owner, name, count)


@pytest.mark.parametrize(
    "options", ["", "--sample --max-new-tokens 5 --seed 2"], ids=["", "sample"]
)
@pytest.mark.parametrize(
    ("place", "times", "shards"),
    [
        ("between shards", 0, 0),
        ("between shards", 1, 1),
        ("between shards", 3, 3),
        ("in a shard", 2, 0),
        ("in a shard", 11, 2),
    ],
)
def test_an_interrupted_capture_goes_on_to_the_same_bytes(
    folder, monkeypatch, place, times, shards, options
):
    command = f"--prompts p.txt --top-k 5 --positions-per-shard 4 {options}"
    printed(call(f"whole {command}"))
    with monkeypatch.context() as patched:
        interrupt(patched, PAUSES[place], times)
        result = call(f"out {command}")
    assert (result.exit_code, result.stderr) == (130, "mdsd: interrupted\n")
    assert len(list((folder / "out").glob("shard-*"))) == shards
    # What a writer leaves that was killed.
    (folder / f"out/.shard-{shards:05d}.parquet.77.tmp").write_bytes(b"PAR1")
    said = printed(call(f"out {command}"))
    assert content(folder / "out") == content(folder / "whole")
    if shards:
        total = read_capture(folder / "whole").num_positions
        assert f"{total - 4 * shards} of them new" in said


@pytest.mark.parametrize("more", ["", "--positions 8", "--positions-per-shard 1"])
@pytest.mark.parametrize("options", ["", "--sample --max-new-tokens 4"], ids=["", "sample"])
def test_a_complete_capture_is_left_alone(folder, monkeypatch, options, more):
    command = f"{SMALL} --positions-per-shard 4 {options} {more}"
    first = printed(call(command))
    before = content(folder / "out")
    monkeypatch.setattr(CaptureWriter, "write_shard", lambda *_: pytest.fail("written"))
    monkeypatch.setattr(runs, "captured_position", lambda *_: pytest.fail("captured"))
    again = printed(call(command))
    assert again.splitlines()[0] == first.splitlines()[0] + "; complete, nothing left to do"
    assert again.splitlines()[1:] == first.splitlines()[1:]
    assert content(folder / "out") == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--top-k 6", ["top_k is 5 and not 6"]),
        ("--top-k 0", ["top_k is 5 and not None"]),
        ("--positions 9", ["settings positions is None and not 9"]),
        ("--min-context 2", ["settings min_context is 1 and not 2"]),
        ("--positions-per-shard 5", ["positions_per_shard is 4 and not 5"]),
        ("--sample", ["settings sample is False and not True"]),
        ("--prompts other.txt", ["prompts name is 'p.txt' and not 'other.txt'"]),
        ("--prompts sub/p.txt", ["prompts sha256"]),
    ],
)
def test_another_command_is_refused(folder, options, words):
    command = f"{SMALL} --positions-per-shard 4"
    printed(call(command))
    before = content(folder / "out")
    (folder / "other.txt").write_text(PROMPTS)
    (folder / "sub").mkdir()
    (folder / "sub/p.txt").write_text(PROMPTS + "!")
    assert_refused(call(f"{command} {options}"), "out: holds another capture", *words)
    assert content(folder / "out") == before


def test_seed_does_not_matter_where_nothing_is_drawn(folder):
    printed(call(SMALL))
    assert "nothing left to do" in printed(call(f"{SMALL} --seed 5"))


def test_a_killed_process_loses_one_shard_at_most(folder):
    # Enough prompts that the process is far from its end when it is killed.
    (folder / "long.txt").write_text(
        "\n\n".join(f"{text} {k}" for k in range(50) for text in TEXTS)
    )
    command = ["capture", "--prompts", "long.txt", "--top-k", "50", "--positions-per-shard", "16"]
    environment = os.environ | {"PYTHONPATH": commands.PACKAGES}
    killed = 0
    for wanted in (2, 14):
        process = subprocess.Popen(
            [sys.executable, "-m", "mdsd", *command, "out"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        patience = time.monotonic() + 60
        while not (folder / f"out/shard-{wanted:05d}.parquet").exists():
            assert process.poll() is None
            assert time.monotonic() < patience
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait(commands.LIMIT)
        shards = len(list((folder / "out").glob("shard-*.parquet")))
        assert wanted < shards
        assert read_capture(folder / "out").num_positions == 16 * shards
        killed = shards
    said = printed(commands.run(" ".join([*command, "out"])))
    printed(commands.run(" ".join([*command, "whole"])))
    total = read_capture(folder / "whole").num_positions
    assert total > 16 * killed
    assert f"{total - 16 * killed:,} of them new" in said
    assert content(folder / "out") == content(folder / "whole")


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", ["FOLDER"]),
        ("file", ["file: cannot be a folder"]),
        ("file/sub", ["file/sub: cannot be a folder"]),
        ("full", ["full: holds 'notes.txt', no part of a capture"]),
        ("new --target models --prompts p.txt", ["draft_model is missing", "both models or none"]),
        ("new --draft-model models --prompts p.txt", ["target is missing"]),
        ("new --target models --draft-model models", ["prompts is missing", ".jsonl"]),
        ("new --target no --draft-model no --prompts p.txt", ["'no'", "no folder"]),
        ("new --prompts no.txt", ["no.txt: No such file"]),
        ("new --prompts sub.txt", ["sub.txt: Is a directory"]),
        ("new --prompts p.csv", ["p.csv: expected a name that ends in .txt or .jsonl"]),
        ("new --prompts blank.txt", ["blank.txt: holds no prompt"]),
        ("new --prompts blank.jsonl", ["blank.jsonl: holds no prompt"]),
        ("new --prompts latin.txt", ["latin.txt: line 3: is not UTF-8"]),
        ("new --prompts accent.txt", ["accent.txt: line 3", "'é'"]),
        ("new --prompts cut.jsonl", ["cut.jsonl: line 2: is not JSON"]),
        ("new --prompts list.jsonl", ["list.jsonl: line 1: expected an object", "text or prompt"]),
        ("new --prompts none.jsonl", ["none.jsonl: line 2: expected an object"]),
        ("new --prompts number.jsonl", ["number.jsonl: line 1", "a string"]),
        ("new --prompts half.jsonl", ["half.jsonl: line 1: holds what is no Unicode text"]),
        ("new --prompts p.txt --min-context 99", ["of 100 tokens", "min_context 99", "longest"]),
        ("new --prompts p.txt --min-context 0", ["min_context is 0"]),
        ("new --prompts p.txt --positions 0", ["positions is 0"]),
        ("new --prompts p.txt --positions-per-shard 0", ["positions_per_shard is 0"]),
        ("new --prompts p.txt --top-k -2", ["top_k is -2"]),
        ("new --prompts p.txt --seed -1", ["seed is -1"]),
        ("new --prompts p.txt --temperature 0.5", ["temperature is 0.5", "sample"]),
        ("new --prompts p.txt --max-new-tokens 5", ["max_new_tokens is 5", "sample"]),
        ("new --prompts p.txt --sample --temperature -1", ["temperature is -1"]),
        ("new --prompts p.txt --sample --max-new-tokens 0", ["max_new_tokens is 0"]),
        ("new --prompts p.txt --top-k many", ["--top-k", "'many'"]),
        ("new --bogus", ["--bogus"]),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(folder, arguments, words):
    (folder / "file").write_text("old")
    for name in ("full", "models", "sub.txt"):
        (folder / name).mkdir()
    (folder / "full/notes.txt").write_text("mine")
    files: dict[str, bytes] = {
        "blank.txt": b"\n \n\t\n",
        "blank.jsonl": b'\n{"text": "  "}\n',
        "latin.txt": b"One.\n\nCaf\xe9\n",
        "accent.txt": "One.\n\nCafé\n".encode(),
        "cut.jsonl": b'{"text": "One."}\n{"text": "Tw',
        "list.jsonl": b'["text"]\n',
        "none.jsonl": b'{"text": "One."}\n{"id": 3}\n',
        "number.jsonl": b'{"text": 3}\n',
        "half.jsonl": b'{"text": "\\ud800"}\n',
        "p.csv": b"One.\n",
    }
    for name, text in files.items():
        (folder / name).write_bytes(text)
    before = sorted(folder.rglob("*"))
    assert_refused(call(arguments), *words)
    assert sorted(folder.rglob("*")) == before
    assert (folder / "file").read_text() == "old"


def test_a_full_disk_leaves_whole_shards(folder, monkeypatch):
    command = f"{SMALL} --positions-per-shard 4"
    original, left = os.fsync, [4]

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        original(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        result = call(command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "No space left on device" in result.stderr
    assert [path for path in (folder / "out").iterdir() if path.suffix == ".tmp"] == []
    printed(call(command))
    printed(call(f"whole {command.removeprefix('out ')}"))
    assert content(folder / "out") == content(folder / "whole")


def test_a_damaged_shard_is_named(folder):
    command = f"{SMALL} --positions-per-shard 4"
    printed(call(command))
    shard = folder / "out/shard-00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-20])
    before = content(folder / "out")
    assert_refused(call(command), "shard-00001.parquet")
    assert content(folder / "out") == before


def test_positions_are_only_computed_once(folder, monkeypatch):
    """A capture that goes on does not record again what is there."""
    command = f"{SMALL} --positions-per-shard 4"
    with monkeypatch.context() as patched:
        interrupt(patched, PAUSES["between shards"], 2)
        call(command)
    counted = []
    original = capturing_positions.captured_position
    monkeypatch.setattr(
        runs, "captured_position", lambda *given: counted.append(given[:2]) or original(*given)
    )
    printed(call(command))
    assert len(counted) == read_capture(folder / "out").num_positions - 8


# --- more positions ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", "--sample --max-new-tokens 7"], ids=["", "sample"])
@pytest.mark.parametrize("size", [1, 4, 100], ids="shards of {}".format)
@pytest.mark.parametrize(
    ("steps", "end"), [([5, 9], "9"), ([4, 8, 11], "11"), ([3], None), ([1, 2, 3], "3")]
)
def test_an_extended_capture_has_the_bytes_of_one_made_at_once(folder, steps, end, size, options):
    command = f"--prompts p.txt --top-k 5 --positions-per-shard {size} {options}"
    told = [printed(call(f"out {command} --positions {count}")) for count in steps]
    if end is None:
        told.append(printed(call(f"out {command}")))
    printed(call(f"whole {command}" + (f" --positions {end}" if end else "")))
    assert content(folder / "out") == content(folder / "whole")
    if len(steps) == 2:
        assert told[1].startswith("out: 9 positions, 4 of them new, ")


@pytest.mark.parametrize("times", [1, 2, 3])
def test_an_extension_that_was_interrupted_goes_on(folder, monkeypatch, times):
    command = "--prompts p.txt --top-k 5 --positions-per-shard 4"
    printed(call(f"out {command} --positions 6"))
    with monkeypatch.context() as patched:
        interrupt(patched, PAUSES["in a shard"], times)
        assert call(f"out {command} --positions 14").exit_code == 130
    assert read_capture(folder / "out").num_positions >= 6
    printed(call(f"out {command} --positions 14"))
    printed(call(f"whole {command} --positions 14"))
    assert content(folder / "out") == content(folder / "whole")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--positions 5", ["settings positions is 6 and not 5"]),
        ("--positions 9 --top-k 6", ["top_k is 5 and not 6"]),
        ("--positions 9 --min-context 2", ["settings min_context is 1 and not 2"]),
        ("--positions 9 --sample", ["settings sample is False and not True"]),
        ("--positions 9 --prompts other.txt", ["prompts name is 'p.txt' and not 'other.txt'"]),
    ],
)
def test_an_extension_with_other_settings_is_refused(folder, options, words):
    printed(call(f"{SMALL} --positions 6"))
    (folder / "other.txt").write_text(PROMPTS)
    before = content(folder / "out")
    assert_refused(call(f"{SMALL} {options}"), "out: holds another capture", *words)
    assert content(folder / "out") == before
