"""Verification of a batch on its device: checks, one answer to the host, then laws and draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mdsd._random import RandomSource, read_uniforms
from mdsd.batch._rules import Rule
from mdsd.batch.tensors.emission import Tests, emit, first_match
from mdsd.batch.tensors.inputs import DeviceProbs, is_real, pieces, read_probs
from mdsd.batch.tensors.kseq import kseq_tests
from mdsd.batch.tensors.rejection import greedy_tests, masses_left, rejection_tests
from mdsd.batch.tensors.spaces import Space, device_space
from mdsd.batch.tensors.sums import marked
from mdsd.drafts import GreedyDraft, WithoutReplacement, WithReplacement

__all__ = ["DRAFTS_ON_DEVICE", "TESTS", "verify_on_device"]

DRAFTS_ON_DEVICE = (WithReplacement.name, WithoutReplacement.name, GreedyDraft.name)
"""Draft distributions whose tuples can be checked on a device."""


def _naive(space: Space, p: Any, q: Any, ids: Any) -> Tests:
    return Tests(space.zeros(p.shape[0], 0), ids[:, :0], p)


def _single(space: Space, p: Any, q: Any, ids: Any) -> Tests:
    return rejection_tests(space, p, q, ids[:, :1])


def _shrinking(space: Space, p: Any, q: Any, ids: Any) -> Tests:
    return rejection_tests(space, p, q, ids, masses_left(space, q, ids))


TESTS: dict[Rule, Callable[[Space, Any, Any, Any], Tests]] = {
    Rule.NAIVE: _naive,
    Rule.SINGLE_FIRST: _single,
    Rule.SINGLE_LAST: greedy_tests,
    Rule.RRS_STEADY: rejection_tests,
    Rule.RRS_SHRINKING: _shrinking,
    Rule.KSEQ: kseq_tests,
}
"""What each rule known here makes of p, q and ids: the law of what is emitted."""


def verify_on_device(
    space: Space,
    target_probs: Any,
    draft_probs: Any,
    draft_token_ids: Any,
    *,
    draft: str,
    rule: Rule,
    num_uniforms: int,
    rng: RandomSource,
    uniforms: Any,
) -> tuple[Any, Any] | None:
    """Verify a batch, or give None where an argument did not pass its checks.

    Parameters
    ----------
    space : Space
    target_probs, draft_probs : array, shape (B, V)
        The caller's arrays.
    draft_token_ids : array of int, shape (B, n)
        On the device, or read by numpy.
    draft : str
        One of `DRAFTS_ON_DEVICE`.
    rule : Rule
        One of `TESTS`.
    num_uniforms : int
        How many each row takes.
    rng, uniforms
        As for `verify_batch`; drawn or read only once everything else has passed.

    Returns
    -------
    tuple of array of int64, shapes (B,) and (B,), or None
        Emitted tokens, and their positions among the drafts.
    """
    xp = space.xp
    target, drafted = read_probs(space, target_probs), read_probs(space, draft_probs)
    shape = tuple(draft_token_ids.shape)
    if target is None or drafted is None or target_probs.shape != draft_probs.shape:
        return None
    if len(shape) != 2 or shape[0] != target_probs.shape[0]:
        return None
    ids = _ids_on_device(space, draft_token_ids)
    good = target.good & drafted.good & _possible(drafted, ids, draft)
    numbers = None
    if rng is None and device_space(uniforms) is not None:
        if tuple(uniforms.shape) != (shape[0], num_uniforms) or not is_real(uniforms):
            return None
        numbers = space.as_real(uniforms)
        good = good & xp.all((numbers >= 0.0) & (numbers < 1.0))
    if not bool(good):  # the one answer that the host waits for
        return None
    if numbers is None:
        numbers = space.send(read_uniforms(rng, uniforms, (shape[0], num_uniforms)))
        # What is below 1 in float64 may round to 1 in float32.
        numbers = xp.minimum(numbers, space.number(1.0 - 0.5 * space.epsilon))

    tokens = [xp.zeros((0, 1), dtype=xp.int64, device=space.device)]
    for rows in pieces(target_probs.shape):
        tests = TESTS[rule](space, target.probs(rows), drafted.probs(rows), ids[rows, :])
        tokens.append(emit(space, tests, numbers[rows, :]))
    found = xp.concat(tokens, axis=0)
    return found[:, 0], first_match(space, ids == found)[:, 0]


def _ids_on_device(space: Space, draft_token_ids: Any) -> Any:
    if isinstance(draft_token_ids, np.ndarray):
        return space.send(draft_token_ids)
    return space.xp.astype(draft_token_ids, space.xp.int64)


def _possible(drafted: DeviceProbs, ids: Any, draft: str) -> Any:
    """Tell whether all rows of ids can have been drawn, as an array of bool without axes.

    That they are distinct and of positive probability also says that there were enough to draw.
    """
    space = drafted.space
    xp, count, size = space.xp, ids.shape[1], drafted.given.shape[1]
    good = xp.all((ids >= 0) & (ids < size))
    ids = xp.minimum(xp.maximum(ids, space.whole(0)), space.whole(size - 1))
    if draft != WithReplacement.name:
        same = xp.astype(ids[:, :, None] == ids[:, None, :], xp.int64)
        good = good & xp.all(xp.sum(same, axis=(1, 2)) == count)
    for rows in pieces(drafted.given.shape):
        entries = space.as_real(drafted.given[rows, :])
        good = good & xp.all(xp.take_along_axis(entries, ids[rows, :], axis=-1) > 0.0)
        if draft == GreedyDraft.name and count > 1:
            good = good & _tops_match(space, entries, ids[rows, :-1])
    return good


def _tops_match(space: Space, entries: Any, tops: Any) -> Any:
    """Tell whether each row of ids lists the most likely tokens, largest first, lowest id first.

    Neighbouring numbers, which a division by the mass may make equal, may stand in any order: the
    verifier takes the listed tokens for the top, and the other for the law of the last draft.
    """
    xp, near = space.xp, 1.0 + 4.0 * space.epsilon
    likely = xp.take_along_axis(entries, tops, axis=-1)
    before, after = likely[:, :-1], likely[:, 1:]
    wrong = (after > near * before) | ((after == before) & (tops[:, :-1] > tops[:, 1:]))
    least, last = likely[:, -1:], tops[:, -1:]
    places = space.places(entries.shape[1])[None, :]
    ahead = (entries > near * least) | ((entries == least) & (places < last))
    ahead = ahead & ~marked(space, tops, entries.shape[1])
    return ~xp.any(wrong) & ~xp.any(ahead)
