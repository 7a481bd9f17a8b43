"""Bad input of intervals from truncated logs: every message names the token and the value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, MdsdError, UnsupportedError

from .rows import Row, Values, rows
from .values import COUNTS, INF, NAN, names


def interval_rows() -> Iterator[list[Row]]:
    target, draft = {5: -0.5, 7: -1.5}, {7: -0.5, 5: -1.5}
    logs: Values = {
        "none": (None, "missing"),
        "number": (0.5, "float"),
        "list": ([-0.5, -1.5], "list"),
        "array": (np.array([-0.5, -1.5]), "ndarray"),
        "pairs": ([(5, -0.5)], "list"),
        "string": ("abc", "str"),
        "empty": ({}, "empty"),
        "nan": ({5: -0.5, 7: NAN}, "token 7", "nan"),
        "positive": ({5: -0.5, 7: 0.5}, "token 7", "0.5"),
        "barely_positive": ({5: 1e-300}, "token 5", "1e-300"),
        "inf": ({5: INF}, "token 5", "inf"),
        "no_value": ({5: None}, "token 5", "None"),
        "text": ({5: "-0.5"}, "token 5", "'-0.5'"),
        "bool": ({5: False}, "token 5", "False"),
        "complex": ({5: -1j}, "token 5", "1j"),
        "array_value": ({5: np.array([-0.5])}, "token 5", "array"),
        "beyond_float64": ({5: 10**400}, "token 5"),
        "lines": ({"a\nb": 1.0}, r"'a\nb'", "1.0"),
        "probabilities": ({5: 0.6, 7: 0.4}, "token 5", "0.6"),
        "mass": ({5: -0.1, 7: -2.0}, "sum to 1.0401", "0.001"),
        "mass_of_two": ({5: 0.0, 7: 0.0}, "sum to 2"),
    }
    texts = {"five": -0.5, "seven": -1.5}
    short = {7: 0.0, 5: -INF}

    def interval(**changes: Any) -> object:
        usual = {"target_logprobs": target, "draft_logprobs": draft, "num_drafts": 2}
        return mdsd.acceptance_interval(**{**usual, **changes})

    def rows_of(parameter: str, values: Values, **options: Any) -> list[Row]:
        error: type[MdsdError] = InvalidDistributionError
        if parameter in ("draft", "num_drafts"):
            error = InvalidArgumentError
        error, given = options.pop("error", error), options.pop("given", {})
        run = lambda value: interval(**{**given, parameter: value})  # noqa: E731
        return rows("acceptance_interval", parameter, run, error, values, **options)

    yield rows_of("target_logprobs", logs)
    yield rows_of("draft_logprobs", logs)
    for side in ("target_logprobs", "draft_logprobs"):
        mixed: Values = {"texts_for_ids": (texts, "integers", "strings", "'five'")}
        yield rows_of(side, mixed, error=InvalidArgumentError)
    for name in ("without_replacement", "greedy"):
        too_few: Values = {f"{name}_too_few": (short, "1 tokens", "num_drafts=2")}
        yield rows_of("draft_logprobs", too_few, given={"draft": name})
    independent: dict[str, Any] = {"draft": "independent"}
    several: Values = {
        "independent_none": (None, "missing"),
        "independent_mapping": (draft, "each independent draft"),
        "independent_number": (3, "3"),
        "independent_string": ("ab", "'ab'"),
        "independent_empty": ([], "[]"),
        "independent_nan": ([draft, {7: NAN}], "draft_logprobs[1]", "token 7", "nan"),
        "independent_lists": ([draft, [-0.5]], "draft_logprobs[1]", "list"),
        "independent_mass": ([{7: 0.0, 5: -1.0}, draft], "draft_logprobs[0]", "1.367879"),
    }
    yield rows_of("draft_logprobs", several, given=independent)
    yield rows_of(
        "draft_logprobs",
        {
            "independent_texts": ([draft, texts], "draft_logprobs[1]", "strings"),
            "independent_count": ([draft] * 3, "num_drafts is 2", "3 mappings"),
        },
        given=independent,
        error=InvalidArgumentError,
    )
    yield rows_of("draft", names("lottery", greddy="'greedy'"))
    without: Values = {
        name: (name, repr(name), "without_replacement, independent, greedy")
        for name in ("spechub", "top_k")
    }
    yield rows_of("draft", without, error=UnsupportedError)
    yield rows_of("num_drafts", COUNTS)


ROWS = [row for made in interval_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
