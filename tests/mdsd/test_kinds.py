"""What draft classes state of their kinds, against enumeration, and who goes by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import find, settings

import mdsd
from mdsd import DraftDistribution, GreedyDraft, SpecHubDraft, TopKDraft, WithReplacement
from mdsd.decoding.layouts import eagle_tree, flashinfer_chain, sglang_tree, vllm_flattened
from mdsd.drafts import registry
from mdsd.testing import (
    CheckFailure,
    check_draft,
    check_verifier,
    draft_distributions,
    instances,
    problems,
    random_probs,
)

P = np.array([0.4, 0.1, 0.3, 0.2])
Q = np.array([0.1, 0.4, 0.2, 0.3])


# --- facts of the built-in classes ---------------------------------------------------------------


def some_drafts():
    """Every kind, at every number of drafts that can be enumerated, on vectors of every sort."""
    rng = np.random.default_rng(3)
    for number in range(40):
        num_drafts, size = number % 4 + 1, int(rng.integers(2, 7))
        for kind in registry.example_kinds(num_drafts):
            shape = num_drafts if kind.one_model_each else 1
            vectors = np.array([random_probs(rng, size) for _ in range(shape)])
            probs = vectors if kind.one_model_each else vectors[0]
            if kind.drawable(probs[np.newaxis], num_drafts)[0]:
                yield kind, probs, num_drafts


DRAFTS = list(some_drafts())


@pytest.mark.parametrize("name", mdsd.drafts.draft_names())
def test_classes_are_what_they_state(name):
    found = [(kind, probs, n) for kind, probs, n in DRAFTS if kind.name == name]
    assert len(found) >= 5
    for kind, probs, n in found:
        check_draft(kind.make(probs, n), seed=n)


def test_explicit_drafts_are_what_they_state():
    check_draft(mdsd.ExplicitDraft([[0, 1], [2, 2], [1, 0]], [0.2, 0.5, 0.3], vocab_size=4))


@pytest.mark.parametrize(("kind", "probs", "n"), DRAFTS, ids=[f"{k}-{n}" for k, _, n in DRAFTS])
def test_batches_take_what_can_be_drawn_and_nothing_else(kind, probs, n):
    """The facts alone decide which tuples are possible in a batch."""
    draft = kind.make(probs, n)
    size = draft.vocab_size
    grid = np.indices((min(size, 4),) * n).reshape(n, -1).T[:64]
    target = np.full((1, size), 1.0 / size)
    for ids in grid:

        def verified(ids=ids):
            mdsd.verify_batch(target, probs[np.newaxis], [ids], draft=kind, verifier="naive", rng=0)
            return True

        if draft.is_possible(ids):
            assert verified()
        else:
            with pytest.raises(mdsd.InvalidTokenError, match="draft_token_ids row 0"):
                verified()


# --- negative controls: one wrong fact each ------------------------------------------------------


class Copied(DraftDistribution):
    """What a built-in class does, under facts of its own."""

    base: type = WithReplacement

    def __init__(self, draft_probs, num_drafts):
        self.made = self.base.from_probs(draft_probs, num_drafts)
        self.draft_probs = self.made.draft_probs
        self.num_drafts, self.vocab_size = self.made.num_drafts, self.made.vocab_size

    def hit_probs(self, order):
        return self.made.hit_probs(order)

    def sample(self, rng, size=None):
        return self.made.sample(rng, size)

    def tuples(self):
        return self.made.tuples()


def copied(base, *, num_certain=None, **facts):
    if num_certain is not None:
        facts["num_certain"] = classmethod(lambda cls, num_drafts: num_certain)
    return type("Copied", (Copied,), {"base": base, **facts})(Q, 2)


OTHER = np.roll(Q, 1)
WRONG = {
    "distinct": (WithReplacement, {"distinct": True}, "repeats a token"),
    "too-many-certain": (GreedyDraft, {"num_certain": 2}, "are stated to be certain, but are not"),
    "too-few-certain": (TopKDraft, {"num_certain": 1}, "2 tokens are in every tuple, but 1"),
    "certain-first": (SpecHubDraft, {"num_certain": 1}, "are stated to be certain, but are not"),
    "one-model-each": (WithReplacement, {"one_model_each": True}, "draft_probs has shape"),
    "next-probs": (
        GreedyDraft,
        {"num_certain": 1, "successive": True, "next_probs": lambda self, drafted: Q},
        r"next_probs after \[\] is not",
    ),
    "later-next-probs": (
        mdsd.WithoutReplacement,
        {"distinct": True, "successive": True, "next_probs": lambda self, drafted: Q},
        r"next_probs after \[0\] is not",
    ),
    "hit-probs": (
        WithReplacement,
        {"hit_probs": lambda self, order: TopKDraft(Q, 2).hit_probs(order)},
        "hit_probs is not",
    ),
    "token-hit-probs": (
        WithReplacement,
        {"token_hit_probs": lambda self: self.made.token_hit_probs() * (1 - 1e-9)},
        "token_hit_probs is not",
    ),
    "prob": (WithReplacement, {"prob": lambda self, ids: np.zeros(len(ids))}, "prob is not"),
    "sample": (
        WithReplacement,
        {"sample": lambda self, rng, size: WithReplacement(OTHER, 2).sample(rng, size)},
        "sample does not follow",
    ),
    "sample-outside": (
        TopKDraft,
        {"num_certain": 2, "sample": lambda self, rng, size: np.zeros((size, 2), dtype=int)},
        "sample draws a tuple that is not listed",
    ),
    "from-probs": (
        WithReplacement,
        {"from_probs": classmethod(lambda cls, probs, n: WithReplacement(OTHER, n))},
        "its kind makes another draft",
    ),
}


@pytest.mark.parametrize(("base", "facts", "message"), WRONG.values(), ids=WRONG)
def test_wrong_facts_are_noticed(base, facts, message):
    with pytest.raises(CheckFailure, match=message):
        check_draft(copied(base, **facts))


@pytest.mark.parametrize(
    ("base", "facts"),
    [
        (WithReplacement, {}),
        (mdsd.WithoutReplacement, {"distinct": True}),
        (GreedyDraft, {"distinct": True, "num_certain": 1}),
        (SpecHubDraft, {"distinct": True, "num_certain": 1, "certain_first": False}),
        (TopKDraft, {"distinct": True, "num_certain": 2}),
        (
            mdsd.WithoutReplacement,
            {"successive": True, "next_probs": lambda self, drafted: self.made.next_probs(drafted)},
        ),
    ],
)
def test_right_facts_pass(base, facts):
    """The same copies that the negative controls change."""
    check_draft(copied(base, **facts))


def test_only_drafts_are_checked():
    with pytest.raises(mdsd.InvalidArgumentError, match="draft is str"):
        check_draft("greedy")


# --- a kind that is registered is in all suites --------------------------------------------------


class CyclicDraft(DraftDistribution):
    """One token from q, and the `step`-th after it: of another package, with facts alone."""

    name = "cyclic"
    options = ("step",)

    def __init__(self, draft_probs, num_drafts, step):
        self.draft_probs = np.asarray(draft_probs, dtype=np.float64)
        self.draft_probs = self.draft_probs / self.draft_probs.sum()
        self.num_drafts, self.vocab_size, self.step = num_drafts, len(self.draft_probs), step

    @classmethod
    def refusal(cls, num_drafts, **options):
        return None if num_drafts <= 2 else "the cyclic draft has at most 2 drafts"

    @classmethod
    def example_kinds(cls, num_drafts):
        return cls.kind(step=0), cls.kind(step=1)

    def _tuple(self, first):
        return (first, (first + self.step) % self.vocab_size)[: self.num_drafts]

    def tuples(self):
        for first in np.flatnonzero(self.draft_probs).tolist():
            yield self._tuple(first), float(self.draft_probs[first])

    def prob(self, draft_token_ids):
        ids = np.asarray(draft_token_ids)
        right = (ids[..., -1] - ids[..., 0]) % self.vocab_size == (
            self.step * (self.num_drafts - 1)
        ) % self.vocab_size
        return np.where(right, self.draft_probs[ids[..., 0]], 0.0)

    def hit_probs(self, order):
        rank = np.argsort(order)
        firsts = np.array([min(rank[i] for i in self._tuple(f)) for f in range(self.vocab_size)])
        return np.array([self.draft_probs[firsts < k].sum() for k in range(self.vocab_size + 1)])

    def sample(self, rng, size=None):
        rng = np.random.default_rng(rng)
        first = rng.choice(self.vocab_size, 1 if size is None else size, p=self.draft_probs)
        drawn = np.array([self._tuple(i) for i in first.tolist()])
        return drawn[0] if size is None else drawn


@pytest.fixture
def registered(monkeypatch):
    known = {**registry._registry(), "cyclic": CyclicDraft}
    monkeypatch.setattr(registry, "_registry", lambda: known)


def test_own_kind_is_what_it_states():
    for step in (0, 1):
        check_draft(CyclicDraft(Q, 2, step))


@pytest.mark.usefixtures("registered")
class TestRegistered:
    def test_instances_have_every_example(self):
        labels = {found.label.rsplit("-", 2)[0] for found in instances(0, 6)}
        assert {"cyclic:0", "cyclic:1", "greedy", "explicit"} <= labels

    def test_conformance_suite_tries_it(self):
        """A verifier that is wrong for this kind only."""

        class Wrong(mdsd.NaiveVerifier):
            def _plan(self, target_probs, draft):
                wrong = draft.name == "cyclic"
                return super()._plan(np.roll(target_probs, 1) if wrong else target_probs, draft)

        with pytest.raises(CheckFailure, match="on cyclic:"):
            check_verifier(Wrong(), count=3)

    def test_conformance_suite_passes(self, monkeypatch):
        # A step of 1 is one between neighbours: other labels make another draft of it.
        monkeypatch.setattr(
            CyclicDraft, "example_kinds", classmethod(lambda cls, n: (cls.kind(step=0),))
        )
        check_verifier(mdsd.get_verifier("naive"), count=4)

    def test_strategies_draw_it(self):
        quick = settings(max_examples=500, database=None, derandomize=True, deadline=None)
        for kinds in (None, ("cyclic",), ("cyclic:1",), (CyclicDraft.kind(step=1),)):
            found = find(
                draft_distributions(kinds=kinds),
                lambda draft: draft.name == "cyclic" and draft.step == 1,
                settings=quick,
            )
            assert found.num_drafts == 1
        with pytest.raises(mdsd.InvalidArgumentError, match="can be drawn"):
            draft_distributions(num_drafts=3, kinds=("cyclic",))

    def test_problems_are_written_as_calls(self):
        quick = settings(max_examples=500, database=None, derandomize=True, deadline=None)
        found = find(problems(kinds=("cyclic:1",)), lambda problem: True, settings=quick)
        assert f"{__name__}.CyclicDraft([1.0], 1, step=1)" in found.label
        spechub = find(problems(kinds=("spechub",)), lambda problem: True, settings=quick)
        assert "], mdsd.SpecHubDraft.from_probs([" in spechub.label


# --- layouts -------------------------------------------------------------------------------------

KIND = CyclicDraft.kind(step=1)
"""Not registered: a kind that is given as an object need not be."""


def tree(ids, **options):
    return sglang_tree(
        candidates=[[0, *ids]],
        retrive_index=[[0, 1, 2]],
        retrive_next_token=[[1, -1, -1]],
        retrive_next_sibling=[[-1, 2, -1]],
        target_probs=np.stack([P, Q, Q])[np.newaxis],
        draft_probs=np.stack([Q, Q, Q])[np.newaxis],
        **options,
    )


@pytest.mark.parametrize("verifier", [None, "naive", "optimal"])
def test_trees_of_an_own_kind_do_what_its_plans_do(verifier):
    rule = mdsd.get_verifier(verifier or "naive")
    plan = rule.plan(P, KIND.make(Q, 2))
    numbers = np.random.default_rng(0).random((40, 2, max(1, plan.num_uniforms)))
    seen = set()
    for ids in ([0, 1], [1, 2], [2, 3], [3, 0]):
        for row in numbers:
            found = tree(ids, draft=KIND, verifier=verifier, uniforms=row[np.newaxis])
            expected = plan.verify(ids, uniforms=row[0])
            assert int(found.token_ids[0, 0]) == expected.token_id
            seen.add(int(found.accepted[0]))
    assert 1 in seen
    assert (0 in seen) == (plan.acceptance_rate < 1.0 - 1e-9)


def test_trees_of_an_own_kind_refuse_what_it_cannot_draw():
    with pytest.raises(mdsd.InvalidTokenError, match=r"candidates row 0: the children \[0, 2\] of"):
        tree([0, 2], draft=KIND)
    with pytest.raises(mdsd.InvalidArgumentError, match="at most 2"):
        KIND.check_count(3)


def test_path_of_an_own_kind():
    found = eagle_tree(
        [0, 0, 1], [[0, 1], [0, 2]], np.stack([Q] * 3), np.stack([P] * 3), draft=KIND, rng=1
    )
    plan = mdsd.get_verifier("naive").plan(P, KIND.make(Q, 2))
    law = plan.output_law([0, 1])
    assert found.accept_length in (0, 1)
    if found.accept_length == 0:
        law[[0, 1]] = 0.0
        np.testing.assert_allclose(found.next_token_probs, law / law.sum(), atol=1e-15)


class SquaredDraft(CyclicDraft):
    """Its single token is not drawn from the draft model's output, but from its squares."""

    name = "squared"
    options = ()

    def __init__(self, draft_probs, num_drafts):
        super().__init__(np.asarray(draft_probs, dtype=np.float64) ** 2, num_drafts, 1)


def test_chains_go_by_the_distribution_of_the_token():
    """Verified as if the squares had been given as outputs; the outputs themselves differ."""
    rng = np.random.default_rng(0)
    outputs, target = rng.dirichlet(np.ones(5), (30, 3)), rng.dirichlet(np.ones(5), (30, 4))
    squares = outputs**2 / (outputs**2).sum(axis=-1, keepdims=True)
    ids, numbers = rng.integers(0, 5, (30, 3)), rng.random((30, 4))
    own = flashinfer_chain(outputs, ids, target, draft=SquaredDraft.kind(), uniforms=numbers)
    right = flashinfer_chain(squares, ids, target, uniforms=numbers)
    wrong = flashinfer_chain(outputs, ids, target, uniforms=numbers)
    assert own.token_ids.tolist() == right.token_ids.tolist() != wrong.token_ids.tolist()
    flat = vllm_flattened(
        ids.ravel(),
        np.arange(3, 91, 3),
        outputs.reshape(-1, 5),
        target[:, :-1].reshape(-1, 5),
        np.where(own.accepted == 3, own.token_ids[:, -1], 0),
        draft=SquaredDraft.kind(),
        uniforms=numbers.ravel(),
    )
    assert flat.token_ids.tolist() == own.token_ids.tolist()


def test_greedy_chains_are_drawn_from_the_output():
    given = (np.tile(Q, (1, 2, 1)), [[1, 2]], np.tile(P, (1, 3, 1)))
    found = flashinfer_chain(*given, draft=GreedyDraft.kind(), uniforms=[[0.2, 0.9, 0.5]])
    same = flashinfer_chain(*given, uniforms=[[0.2, 0.9, 0.5]])
    assert found.token_ids.tolist() == same.token_ids.tolist()


@pytest.mark.parametrize("draft", ["independent", mdsd.IndependentDrafts.kind()])
def test_kinds_with_a_model_each_fit_no_layout(draft):
    with pytest.raises(mdsd.InvalidArgumentError, match="expected one of with_replacement, "):
        tree([0, 1], draft=draft)


@pytest.mark.parametrize("draft", ["spechub", TopKDraft.kind(), "independent"])
def test_kinds_that_fit_no_chain(draft):
    with pytest.raises(mdsd.InvalidArgumentError, match=r"draft is .*; expected one of"):
        flashinfer_chain([[Q]], [[1]], [[P, P]], draft=draft)


@pytest.mark.parametrize(
    ("draft", "verifier"),
    [
        ("with_replacement", "rrs"),
        ("without_replacement", "rrs"),
        ("greedy", "greedy"),
        ("spechub", "spechub"),
        ("top_k", "naive"),
    ],
)
def test_verifier_that_goes_with_a_kind(draft, verifier):
    kind = mdsd.drafts.read_kind(draft)
    for ids in {tuple(row) for row in kind.make(Q, 2).sample(0, 20).tolist()}:
        for seed in range(5):
            chosen = tree(ids, draft=kind, rng=seed)
            named = tree(ids, draft=draft, verifier=verifier, rng=seed)
            assert chosen.token_ids.tolist() == named.token_ids.tolist()
