"""Plans and verifications at full vocabulary, with the share of the bound each reaches."""

import pytest

import mdsd

PAIRS = {
    "naive": mdsd.WithReplacement,
    "naive_tree": mdsd.WithReplacement,
    "rrs": mdsd.WithReplacement,
    "kseq": mdsd.WithReplacement,
    "optimal": mdsd.WithReplacement,
    "greedy": mdsd.GreedyDraft,
}


def share(plan):
    bound = mdsd.acceptance_bound(plan.target_probs, plan.draft).value
    return (
        f"acceptance {plan.acceptance_rate:.6f}, bound missed by {bound - plan.acceptance_rate:.1e}"
    )


@pytest.mark.parametrize("name", PAIRS)
def test_plan(measure, peaked, name):
    verifier = mdsd.get_verifier(name)
    draft = PAIRS[name](peaked.draft, 4)
    measure(lambda: verifier.plan(peaked.target, draft), peaked, quality=share)


def test_plan_rrs_without_replacement(measure, peaked):
    verifier = mdsd.get_verifier("rrs")
    draft = mdsd.WithoutReplacement(peaked.draft, 4)
    measure(lambda: verifier.plan(peaked.target, draft), peaked, quality=share)


@pytest.mark.parametrize("name", PAIRS)
def test_verify(measure, peaked, name):
    draft = PAIRS[name](peaked.draft, 4)
    plan = mdsd.get_verifier(name).plan(peaked.target, draft)
    ids = draft.sample(0)
    measure(lambda: plan.verify(ids, 0), peaked, quality=lambda _: f"{plan.num_uniforms} uniforms")
