"""Draft chains, wherever a layout keeps their drafts and distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd._arguments import row_name
from mdsd._random import RandomSource
from mdsd._typing import BoolArray, IntArray, TensorLike
from mdsd.batch import verify_batch
from mdsd.batch.tensors.spaces import to_host
from mdsd.decoding.layouts import _inputs as inputs
from mdsd.decoding.layouts._inputs import PADDING, Places, ProbRows
from mdsd.drafts import DraftKind
from mdsd.errors import InvalidTokenError


def draws_one(kind: DraftKind) -> bool:
    """Tell whether a kind draws a single token, by chance, from one model."""
    return not kind.one_model_each and kind.refusal(1) is None and kind.num_certain(1) == 0


@dataclass(frozen=True, eq=False)
class Chains:
    """B chains of at most g drafts, each of which is tested by itself.

    Attributes
    ----------
    ids : ndarray of int64
        The drafts as the caller has them.
    target : ProbRows
        Distributions of the token in the place of each draft.
    kind : DraftKind or None
        How each was drawn; None where they were chosen.
    drafted : ProbRows or None
        Outputs of the draft model that they were drawn from.
    places : tuple of ndarray of int64, each of shape (B, g + 1)
        Where these arrays have each position of a chain.
    sizes : ndarray of int64, shape (B,)
        Drafts of each chain, with padding.
    bonus : ndarray of int64, shape (B,), or None
        Extra token of a chain that is accepted as a whole and not cut by padding; None where it is
        drawn, from a row of the target behind the drafts.
    """

    ids: IntArray
    target: ProbRows
    kind: DraftKind | None
    drafted: ProbRows | None
    places: Places
    sizes: IntArray
    bonus: IntArray | None = None

    def verify(
        self, rng: RandomSource, uniforms: TensorLike | None, shape: tuple[int, ...]
    ) -> list[Any]:
        """Check everything that counts, then draw, and verify.

        Parameters
        ----------
        rng : numpy.random.Generator, torch.Generator, int or None
        uniforms : array_like, tensor or None
            Chain after chain, a number in [0, 1) for the test of each draft, then one for the draw
            of the extra token.
        shape : tuple of int
            Expected shape of `uniforms`.

        Returns
        -------
        list of arrays of the caller's kind
            Emitted tokens, (B, g + 1), padded with -1; for each chain the number of its drafts,
            of those accepted, of the tokens emitted, of the drafts that pass their tests, and
            once more of those accepted.

        Raises
        ------
        InvalidTokenError
            If an id is outside the vocabulary, or its distribution cannot have drawn it.
        InvalidDistributionError
            If a distribution is bad.
        InvalidArgumentError
            If `rng` or `uniforms` is not what it should be.
        """
        columns, sizes = np.arange(self.places[0].shape[1]), self.sizes[:, np.newaxis]
        drafts = np.full(self.places[0].shape, PADDING, dtype=np.int64)
        inside = columns < sizes
        drafts[inside] = self.ids[self._at(inside)]
        tested = np.logical_and.accumulate(drafts != PADDING, axis=1)
        lengths = tested.sum(axis=1)
        ends = columns == lengths[:, np.newaxis]
        self.target.check(self._at(tested | (ends if self.bonus is None else ends & inside)))
        drafted = self._check_drafts(tested, drafts[tested])
        numbers = inputs.read_numbers(rng, uniforms, columns <= sizes, shape)
        extra = numbers[np.arange(len(sizes)), self.sizes]

        tokens = np.full(drafts.shape, PADDING, dtype=np.int64)
        if tested.any():
            verified = verify_batch(
                self.target.take(self._at(tested)),
                drafted,
                drafts[tested][:, np.newaxis],
                draft="with_replacement",
                verifier="single",
                uniforms=np.stack([numbers[tested], extra[np.nonzero(tested)[0]]], axis=1),
            )
            tokens[tested] = inputs.host_ids(verified.token_ids)
        passed = tested & (tokens == drafts)
        accepted = np.logical_and.accumulate(passed, axis=1).sum(axis=1)
        # The token of the first rejection stands where it was found; behind it comes nothing.
        tokens[columns > accepted[:, np.newaxis]] = PADDING
        ends[accepted < lengths] = False
        if self.bonus is not None:
            given = ends & ~inside
            tokens[given] = self.bonus[given.any(axis=1)]
            ends &= inside
        drawn = inputs.draw_rows(self.target.take(self._at(ends)), extra[ends.any(axis=1)])
        tokens[ends] = drawn
        counts = (lengths, accepted, accepted + 1, passed.sum(axis=1), accepted.copy())
        return [self.target.hand_over(array) for array in (tokens, *counts)]

    def _at(self, mask: BoolArray) -> Places:
        """Places of some positions, chain after chain."""
        return tuple(axis[mask] for axis in self.places)

    def _check_drafts(self, tested: BoolArray, drafts: IntArray) -> Any:
        """Check the tokens that are tested, and find the distribution of each, (R, V)."""
        places = self._at(tested)
        used = np.zeros(self.ids.shape, dtype=np.bool_)
        used[places] = True
        inputs.check_ids(self.ids, used, self.target.vocab_size, "draft_token_ids")
        if self.kind is None or self.drafted is None:
            return inputs.one_hot_rows(drafts, self.target)
        self.drafted.check(places)
        rows = self.drafted.take(places)
        if self.kind.draft_type.declared:  # its only token is drawn from the output itself
            chances = self.drafted.entries((*places, drafts))
        else:
            host, count = to_host(rows), range(len(drafts))
            outputs = [self.kind.make(host[k, ...], 1).token_hit_probs() for k in count]
            table = np.array(outputs).reshape(len(drafts), -1)
            chances = table[count, drafts]
            rows = table if self.drafted.space is None else self.drafted.space.send(table)
        possible = chances > 0
        if not possible.all():
            *row, position = (int(index[possible.argmin()]) for index in places)
            raise InvalidTokenError(
                f"{row_name('draft_token_ids', row)}: id {self.ids[(*row, position)]} at position "
                f"{position} cannot be drawn from its row of draft_probs, where it has no mass"
            )
        return rows
