"""The optimal verifier of the greedy draft."""

from __future__ import annotations

from mdsd._typing import FloatArray
from mdsd.drafts import DraftDistribution, GreedyDraft
from mdsd.rules.greedy import TESTED
from mdsd.verifiers.base import Plan, Verifier
from mdsd.verifiers.single import SingleDraftPlan


class GreedyVerifier(Verifier):
    """Test the sampled token against its own law; the top tokens are met by the residual.

    Accept the sampled token j with probability ``min(1, p_j / q~_j)``, else emit from
    ``(p - q~)+`` with q~ = 0 on the top tokens T: a token of T emitted so was drafted. Uniforms:
    accept test of the sampled token, residual.

    Notes
    -----
    Hu et al., "Towards Optimal Multi-draft Speculative Decoding". Acceptance
    ``p(T) + sum off T of min(p, q~)``, the optimum for this draft distribution.

    Examples
    --------
    >>> from mdsd import GreedyDraft, GreedyVerifier
    >>> plan = GreedyVerifier().plan([0.5, 0.3, 0.2], GreedyDraft([0.2, 0.5, 0.3], 2))
    >>> round(plan.acceptance_rate, 12)
    0.9
    """

    name = "greedy"
    draft_types = (GreedyDraft,)
    attains_bound = True
    source = 'Hu et al., "Towards Optimal Multi-draft Speculative Decoding"'

    def _num_uniforms(self, draft: DraftDistribution) -> int:
        return 2

    def _plan(self, target_probs: FloatArray, draft: GreedyDraft) -> Plan:
        return GreedyPlan(target_probs, draft)


class GreedyPlan(SingleDraftPlan):
    """The single-draft plan of the last draft, with the top tokens counted."""

    drafts = TESTED

    def __init__(self, target_probs: FloatArray, draft: GreedyDraft) -> None:
        super().__init__(target_probs, draft, draft.tail_probs)
        self._top_mass = float(target_probs[draft.top_token_ids].sum())

    @property
    def acceptance_rate(self) -> float:  # noqa: D102
        return min(1.0, self._top_mass + super().acceptance_rate)
