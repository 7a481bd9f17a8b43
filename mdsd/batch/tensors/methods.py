"""The selection rules of optimal verification, as the tensors of a batch see them."""

from __future__ import annotations

from dataclasses import dataclass

from mdsd._solvers.arrivals import SUM_POWERS, latest_time, most_listed
from mdsd._solvers.marks import FEWEST_GROUPS
from mdsd._typing import FloatArray, Tensor
from mdsd.batch._rules import Selection, selection_of
from mdsd.batch.tensors.buckets import BucketSums, leading
from mdsd.batch.tensors.selections import Listing, Method, least_scaled
from mdsd.batch.tensors.spaces import Space
from mdsd.batch.tensors.sums import (
    SelectedRows,
    SumRows,
    select_by_marks,
    select_by_orders,
)
from mdsd.drafts import DraftDistribution
from mdsd.rules.arrays import full, namespace, number, places, take
from mdsd.verifiers import Verifier
from mdsd.verifiers.marks import FAST_GAP


def method_of(verifier: Verifier, draft: DraftDistribution) -> Method | None:
    """Give the selection rule of a fast verifier for drafts like this one, None if it has none."""
    found = selection_of(verifier, draft)
    if found is None:
        return None
    selection, tolerance = found
    if selection is Selection.MARKS:
        return Marks(max(tolerance, FAST_GAP))
    return Orders(tolerance, draft.num_drafts)


@dataclass(frozen=True)
class Marks(Method):
    """The mark coupling, for drafts with replacement.

    Attributes
    ----------
    tolerance : float
        As for `solvers.marks.grouped_coupling`.
    """

    tolerance: float
    num_sums = 2
    cost = 20_000

    def list_tokens(  # noqa: D102
        self, space: Space, p: Tensor, q: Tensor, num_drafts: int
    ) -> Listing:
        xp, size = namespace(q), q.shape[1]
        # Those that can be drawn, in front of all others.
        ahead = size - places(q, size)[None, :]
        live = xp.where(q > 0.0, ahead, number(ahead, 0))
        ids = xp.sort(leading(live, min(FEWEST_GROUPS, size)), axis=-1)
        ones = full(q, (q.shape[0], 1), 1.0)
        return Listing(ids, ones, ones)

    def sum_buckets(  # noqa: D102
        self, p: Tensor, q: Tensor, keys: Tensor, listing: Listing
    ) -> list[Tensor]:
        xp, sums = namespace(q), BucketSums(keys)
        drawn = xp.where(q > 0.0, p, number(p, 0.0))
        return [sums.sums(drawn), sums.sums(q)]

    def select(  # noqa: D102
        self, rows: SumRows, uniforms: FloatArray, found: SelectedRows, start: int, stop: int
    ) -> None:
        select_by_marks(rows, uniforms, self.tolerance, found, start, stop)


@dataclass(frozen=True)
class Orders(Method):
    """The lottery over orders of groups, for drafts without replacement.

    Attributes
    ----------
    tolerance : float
        Gap at which the search ends where only a few tokens can be drawn.
    num_drafts : int
        n.
    """

    tolerance: float
    num_drafts: int
    num_sums = SUM_POWERS + 2
    cost = 1_000_000

    def list_tokens(  # noqa: D102
        self, space: Space, p: Tensor, q: Tensor, num_drafts: int
    ) -> Listing:
        xp, size = space.xp, q.shape[1]
        top = take(q, leading(q, min(num_drafts, size)))
        least = xp.min(top, axis=-1, keepdims=True)
        # What is left without a difference: the others, and the n-th if there are several like it.
        below = xp.sum(xp.where(q <= least, q, number(q, 0.0)), axis=-1, keepdims=True)
        equal = xp.sum(space.as_real(top == least), axis=-1, keepdims=True) - 1.0
        rests = below - equal * least
        scales = 1.0 / xp.maximum(rests, number(rests, least_scaled(space)))
        masses = xp.where(q > 0.0, xp.maximum(p, q * scales), number(q, -1.0))
        most = most_listed(num_drafts)
        if size <= most:
            ids = xp.broadcast_to(places(q, size)[None, :], q.shape)
            return Listing(ids, rests, scales, q > 0.0)
        ids = leading(masses, most + 1)
        beyond = xp.min(take(masses, ids), axis=-1, keepdims=True)
        return Listing(xp.sort(ids[:, :most], axis=-1), rests, scales, masses > beyond)

    def sum_buckets(  # noqa: D102
        self, p: Tensor, q: Tensor, keys: Tensor, listing: Listing
    ) -> list[Tensor]:
        xp, sums, others = namespace(q), BucketSums(keys), q > 0.0
        if listing.listed is not None:
            others = others & ~listing.listed
        x = xp.where(others, q, number(q, 0.0)) * (latest_time(self.num_drafts) * listing.scales)
        found, power = [sums.sums(xp.where(others, p, number(p, 0.0)))], x
        for _ in range(SUM_POWERS):
            found.append(sums.sums(power))
            power = power * x
        return [*found, sums.largest(x)]

    def select(  # noqa: D102
        self, rows: SumRows, uniforms: FloatArray, found: SelectedRows, start: int, stop: int
    ) -> None:
        select_by_orders(rows, uniforms, self.tolerance, found, start, stop)
