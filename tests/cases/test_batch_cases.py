"""Cases about batches: rows are checked by name, independent of each other, and read as views."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd

from .reading import (
    BAD_ROWS,
    CASES,
    assert_names,
    assert_names_value,
    covers,
    covers_rows,
    make_draft,
)

CLASSES = {"with_replacement": "WithReplacement", "without_replacement": "WithoutReplacement"}
NAMES = {name: law for law, name in CLASSES.items()}

DRAFTS = CASES["lp-batch-equals-loop"].input["draft"]


def dirichlet_rows(case):
    assert "default_rng(21), 1000 target rows then 1000 draft rows" in case.input["recipe"]
    rng = np.random.default_rng(21)
    return rng.dirichlet(np.ones(8), size=1000), rng.dirichlet(np.ones(8), size=1000)


@pytest.mark.parametrize("draft", DRAFTS)
@covers("lp-batch-equals-loop")
def test_batch_equals_loop(case, draft):
    targets, drafted = dirichlet_rows(case)
    n = case.input["num_drafts"]
    found = mdsd.acceptance_bounds(targets, drafted, draft=draft, num_drafts=n)
    expected = [
        mdsd.acceptance_bound(p, make_draft(CLASSES[draft], q, n)).value
        for p, q in zip(targets, drafted, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=0, atol=case.tolerance)
    alone = mdsd.acceptance_bounds(targets[:2], drafted[:2], draft=draft, num_drafts=n)
    assert alone.tobytes() == found[:2].tobytes()


@pytest.mark.parametrize("draft", DRAFTS)
@covers("lp-batch-equals-loop")
def test_batch_equals_the_linear_program(case, draft):
    targets, drafted = (rows[:20] for rows in dirichlet_rows(case))
    n = case.input["num_drafts"]
    found = mdsd.acceptance_bounds(targets, drafted, draft=draft, num_drafts=n)
    for p, q, value in zip(targets, drafted, found, strict=True):
        solved = mdsd.acceptance_bound(p, make_draft(CLASSES[draft], q, n), method="lp")
        assert value == pytest.approx(solved.value, rel=0, abs=1e-9)


# --- bad rows ------------------------------------------------------------------------------------


def batch_calls(draft_token_ids, rng=None):
    """Both batch calls, as functions of the two matrices."""
    draft = {"draft": "with_replacement"}
    return (
        lambda p, q: mdsd.acceptance_bounds(p, q, **draft, num_drafts=2),
        lambda p, q: mdsd.verify_batch(p, q, draft_token_ids, **draft, verifier="rrs", rng=rng),
    )


@pytest.mark.parametrize("bad", BAD_ROWS)
@pytest.mark.parametrize("argument", ["target_probs", "draft_probs"])
@covers("invalid-nan-row")
def test_bad_row_of_a_batch_is_named(case, argument, bad):
    assert np.isnan(case.input["target_probs"][1]).all()
    good, (row, word) = case.input["draft_probs"], BAD_ROWS[bad]
    batch = [good[0], row, case.input["target_probs"][2]]
    rows = {"target_probs": good, "draft_probs": good, argument: batch}
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    for call in batch_calls([[0, 1]] * 3, rng):
        with pytest.raises(mdsd.InvalidDistributionError) as caught:
            call(*rows.values())
        assert_names(caught.value, argument, "row 1", word)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("call", [0, 1])
@covers("invalid-length-mismatch")
def test_batches_over_different_vocabularies(case, call):
    p, q = (np.array([case.input["calls"][call][k]] * 2) for k in ("target_probs", "draft_probs"))
    for refuse in batch_calls([[0, 0]] * 2):
        with pytest.raises(mdsd.InvalidDistributionError) as caught:
            refuse(p, q)
        assert_names(caught.value, "target_probs", "draft_probs")
        assert_names_value(caught.value, p.shape[1])
        assert_names_value(caught.value, q.shape[1])


@covers("invalid-missing-draft-law")
def test_batch_without_draft_probs(case):
    law, _ = case.input["calls"]
    for call in batch_calls([[0, 1]]):
        with pytest.raises(mdsd.InvalidDistributionError) as caught:
            call([[0.5, 0.5]], law["draft_probs"])
        assert_names(caught.value, *case.expected["message_names"])


# --- randomness ----------------------------------------------------------------------------------

VERIFIERS = CASES["rng-rows-independent"].input["verifier"]


def verify_rows(case, verifier, rows, **randomness):
    """Verify some rows of the case, in that order; `single` sees the first draft only."""
    n = 1 if verifier == "single" else 2
    ids = np.array(case.input["draft_token_ids"])[rows, :n]
    return mdsd.verify_batch(
        np.array(case.input["target_probs"])[rows],
        np.array(case.input["draft_probs"])[rows],
        ids,
        draft=NAMES[case.input["draft"]],
        verifier=verifier,
        **randomness,
    )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("verifier", VERIFIERS)
@covers("rng-rows-independent")
def test_rows_of_a_batch_are_independent(case, verifier, seed):
    law = mdsd.WithReplacement(case.input["draft_probs"][0], 1 if verifier == "single" else 2)
    count = mdsd.get_verifier(verifier).num_uniforms(law)
    uniforms = np.tile(np.random.default_rng(seed).random((2, count)), (2, 1))
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - what must not change
    rows = np.arange(4)
    found = verify_rows(case, verifier, rows, uniforms=uniforms)
    outcome = list(zip(found.token_ids.tolist(), found.accept_index.tolist(), strict=True))
    assert outcome[0] == outcome[2]
    assert outcome[1] == outcome[3]
    turned = verify_rows(case, verifier, rows[::-1], uniforms=uniforms[::-1])
    assert turned.token_ids[::-1].tolist() == found.token_ids.tolist()
    assert turned.accept_index[::-1].tolist() == found.accept_index.tolist()
    for row in rows:
        alone = verify_rows(case, verifier, [row], uniforms=uniforms[[row]])
        assert (alone.token_ids[0], alone.accept_index[0]) == outcome[row]
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


@pytest.mark.parametrize("verifier", VERIFIERS)
@covers("rng-rows-independent")
def test_batches_without_a_seed_differ(case, verifier):
    rows = np.zeros(64, dtype=int)
    first, second = (verify_rows(case, verifier, rows).token_ids.tolist() for _ in range(2))
    assert first != second


@pytest.mark.parametrize("verifier", CASES["rng-same-integer-seed"].input["verifiers"])
@covers("rng-same-integer-seed")
def test_same_seed_for_drafting_and_for_a_batch(case, verifier):
    count = case.input["positions"]
    law = make_draft(case.input["draft"], case.input["draft_probs"], case.input["num_drafts"])
    found = mdsd.verify_batch(
        np.broadcast_to(case.input["target_probs"], (count, 3)),
        np.broadcast_to(case.input["draft_probs"], (count, 3)),
        law.sample(case.input["seed_draft"], size=count),
        draft=law.name,
        verifier=verifier,
        rng=case.input["seed_verify"],
    )
    for name, rate in (
        ("token_0_rate", (found.token_ids == 0).mean()),
        ("acceptance_rate", (found.accept_index >= 0).mean()),
    ):
        tolerance = case.expected[f"{name}_tolerance"]
        assert abs(rate - case.expected[name]) <= tolerance
        assert abs(rate - case.expected[f"wrong_{name}"]) > tolerance


# --- views ---------------------------------------------------------------------------------------


@covers_rows("dtype-views-and-strides")
def test_batches_of_views_are_read_as_they_look(case, row):
    target, draft_probs = case.vector("target_probs"), case.vector("draft_probs")
    columns = np.zeros((4, 5))
    columns[:, 2] = target
    targets = np.broadcast_to(columns[:, 2], (6, 4))
    drafted = {
        "contiguous": np.tile(draft_probs, (6, 1)),
        "broadcast": np.broadcast_to(draft_probs, (6, 4)),
        "reversed": np.tile(draft_probs[::-1], (6, 1))[:, ::-1],
        "fortran": np.asfortranarray(np.tile(draft_probs, (6, 1))),
    }
    assert targets.strides == (0, 40)
    assert drafted["broadcast"].strides == (0, 8)
    draft, n = NAMES[row["draft"]], row["num_drafts"]
    ids = make_draft(row["draft"], draft_probs, n).sample(0, size=6)
    bounds, tokens = set(), set()
    for form in drafted.values():
        found = mdsd.acceptance_bounds(targets, form, draft=draft, num_drafts=n)
        np.testing.assert_allclose(found, row["bound"], rtol=0, atol=case.tolerance)
        bounds.add(found.tobytes())
        verified = mdsd.verify_batch(targets, form, ids, draft=draft, verifier="rrs", rng=1)
        tokens.add(verified.token_ids.tobytes())
    assert len(bounds) == len(tokens) == 1
