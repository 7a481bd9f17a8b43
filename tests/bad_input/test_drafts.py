"""Bad input of draft distributions."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, InvalidTokenError

from .calls import DRAFTS
from .rows import Row, Values, rows
from .values import (
    BEYOND,
    COUNTS,
    INF,
    NAN,
    NOT_NUMBERS,
    ORDERS,
    PROBS,
    SEEDS,
    SIZES,
    TOKEN_ROWS,
    TOKENS,
    P,
    Q,
)


def draft_rows() -> Iterator[list[Row]]:
    makers = {
        **{kind: getattr(mdsd, kind) for kind in ("WithReplacement", "WithoutReplacement")},
        **{kind: getattr(mdsd, kind) for kind in ("GreedyDraft", "TopKDraft")},
        "HybridDraft": partial(mdsd.HybridDraft, num_top=1),
    }
    for kind, make in makers.items():
        # Without replacement a count beyond all bounds is a lack of tokens.
        counts = {k: v for k, v in COUNTS.items() if make is mdsd.WithReplacement or k != BEYOND}
        yield rows(kind, "draft_probs", lambda q, m=make: m(q, 2), InvalidDistributionError, PROBS)
        yield rows(kind, "num_drafts", lambda n, m=make: m(Q, n), InvalidArgumentError, counts)
    yield rows("SpecHubDraft", "draft_probs", mdsd.SpecHubDraft, InvalidDistributionError, PROBS)
    few = {"too_few": ([1.0, 0.0, 0.0], "1 token", "2")}
    del makers["WithReplacement"]
    for kind, make in makers.items():
        yield rows(kind, "draft_probs", lambda q, m=make: m(q, 2), InvalidDistributionError, few)
        more = {"too_many": (4, "3", "4")}
        yield rows(kind, "num_drafts", lambda n, m=make: m(Q, n), InvalidDistributionError, more)
    yield rows("SpecHubDraft", "draft_probs", mdsd.SpecHubDraft, InvalidDistributionError, few)

    tops = {k: v for k, v in COUNTS.items() if k not in ("0", BEYOND)}
    hybrid = partial(mdsd.HybridDraft, Q, 2)
    yield rows("HybridDraft", "num_top", hybrid, InvalidArgumentError, tops)
    above: Values = {"more_than_drafts": (3, "2", "3 most likely")}
    yield rows("HybridDraft", "num_top", hybrid, InvalidArgumentError, above, named="num_drafts")

    second = {
        kind: ([Q, value], "draft_probs[1]", *words) for kind, (value, *words) in PROBS.items()
    }
    whole: Values = {
        "none": (None, "missing"),
        "empty": ([], "missing"),
        "number": (0.5,),
        "scalar_array": (np.array(0.5),),
        "one_vector": (Q, "draft_probs[0]", "()"),
        "string": ("abc", "str"),
        "lengths_differ": ([Q, [0.5, 0.5]], "draft_probs[1]", "2", "3"),
        "generator": (iter([Q, P]),),
    }
    for values in (second, whole):
        yield rows(
            "IndependentDrafts",
            "draft_probs",
            mdsd.IndependentDrafts,
            InvalidDistributionError,
            {f"second_{k}" if values is second else k: v for k, v in values.items()},
        )

    def explicit(
        token_ids: Any = ((0, 1), (2, 1)), probs: Any = (0.25, 0.75), size: Any = 3
    ) -> Any:
        return mdsd.ExplicitDraft(token_ids, probs, vocab_size=size)

    ids: Values = {
        **{kind: TOKEN_ROWS[kind] for kind in TOKEN_ROWS if kind not in ("too_short", "too_long")},
        "none": (None, "()"),
        "string": ("ab", "()"),
        "no_columns": (np.zeros((2, 0), dtype=np.int64), "(2, 0)"),
        "cube": (np.zeros((2, 1, 2), dtype=np.int64), "(2, 1, 2)"),
    }
    yield rows("ExplicitDraft", "token_ids", explicit, InvalidTokenError, ids)
    pairs: Values = {
        **{kind: PROBS[kind] for kind in NOT_NUMBERS},
        "nan": ([NAN, 1.0], "nan", "index 0"),
        "negative": ([1.1, -0.1], "-0.1", "index 1"),
        "inf": ([INF, 0.0], "inf"),
        "mass": ([0.5, 0.6], "1.1"),
        "too_short": ([1.0], "1", "2"),
        "too_long": ([0.5, 0.25, 0.25], "3", "2"),
        "empty": ([], "empty"),
        "matrix": ([[0.5, 0.5]], "(1, 2)"),
    }
    yield rows(
        "ExplicitDraft",
        "probs",
        lambda probs: explicit(probs=probs),
        InvalidDistributionError,
        pairs,
    )
    yield rows(
        "ExplicitDraft",
        "vocab_size",
        lambda size: explicit(size=size),
        InvalidArgumentError,
        COUNTS,
    )
    yield rows(
        "ExplicitDraft",
        "vocab_size",
        lambda size: explicit(size=size),
        InvalidTokenError,
        {"too_small": (2, "2")},
        named="token_ids",
    )

    one = mdsd.WithReplacement(Q, 1)
    groups: Values = {
        "none": (None, "None"),
        "empty": ([], "[]"),
        "one_draft": (one, "WithReplacement"),
        "empty_group": ([one, []], "groups[1]", "empty"),
        "probs": ([one, Q], "groups[1]", "0.2"),
        "a_list_of_probs": ([[one], [Q]], "groups[1]", "0.2"),
        "sizes": ([[one, mdsd.WithReplacement([1.0], 1)]], "groups[0]", "1", "3"),
    }
    yield rows("JointDrafts", "groups", mdsd.JointDrafts, InvalidArgumentError, groups)
    yield rows(
        "JointDrafts",
        "num_others",
        lambda count: mdsd.JointDrafts([one], num_others=count),
        InvalidArgumentError,
        {k: v for k, v in COUNTS.items() if k != "0"},
    )

    for kind, draft in DRAFTS.items():
        orders, tokens = ORDERS, TOKENS
        seeds = {k: v for k, v in SEEDS.items() if k != "list"}
        yield rows(f"{kind}.hit_probs", "order", draft.hit_probs, InvalidArgumentError, orders)
        yield rows(f"{kind}.prob", "draft_token_ids", draft.prob, InvalidTokenError, tokens)
        yield rows(f"{kind}.sample", "rng", draft.sample, InvalidArgumentError, seeds)
        yield rows(
            f"{kind}.sample",
            "size",
            lambda size, d=draft: d.sample(0, size),
            InvalidArgumentError,
            SIZES,
        )


ROWS = [row for made in draft_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()


@pytest.mark.parametrize("kind", DRAFTS)
def test_refused_size_draws_no_numbers(kind):
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    with pytest.raises(InvalidArgumentError):
        DRAFTS[kind].sample(rng, -1)
    assert rng.bit_generator.state == before


def test_dates_are_not_read_as_numbers():
    with pytest.raises(InvalidDistributionError, match="object"):
        mdsd.SpecHubDraft([datetime.date(2024, 1, 1)])
