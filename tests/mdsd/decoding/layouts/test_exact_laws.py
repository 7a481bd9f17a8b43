"""What the layouts emit has the law of the target, exactly; a wrong draft law is noticed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mdsd
from mdsd.decoding.layouts import eagle_tree, flashinfer_chain, sglang_tree, vllm_flattened

from .exact import (
    ROOT,
    Toy,
    completed,
    distance,
    measured_law,
    row_tokens,
    sequence_law,
    tables,
)

LENGTH = 3

FORKS = ((1, 2), (3, 4), (), (), ())
"""Two levels: the root has two children, the first of which has two of its own."""

UNEVEN = ((1, 2), (3,), (4, 5), (), (6,), (), ())
"""Three levels, nodes of one level with different numbers of children."""


# --- chains, by bisection ------------------------------------------------------------------------


def chain_drafts(drafted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every chain of two drafts that can be drawn, with its probability."""
    law = {key: prob for key, prob in sequence_law(drafted, LENGTH - 1).items() if prob > 0.0}
    return np.array(list(law)), np.array(list(law.values()))


def chain_rows(table: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    """Laws at the first `count` positions of chains (R, g)."""
    last = np.concatenate([np.full((len(ids), 1), ROOT), ids], axis=1)
    return table[last[:, :count]]


def flashinfer_law(target, drafted, declared, **options):
    ids, weights = chain_drafts(drafted)

    def emit(cases, uniforms):
        found = flashinfer_chain(
            None if declared is None else chain_rows(declared, ids[cases], 2),
            ids[cases],
            chain_rows(target, ids[cases], 3),
            uniforms=uniforms,
            **options,
        )
        return row_tokens(found.token_ids)

    return completed(measured_law(emit, weights, 3), target, LENGTH)


def vllm_law(target, drafted, declared, **options):
    ids, weights = chain_drafts(drafted)
    cases = list(itertools.product(range(len(ids)), range(len(target))))
    chances = np.array([weights[i] * target[ids[i, -1], bonus] for i, bonus in cases])
    drafts = ids[[i for i, _ in cases]]
    bonuses = np.array([bonus for _, bonus in cases])

    def emit(chosen, uniforms):
        rows = drafts[chosen]
        found = vllm_flattened(
            rows.reshape(-1),
            2 * np.arange(1, len(chosen) + 1),
            None if declared is None else chain_rows(declared, rows, 2).reshape(-1, len(target)),
            chain_rows(target, rows, 2).reshape(-1, len(target)),
            bonuses[chosen],
            uniforms=uniforms.reshape(-1),
            **options,
        )
        return row_tokens(found.token_ids)

    return completed(measured_law(emit, chances, 3), target, LENGTH)


CHAIN_LAYOUTS = {"flashinfer": flashinfer_law, "vllm": vllm_law}


@pytest.mark.parametrize("layout", CHAIN_LAYOUTS)
def test_chain_is_lossless(layout):
    target, drafted = tables(3, seed=1)
    law = CHAIN_LAYOUTS[layout](target, drafted, drafted)
    assert distance(law, sequence_law(target, LENGTH)) < 1e-12


@pytest.mark.parametrize("layout", CHAIN_LAYOUTS)
def test_chain_of_deterministic_drafts_is_lossless(layout):
    target, drafted = tables(3, seed=2)
    one_hot = np.eye(3)[drafted.argmax(axis=1)]
    chosen = CHAIN_LAYOUTS[layout](target, one_hot, None, draft="deterministic")
    assert distance(chosen, sequence_law(target, LENGTH)) < 1e-12
    declared = CHAIN_LAYOUTS[layout](target, one_hot, one_hot)
    assert distance(declared, sequence_law(target, LENGTH)) < 1e-12


@pytest.mark.parametrize("layout", CHAIN_LAYOUTS)
def test_drawn_tokens_declared_as_chosen_are_lossless(layout):
    """The law given any drafts is the target's; they are accepted less often, that is all."""
    target, drafted = tables(3, seed=1)
    law = CHAIN_LAYOUTS[layout](target, drafted, None, draft="deterministic")
    assert distance(law, sequence_law(target, LENGTH)) < 1e-12


@pytest.mark.parametrize("layout", CHAIN_LAYOUTS)
@pytest.mark.parametrize("wrong", ["another_temperature", "argmax"])
def test_chain_with_the_wrong_draft_law_is_noticed(layout, wrong):
    """Negative control: the declared law is not the one that the drafts were drawn from."""
    target, drafted = tables(3, seed=1)
    declared = drafted
    if wrong == "another_temperature":
        declared = np.sqrt(drafted)
        declared /= declared.sum(axis=1, keepdims=True)
    else:
        drafted = np.eye(3)[drafted.argmax(axis=1)]
    law = CHAIN_LAYOUTS[layout](target, drafted, declared)
    assert distance(law, sequence_law(target, LENGTH)) > 1e-3


def test_tree_of_chosen_tokens_is_lossless_by_bisection():
    """One number for each level, so that the boxes of numbers can be found without any plan."""
    toy = Toy(FORKS, "deterministic", mdsd.NaiveVerifier(), *tables(3, seed=3))
    ((ids, _),) = toy.draft_trees()

    def emit(cases, uniforms):
        drafted = np.tile(ids, (len(cases), 1))
        found = sglang_tree(
            candidates=drafted,
            **toy.links(len(cases)),
            **toy.rows(drafted),
            draft="deterministic",
            uniforms=uniforms[:, :, np.newaxis],
        )
        return row_tokens(found.token_ids)

    law = completed(measured_law(emit, np.ones(1), 3), toy.target, LENGTH)
    assert distance(law, sequence_law(toy.target, LENGTH)) < 1e-12


# --- trees, by plans -----------------------------------------------------------------------------

PAIRS = [
    ("with_replacement", "rrs"),
    ("with_replacement", "kseq"),
    ("with_replacement", "naive_tree"),
    ("with_replacement", "optimal"),
    ("without_replacement", "rrs"),
    ("without_replacement", "naive"),
    ("without_replacement", "optimal"),
    ("greedy", "greedy"),
    ("spechub", "spechub"),
    ("top_k", "naive"),
    ("hybrid:1", "rrs"),
    ("hybrid:1", "naive"),
    ("deterministic", "naive"),
    ("deterministic", "rrs"),
    ("deterministic", "optimal"),
]
IDS = [f"{draft}-{verifier}" for draft, verifier in PAIRS]


def toy_of(children, draft, verifier, seed):
    return Toy(children, draft, mdsd.get_verifier(verifier), *tables(3, seed))


def all_outcomes(toy):
    """Drafted ids, probabilities, uniforms and emitted tokens of everything that can happen."""
    found = [
        (ids, prob * weight, numbers, emitted)
        for ids, prob in toy.draft_trees()
        for weight, numbers, emitted in toy.outcomes(ids)
    ]
    ids, weights, numbers, emitted = zip(*found, strict=True)
    assert sum(weights) == pytest.approx(1.0, abs=1e-12)
    return np.array(ids), weights, np.array(numbers), emitted


def sglang_outcomes(toy, declared=None):
    """Emitted tokens of every outcome as the layout sees it, and what the plans say of it."""
    ids, weights, numbers, emitted = all_outcomes(toy)
    found = sglang_tree(
        candidates=ids,
        **toy.links(len(ids)),
        **toy.rows(ids, declared),
        draft=toy.draft,
        verifier=toy.verifier,
        uniforms=numbers,
    )
    return row_tokens(found.token_ids), weights, emitted


def summed(tokens, weights):
    law: dict[tuple[int, ...], float] = {}
    for key, weight in zip(tokens, weights, strict=True):
        law[key] = law.get(key, 0.0) + weight
    return law


@pytest.mark.parametrize(("draft", "verifier"), PAIRS, ids=IDS)
def test_tree_is_lossless(draft, verifier):
    toy = toy_of(FORKS, draft, verifier, seed=4)
    tokens, weights, emitted = sglang_outcomes(toy)
    # The layout does with these numbers what the plans do ...
    assert tokens == list(emitted)
    # ... and the plans' exact probabilities of it add up to the target.
    law = completed(summed(tokens, weights), toy.target, LENGTH)
    assert distance(law, sequence_law(toy.target, LENGTH)) < 1e-12


def test_uneven_tree_is_lossless():
    toy = toy_of(UNEVEN, "greedy", "greedy", seed=5)
    tokens, weights, emitted = sglang_outcomes(toy)
    assert tokens == list(emitted)
    law = completed(summed(tokens, weights), toy.target, LENGTH + 1)
    assert distance(law, sequence_law(toy.target, LENGTH + 1)) < 1e-12


def test_tree_with_the_wrong_draft_law_is_noticed():
    """Negative control: children drawn with replacement, declared as drawn from another law."""
    toy = toy_of(FORKS, "with_replacement", "rrs", seed=4)
    declared = np.sqrt(toy.drafted)
    declared /= declared.sum(axis=1, keepdims=True)
    tokens, _, emitted = sglang_outcomes(toy, declared)
    assert tokens != list(emitted)
    other = Toy(toy.children, toy.draft, toy.verifier, toy.target, declared)
    # The law of what is emitted when the declared law is not that of the drafts.
    law: dict[tuple[int, ...], float] = {}
    for ids, prob in toy.draft_trees():
        for weight, _, tokens_of in other.outcomes(ids):
            law[tokens_of] = law.get(tokens_of, 0.0) + prob * weight
    assert distance(completed(law, toy.target, LENGTH), sequence_law(toy.target, LENGTH)) > 1e-3


@pytest.mark.parametrize(
    ("draft", "verifier"),
    [
        ("with_replacement", "rrs"),
        ("without_replacement", "rrs"),
        ("without_replacement", "optimal"),
        ("greedy", "greedy"),
        ("deterministic", "naive"),
        ("deterministic", "rrs"),
    ],
)
def test_eagle_path_and_next_law_are_lossless(draft, verifier):
    toy = toy_of(FORKS, draft, verifier, seed=6)
    law: dict[tuple[int, ...], float] = {}
    for ids, prob in toy.draft_trees():
        ends: dict[tuple[int, ...], list[tuple[float, np.ndarray]]] = {}
        for weight, numbers, emitted in toy.outcomes(ids):
            ends.setdefault(emitted[:-1], []).append((weight, numbers))
        for path, members in ends.items():
            found = eagle_tree(
                ids,
                toy.paths(),
                **{"draft_probs": None, **toy.rows(np.array(ids))},
                draft=draft,
                verifier=toy.verifier,
                uniforms=members[0][1],
            )
            nodes = toy.paths()[found.best_candidate, 1 : found.accept_length + 1]
            assert tuple(ids[node] for node in nodes) == path
            assert found.next_token_probs[found.token_id] > 0.0
            assert found.next_token_probs.sum() == pytest.approx(1.0, abs=1e-12)
            chance = prob * sum(weight for weight, _ in members)
            for token, share in enumerate(found.next_token_probs.tolist()):
                key = (*path, token)
                law[key] = law.get(key, 0.0) + chance * share
    full = completed(law, toy.target, LENGTH)
    assert distance(full, sequence_law(toy.target, LENGTH)) < 1e-12


# --- the same numbers, the same answers ----------------------------------------------------------


@pytest.mark.parametrize(("draft", "verifier"), PAIRS, ids=IDS)
def test_tree_does_what_plans_do(draft, verifier):
    """With any numbers, not only those that were looked for: each node has its own row of them."""
    toy = toy_of(FORKS if draft == "spechub" else UNEVEN, draft, verifier, seed=7)
    count = 40 if verifier == "optimal" else 200
    rng = np.random.default_rng(8)
    trees = list(toy.draft_trees())
    ids = np.array([trees[i][0] for i in rng.integers(len(trees), size=count)])
    numbers = rng.random((count, *toy.numbers_shape()))
    found = sglang_tree(
        candidates=ids,
        **toy.links(count),
        **toy.rows(ids),
        draft=draft,
        verifier=verifier,
        uniforms=numbers,
    )
    for b in range(count):
        path, depth = [0], 0
        while True:
            below = toy.children[path[-1]]
            tokens = tuple(ids[b, list(below)].tolist()) if below else ()
            token_of = ids[b, path[-1]]
            if not below:
                sums = np.cumsum(toy.target[token_of])
                token = int(np.searchsorted(sums / sums[-1], numbers[b, depth, 0], side="right"))
                break
            plan = toy.plan(token_of, tokens)
            token = plan.verify(tokens, uniforms=numbers[b, depth, : plan.num_uniforms]).token_id
            if token not in tokens:
                break
            path.append(below[tokens.index(token)])
            depth += 1
        slots = b * toy.size + np.array(path)
        assert found.accept_index[b].tolist() == [
            *slots,
            *[-1] * (numbers.shape[1] - len(path)),
        ]
        assert found.predicts[slots].tolist() == [*ids[b, path[1:]], token]
        assert found.accept_token_num[b] == len(path) - 1


class TestHelpers:
    def test_measured_law_of_known_thresholds(self):
        def emit(cases, uniforms):
            first = uniforms[:, 0] < np.array([0.3, 1 / 3])[cases]
            second = uniforms[:, 1] < np.where(first, 0.25, 0.015625 / 3)
            return [(int(a), int(b)) for a, b in zip(first, second, strict=True)]

        law = measured_law(emit, np.array([0.25, 0.75]), 2)
        chance = 0.25 * 0.3 + 0.75 / 3
        expected = {
            (1, 1): chance * 0.25,
            (1, 0): chance * 0.75,
            (0, 1): (1 - chance) * 0.015625 / 3,
            (0, 0): (1 - chance) * (1 - 0.015625 / 3),
        }
        assert distance(law, expected) < 1e-14

    def test_distance_of_laws_with_different_supports(self):
        assert distance({(0,): 1.0}, {(1,): 1.0}) == 1.0

    def test_completed_law(self):
        target = np.array([[0.5, 0.5], [0.25, 0.75]])
        law = completed({(1,): 0.5, (0, 1, 1): 0.5}, target, 2)
        assert law == {(1, 0): 0.125, (1, 1): 0.375, (0, 1): 0.5}

    def test_row_tokens_refuse_padding_inside(self):
        with pytest.raises(AssertionError):
            row_tokens(np.array([[1, -1, 2]]))
