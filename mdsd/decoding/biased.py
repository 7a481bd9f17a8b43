"""Biased verification: fewer rejections for an output that is not the target's."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mdsd._arguments import check_type
from mdsd._typing import FloatArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.steps import StepOutcome, StepVerification, accepted_by_nodes
from mdsd.drafts import DraftDistribution
from mdsd.engines.base import BiasedRule, Decision
from mdsd.engines.over_accepting import OverAcceptance
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.rules.biased import Redraw


class BiasedVerification(StepVerification):
    """Accept drafts more often than the target allows: **not lossless**.

    At each node a rule decides about the drafts in turn; where none is accepted, a token of the
    rejection law is emitted and the step ends. No name stands for it: a decoder is biased only if
    it is given such an object.

    Parameters
    ----------
    epsilon : float, optional
        Over-acceptance, finite and >= 0, of the rule of Yin et al. for single drafts: a drafted
        token x is accepted with probability ``min(1, (p(x) + eps) / q(x))``. At 0, with the optimal
        rejection law, it is the lossless rule; from 1 on every draft is accepted.
    redraw : {"optimal", "target"}
        Its rejection law: ``(p - b q)+``, normalised (Decoding-OPT), or the target (Decoding-UNO).
    rule : BiasedRule, optional
        Another rule instead: that of an engine, such as `mdsd.analysis.TypicalAcceptance`.

    Raises
    ------
    InvalidArgumentError
        If `epsilon` is no finite number >= 0, `redraw` is not known, or not one of `epsilon` and
        `rule` is given.

    Notes
    -----
    Yin et al., "A Theoretical Perspective for Speculative Decoding Algorithm", Section 4. How far
    the law of a token is from the target, given those before it, is the ``total_variation`` of
    `mdsd.analysis.assess_rule`; along a chain see `mdsd.analysis.chain_pareto_front`. The token
    after a path that was accepted to its end is the target's own.

    In a tree only the rule at one node is the engine's. Medusa takes the longest accepted path of
    all, and likelihood breaks ties only; after a path that was accepted to its end, TensorRT-LLM
    emits the likeliest token.

    Examples
    --------
    >>> from mdsd.analysis import CactusAcceptance
    >>> from mdsd.decoding import TableModel
    >>> from mdsd.testing import sequence_law
    >>> target, draft_model = TableModel([[0.6, 0.4]] * 2), TableModel([[0.2, 0.8]] * 2)
    >>> for verifier in (
    ...     BiasedVerification(epsilon=0.1),
    ...     BiasedVerification(rule=CactusAcceptance(0.01)),
    ... ):
    ...     law = sequence_law(target, draft_model, [0], 1, num_drafts=1, verifier=verifier)
    ...     print({tokens: round(prob, 4) for tokens, prob in sorted(law.items())})
    {(0,): 0.5, (1,): 0.5}
    {(0,): 0.5307, (1,): 0.4693}
    """

    name = "biased"

    def __init__(
        self,
        epsilon: float | None = None,
        *,
        redraw: Redraw = "optimal",
        rule: BiasedRule | None = None,
    ) -> None:
        if rule is None:
            self.rule: BiasedRule = OverAcceptance(epsilon, redraw)  # type: ignore[arg-type]
            return
        check_type("rule", rule, BiasedRule)
        if epsilon is not None or redraw != "optimal":
            raise InvalidArgumentError(
                f"rule is {rule!r}; epsilon and redraw are parameters of another rule"
            )
        self.rule = rule

    def __repr__(self) -> str:
        if isinstance(self.rule, OverAcceptance):
            return f"BiasedVerification(epsilon={self.rule.epsilon!r}, redraw={self.rule.redraw!r})"
        return f"BiasedVerification(rule={self.rule!r})"

    @property
    def supported(self) -> str:  # noqa: D102
        return self.rule.supported

    def check(self, laws: Iterable[DraftDistribution]) -> None:  # noqa: D102
        for draft in laws:
            if not self.rule.supports(draft):
                raise UnsupportedError(
                    f"verifier {self.name!r} does not support {draft.num_drafts} drafts of the "
                    f"{draft.name} draft distribution at one node: rule {self.rule.label!r} takes "
                    f"{self.supported}"
                )

    def __call__(self, tree: DraftedTree, choices: Choices) -> StepOutcome:  # noqa: D102
        path: list[int] = []
        node = 0
        while (draft := tree.laws[node]) is not None:
            decision = self._decide(tree, node, draft)
            for child, chance in zip(tree.shape.children(node), decision.chances, strict=True):
                if choices.accept(float(chance)):
                    node = child
                    path.append(child)
                    break
            else:
                return StepOutcome(tuple(path), choices.token(decision.rejection_law))
        return StepOutcome(tuple(path), choices.token(tree.target_probs[node]))

    def accepted_by_depth(self, tree: DraftedTree) -> FloatArray:  # noqa: D102
        passed = np.ones(tree.shape.num_nodes + 1)
        for node, draft in enumerate(tree.laws):
            if draft is not None:
                chances = self._decide(tree, node, draft).chances
                failed = np.append(1.0, (1.0 - chances).cumprod()[:-1])
                children = tree.shape.children(node)
                passed[children.start : children.stop] = passed[node] * failed * chances
        return accepted_by_nodes(tree.shape, passed)

    def _decide(self, tree: DraftedTree, node: int, draft: DraftDistribution) -> Decision:
        return self.rule.decide(tree.target_probs[node], draft, tree.child_token_ids(node))
