"""What the rules of serving engines do at one position: how much they accept, and their bias."""

from __future__ import annotations

from numpy.typing import ArrayLike

from mdsd._arguments import check_whole
from mdsd.analysis.rules import read_pair
from mdsd.drafts import DraftDistribution
from mdsd.engines.base import RuleOutcome
from mdsd.engines.gumbel import hit_masses
from mdsd.engines.registry import Rule, read_rule


def assess_rule(rule: Rule, target_probs: ArrayLike, draft: DraftDistribution) -> RuleOutcome:
    """Work out the exact acceptance and output law of an engine's rule at one position.

    Parameters
    ----------
    rule : str, EngineRule or Verifier
        The label of a rule, such as ``"typical:0.09:0.3"``: its name, and its parameters behind
        colons. Or the name of a verifier, or an object of either kind.
    target_probs : array_like, shape (V,)
    draft : DraftDistribution
        Law of the drafts. Rules that are not lossless take one draft of any law, and "typical"
        several of `TopKDraft` as well; "threshold" takes those of `TopKDraft` alone.

    Returns
    -------
    RuleOutcome

    Raises
    ------
    InvalidArgumentError
        If the name or a parameter is not known, or out of range.
    InvalidDistributionError
        If `target_probs` is no probability vector, or has another length than the draft's.
    UnsupportedError
        If the rule does not take such drafts.

    Notes
    -----
    Accepted is what the rule's own tests accept: engines end the step at a rejection, even if the
    token that is emitted then happens to have been drafted. Whatever the rule, it accepts at most
    ``min(1, alpha* + d)`` for a total variation of d, with alpha* the acceptance bound of the
    drafts: see the theory.

    Examples
    --------
    >>> from mdsd import TopKDraft
    >>> found = assess_rule("naive", [0.5, 0.3, 0.2], TopKDraft([0.2, 0.5, 0.3], 1))
    >>> found.acceptance, found.total_variation
    (0.3, 0.0)
    >>> found = assess_rule("typical", [0.5, 0.3, 0.2], TopKDraft([0.2, 0.5, 0.3], 1))
    >>> found.acceptance, found.total_variation
    (1.0, 0.7)
    """
    return read_rule(rule).outcome(target_probs, draft)


def gumbel_acceptance(
    target_probs: ArrayLike, draft_probs: ArrayLike, num_drafts: int = 1
) -> float:
    """Give the probability that a token drawn from the target was drafted by the same noise.

    Parameters
    ----------
    target_probs, draft_probs : array_like, shape (V,)
        Distributions of the next token under target and draft.
    num_drafts : int, default 1
        n drafts with replacement.

    Returns
    -------
    float
        Exact for one draft; for more it is off by less than 1e-9, in practice by rounding.

    Raises
    ------
    InvalidDistributionError
        If a distribution is no probability vector, or their lengths differ.
    InvalidArgumentError
        If `num_drafts` is no integer >= 1.

    Notes
    -----
    Draft k is ``argmin_i S_ik / q_i`` and the output ``argmin_i min_k S_ik / p_i``, with S_ik
    independent exponential times: the Gumbel-max lists of Rowan, Phan and Khisti, "List-Level
    Distribution Coupling with Applications to Speculative Decoding and Lossy Compression". The
    output has the law of the target and does not depend on the draft model; see
    `mdsd.decoding.GumbelVerification`. For one draft the acceptance is
    ``sum_j 1 / sum_i max(p_i / p_j, q_i / q_j)`` (Daliri et al.), for more an integral over one
    time, worked out in `mdsd.engines.gumbel`.

    Examples
    --------
    >>> p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    >>> [round(gumbel_acceptance(p, q, n), 6) for n in (1, 2, 3)]
    [0.693548, 0.800687, 0.86369]
    """
    target, draft = read_pair(target_probs, draft_probs)
    hits = hit_masses(target, draft, check_whole("num_drafts", num_drafts, 1))
    return min(1.0, float(hits.sum()))
