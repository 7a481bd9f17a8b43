"""Bad input of captures."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, MdsdError

from .rows import Row, Values, rows
from .values import COUNTS, INF, MATRIX, NAN, NOT_NUMBERS, NotConvertible, P, written

HEADER: dict[str, Any] = {
    "target": "large",
    "draft_models": ("small",),
    "vocab_size": 3,
    "tokenizer_hash": "77",
    "top_k": 2,
    "provenance": {},
}
LOGS = np.log([0.5, 0.25])
POSITION = mdsd.datasets.CapturedPosition(0, 0, [1, 2], LOGS, [LOGS], 0.75, [0.75])


def write_positions(positions: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        header = mdsd.datasets.CaptureHeader(**HEADER)
        mdsd.datasets.CaptureWriter(folder, header).write_shard(positions)


def extend_by(positions: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = mdsd.datasets.CaptureWriter(folder, mdsd.datasets.CaptureHeader(**HEADER))
        writer.write_shard([POSITION])
        writer.extend_shard(positions)


def capture_rows() -> Iterator[list[Row]]:
    yield from capture_header_rows()
    yield from captured_position_rows()
    paths: Values = {
        "none": (None, "None"),
        "number": (3, "3"),
        "bytes": (b"mine", "bytes"),
        "null_byte": ("a\0b", "null"),
        "file": (__file__, __file__),
    }
    writer, header = mdsd.datasets.CaptureWriter, mdsd.datasets.CaptureHeader(**HEADER)
    more: Values = {**paths, "foreign": (".", "no part of a capture")}
    call = "datasets.CaptureWriter"
    yield rows(call, "folder", lambda v: writer(v, header), InvalidArgumentError, more, named="")
    wrong: Values = {"none": (None, "NoneType"), "dict": (HEADER, "dict", "CaptureHeader")}
    yield rows(call, "header", lambda v: writer("no", v), InvalidArgumentError, wrong)
    positions: Values = {
        "none": (None, "None"),
        "empty": ([], "[]"),
        "one": (POSITION, "CapturedPosition"),
        "arrays": ([POSITION, LOGS], "row 1", "ndarray"),
    }
    yield rows(f"{call}.write_shard", "positions", write_positions, InvalidArgumentError, positions)
    yield rows(f"{call}.extend_shard", "positions", extend_by, InvalidArgumentError, positions)
    missing: Values = {
        "missing": ("no/such", "no/such", "there is no folder no"),
        "folder": (".", "capture.json"),
        "lines": ("a\nb/c", "there is no folder 'a\\nb'"),
    }
    yield rows(
        "datasets.read_capture",
        "folder",
        mdsd.datasets.read_capture,
        InvalidArgumentError,
        {**paths, **missing},
        named="",
    )
    opened: Values = {
        **{kind: paths[kind] for kind in ("none", "number", "bytes")},
        **missing,
        "null_byte": ("a/\0b", "null"),
        "name": ("smolm2", "data set", "'smollm2'"),
        "npz": ("no/such.npz", "there is no folder no"),
        "arrays": ({"target_probs": [P]}, "dict", "Dataset"),
    }
    call, source = "datasets.open_source", mdsd.datasets.open_source("smollm2")
    yield rows(call, "data", mdsd.datasets.open_source, InvalidArgumentError, opened, named="")
    call = "datasets.Source.read"
    places: Values = {**MATRIX, **written(-1, 1.0, True, "1"), "none": (None, "None")}
    for argument, beyond, run in (
        ("start", 3, lambda v: source.read(v, 3)),
        ("stop", 145, lambda v: source.read(0, v)),
    ):
        values = {**places, **written(beyond)}
        yield rows(call, argument, run, InvalidArgumentError, values)


def capture_header_rows() -> Iterator[list[Row]]:
    texts: Values = {"none": (None, "None"), "empty": ("", "''"), "number": (3, "3")}
    tables: dict[str, Values] = {
        "target": texts,
        "tokenizer_hash": texts,
        "draft_models": {
            "none": (None, "None"),
            "string": ("small", "'small'"),
            "empty": ((), "()"),
            "number": ([3], "3"),
            "repeated": (["a", "a"], "'a'"),
            "comma": (["a,b"], "a,b"),
            "lines": (["a\nb"], r"a\nb"),
            "spaces": ([" a"], "' a'"),
        },
        "vocab_size": COUNTS,
        "top_k": {kind: COUNTS[kind] for kind in COUNTS if kind != "none"},
        "provenance": {
            "none": (None, "None"),
            "list": ([1], "[1]"),
            "nan": ({"a": NAN},),
            "array": ({"a": np.zeros(2)}, "ndarray"),
        },
    }
    for argument, values in tables.items():
        yield rows(
            "datasets.CaptureHeader",
            argument,
            lambda v, a=argument: mdsd.datasets.CaptureHeader(**{**HEADER, a: v}),
            InvalidArgumentError,
            values,
        )


def captured_position_rows() -> Iterator[list[Row]]:
    numbers: Values = {**MATRIX, **written(-1, 1.0, True, "1"), "none": (None, "None")}
    masses: Values = {**written(-0.5, 1.5), "nan": (NAN, "nan"), "inf": (INF, "inf")}
    logs: Values = {
        **{kind: NOT_NUMBERS[kind] for kind in NOT_NUMBERS if kind not in ("ragged",)},
        "ragged": ([[0.2], [0.5, 0.3]],),
        "scalar": (-0.5, "()"),
        "too_short": ([-0.5], "(1,)"),
        "too_long": ([-0.5, -1.0, -2.0], "(3,)"),
    }
    tables: dict[str, tuple[type[MdsdError], Values]] = {
        "text": (InvalidArgumentError, numbers),
        "token": (InvalidArgumentError, numbers),
        "token_ids": (
            InvalidArgumentError,
            {
                **{kind: NOT_NUMBERS[kind] for kind in ("none", "strings", "bool", "ragged")},
                "float": ([1.0, 2.0], "float64"),
                "negative": ([-1, 2], "-1"),
                "too_large": ([1, 3], "index 1 is 3", "0 to 2"),
                "beyond_int32": ([1, 2**40], str(2**40)),
                "repeated": ([1, 1], "index 1 is 1 after 1"),
                "falling": ([2, 1], "index 1 is 1 after 2"),
                "scalar": (1, "()"),
                "matrix": ([[1, 2]], "(1, 2)"),
                "not_convertible": (NotConvertible(),),
            },
        ),
        "target_logprobs": (
            InvalidDistributionError,
            {
                **logs,
                "nan": ([NAN, -1.0], "index 0 is nan"),
                "inf": ([-1.0, INF], "index 1 is inf"),
                "positive": ([-1.0, 0.5], "index 1 is 0.5"),
                "masked": ([-INF, -INF], "empty support"),
                "mass": ([-1.0, -2.0], "0.503", "target_kept_mass is 0.75"),
                "matrix": ([LOGS], "(1, 2)"),
            },
        ),
        "draft_logprobs": (
            InvalidDistributionError,
            {
                **logs,
                "vector": (LOGS, "(2,)", "(1, 2)"),
                "two": ([LOGS, LOGS], "(2, 2)", "(1, 2)"),
                "nan": ([[-1.0, NAN]], "draft_logprobs_0", "index 1 is nan"),
                "mass": ([[-1.0, -2.0]], "draft_kept_mass_0 is 0.75"),
            },
        ),
        "target_kept_mass": (
            InvalidArgumentError,
            {**masses, "none": (None, "object"), "string": ("1", "str"), "vector": ([0.75],)},
        ),
        "draft_kept_mass": (
            InvalidArgumentError,
            {
                "negative": ([-0.5], "-0.5"),
                "nan": ([NAN], "nan"),
                "scalar": (0.75, "()"),
                "too_long": ([0.75, 0.75], "(2,)", "(1,)"),
                "none": (None, "object"),
            },
        ),
    }
    for argument, (error, values) in tables.items():
        yield rows(
            "datasets.CapturedPosition",
            argument,
            lambda v, a=argument: write_positions([POSITION, replace(POSITION, **{a: v})]),
            error,
            {kind: (value, "row 1", *words) for kind, (value, *words) in values.items()},
        )


ROWS = [row for made in capture_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
