"""What a capture writer leaves on the disk: whole shards, and the same bytes every time."""

from __future__ import annotations

import errno
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from mdsd.datasets import CapturedPosition, CaptureHeader, CaptureWriter, read_capture
from mdsd.datasets.captures import shards
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

from ....captures import synthetic_header, synthetic_positions, write_synthetic_capture

HEADER = synthetic_header()
POSITIONS = synthetic_positions(7)
MODELS = ("near", "far")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def write(folder: Path, *sizes: int, header: CaptureHeader = HEADER) -> CaptureWriter:
    """Go on with a capture of `POSITIONS` by shards of these sizes."""
    writer = CaptureWriter(folder, header)
    for size in sizes:
        start = writer.num_positions
        writer.write_shard(POSITIONS[start : start + size])
    return writer


# --- what comes back -----------------------------------------------------------------------------


def test_round_trip_keeps_every_float32(tmp_path):
    positions = synthetic_positions(9, tokens=40, num_drafts=2)
    writer = CaptureWriter(tmp_path / "mine", synthetic_header(draft_models=MODELS))
    writer.write_shard(positions[:4])
    writer.write_shard(positions[4:])
    data = read_capture(tmp_path / "mine")
    assert (data.name, data.target_kind, data.draft_kind) == ("mine", "logits", "logits")
    assert (data.num_positions, data.vocab_size) == (9, 40)
    assert list(data.draft_tables) == list(data.draft_kept_mass) == list(MODELS)
    for row, position in enumerate(positions):
        length = len(position.token_ids)
        np.testing.assert_array_equal(data.token_ids[row, :length], position.token_ids)
        np.testing.assert_array_equal(data.target_table[row, :length], position.target_logprobs)
        assert (data.token_ids[row, length:] == -1).all()
        assert (data.target_table[row, length:] == -np.inf).all()
        assert data.target_kept_mass[row] == position.target_kept_mass
        for model, name in enumerate(MODELS):
            table = data.draft_tables[name]
            np.testing.assert_array_equal(table[row, :length], position.draft_logprobs[model])
            assert (table[row, length:] == -np.inf).all()
            assert data.draft_kept_mass[name][row] == position.draft_kept_mass[model]
    assert len({len(position.token_ids) for position in positions}) > 1
    assert dict(data.provenance) == {
        "made": "at random",
        "target": "target",
        "draft_models": list(MODELS),
        "vocab_size": 50_000,
        "tokenizer_hash": "sha256:synthetic",
        "top_k": 32,
    }


def test_arrays_are_checked_float64_and_read_only(tmp_path):
    data = read_capture(write_synthetic_capture(tmp_path / "mine", 3))
    logits, masses = data.draft_tables["draft"], data.draft_kept_mass["draft"]
    tables = (data.target_table, logits, data.target_kept_mass, masses)
    assert {table.dtype for table in tables} == {np.dtype(np.float64)}
    assert data.token_ids.dtype == np.int64
    assert not any(table.flags.writeable for table in (*tables, data.token_ids))


def test_float64_logs_are_rounded_to_float32(tmp_path):
    logs = np.log([[0.3, 0.7]])
    position = CapturedPosition(0, 0, np.array([0, 1]), logs[0], logs, 1.0, np.array([1.0]))
    CaptureWriter(tmp_path, CaptureHeader("t", ("d",), 2, "77", None)).write_shard([position])
    data = read_capture(tmp_path)
    np.testing.assert_array_equal(data.target_table, logs.astype(np.float32))
    assert (data.target_table != logs).any()


@pytest.mark.parametrize(
    ("ids", "target", "draft", "masses"),
    [
        ([0], [0.0], [0.0], (1.0, 1.0)),
        ([2, 4], [0.0, -np.inf], [-np.inf, 0.0], (1.0, 1.0)),
        ([1, 2], np.float16(np.log([0.5, 0.25])), [-200.0, -300.0], (0.75, 0.0)),
        ([0, 1, 2, 3, 4], [np.log(0.2)] * 5, [-1e300, 0.0, -1e39, -5.0, -9.0], (1.0, 1.0)),
    ],
    ids=["one-token", "disjoint", "tiny-mass", "beyond-float32"],
)
def test_ordinary_extremes(tmp_path, ids, target, draft, masses):
    position = CapturedPosition(0, 0, np.array(ids), target, [draft], masses[0], [masses[1]])
    CaptureWriter(tmp_path, CaptureHeader("t", ("d",), 5, "77", 2)).write_shard([position])
    data = read_capture(tmp_path)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(data.target_table, [np.asarray(target, dtype=np.float32)])
        np.testing.assert_array_equal(data.draft_tables["d"], [np.asarray(draft, dtype=np.float32)])


# --- files ---------------------------------------------------------------------------------------


def test_files_are_as_documented(tmp_path):
    write_synthetic_capture(tmp_path, 5, draft_models=MODELS, positions_per_shard=3)
    assert sorted(contents(tmp_path)) == [
        "capture.json",
        "shard-00000.parquet",
        "shard-00001.parquet",
    ]
    header = json.loads((tmp_path / "capture.json").read_text())
    assert header["draft_models"] == list(MODELS)
    with pq.ParquetFile(tmp_path / "shard-00001.parquet") as file:
        types = {field.name: str(field.type) for field in file.schema_arrow}
        assert json.loads(file.metadata.metadata[b"mdsd.header"]) == header
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
        rows = file.read().to_pylist()
    lists = "list<element: float not null>"
    assert types == {
        "position": "int64",
        "text": "int64",
        "token": "int64",
        "token_ids": "list<element: int32 not null>",
        "target_logprobs": lists,
        "draft_logprobs_0": lists,
        "draft_logprobs_1": lists,
        "target_kept_mass": "double",
        "draft_kept_mass_0": "double",
        "draft_kept_mass_1": "double",
    }
    assert [(row["position"], row["text"], row["token"]) for row in rows] == [(3, 0, 3), (4, 0, 4)]


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1000, [7]), (3 * 16 + 15, [3, 3, 1]), (16, [1] * 7), (1, [1] * 7)],
)
def test_row_groups_hold_so_many_numbers(tmp_path, monkeypatch, most, expected):
    monkeypatch.setattr(shards, "GROUP_NUMBERS", most)
    positions = synthetic_positions(7, tokens=16)
    assert {len(each.token_ids) for each in positions} == {16}
    CaptureWriter(tmp_path, HEADER).write_shard(positions)
    metadata = pq.read_metadata(tmp_path / "shard-00000.parquet")
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    assert [group.num_rows for group in groups] == expected
    whole = read_capture(tmp_path)
    np.testing.assert_array_equal(whole.token_ids, [each.token_ids for each in positions])


def test_resumed_capture_has_the_same_bytes(tmp_path):
    write(tmp_path / "whole", 3, 2, 2)
    write(tmp_path / "parts", 3)
    (tmp_path / "parts" / ".shard-00001.parquet.4321.tmp").write_bytes(b"PAR1 half")
    later = write(tmp_path / "parts", 2)
    assert (later.num_shards, later.num_positions) == (2, 5)
    write(tmp_path / "parts", 2)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


def test_equal_headers_are_the_same_bytes(tmp_path):
    there, here = {"a": 1, "b": [2, {"c": None}]}, {"b": (2, {"c": None}), "a": 1}
    for folder, provenance in (("there", there), ("here", here)):
        write(tmp_path / folder, 3, header=replace(HEADER, provenance=provenance))
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    write(tmp_path / "there", header=replace(HEADER, provenance=here))


def test_headers_can_be_pickled_and_hashed():
    header = replace(HEADER, provenance={"texts": ["a", {"b": 1}]})
    taken = pickle.loads(pickle.dumps(header))
    assert taken == header != HEADER
    assert hash(taken) == hash(header)
    with pytest.raises(TypeError):
        taken.provenance["texts"] = []


def test_temporary_files_are_not_read_and_not_kept(tmp_path):
    write(tmp_path, 3)
    before = contents(tmp_path)
    for name in (".shard-00001.parquet.17.tmp", ".capture.json.9.tmp"):
        (tmp_path / name).write_bytes(b"half")
    assert read_capture(tmp_path).num_positions == 3
    assert len(contents(tmp_path)) == 4
    CaptureWriter(tmp_path, HEADER)
    assert contents(tmp_path) == before


def test_a_folder_with_a_temporary_header_only_is_begun_again(tmp_path):
    (tmp_path / ".capture.json.9.tmp").write_bytes(b"{")
    write(tmp_path, 3)
    assert read_capture(tmp_path).num_positions == 3


def test_of_two_writers_the_later_is_refused(tmp_path):
    first, second = write(tmp_path), write(tmp_path)
    first.write_shard(POSITIONS[:3])
    before = contents(tmp_path)
    with pytest.raises(InvalidArgumentError, match=r"shard-00000\.parquet: is there already"):
        second.write_shard(POSITIONS[3:5])
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["fsync", "link"])
def test_a_shard_that_cannot_be_finished_leaves_nothing(tmp_path, monkeypatch, name):
    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = write(tmp_path, 3)
    before = contents(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, name, fail)
        with pytest.raises(InvalidArgumentError, match=r"shard-00001\.parquet: cannot .* No space"):
            writer.write_shard(POSITIONS[3:5])
    assert contents(tmp_path) == before
    assert (writer.num_shards, writer.num_positions) == (1, 3)
    writer.write_shard(POSITIONS[3:5])
    assert read_capture(tmp_path).num_positions == 5


def test_refused_positions_leave_nothing(tmp_path):
    writer = write(tmp_path, 3)
    before = contents(tmp_path)
    bad = replace(POSITIONS[4], target_kept_mass=float("nan"))
    with pytest.raises(InvalidArgumentError, match="target_kept_mass row 1 is nan"):
        writer.write_shard([POSITIONS[3], bad])
    assert contents(tmp_path) == before


# --- folders that are refused --------------------------------------------------------------------


def refused(folder: Path, *words: str, header: CaptureHeader = HEADER) -> None:
    """Check that no writer takes a folder, and that it stays as it is."""
    before = contents(folder)
    with pytest.raises((InvalidArgumentError, InvalidDistributionError)) as caught:
        CaptureWriter(folder, header)
    message = str(caught.value)
    assert [word for word in (str(folder), *words) if word not in message] == []
    assert len(message.splitlines()) == 1
    assert contents(folder) == before


def test_refused_notices_a_folder_that_is_taken(tmp_path):
    with pytest.raises(pytest.fail.Exception):
        refused(tmp_path)


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "shard-0.parquet", ".notes.1.tmp"])
def test_foreign_files(tmp_path, name):
    (tmp_path / name).write_text("mine")
    refused(tmp_path, name)
    (tmp_path / name).unlink()
    write(tmp_path, 3)
    (tmp_path / name).write_text("mine")
    (tmp_path / ".shard-00001.parquet.17.tmp").write_text("half")
    refused(tmp_path, name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target", "another"),
        ("draft_models", ("draft", "more")),
        ("vocab_size", 50_001),
        ("tokenizer_hash", "sha256:other"),
        ("top_k", None),
        ("provenance", {"made": "by hand"}),
    ],
)
def test_another_header(tmp_path, field, value):
    write(tmp_path, 3)
    refused(tmp_path, "capture.json", field, header=replace(HEADER, **{field: value}))


def test_a_hole(tmp_path):
    write(tmp_path, 3, 2, 2)
    (tmp_path / "shard-00001.parquet").unlink()
    refused(tmp_path, "shard-00001.parquet: is missing", "shard-00002.parquet")


def test_shards_in_the_wrong_places(tmp_path):
    write(tmp_path, 2, 2)
    first, second = tmp_path / "shard-00000.parquet", tmp_path / "shard-00001.parquet"
    second.write_bytes(first.read_bytes())
    refused(tmp_path, "shard-00001.parquet: position row 0 is 0; expected 2")


@pytest.mark.parametrize("keep", [0, 7, 100, -1, -9, -300])
def test_a_shard_cut_short(tmp_path, keep):
    write(tmp_path, 3, 2)
    path = tmp_path / "shard-00001.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    refused(tmp_path, "shard-00001.parquet: cannot be read")


def test_shards_without_a_header(tmp_path):
    write(tmp_path, 3)
    (tmp_path / "capture.json").unlink()
    refused(tmp_path, "no capture.json")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "JSON"),
        ("[]", "JSON of a capture"),
        ("{}", "JSON of a capture"),
        ('{"format": "mdsd capture", "format_version": 2}', "format_version is 2; expected 1"),
        ('{"format": "mdsd capture", "format_version": 1}', "target is missing"),
        ("\xff", "JSON"),
    ],
    ids=["empty", "list", "object", "version", "fields", "not-text"],
)
def test_a_header_that_is_none(tmp_path, text, word):
    write(tmp_path, 3)
    (tmp_path / "capture.json").write_bytes(text.encode("latin-1"))
    refused(tmp_path, "capture.json", word)


def test_a_header_with_a_bad_value(tmp_path):
    write(tmp_path, 3)
    path = tmp_path / "capture.json"
    path.write_text(path.read_text().replace('"vocab_size": 50000', '"vocab_size": 0'))
    refused(tmp_path, "capture.json: vocab_size is 0")


def test_an_extended_shard_has_the_bytes_of_one_written_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "GROUP_NUMBERS", 150)  # several row groups
    for name, parts in (("once", [7]), ("more", [2, 1, 4])):
        writer = CaptureWriter(tmp_path / name, HEADER)
        start = 0
        for count in parts:
            add = writer.extend_shard if start else writer.write_shard
            add(POSITIONS[start : start + count])
            start += count
        assert (writer.num_shards, writer.num_positions) == (1, 7)
    once, more = (tmp_path / name / "shard-00000.parquet" for name in ("once", "more"))
    assert more.read_bytes() == once.read_bytes()
    with pytest.raises(InvalidArgumentError, match="no shard to be extended"):
        CaptureWriter(tmp_path / "none", HEADER).extend_shard(POSITIONS)
