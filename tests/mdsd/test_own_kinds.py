"""A kind of draft from a user's own package, wherever a kind is taken: no kernel, the right law."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import mdsd
from mdsd.drafts import DraftDistribution


class SharpenedDraft(DraftDistribution):
    """Independent draws from q**power, renormalised: with power 1 the draft with replacement."""

    name = "sharpened"
    options = ("power",)

    def __init__(self, draft_probs, num_drafts, power):
        q = np.asarray(draft_probs, dtype=np.float64) ** power
        self.q, self.power = q / q.sum(), power
        self.num_drafts, self.vocab_size = num_drafts, len(q)

    def hit_probs(self, order):
        inside = np.concatenate([[0.0], np.cumsum(self.q[order])])
        hits = 1.0 - (1.0 - np.minimum(inside, 1.0)) ** self.num_drafts
        hits[-1] = 1.0
        return hits

    def sample(self, rng, size=None):
        shape = (self.num_drafts,) if size is None else (size, self.num_drafts)
        return np.random.default_rng(rng).choice(self.vocab_size, shape, p=self.q)

    def prob(self, draft_token_ids):
        return self.q[np.asarray(draft_token_ids)].prod(axis=-1)

    def tuples(self):
        for ids in product(range(self.vocab_size), repeat=self.num_drafts):
            chance = float(self.q[list(ids)].prod())
            if chance > 0.0:
                yield ids, chance


class PickyDraft(SharpenedDraft):
    """Refuses a draft model that is certain: what a constructor says is what a batch says."""

    name = "picky"
    options = ()

    def __init__(self, draft_probs, num_drafts):
        super().__init__(draft_probs, num_drafts, 1)
        if self.q.max() == 1.0:
            raise mdsd.InvalidDistributionError("draft_probs is certain")


TARGET = np.random.default_rng(0).dirichlet(np.ones(5), size=6)
DRAFT = np.random.default_rng(1).dirichlet(np.ones(5), size=6)
DRAFT[2, 3] = 0.0
DRAFT[2] /= DRAFT[2].sum()
KIND = SharpenedDraft.kind(power=2)
SQUARED = DRAFT**2 / (DRAFT**2).sum(axis=1, keepdims=True)
"""The same law, made known to the library as a draft with replacement."""


@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_bounds_are_those_of_its_own_law(num_drafts):
    found = mdsd.acceptance_bounds(TARGET, DRAFT, draft=KIND, num_drafts=num_drafts)
    right = mdsd.acceptance_bounds(TARGET, SQUARED, num_drafts=num_drafts)
    wrong = mdsd.acceptance_bounds(TARGET, DRAFT, num_drafts=num_drafts)
    np.testing.assert_allclose(found, right, atol=1e-9)
    assert np.abs(right - wrong).max() > 0.01  # what a silent fall-back answered


@pytest.mark.parametrize("verifier", ["naive", "optimal"])
@pytest.mark.parametrize("num_drafts", [1, 2])
def test_rates_are_those_of_its_own_law(verifier, num_drafts):
    options = {"num_drafts": num_drafts, "verifier": verifier}
    found = mdsd.acceptance_rates(TARGET, DRAFT, draft=KIND, **options)
    right = mdsd.acceptance_rates(TARGET, SQUARED, draft="with_replacement", **options)
    wrong = mdsd.acceptance_rates(TARGET, DRAFT, draft="with_replacement", **options)
    np.testing.assert_allclose(found, right, atol=1e-8)
    assert np.abs(right - wrong).max() > 0.01


@pytest.mark.parametrize("verifier", ["naive", "optimal"])
@pytest.mark.parametrize("num_drafts", [1, 2])
def test_batches_are_verified_as_plans_do(verifier, num_drafts):
    chosen = mdsd.get_verifier(verifier)
    laws = [KIND.make(q, num_drafts) for q in DRAFT]
    plans = [chosen.plan(p, law) for p, law in zip(TARGET, laws, strict=True)]
    rng = np.random.default_rng(2)
    for _ in range(20):
        ids = np.stack([law.sample(rng) for law in laws])
        uniforms = rng.random((len(ids), plans[0].num_uniforms))
        found = mdsd.verify_batch(
            TARGET, DRAFT, ids, draft=KIND, verifier=verifier, uniforms=uniforms
        )
        alone = [
            plan.verify(row, uniforms=numbers)
            for plan, row, numbers in zip(plans, ids, uniforms, strict=True)
        ]
        assert found.token_ids.tolist() == [each.token_id for each in alone]
        assert found.accept_index.tolist() == [each.accept_index for each in alone]


@pytest.mark.parametrize("verifier", ["naive", "optimal"])
def test_a_batch_is_lossless(verifier):
    """Every tuple at once: the emitted law is the target, by sums over plans' exact laws."""
    for p, q in zip(TARGET, DRAFT, strict=True):
        law = KIND.make(q, 2)
        ids, probs = law.tuple_arrays()
        plan = mdsd.get_verifier(verifier).plan(p, law)
        np.testing.assert_allclose(probs @ plan.output_law(ids), p, atol=1e-12)


def test_impossible_tuples_are_refused():
    ids = np.zeros((6, 2), dtype=np.int64)
    ids[2] = [0, 3]
    with pytest.raises(mdsd.InvalidTokenError, match=r"row 2: \[0, 3\] cannot be drawn"):
        mdsd.verify_batch(TARGET, DRAFT, ids, draft=KIND, verifier="naive", rng=0)


@pytest.mark.parametrize(
    "call",
    [
        lambda q: mdsd.acceptance_bounds(TARGET, q, draft=PickyDraft.kind(), num_drafts=2),
        lambda q: mdsd.acceptance_rates(
            TARGET, q, draft=PickyDraft.kind(), num_drafts=2, verifier="naive"
        ),
        lambda q: mdsd.verify_batch(
            TARGET, q, np.zeros((6, 2), int), draft=PickyDraft.kind(), verifier="naive", rng=0
        ),
    ],
    ids=["bounds", "rates", "batch"],
)
def test_rows_that_its_constructor_refuses_are_named(call):
    certain = DRAFT.copy()
    certain[4] = np.eye(5)[0]
    with pytest.raises(mdsd.InvalidDistributionError, match=r"draft_probs row 4: .*certain"):
        call(certain)


def test_options_are_checked():
    with pytest.raises(mdsd.InvalidArgumentError, match=r"option power .* is missing"):
        SharpenedDraft.kind()
    with pytest.raises(mdsd.InvalidArgumentError, match=r"option width .* is not known"):
        SharpenedDraft.kind(power=1, width=2)
    assert str(KIND) == "sharpened:2"
