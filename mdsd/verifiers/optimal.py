"""The optimal verifier: the best one known for each draft distribution."""

from __future__ import annotations

from copy import copy
from typing import Any

from mdsd._arguments import check_name
from mdsd._typing import FloatArray
from mdsd.bounds import check_search_options
from mdsd.drafts import DraftDistribution, TopKDraft, WithReplacement
from mdsd.verifiers.base import Plan, Verifier
from mdsd.verifiers.greedy import GreedyVerifier
from mdsd.verifiers.naive import NaiveVerifier
from mdsd.verifiers.single import SingleDraftVerifier
from mdsd.verifiers.spechub import SpecHubVerifier

EFFORTS = ("exact", "fast")


class OptimalVerifier(Verifier):
    """Attain the acceptance bound of any draft distribution.

    One draft, the greedy, SpecHub and top-k drafts have optimal verifiers in closed form. Drafts
    with replacement use the mark coupling, at any vocabulary size. Every other law uses a lottery
    over priority orders. The uniforms are those of the verifier or plan used:
    `SingleDraftVerifier`, `GreedyVerifier`, `SpecHubVerifier`, `NaiveVerifier`, `MarkPlan` or
    `LotteryPlan`.

    Parameters
    ----------
    tolerance : float, default 1e-9
        Gap at which the search for a lottery stops.
    max_iterations : int, optional
        Most orders it evaluates. Stopped early it is still lossless, and `plan.gap` says what is
        missing.
    effort : {"exact", "fast"}, default "exact"
        How near to come to the bound where more than a few tokens can be drafted. ``exact`` goes to
        the last digit, in vocabularies too large for that typically to 1e-4; ``fast`` typically to
        3e-4 and with replacement to 1e-3 at least, at the price of a few passes over the
        probabilities. Many drafts of even laws leave more. Both are lossless, and `plan.gap` is
        certified. Batches, decoders, and studies of more than 512 tokens are fast by default.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range.

    Examples
    --------
    >>> from mdsd import OptimalVerifier, WithoutReplacement, WithReplacement
    >>> p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    >>> round(OptimalVerifier().plan(p, WithReplacement(q, 2)).acceptance_rate, 9)
    0.86
    >>> round(OptimalVerifier().plan(p, WithoutReplacement(q, 2)).acceptance_rate, 9)
    0.985714286
    """

    name = "optimal"
    draft_types = (DraftDistribution,)
    attains_bound = True
    source = "bound: Hu et al.; mark coupling and order lottery: this library"

    def __init__(
        self,
        *,
        tolerance: float = 1e-9,
        max_iterations: int | None = None,
        effort: str = "exact",
    ) -> None:
        check_search_options(tolerance, max_iterations)
        self.tolerance = float(tolerance)
        self.max_iterations = max_iterations
        self.effort = check_name("effort", effort, EFFORTS)

    def for_many(self) -> OptimalVerifier:  # noqa: D102
        made = copy(self)
        made.effort = "fast"
        return made

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        closed = _closed_form(draft)
        if closed is not None:
            return closed._num_uniforms(draft)
        return draft.num_drafts + 2 if isinstance(draft, WithReplacement) else 3

    def _plan(self, target_probs: FloatArray, draft: Any) -> Plan:
        closed = _closed_form(draft)
        if closed is not None:
            return closed._plan(target_probs, draft)
        if isinstance(draft, WithReplacement):
            from mdsd.verifiers.marks import MarkPlan

            return MarkPlan(
                target_probs, draft, tolerance=self.tolerance, fast=self.effort == "fast"
            )
        from mdsd.verifiers.lottery import LotteryPlan

        return LotteryPlan(
            target_probs,
            draft,
            tolerance=self.tolerance,
            max_iterations=self.max_iterations,
            fast=self.effort == "fast",
        )


def _closed_form(draft: DraftDistribution) -> Verifier | None:
    """Give the verifier that is optimal for this draft in closed form, if there is one."""
    if draft.num_drafts == 1:
        return SingleDraftVerifier()  # the law of the one draft is all it needs to know
    for verifier in (GreedyVerifier(), SpecHubVerifier()):
        if verifier.supports(draft):
            return verifier
    # The top-k tokens are known beforehand: drawing from the target meets them with p(T).
    return NaiveVerifier() if isinstance(draft, TopKDraft) else None
