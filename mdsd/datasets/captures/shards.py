"""One shard of a capture: a parquet file, written whole, read a row group at a time."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mdsd._arguments import one_line, row_name
from mdsd._files import new_file, os_errors, path_name
from mdsd._typing import AnyArray, IntArray
from mdsd.datasets.captures.header import (
    CaptureHeader,
    check_same_header,
    header_from_json,
    header_to_json,
    of_shards,
)
from mdsd.datasets.captures.rows import (
    CaptureRows,
    check_rows,
    is_list,
    logprob_columns,
    mass_columns,
    select,
)
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, MdsdError

GROUP_NUMBERS = 2_000_000
"""About how many numbers a table of one row group has, and so what a reader holds at a time."""

_HEADER_KEY, _CONTENT_KEY = b"mdsd.header", b"mdsd.content"
_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Shard:
    """A shard whose footer and columns are as they should be.

    Attributes
    ----------
    path : path
    size : int
        In bytes.
    footer : str
        SHA-256 of the footer, which holds one of the content.
    first_position : int
        Number, in the capture, of the first row.
    group_sizes : tuple of int
        Rows of each row group.
    """

    path: Path
    size: int
    footer: str
    first_position: int
    group_sizes: tuple[int, ...]

    @property
    def num_positions(self) -> int:
        """Number of rows."""
        return sum(self.group_sizes)


# --- writing -------------------------------------------------------------------------------------


def write_shard(
    path: Path,
    rows: CaptureRows,
    header: CaptureHeader,
    first_position: int,
    *,
    replacing: bool = False,
) -> None:
    """Write rows that were checked; see `mdsd.datasets.captures` for the columns.

    Raises
    ------
    InvalidArgumentError
        If the file is there, unless it is to be replaced, or cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    num_drafts = len(header.draft_models)
    position = np.arange(first_position, first_position + len(rows), dtype=np.int64)
    ids = rows.columns["token_ids"].astype(np.int32, copy=False)
    rows = replace(rows, columns={"position": position, **rows.columns, "token_ids": ids})
    metadata = {_HEADER_KEY: header_to_json(of_shards(header)), _CONTENT_KEY: _digest(rows)}
    schema = _schema(num_drafts).with_metadata(metadata)
    options = {
        "compression": "zstd",
        "use_dictionary": False,
        # Half the size of plain numbers, and no slower to read.
        "column_encoding": {
            "token_ids.list.element": "DELTA_BINARY_PACKED",
            **{f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in logprob_columns(num_drafts)},
        },
        "write_page_checksum": True,
    }
    with (
        new_file(path, replacing=replacing) as stream,
        pq.ParquetWriter(stream, schema, **options) as writer,
    ):
        for start, stop in _groups(rows.offsets):
            group = select(rows, start, stop)
            offsets = pa.array(group.offsets.astype(np.int32))
            arrays = [
                pa.ListArray.from_arrays(offsets, pa.array(values), type=schema.field(name).type)
                if is_list(name)
                else pa.array(values)
                for name, values in group.columns.items()
            ]
            table = pa.Table.from_arrays(arrays, schema=schema)
            writer.write_table(table, row_group_size=stop - start)


def _schema(num_drafts: int) -> Any:
    import pyarrow as pa

    def lists(kind: Any) -> Any:
        return pa.list_(pa.field("element", kind, nullable=False))

    types = {
        "position": pa.int64(),
        "text": pa.int64(),
        "token": pa.int64(),
        "token_ids": lists(pa.int32()),
        **{column: lists(pa.float32()) for column in logprob_columns(num_drafts)},
        **{column: pa.float64() for column in mass_columns(num_drafts)},
    }
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in types.items()])


def _digest(rows: CaptureRows) -> str:
    """SHA-256 of what a shard holds, so that no two differ in their pages only."""
    digest = hashlib.sha256()
    for values in (rows.offsets, *rows.columns.values()):
        digest.update(np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<")).data)
    return digest.hexdigest()


def _groups(offsets: IntArray) -> Iterator[tuple[int, int]]:
    """Cut rows into groups of at most `GROUP_NUMBERS` numbers, or of one row."""
    start = 0
    while start < len(offsets) - 1:
        most = offsets[start] + GROUP_NUMBERS
        stop = max(int(np.searchsorted(offsets, most, side="right")) - 1, start + 1)
        yield start, stop
        start = stop


# --- reading -------------------------------------------------------------------------------------


def open_shard(path: Path, header: CaptureHeader, first_position: int) -> Shard:
    """Check the footer, the columns and the numbers of the rows of a shard.

    Raises
    ------
    InvalidDistributionError
        If it cannot be read.
    InvalidArgumentError
        If it belongs to another capture or another place in this one, or lacks a column.
    """
    where = path_name(path)
    size, footer = _footer(path)
    with _opened(path) as file:
        metadata = file.metadata.metadata or {}
        if _HEADER_KEY not in metadata:
            raise InvalidArgumentError(
                f"{where}: is not a shard of a capture: it has no mdsd.header"
            )
        found = header_from_json(metadata[_HEADER_KEY], where)
        check_same_header(of_shards(found), of_shards(header), where, "the capture")
        _check_schema(file.schema_arrow, len(header.draft_models), where)
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        counts, num_rows = tuple(group.num_rows for group in groups), file.metadata.num_rows
        numbers = file.read(columns=["position"], use_threads=False).column("position")
        position = _numbers(numbers, where, "position")
    if not counts or min(counts) == 0:
        raise InvalidDistributionError(f"{where}: holds a row group without rows")
    if sum(counts) != num_rows:
        raise InvalidDistributionError(
            f"{where}: has {sum(counts)} rows in its row groups, but {num_rows} in all"
        )
    _check_position(position, first_position, num_rows, where)
    return Shard(path, size, footer, first_position, counts)


def read_group(shard: Shard, group: int, header: CaptureHeader) -> CaptureRows:
    """Read and check the rows of one row group.

    Raises
    ------
    InvalidArgumentError
        If the file is no longer the one that was opened, or ids, masses or numbers are wrong.
    InvalidDistributionError
        If it cannot be read, or holds something other than distributions.
    """
    where = path_name(shard.path)
    if _footer(shard.path) != (shard.size, shard.footer):
        raise InvalidArgumentError(f"{where}: has changed since it was opened")
    names = _schema(len(header.draft_models)).names
    with _opened(shard.path) as file:
        table = file.read_row_group(group, columns=names, use_threads=False)
    first_row, num_rows = sum(shard.group_sizes[:group]), shard.group_sizes[group]
    columns: dict[str, AnyArray] = {}
    columns["token_ids"], offsets = _lists(table.column("token_ids"), where, "token_ids")
    for name in names:
        if not is_list(name):
            columns[name] = _numbers(table.column(name), where, name)
        elif name != "token_ids":
            columns[name], found = _lists(table.column(name), where, name)
            if not np.array_equal(found, offsets):
                lengths, other = np.diff(offsets), np.diff(found)
                row = int(np.flatnonzero(lengths != other)[0])
                raise InvalidDistributionError(
                    f"{where}: {row_name(name, [first_row + row])} has {other[row]} entries, "
                    f"but token_ids has {lengths[row]}"
                )
    _check_position(columns["position"], shard.first_position + first_row, num_rows, where)
    rows = CaptureRows(offsets, columns)
    check_rows(rows, header.vocab_size, where, first_row)
    return rows


def _footer(path: Path) -> tuple[int, str]:
    """Size of a file, and SHA-256 of its footer."""
    with os_errors(path) as where, path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - 8, 0))
        length, magic = struct.unpack("<I4s", stream.read(8).rjust(8, b"\0"))
        if magic != _MAGIC or length + 12 > size:
            raise InvalidDistributionError(
                f"{where}: cannot be read: is cut short or not a parquet file"
            )
        stream.seek(size - 8 - length)
        return size, hashlib.sha256(stream.read(length)).hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a parquet file; what cannot be read in the block becomes one error."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = path_name(path)
    try:
        with pq.ParquetFile(str(path), page_checksum_verification=True) as file:
            yield file
    except MdsdError:
        raise
    # Damage shows as any of these: pyarrow's own errors are also OSErrors or ValueErrors.
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise InvalidDistributionError(f"{where}: cannot be read: {one_line(error)}") from None


def _check_schema(schema: Any, num_drafts: int, where: str) -> None:
    import pyarrow as pa

    expected = _schema(num_drafts)
    missing = [name for name in expected.names if name not in schema.names]
    if missing:
        raise InvalidArgumentError(
            f"{where}: has no column {missing[0]}; columns found: {', '.join(schema.names)}"
        )
    for field in expected:
        if schema.names.count(field.name) > 1:
            raise InvalidArgumentError(f"{where}: has the column {field.name} twice")
        found, kind = schema.field(field.name).type, field.type
        # Lists of other writers may call their elements differently.
        same = pa.types.is_list(found) and pa.types.is_list(kind)
        if not (found.value_type == kind.value_type if same else found == kind):
            raise InvalidArgumentError(
                f"{where}: {field.name} holds {one_line(found)}; expected {one_line(field.type)}"
            )


def _check_position(position: IntArray, first: int, count: int, where: str) -> None:
    """Check that rows are numbered on: no shard is a copy of another, or has another's name."""
    expected = np.arange(first, first + count)
    if len(position) != count:
        raise InvalidDistributionError(
            f"{where}: position has {len(position)} rows; its footer says {count}"
        )
    wrong = np.flatnonzero(position != expected)
    if len(wrong):
        row = int(wrong[0])
        raise InvalidArgumentError(
            f"{where}: {row_name('position', [row])} is {position[row]}; expected {expected[row]}"
        )


def _numbers(column: Any, where: str, name: str) -> AnyArray:
    """Read a column of numbers."""
    _refuse_nulls(column, where, name)
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False))


def _lists(column: Any, where: str, name: str) -> tuple[AnyArray, IntArray]:
    """Read a column of lists: all of them end to end, and where each begins and the last ends."""
    import pyarrow as pa

    _refuse_nulls(column, where, name)
    # One chunk unless a group has 2**31 numbers.
    lists = pa.concat_arrays(column.chunks)
    values = lists.flatten()
    _refuse_nulls(values, where, name)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return values.to_numpy(), offsets - offsets[0]


def _refuse_nulls(values: Any, where: str, name: str) -> None:
    if values.null_count:
        raise InvalidDistributionError(f"{where}: {name} has missing values")
