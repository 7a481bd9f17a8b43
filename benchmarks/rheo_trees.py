"""Trees of RheoSampling: best-first with one drawn token at each node, verified without loss.

Qiao Hu et al., "RheoSampling: Resolving the One-Hot Dilemma in Stochastic Dynamic-Tree Speculative
Decoding", arXiv 2609.21827; from summaries, as the paper itself could not be read. A node can get
the m most likely tokens, one that is drawn from the others, and then the most likely ones that are
left. Nodes compete for a budget by the product of their probabilities along the path. The drawn
token enters with a proxy instead, min(q(x_m), mass off the top), which is no smaller than that of
any token off the top and does not depend on what was drawn: whether a node gets a drawn token is
known before it is drawn. It is verified by its true law.

Level by level that is lossless: docs/theory.md, "Drawn tokens among chosen ones".
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from mdsd import GreedyDraft, GreedyVerifier, NaiveVerifier, TopKDraft
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.steps import StepOutcome, StepVerification, accepted_by_nodes
from mdsd.drafts import DraftDistribution
from mdsd.drafts.top_and_tail import most_likely
from mdsd.trees import TreeShape

Path = tuple[int, ...]


@dataclass(eq=False)
class Node:
    """A drafted token, and its children so far.

    Attributes
    ----------
    path : tuple of int
        Drafted tokens down to this one.
    score : float
        Product of probabilities and proxies along the path.
    probs : ndarray, shape (V,), or None
        What the draft model says after it; None at the greatest depth.
    children : list of Node
        Chosen ones of the most likely tokens, the drawn one, and chosen ones.
    """

    path: Path
    score: float
    probs: Any = None
    children: list[Node] = field(default_factory=list)

    def next_chosen(self) -> int:
        """Give the most likely token that is not drafted yet."""
        drafted = {child.path[-1] for child in self.children}
        ranked = most_likely(self.probs, len(drafted) + 1).tolist()
        return next(token for token in ranked if token not in drafted)


@dataclass(frozen=True)
class RheoTrees:
    """A rule by which trees are drafted.

    Attributes
    ----------
    budget, depth, width : int
        Most drafted tokens, most on a path, most children of a node.
    num_top : int or None, default 1
        m; None for no drawn tokens, which is how EAGLE-2 drafts.
    """

    budget: int
    depth: int
    width: int
    num_top: int | None = 1

    def slot(self, node: Node, choices: Choices) -> tuple[float, Callable[[], int]]:
        """Give the score of a node's next child beside its own, and how to find its token."""
        if len(node.children) == self.num_top:
            return self.drawn_slot(node, GreedyDraft(node.probs, self.num_top + 1), choices)
        token = node.next_chosen()
        return float(node.probs[token]), lambda: token

    def drawn_slot(
        self, node: Node, law: GreedyDraft, choices: Choices
    ) -> tuple[float, Callable[[], int]]:
        """Give the proxy of a token that is yet to be drawn."""
        top = node.probs[law.top_token_ids]
        proxy = min([1.0 - float(top.sum()), *top.tolist()])
        return proxy, lambda: int(choices.drafts(law)[-1])

    def grow(self, probs: Callable[[Path], Any], choices: Choices) -> Node:
        """Draft a tree, the best slot first.

        Parameters
        ----------
        probs : callable
            The draft model's distribution, (V,), after the tokens of a path.
        choices : Choices

        Returns
        -------
        Node
            The root.
        """
        ties, slots = count(), []

        def offer(node: Node) -> None:
            most = min(self.width, np.count_nonzero(node.probs))
            if len(node.children) < most:
                share, token = self.slot(node, choices)
                heapq.heappush(slots, (-node.score * share, next(ties), node, token))

        root = Node((), 1.0, probs(()))
        offer(root)
        for left in range(self.budget, 0, -1):
            if not slots:
                break
            score, _, parent, token = heapq.heappop(slots)
            node = Node((*parent.path, token()), -score)
            parent.children.append(node)
            if left > 1:
                offer(parent)
                if len(node.path) < self.depth:
                    node.probs = probs(node.path)
                    offer(node)
        return root

    def draw(
        self,
        probs: Callable[[Path], Any],
        choices: Choices,
        last: int,
        target: Callable[[list[Path]], Any],
    ) -> DraftedTree:
        """Draft a tree for `RheoVerification`.

        Parameters
        ----------
        probs, choices
            As for `grow`.
        last : int
            Token of the root.
        target : callable
            Gives the target's distributions after the tokens of paths, (N + 1, V).
        """
        nodes, parents = [self.grow(probs, choices)], [-1]
        for place, node in enumerate(nodes):  # breadth first: it grows on the way
            nodes += node.children
            parents += [place] * len(node.children)
        tokens = [last, *(node.path[-1] for node in nodes[1:])]
        laws = tuple(map(self.law, nodes))
        return DraftedTree(
            TreeShape(tuple(parents)),
            np.array(tokens),
            laws,
            target([node.path for node in nodes]),
        )

    def law(self, node: Node) -> DraftDistribution | None:
        """Give the law of the first children of a node: those behind the drawn one are chosen."""
        drafted = len(node.children)
        if not drafted:
            return None
        if self.num_top is None or drafted <= self.num_top:
            return TopKDraft(node.probs, drafted)
        return GreedyDraft(node.probs, self.num_top + 1)


class RheoVerification(StepVerification):
    """Test the drawn token, else draw from what is left; go on where a drafted token is met.

    The token emitted at a node does not depend on the tokens that were chosen there.
    """

    def __init__(self) -> None:
        self._rules = {TopKDraft: NaiveVerifier(), GreedyDraft: GreedyVerifier()}

    def check(self, laws: Iterable[DraftDistribution]) -> None:
        for law in laws:
            self._rules[type(law)].num_uniforms(law)

    def drafts(self, tree: DraftedTree, node: int, law: DraftDistribution) -> Any:
        """Give the children that the law is about, as it draws them."""
        return tree.child_token_ids(node)[: law.num_drafts]

    def __call__(self, tree: DraftedTree, choices: Choices) -> StepOutcome:
        node, path = 0, []
        while (law := tree.laws[node]) is not None:
            rule, drafts = self._rules[type(law)], self.drafts(tree, node, law)
            token = choices.verify(rule, tree.target_probs[node], law, drafts)
            child = tree.child(node, token)
            if child is None:
                return StepOutcome(tuple(path), token)
            node = child
            path.append(node)
        return StepOutcome(tuple(path), choices.token(tree.target_probs[node]))

    def accepted_by_depth(self, tree: DraftedTree) -> Any:
        passed = np.zeros(tree.shape.num_nodes + 1)
        passed[0] = 1.0
        for node, law in enumerate(tree.laws):
            if law is None or passed[node] == 0.0:
                continue
            plan = self._rules[type(law)].plan(tree.target_probs[node], law)
            emitted = plan.output_law(self.drafts(tree, node, law))
            children = list(tree.shape.children(node))
            passed[children] = passed[node] * emitted[tree.child_token_ids(node)]
        return accepted_by_nodes(tree.shape, passed)
