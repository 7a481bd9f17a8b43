"""Sources: blocks that make up the whole, in memory that does not grow, in any process."""

from __future__ import annotations

import os
import pickle
import shutil
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mdsd import datasets, studies
from mdsd.datasets import Dataset, open_source, read_capture, sources
from mdsd.datasets.captures import shards
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

from ...captures import write_synthetic_capture
from ...commands import assert_refused, report_of, run

P = np.array([[0.5, 0.3, 0.2], [0.4, 0.35, 0.25], [0.1, 0.1, 0.8]])
Q = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.3, 0.3, 0.4]])


def save(path: Path, target: Any = P) -> Path:
    np.savez(path, target_probs=target, draft_probs=[Q, P])
    return path


def capture(folder: Path, positions: int = 11, **options: Any) -> Path:
    usual = {"tokens": 40, "draft_models": ("near", "far"), "positions_per_shard": 4}
    return write_synthetic_capture(folder, positions, **{**usual, **options})


MAKERS: dict[str, Callable[[Path], Any]] = {
    "embedded": lambda folder: "smollm2",
    "npz": lambda folder: str(save(folder / "mine.npz")),
    "npz-path": lambda folder: save(folder / "mine.npz"),
    "capture": lambda folder: str(capture(folder / "mine")),
    "capture-path": lambda folder: capture(folder / "mine"),
    "memory": lambda folder: datasets.read_npz(save(folder / "mine.npz")),
}
STORED = [kind for kind in MAKERS if kind != "memory"]


def whole(data: Any) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if data == "smollm2":
        return datasets.load(data)
    return read_capture(data) if os.path.isdir(data) else datasets.read_npz(data)


@pytest.fixture(params=MAKERS)
def data(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Data of every kind, in blocks of few positions."""
    monkeypatch.setattr(sources, "BLOCK_NUMBERS", 6)
    monkeypatch.setattr(shards, "GROUP_NUMBERS", 120)
    return MAKERS[request.param](tmp_path)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Take an object into another process, as far as it could tell."""

    def take(thing: Any) -> Any:
        taken = pickle.dumps(thing)
        monkeypatch.setattr(sources, "_opened", sources._Opened())
        return pickle.loads(taken)

    return take


def tables(data: Dataset, width: int) -> dict[str, np.ndarray]:
    """Give the arrays of a data set, those of tokens as wide as asked for."""

    def padded(table: np.ndarray, value: float) -> np.ndarray:
        missing = width - table.shape[1]
        return np.pad(table, ((0, 0), (0, missing)), constant_values=value)

    nothing = -np.inf if data.target_kind == "logits" else 0.0
    return {
        "target": padded(data.target_table, nothing),
        **{f"{name}": padded(table, nothing) for name, table in data.draft_tables.items()},
        "ids": padded(data.token_ids, -1),
        "target mass": data.target_kept_mass,
        **{f"{name} mass": masses for name, masses in data.draft_kept_mass.items()},
    }


def assert_same(parts: list[Dataset], expected: Dataset) -> None:
    wide = [tables(part, expected.vocab_size) for part in parts]
    for name, table in tables(expected, expected.vocab_size).items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in wide]), table)


# --- every kind ----------------------------------------------------------------------------------


def test_blocks_make_up_the_whole(data):
    source, expected = open_source(data), whole(data)
    starts, stops = zip(*source.blocks, strict=True)
    assert len(source.blocks) > 1
    assert (starts[0], stops[-1]) == (0, source.num_positions)
    assert starts[1:] == stops[:-1]
    assert_same([source.read(*block) for block in source.blocks], expected)


def test_any_range_can_be_read(data):
    source, expected = open_source(data), whole(data)
    for start, stop in ((0, 1), (1, 3), (0, source.num_positions), (2, 3)):
        part = source.read(np.int64(start), stop)
        wide = tables(part, expected.vocab_size)
        for name, table in tables(expected, expected.vocab_size).items():
            np.testing.assert_array_equal(wide[name], table[start:stop])
        assert not part.target_table.flags.writeable


def test_it_says_what_it_reads(data):
    source, expected = open_source(data), whole(data)
    assert source.name == (data.name if isinstance(data, Dataset) else str(data))
    assert source.num_positions == expected.num_positions
    assert source.draft_models == tuple(expected.draft_tables)
    assert source.provenance == expected.provenance
    assert source.read(0, 1).name == expected.name
    assert len(source.fingerprint) == 64


def test_it_can_be_pickled(data, elsewhere):
    source = open_source(data)
    expected = [source.read(*block) for block in source.blocks]
    taken = elsewhere(source)
    assert (taken.name, taken.fingerprint) == (source.name, source.fingerprint)
    assert (taken.blocks, taken.num_positions) == (source.blocks, source.num_positions)
    for block, part in zip(source.blocks, expected, strict=True):
        assert_same([taken.read(*block)], part)
        assert not taken.read(*block).target_table.flags.writeable


@pytest.mark.parametrize(
    ("start", "stop", "word"),
    [
        (0, 0, "stop is 0"),
        (2, 2, "start is 2"),
        (-1, 2, "start is -1"),
        (0, 10**6, "stop is 1000"),
        (0.0, 1, "start is 0.0"),
        (0, None, "stop is None"),
        (True, 2, "start is True"),
    ],
)
def test_what_is_no_range(data, start, stop, word):
    with pytest.raises(InvalidArgumentError, match=word):
        open_source(data).read(start, stop)


# --- names and paths -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STORED)
def test_only_the_path_is_pickled(tmp_path, kind):
    assert len(pickle.dumps(open_source(MAKERS[kind](tmp_path)))) < 500


@pytest.mark.parametrize("kind", STORED)
def test_a_process_opens_it_once(tmp_path, monkeypatch, kind):
    source = open_source(MAKERS[kind](tmp_path))
    monkeypatch.setattr(sources, "_open", None)
    for _ in range(3):
        assert pickle.loads(pickle.dumps(source)).read(0, 1).num_positions == 1


def test_a_process_keeps_what_it_opened_last(tmp_path):
    paths = [save(tmp_path / f"{number}.npz") for number in range(5)]
    opened = [open_source(path) for path in paths]
    assert len(sources._opened._contents) == sources._opened.MOST
    assert [source.read(0, 1).name for source in opened] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("kind", ["npz", "capture"])
def test_a_relative_path_holds_from_another_folder(tmp_path, monkeypatch, elsewhere, kind):
    path = Path(MAKERS[kind](tmp_path))
    monkeypatch.chdir(tmp_path)
    source = open_source(os.path.join(".", path.name))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    taken = elsewhere(source)
    assert taken.name == f"./{path.name}"
    assert taken.read(0, 1).num_positions == 1


@pytest.mark.parametrize(
    ("path", "message"),
    [("gone.npz", "gone.npz: No such file or directory"), ("mine", r"mine/shard-00000\.parquet: ")],
)
def test_errors_name_the_path_that_was_given(tmp_path, monkeypatch, path, message):
    folder = capture(tmp_path / "mine")
    (folder / "shard-00000.parquet").write_bytes(b"half")
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InvalidArgumentError, InvalidDistributionError), match=f"^{message}"):
        open_source(path)


def test_names_come_before_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    assert open_source("smollm2").num_positions == 144


# --- content -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "embedded"])
def test_fingerprints_are_of_the_content(tmp_path, kind):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = (open_source(MAKERS[kind](tmp_path / name)) for name in "ab")
    assert first.fingerprint == second.fingerprint


def test_other_content_has_another_fingerprint(tmp_path):
    a = datasets.read_npz(save(tmp_path / "a.npz"))
    with pytest.warns(UserWarning, match="target_logits"):
        of_logits = replace(a, target_kind="logits")
    contents = [
        datasets.load("smollm2"),
        save(tmp_path / "a.npz"),
        save(tmp_path / "b.npz", P[::-1]),
        a,
        datasets.read_npz(tmp_path / "b.npz"),
        of_logits,
        capture(tmp_path / "a"),
        capture(tmp_path / "b", seed=1),
        capture(tmp_path / "c", positions_per_shard=5),
        capture(tmp_path / "d", draft_models=("near", "off")),
        capture(tmp_path / "e", positions=10),
    ]
    assert len({open_source(data).fingerprint for data in contents}) == len(contents)


def test_a_file_that_changed_is_refused(tmp_path, elsewhere):
    source = open_source(save(tmp_path / "mine.npz"))
    save(tmp_path / "mine.npz", P[::-1])
    with pytest.raises(InvalidArgumentError, match=r"mine\.npz: has changed since it was opened"):
        elsewhere(source).read(0, 1)


def test_a_capture_that_grew_is_refused(tmp_path, elsewhere):
    source = open_source(capture(tmp_path / "mine"))
    capture(tmp_path / "mine", positions=15)
    assert source.read(0, 11).num_positions == 11  # what is open is still there
    with pytest.raises(InvalidArgumentError, match="mine: has changed since it was opened"):
        elsewhere(source).read(0, 1)
    assert open_source(tmp_path / "mine").num_positions == 15


def test_a_shard_that_changed_is_refused_while_open(tmp_path):
    source = open_source(capture(tmp_path / "mine"))
    other = capture(tmp_path / "other", seed=1)
    shutil.copy(other / "shard-00001.parquet", tmp_path / "mine")
    assert source.read(0, 4).num_positions == 4
    with pytest.raises(InvalidArgumentError, match=r"shard-00001\.parquet: has changed since"):
        source.read(3, 5)


def test_only_the_row_groups_needed_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "GROUP_NUMBERS", 80)
    folder = capture(tmp_path / "mine")
    source = open_source(folder)
    asked = []
    read = shards.read_group
    monkeypatch.setattr(
        "mdsd.datasets.captures.reading.read_group",
        lambda shard, group, header: (
            asked.append((shard.path.stem[-1], group)) or read(shard, group, header)
        ),
    )
    assert source.blocks == ((0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 11))
    source.read(3, 6)
    assert asked == [("0", 1), ("1", 0)]


def test_damage_is_found_where_it_is_read(tmp_path):
    folder = capture(tmp_path / "mine")
    path = folder / "shard-00001.parquet"
    content = bytearray(path.read_bytes())
    content[content.index(b"target_logprobs") // 2] ^= 255  # among the pages
    path.write_bytes(content)
    source = open_source(folder)
    assert source.read(8, 11).num_positions == 3
    with pytest.raises(InvalidDistributionError, match=r"shard-00001\.parquet: cannot be read"):
        source.read(4, 8)


# --- memory --------------------------------------------------------------------------------------


def peak_of_reading(folder: Path, *, keep: bool = False) -> int:
    """Most bytes at a time, of numpy and of pyarrow, while all blocks are read in turn."""
    kept = []
    usual = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counted)
    tracemalloc.start()
    try:
        source = open_source(folder)
        for block in source.blocks:
            part = source.read(*block)
            kept += [part] if keep else []
        return tracemalloc.get_traced_memory()[1] + counted.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)


def test_memory_does_not_grow_with_shards(tmp_path):
    few = capture(tmp_path / "few", 3 * 30, tokens=300, positions_per_shard=30)
    many = capture(tmp_path / "many", 30 * 30, tokens=300, positions_per_shard=30)
    open_source(few).read(0, 1)  # imports count only once
    small, large = peak_of_reading(few), peak_of_reading(many)
    assert small > 4 * 30 * 300 * 8  # the tables of a block: ids, target and two drafts
    assert large < 1.2 * small
    assert peak_of_reading(many, keep=True) > 3 * small


# --- the command line ----------------------------------------------------------------------------


def test_commands_take_a_capture(tmp_path):
    folder = capture(tmp_path / "mine")
    options = "--num-drafts 2 --draft with_replacement"
    (row,) = report_of(f"bound {folder} {options}")["rows"]
    (expected,) = studies.bound(read_capture(folder), num_drafts=[2], drafts=["with_replacement"])
    assert row["bound"] == expected.bound
    assert (row["draft_model"], row["positions"]) == ("near", 11)
    rows = report_of(f"compare {folder} {options} --verifier rrs --draft-model far")["rows"]
    assert [row["draft_model"] for row in rows] == ["far"]
    plan = report_of(f"plan-tree {folder} --budget 3 --positions 2")
    assert plan["settings"]["data"] == str(folder)


def test_commands_refuse_what_is_no_capture(tmp_path):
    folder = capture(tmp_path / "mine")
    (folder / "shard-00001.parquet").write_bytes(b"half")
    assert_refused(run(f"bound {folder}"), "shard-00001.parquet: cannot be read")
    assert_refused(run(f"bound {tmp_path}"), str(tmp_path), "directory without capture.json")
    assert_refused(run(f"bound {tmp_path / 'gone'}"), "gone: No such file")
