"""Trees that grow with what was drafted: as lossless as fixed ones, and within their budget."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mdsd
from mdsd.decoding import DraftedLevel, GrowingTree, TableModel, TreeGrowth, generate
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.decoder import make_decoder
from mdsd.decoding.drafting import Drafting
from mdsd.decoding.enumeration import branches
from mdsd.decoding.growing import _drafted
from mdsd.decoding.rows import Row
from mdsd.drafts import read_kind
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.testing import accepted_law, sequence_law

from .toys import PrefixModel, distance, plain_law

EXACT = 1e-12
V = 3
PROMPT = [1]
TARGET, DRAFT_MODEL, SECOND = (PrefixModel(seed, V) for seed in (1, 2, 3))
GAPPY = PrefixModel(4, V, zeros=0.5)

HYBRID = mdsd.HybridDraft.kind(num_top=1)
CASES = [
    *itertools.product(
        ["with_replacement", "without_replacement"],
        ["rrs", "optimal", "block", "traversal", "layers"],
    ),
    ("with_replacement", "kseq"),
    ("greedy", "greedy"),
    ("greedy", "optimal"),
    ("greedy", "block"),
    ("greedy", "layers"),
    ("spechub", "layers"),
    ("independent", "layers"),
    (HYBRID, "layers"),
    ("independent", "rrs"),
    ("independent", "block"),
    ("independent", "traversal"),
    ("spechub", "spechub"),
    ("spechub", "block"),
    ("top_k", "optimal"),
    (HYBRID, "optimal"),
    (HYBRID, "block"),
    (HYBRID, "traversal"),
    (mdsd.HybridDraft.kind(num_top=2), "rrs"),
]
each_case = pytest.mark.parametrize(
    ("draft", "verifier"), CASES, ids=[f"{read_kind(d).label}-{v}" for d, v in CASES]
)


class Restless(TreeGrowth):
    """Numbers of children that depend on all tokens so far, in no sensible way."""

    def __init__(self, budget: int, depth: int, max_children: int = 2) -> None:
        self.budget, self.depth, self.max_children = budget, depth, max_children

    def children(self, level):
        found, left = [], level.drafts_left
        everything = sum(
            (place + 1) * (token + 1)
            for depth in range(level.depth + 1)
            for place, token in enumerate(level.at(depth).token_ids)
        )
        for place, token in enumerate(level.token_ids):
            wish = (everything + token + place) % (self.max_children + 1)
            if level.above is None:
                wish = self.max_children
            count = min(wish, left)
            while count and not level.can_draft(count):
                count -= 1
            found.append(count)
            left -= count
        return found


def models(draft, model=DRAFT_MODEL):
    return [model, SECOND] if draft == "independent" else model


def law_of(draft, verifier, tree, length=2, model=DRAFT_MODEL, **options):
    given = {"draft": draft, "verifier": verifier, "tree": tree, **options}
    return sequence_law(TARGET, models(draft, model), PROMPT, length, **given)


def trees_of(draft, tree):
    """All trees that can be drawn in the first step of two tokens."""
    decoder = make_decoder(TARGET, models(draft), draft=draft, verifier="optimal", tree=tree)
    return [
        decoder.score(drawn)[0]
        for _, drawn in branches(lambda choices: decoder.draw([Row(PROMPT, 2, choices)]))
    ]


def trees(draft):
    """Trees that grow differently with what is drafted."""
    # Of three tokens, with one draft certain, little is left to chance.
    least = 0.12 if read_kind(draft).num_certain(2) == 1 and draft != "spechub" else 0.0
    return {"growing": GrowingTree(5, 2, min_value=least), "restless": Restless(5, 2)}


@each_case
@pytest.mark.parametrize("which", ["growing", "restless"])
def test_law_is_that_of_the_target(draft, verifier, which):
    tree = trees(draft)[which]
    law = law_of(draft, verifier, tree)
    assert distance(law, plain_law(TARGET.probs, PROMPT, 2)) <= EXACT


@each_case
def test_draft_models_short_of_tokens(draft, verifier):
    law = law_of(draft, verifier, GrowingTree(4, 2), model=GAPPY)
    assert distance(law, plain_law(TARGET.probs, PROMPT, 2)) <= EXACT


@pytest.mark.parametrize("verifier", ["rrs", "optimal", "block", "traversal", "layers"])
@pytest.mark.parametrize("tree", [GrowingTree(4, 3), Restless(5, 3)], ids=["growing", "restless"])
def test_three_levels(verifier, tree):
    def cut(prefix):
        return mdsd.filter_probs(TARGET.probs(prefix), top_k=2)

    law = law_of("without_replacement", verifier, tree, length=3, top_k=2)
    assert distance(law, plain_law(cut, PROMPT, 3)) <= EXACT


@pytest.mark.parametrize("verifier", ["rrs", "traversal"])
def test_for_verifiers_that_go_by_order(verifier):
    tree = GrowingTree(6, 2, ordered=True)
    law = law_of("with_replacement", verifier, tree)
    assert distance(law, plain_law(TARGET.probs, PROMPT, 2)) <= EXACT


@pytest.mark.parametrize("budget", [3, 6])
@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
def test_other_budgets(draft, budget):
    law = law_of(draft, "block", GrowingTree(budget, 2, max_children=2))
    assert distance(law, plain_law(TARGET.probs, PROMPT, 2)) <= EXACT


@pytest.mark.parametrize(
    "draft",
    ["with_replacement", "without_replacement", "greedy", "independent", "spechub", HYBRID],
    ids=str,
)
@pytest.mark.parametrize("which", ["growing", "restless"])
def test_shapes_depend_on_what_was_drafted(draft, which):
    tree = trees(draft)[which]
    found = [drawn.shape for drawn in trees_of(draft, tree)]
    assert all(1 <= shape.num_nodes <= tree.budget for shape in found)
    assert all(shape.depth <= tree.depth for shape in found)
    # What is decided before anything is drawn is the same in all of them.
    assert len({len(shape.level(1)) for shape in found}) == 1
    assert len(set(found)) > 1


class TestReranking:
    """Dropping drafts because of what they are: another law than the verifier is told of."""

    @staticmethod
    def rerank(monkeypatch, least):
        """Have every node keep only children of at least some draft probability."""

        def grow(self, draft_probs, choices):
            first = len(self.paths)
            counts = self._counts.counts(draft_probs)
            for node, count, probs in zip(self._inner, counts, *draft_probs, strict=True):
                if count == 0:
                    continue
                tokens = choices.drafts(self._kind.make_at_most(probs, count)).tolist()
                kept = [token for token in tokens if probs[token] >= least] or tokens[:1]
                self._laws[node] = self._kind.make_at_most(probs, len(kept))
                for token in kept:
                    self._parents.append(node)
                    self._laws.append(None)
                    self.paths.append([*self.paths[node], token])
            self._find_inner(self._first, first)

        monkeypatch.setattr(Drafting, "grow", grow)

    @pytest.mark.parametrize("verifier", ["rrs", "optimal", "block", "traversal", "layers"])
    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
    def test_is_found_out(self, draft, verifier, monkeypatch):
        expected = plain_law(TARGET.probs, PROMPT, 2)
        self.rerank(monkeypatch, least=0.0)
        assert distance(law_of(draft, verifier, GrowingTree(4, 2)), expected) <= EXACT
        self.rerank(monkeypatch, least=0.4)
        assert distance(law_of(draft, verifier, GrowingTree(4, 2)), expected) > 1e-3


class TestWhatIsShown:
    def test_no_level_below(self):
        seen = []

        class Curious(Restless):
            def children(self, level):
                seen.append(level)
                with pytest.raises(InvalidArgumentError, match=f"depth is {level.depth + 1}, but"):
                    level.at(level.depth + 1)
                assert not level.draft_probs[0].flags.writeable
                return super().children(level)

        generate(
            TARGET, DRAFT_MODEL, PROMPT, tree=Curious(6, 3), max_new_tokens=3, rng=0, verifier="rrs"
        )
        assert {level.depth for level in seen} >= {0, 1, 2}
        for level in seen:
            width = len(level.parents)
            assert len(level.token_ids) == width
            assert [probs.shape for probs in level.draft_probs] == [(width, V)]
            assert level.at(level.depth) is level
            assert level.at(0).parents == (-1,)
            if level.above is not None:
                assert max(level.parents) < len(level.above.parents)
                assert level.drafts_left == level.above.drafts_left - width
                assert level.levels_left == level.above.levels_left - 1

    def test_probabilities_are_those_after_each_node(self):
        class Checked(Restless):
            def children(self, level):
                paths = {0: [PROMPT]}
                for depth in range(1, level.depth + 1):
                    each = level.at(depth)
                    paths[depth] = [
                        [*paths[depth - 1][parent], token]
                        for parent, token in zip(each.parents, each.token_ids, strict=True)
                    ]
                for model, probs in zip((DRAFT_MODEL, SECOND), level.draft_probs, strict=True):
                    expected = [model.probs(path) for path in paths[level.depth]]
                    assert np.allclose(probs, expected, atol=1e-15)
                return super().children(level)

        options = {"draft": "independent", "verifier": "rrs", "tree": Checked(6, 3)}
        decoder = make_decoder(TARGET, [DRAFT_MODEL, SECOND], **options)
        drawn = decoder.draw([Row(PROMPT, 9, RandomChoices(seed)) for seed in range(20)])
        assert len({len(drafting.paths) for drafting in drawn}) > 1

    def test_spread(self):
        kind = read_kind("independent")
        probs = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])
        level = DraftedLevel(kind, None, (0, 0), (1, 0), probs, 1, 1)
        assert level.spread.tolist() == [0.25, 0.0]
        assert level.support.tolist() == [1, 1]

    @pytest.mark.parametrize("depth", [-1, 0.0, None, True])
    def test_bad_depth(self, depth):
        level = DraftedLevel(read_kind("top_k"), None, (-1,), (1,), (np.eye(2)[:1],), 1, 1)
        with pytest.raises(InvalidArgumentError, match=f"depth is {depth}; expected"):
            level.at(depth)


class Wrong(TreeGrowth):
    depth, budget, max_children = 2, 3, 4

    def __init__(self, counts):
        self.counts = counts

    def children(self, level):
        return self.counts


@pytest.mark.parametrize(
    ("counts", "draft", "words"),
    [
        (None, "top_k", "is None; expected 1 numbers"),
        (2, "top_k", "is 2; expected 1 numbers"),
        ([], "top_k", r"is \[\]; expected 1 numbers"),
        ([1, 1], "top_k", r"is \[1, 1\]; expected 1 numbers"),
        ([1.5], "top_k", "entry 0 is 1.5"),
        (["1"], "top_k", "entry 0 is '1'"),
        ([True], "top_k", "entry 0 is True"),
        ([-1], "top_k", "entry 0 is -1"),
        ([5], "top_k", "entry 0 is 5; expected an integer >= 0 and <= 4"),
        ([4], "top_k", "at most 3 in all, which the budget of 3 has left"),
        ([1], "spechub", "entry 0 is 1; the spechub draft has 2 drafts"),
        ([3], "independent", "entry 0 is 3; there are 2 draft models"),
    ],
)
def test_wrong_numbers_of_children(counts, draft, words):
    options = {"draft": draft, "tree": Wrong(counts), "verifier": "optimal", "max_new_tokens": 3}
    with pytest.raises(InvalidArgumentError, match=f"children of Wrong at depth 0.*{words}"):
        generate(TARGET, models(draft), PROMPT, **options)


class TestBeforeAnyModelIsAsked:
    @pytest.mark.parametrize("size", ["depth", "budget", "max_children"])
    @pytest.mark.parametrize("value", [0, 1.0, None, 10**9])
    def test_sizes_of_a_rule(self, size, value):
        rule = Restless(4, 2)
        setattr(rule, size, value)
        with pytest.raises(InvalidArgumentError, match=f"{size} of Restless is {value}"):
            make_decoder(TARGET, DRAFT_MODEL, tree=rule)

    def test_a_rule_without_sizes(self):
        class Bare(TreeGrowth):
            def children(self, level):
                return []

        with pytest.raises(InvalidArgumentError, match="depth of Bare is None"):
            make_decoder(TARGET, DRAFT_MODEL, tree=Bare())

    def test_a_class_is_no_tree(self):
        with pytest.raises(InvalidArgumentError, match="tree is the class"):
            make_decoder(TARGET, DRAFT_MODEL, tree=GrowingTree)

    def test_drafts_that_take_more_children(self):
        tree = GrowingTree(4, 2, max_children=1)
        with pytest.raises(InvalidArgumentError, match="1 children at most; the spechub draft"):
            make_decoder(TARGET, DRAFT_MODEL, tree=tree, draft="spechub", verifier="optimal")

    def test_verifiers_that_take_fewer(self):
        options = {"verifier": "single", "draft": "with_replacement"}
        with pytest.raises(UnsupportedError, match="single"):
            make_decoder(TARGET, DRAFT_MODEL, tree=GrowingTree(4, 2), **options)
        make_decoder(TARGET, DRAFT_MODEL, tree=GrowingTree(4, 2, max_children=1), **options)
        make_decoder(TARGET, DRAFT_MODEL, tree=GrowingTree(1, 2), **options)

    def test_batch_scheme(self):
        with pytest.raises(InvalidArgumentError, match="both given"):
            make_decoder(TARGET, DRAFT_MODEL, tree=GrowingTree(4, 2), scheme="batch")


class TestGrowingTree:
    @staticmethod
    def root(*probs, draft="without_replacement", drafts=8, levels=4):
        rows = (np.array([probs]),)
        return DraftedLevel(read_kind(draft), None, (-1,), (0,), rows, levels, drafts)

    def test_certain_places_get_one_child(self):
        assert GrowingTree(8, 4).children(self.root(1.0, 0.0, 0.0)) == [1]
        kinds = ("with_replacement", "greedy", "top_k")
        assert all(
            GrowingTree(8, 4).children(self.root(1.0, 0.0, 0.0, draft=kind)) == [1]
            for kind in kinds
        )

    def test_hard_places_get_more(self):
        counts = [
            GrowingTree(8, 4).children(self.root(top, *[(1 - top) / 4] * 4))[0]
            for top in (0.999, 0.6, 0.2)
        ]
        assert counts == sorted(counts)
        assert counts[0] < counts[-1]

    def test_the_last_level_spends_what_is_left(self):
        assert GrowingTree(8, 4).children(self.root(0.4, 0.3, 0.3, levels=1)) == [3]
        level = self.root(0.4, 0.2, 0.2, 0.1, 0.1, levels=1, drafts=2)
        assert GrowingTree(8, 4).children(level) == [2]

    def test_by_hand(self):
        """Two levels, budget 3: the root's draft 1 is sure to be followed, its draft 2 is not."""
        kind = read_kind("top_k")
        root = DraftedLevel(kind, None, (-1,), (0,), (np.array([[0.5, 0.5, 0.0]]),), 2, 4)
        rows = np.array([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]])
        level = DraftedLevel(kind, root, (0, 0), (0, 1), (rows,), 1, 2)
        tree = GrowingTree(4, 2, acceptance_by_rank=[0.6, 0.2, 0.1])
        # Each is worth half of .6 + .2. After the first a_0 = 1; after the second, of spread 5/8,
        # a_0 = 1 - h * .4 and a_1 = h * .2, with h = sqrt(5/4).
        hard = 1.25**0.5
        assert tree.children(level) == [1, 1]
        assert tree._values(level) == pytest.approx([0.4, 0.4])
        assert np.allclose(
            tree._rates(level), [[1.0, 0.0, 0.0], [1.0 - 0.4 * hard, 0.2 * hard, 0.1 * hard]]
        )
        few = DraftedLevel(kind, root, (0, 0), (0, 1), (rows,), 1, 1)
        assert tree.children(few) == [1, 0]
        costly = GrowingTree(4, 2, acceptance_by_rank=[0.6, 0.2, 0.1], min_value=0.3)
        assert costly.children(level) == [1, 0]

    def test_copies(self):
        kind = read_kind("with_replacement")
        half = np.array([[0.5, 0.5]])
        root = DraftedLevel(kind, None, (-1,), (0,), (half,), 2, 8)
        rows = np.repeat(half, 3, axis=0)
        level = DraftedLevel(kind, root, (0, 0, 0), (1, 1, 0), (rows,), 1, 5)
        first, copy, other = GrowingTree(8, 2).children(level)
        assert copy == 0
        assert (first, other) == (3, 2)

    def test_pairs_only(self):
        drafts = [self.root(0.4, 0.3, 0.3, draft="spechub", drafts=left) for left in (1, 2, 5)]
        assert [GrowingTree(5, 4).children(level) for level in drafts] == [[0], [2], [2]]

    def test_probability_of_being_drafted(self):
        probs = np.array([0.5, 0.3, 0.2])
        both = np.array([probs, [0.1, 0.1, 0.8]])
        for law, given in (
            (mdsd.WithReplacement(probs, 2), probs[np.newaxis]),
            (mdsd.GreedyDraft(probs, 2), probs[np.newaxis]),
            (mdsd.IndependentDrafts(both), both),
        ):
            for pair in ([0, 1], [0, 2]):
                estimate = _drafted(law.own_kind, given[:, pair])
                assert np.allclose(estimate, law.token_hit_probs()[pair], atol=1e-15)

    def test_what_drafts_are_worth(self):
        """Where models agree: the mass accepted with a token over that of its draws."""
        kind, probs = read_kind("with_replacement"), np.array([0.5, 0.3, 0.2])
        hits = mdsd.WithReplacement(probs, 2).token_hit_probs()
        root = DraftedLevel(kind, None, (-1,), (0,), (probs[np.newaxis],), 2, 8)
        level = DraftedLevel(kind, root, (0, 0), (2, 0), (np.eye(3)[:2],), 1, 6)
        rates = [0.6, 0.2]
        hard = (2.0 * (1.0 - (probs**2).sum())) ** 0.5
        accepted = 1.0 - 0.4 * hard + 0.2 * hard
        values = GrowingTree(8, 2, acceptance_by_rank=rates)._values(level)
        assert values[0] / values[1] == pytest.approx(0.2 / hits[2] / (0.5 / hits[0]))
        assert sum(values) == pytest.approx(accepted)
        by_rank = GrowingTree(8, 2, acceptance_by_rank=rates, ordered=True)._values(level)
        assert by_rank == pytest.approx([1.0 - 0.4 * hard, 0.2 * hard])

    @pytest.mark.parametrize("ordered", [False, True])
    def test_what_copies_are_worth(self, ordered):
        kind, probs = read_kind("with_replacement"), np.full((1, 9), 1 / 9)
        root = DraftedLevel(kind, None, (-1,), (0,), (probs,), 2, 8)
        level = DraftedLevel(kind, root, (0, 0), (2, 2), (np.eye(9)[:2],), 1, 6)
        values = GrowingTree(8, 2, acceptance_by_rank=[0.2, 0.1], ordered=ordered)._values(level)
        # So hard a place that nothing is expected of the first draft, and all of the second.
        assert values == (pytest.approx([0.125, 0.0]) if not ordered else [0.0, 0.0])

    def test_tokens_that_are_hardly_ever_drafted(self):
        """Drawn for certain without replacement, they take nothing from the likely one."""
        kind, probs = read_kind("without_replacement"), np.array([[1.0 - 1e-10, 1e-10, 1e-20]])
        root = DraftedLevel(kind, None, (-1,), (0,), (probs,), 3, 8)
        level = DraftedLevel(kind, root, (0, 0, 0), (0, 1, 2), (np.eye(3),), 2, 5)
        values = GrowingTree(8, 3)._values(level)
        assert np.isfinite(values).all()
        assert values[0] > 0.2

    def test_deep_and_narrow(self):
        """Deeper than functions may call themselves."""
        tree = GrowingTree(1200, 1200, max_children=1, acceptance_by_rank=[0.999])
        result = generate(TARGET, TARGET, PROMPT, tree=tree, max_new_tokens=100, rng=0)
        assert result.target_calls == 1
        level = self.root(0.5, 0.5, levels=1200, drafts=1200)
        assert tree.children(level) == [1]

    def test_evenly_shared_drafts_make_trees_deep(self):
        """Where siblings are accepted alike, breadth costs a branch for each of them."""
        flat = self.root(*[0.05] * 20, drafts=16, levels=8)
        by_set = GrowingTree(16, 8).children(flat)[0]
        assert by_set <= GrowingTree(16, 8, ordered=True).children(flat)[0]

    def test_attributes(self):
        tree = GrowingTree(8, 3, acceptance_by_rank=[0.5, 0.25, 0.1], max_children=2)
        assert (tree.budget, tree.depth, tree.max_children) == (8, 3, 2)
        assert tree.acceptance_by_rank == (0.5, 0.25)
        assert repr(tree) == "GrowingTree(budget=8, depth=3)"

    def test_more_children_than_ranks(self):
        with pytest.raises(InvalidArgumentError, match="max_children is 3"):
            GrowingTree(8, 3, acceptance_by_rank=[0.5, 0.25], max_children=3)


class TestRuns:
    def test_greedy_output(self):
        target = TableModel([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
        result = generate(
            target, target, [0], tree=GrowingTree(6, 3), temperature=0.0, max_new_tokens=8
        )
        assert result.token_ids.tolist() == [1, 2, 0, 1, 2, 0, 1, 2]
        assert result.target_calls == 2
        assert result.draft_calls == 6

    def test_seeds(self):
        def run(seed):
            options = {"tree": GrowingTree(5, 3), "max_new_tokens": 20, "rng": seed}
            return generate(TARGET, DRAFT_MODEL, PROMPT, **options).token_ids.tolist()

        assert run(0) == run(0)
        assert run(0) != run(1)

    def test_levels_that_are_never_reached(self):
        class Low(Restless):
            def children(self, level):
                return [2] if level.above is None else [0, 0]

        result = generate(
            TARGET, DRAFT_MODEL, PROMPT, tree=Low(6, 3), max_new_tokens=9, verifier="rrs", rng=0
        )
        assert result.drafted_by_depth.shape == result.acceptance_by_depth.shape == (1,)
        # The models were asked about the second level, too, but where one token was left.
        assert 2 * result.target_calls - 1 <= result.draft_calls <= 2 * result.target_calls

    def test_rows_grow_as_they_do_alone(self):
        decoder = make_decoder(TARGET, DRAFT_MODEL, tree=GrowingTree(6, 3))

        def drawn(lefts):
            rows = [Row(PROMPT, left, RandomChoices(left)) for left in lefts]
            return [drafting.paths for drafting in decoder.draw(rows)]

        assert drawn([1, 4, 2]) == [*drawn([1]), *drawn([4]), *drawn([2])]

    def test_accepted_law(self):
        law = accepted_law(TARGET, DRAFT_MODEL, PROMPT, tree=GrowingTree(4, 2))
        assert law.shape == (3,)
        assert law.sum() == pytest.approx(1.0, abs=EXACT)
