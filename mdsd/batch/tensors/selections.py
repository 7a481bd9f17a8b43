"""Selection by groups of tokens: sums on the device, the search on the host, draws on the device.

All that the host needs of a batch, the answer to the checks and the uniforms among it, comes in one
transfer; what it sends back is waited for by nobody.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mdsd._random import RandomSource
from mdsd._solvers.ratio_groups import NUM_BUCKETS
from mdsd._typing import BoolArray, FloatArray, IntArray, Tensor
from mdsd.batch._threads import over_rows
from mdsd.batch.tensors.arguments import DeviceBatch
from mdsd.batch.tensors.buckets import lookup, ratio_keys
from mdsd.batch.tensors.emission import draw, first_match
from mdsd.batch.tensors.inputs import DeviceProbs, pieces
from mdsd.batch.tensors.spaces import Located, Space
from mdsd.batch.tensors.sums import SelectedRows, SumRows
from mdsd.rules.accepting import left_over
from mdsd.rules.arrays import concat, number, take


@dataclass(frozen=True, eq=False)
class Listing:
    """How the tokens of some rows are put together.

    Attributes
    ----------
    ids : array of int64, shape (B, K)
        Tokens that the host looks at one by one, ascending.
    rests, scales : array, shape (B, 1)
        Draw mass of all tokens but the n - 1 largest; what q is multiplied by before p is compared
        with it.
    listed : array of bool, shape (B, V), or None
        Which tokens are not among the sums of the buckets; a few of the `ids` may be there. None
        where all are.
    """

    ids: Tensor
    rests: Tensor
    scales: Tensor
    listed: Tensor | None = None


class Method(ABC):
    """An optimal selection rule for one kind of draft.

    Attributes
    ----------
    num_sums : int
        Sums by bucket that the host asks for.
    cost : int
        Time that the host takes for a row, as so many numbers to go through.
    """

    num_sums: int
    cost: int

    @abstractmethod
    def list_tokens(self, space: Space, p: Tensor, q: Tensor, num_drafts: int) -> Listing:
        """Say how the tokens of rows p and q, (B, V), are put together."""

    @abstractmethod
    def sum_buckets(self, p: Tensor, q: Tensor, keys: Tensor, listing: Listing) -> list[Tensor]:
        """Sum by bucket, `num_sums` times (B, buckets); keys, (B, V), are those of the ratios."""

    @abstractmethod
    def select(
        self, rows: SumRows, uniforms: FloatArray, found: SelectedRows, start: int, stop: int
    ) -> None:
        """Fill in what is selected of the rows ``start .. stop - 1``."""


def verify_by_groups(
    batch: DeviceBatch, method: Method, *, rng: RandomSource, uniforms: Located
) -> tuple[Tensor, Tensor] | None:
    """Verify a batch by a selection rule, or give None where an argument did not pass its checks.

    Parameters
    ----------
    batch : DeviceBatch
    method : Method
    rng, uniforms : RandomSource, Located
        As for `verify_batch`; drawn or read only once everything else has passed.

    Returns
    -------
    tuple of array of int64, shapes (B,) and (B,), or None
        Emitted tokens, and their positions among the drafts.
    """
    if batch.ids.shape[0] == 0:
        return None
    with np.errstate(all="ignore"):  # rows that turn out to be bad may divide by zero
        listing, packet = survey(batch, method)
    received = batch.space.receive(packet)  # the one transfer that the host waits for
    if not received[:, 0].all():
        return None
    rows, sent = unpack(received, batch, method, listing.ids.shape[1])
    if not (rows.rests >= least_scaled(batch.space)).all():
        return None
    numbers = batch.read_uniforms(rng, uniforms.values) if sent is None else sent
    selected = select(rows, method, numbers)
    accepted = numbers[:, -2] < selected.chances
    found = emit_selected(batch, listing, selected, accepted, numbers[:, -1])
    return found[:, 0], first_match(batch.ids == found)[:, 0]


def least_scaled(space: Space) -> float:
    """Least mass that the draw masses of a row may be divided by."""
    return 2.0**-900 if space.is_double else 2.0**-100


def survey(batch: DeviceBatch, method: Method) -> tuple[Listing, Tensor]:
    """Go through all rows on the device, and put what the host must know into one array.

    Returns
    -------
    tuple of (Listing, array of shape (B, m))
        In the order that `unpack` knows.
    """
    space, xp, tokens = batch.space, batch.space.xp, batch.tokens
    listings, packets = [], []
    for rows in pieces(batch.target.given.shape):
        p, q, ids = batch.target.probs(rows), batch.drafted.probs(rows), tokens[rows, :]
        listing = method.list_tokens(space, p, q, ids.shape[1])
        keys = ratio_keys(p, q * listing.scales)
        at = [first_match(listing.ids == ids[:, k : k + 1]) for k in range(ids.shape[1])]
        live = xp.sum(space.as_real(q > 0.0), axis=-1, keepdims=True)
        whole = [take(keys, ids), *at, take(keys, listing.ids)]
        masses = [take(p, ids), take(q, ids), take(p, listing.ids), take(q, listing.ids)]
        if listing.listed is not None:
            alone = take(listing.listed, listing.ids)
            masses[2:] = [xp.where(alone, each, number(each, 0.0)) for each in masses[2:]]
        parts = [live, listing.rests, *map(space.as_real, whole), *masses]
        packets.append(concat([*parts, *method.sum_buckets(p, q, keys, listing)]))
        listings.append(replace(listing, listed=None))
    packet = xp.concat(packets, axis=0)
    ahead = [space.as_real(batch.good) + space.zeros(packet.shape[0], 1)]
    if batch.uniforms is not None:
        ahead.append(batch.uniforms)
    ids = xp.concat([each.ids for each in listings], axis=0)
    rests = xp.concat([each.rests for each in listings], axis=0)
    scales = xp.concat([each.scales for each in listings], axis=0)
    return Listing(ids, rests, scales), concat([*ahead, packet])


def unpack(
    received: FloatArray, batch: DeviceBatch, method: Method, num_listed: int
) -> tuple[SumRows, FloatArray | None]:
    """Take apart what `survey` has put together: the rows, and the uniforms of the device."""
    count, num_drafts = batch.ids.shape
    numbers = 0 if batch.uniforms is None else batch.num_uniforms
    drafts, listed = num_drafts, num_listed
    widths = [1, numbers, 1, 1, drafts, drafts, listed, drafts, drafts, listed, listed]
    parts = np.split(received, np.cumsum(widths), axis=1)
    _, uniforms, live, rests, draft_keys, draft_places, keys, p, q, targets, masses, sums = (
        np.ascontiguousarray(part) for part in parts
    )
    rows = SumRows(
        live[:, 0].astype(np.int64),
        rests[:, 0].copy(),
        draft_keys.astype(np.int64),
        draft_places.astype(np.int64),
        p,
        q,
        keys.astype(np.int64),
        targets,
        masses,
        sums.reshape(count, method.num_sums, NUM_BUCKETS),
    )
    return rows, uniforms if numbers else None


def select(rows: SumRows, method: Method, uniforms: FloatArray) -> SelectedRows:
    """Let the method select a draft of each row, on all cores."""
    count, num_listed = rows.keys.shape
    found = SelectedRows(
        np.empty(count, dtype=np.int64),
        np.empty(count),
        np.empty((count, NUM_BUCKETS)),
        np.empty((count, num_listed)),
    )
    over_rows(partial(method.select, rows, uniforms, found), count, method.cost)
    return found


def emit_selected(
    batch: DeviceBatch,
    listing: Listing,
    selected: SelectedRows,
    accepted: BoolArray,
    uniforms: FloatArray,
) -> Tensor:
    """Emit the selected draft of the rows in which it was accepted, and draw in the others.

    Parameters
    ----------
    batch : DeviceBatch
    listing : Listing
    selected : SelectedRows
    accepted : ndarray of bool, shape (B,)
    uniforms : ndarray, shape (B,)
        For the draws.

    Returns
    -------
    array of int64, shape (B, 1)
        On the device.
    """
    space, xp = batch.space, batch.space.xp
    kept = take(batch.ids, space.send(selected.places[:, np.newaxis]))
    rejected = np.flatnonzero(~accepted)
    if len(rejected) == 0:
        return kept
    drawn = []
    for part in pieces((len(rejected), batch.target.given.shape[1])):
        rows = rejected[part]
        masses = residual_masses(batch, listing, selected, rows)
        numbers = space.send(uniforms[rows][:, np.newaxis])
        numbers = xp.minimum(numbers, number(numbers, 1.0 - 0.5 * space.epsilon))
        drawn.append(draw(masses, numbers))
    # Accepted rows read any of the draws.
    turn = np.maximum(np.cumsum(~accepted) - 1, 0)
    found = xp.take(xp.concat(drawn, axis=0), space.send(turn), axis=0)
    return xp.where(space.send(accepted[:, np.newaxis].copy()), kept, found)


def residual_masses(
    batch: DeviceBatch, listing: Listing, selected: SelectedRows, rows: IntArray
) -> Tensor:
    """Give what selection leaves of the target in some rows, (R,); (R, V), on the device."""
    space, xp = batch.space, batch.space.xp
    which = space.send(rows)
    p, q = (_some_probs(probs, which) for probs in (batch.target, batch.drafted))
    keys = ratio_keys(p, q * xp.take(listing.scales, which, axis=0))
    tables = space.send(selected.ratios[rows]), space.send(selected.own[rows])
    ratios = lookup(tables[0], keys, xp.take(listing.ids, which, axis=0), tables[1])
    return left_over(p, q * ratios)


def _some_probs(probs: DeviceProbs, rows: Tensor) -> Tensor:
    xp = probs.space.xp
    given = probs.space.as_real(xp.take(probs.given, rows, axis=0))
    return given / xp.take(probs.masses, rows, axis=0)
