"""Bad input of captures that are computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, InvalidTokenError, MdsdError

from .calls import DATA
from .rows import Row, Values, rows
from .values import COUNTS, INF, NAN, TOP_KS, WHOLE_SEEDS, Q, written


def capture_study_rows() -> Iterator[list[Row]]:
    decoding = mdsd.decoding
    table, other = (decoding.TableModel(np.full((size, size), 1 / size)) for size in (3, 2))
    # In no folder at all: what is not refused before is refused there, in other words.
    good: dict[str, Any] = {
        "target": table,
        "draft_models": table,
        "prompts": [[0, 1, 2]],
        "folder": f"{__file__}/captured",
    }
    no_models: Values = {
        "none": (None, "NoneType"),
        "probs": (Q, "list"),
        "class": (decoding.TableModel, "type"),
        "without_logits": (DATA, "Dataset"),
    }
    drafts: Values = {
        **{kind: no_models[kind] for kind in ("none", "class", "without_logits")},
        "empty": ([], "empty"),
        "probs": ([table, Q], "draft_models[1]", "list"),
    }
    texts: Values = {
        "none": (None, "None"),
        "number": (3, "3"),
        "string": ("The", "'The'"),
        "empty": ([], "empty"),
        "short": ([[0], []], "longest has 1"),
    }
    flat: Values = {
        "flat": ([0, 1, 2], "prompts[0]", "()"),
        "too_large": ([[0, 1], [0, 3]], "prompts[1]", "3", "0..2"),
        "floats": ([[0.0, 1.0]], "prompts[0]", "float64"),
        "texts": (["The"], "prompts[0]", "str"),
    }
    folders: Values = {
        "none": (None, "None"),
        "number": (3, "3"),
        "bytes": (b"mine", "bytes"),
        "file": (__file__, "cannot be a folder"),
    }
    labels: Values = {
        "string": ("ab", "'ab'"),
        "number": (3, "3"),
        "few": (["large"], "expected 2"),
        "many": (["a", "b", "c"], "expected 2"),
        "comma": (["large", "a,b"], "'a,b'"),
        "empty": (["", "small"], "''"),
        "not_strings": (["large", 3], "3"),
    }
    vocabularies: Values = {
        "list": (["a", "b"], "['a', 'b']"),
        "not_tokens": ({1: "a"}, "1"),
        "not_ids": ({"a": "b"}, "'b'"),
    }
    ends: Values = {
        "negative": (-1, "-1"),
        "too_large": ([0, 3], "3", "0..2"),
        "float": (0.0, "float64"),
        "empty": ([], "(0,)"),
    }
    sampled = ("max_new_tokens", "temperature", "eos_token_id")
    refused = InvalidArgumentError
    counts = {kind: value for kind, value in COUNTS.items() if kind != "none"}
    heats = {**written(-1.0, "1", True, 1j), "nan": (NAN, "nan"), "inf": (INF, "inf")}
    tables: tuple[tuple[str, type[MdsdError], Values], ...] = (
        ("target", refused, no_models),
        ("draft_models", refused, drafts),
        ("draft_models", InvalidDistributionError, {"other": (other, "mixed", "2")}),
        ("prompts", refused, texts),
        ("prompts", InvalidTokenError, flat),
        ("folder", refused, folders),
        ("names", refused, labels),
        ("vocabulary", refused, vocabularies),
        ("sample", refused, written(1, "yes", None)),
        ("max_new_tokens", refused, counts),
        ("temperature", refused, heats),
        ("eos_token_id", InvalidTokenError, ends),
        ("top_k", refused, TOP_KS),
        ("positions", refused, counts),
        ("min_context", refused, COUNTS),
        ("positions_per_shard", refused, counts),
        ("seed", refused, WHOLE_SEEDS),
        ("progress", refused, {"number": (5, "int"), "string": ("yes", "str")}),
    )
    for parameter, error, values in tables:
        sample = {"sample": True} if parameter in sampled else {}
        yield rows(
            "studies.capture",
            parameter,
            lambda v, p=parameter, more=sample: mdsd.studies.capture(**{**good, **more, p: v}),
            error,
            values,
            named="" if parameter == "folder" else None,
        )


ROWS = [row for made in capture_study_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
