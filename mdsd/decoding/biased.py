"""Biased verification of chains: fewer rejections for an output that is not the target's."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mdsd._arguments import check_name, check_number
from mdsd._typing import FloatArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.steps import StepOutcome, StepVerification, accepted_by_nodes
from mdsd.drafts import DraftDistribution
from mdsd.errors import UnsupportedError
from mdsd.rules.biased import REDRAWS, Redraw, accept_and_redraw


class BiasedVerification(StepVerification):
    """Accept single drafts more often than the target allows: **not lossless**.

    A drafted token x is accepted with probability ``min(1, (p(x) + eps) / q(x))``, else a token of
    the rejection law is emitted and the step ends. No name stands for it: a decoder is biased only
    if it is given such an object.

    Parameters
    ----------
    epsilon : float
        Over-acceptance, finite and >= 0. At 0, with the optimal rejection law, it is the lossless
        rule; from 1 on every draft is accepted.
    redraw : {"optimal", "target"}
        Rejection law: ``(p - b q)+``, normalised (Decoding-OPT), or the target (Decoding-UNO).

    Raises
    ------
    InvalidArgumentError
        If `epsilon` is no finite number >= 0, or `redraw` is not known.

    Notes
    -----
    Yin et al., "A Theoretical Perspective for Speculative Decoding Algorithm", Section 4. How far
    the law of a token is from the target, given those before it, is `mdsd.analysis.biased_rule`'s
    ``total_variation``; along a chain see `mdsd.analysis.chain_pareto_front`. The token after a
    chain that was accepted to its end is the target's own.

    Examples
    --------
    >>> from mdsd.decoding import TableModel
    >>> from mdsd.testing import sequence_law
    >>> target, draft_model = TableModel([[0.6, 0.4]] * 2), TableModel([[0.2, 0.8]] * 2)
    >>> law = sequence_law(
    ...     target, draft_model, [0], 1, num_drafts=1, verifier=BiasedVerification(epsilon=0.1)
    ... )
    >>> {tokens: round(prob, 12) for tokens, prob in sorted(law.items())}
    {(0,): 0.5, (1,): 0.5}
    """

    name = "biased"

    def __init__(self, epsilon: float, *, redraw: Redraw = "optimal") -> None:
        check_name("redraw", redraw, REDRAWS)
        self.epsilon = check_number("epsilon", epsilon)
        self.redraw = redraw

    def __repr__(self) -> str:
        return f"BiasedVerification(epsilon={self.epsilon!r}, redraw={self.redraw!r})"

    @property
    def supported(self) -> str:  # noqa: D102
        return "every draft distribution with num_drafts=1"

    def check(self, laws: Iterable[DraftDistribution]) -> None:  # noqa: D102
        for draft in laws:
            if draft.num_drafts != 1:
                raise UnsupportedError(
                    f"verifier {self.name!r} does not support {draft.num_drafts} drafts at one "
                    "node; it takes chains, with num_drafts = 1"
                )

    def __call__(self, tree: DraftedTree, choices: Choices) -> StepOutcome:  # noqa: D102
        path: list[int] = []
        while True:
            node = path[-1] if path else 0
            draft, target_probs = tree.laws[node], tree.target_probs[node]
            if draft is None:
                return StepOutcome(tuple(path), choices.token(target_probs))
            accept, rejection_law = self._rule(target_probs, draft)
            (child,) = tree.shape.children(node)
            if not choices.accept(float(accept[tree.token_ids[child]])):
                return StepOutcome(tuple(path), choices.token(rejection_law))
            path.append(child)

    def accepted_by_depth(self, tree: DraftedTree) -> FloatArray:  # noqa: D102
        passed = np.ones(tree.shape.num_nodes + 1)
        for node, draft in enumerate(tree.laws):
            if draft is not None:
                accept, _ = self._rule(tree.target_probs[node], draft)
                (child,) = tree.shape.children(node)
                passed[child] = passed[node] * accept[tree.token_ids[child]]
        return accepted_by_nodes(tree.shape, passed)

    def _rule(
        self, target_probs: FloatArray, draft: DraftDistribution
    ) -> tuple[FloatArray, FloatArray]:
        return accept_and_redraw(target_probs, draft.token_hit_probs(), self.epsilon, self.redraw)
