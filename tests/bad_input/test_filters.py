"""Bad input of filters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import mdsd
from mdsd.errors import InvalidArgumentError, InvalidDistributionError

from .rows import Row, Values, rows
from .values import (
    INF,
    MIN_PS,
    NAN,
    NOT_NUMBERS,
    PROBS,
    TEMPERATURES,
    TOP_KS,
    TOP_PS,
    NotConvertible,
    P,
    Q,
    names,
)


def filter_rows() -> Iterator[list[Row]]:
    scores = [[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]]
    logits: Values = {
        **NOT_NUMBERS,
        "nan": ([0.0, NAN, 1.0], "index 1", "nan"),
        "plus_inf": ([0.0, 1.0, INF], "index 2", "inf"),
        "beyond_float64": (np.array(["1e4000", "0"], dtype=np.longdouble), "inf"),
        "all_masked": ([-INF, -INF], "empty support"),
        "empty": ([], "(0,)"),
        "no_tokens": (np.zeros((2, 0)), "(2, 0)"),
        "scalar": (1.0, "()"),
        "rows_nan": ([[0.0, 1.0], [NAN, 0.0]], "row 1", "index 0", "nan"),
        "rows_masked": ([[0.0, 1.0], [-INF, -INF]], "row 1", "empty support"),
        "cube_nan": ([[[0.0, 1.0], [0.0, NAN]]], "row 0, 1", "index 1"),
    }
    call = "probs_from_logits"
    yield rows(call, "logits", mdsd.probs_from_logits, InvalidDistributionError, logits)
    allowed: Values = {
        "negative": ([-1], "-1"),
        "too_large": ([0, 3], "3"),
        "float": ([0.0], "float64"),
        "bool": ([True, False, True], "bool"),
        "string": ("abc", "str"),
        "scalar": (1, "()"),
        "matrix": ([[0, 1]], "(1, 2)"),
        "set": ({0, 1}, "object"),
        "objects": (np.array([0, None]), "object"),
        "ragged": ([[0], [1, 2]],),
        "beyond_int64": ([2**64],),
        "not_convertible": (NotConvertible(),),
    }
    yield rows(
        call,
        "allowed_token_ids",
        lambda ids: mdsd.probs_from_logits(scores, allowed_token_ids=ids),
        InvalidArgumentError,
        allowed,
    )
    none_left: Values = {"empty": ([], "empty support")}
    yield rows(
        call,
        "allowed_token_ids",
        lambda ids: mdsd.probs_from_logits(scores, allowed_token_ids=ids),
        InvalidDistributionError,
        none_left,
        named="row 0",
    )

    probs: Values = {
        **{kind: PROBS[kind] for kind in PROBS if kind not in ("matrix", "scalar")},
        "scalar": (1.0, "()"),
        "no_tokens": (np.zeros((2, 0)), "empty"),
        "rows_nan": ([P, [0.5, NAN, 0.5]], "row 1", "index 1", "nan"),
        "rows_negative": ([P, [0.6, 0.5, -0.1]], "row 1", "-0.1"),
        "rows_mass": ([P, [0.6, 0.5, 0.1]], "row 1", "1.2"),
        "cube_mass": ([[P, [0.6, 0.5, 0.1]]], "row 0, 1", "1.2"),
    }
    yield rows("filter_probs", "probs", mdsd.filter_probs, InvalidDistributionError, probs)
    by_row: Values = {
        "second_negative": ([1.0, -1.0], "-1.0", "row 1"),
        "second_nan": ([1.0, NAN], "nan", "row 1"),
    }
    for call, function, values in (
        ("probs_from_logits", mdsd.probs_from_logits, scores),
        ("filter_probs", mdsd.filter_probs, [P, Q]),
    ):
        for option, bad in (
            ("temperature", TEMPERATURES),
            ("temperature", by_row),
            ("top_k", TOP_KS),
            ("top_p", TOP_PS),
            ("min_p", MIN_PS),
        ):
            yield rows(
                call,
                option,
                lambda v, f=function, x=values, o=option: f(x, **{o: v}),
                InvalidArgumentError,
                bad,
            )
    filters = mdsd.Filters()
    for option, bad in (
        ("temperature", TEMPERATURES),
        ("top_k", TOP_KS),
        ("top_p", TOP_PS),
        ("min_p", MIN_PS),
    ):
        yield rows(
            "Filters", option, lambda v, o=option: mdsd.Filters(**{o: v}), InvalidArgumentError, bad
        )
    for call, name, bad in (("of_logits", "logits", logits), ("of_probs", "probs", probs)):
        run = getattr(filters, call)
        yield rows(f"Filters.{call}", name, run, InvalidDistributionError, bad)
        yield rows(
            "Filters.of_table",
            "table",
            lambda table, kind=name: filters.of_table(table, kind),
            InvalidDistributionError,
            {f"{name}_{k}": v for k, v in bad.items()},
            named=name,
        )
    yield rows(
        "Filters.of_table",
        "kind",
        lambda kind: filters.of_table(np.array(P), kind),
        InvalidArgumentError,
        names("", "scores", logit="logits", prob="probs"),
    )


ROWS = [row for made in filter_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
