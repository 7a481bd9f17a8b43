"""`sglang_tree` and `eagle_tree`: spellings, links, paths, padding, greedy decoding, streams."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.decoding.layouts import eagle_tree, sglang_tree
from mdsd.decoding.verification import PATH_VERIFICATIONS

from .samples import CHILDREN, PATHS, eagle_of, fields, trees

TRIPLE = {
    "candidates": [[9, 5, 3, 5]],
    "retrive_index": [[0, 1, 2, 3]],
    "retrive_next_token": [[1, -1, -1, -1]],
    "retrive_next_sibling": [[-1, 2, 3, -1]],
}
"""A root with the children 5, 3 and 5 again."""


def rows_for(*tokens, size=10):
    return np.eye(size)[[list(tokens)]]


# --- links ---------------------------------------------------------------------------------------

SPELLINGS = ["retrive", "retrieve", "mixed"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_both_spellings(spelling):
    given = trees(5, 6, "without_replacement", seed=1)
    expected = fields(sglang_tree(**given, rng=2))
    renamed = {
        name.replace("retrive", "retrieve")
        if spelling == "retrieve" or (spelling == "mixed" and name.endswith("index"))
        else name: value
        for name, value in given.items()
    }
    assert fields(sglang_tree(**renamed, rng=2)) == expected


def test_siblings_are_in_the_order_of_their_links():
    """The same tree with the two children of the root linked the other way round."""
    law = np.array([0.4, 0.3, 0.2, 0.1])
    target = np.array([0.1, 0.2, 0.3, 0.4])
    plan = mdsd.RRSVerifier().plan(target, mdsd.WithoutReplacement(law, 2))
    given = {
        "candidates": [[0, 1, 2]],
        "retrive_index": [[0, 1, 2]],
        "target_probs": np.tile(target, (1, 3, 1)),
        "draft_probs": np.tile(law, (1, 3, 1)),
        "draft": "without_replacement",
    }
    ways = {
        (1, 2): {"retrive_next_token": [[1, -1, -1]], "retrive_next_sibling": [[-1, 2, -1]]},
        (2, 1): {"retrive_next_token": [[2, -1, -1]], "retrive_next_sibling": [[-1, -1, 1]]},
    }
    answers = set()
    for number in np.arange(20) / 20:
        uniforms = [number, 0.9, 0.5]
        for order, linked in ways.items():
            numbers = np.array([[uniforms, [0.0] * 3]])
            found = sglang_tree(**given, **linked, uniforms=numbers)
            assert found.token_ids[0, 0] == plan.verify(order, uniforms=uniforms).token_id
        answers.add(plan.verify((1, 2), uniforms=uniforms).token_id)
        answers.add(plan.verify((2, 1), uniforms=uniforms).token_id)
    assert len(answers) > 2


def test_slots_need_not_be_in_order():
    given = trees(4, 6, "with_replacement", seed=3)
    plain = sglang_tree(**given, rng=4)
    slots = np.random.default_rng(5).permutation(28).reshape(4, 7)
    found = sglang_tree(**{**given, "retrive_index": slots}, rng=4)
    assert found.token_ids.tolist() == plain.token_ids.tolist()
    order = np.append(slots.reshape(-1), -1)
    assert found.accept_index.tolist() == order[plain.accept_index].tolist()
    assert found.predicts[slots.reshape(-1)].tolist() == plain.predicts.tolist()


def test_predicts_at_accept_index_are_the_emitted_tokens():
    found = sglang_tree(**trees(50, 6, "without_replacement", seed=6), rng=7)
    for b in range(50):
        slots = found.accept_index[b][found.accept_index[b] >= 0]
        assert slots[0] == 7 * b
        assert len(slots) == found.accept_token_num[b] + 1 == found.emitted[b]
        assert found.predicts[slots].tolist() == found.token_ids[b][: len(slots)].tolist()
        assert (found.token_ids[b][len(slots) :] == -1).all()
    unused = np.setdiff1d(np.arange(350), found.accept_index)
    assert (found.predicts[unused] == -1).all()
    assert set(found.accepted.tolist()) == {0, 1, 2, 3}


def test_nodes_out_of_reach_are_not_looked_at():
    given = trees(3, 6, "with_replacement", seed=8)
    expected = sglang_tree(**given, rng=9)
    wide = {
        name: np.concatenate([value, np.full((3, 2, *value.shape[2:]), filler)], axis=1)
        for name, value, filler in (
            ("candidates", given["candidates"], 77),
            ("retrive_index", given["retrive_index"], -5),
            ("retrive_next_token", given["retrive_next_token"], 99),
            ("retrive_next_sibling", given["retrive_next_sibling"], -7),
            ("target_probs", given["target_probs"], np.nan),
            ("draft_probs", given["draft_probs"], np.inf),
        )
    }
    wide["candidates"][:, 0] = 1_000_000  # nor is the token of the root
    found = sglang_tree(**wide, draft="with_replacement", rng=9)
    assert found.token_ids.tolist() == expected.token_ids.tolist()
    assert found.accept_index.tolist() == expected.accept_index.tolist()


def test_nodes_with_padding_are_left_out():
    """Node 2 and what is below it; its sibling is then an only child."""
    given = trees(1, 6, "with_replacement", seed=10)
    given["candidates"][0, [2, 5]] = -1, 99
    given["target_probs"][0, [2, 5]] = np.nan
    given["draft_probs"][0, 2] = np.nan
    plan = mdsd.RRSVerifier().plan(
        given["target_probs"][0, 0], mdsd.WithReplacement(given["draft_probs"][0, 0], 1)
    )
    numbers = np.random.default_rng(11).random((200, 1, 4, 3))
    for row in numbers:
        token = plan.verify(given["candidates"][0, 1:2], uniforms=row[0, 0, :2]).token_id
        found = sglang_tree(**given, uniforms=row)
        assert found.token_ids[0, 0] == token
        alone = {**eagle_of(given), "uniforms": row[0]}
        assert eagle_tree(**alone).accept_length == found.accepted[0]


def test_width_is_what_the_caller_says():
    given = trees(2, 6, "with_replacement", seed=12)
    assert sglang_tree(**given, rng=0).accept_index.shape == (2, 4)
    wide = sglang_tree(**given, rng=0, num_speculative_tokens=6)
    assert wide.accept_index.shape == wide.token_ids.shape == (2, 6)
    assert (wide.accept_index[:, 4:] == -1).all()
    with pytest.raises(mdsd.InvalidArgumentError, match="num_speculative_tokens is 3"):
        sglang_tree(**given, rng=0, num_speculative_tokens=3)


def test_roots_alone_emit_a_token_of_the_target():
    found = sglang_tree(
        candidates=[[4], [2]],
        retrive_index=[[0], [1]],
        retrive_next_token=[[-1], [-1]],
        retrive_next_sibling=[[-1], [-1]],
        target_probs=np.eye(5)[[[3], [1]]],
        draft="deterministic",
        rng=0,
    )
    assert found.predicts.tolist() == [3, 1]
    assert found.accept_index.tolist() == [[0], [1]]
    lone = eagle_tree([4], [[0]], None, np.eye(5)[[3]], draft="deterministic", rng=0)
    assert (lone.best_candidate, lone.accept_length, lone.token_id) == (0, 0, 3)
    none = eagle_tree(
        [4], np.zeros((0, 1), int), None, np.eye(5)[[3]], draft="deterministic", rng=0
    )
    assert (none.best_candidate, none.accept_length, none.token_id) == (0, 0, 3)


def test_empty_batch():
    given = {
        name: value[:0] if isinstance(value, np.ndarray) else value
        for name, value in trees(1, 6, "with_replacement").items()
    }
    found = sglang_tree(**given, rng=0)
    assert found.predicts.shape == (0,)
    assert found.accept_index.shape == (0, 1)
    assert found.accepted.shape == (0,)


def test_a_token_drafted_twice_goes_on_from_the_first():
    law = np.full((1, 4, 10), 0.1)
    found = sglang_tree(
        **TRIPLE,
        target_probs=rows_for(5, 1, 2, 3),
        draft_probs=law,
        draft="with_replacement",
        rng=0,
    )
    assert found.token_ids.tolist() == [[5, 1]]
    assert found.accept_index.tolist() == [[0, 1]]


@pytest.mark.parametrize("verifier", ["rrs", "naive", "optimal"])
def test_a_residual_token_that_was_drafted_is_accepted(verifier):
    """All mass of the target is on the second child, so that the first is rejected."""
    law = np.full((1, 4, 10), 0.1)
    for seed in range(5):
        found = sglang_tree(
            **TRIPLE,
            target_probs=rows_for(3, 1, 2, 4),
            draft_probs=law,
            draft="with_replacement",
            verifier=verifier,
            rng=seed,
        )
        assert found.token_ids.tolist() == [[3, 2]]


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement", "greedy", "top_k"])
def test_eagle_is_sglang_of_one_tree(draft):
    given = trees(40, 6, draft, seed=13)
    # Trees of one shape take equally many numbers, alone and in a batch.
    shape = (40, 4, {"greedy": 2, "top_k": 1}.get(draft, 3))
    numbers = np.random.default_rng(14).random(shape)
    batch = sglang_tree(**given, uniforms=numbers)
    lengths = set()
    for b in range(40):
        found = eagle_tree(**eagle_of(given, b), uniforms=numbers[b])
        assert found.accept_length == found.accepted == batch.accepted[b] == found.emitted - 1
        path = PATHS[found.best_candidate, : found.accept_length + 1]
        assert (7 * b + path).tolist() == batch.accept_index[b][: len(path)].tolist()
        assert found.token_id == batch.token_ids[b, found.accept_length]
        # The first row that starts with the path.
        starts = (PATHS[:, : len(path)] == path).all(axis=1)
        assert found.best_candidate == starts.argmax()
        lengths.add(found.accept_length)
    assert len(lengths) > 2


def test_order_of_paths_changes_nothing_but_their_numbers():
    given = eagle_of(trees(1, 6, "with_replacement", seed=15))
    for seed in range(20):
        found = eagle_tree(**given, rng=seed)
        turned = eagle_tree(**{**given, "retrieve_indices": PATHS[::-1]}, rng=seed)
        assert turned.token_id == found.token_id
        assert turned.accept_length == found.accept_length
        assert turned.next_token_probs.tolist() == found.next_token_probs.tolist()


def test_next_law_after_a_leaf_is_the_target():
    given = eagle_of(trees(1, 6, "top_k", seed=16))
    given["target_probs"][[0, 1, 4]] = np.eye(6)[given["draft_token_ids"][[1, 4, 6]]]
    found = eagle_tree(**given, rng=0)
    assert (found.best_candidate, found.accept_length) == (1, 3)
    np.testing.assert_allclose(found.next_token_probs, given["target_probs"][6], atol=1e-15)


def test_next_law_after_a_rejection():
    """The naive verifier's: the target without the children."""
    given = eagle_of(trees(1, 6, "top_k", seed=17))
    children = given["draft_token_ids"][[1, 2]]
    target = given["target_probs"][0].copy()
    for number in np.linspace(0, 0.999, 12):
        found = eagle_tree(**given, uniforms=np.full((4, 1), number))
        if found.accept_length == 0:
            break
    assert found.accept_length == 0
    assert found.best_candidate == 0
    target[children] = 0.0
    np.testing.assert_allclose(found.next_token_probs, target / target.sum(), atol=1e-15)
    assert found.token_id not in children


def test_next_law_of_recursive_rejection():
    """EAGLE's: every child takes its law off the target, what is left is normalised."""
    given = eagle_of(trees(1, 6, "with_replacement", seed=18))
    p, q = given["target_probs"][0], given["draft_probs"][0]
    for _ in range(2):
        p = np.maximum(p - q, 0.0)
        p /= p.sum()
    p[given["draft_token_ids"][[1, 2]]] = 0.0  # these would be accepted
    for seed in range(200):
        found = eagle_tree(**given, rng=seed)
        if found.accept_length == 0:
            break
    assert found.accept_length == 0
    np.testing.assert_allclose(found.next_token_probs, p / p.sum(), atol=1e-14)


def test_law_that_rounding_leaves_nothing_of():
    """A path that ends where its law says it cannot: the token that was drawn."""
    tiny = 1e-300
    found = eagle_tree(
        [0, 1, 2],
        [[0, 1], [0, 2]],
        None,
        [[tiny, 0.5, 0.5]] * 3,
        draft="deterministic",
        uniforms=[[0.0], [0.0]],
    )
    assert found.accept_length == 0
    assert found.token_id == 0
    assert found.next_token_probs.tolist() == [1.0, 0.0, 0.0]


# --- greedy decoding -----------------------------------------------------------------------------


def greedy_path(ids, best):
    """Follow the most likely token from the root on, by its definition."""
    path = [0]
    while True:
        below = [child for child in CHILDREN[path[-1]] if ids[child] == best[path[-1]]]
        if not below:
            return path
        path.append(below[0])


@pytest.mark.parametrize("verifier", [None, "rrs", "optimal", *PATH_VERIFICATIONS])
def test_greedy_verification(verifier):
    """As SGLang's ``verify_tree_greedy`` and EAGLE at temperature 0, on one-hot rows."""
    given = trees(60, 3, "without_replacement", seed=19)
    best = given["target_probs"].argmax(axis=-1)
    given.update(target_probs=np.eye(3)[best], draft_probs=None, draft="deterministic")
    found = sglang_tree(**given, verifier=verifier, rng=20)
    for b in range(60):
        path = greedy_path(given["candidates"][b], best[b])
        assert found.accept_index[b][: len(path)].tolist() == [7 * b + node for node in path]
        assert found.accepted[b] == len(path) - 1
        assert found.token_ids[b][: len(path)].tolist() == best[b, path].tolist()
        if b < 10:
            one = eagle_tree(**eagle_of(given, b), verifier=verifier, rng=21)
            assert one.accept_length == len(path) - 1
            assert one.next_token_probs.tolist() == np.eye(3)[best[b, path[-1]]].tolist()
    assert len(set(found.accepted.tolist())) > 2


# --- verifiers and streams -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draft", "verifier"),
    [
        ("with_replacement", "rrs"),
        ("without_replacement", "rrs"),
        ("greedy", "greedy"),
        ("top_k", "naive"),
    ],
)
def test_verifiers_by_default(draft, verifier):
    given = trees(20, 6, draft, seed=22)
    expected = fields(sglang_tree(**given, verifier=verifier, rng=23))
    assert fields(sglang_tree(**given, rng=23)) == expected
    object_too = sglang_tree(**given, verifier=mdsd.get_verifier(verifier), rng=23)
    assert fields(object_too) == expected


def test_rows_do_not_depend_on_the_others():
    """Not even where the others are deeper and take more numbers."""
    given = trees(3, 6, "with_replacement", seed=24)
    expected = sglang_tree(**given, rng=25)
    flat = {name: value.copy() for name, value in given.items() if name != "draft"}
    flat["retrive_next_token"][:2, 1:] = -1
    flat["retrive_next_sibling"][:2] = -1
    found = sglang_tree(**flat, draft="with_replacement", rng=25)
    assert found.accept_index[2].tolist() == expected.accept_index[2].tolist()
    assert found.token_ids[2].tolist() == expected.token_ids[2].tolist()


def test_same_seed_same_tokens():
    given = trees(20, 6, "with_replacement", seed=26)
    first, again, other = (sglang_tree(**given, rng=seed).token_ids.tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_numbers_have_the_shape_of_the_deepest_tree_and_the_widest_node():
    given = trees(2, 6, "with_replacement", seed=27)
    with pytest.raises(mdsd.InvalidArgumentError, match=r"expected \(2, 4, 3\)"):
        sglang_tree(**given, uniforms=np.zeros((2, 4, 2)))
    with pytest.raises(mdsd.InvalidArgumentError, match=r"expected \(4, 3\)"):
        eagle_tree(**eagle_of(given), uniforms=np.zeros((1, 4, 3)))


def test_full_vocabulary():
    size = 150_000
    rng = np.random.default_rng(28)
    laws = rng.random((2, 3, size), dtype=np.float32) ** 8
    laws /= laws.sum(axis=-1, keepdims=True, dtype=np.float64).astype(np.float32)
    target, drafted = laws
    draft = mdsd.WithoutReplacement(drafted[0], 2)
    ids = draft.sample(29)
    plan = mdsd.RRSVerifier().plan(target[0], draft)
    for numbers in rng.random((4, 1, 2, 3)):
        found = sglang_tree(
            candidates=[[0, *ids]],
            retrive_index=[[0, 1, 2]],
            retrive_next_token=[[1, -1, -1]],
            retrive_next_sibling=[[-1, 2, -1]],
            target_probs=target[np.newaxis],
            draft_probs=drafted[np.newaxis],
            draft="without_replacement",
            uniforms=numbers,
        )
        assert found.token_ids[0, 0] == plan.verify(ids, uniforms=numbers[0, 0]).token_id
