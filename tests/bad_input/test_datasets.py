"""Bad input of data sets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mdsd
from mdsd.errors import InvalidArgumentError

from .rows import Row, Values, rows
from .values import names


def data_rows() -> Iterator[list[Row]]:
    unknown = {**names("mine", smolm2="smollm2"), "none": (None, "None")}
    yield rows(
        "datasets.load", "name", mdsd.datasets.load, InvalidArgumentError, unknown, named="data set"
    )
    paths: Values = {
        "none": (None, "None"),
        "number": (3, "3"),
        "bytes": (b"mine.npz", "bytes"),
        "list": (["mine.npz"], "mine.npz"),
        "missing": ("no/such.npz", "no/such.npz", "there is no folder no"),
        "folder": (".", ".", "Is a directory"),
        "null_byte": ("a\0b.npz", "null"),
        "lines": ("a\nb.npz", "No such file"),
    }
    yield rows(
        "datasets.read_npz", "path", mdsd.datasets.read_npz, InvalidArgumentError, paths, named=""
    )
    for call, read in (
        ("datasets.read_jsonl", mdsd.datasets.read_jsonl),
        ("datasets.scan_jsonl", mdsd.datasets.scan_jsonl),
    ):
        yield rows(call, "path", read, InvalidArgumentError, paths, named="")


ROWS = [row for made in data_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
