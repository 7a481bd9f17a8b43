"""Rows of a study of rules: acceptance and bias, averaged over positions."""

from __future__ import annotations

from dataclasses import dataclass

from mdsd.filters import Filtered, Filters
from mdsd.studies.study_rows import AveragedRow


@dataclass(frozen=True)
class RuleRow(Filtered, AveragedRow):
    """Acceptance and bias of one rule with its parameters, averaged over positions.

    Attributes
    ----------
    data : str
        Name or path of the data set.
    draft_model : str
        Name of the draft model; "a+b" for independent drafts of a and b.
    draft : str
        Name of the draft distribution, and its options behind colons.
    num_drafts : int
        n, the tokens drafted in one step.
    filters : Filters
        Of target and draft alike; each has a column of its own.
    rule : str
        Name of the rule, or of a verifier.
    parameters : str
        Its parameters, between colons; empty if there are none.
    lossless : bool
        Whether the output has the law of the target, whatever target and draft are.
    acceptance : float or None
        Mean probability that a draft is accepted.
    stderr : float or None
        Its standard error over positions (N - 1); None for a single position.
    total_variation, total_variation_stderr : float or None
        The same of the distance of the output law from the target.
    kl_divergence, kl_divergence_stderr : float or None
        The same of the divergence of the output law from the target, in nats; None where it is
        infinite.
    infinite_kl : int
        Positions at which it is: where tokens are emitted that the target never would.
    bound, bound_stderr : float or None
        The same of the acceptance bound alpha* of the draft distribution: the most that a lossless
        rule accepts.
    front : float or None
        ``min(1, bound + total_variation)``: the most that any rule of this bias accepts.
    positions : int
        Positions averaged over: those at which n tokens can be drafted.
    texts : int or None
        Texts that these positions are of; None where the data do not say.
    stderr_by_text : float or None
        `stderr`, clustered by text. None where texts are not known, or there is but one.
    missing, joint
        As in `AveragedRow`.
    """

    data: str
    draft_model: str
    draft: str
    num_drafts: int
    filters: Filters
    rule: str
    parameters: str
    lossless: bool
    acceptance: float | None
    stderr: float | None
    total_variation: float | None
    total_variation_stderr: float | None
    kl_divergence: float | None
    kl_divergence_stderr: float | None
    infinite_kl: int
    bound: float | None
    bound_stderr: float | None
    front: float | None
    positions: int
    texts: int | None = None
    stderr_by_text: float | None = None

    @property
    def label(self) -> str:
        """The rule, and its parameters behind colons."""
        return ":".join(filter(None, [self.rule, self.parameters]))
