"""Layouts of trees with verifications of whole paths: they do what these do, number for number."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

import mdsd
from mdsd.decoding import BiasedVerification, TreeShape
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.enumeration import branches
from mdsd.decoding.layers import LayerVerification
from mdsd.decoding.layouts import _paths, _steps, eagle_tree, sglang_tree
from mdsd.decoding.levels import LevelVerification
from mdsd.decoding.steps import StepOutcome
from mdsd.decoding.verification import PATH_VERIFICATIONS, step_verification
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.testing import chi_square_p_value

from ..paths import drafted_tree, outcome_law
from .exact import Toy, completed, distance, row_tokens, sequence_law, tables
from .samples import all_layouts, eagle_of, fields, trees

EXACT = 1e-12
EACH = sorted(PATH_VERIFICATIONS)
SHAPE = TreeShape([-1, 0, 0, 1, 1, 2, 4])
"""The root's first child has two children, the second of which has one; the other has one."""
NUMBERS = {
    "breadth_first": [0, 1, 2, 3, 4, 5, 6],
    "depth_first": [0, 1, 5, 2, 3, 6, 4],
    "gaps": [0, 4, 6, 2, 7, 1, 3],
}
"""Number that each node gets in a layout, of 8; siblings keep their order."""
SIZE = 8

# --- the outcomes of a tree, one by one ----------------------------------------------------------


def arrays_of(tree: DraftedTree, numbers: list[int]) -> dict[str, np.ndarray]:
    """One tree in a layout where its nodes have these numbers; rubbish where nothing counts."""
    ids = np.full(SIZE, 77)
    target, drafted = np.full((2, SIZE, 4), np.nan)
    for node, law in enumerate(tree.laws):
        ids[numbers[node]] = tree.token_ids[node]
        target[numbers[node]] = tree.target_probs[node]
        if law is not None:
            drafted[numbers[node]] = law.draft_probs
    return {"ids": ids, "target_probs": target, "draft_probs": drafted}


def sglang_of(tree: DraftedTree, numbers: list[int], draft: str) -> dict:
    given = arrays_of(tree, numbers)
    first, sibling = np.full((2, SIZE), -1)
    for node in range(len(numbers)):
        below = [numbers[child] for child in tree.shape.children(node)]
        if below:
            first[numbers[node]] = below[0]
            sibling[below[:-1]] = below[1:]
    rows = {name: value[np.newaxis] for name, value in given.items() if name != "ids"}
    return {
        "candidates": given["ids"][np.newaxis],
        "retrive_index": np.arange(SIZE)[np.newaxis],
        "retrive_next_token": first[np.newaxis],
        "retrive_next_sibling": sibling[np.newaxis],
        **rows,
        "draft": draft,
    }


def eagle_arrays(tree: DraftedTree, numbers: list[int], draft: str) -> dict:
    given = arrays_of(tree, numbers)
    paths = [[0, *(numbers[node] for node in tree.shape.path(leaf))] for leaf in tree.shape.leaves]
    width = max(map(len, paths))
    return {
        "draft_token_ids": given.pop("ids"),
        "retrieve_indices": np.array([path + [-1] * (width - len(path)) for path in paths]),
        **given,
        "draft": draft,
    }


@pytest.fixture
def every_outcome(monkeypatch):
    """Law of what a layout answers about one tree, by all answers to the questions it asks."""

    def law_of(answer):
        known, law = {}, defaultdict(float)

        def run(choices):
            monkeypatch.setattr(_steps, "RandomChoices", lambda stream: choices)
            return answer()

        for prob, outcome in branches(run, known):
            law[outcome] += prob
        return dict(law)

    return law_of


def sglang_answer(tree, numbers, draft, verifier):
    """Nodes of the accepted path and the token after it, as a function without arguments."""
    given = sglang_of(tree, numbers, draft)
    nodes = {number: node for node, number in enumerate(numbers)}

    def answer():
        found = sglang_tree(**given, verifier=verifier, rng=0)
        slots = found.accept_index[0][: found.emitted[0]].tolist()
        path = tuple(nodes[slot] for slot in slots[1:])
        assert found.token_ids[0][: len(path)].tolist() == tree.token_ids[list(path)].tolist()
        return path, int(found.predicts[slots[-1]])

    return answer


def eagle_answer(tree, numbers, draft, verifier):
    given = eagle_arrays(tree, numbers, draft)
    nodes = {number: node for node, number in enumerate(numbers)}

    def answer():
        found = eagle_tree(**given, verifier=verifier, rng=0)
        path = given["retrieve_indices"][found.best_candidate, 1 : found.accept_length + 1]
        # The token was decided about together with the path, so that there is no choice left.
        assert found.next_token_probs.tolist() == np.eye(4)[found.token_id].tolist()
        return tuple(nodes[number] for number in path.tolist()), found.token_id

    return answer


ANSWERS = {"sglang": sglang_answer, "eagle": eagle_answer}


def right_law(tree, verification):
    return {
        (outcome.path, outcome.token_id): prob
        for outcome, prob in outcome_law(tree, verification).items()
    }


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("verifier", EACH)
@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize("layout", ANSWERS)
def test_outcomes_are_those_of_the_verification(every_outcome, layout, draft, verifier, numbers):
    for seed in range(3):
        tree = drafted_tree(SHAPE, draft, seed)
        found = every_outcome(ANSWERS[layout](tree, NUMBERS[numbers], draft, verifier))
        right = right_law(tree, step_verification(verifier))
        assert sum(found.values()) == pytest.approx(1.0, abs=EXACT)
        assert len(right) > 5
        assert distance(found, right) < EXACT


def test_options_of_a_verification_count(every_outcome):
    tree = drafted_tree(SHAPE, "without_replacement", 0)
    laws = [
        every_outcome(sglang_answer(tree, NUMBERS["gaps"], "without_replacement", verifier))
        for verifier in ("layers", LayerVerification(min_weight=0.5))
    ]
    assert distance(laws[1], right_law(tree, LayerVerification(min_weight=0.5))) < EXACT
    assert distance(*laws) > 1e-3


def test_numbers_that_are_mixed_up_are_noticed(every_outcome, monkeypatch):
    """Negative control: rows of the target by number where they are asked for by node."""
    tree = drafted_tree(SHAPE, "with_replacement", 0)
    numbers = [0, 2, 1, 4, 3, 5, 6]
    answer = sglang_answer(tree, numbers, "with_replacement", "layers")
    right = right_law(tree, LayerVerification())
    assert distance(every_outcome(answer), right) < EXACT
    rows = _paths.HostRows
    monkeypatch.setattr(
        _steps, "HostRows", lambda probs, b, numbers: rows(probs, b, sorted(numbers))
    )
    assert distance(every_outcome(answer), right) > 1e-3


def test_bias_is_what_was_asked_for(every_outcome):
    tree = drafted_tree(TreeShape.chain(3), "with_replacement", 4)
    verification = BiasedVerification(epsilon=0.2)
    found = every_outcome(sglang_answer(tree, [0, 3, 1, 5], "with_replacement", verification))
    assert distance(found, right_law(tree, verification)) < EXACT


# --- lossless over all drafts --------------------------------------------------------------------

DEPTH_FIRST = ((1, 3), (2,), (), (4,), ())
"""Two children of the root with one each."""


def emitted_law(every_outcome, toy, verifier, declared=None):
    law = defaultdict(float)
    for ids, prob in toy.draft_trees():
        rows = np.array([ids])
        given = {
            "candidates": rows,
            **toy.links(1),
            **toy.rows(rows, declared),
            "draft": toy.draft,
            "verifier": verifier,
        }

        def answer(given=given):
            return row_tokens(sglang_tree(**given, rng=0).token_ids)[0]

        for tokens, chance in every_outcome(answer).items():
            law[tokens] += prob * chance
    return completed(law, toy.target, 3)


LOSSLESS = [
    (draft, verifier)
    for draft in ("with_replacement", "without_replacement", "greedy", "deterministic")
    for verifier in EACH
    if (draft, verifier) != ("greedy", "traversal")  # which it does not support
]


@pytest.mark.parametrize(("draft", "verifier"), LOSSLESS)
def test_tree_is_lossless(every_outcome, draft, verifier):
    toy = Toy(DEPTH_FIRST, draft, mdsd.NaiveVerifier(), *tables(3, seed=4))
    law = emitted_law(every_outcome, toy, verifier)
    assert distance(law, sequence_law(toy.target, 3)) < EXACT


@pytest.mark.parametrize("verifier", EACH)
def test_wrong_draft_law_is_noticed(every_outcome, verifier):
    """Negative control: children drawn with replacement from another law than is declared."""
    toy = Toy(DEPTH_FIRST, "with_replacement", mdsd.NaiveVerifier(), *tables(3, seed=4))
    declared = np.sqrt(toy.drafted)
    declared /= declared.sum(axis=1, keepdims=True)
    law = emitted_law(every_outcome, toy, verifier, declared)
    assert distance(law, sequence_law(toy.target, 3)) > 1e-3


# --- streams, batches, objects -------------------------------------------------------------------


def outcomes_of_copies(verifier, count):
    """How often a batch of copies of one tree ends in each outcome."""
    numbers = NUMBERS["gaps"]
    given = sglang_of(drafted_tree(SHAPE, "with_replacement", 0), numbers, "with_replacement")
    copies = {
        name: np.repeat(value, count, axis=0) if isinstance(value, np.ndarray) else value
        for name, value in given.items()
    }
    copies["retrive_index"] = np.arange(count * SIZE).reshape(count, SIZE)
    found = sglang_tree(**copies, verifier=verifier, rng=7)
    nodes = {number: node for node, number in enumerate(numbers)}
    outcomes = Counter()
    for b in range(count):
        slots = found.accept_index[b][1 : found.emitted[b]].tolist()
        path = tuple(nodes[slot - b * SIZE] for slot in slots)
        outcomes[path, int(found.token_ids[b, len(path)])] += 1
    return outcomes


@pytest.mark.parametrize("verifier", EACH)
def test_frequencies(verifier):
    outcomes = outcomes_of_copies(verifier, 1000)
    tree = drafted_tree(SHAPE, "with_replacement", 0)
    right, level = (right_law(tree, step_verification(name)) for name in (verifier, "rrs"))
    keys = list({**right, **level})
    assert outcomes.keys() <= set(keys)
    laws = np.array([[law.get(key, 0.0) for key in keys] for law in (right, level)])
    counts = [outcomes[key] for key in keys]
    assert chi_square_p_value(counts, laws[0]) > 1e-3
    # Negative control: level by level the outcomes of this tree have another law.
    assert chi_square_p_value(counts, laws.mean(axis=0)) < 1e-6


@pytest.mark.parametrize("verifier", EACH)
def test_rows_do_not_depend_on_the_others(verifier):
    """Not even where the others are smaller and take other numbers."""
    given = trees(3, 6, "with_replacement", seed=24)
    flat = {name: value.copy() for name, value in given.items() if name != "draft"}
    flat["retrive_next_token"][:2, 1:] = -1
    flat["retrive_next_sibling"][:2] = -1
    lengths = set()
    for seed in range(20):
        expected = sglang_tree(**given, verifier=verifier, rng=seed)
        found = sglang_tree(**flat, draft="with_replacement", verifier=verifier, rng=seed)
        assert found.accept_index[2].tolist() == expected.accept_index[2].tolist()
        assert found.token_ids[2].tolist() == expected.token_ids[2].tolist()
        lengths.add(int(found.accepted[2]))
        again = sglang_tree(**given, verifier=step_verification(verifier), rng=seed)
        assert fields(again) == fields(expected)
    assert len(lengths) > 1


def test_generator_goes_on():
    given = {**trees(20, 6, "with_replacement", seed=1), "verifier": "layers"}
    rng = np.random.default_rng(0)
    first, second = (sglang_tree(**given, rng=rng).token_ids.tolist() for _ in range(2))
    assert first != second


def test_levels_as_an_object_are_the_one_step_verifier():
    given = trees(20, 6, "with_replacement", seed=2)
    numbers = np.random.default_rng(0).random((20, 4, 3))
    found = sglang_tree(**given, verifier=LevelVerification(mdsd.RRSVerifier()), uniforms=numbers)
    assert fields(found) == fields(sglang_tree(**given, verifier="rrs", uniforms=numbers))


class FirstChildVerification(LevelVerification):
    """Accepts the first child of the root, whatever was drafted, and then emits token 0."""

    def __call__(self, tree, choices):
        return StepOutcome((1,), 0)


def test_a_verification_of_the_users_own():
    given = trees(5, 6, "with_replacement", seed=2)
    found = sglang_tree(**given, verifier=FirstChildVerification(mdsd.RRSVerifier()), rng=0)
    expected = [[token, 0, -1, -1] for token in given["candidates"][:, 1].tolist()]
    assert found.token_ids.tolist() == expected


@pytest.mark.parametrize("verifier", EACH)
def test_roots_alone_and_empty_batches(verifier):
    lone = eagle_tree([4], [[0]], None, np.eye(5)[[3]], draft="deterministic", verifier=verifier)
    assert (lone.best_candidate, lone.accept_length, lone.token_id) == (0, 0, 3)
    none = {
        name: value[:0] if isinstance(value, np.ndarray) else value
        for name, value in trees(1, 6, "with_replacement").items()
    }
    found = sglang_tree(**none, verifier=verifier, rng=0)
    assert found.accept_index.shape == (0, 1)


@pytest.mark.parametrize("verifier", EACH)
def test_nodes_with_padding_are_left_out(every_outcome, verifier):
    """Node 2 and what is below it: the root then has one child."""
    tree = drafted_tree(SHAPE, "with_replacement", 3)
    shape = TreeShape([-1, 0, 1, 1, 3])
    kept, numbers = [0, 1, 3, 4, 6], [0, 1, 3, 4, 6]
    only = mdsd.WithReplacement(tree.laws[0].draft_probs, 1)
    laws = (only, *(tree.laws[node] for node in kept[1:]))
    smaller = DraftedTree(shape, tree.token_ids[kept], laws, tree.target_probs[kept])
    given = sglang_of(tree, list(range(7)), "with_replacement")
    given["candidates"][0, 2] = -1
    nodes = {number: node for node, number in enumerate(numbers)}

    def answer():
        found = sglang_tree(**given, verifier=verifier, rng=0)
        slots = found.accept_index[0][1 : found.emitted[0]].tolist()
        return tuple(nodes[slot] for slot in slots), int(found.token_ids[0, len(slots)])

    right = right_law(smaller, step_verification(verifier))
    assert distance(every_outcome(answer), right) < EXACT


def test_rows_come_to_the_host_once_and_when_asked_for(monkeypatch):
    """A target without chance leads down one path: nothing but its rows is read one by one."""
    tree = drafted_tree(SHAPE, "without_replacement", 0)
    rows = np.eye(4)[[tree.token_ids[1], tree.token_ids[4], 0, 0, tree.token_ids[6], 0, 2]]
    greedy = DraftedTree(tree.shape, tree.token_ids, tree.laws, rows)
    given = sglang_of(greedy, NUMBERS["depth_first"], "without_replacement")
    read, plain = [], _paths.to_host

    def noted(row):
        read.append(row)
        return plain(row)

    monkeypatch.setattr(_paths, "to_host", noted)
    found = sglang_tree(**given, verifier="layers", rng=0)
    assert found.accept_index.tolist() == [[0, 1, 3, 4]]
    assert found.token_ids[0, -1] == 2
    assert len(read) == 4


# --- what does not go together -------------------------------------------------------------------


@pytest.mark.parametrize("verifier", [*EACH, LayerVerification()], ids=[*EACH, "object"])
@pytest.mark.parametrize("layout", ["sglang", "eagle"])
def test_fixed_numbers_are_refused(layout, verifier):
    function, given = all_layouts()[layout]
    with pytest.raises(InvalidArgumentError) as caught:
        function(**given, verifier=verifier, uniforms=np.full((2, 4, 3), 0.5))
    words = ("uniforms", "verifier", type(step_verification(verifier)).__name__, "rng")
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("layout", ["sglang", "eagle"])
def test_kinds_that_a_verification_does_not_support(layout):
    function, given = all_layouts(draft="greedy")[layout]
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    with pytest.raises(UnsupportedError, match="'traversal' does not support the greedy"):
        function(**given, verifier="traversal", rng=rng)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("verifier", EACH)
def test_chosen_children_that_repeat_a_token(verifier):
    given = eagle_of(trees(1, 6, "without_replacement", seed=3))
    given |= {"draft_probs": None, "draft": "deterministic", "verifier": verifier}
    assert eagle_tree(**given, rng=0).emitted >= 1
    ids = given["draft_token_ids"].copy()
    ids[1:3] = 2
    with pytest.raises(mdsd.InvalidTokenError, match=r"the children \[2, 2\] of node 0 repeat"):
        eagle_tree(**{**given, "draft_token_ids": ids}, rng=0)
