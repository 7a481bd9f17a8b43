"""Bad input of data sets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

from .rows import Row, Values, rows
from .values import INF, NAN, NotConvertible, P, Q, names


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
    yield from array_rows()


def array_rows() -> Iterator[list[Row]]:
    call = "datasets.Dataset.from_arrays"
    laws = {"target_probs": [P, Q], "draft_probs": {"a": [Q, P], "b": [P, P]}}

    def made(name: str, value: Any) -> mdsd.datasets.Dataset:
        side = name.removesuffix("_logits").removesuffix("_probs")
        kept = {key: table for key, table in laws.items() if side == name or side not in key}
        return mdsd.datasets.Dataset.from_arrays(**{**kept, name: value})

    tables: Values = {
        "string": ("abc", "<U3"),
        "strings": ([["0.5"]], "<U3"),
        "bool": ([[True, False]], "bool"),
        "ragged": ([[0.5], [0.5, 0.5]], "array"),
        "not_convertible": (NotConvertible(), "grad"),
        "vector": (P, "(3,)"),
        "empty": (np.zeros((0, 3)), "empty"),
        "nan": ([P, [NAN, 0.5, 0.5]], "row 1", "index 0", "nan"),
        "fewer_positions": ([P], "positions"),
        "fewer_tokens": ([[0.5, 0.5]] * 2, "tokens"),
    }
    for side in ("target", "draft"):
        for kind, law in (
            ("probs", {"mass": ([P, [0.5, 0.5, 0.5]], "row 1", "sums to 1.5")}),
            ("logits", {"masked": ([[-INF] * 3, P], "row 0", "empty support")}),
        ):
            name = f"{side}_{kind}"
            of = partial(made, name)
            yield rows(call, name, of, InvalidDistributionError, {**tables, **law})
            if side == "draft":
                own = f"{name}['a']"
                wrong = {
                    f"of_{k}": ({"a": table}, own, *words) for k, (table, *words) in tables.items()
                }
                yield rows(call, name, of, InvalidDistributionError, wrong)
                unnamed: Values = {
                    "no_models": ({}, "empty"),
                    "comma": ({"a,b": [P, Q]}, "'a,b'"),
                    "number": ({3: [P, Q]}, "3"),
                }
                yield rows(call, name, of, InvalidArgumentError, unnamed)
            missing: Values = {"none": (None, f"needs one of {side}_logits")}
            yield rows(call, name, of, InvalidArgumentError, missing)
    extras: dict[str, Values] = {
        "token_ids": {"shape": ([0, 1, 2], "(3,)"), "float": ([[0.5] * 3] * 2, "float64")},
        "target_kept_mass": {"shape": ([1.0], "(1,)"), "above_one": ([0.5, 1.5], "1.5")},
        "draft_kept_mass": {
            "shape": ([1.0, 1.0], "(2,)"),
            "names": ({"a": [1.0, 1.0]}, "['a']", "['a', 'b']"),
            "below_zero": ({"a": [1.0, 1.0], "b": [1.0, -0.5]}, "-0.5"),
        },
        "text_ids": {"shape": ([0], "(1,)"), "float": ([0.5, 1.5], "float64")},
        "provenance": {"list": ([1], "[1]", "mapping"), "nan": ({"a": NAN}, "JSON")},
        "name": {"number": (3, "3"), "empty": ("", "''"), "lines": ("a\nb", r"a\nb")},
    }
    for name, values in extras.items():
        yield rows(call, name, partial(made, name), InvalidArgumentError, values)


ROWS = [row for made in data_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
