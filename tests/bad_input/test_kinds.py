"""Bad input of kinds of drafts, and of what makes drafts of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    UnsupportedError,
)

from .calls import DRAFTS
from .rows import Row, Values, rows
from .values import BEYOND, COUNTS, PROBS, TOKENS, P, Q, names

MADE = tuple(kind for kind in DRAFTS if kind not in ("ExplicitDraft", "JointDrafts"))
OPTIONS: dict[str, dict[str, Any]] = {"HybridDraft": {"num_top": 1}}
"""What a class of `MADE` has to be told besides distributions and n."""

OTHER_COUNTS: Values = {kind: COUNTS[kind] for kind in COUNTS if kind != BEYOND}
NO_OPTIONS: Values = {
    "unknown": ({"width": 3}, "width", "none"),
    "of_another": ({"num_top": 1}, "num_top", "none"),
}
TOPS: Values = {
    **{kind: ({"num_top": value}, *words) for kind, (value, *words) in COUNTS.items()},
    "missing": ({}, "missing"),
    "unknown": ({"num_top": 1, "width": 3}, "width", "not known"),
}


def of_class(name: str) -> Iterator[list[Row]]:
    cls, options = getattr(mdsd, name), OPTIONS.get(name, {})
    several = name == "IndependentDrafts"
    good = [Q, P] if several else Q

    def make(draft_probs: Any = good, num_drafts: Any = 2, **given: Any) -> object:
        return cls.from_probs(draft_probs, num_drafts, **(given or options))

    call = f"{name}.from_probs"
    probs = {kind: ([Q, value], *words) for kind, (value, *words) in PROBS.items()}
    yield rows(call, "draft_probs", make, InvalidDistributionError, probs if several else PROBS)
    counts: Values = (
        {"another": (3, "3", "2")} if name in ("IndependentDrafts", "SpecHubDraft") else {}
    )
    yield rows(
        call,
        "num_drafts",
        lambda n: make(num_drafts=n),
        InvalidArgumentError,
        {**COUNTS, **counts},
    )
    wrong = {k: v for k, v in TOPS.items() if k != "0"} if options else NO_OPTIONS
    for call, run in (
        (f"{name}.kind", lambda given: cls.kind(**given)),
        (f"{name}.from_probs", lambda given: cls.from_probs(good, 2, **given)),
    ):
        named = "num_top" if options else "option"
        unknown = {k: v for k, v in wrong.items() if k == "unknown"}
        known = {k: v for k, v in wrong.items() if k != "unknown"}
        yield rows(call, "options", run, InvalidArgumentError, unknown, named="option")
        yield rows(call, "options", run, InvalidArgumentError, known, named=named)


def kind_rows() -> Iterator[list[Row]]:
    for name in MADE:
        yield from of_class(name)
    anything: Values = {"probs": (Q,)}
    for cls in (mdsd.ExplicitDraft, mdsd.JointDrafts):
        for parameter in ("draft_probs", "num_drafts", "options"):
            yield rows(
                f"{cls.__name__}.from_probs",
                parameter,
                lambda q, cls=cls: cls.from_probs(q, 2, width=3),
                UnsupportedError,
                anything,
                named=cls.name,
            )
        yield rows(
            f"{cls.__name__}.kind",
            "options",
            lambda given, cls=cls: cls.kind(**given),
            UnsupportedError,
            {"unknown": ({"width": 3},)},
            named=cls.name,
        )

    prefixes: Values = {
        **{kind: TOKENS[kind] for kind in TOKENS if kind not in ("too_short", "empty")},
        "negative": ([-1], "-1", "position 0"),
        "too_large": ([3], "3", "position 0", "0..2"),
        "beyond_int32": ([2**40], str(2**40)),
        "beyond_int64": (np.array([2**63 + 1], dtype=np.uint64), str(2**63 + 1)),
        "too_long": ([0, 1], "(2,)", "k < 2"),
        "matrix": ([[0]], "(1, 1)"),
    }
    for name, draft in DRAFTS.items():
        yield rows(f"{name}.next_probs", "drafted", draft.next_probs, InvalidTokenError, prefixes)

    refused = InvalidArgumentError
    uniform = np.full((1, 3), 1 / 3)
    another: Values = {"another": (3, "3", "2 drafts")}
    for kind, counts in (
        (mdsd.WithReplacement.kind(), COUNTS),
        (mdsd.SpecHubDraft.kind(), another),
    ):
        for method, run in (
            ("check_count", kind.check_count),
            ("num_certain", kind.num_certain),
            ("example", kind.example),
            ("make", lambda n, k=kind: k.make(Q, n)),
            ("drawable", lambda n, k=kind: k.drawable(uniform, n)),
        ):
            yield rows(f"DraftKind.{method}", "num_drafts", run, refused, counts)
    kind = mdsd.WithoutReplacement.kind()
    yield rows(
        "DraftKind.make", "draft_probs", lambda q: kind.make(q, 2), InvalidDistributionError, PROBS
    )
    for method, run in (
        ("refusal", kind.refusal),
        ("applies", lambda n: kind.applies(n, 1)),
        ("make_at_most", lambda n: kind.make_at_most(np.array(Q), n)),
    ):
        yield rows(f"DraftKind.{method}", "num_drafts", run, refused, COUNTS)
    yield rows("DraftKind.applies", "num_models", lambda m: kind.applies(2, m), refused, COUNTS)
    yield rows(
        "DraftKind.example", "vocab_size", lambda size: kind.example(2, size), refused, COUNTS
    )
    labels: Values = {
        **names("explicit", "custom", gredy="greedy"),
        "class": (mdsd.GreedyDraft, "GreedyDraft"),
        "draft": (DRAFTS["GreedyDraft"], "GreedyDraft"),
        "none": (None, "None"),
        "too_many_options": ("greedy:1", "'greedy:1'", "none"),
    }
    yield rows("drafts.read_kind", "draft", mdsd.drafts.read_kind, refused, labels)
    options: Values = {
        "missing": ("hybrid", "missing"),
        "string": ("hybrid:a", "'a'"),
        "negative": ("hybrid:-1", "-1"),
        "blank": ("hybrid:", "''"),
        "lines": ("hybrid:a\nb", r"'a\nb'"),
    }
    yield rows(
        "drafts.read_kind",
        "draft",
        mdsd.drafts.read_kind,
        refused,
        {f"option_{k}": v for k, v in options.items()},
        named="num_top",
    )


ROWS = [row for made in kind_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
