"""The hybrid draft: its top tokens fixed, the others drawn without replacement beside them."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd import GreedyDraft, HybridDraft, TopKDraft, WithoutReplacement
from mdsd.decoding import TableModel, generate
from mdsd.testing import sequence_law

Q = np.array([0.05, 0.4, 0.2, 0.05, 0.2, 0.1])
TARGETS = np.random.default_rng(0).dirichlet(np.ones(6), size=4)
SAME = [
    (0, lambda n: WithoutReplacement(Q, n)),
    (None, lambda n: GreedyDraft(Q, n)),
    (True, lambda n: TopKDraft(Q, n)),
]


def num_top(which, n):
    return {0: 0, None: n - 1, True: n}[which]


@pytest.mark.parametrize(("which", "known"), SAME, ids=["without", "greedy", "top_k"])
@pytest.mark.parametrize("n", [1, 2, 3])
class TestLimits:
    """With m = 0, n - 1 and n it is an existing draft, to 1e-12."""

    def test_law(self, which, known, n):
        draft, other = HybridDraft(Q, n, num_top(which, n)), known(n)
        grid = np.indices((6,) * n).reshape(n, -1).T
        np.testing.assert_allclose(draft.prob(grid), other.prob(grid), atol=1e-12)
        assert draft.is_possible(grid).tolist() == other.is_possible(grid).tolist()
        order = np.random.default_rng(n).permutation(6)
        np.testing.assert_allclose(draft.hit_probs(order), other.hit_probs(order), atol=1e-12)
        np.testing.assert_allclose(draft.token_hit_probs(), other.token_hit_probs(), atol=1e-12)
        assert dict(draft.tuples()).keys() == dict(other.tuples()).keys()

    def test_bounds_and_rates(self, which, known, n):
        draft, other = HybridDraft(Q, n, num_top(which, n)), known(n)
        for p in TARGETS:
            bound = mdsd.acceptance_bound(p, draft).value
            assert bound == pytest.approx(mdsd.acceptance_bound(p, other).value, abs=1e-12)
            for name in ("naive", "optimal"):
                verifier = mdsd.get_verifier(name)
                rate = verifier.plan(p, draft).acceptance_rate
                assert rate == pytest.approx(verifier.plan(p, other).acceptance_rate, abs=1e-9)


@pytest.mark.parametrize("m", [0, 1, 2, 3])
def test_all_methods_agree(m):
    for p in TARGETS:
        draft = HybridDraft(Q, 3, m)
        values = [
            mdsd.acceptance_bound(p, draft, method=method).value
            for method in ("prefix", "lp", "matching", "cover", "subset", "submodular")
        ]
        assert np.ptp(values) < 1e-9
    assert mdsd.acceptance_bound(TARGETS[0], HybridDraft(Q, 3, 1), method="cvxpy").value > 0.0


def test_rrs_with_no_top_is_rrs_without_replacement():
    for p in TARGETS:
        plan = mdsd.RRSVerifier().plan(p, HybridDraft(Q, 3, 0))
        known = mdsd.RRSVerifier().plan(p, WithoutReplacement(Q, 3))
        ids, _ = plan.draft.tuple_arrays()
        np.testing.assert_allclose(plan.output_law(ids), known.output_law(ids), atol=1e-12)
        assert plan.acceptance_rate == pytest.approx(known.acceptance_rate, abs=1e-12)


@pytest.mark.parametrize("verifier", ["naive", "rrs", "optimal"])
@pytest.mark.parametrize("m", [0, 1, 2, 3])
def test_lossless(verifier, m):
    for p in TARGETS:
        draft = HybridDraft(Q, 3, m)
        plan = mdsd.get_verifier(verifier).plan(p, draft)
        ids, probs = draft.tuple_arrays()
        np.testing.assert_allclose(probs @ plan.output_law(ids), p, atol=1e-12)
        np.testing.assert_allclose(plan.marginal_law(), p, atol=1e-12)


def test_a_wrong_law_is_noticed():
    """The control of the test above: the tuples of another m do not give the target."""
    plan = mdsd.get_verifier("optimal").plan(TARGETS[0], HybridDraft(Q, 3, 1))
    ids, _ = plan.draft.tuple_arrays()
    uniform = np.full(len(ids), 1.0 / len(ids))
    assert np.abs(uniform @ plan.output_law(ids) - TARGETS[0]).max() > 1e-3


@pytest.mark.parametrize("verifier", ["naive", "rrs", "optimal"])
@pytest.mark.parametrize("m", [0, 1, 2])
def test_batches(verifier, m):
    kind = HybridDraft.kind(num_top=m)
    rng = np.random.default_rng(m)
    drafted = rng.dirichlet(np.ones(6), size=4)
    laws = [kind.make(q, 2) for q in drafted]
    bounds = mdsd.acceptance_bounds(TARGETS, drafted, draft=f"hybrid:{m}", num_drafts=2)
    rates = mdsd.acceptance_rates(TARGETS, drafted, draft=kind, num_drafts=2, verifier=verifier)
    chosen = mdsd.get_verifier(verifier)
    plans = [chosen.plan(p, law) for p, law in zip(TARGETS, laws, strict=True)]
    for row, (p, law, plan) in enumerate(zip(TARGETS, laws, plans, strict=True)):
        assert bounds[row] == pytest.approx(mdsd.acceptance_bound(p, law).value, abs=1e-12)
        assert rates[row] == pytest.approx(plan.acceptance_rate, abs=1e-9)
    ids = np.stack([law.sample(rng) for law in laws])
    uniforms = rng.random((4, plans[0].num_uniforms))
    found = mdsd.verify_batch(
        TARGETS, drafted, ids, draft=kind, verifier=verifier, uniforms=uniforms
    )
    alone = [
        plan.verify(row, uniforms=numbers).token_id
        for plan, row, numbers in zip(plans, ids, uniforms, strict=True)
    ]
    assert found.token_ids.tolist() == alone
    if m:
        wrong = ids.copy()
        wrong[2, 0] = np.argmin(drafted[2])
        with pytest.raises(mdsd.InvalidTokenError, match="row 2"):
            mdsd.verify_batch(TARGETS, drafted, wrong, draft=kind, verifier=verifier, rng=0)


@pytest.mark.parametrize("verifier", ["naive", "rrs", "optimal", "block", "traversal"])
@pytest.mark.parametrize("tree", [[2, 1], [3]])
def test_decoders_are_lossless(verifier, tree):
    target = TableModel(np.random.default_rng(1).dirichlet(np.ones(3), size=3))
    draft_model = TableModel(np.random.default_rng(2).dirichlet(np.ones(3), size=3))
    options = {"draft": HybridDraft.kind(num_top=1), "verifier": verifier, "tree": tree}
    law = sequence_law(target, draft_model, [0], 3, **options)
    table = np.exp(np.concatenate([target.logits([[k]]) for k in range(3)]))
    for tokens, prob in law.items():
        right = np.prod([table[a, b] for a, b in zip((0, *tokens), tokens, strict=False)])
        assert prob == pytest.approx(right, abs=1e-12)
    assert len(law) == 27


def test_greedy_text_at_temperature_0():
    target = TableModel([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    result = generate(
        target, target, [0], draft="hybrid:1", tree=[2, 1], temperature=0.0, max_new_tokens=6
    )
    assert result.token_ids.tolist() == [1, 2, 0, 1, 2, 0]


def test_full_vocabulary():
    rng = np.random.default_rng(0)
    q = rng.dirichlet(np.full(50_000, 0.02))
    p = 0.5 * q + 0.5 * rng.dirichlet(np.full(50_000, 0.02))
    draft = HybridDraft(q, 3, 1)
    plan = mdsd.get_verifier("optimal").plan(p, draft)
    bound = mdsd.acceptance_bound(p, draft).value
    assert plan.acceptance_rate <= bound + 1e-12
    assert plan.acceptance_rate > bound - 1e-3
    assert plan.gap >= bound - plan.acceptance_rate - 1e-12


@pytest.mark.parametrize("m", [0, 1])
def test_probabilities_near_the_smallest_number(m):
    q = np.array([1.0, 8e-320, 4e-320][: m + 2])
    draft = HybridDraft(q, m + 2, m)  # all tokens are drafted
    for target in np.eye(m + 2):
        for method in ("auto", "submodular", "lp"):
            assert mdsd.acceptance_bound(target, draft, method=method).value == pytest.approx(1.0)
        plan = mdsd.get_verifier("optimal").plan(target, draft)
        assert plan.acceptance_rate == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: HybridDraft(Q, 2, 3), "num_drafts is 2.*3 most likely"),
        (lambda: HybridDraft(Q, 2, -1), "num_top is -1"),
        (lambda: HybridDraft(Q, 0, 0), "num_drafts is 0"),
        (lambda: HybridDraft.kind(), "num_top .* is missing"),
        (lambda: HybridDraft.kind(num_top=0.5), "num_top is 0.5"),
        (lambda: HybridDraft.kind(num_top=3).make(Q, 2), "num_drafts is 2"),
        (lambda: mdsd.acceptance_bounds([Q], [Q], draft="hybrid", num_drafts=2), "is missing"),
        (lambda: mdsd.acceptance_bounds([Q], [Q], draft="hybrid:a", num_drafts=2), "num_top"),
        (lambda: mdsd.acceptance_bounds([Q], [Q], draft="hybrid:1:2", num_drafts=2), "hybrid:1:2"),
    ],
)
def test_bad_arguments(call, words):
    with pytest.raises(mdsd.InvalidArgumentError, match=words):
        call()


def test_too_few_tokens():
    with pytest.raises(mdsd.InvalidDistributionError, match=r"2 tokens .* the hybrid draft .* 3"):
        HybridDraft([0.5, 0.5, 0.0], 3, 1)
