"""Bad input of bounds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mdsd
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, UnsupportedError

from .calls import DRAFTS, LYING_DRAFTS
from .rows import Row, Values, rows
from .values import ITERATIONS, NOT_DRAFTS, TARGETS, TOLERANCES, P, names


def bound_rows() -> Iterator[list[Row]]:
    draft = DRAFTS["WithReplacement"]
    call = "acceptance_bound"
    yield rows(
        call,
        "target_probs",
        lambda target: mdsd.acceptance_bound(target, draft),
        InvalidDistributionError,
        TARGETS,
    )
    yield rows(
        call,
        "draft",
        lambda draft: mdsd.acceptance_bound(P, draft),
        InvalidArgumentError,
        NOT_DRAFTS,
    )
    yield rows(
        call,
        "draft",
        lambda draft: mdsd.acceptance_bound(P, draft),
        InvalidDistributionError,
        LYING_DRAFTS,
        named="lying",
        without=("no_sizes",),
    )
    bare = {"no_sizes": LYING_DRAFTS["no_sizes"]}
    yield rows(
        call,
        "draft",
        lambda draft: mdsd.acceptance_bound(P, draft),
        InvalidArgumentError,
        bare,
        named="num_drafts",
    )
    for option, values in (
        ("method", names("simplex", prefx="prefix", LP="lp", matchin="matching")),
        ("method", {"none": (None, "None")}),
        ("tolerance", TOLERANCES),
        ("max_iterations", ITERATIONS),
    ):
        yield rows(
            call,
            option,
            lambda value, o=option: mdsd.acceptance_bound(P, draft, **{o: value}),
            InvalidArgumentError,
            values,
        )
    inapplicable: Values = {"inapplicable": ("prefix", "independent", "submodular", "lp")}
    independent = DRAFTS["IndependentDrafts"]
    yield rows(
        call,
        "method",
        lambda method: mdsd.acceptance_bound(P, independent, method=method),
        UnsupportedError,
        inapplicable,
    )


ROWS = [row for made in bound_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
