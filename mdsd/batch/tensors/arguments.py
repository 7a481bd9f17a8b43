"""The arguments of a verification on its device, with one answer to all questions about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mdsd._random import RandomSource, read_uniforms
from mdsd._typing import FloatArray, Tensor
from mdsd.batch.tensors.inputs import DeviceProbs, is_real, pieces, read_probs
from mdsd.batch.tensors.spaces import Located, Space
from mdsd.drafts import DraftKind
from mdsd.rules.arrays import namespace, number
from mdsd.rules.possible import are_distinct, are_positive, tops_match


@dataclass(frozen=True, eq=False)
class DeviceBatch:
    """What is to be verified.

    Attributes
    ----------
    space : Space
    target, drafted : DeviceProbs
        Each of shape (B, V).
    ids : array of int64, shape (B, n)
        The drafts as given.
    good : array of bool, without axes
        Whether no row of anything that is on the device is bad.
    uniforms : array, shape (B, num_uniforms), or None
        Those that are on the device.
    num_uniforms : int
        How many each row takes.
    """

    space: Space
    target: DeviceProbs
    drafted: DeviceProbs
    ids: Tensor
    good: Tensor
    uniforms: Tensor | None
    num_uniforms: int

    @property
    def tokens(self) -> Tensor:
        """The drafts, (B, n), brought into the vocabulary where they are outside."""
        return _inside(self.ids, self.drafted.given.shape[1])

    def read_uniforms(self, rng: RandomSource, uniforms: object) -> FloatArray:
        """Draw or read those of the host, once everything else has passed; (B, num_uniforms)."""
        shape = (self.ids.shape[0], self.num_uniforms)
        return read_uniforms(rng, uniforms, shape)  # type: ignore[arg-type]


def read_arguments(
    target_probs: Located,
    draft_probs: Tensor,
    draft_token_ids: Tensor,
    *,
    kind: DraftKind,
    num_uniforms: int,
    rng: RandomSource,
    uniforms: Located,
) -> DeviceBatch | None:
    """Read the arguments of `verify_on_device`, waiting for nothing.

    Returns
    -------
    DeviceBatch or None
        None where shapes or types already say that something is wrong.
    """
    space = target_probs.device
    if space is None:
        return None
    matrix, shape = target_probs.values.shape, tuple(draft_token_ids.shape)
    target, drafted = read_probs(space, target_probs.values), read_probs(space, draft_probs)
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
        good = good & space.xp.all((numbers >= 0.0) & (numbers < 1.0))
    return DeviceBatch(space, target, drafted, ids, good, numbers, num_uniforms)


def _ids_on_device(space: Space, draft_token_ids: Tensor) -> Tensor:
    if isinstance(draft_token_ids, np.ndarray):
        return space.send(draft_token_ids)
    return space.xp.astype(draft_token_ids, space.xp.int64)


def _inside(ids: Tensor, size: int) -> Tensor:
    xp = namespace(ids)
    return xp.minimum(xp.maximum(ids, number(ids, 0)), number(ids, size - 1))


def _possible(drafted: DeviceProbs, ids: Tensor, kind: DraftKind) -> Tensor:
    """Tell whether all rows of ids can have been drawn, as an array of bool without axes.

    That they are distinct and of positive probability also says that there were enough to draw.
    Neighbouring numbers, which a division by the mass may make equal, may stand in any order where
    the certain tokens come first: the verifier takes those listed for the certain ones. Which of
    them is the hub of a pair is for the host to say.
    """
    xp, size = drafted.space.xp, drafted.given.shape[1]
    good = xp.all((ids >= 0) & (ids < size))
    ids = _inside(ids, size)
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
