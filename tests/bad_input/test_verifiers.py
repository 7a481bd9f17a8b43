"""Bad input of verifiers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mdsd
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, UnsupportedError

from ..verifiers import NAMES
from .calls import DRAFTS, LYING_DRAFTS
from .rows import Row, Values, rows
from .values import (
    COUNTS,
    ITERATIONS,
    NOT_DRAFTS,
    TARGETS,
    TOLERANCES,
    WHOLE_SEEDS,
    P,
    Q,
    names,
    written,
)

VERIFIERS: dict[str, mdsd.Verifier] = {
    type(verifier).__name__: verifier for verifier in map(mdsd.get_verifier, NAMES)
}
SUPPORTED: dict[str, mdsd.DraftDistribution] = {
    "SingleDraftVerifier": mdsd.WithReplacement(Q, 1),
    "SpecHubVerifier": DRAFTS["SpecHubDraft"],
    "GreedyVerifier": DRAFTS["GreedyDraft"],
}
UNSUPPORTED: dict[str, mdsd.DraftDistribution] = {
    "SingleDraftVerifier": DRAFTS["WithReplacement"],
    "NaiveTreeVerifier": DRAFTS["WithoutReplacement"],
    "RRSVerifier": DRAFTS["GreedyDraft"],
    "KSeqVerifier": DRAFTS["IndependentDrafts"],
    "SpecHubVerifier": DRAFTS["GreedyDraft"],
    "GreedyVerifier": DRAFTS["SpecHubDraft"],
}


def verifier_rows() -> Iterator[list[Row]]:
    for kind, verifier in VERIFIERS.items():
        draft = SUPPORTED.get(kind, DRAFTS["WithReplacement"])
        yield rows(
            f"{kind}.plan",
            "target_probs",
            lambda target, v=verifier, d=draft: v.plan(target, d),
            InvalidDistributionError,
            TARGETS,
        )
        yield rows(
            f"{kind}.plan",
            "draft",
            lambda draft, v=verifier: v.plan(P, draft),
            InvalidArgumentError,
            NOT_DRAFTS,
        )
        count = verifier.num_uniforms
        yield rows(f"{kind}.num_uniforms", "draft", count, InvalidArgumentError, NOT_DRAFTS)
        if kind in UNSUPPORTED:
            other = UNSUPPORTED[kind]
            wrong: Values = {"unsupported": (other, other.name, verifier.name)}
            yield rows(
                f"{kind}.plan",
                "draft",
                lambda draft, v=verifier: v.plan(P, draft),
                UnsupportedError,
                wrong,
            )
            yield rows(f"{kind}.num_uniforms", "draft", count, UnsupportedError, wrong)
    yield rows(
        "OptimalVerifier.plan",
        "draft",
        lambda draft: mdsd.OptimalVerifier().plan(P, draft),
        InvalidDistributionError,
        LYING_DRAFTS,
        named="lying",
        without=("no_sizes",),
    )
    bare = {"no_sizes": LYING_DRAFTS["no_sizes"]}
    for verifier in (mdsd.OptimalVerifier(), mdsd.NaiveVerifier()):
        yield rows(
            f"{type(verifier).__name__}.plan",
            "draft",
            lambda draft, v=verifier: v.plan(P, draft),
            InvalidArgumentError,
            bare,
            named="num_drafts",
        )

    options: tuple[tuple[str, str, Values], ...] = (
        ("OptimalVerifier", "tolerance", TOLERANCES),
        ("OptimalVerifier", "max_iterations", ITERATIONS),
        ("OptimalVerifier", "effort", names("slow", exat="'exact'", FAST="fast")),
        ("RRSVerifier", "monte_carlo_paths", {**COUNTS, **written(1)}),
        ("RRSVerifier", "seed", WHOLE_SEEDS),
    )
    for kind, option, values in options:
        yield rows(
            kind,
            option,
            lambda value, k=kind, o=option: getattr(mdsd, k)(**{o: value}),
            InvalidArgumentError,
            values,
        )

    unknown = names("lottery", optmal="'optimal'", RRS="rrs")
    unknown["class"] = (mdsd.NaiveVerifier, "NaiveVerifier")
    yield rows(
        "get_verifier", "name", mdsd.get_verifier, InvalidArgumentError, unknown, named="verifier"
    )
    taken: Values = {
        "unknown": ({"tol": 1e-9}, "tol", "optimal"),
        "out_of_range": ({"tolerance": -1.0}, "tolerance", "-1.0"),
    }
    yield rows(
        "get_verifier",
        "options",
        lambda options: mdsd.get_verifier("optimal", **options),
        InvalidArgumentError,
        taken,
        named="tol",
    )
    none_taken: Values = {"none_taken": ({"tolerance": 1e-9}, "naive")}
    yield rows(
        "get_verifier",
        "options",
        lambda options: mdsd.get_verifier("naive", **options),
        InvalidArgumentError,
        none_taken,
        named="tolerance",
    )


ROWS = [row for made in verifier_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
