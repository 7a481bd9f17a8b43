"""Optimal verification without replacement: a search, one verification, and how much is missed."""

import numpy as np
import pytest

import mdsd

NUM_DRAFTS = 4


@pytest.fixture(scope="module", params=[49_152, 128_000], ids="V={}".format)
def full(request, make_pair):
    return make_pair(request.param)


def missed(plan):
    error = np.abs(plan.marginal_law() - plan.target_probs).sum() / 2
    return f"acceptance {plan.acceptance_rate:.6f}, gap {plan.gap:.0e}, lossless to {error:.0e}"


def test_plan_and_one_verification(measure, full):
    """Selection masses are worked out for the selected token only; the first draft set is usual."""
    verifier = mdsd.OptimalVerifier()
    ids = mdsd.WithoutReplacement(full.draft, NUM_DRAFTS).sample(0)

    def decode():
        # A draft made anew: the last search of one that stays is remembered.
        plan = verifier.plan(full.target, mdsd.WithoutReplacement(full.draft, NUM_DRAFTS))
        plan.verify(ids, 0)
        return plan

    measure(decode, full, quality=missed)


def test_plan_and_marginal_law(measure, full):
    verifier = mdsd.OptimalVerifier()

    def describe():
        plan = verifier.plan(full.target, mdsd.WithoutReplacement(full.draft, NUM_DRAFTS))
        plan.marginal_law()
        return plan

    measure(describe, full, quality=missed)


def test_plan_for_independent_drafts(measure, full):
    verifier = mdsd.OptimalVerifier()
    draft_probs = [full.draft, np.roll(full.draft, 1), mdsd.filter_probs(full.draft, top_k=50)]

    def describe():
        plan = verifier.plan(full.target, mdsd.IndependentDrafts(draft_probs))
        plan.marginal_law()
        return plan

    measure(describe, full, quality=missed)


@pytest.mark.parametrize("vocab_size", [100, 1_000], ids="V={}".format)
def test_plan_of_small_vocabularies(measure, make_pair, make_laws, vocab_size):
    """Softmax of 2.5 times normal logits."""
    target, draft_probs = make_laws(np.random.default_rng(0), vocab_size, scale=2.5)
    verifier = mdsd.OptimalVerifier()
    measure(
        lambda: verifier.plan(target, mdsd.WithoutReplacement(draft_probs, NUM_DRAFTS)),
        make_pair(vocab_size),
        quality=missed,
    )


@pytest.mark.parametrize("temperature", [0.6, 1.0])
def test_real_positions(measure, make_pair, temperature):
    """All embedded positions and drafts with three drafts; the time is that of one plan."""
    data = mdsd.datasets.load("smollm2")
    verifier = mdsd.OptimalVerifier()
    pairs = [
        (
            mdsd.probs_from_logits(target, temperature=temperature),
            mdsd.probs_from_logits(draft, temperature=temperature),
        )
        for draft_logits in data.draft_tables.values()
        for target, draft in zip(data.target_table, draft_logits, strict=True)
    ]

    def plans():
        return [verifier.plan(p, mdsd.WithoutReplacement(q, 3)) for p, q in pairs]

    def gaps(found):
        values = np.array([plan.gap for plan in found])
        errors = [np.abs(plan.marginal_law() - plan.target_probs).sum() / 2 for plan in found]
        return (
            f"{len(found)} positions, gap {values.mean():.1e} on average, {values.max():.1e} "
            f"at worst, lossless to {max(errors):.0e}"
        )

    measure(plans, make_pair(data.target_table.shape[1]), quality=gaps, per=len(pairs))
