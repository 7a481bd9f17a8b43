"""Plans with the share of the bound each reaches; verifications, alone and in batches."""

import itertools

import numpy as np
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

VERIFIED = {
    **PAIRS,
    "single": lambda draft_probs, _: mdsd.WithReplacement(draft_probs, 1),
    "rrs-without": mdsd.WithoutReplacement,
    "spechub": lambda draft_probs, _: mdsd.SpecHubDraft(draft_probs),
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


def plan_and_drafts(label, peaked):
    """Plan, and a thousand tuples to verify: one alone would always go the same way."""
    draft = VERIFIED[label](peaked.draft, 4)
    plan = mdsd.get_verifier(label.partition("-")[0]).plan(peaked.target, draft)
    return plan, draft.sample(0, 1000)


@pytest.mark.parametrize("label", VERIFIED)
def test_verify(measure, benchmark, peaked, label):
    plan, drafts = plan_and_drafts(label, peaked)
    rows, rng = itertools.cycle(drafts), np.random.default_rng(0)

    def microseconds(_):
        return f"{benchmark.stats.stats.median * 1e6:.3g} microseconds"

    measure(lambda: plan.verify(next(rows), rng), peaked, quality=microseconds)


@pytest.mark.parametrize("peaked", [1_000], indirect=True, ids="V={}".format)
@pytest.mark.parametrize("label", VERIFIED)
def test_verify_many(measure, benchmark, peaked, label):
    plan, drafts = plan_and_drafts(label, peaked)
    rows, rng = np.tile(drafts, (100, 1)), np.random.default_rng(0)

    def microseconds(_):
        return f"{benchmark.stats.stats.median / len(rows) * 1e6:.3g} microseconds a row"

    measure(lambda: plan.verify_many(rows, rng), peaked, quality=microseconds, per=len(rows))
