"""The selection rules of optimal verification, as the tensors of a batch see them."""

from __future__ import annotations

from dataclasses import dataclass

from mdsd._typing import FloatArray, Tensor
from mdsd.batch._sum_kernels import SelectedRows, SumRows, select_by_marks
from mdsd.batch.tensors.buckets import BucketSums, leading
from mdsd.batch.tensors.selections import Listing, Method
from mdsd.drafts import DraftDistribution, WithReplacement
from mdsd.rules.arrays import full, namespace, number, places
from mdsd.verifiers import OptimalVerifier, Verifier
from mdsd.verifiers.marks import FAST_GAP
from solvers.marks import FEWEST_GROUPS


def method_of(verifier: Verifier, draft: DraftDistribution) -> Method | None:
    """Give the selection rule of a fast verifier for drafts like this one, or None if it has none.

    Classes are compared exactly, as in `mdsd.batch._rules`.
    """
    if type(verifier) is not OptimalVerifier or verifier.effort != "fast" or draft.num_drafts == 1:
        return None
    if type(draft) is WithReplacement:
        return Marks(max(verifier.tolerance, FAST_GAP))
    return None


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

    def list_tokens(self, p: Tensor, q: Tensor, num_drafts: int) -> Listing:  # noqa: D102
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
