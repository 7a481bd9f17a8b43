"""Verification of a tree level by level, with any one-step verifier."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mdsd._typing import FloatArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.steps import StepOutcome, StepVerification, accepted_by_nodes
from mdsd.drafts import DraftDistribution
from mdsd.verifiers import NaiveVerifier, Verifier


class LevelVerification(StepVerification):
    """Verify the drafts at the root; while the emitted token is one of them, go on from there.

    Parameters
    ----------
    verifier : Verifier

    Notes
    -----
    Each emitted token has the law of the target whatever came before, so the sequence has, too. A
    path that ends in a leaf is followed by one token from the target, at no cost. A residual token
    that was drafted is gone on from like any other, and of a token drafted twice the first node is
    taken: the drafts below either are independent of what has been decided.

    Where fewer tokens are left than a draft distribution needs, all of them are drafted. If the
    verifier does not take what is left of the law, the token is drawn from the target, which no
    verifier can better: the drafts are known beforehand.

    Examples
    --------
    >>> import numpy as np
    >>> from mdsd import RRSVerifier, WithReplacement
    >>> from mdsd.decoding import TreeShape
    >>> from mdsd.decoding.choices import RandomChoices
    >>> from mdsd.decoding.drafted import DraftedTree
    >>> law = WithReplacement([0.5, 0.5], 1)
    >>> tree = DraftedTree(
    ...     TreeShape.chain(1), np.array([0, 1]), (law, None), np.array([[0.0, 1.0], [1.0, 0.0]])
    ... )
    >>> LevelVerification(RRSVerifier())(tree, RandomChoices(0))
    StepOutcome(path=(1,), token_id=0)
    """

    def __init__(self, verifier: Verifier) -> None:
        self.verifier = verifier
        self._otherwise = NaiveVerifier()

    @property
    def in_draft_order(self) -> bool:  # noqa: D102
        return self.verifier.in_draft_order

    @property
    def supported(self) -> str:  # noqa: D102
        return self.verifier.supported

    def check(self, laws: Iterable[DraftDistribution]) -> None:  # noqa: D102
        for law in laws:
            self.verifier.num_uniforms(law)

    def __call__(self, tree: DraftedTree, choices: Choices) -> StepOutcome:  # noqa: D102
        node = 0
        path: list[int] = []
        while True:
            law, target_probs = tree.laws[node], tree.target_probs[node]
            if law is None:
                return StepOutcome(tuple(path), choices.token(target_probs))
            token = choices.verify(
                self._verifier_of(law), target_probs, law, tree.child_token_ids(node)
            )
            child = tree.child(node, token)
            if child is None:
                return StepOutcome(tuple(path), token)
            node = child
            path.append(node)

    def accepted_by_depth(self, tree: DraftedTree) -> FloatArray:  # noqa: D102
        passed = np.zeros(tree.shape.num_nodes + 1)
        passed[0] = 1.0
        for node, law in enumerate(tree.laws):
            if law is None or passed[node] == 0.0:
                continue
            drafts = tree.child_token_ids(node)
            plan = self._verifier_of(law).plan(tree.target_probs[node], law)
            emitted = plan.output_law(drafts)
            for token in set(drafts.tolist()):
                passed[tree.child(node, token)] = passed[node] * emitted[token]
        return accepted_by_nodes(tree.shape, passed)

    def _verifier_of(self, law: DraftDistribution) -> Verifier:
        """Choose the rule of a node, where there may be too few tokens left for ours."""
        return self.verifier if self.verifier.supports(law) else self._otherwise
