"""Bad input of plans; after an error they go on as before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import mdsd
from mdsd.errors import InvalidArgumentError, InvalidTokenError

from .calls import DRAFTS, PLANS
from .rows import Row, Values, rows
from .values import IDS, SEEDS, TOKEN_ROWS, TOKENS, UNIFORM_ROWS, UNIFORMS, P, Q


def plan_rows() -> Iterator[list[Row]]:
    plan = PLANS["rrs"]
    good, batch = [0, 1], [[0, 1], [1, 0]]
    batches = {f"rows_{kind}": TOKEN_ROWS[kind] for kind in ("negative", "too_large", "too_short")}
    for call, run, values in (
        ("Plan.verify", lambda ids: plan.verify(ids, 0), IDS),
        ("Plan.verify_many", lambda ids: plan.verify_many(ids, 0), TOKEN_ROWS),
        ("Plan.output_law", plan.output_law, {**TOKENS, **batches}),
    ):
        yield rows(call, "draft_token_ids", run, InvalidTokenError, values)
    both: Values = {"and_uniforms": ((0, 0.5), "uniforms")}
    for call, method, ids in (
        ("Plan.verify", plan.verify, good),
        ("Plan.verify_many", plan.verify_many, batch),
    ):
        yield rows(call, "rng", lambda rng, m=method, i=ids: m(i, rng), InvalidArgumentError, SEEDS)
        yield rows(
            call,
            "rng",
            lambda pair, m=method, i=ids: m(i, pair[0], uniforms=pair[1]),
            InvalidArgumentError,
            both,
        )
    yield rows(
        "Plan.verify",
        "uniforms",
        lambda numbers: plan.verify(good, uniforms=numbers),
        InvalidArgumentError,
        UNIFORMS,
    )
    yield rows(
        "Plan.verify_many",
        "uniforms",
        lambda numbers: plan.verify_many(batch, uniforms=numbers),
        InvalidArgumentError,
        UNIFORM_ROWS,
    )

    for label, each in PLANS.items():
        n = each.draft.num_drafts
        every: Values = {
            "negative": ([-1] * n, "-1"),
            "too_large": ([3] * n, "3", "0..2"),
            "float": ([0.0] * n, "float64"),
            "bool": ([False] * n, "bool"),
            "wrong_length": ([0] * (n + 1), f"({n + 1},)"),
        }
        values = {f"{label}_{kind}": value for kind, value in every.items()}
        yield rows(
            "Plan.verify",
            "draft_token_ids",
            lambda ids, p=each: p.verify(ids, 0),
            InvalidTokenError,
            values,
        )
        short: Values = {f"{label}_too_long": (np.full(each.num_uniforms + 1, 0.5), "shape")}
        ids = each.draft.sample(0)
        yield rows(
            "Plan.verify",
            "uniforms",
            lambda numbers, p=each, i=ids: p.verify(i, uniforms=numbers),
            InvalidArgumentError,
            short,
        )

    # The draft of token 0 has probability 0, a repeated token cannot be drawn, ...
    zero = [0.0, 0.6, 0.4]
    for draft, ids in (
        (mdsd.WithReplacement(zero, 2), [1, 0]),
        (mdsd.WithoutReplacement(zero, 2), [1, 0]),
        (mdsd.WithoutReplacement(Q, 2), [1, 1]),
        (mdsd.IndependentDrafts([Q, zero]), [1, 0]),
        (mdsd.GreedyDraft(Q, 2), [0, 1]),
        (mdsd.SpecHubDraft(Q), [0, 2]),
        (mdsd.TopKDraft(Q, 2), [2, 1]),
        (DRAFTS["ExplicitDraft"], [1, 0]),
    ):
        impossible = mdsd.NaiveVerifier().plan(P, draft)
        kind = f"impossible_{draft.name}_{ids[0]}{ids[1]}"
        words = (str(ids), draft.name)
        for call, value, more in (
            ("verify", ids, ()),
            ("verify_many", [draft.sample(0).tolist(), ids], ("row 1",)),
            ("output_law", ids, ()),
        ):
            run = getattr(impossible, call)
            values = {kind: (value, *words, *more)}
            yield rows(f"Plan.{call}", "draft_token_ids", run, InvalidTokenError, values)


ROWS = [row for made in plan_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()


@pytest.mark.parametrize("label", PLANS)
@pytest.mark.parametrize("method", ["verify", "verify_many"])
def test_refused_tokens_draw_no_numbers(label, method):
    plan, rng = PLANS[label], np.random.default_rng(0)
    ids = [-1] * plan.draft.num_drafts
    before = rng.bit_generator.state
    with pytest.raises(InvalidTokenError):
        getattr(plan, method)(ids if method == "verify" else [ids], rng)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("label", PLANS)
def test_plans_work_after_an_error(label):
    plan = PLANS[label]
    ids, uniforms = plan.draft.sample(0, 5), np.full((5, plan.num_uniforms), 0.5)
    before = plan.output_law(ids), plan.verify_many(ids, uniforms=uniforms).token_id
    with pytest.raises(InvalidTokenError):
        plan.output_law([[0] * plan.draft.num_drafts, [3] * plan.draft.num_drafts])
    after = plan.output_law(ids), plan.verify_many(ids, uniforms=uniforms).token_id
    assert [part.tolist() for part in after] == [part.tolist() for part in before]


def test_global_numpy_state_is_left_alone():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    with pytest.raises(InvalidTokenError):
        PLANS["rrs"].verify([0, 9])
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
