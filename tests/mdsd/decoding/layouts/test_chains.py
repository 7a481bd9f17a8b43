"""`flashinfer_chain` and `vllm_flattened`: uniforms, streams, widths, what is looked at."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.decoding.layouts import flashinfer_chain, vllm_flattened

from .samples import chains, fields, flattened

P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
"""Draft 0 always passes, draft 1 below 0.6, draft 2 below 2 / 3; the residual is token 0."""


@pytest.mark.parametrize(
    ("uniforms", "tokens", "accepted", "judged"),
    [
        ([0.59, 0.66, 0.49], [1, 2, 0], 2, 2),
        ([0.59, 0.66, 0.51], [1, 2, 1], 2, 2),
        ([0.61, 0.66, 0.99], [0, -1, -1], 0, 1),
        ([0.59, 0.67, 0.99], [1, 0, -1], 1, 1),
        ([0.61, 0.67, 0.0], [0, -1, -1], 0, 0),
    ],
)
def test_numbers_in_their_order(uniforms, tokens, accepted, judged):
    found = flashinfer_chain([[Q, Q]], [[1, 2]], [[P, P, P]], uniforms=[uniforms])
    assert fields(found) == {
        "token_ids": [tokens],
        "drafted": [2],
        "accepted": [accepted],
        "emitted": [accepted + 1],
        "output_accepted_token_num": [judged],
        "output_emitted_draft_token_num": [accepted],
    }
    flat = vllm_flattened([1, 2], [2], [Q, Q], [P, P], [2], uniforms=uniforms)
    whole = accepted == 2
    assert flat.token_ids.tolist() == [[1, 2, 2] if whole else tokens]
    assert flat.accepted.tolist() == [accepted]


def test_a_zero_accepts_no_token_that_the_target_does_not_have():
    found = flashinfer_chain(
        [[[0.5, 0.5]]], [[1]], [[[1.0, 0.0], [0.5, 0.5]]], uniforms=[[0.0] * 2]
    )
    assert found.token_ids.tolist() == [[0, -1]]


def test_counts_per_position_are_independent():
    """FlashInfer's accepted count: on average the sum of ``sum min(p, q)`` over positions."""
    count = 40_000
    rows = {"draft_probs": np.tile(Q, (count, 2, 1)), "target_probs": np.tile(P, (count, 3, 1))}
    ids = mdsd.WithReplacement(Q, 2).sample(0, size=count)
    found = flashinfer_chain(draft_token_ids=ids, **rows, rng=1)
    # Fewer than one in 10**6 runs would leave five standard errors.
    chance = np.minimum(P, Q).sum()
    for numbers, mean in (
        (found.output_accepted_token_num, 2 * chance),
        (found.accepted, chance + chance**2),
        (found.token_ids[:, 0] == 0, P[0]),
    ):
        error = numbers.std(ddof=1) / np.sqrt(count)
        assert abs(numbers.mean() - mean) < 5 * error
    # Negative control: the two counts differ by far more.
    gap = (found.output_accepted_token_num - found.accepted).mean()
    assert gap > 0.1


def test_both_layouts_are_one_rule():
    given = chains(50, 4, 6, seed=1)
    numbers = np.random.default_rng(2).random((50, 5))
    dense = flashinfer_chain(**given, uniforms=numbers)
    lengths = [4] * 50
    bonus = np.where(dense.accepted == 4, dense.token_ids[:, -1], 0)
    flat = vllm_flattened(**flattened(given, lengths, bonus), uniforms=numbers.reshape(-1))
    assert flat.token_ids.tolist() == dense.token_ids.tolist()
    assert flat.accepted.tolist() == dense.accepted.tolist()


def test_requests_of_all_lengths_are_chains_cut_short():
    given = chains(6, 3, 5, seed=3)
    lengths = [0, 3, 1, 0, 2, 3]
    numbers = np.random.default_rng(4).random((6, 4))
    flat_numbers = np.concatenate(
        [row[[*range(n), 3]] for row, n in zip(numbers, lengths, strict=True)]
    )
    flat = vllm_flattened(
        **flattened(given, lengths, np.full(6, 4)), uniforms=flat_numbers, max_spec_len=5
    )
    assert flat.token_ids.shape == (6, 6)
    assert flat.drafted.tolist() == lengths
    for b, n in enumerate(lengths):
        alone = flashinfer_chain(
            given["draft_probs"][b : b + 1, :n],
            given["draft_token_ids"][b : b + 1, :n],
            given["target_probs"][b : b + 1, : n + 1],
            uniforms=numbers[b : b + 1, [*range(n), 3]],
        )
        expected = alone.token_ids[0].tolist()
        if alone.accepted[0] == n:
            expected[-1] = 4
        assert flat.token_ids[b].tolist() == expected + [-1] * (5 - n)


def test_padding_cuts_a_request_short():
    """Its extra token is drawn at the padding, from the number of extra tokens."""
    given = {
        "draft_token_ids": [0, -1, 7, 1],
        "cu_num_draft_tokens": [3, 4],
        "draft_probs": [Q, [np.nan] * 3, [np.nan] * 3, Q],
        "target_probs": [[0.9, 0.1, 0.0], P, [np.nan] * 3, P],
        "bonus_token_ids": [2, 2],
    }
    found = vllm_flattened(**given, uniforms=[0.0, 0.0, 0.0, 0.6, 0.9, 0.9])
    assert found.token_ids.tolist() == [[0, 1, -1, -1], [0, -1, -1, -1]]
    assert found.drafted.tolist() == [1, 1]
    assert found.accepted.tolist() == [1, 0]


def test_ids_behind_padding_are_not_looked_at():
    found = flashinfer_chain(
        [[[0.5, 0.5], [np.inf, -1.0]]],
        [[-1, 99]],
        [[[0.0, 1.0], [np.nan, 0.0], [9.0, 9.0]]],
        rng=0,
    )
    assert found.token_ids.tolist() == [[1, -1, -1]]


# --- randomness ----------------------------------------------------------------------------------


def test_same_seed_same_tokens():
    given = chains(20, 3, 5, seed=5)
    first, again, other = (
        flashinfer_chain(**given, rng=seed).token_ids.tolist() for seed in (1, 1, 2)
    )
    assert first == again != other
    unseeded = {repr(flashinfer_chain(**given).token_ids.tolist()) for _ in range(3)}
    assert len(unseeded) == 3


def test_a_generator_moves_on_and_numpy_is_left_alone():
    given, rng = chains(20, 3, 5, seed=6), np.random.default_rng(0)
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - what must not change
    first, second = (flashinfer_chain(**given, rng=rng).token_ids.tolist() for _ in range(2))
    assert first != second
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002


def test_rows_do_not_depend_on_the_others():
    """Neither on what they hold nor on how long they are."""
    given = chains(4, 3, 5, seed=7)
    bonus = np.array([1, 2, 3, 4])
    expected = vllm_flattened(**flattened(given, [1, 2, 0, 3], bonus), rng=8)
    for lengths in ([3, 2, 3, 3], [0, 2, 1, 3]):
        found = vllm_flattened(**flattened(given, lengths, bonus), rng=8)
        for row in (1, 3):
            assert found.token_ids[row].tolist() == expected.token_ids[row].tolist()
    dense = flashinfer_chain(**given, rng=8)
    other = chains(4, 3, 5, seed=9)
    mixed = {name: np.concatenate([other[name][:2], given[name][2:]]) for name in given}
    found = flashinfer_chain(**mixed, rng=8)
    assert found.token_ids[2:].tolist() == dense.token_ids[2:].tolist()


# --- types and sizes -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "float32", "bfloat16"])
def test_narrow_types(name):
    """As the same numbers in float64, renormalised."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)
    given = chains(30, 3, 40, seed=10)
    numbers = np.random.default_rng(11).random((30, 4))
    narrow, wide = dict(given), dict(given)
    for key in ("draft_probs", "target_probs"):
        narrow[key] = given[key].astype(dtype)
        wide[key] = narrow[key].astype(np.float64)
        wide[key] /= wide[key].sum(axis=-1, keepdims=True)
    found = flashinfer_chain(**narrow, uniforms=numbers)
    assert fields(found) == fields(flashinfer_chain(**wide, uniforms=numbers))
    # Not what a check against the tolerance of another type would let through.
    assert np.abs(narrow["target_probs"].astype(np.float64).sum(axis=-1) - 1).max() > (
        0 if name == "float32" else 1e-4
    )


def test_one_token_vocabulary():
    found = flashinfer_chain([[[1.0], [1.0]]], [[0, 0]], [[[1.0]] * 3], rng=0)
    assert found.token_ids.tolist() == [[0, 0, 0]]


def test_target_equal_to_draft_accepts_everything():
    given = chains(50, 3, 8, seed=12)
    given["target_probs"][:, :-1] = given["draft_probs"]
    assert flashinfer_chain(**given, rng=0).accepted.tolist() == [3] * 50


def test_full_vocabulary():
    rng = np.random.default_rng(13)
    target = rng.random((1, 2, 150_000), dtype=np.float32) ** 8
    target /= target.sum(axis=-1, keepdims=True, dtype=np.float64).astype(np.float32)
    drafted = target[:, :1, ::-1]
    ids = [[int(drafted[0, 0].argmax())]]
    plan = mdsd.SingleDraftVerifier().plan(target[0, 0], mdsd.WithReplacement(drafted[0, 0], 1))
    for number in (0.3, 0.6, 0.99):
        found = flashinfer_chain(drafted, ids, target, uniforms=[[0.999, number]])
        assert found.token_ids[0, 0] == plan.verify(ids[0], uniforms=[0.999, number]).token_id
