"""Verification of a batch on its device: checks, one answer to the host, then laws and draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd._random import RandomSource, read_uniforms
from mdsd.batch._rules import Rule
from mdsd.batch.tensors.emission import emit, first_match
from mdsd.batch.tensors.inputs import DeviceProbs, is_real, pieces, read_probs
from mdsd.batch.tensors.laws import TESTS
from mdsd.batch.tensors.spaces import Space, device_space
from mdsd.drafts import GreedyDraft, SpecHubDraft, WithoutReplacement, WithReplacement
from mdsd.rules.arrays import number
from mdsd.rules.possible import are_distinct, are_positive, tops_match

__all__ = ["DRAFTS_ON_DEVICE", "TESTS", "verify_on_device"]

DRAFTS_ON_DEVICE = tuple(
    kind.name for kind in (WithReplacement, WithoutReplacement, GreedyDraft, SpecHubDraft)
)
"""Draft distributions whose tuples can be checked on a device."""


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
    if draft == SpecHubDraft.name and shape[1] != SpecHubDraft.num_drafts:
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
        numbers = xp.minimum(numbers, number(numbers, 1.0 - 0.5 * space.epsilon))

    tokens = [xp.zeros((0, 1), dtype=xp.int64, device=space.device)]
    for rows in pieces(target_probs.shape):
        tests = TESTS[rule](target.probs(rows), drafted.probs(rows), ids[rows, :])
        tokens.append(emit(tests, numbers[rows, :]))
    found = xp.concat(tokens, axis=0)
    return found[:, 0], first_match(ids == found)[:, 0]


def _ids_on_device(space: Space, draft_token_ids: Any) -> Any:
    if isinstance(draft_token_ids, np.ndarray):
        return space.send(draft_token_ids)
    return space.xp.astype(draft_token_ids, space.xp.int64)


def _possible(drafted: DeviceProbs, ids: Any, draft: str) -> Any:
    """Tell whether all rows of ids can have been drawn, as an array of bool without axes.

    That they are distinct and of positive probability also says that there were enough to draw.
    Neighbouring numbers, which a division by the mass may make equal, may stand in any order at the
    top of a greedy draft: the verifier takes the listed tokens for the top, and the other for the
    law of the last draft. Which of them is the hub of a pair is for the host to say.
    """
    xp, size = drafted.space.xp, drafted.given.shape[1]
    good = xp.all((ids >= 0) & (ids < size))
    ids = xp.minimum(xp.maximum(ids, number(ids, 0)), number(ids, size - 1))
    slack = 4.0 * drafted.space.epsilon
    if draft != WithReplacement.name:
        good = good & xp.all(are_distinct(ids))
    for rows in pieces(drafted.given.shape):
        entries, tuples = drafted.space.as_real(drafted.given[rows, :]), ids[rows, :]
        possible = are_positive(entries, tuples)
        if draft == GreedyDraft.name:
            possible = possible & tops_match(entries, tuples[:, :-1], slack=slack)
        if draft == SpecHubDraft.name:
            hubs = [tops_match(entries, tuples[:, k : k + 1], slack=-slack) for k in (0, 1)]
            possible = possible & (hubs[0] | hubs[1])
        good = good & xp.all(possible)
    return good
