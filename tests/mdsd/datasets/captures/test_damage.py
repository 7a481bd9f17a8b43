"""Captures that are damaged or do not fit together: one line names file, column and row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mdsd.datasets import CaptureWriter, Dataset, read_capture
from mdsd.datasets.captures.header import header_to_json
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, MdsdError

from ....captures import synthetic_header, synthetic_positions

HEADER = synthetic_header(draft_models=("near", "far"), tokens=8)
NAN, INF = float("nan"), float("inf")
Rows = list[dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A capture of two shards: rows 0 to 3 and 4 to 7."""
    writer = CaptureWriter(tmp_path / "mine", HEADER)
    positions = synthetic_positions(8, tokens=8, num_drafts=2)
    writer.write_shard(positions[:4])
    writer.write_shard(positions[4:])
    return writer.folder


def refused(folder: Path, error: type[MdsdError], *words: str) -> None:
    """Check that a capture is refused by one line that names it, and stays as it is."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(MdsdError) as caught:
        read_capture(folder)
    message = str(caught.value)
    assert caught.type is error, message
    assert [word for word in (str(folder), *words) if word not in message] == [], message
    assert len(message.splitlines()) == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_refused_notices_a_good_capture(folder):
    with pytest.raises(pytest.fail.Exception):
        refused(folder, InvalidArgumentError)


def test_refused_notices_another_message(folder):
    (folder / "capture.json").unlink()
    with pytest.raises(AssertionError):
        refused(folder, InvalidArgumentError, "row 3")


# --- shards that are parquet files, with something wrong in them ---------------------------------


def rewrite(
    folder: Path, change: Callable[[pa.Table], pa.Table], *, number: int = 1, **options: Any
) -> None:
    path = folder / f"shard-{number:05d}.parquet"
    with pq.ParquetFile(path) as file:
        table = change(file.read())
    pq.write_table(table, path, **options)


def with_value(column: str, row: int, value: Any, index: int | None = None) -> Any:
    """Set a value of a column, or an entry of a list in it."""

    def change(table: pa.Table) -> pa.Table:
        values = table.column(column).to_pylist()
        if index is None:
            values[row] = value
        else:
            values[row][index] = value
        place = table.schema.get_field_index(column)
        field = table.schema.field(column)
        if value is None and index is None:
            field = field.with_nullable(True)
        elif value is None:
            field = pa.field(column, pa.list_(field.type.value_type))
        return table.set_column(place, field, pa.array(values, type=field.type))

    return change


def of_type(column: str, kind: Any, convert: Callable[[Any], Any] = lambda value: value) -> Any:
    def change(table: pa.Table) -> pa.Table:
        values = [convert(value) for value in table.column(column).to_pylist()]
        place = table.schema.get_field_index(column)
        return table.set_column(place, column, pa.array(values, type=kind))

    return change


def with_header(**fields: Any) -> Any:
    def change(table: pa.Table) -> pa.Table:
        metadata = dict(table.schema.metadata)
        metadata[b"mdsd.header"] = header_to_json(replace(HEADER, **fields)).encode()
        return table.replace_schema_metadata(metadata)

    return change


COLUMNS = [
    "position",
    "text",
    "token",
    "token_ids",
    "target_logprobs",
    "draft_logprobs_0",
    "draft_logprobs_1",
    "target_kept_mass",
    "draft_kept_mass_0",
    "draft_kept_mass_1",
]

VALUES: dict[str, tuple[Any, type[MdsdError], tuple[str, ...]]] = {
    "nan": (
        with_value("target_logprobs", 2, NAN, 5),
        InvalidDistributionError,
        ("target_logprobs row 2: index 5 is nan",),
    ),
    "inf": (
        with_value("draft_logprobs_1", 0, INF, 0),
        InvalidDistributionError,
        ("draft_logprobs_1 row 0: index 0 is inf",),
    ),
    "positive": (
        with_value("draft_logprobs_0", 3, 0.5, 7),
        InvalidDistributionError,
        ("draft_logprobs_0 row 3: index 7 is 0.5",),
    ),
    "all-masked": (
        with_value("draft_logprobs_0", 1, [-INF] * 8),
        InvalidDistributionError,
        ("draft_logprobs_0 row 1 has empty support",),
    ),
    "another-mass": (
        with_value("target_logprobs", 1, [float(np.log(0.1))] * 8),
        InvalidDistributionError,
        ("target_logprobs row 1 has mass 0.8, but target_kept_mass is 0.9",),
    ),
    "short-list": (
        with_value("draft_logprobs_1", 2, [-1.0] * 7),
        InvalidDistributionError,
        ("draft_logprobs_1 row 2 has 7 entries, but token_ids has 8",),
    ),
    "long-list": (
        with_value("target_logprobs", 0, [-1.0] * 9),
        InvalidDistributionError,
        ("target_logprobs row 0 has 9 entries, but token_ids has 8",),
    ),
    "no-tokens": (
        with_value("token_ids", 3, []),
        InvalidDistributionError,
        ("target_logprobs row 3 has 8 entries, but token_ids has 0",),
    ),
    "repeated-id": (
        with_value("token_ids", 2, [1, 2, 3, 3, 4, 5, 6, 7]),
        InvalidArgumentError,
        ("token_ids row 2: index 3 is 3 after 3", "ascending"),
    ),
    "falling-ids": (
        with_value("token_ids", 0, [1, 0, 3, 4, 5, 6, 7, 8]),
        InvalidArgumentError,
        ("token_ids row 0: index 1 is 0 after 1", "ascending"),
    ),
    "negative-id": (
        with_value("token_ids", 1, -1, 0),
        InvalidArgumentError,
        ("token_ids row 1: index 0 is -1", "0 to 49999"),
    ),
    "large-id": (
        with_value("token_ids", 3, 50_000, 7),
        InvalidArgumentError,
        ("token_ids row 3: index 7 is 50000", "0 to 49999"),
    ),
    "mass-nan": (
        with_value("target_kept_mass", 1, NAN),
        InvalidArgumentError,
        ("target_kept_mass row 1 is nan", "[0, 1]"),
    ),
    "mass-negative": (
        with_value("draft_kept_mass_1", 2, -0.5),
        InvalidArgumentError,
        ("draft_kept_mass_1 row 2 is -0.5",),
    ),
    "mass-above-1": (
        with_value("draft_kept_mass_0", 0, 1.25),
        InvalidArgumentError,
        ("draft_kept_mass_0 row 0 is 1.25",),
    ),
    "text": (with_value("text", 2, -3), InvalidArgumentError, ("text row 2 is -3",)),
    "token": (with_value("token", 0, -1), InvalidArgumentError, ("token row 0 is -1",)),
    "position": (
        with_value("position", 2, 99),
        InvalidArgumentError,
        ("position row 2 is 99; expected 6",),
    ),
    "missing-number": (
        with_value("text", 1, None),
        InvalidDistributionError,
        ("text has missing values",),
    ),
    "missing-list": (
        with_value("target_logprobs", 1, None),
        InvalidDistributionError,
        ("target_logprobs has missing values",),
    ),
    "missing-entry": (
        with_value("draft_logprobs_0", 1, None, 4),
        InvalidDistributionError,
        ("draft_logprobs_0 has missing values",),
    ),
    "rows-left-out": (
        lambda table: table.slice(1),
        InvalidArgumentError,
        ("position row 0 is 5; expected 4",),
    ),
    "no-rows": (
        lambda table: table.slice(0, 0),
        InvalidDistributionError,
        ("row group without rows",),
    ),
    "logs-of-float64": (
        of_type("target_logprobs", pa.list_(pa.float64())),
        InvalidArgumentError,
        ("target_logprobs holds list<", "double", "expected list<element: float not null>"),
    ),
    "numbers-for-lists": (
        of_type("draft_logprobs_1", pa.float32(), lambda value: value[0]),
        InvalidArgumentError,
        ("draft_logprobs_1 holds float",),
    ),
    "ids-of-int64": (
        of_type("token_ids", pa.list_(pa.int64())),
        InvalidArgumentError,
        ("token_ids holds list<", "int64"),
    ),
    "masses-as-text": (
        of_type("target_kept_mass", pa.string(), str),
        InvalidArgumentError,
        ("target_kept_mass holds string; expected double",),
    ),
    "same-column-twice": (
        lambda table: table.append_column("text", table.column("text")),
        InvalidArgumentError,
        ("the column text twice",),
    ),
    "no-header": (
        lambda table: table.replace_schema_metadata({}),
        InvalidArgumentError,
        ("is not a shard of a capture", "mdsd.header"),
    ),
    "header-not-json": (
        lambda table: table.replace_schema_metadata({b"mdsd.header": b"{"}),
        InvalidArgumentError,
        ("not the JSON",),
    ),
    "header-not-text": (
        lambda table: table.replace_schema_metadata({b"mdsd.header": b"\xff\xfe\xfa"}),
        InvalidArgumentError,
        ("not the JSON",),
    ),
    "vocab_size": (
        with_header(vocab_size=32_000),
        InvalidArgumentError,
        ("vocab_size is 32000, but 50000",),
    ),
    "tokenizer_hash": (
        with_header(tokenizer_hash="sha256:other"),
        InvalidArgumentError,
        ("tokenizer_hash is 'sha256:other', but 'sha256:synthetic'",),
    ),
    "target": (
        with_header(target="larger"),
        InvalidArgumentError,
        ("target is 'larger', but 'target'",),
    ),
    "draft_models": (
        with_header(draft_models=("far", "near")),
        InvalidArgumentError,
        ("draft_models is ('far', 'near'), but ('near', 'far')",),
    ),
    "top_k": (with_header(top_k=None), InvalidArgumentError, ("top_k is None, but 4",)),
    "provenance": (with_header(provenance={}), InvalidArgumentError, ("provenance is {}, but",)),
    **{
        f"without-{column}": (
            lambda table, column=column: table.drop_columns([column]),
            InvalidArgumentError,
            (f"has no column {column}; columns found:",),
        )
        for column in COLUMNS
    },
}


@pytest.mark.parametrize("kind", VALUES)
def test_a_shard_with_something_wrong(folder, kind):
    change, error, words = VALUES[kind]
    rewrite(folder, change)
    refused(folder, error, "shard-00001.parquet: ", *words)


def test_a_shard_that_was_rewritten_as_it_is(folder):
    before = read_capture(folder)
    rewrite(folder, lambda table: table, row_group_size=3)
    assert same(read_capture(folder), before)


def test_more_columns_are_nothing_bad(folder):
    before = read_capture(folder)
    rewrite(folder, lambda table: table.append_column("note", [["a"] * 4]))
    assert same(read_capture(folder), before)


# --- bytes ---------------------------------------------------------------------------------------


def same(data: Dataset, other: Dataset) -> bool:
    def tables(each: Dataset) -> list[Any]:
        drafts = [*each.draft_tables.values(), *each.draft_kept_mass.values()]
        return [each.target_table, each.token_ids, each.target_kept_mass, *drafts]

    return all(map(np.array_equal, tables(data), tables(other)))


def flip(path: Path, place: int, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= bit
    path.write_bytes(content)


@pytest.mark.parametrize("column", range(len(COLUMNS)), ids=COLUMNS)
def test_one_bit_of_a_page(folder, column):
    path = folder / "shard-00000.parquet"
    chunk = pq.read_metadata(path).row_group(0).column(column)
    flip(path, chunk.data_page_offset + chunk.total_compressed_size - 1)
    refused(folder, InvalidDistributionError, "shard-00000.parquet: cannot be read", "CRC")


def test_no_bit_changes_what_is_read_unnoticed(folder):
    path, before = folder / "shard-00001.parquet", read_capture(folder)
    content = path.read_bytes()
    rng = np.random.default_rng(7)
    places, bits = rng.integers(len(content), size=120), rng.integers(8, size=120)
    messages = []
    for place, bit in zip(places, bits, strict=True):
        path.write_bytes(content)
        flip(path, place, 1 << bit)
        try:
            data = read_capture(folder)
        except MdsdError as error:
            messages.append(str(error))
        else:
            assert same(data, before), (place, bit)
    assert [text for text in messages if "shard-00001.parquet: " not in text] == []
    assert len(messages) > 50  # the rest are bits that nobody needs


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.6, 0.9, 0.999])
def test_a_shard_cut_short(folder, share):
    path = folder / "shard-00000.parquet"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    refused(folder, InvalidDistributionError, "shard-00000.parquet: cannot be read: is cut short")


@pytest.mark.parametrize("content", [b"no parquet file", b"PAR1" * 3, b"PAR1\0\0\0\0\4\0\0\0PAR1"])
def test_what_is_no_shard(folder, content):
    (folder / "shard-00000.parquet").write_bytes(content)
    refused(folder, InvalidDistributionError, "shard-00000.parquet: cannot be read")


# --- folders -------------------------------------------------------------------------------------


def test_a_hole(folder):
    (folder / "shard-00000.parquet").unlink()
    refused(folder, InvalidArgumentError, "shard-00000.parquet: is missing", "shard-00001.parquet")


def test_a_shard_that_is_a_folder(folder):
    (folder / "shard-00001.parquet").unlink()
    (folder / "shard-00001.parquet").mkdir()
    with pytest.raises(InvalidArgumentError, match=r"shard-00001\.parquet: Is a directory"):
        read_capture(folder)


def test_exchanged_shards(folder):
    first, second = folder / "shard-00000.parquet", folder / "shard-00001.parquet"
    first.rename(folder / "kept")
    second.rename(first)
    (folder / "kept").rename(second)
    refused(folder, InvalidArgumentError, "shard-00000.parquet: position row 0 is 4; expected 0")


def test_no_shards(tmp_path):
    CaptureWriter(tmp_path / "mine", HEADER)
    refused(tmp_path / "mine", InvalidArgumentError, "without any shard")


def test_no_header(folder):
    (folder / "capture.json").unlink()
    refused(folder, InvalidArgumentError, "directory without capture.json")
