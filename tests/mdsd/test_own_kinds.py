"""A kind of draft from a user's own package, wherever a kind is taken: no kernel, the right law."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.decoding import TableModel, generate
from mdsd.decoding.layouts import eagle_tree, flashinfer_chain, sglang_tree, vllm_flattened
from mdsd.testing import check_plan, sequence_law

from ..own_kinds import (
    EachSharpenedDraft,
    HubPairDraft,
    LeaderDraft,
    PickyDraft,
    SharpenedDraft,
)

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


@pytest.mark.parametrize("verifier", ["naive", "rrs", "optimal"])
@pytest.mark.parametrize("num_drafts", [1, 2])
def test_rates_are_those_of_its_own_law(verifier, num_drafts):
    options = {"num_drafts": num_drafts, "verifier": verifier}
    found = mdsd.acceptance_rates(TARGET, DRAFT, draft=KIND, **options)
    right = mdsd.acceptance_rates(TARGET, SQUARED, draft="with_replacement", **options)
    wrong = mdsd.acceptance_rates(TARGET, DRAFT, draft="with_replacement", **options)
    np.testing.assert_allclose(found, right, atol=1e-8)
    assert np.abs(right - wrong).max() > 0.01


@pytest.mark.parametrize("verifier", ["naive", "rrs", "optimal"])
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


@pytest.mark.parametrize("verifier", ["naive", "rrs", "optimal"])
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


VERIFIERS = ("naive", "rrs", "optimal", "block", "traversal")
MODELS = [TableModel(np.random.default_rng(k).dirichlet(np.ones(3), size=3)) for k in (3, 4)]
OWN = {
    "sharpened": (KIND, lambda q, n: KIND.make(q, n)),
    "hub_pair": (HubPairDraft.kind(), lambda q, n: HubPairDraft(q, 2)),
    "leader": (LeaderDraft.kind(), lambda q, n: LeaderDraft(q, n)),
}
"""Kinds and, beside them, what makes a draft."""


def listed(law):
    """The same law as one that the library knows tuple by tuple."""
    ids, probs = law.tuple_arrays()
    return mdsd.ExplicitDraft(ids, probs, vocab_size=law.vocab_size)


def assert_is_law_of_target(law, length):
    table = np.exp(MODELS[0].logits([[k] for k in range(3)]))
    assert len(law) == 3**length
    for tokens, prob in law.items():
        right = np.prod([table[a, b] for a, b in zip((0, *tokens), tokens, strict=False)])
        assert prob == pytest.approx(right, abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "verifier", "tree"),
    [
        *((kind, v, [2, 1]) for kind in ("sharpened", "leader") for v in VERIFIERS),
        *((kind, v, [3]) for kind in ("sharpened", "leader") for v in VERIFIERS),
        *(("hub_pair", v, [2, 2]) for v in ("naive", "optimal", "block")),
    ],
)
def test_decoders_are_lossless(kind, verifier, tree):
    options = {"draft": OWN[kind][0], "verifier": verifier, "tree": tree}
    assert_is_law_of_target(sequence_law(*MODELS, [0], 3, **options), 3)


def test_a_kind_that_lies_about_its_law_is_noticed():
    """The control of the test above."""

    class Lying(SharpenedDraft):
        name = "lying"

        def sample(self, rng, size=None):
            return super().sample(rng, size)

        def next_probs(self, drafted):
            return np.full(self.vocab_size, 1.0 / self.vocab_size)

    options = {"draft": Lying.kind(power=2), "verifier": "rrs", "tree": [2]}
    law = sequence_law(*MODELS, [0], 1, **options)
    with pytest.raises(AssertionError):
        assert_is_law_of_target(law, 1)


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_text(kind, temperature):
    options = {"draft": OWN[kind][0], "tree": [2, 2], "verifier": "optimal", "max_new_tokens": 9}
    result = generate(*MODELS, [0], temperature=temperature, rng=0, **options)
    assert len(result.token_ids) == 9
    if temperature == 0.0:
        likeliest = MODELS[0].logits([[k] for k in range(3)]).argmax(axis=1)
        greedy = [int(likeliest[0])]
        while len(greedy) < 9:
            greedy.append(int(likeliest[greedy[-1]]))
        assert result.token_ids.tolist() == greedy


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("verifier", ["naive", "optimal", "rrs"])
def test_plans_are_those_of_the_law_tuple_by_tuple(kind, verifier):
    chosen = mdsd.get_verifier(verifier)
    for p, q in zip(TARGET, DRAFT, strict=True):
        law = OWN[kind][1](q, 2)
        assert mdsd.acceptance_bound(p, law).value == pytest.approx(
            mdsd.acceptance_bound(p, listed(law)).value, abs=1e-9
        )
        if not chosen.supports(law):
            continue
        plan = chosen.plan(p, law)
        check_plan(plan, attains_bound=chosen.attains_bound)
        if verifier != "rrs":  # a listed law has no successive draws
            other = chosen.plan(p, listed(law)).acceptance_rate
            assert plan.acceptance_rate == pytest.approx(other, abs=1e-8)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_recursive_rejection_is_that_of_the_same_law_built_in(n):
    for p, q, squared in zip(TARGET, DRAFT, SQUARED, strict=True):
        plan = mdsd.RRSVerifier().plan(p, KIND.make(q, n))
        known = mdsd.RRSVerifier().plan(p, mdsd.WithReplacement(squared, n))
        ids, _ = plan.draft.tuple_arrays()
        np.testing.assert_allclose(plan.output_law(ids), known.output_law(ids), atol=1e-12)
        assert plan.acceptance_rate == pytest.approx(known.acceptance_rate, abs=1e-12)


def test_kinds_without_successive_draws_are_refused():
    pair = HubPairDraft.kind()
    assert not mdsd.get_verifier("rrs").supports(pair.example(2))
    for verifier in ("rrs", "traversal"):
        with pytest.raises(mdsd.UnsupportedError, match="hub_pair"):
            generate(*MODELS, [0], draft=pair, verifier=verifier, tree=[2], max_new_tokens=1)


PAIRS = np.random.default_rng(5).dirichlet(np.ones(5), size=(6, 2))
"""Distributions of two draft models."""


@pytest.mark.parametrize("verifier", ["naive", "rrs", "optimal"])
def test_drafts_with_a_model_each(verifier):
    each = EachSharpenedDraft.kind()
    squared = PAIRS**2 / (PAIRS**2).sum(axis=2, keepdims=True)
    options = {"num_drafts": 2, "verifier": verifier}
    found = mdsd.acceptance_rates(TARGET, PAIRS, draft=each, **options)
    right = mdsd.acceptance_rates(TARGET, squared, draft="independent", **options)
    np.testing.assert_allclose(found, right, atol=1e-8)
    found = mdsd.acceptance_bounds(TARGET, PAIRS, draft=each, num_drafts=2)
    right = mdsd.acceptance_bounds(TARGET, squared, draft="independent", num_drafts=2)
    np.testing.assert_allclose(found, right, atol=1e-9)
    with pytest.raises(mdsd.InvalidArgumentError, match="num_drafts is 3"):
        mdsd.acceptance_bounds(TARGET, PAIRS, draft=each, num_drafts=3)


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_decoders_with_a_model_each_are_lossless(verifier):
    models = [MODELS[1], TableModel(np.random.default_rng(6).dirichlet(np.ones(3), size=3))]
    options = {"draft": EachSharpenedDraft.kind(), "verifier": verifier, "tree": [2, 1]}
    assert_is_law_of_target(sequence_law(MODELS[0], models, [0], 3, **options), 3)
    with pytest.raises(mdsd.InvalidArgumentError, match="draft_model is one model"):
        sequence_law(*MODELS, [0], 1, **options)


def test_what_a_pair_states():
    pair = HubPairDraft.kind()
    assert (pair.distinct, pair.num_certain(2), pair.draft_type.certain_first) == (True, 1, False)
    assert (pair.applies(2, 1), pair.applies(3, 1)) == (True, False)
    certain = np.eye(5)[[0, 1, 2]]
    assert (
        pair.drawable(np.concatenate([certain, DRAFT[:2]]), 2).tolist() == [False] * 3 + [True] * 2
    )
    assert pair.make_at_most(certain[1], 2).top_token_ids.tolist() == [1]
    with pytest.raises(mdsd.InvalidArgumentError, match="num_drafts is 3; a pair has 2 drafts"):
        mdsd.acceptance_bounds(TARGET, DRAFT, draft=pair, num_drafts=3)
    with pytest.raises(mdsd.InvalidTokenError, match="a pair has 2 drafts"):
        mdsd.verify_batch(TARGET, DRAFT, np.zeros((6, 3), int), draft=pair, verifier="naive", rng=0)


@pytest.mark.parametrize("verifier", ["naive", "optimal"])
def test_batches_of_pairs(verifier):
    pair, chosen = HubPairDraft.kind(), mdsd.get_verifier(verifier)
    laws = [pair.make(q, 2) for q in DRAFT]
    plans = [chosen.plan(p, law) for p, law in zip(TARGET, laws, strict=True)]
    rates = mdsd.acceptance_rates(TARGET, DRAFT, draft=pair, num_drafts=2, verifier=verifier)
    np.testing.assert_allclose(rates, [plan.acceptance_rate for plan in plans], atol=1e-12)
    ids = np.stack([law.sample(k) for k, law in enumerate(laws)])
    uniforms = np.random.default_rng(0).random((6, plans[0].num_uniforms))
    options = {"draft": pair, "verifier": verifier}
    found = mdsd.verify_batch(TARGET, DRAFT, ids, uniforms=uniforms, **options)
    rows = zip(plans, ids, uniforms, strict=True)
    alone = [plan.verify(row, uniforms=numbers).token_id for plan, row, numbers in rows]
    assert found.token_ids.tolist() == alone
    wrong = ids.copy()
    wrong[3] = [k for k in range(5) if k != laws[3].hub][:2]
    with pytest.raises(
        mdsd.InvalidTokenError, match=r"row 3: .* cannot be drawn from the hub_pair"
    ):
        mdsd.verify_batch(TARGET, DRAFT, wrong, rng=0, **options)


def test_layouts_of_chains_are_those_of_the_same_law_built_in():
    """Two chains of one draft each: each row of the distributions is a step of its own."""
    ids, bonus = np.array([[0], [4]]), np.array([1, 2])
    uniforms = np.random.default_rng(0).random((20, 2, 2))
    p = TARGET[:4].reshape(2, 2, 5)
    for numbers in uniforms:
        given = {"draft_token_ids": ids, "target_probs": p, "uniforms": numbers}
        found = flashinfer_chain(DRAFT[:2, np.newaxis], draft=KIND, **given)
        right = flashinfer_chain(SQUARED[:2, np.newaxis], **given)
        assert found.token_ids.tolist() == right.token_ids.tolist()
        rest = (p[:, 0], bonus)
        found = vllm_flattened(
            ids[:, 0], [1, 2], DRAFT[:2], *rest, draft=KIND, uniforms=numbers.ravel()
        )
        right = vllm_flattened(ids[:, 0], [1, 2], SQUARED[:2], *rest, uniforms=numbers.ravel())
        assert found.token_ids.tolist() == right.token_ids.tolist()
    for pair in (HubPairDraft.kind(), LeaderDraft.kind()):  # not one token by chance
        with pytest.raises(mdsd.InvalidArgumentError, match="draft is"):
            flashinfer_chain(DRAFT[:2, np.newaxis], ids, p, draft=pair, rng=0)


@pytest.mark.parametrize(("kind", "verifier"), [("sharpened", "rrs"), ("hub_pair", "naive")])
def test_layouts_of_trees(kind, verifier):
    """A root with two children: what is emitted is that of the plan of the default verifier."""
    made = OWN[kind][1]
    for p, q in zip(TARGET, DRAFT, strict=True):
        law = made(q, 2)
        plan = mdsd.get_verifier(verifier).plan(p, law)
        for seed in range(10):
            drafts = law.sample(seed)
            if drafts[0] == drafts[1]:
                continue
            numbers = np.random.default_rng(seed).random((2, plan.num_uniforms))
            right = plan.verify(drafts, uniforms=numbers[0]).token_id
            given = {"draft": OWN[kind][0], "target_probs": np.tile(p, (3, 1))}
            found = eagle_tree(
                [0, *drafts],
                [[0, 1], [0, 2]],
                np.tile(q, (3, 1)),
                **given,
                uniforms=numbers,
            )
            emitted = found.token_id if found.accepted == 0 else drafts[found.best_candidate]
            assert emitted == right
            batch = {
                key: np.array(value)[np.newaxis]
                for key, value in {
                    "candidates": [0, *drafts],
                    "retrive_index": [0, 1, 2],
                    "retrive_next_token": [1, -1, -1],
                    "retrive_next_sibling": [-1, 2, -1],
                    "target_probs": given["target_probs"],
                    "draft_probs": np.tile(q, (3, 1)),
                }.items()
            }
            tree = sglang_tree(draft=OWN[kind][0], uniforms=numbers[np.newaxis], **batch)
            assert tree.token_ids[0, 0] == right


class RoundedPairDraft(HubPairDraft):
    """A pair whose hit probabilities are rounded: the hub is drafted "almost" for sure."""

    name = "rounded_pair"

    def hit_probs(self, order):
        hits = super().hit_probs(order)
        hits[1:-1] *= 1.0 - 2.0**-52
        return hits


@pytest.mark.parametrize("draft_type", [HubPairDraft, RoundedPairDraft, LeaderDraft])
def test_selecting_verifiers_ask_how_many_tokens_are_certain(draft_type):
    options = {"draft": draft_type.kind(), "verifier": "block", "tree": [2]}
    assert_is_law_of_target(sequence_law(*MODELS, [0], 2, **options), 2)
