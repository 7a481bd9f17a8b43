"""Bad input of calls on whole batches: every message names the row."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import mdsd
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, InvalidTokenError, MdsdError

from .rows import Row, Values, rows
from .values import (
    COUNTS,
    NOT_NUMBERS,
    PROBS,
    SEED_ROWS,
    SEEDS,
    TOKEN_ROWS,
    TOLERANCES,
    UNIFORM_ROWS,
    P,
    Q,
    names,
)


def batch_rows() -> Iterator[list[Row]]:
    targets, drafts, ids = [P, Q], [Q, P], [[0, 1], [1, 0]]
    second = {
        kind: ([Q, value], "row 1", *words)
        for kind, (value, *words) in PROBS.items()
        if kind in ("nan", "negative", "barely_negative", "inf", "mass_float64", "all_zero")
    }
    matrices: Values = {
        **{kind: PROBS[kind] for kind in NOT_NUMBERS},
        **second,
        "vector": (Q, "(3,)"),
        "empty": ([], "shape"),
        "other_length": ([[0.5, 0.5]] * 2, "2", "3"),
        "other_rows": ([Q, Q, Q], "3", "2"),
    }
    token_rows = {k: v for k, v in TOKEN_ROWS.items() if k != "too_large"}
    token_rows["too_large"] = ([[0, 1], [0, 3]], "row 1", "3")
    usual: dict[str, dict[str, Any]] = {
        "acceptance_bounds": {
            "target_probs": targets,
            "draft_probs": drafts,
            "draft": "with_replacement",
            "num_drafts": 2,
        },
        "acceptance_rates": {
            "target_probs": targets,
            "draft_probs": drafts,
            "draft": "with_replacement",
            "num_drafts": 2,
            "verifier": "rrs",
        },
        "verify_batch": {
            "target_probs": targets,
            "draft_probs": drafts,
            "draft_token_ids": ids,
            "draft": "with_replacement",
            "verifier": "rrs",
        },
    }
    known = names("explict", greddy="'greedy'")
    tables: dict[str, tuple[type[MdsdError], Values]] = {
        "target_probs": (InvalidDistributionError, matrices),
        "draft_probs": (InvalidDistributionError, matrices),
        "draft_token_ids": (InvalidTokenError, token_rows),
        "draft": (InvalidArgumentError, known),
        "num_drafts": (InvalidArgumentError, COUNTS),
        "tolerance": (InvalidArgumentError, TOLERANCES),
        "verifier": (InvalidArgumentError, names("lottery", optmal="'optimal'")),
        "rng": (InvalidArgumentError, SEEDS),
        "uniforms": (InvalidArgumentError, UNIFORM_ROWS),
        "seeds": (InvalidArgumentError, SEED_ROWS),
    }
    for call, arguments in usual.items():
        function = getattr(mdsd, call)
        for parameter in inspect.signature(function).parameters:
            error, values = tables[parameter]
            yield rows(
                call,
                parameter,
                lambda v, f=function, a=arguments, p=parameter: f(**{**a, p: v}),
                error,
                values,
            )


ROWS = [row for made in batch_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
