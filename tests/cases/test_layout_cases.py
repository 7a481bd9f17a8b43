"""Cases about the array layouts of engines: rows, prefixes, padding, counts, bad and odd input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mdsd
from mdsd.decoding.layouts import eagle_tree, flashinfer_chain, sglang_tree, vllm_flattened

from .reading import BAD_ROWS, CASES, assert_names, covers, covers_drafts

WAYS = ("one_hot", "deterministic")
"""How deterministic drafts are declared: by one-hot laws or by the word."""


def one_hot(ids, vocab_size):
    """One-hot rows, and rows of zeros at padding."""
    return np.concatenate([np.eye(vocab_size), np.zeros((1, vocab_size))])[np.array(ids)]


def chain(case, *, way="one_hot", inputs=None, **options):
    """Verify the chains of a case, to which a batch axis is added where it has none."""
    given = case.input if inputs is None else inputs
    size = case.input["vocab_size"]
    ids = np.atleast_2d(given["draft_token_ids"])
    target = one_hot(np.atleast_2d(given["target_rows_one_hot"]), size)
    laws = one_hot(ids, size)
    if way == "deterministic":
        laws, options = None, {"draft": way, **options}
    target = np.broadcast_to(target, (len(ids), *target.shape[1:]))
    return flashinfer_chain(laws, ids, target, **options)


# --- rows, prefixes, counts ----------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@covers("decoder-first-draft-is-checked", "decoder-accepted-and-emitted")
def test_single_chain(case, way):
    found = chain(case, way=way, rng=0)
    assert found.token_ids.tolist() == [case.expected["token_ids"]]
    assert (found.emitted == found.accepted + 1).all()
    if "accepted" in case.expected:
        assert found.accepted.tolist() == [case.expected["accepted"]]
        assert found.emitted.tolist() == [case.expected["emitted"]]
        rate = found.accepted[0] / found.drafted[0]
        assert rate == pytest.approx(case.expected["acceptance_rate"], abs=case.tolerance)


@pytest.mark.parametrize("way", WAYS)
@covers("decoder-row-sweep")
def test_every_row_is_judged_in_its_place(case, way):
    found = chain(case, way=way, rng=0)
    assert found.token_ids.tolist() == case.expected["token_ids"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [0, 1])
@covers("decoder-prefix-of-accepts")
def test_only_the_prefix_is_accepted(case, number, way):
    found = chain(case, way=way, inputs=case.input["cases"][number], rng=0)
    assert found.token_ids.tolist() == [case.expected["token_ids"][number]]
    assert found.accepted.tolist() == [case.expected["accepted_prefix"][number]]
    assert found.emitted.tolist() == [case.expected["emitted_with_last_token"][number]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("behind", [0.0, np.nan])
@covers("decoder-padding-not-an-index")
def test_padding_is_not_an_index(case, behind, way):
    """Whatever the rows at padding hold."""
    ids = np.array(case.input["draft_token_ids"])
    size = case.input["vocab_size"]
    laws = one_hot(ids, size)
    laws[ids == -1] = behind
    target = one_hot(case.input["target_rows_one_hot"], size)
    # The row at the first padding id gives the extra token; those behind it give nothing.
    target[:, (ids == -1).argmax() + 1 :] = behind
    options = {"draft": "deterministic"} if way == "deterministic" else {}
    laws = None if options else laws
    found = flashinfer_chain(laws, ids, target, **options, rng=0)
    assert found.token_ids.tolist() == case.expected["token_ids"]
    assert found.accepted.tolist() == case.expected["accepted"]
    assert found.emitted.tolist() == case.expected["emitted"]
    assert found.drafted.tolist() == case.expected["accepted"]


@pytest.mark.parametrize("way", WAYS)
@covers("decoder-ragged-batch")
def test_rows_accept_different_numbers_of_drafts(case, way):
    found = chain(case, way=way, rng=0)
    expected = case.expected
    assert found.token_ids.tolist() == expected["token_ids"]
    assert found.accepted.tolist() == expected["accepted_prefix"]
    assert found.emitted.tolist() == expected["emitted_with_last_token"]
    assert found.output_accepted_token_num.tolist() == expected["flashinfer_accepted_token_num"]
    assert (
        found.output_emitted_draft_token_num.tolist()
        == expected["flashinfer_emitted_draft_token_num"]
    )
    for row in range(3):
        inputs = {key: case.input[key][row] for key in ("draft_token_ids", "target_rows_one_hot")}
        alone = chain(case, way=way, inputs=inputs, rng=0)
        assert alone.token_ids.tolist() == [expected["token_ids"][row]]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("count", "length"), [(0, 3), (0, 0), (2, 0)])
@covers("decoder-ragged-batch")
def test_empty_batches_and_chains(case, way, count, length):
    size = case.input["vocab_size"]
    target = np.tile(np.eye(size)[3], (count, length + 1, 1))
    options = {"draft": "deterministic"} if way == "deterministic" else {}
    laws = None if options else np.zeros((count, length, size))
    found = flashinfer_chain(laws, np.zeros((count, length), int), target, **options, rng=0)
    assert found.token_ids.shape == (count, length + 1)
    assert found.token_ids[:, :1].tolist() == [[3]] * count
    assert found.emitted.tolist() == [1] * count


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", ["flat", "column"])
@covers("decoder-flattened-batch")
def test_flattened_batch(case, form, way):
    size, ids = case.input["vocab_size"], case.input["draft_token_ids"]
    bonus = np.array(case.input["bonus_token_ids"])
    options = {"draft": "deterministic"} if way == "deterministic" else {}
    found = vllm_flattened(
        draft_token_ids=ids,
        cu_num_draft_tokens=case.input["cu_num_draft_tokens"],
        draft_probs=None if options else one_hot(ids, size),
        target_probs=one_hot(case.input["target_rows_one_hot"], size),
        bonus_token_ids=bonus if form == "flat" else bonus[:, np.newaxis],
        **options,
        rng=0,
    )
    assert found.token_ids.tolist() == case.expected["token_ids"]
    assert found.accepted.tolist() == case.expected["accepted_prefix"]
    assert found.emitted.tolist() == case.expected["emitted_with_last_token"]


# --- the four layouts on rows of a case ----------------------------------------------------------


def run_all(target, drafted, ids, *, draft="with_replacement", rng=0):
    """Calls of the four layouts on laws (V,) or rows (3, V): a chain, or a root and two children.

    The law after a child is the target's, and that of the draft is not looked at.
    """
    tree = {"draft": draft, "verifier": "optimal", "rng": rng}
    links = {
        "retrive_index": [[0, 1, 2]],
        "retrive_next_token": [[1, -1, -1]],
        "retrive_next_sibling": [[-1, 2, -1]],
    }
    rows = np.broadcast_to(target, (3, np.shape(target)[-1]))
    laws = None if drafted is None else np.broadcast_to(drafted, rows.shape)
    return {
        "flashinfer": lambda: flashinfer_chain(
            None if laws is None else laws[np.newaxis, :2], [ids], rows[np.newaxis], rng=rng
        ),
        "vllm": lambda: vllm_flattened(
            ids, [2], None if laws is None else laws[:2], rows[:2], [0], rng=rng
        ),
        "sglang": lambda: sglang_tree(
            candidates=[[0, *ids]],
            **links,
            target_probs=rows[np.newaxis],
            draft_probs=None if laws is None else laws[np.newaxis],
            **tree,
        ),
        "eagle": lambda: eagle_tree([0, *ids], [[0, 1], [0, 2]], laws, rows, **tree),
    }


LAYOUTS = ("flashinfer", "vllm", "sglang", "eagle")


@pytest.mark.parametrize("bad", BAD_ROWS)
@pytest.mark.parametrize("argument", ["target_probs", "draft_probs"])
@pytest.mark.parametrize("layout", LAYOUTS)
@covers("invalid-nan-row")
def test_bad_row_of_a_layout_is_named(case, layout, argument, bad):
    row, word = BAD_ROWS[bad]
    rows = {name: np.array(case.input["draft_probs"]) for name in ("target_probs", "draft_probs")}
    # Of the draft's laws in a tree only the root's counts.
    place = 0 if argument == "draft_probs" and layout in ("sglang", "eagle") else 1
    rows[argument][place] = row
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    call = run_all(*rows.values(), [0, 1], rng=rng)[layout]
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        call()
    where = f"row {place}" if layout in ("vllm", "eagle") else f"row 0, {place}"
    assert_names(caught.value, argument, where, word)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("layout", LAYOUTS)
@covers("invalid-missing-draft-law")
def test_layout_without_draft_probs(case, layout):
    _, call = case.input["calls"]
    assert call == {"layout": "flashinfer_chain", "draft_probs": None}
    run = run_all([0.25] * 4, call["draft_probs"], [0, 1])[layout]
    with pytest.raises(mdsd.InvalidDistributionError) as caught:
        run()
    assert_names(caught.value, *case.expected["message_names"])


@covers_drafts("invalid-inputs-left-alone")
def test_layouts_leave_their_inputs_alone(case, draft_name, num_drafts):
    draft = getattr(mdsd, draft_name).name
    target = np.tile(case.vector("target_probs"), (1, 3, 1))
    laws = np.tile(case.vector("draft_probs"), (1, 3, 1))
    # (1, 3) can be drawn by each of the four: 1 is the most likely token.
    ids = np.array([[0, 1, 3]])
    arrays = {
        "candidates": ids,
        "retrive_index": np.array([[0, 1, 2]]),
        "retrive_next_token": np.array([[1, -1, -1]]),
        "retrive_next_sibling": np.array([[-1, 2, -1]]),
        "target_probs": target,
        "draft_probs": laws,
    }
    paths, cu, bonus = np.array([[0, 1], [0, 2]]), np.array([2]), np.array([0])
    everything = [*arrays.values(), paths, cu, bonus]
    copies = [array.copy() for array in everything]
    for writeable in (True, False):
        for array in everything:
            array.setflags(write=writeable)
        for seed in range(3):
            sglang_tree(**arrays, draft=draft, rng=seed)
            eagle_tree(ids[0], paths, laws[0], target[0], draft=draft, rng=seed)
            flashinfer_chain(laws[:, :2], ids[:, 1:], target, rng=seed)
            vllm_flattened(ids[0, 1:], cu, laws[0, :2], target[0, :2], bonus, rng=seed)
    assert all((array == copy).all() for array, copy in zip(everything, copies, strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("draft_name", CASES["dtype-views-and-strides"].input["draft"])
@covers("dtype-views-and-strides")
def test_layouts_read_views_as_they_look(case, draft_name, layout):
    target, law = case.vector("target_probs"), case.vector("draft_probs")
    columns = np.zeros((4, 5))
    columns[:, 2] = target
    targets = [np.tile(target, (3, 1)), np.broadcast_to(columns[:, 2], (3, 4))]
    reversed_laws = np.tile(law[::-1], (3, 1))[:, ::-1]
    laws = [
        np.tile(law, (3, 1)),
        reversed_laws,
        np.asfortranarray(np.tile(law, (3, 1))),
        np.broadcast_to(law, (3, 4)),
    ]
    assert targets[1].strides == (0, 40)
    assert reversed_laws.strides[1] < 0
    draft = getattr(mdsd, draft_name).name
    for seed in range(5):
        found = {
            repr({name: np.asarray(part).tolist() for name, part in vars(result).items()})
            for p, q in itertools.product(targets, laws)
            for result in [run_all(p, q, [0, 3], draft=draft, rng=seed)[layout]()]
        }
        assert len(found) == 1
