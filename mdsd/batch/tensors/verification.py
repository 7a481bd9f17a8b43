"""Verification of a batch on its device: checks, one answer to the host, then laws and draws."""

from __future__ import annotations

import numpy as np

from mdsd._random import RandomSource, read_uniforms
from mdsd._typing import Tensor
from mdsd.batch._rules import Rule
from mdsd.batch.tensors.emission import emit, first_match
from mdsd.batch.tensors.inputs import DeviceProbs, is_real, pieces, read_probs
from mdsd.batch.tensors.laws import TESTS
from mdsd.batch.tensors.spaces import Located, Space
from mdsd.drafts import DraftKind
from mdsd.rules.arrays import number
from mdsd.rules.possible import are_distinct, are_positive, tops_match


def verify_on_device(
    target_probs: Located,
    draft_probs: Tensor,
    draft_token_ids: Tensor,
    *,
    kind: DraftKind,
    rule: Rule,
    num_uniforms: int,
    rng: RandomSource,
    uniforms: Located,
) -> tuple[Tensor, Tensor] | None:
    """Verify a batch, or give None where an argument did not pass its checks.

    Parameters
    ----------
    target_probs : Located
        The caller's array, shape (B, V), on a device.
    draft_probs : array, shape (B, V)
        On that device.
    draft_token_ids : array of int, shape (B, n)
        On the device, or read by numpy.
    kind : DraftKind
        A built-in one, of a single draft model.
    rule : Rule
        One of `TESTS`.
    num_uniforms : int
        How many each row takes.
    rng, uniforms : RandomSource, Located
        As for `verify_batch`; drawn or read only once everything else has passed.

    Returns
    -------
    tuple of array of int64, shapes (B,) and (B,), or None
        Emitted tokens, and their positions among the drafts.
    """
    space = target_probs.device
    if space is None:
        return None
    xp, matrix = space.xp, target_probs.values.shape
    target, drafted = read_probs(space, target_probs.values), read_probs(space, draft_probs)
    shape = tuple(draft_token_ids.shape)
    if target is None or drafted is None or matrix != draft_probs.shape or shape[0] != matrix[0]:
        return None
    ids = _ids_on_device(space, draft_token_ids)
    good = target.good & drafted.good & _possible(drafted, ids, kind)
    numbers = None
    if rng is None and uniforms.device is not None:
        given = uniforms.values
        if tuple(given.shape) != (shape[0], num_uniforms) or not is_real(given):
            return None
        numbers = space.as_real(given)
        good = good & xp.all((numbers >= 0.0) & (numbers < 1.0))
    if not bool(good):  # the one answer that the host waits for
        return None
    if numbers is None:
        numbers = space.send(read_uniforms(rng, uniforms.values, (shape[0], num_uniforms)))
        # What is below 1 in float64 may round to 1 in float32.
        numbers = xp.minimum(numbers, number(numbers, 1.0 - 0.5 * space.epsilon))

    tokens = [xp.zeros((0, 1), dtype=xp.int64, device=space.device)]
    for rows in pieces(matrix):
        tests = TESTS[rule](target.probs(rows), drafted.probs(rows), ids[rows, :])
        tokens.append(emit(tests, numbers[rows, :]))
    found = xp.concat(tokens, axis=0)
    return found[:, 0], first_match(ids == found)[:, 0]


def _ids_on_device(space: Space, draft_token_ids: Tensor) -> Tensor:
    if isinstance(draft_token_ids, np.ndarray):
        return space.send(draft_token_ids)
    return space.xp.astype(draft_token_ids, space.xp.int64)


def _possible(drafted: DeviceProbs, ids: Tensor, kind: DraftKind) -> Tensor:
    """Tell whether all rows of ids can have been drawn, as an array of bool without axes.

    That they are distinct and of positive probability also says that there were enough to draw.
    Neighbouring numbers, which a division by the mass may make equal, may stand in any order where
    the certain tokens come first: the verifier takes those listed for the certain ones. Which of
    them is the hub of a pair is for the host to say.
    """
    xp, size = drafted.space.xp, drafted.given.shape[1]
    good = xp.all((ids >= 0) & (ids < size))
    ids = xp.minimum(xp.maximum(ids, number(ids, 0)), number(ids, size - 1))
    slack = 4.0 * drafted.space.epsilon
    certain = kind.num_certain(ids.shape[1])
    if kind.distinct:
        good = good & xp.all(are_distinct(ids))
    for rows in pieces(drafted.given.shape):
        entries, tuples = drafted.space.as_real(drafted.given[rows, :]), ids[rows, :]
        possible = are_positive(entries, tuples)
        if certain and kind.draft_type.certain_first:
            possible = possible & tops_match(entries, tuples[:, :certain], slack=slack)
        elif certain:
            ends = tuples[:, :certain], tuples[:, -certain:]
            hubs = [tops_match(entries, end, slack=-slack) for end in ends]
            possible = possible & (hubs[0] | hubs[1])
        good = good & xp.all(possible)
    return good
