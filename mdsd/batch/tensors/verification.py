"""Verification of a batch on its device: checks, one answer to the host, then laws and draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mdsd._random import RandomSource
from mdsd._typing import Tensor
from mdsd.batch._rules import Rule
from mdsd.batch.tensors.arguments import read_arguments
from mdsd.batch.tensors.emission import emit, first_match
from mdsd.batch.tensors.inputs import pieces
from mdsd.batch.tensors.laws import TESTS
from mdsd.batch.tensors.spaces import Located
from mdsd.drafts import DraftKind
from mdsd.rules.arrays import number

if TYPE_CHECKING:
    from mdsd.batch.tensors.selections import Method


def verify_on_device(
    target_probs: Located,
    draft_probs: Tensor,
    draft_token_ids: Tensor,
    *,
    kind: DraftKind,
    rule: Rule | Method,
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
    rule : Rule or Method
        One of `TESTS`, or how to select.
    num_uniforms : int
        How many each row takes.
    rng, uniforms : RandomSource, Located
        As for `verify_batch`; drawn or read only once everything else has passed.

    Returns
    -------
    tuple of array of int64, shapes (B,) and (B,), or None
        Emitted tokens, and their positions among the drafts.
    """
    batch = read_arguments(
        target_probs,
        draft_probs,
        draft_token_ids,
        kind=kind,
        num_uniforms=num_uniforms,
        rng=rng,
        uniforms=uniforms,
    )
    if batch is None:
        return None
    if not isinstance(rule, Rule):
        from mdsd.batch.tensors.selections import verify_by_groups

        return verify_by_groups(batch, rule, rng=rng, uniforms=uniforms)
    if not bool(batch.good):  # the one answer that the host waits for
        return None
    space, xp, numbers = batch.space, batch.space.xp, batch.uniforms
    if numbers is None:
        numbers = space.send(batch.read_uniforms(rng, uniforms.values))
        # What is below 1 in float64 may round to 1 in float32.
        numbers = xp.minimum(numbers, number(numbers, 1.0 - 0.5 * space.epsilon))

    tokens = [xp.zeros((0, 1), dtype=xp.int64, device=space.device)]
    for rows in pieces(draft_probs.shape):
        tests = TESTS[rule](batch.target.probs(rows), batch.drafted.probs(rows), batch.ids[rows, :])
        tokens.append(emit(tests, numbers[rows, :]))
    found = xp.concat(tokens, axis=0)
    return found[:, 0], first_match(batch.ids == found)[:, 0]
