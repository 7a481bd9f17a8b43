"""Traversal verification: every path of the tree in turn, from its leaf upwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from mdsd._typing import FloatArray, IntArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.steps import StepOutcome, StepVerification, accepted_by_ends
from mdsd.decoding.weights import child_weight, passing_probability
from mdsd.drafts import DraftDistribution
from mdsd.drafts.base import check_draft
from mdsd.drafts.registry import draft_types
from mdsd.errors import UnsupportedError
from mdsd.rules.accepting import residual_or_target


class TraversalVerification(StepVerification):
    """Test the leaves in turn; one that fails is deleted, and its parent makes up for it.

    Notes
    -----
    Weng et al., "Traversal Verification for Speculative Tree Decoding" (2025). Every node has a
    weight: 1 at the root, and ``min(1, w p(x) / q(x))`` at a child x of a node of weight w, whose
    next token has distribution p and whose draft was drawn from q. A leaf is accepted, with the
    whole path that leads to it, with probability w, and one token is emitted from the p that stands
    at it. Else it is deleted and its parent gets

        ``p <- (w p - q)+ / S``, ``w <- S / (S + 1 - w)``, ``S = sum (w p - q)+``,

    and q becomes that of its next draft: the same with replacement, without the deleted token
    where drafts are drawn without. A parent without children left is a leaf itself. Children come
    in draft order, each with all that is below it before the next one, so that leaves may have
    different depths; what is below a node of weight 0 is passed over. Given the path to it, a node
    is accepted, or one below it, with the weight that it was first given.

    On a chain this is block verification. Only rows of nodes whose children are tested, or at which
    the last token is emitted, are asked for.

    At temperature 0 all laws are point masses. Every weight is 0 or 1, and the accepted path and
    the token after it are the target's greedy ones.

    Examples
    --------
    >>> import numpy as np
    >>> from mdsd import WithoutReplacement
    >>> from mdsd.decoding import TreeShape
    >>> from mdsd.decoding.choices import RandomChoices
    >>> law = WithoutReplacement([0.25, 0.25, 0.5], 2)
    >>> tree = DraftedTree(
    ...     TreeShape([-1, 0, 0]), np.array([0, 2, 1]), (law, None, None), np.eye(3)[[1, 0, 2]]
    ... )
    >>> TraversalVerification()(tree, RandomChoices(0))
    StepOutcome(path=(2,), token_id=2)
    """

    source = 'Weng et al., "Traversal Verification for Speculative Tree Decoding"'

    @property
    def supported(self) -> str:  # noqa: D102
        return ", ".join(each.name for each in draft_types() if each.successive)

    @property
    def in_draft_order(self) -> bool:  # noqa: D102
        return True

    def check(self, laws: Iterable[DraftDistribution]) -> None:  # noqa: D102
        for law in laws:
            check_draft(law)
            if not law.successive:
                raise UnsupportedError(
                    f"verifier 'traversal' does not support the {law.name} draft distribution "
                    f"with num_drafts={law.num_drafts}; it supports {self.supported}"
                )

    def __call__(self, tree: DraftedTree, choices: Choices) -> StepOutcome:  # noqa: D102
        # One passes: the last is the root, whose weight is 1.
        path = next(path for path in _tested(tree) if choices.accept(path[-1].weight))
        token = choices.token(path[-1].target_probs)
        return StepOutcome(tuple(visit.node for visit in path[1:]), token)

    def accepted_by_depth(self, tree: DraftedTree) -> FloatArray:  # noqa: D102
        ends = np.zeros(tree.shape.num_nodes + 1)
        left = 1.0
        for path in _tested(tree):
            last = path[-1]
            ends[last.node] = left * last.weight
            left *= 1.0 - last.weight
            if left == 0.0:
                break
        return accepted_by_ends(tree.shape, ends)


class _Visit:
    """A node above the leaf that is tested: its weight, p and q, as left by deleted children."""

    _draft_probs: FloatArray
    """Distribution of the draft at the child visited last."""

    def __init__(self, tree: DraftedTree, node: int, weight: float) -> None:
        self.node, self.weight = node, weight
        self._tree = tree
        self._children = iter(tree.shape.children(node))
        self._drafts_in_turn = _probs_in_turn(tree.laws[node], tree.child_token_ids(node))

    @cached_property
    def target_probs(self) -> FloatArray:
        """Distribution of the token that is emitted if this is the end of the path."""
        return self._tree.target_probs[self.node]

    def next_child(self) -> _Visit | None:
        """Visit the next child; None if there is none, or none that can be accepted."""
        child = next(self._children, None) if self.weight > 0.0 else None
        if child is None:
            return None
        self._draft_probs = next(self._drafts_in_turn)
        token = self._tree.token_ids[child]
        probs = float(self.target_probs[token]), float(self._draft_probs[token])
        return _Visit(self._tree, child, child_weight(self.weight, *probs))

    def delete_child(self) -> None:
        """Take what the child visited last could have emitted from the target."""
        masses = np.maximum(self.weight * self.target_probs - self._draft_probs, 0.0)
        left = float(masses.sum())
        self.weight = passing_probability(self.weight, left)
        if self.weight > 0.0:
            masses = residual_or_target(masses, self.target_probs)
            self.target_probs = masses / masses.sum()


def _tested(tree: DraftedTree) -> Iterator[list[_Visit]]:
    """Give the path to each leaf that is tested, the root's first; asking on deletes the leaf."""
    path = [_Visit(tree, 0, 1.0)]
    while path:
        child = path[-1].next_child()
        if child is not None:
            path.append(child)
            continue
        yield path
        path.pop()
        if path:
            path[-1].delete_child()


def _probs_in_turn(draft: DraftDistribution | None, drafts: IntArray) -> Iterator[FloatArray]:
    """Give the distribution (V,) of each draft, given those before it."""
    if draft is not None:
        for place in range(len(drafts)):
            yield draft.next_probs(drafts[:place])
