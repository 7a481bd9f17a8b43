"""Block verification: select a path of the tree, and accept as much of it as the whole allows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np

from mdsd._typing import FloatArray, IntArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.selection import SelectingVerifier, selection_law
from mdsd.decoding.steps import StepOutcome, StepVerification, accepted_by_ends
from mdsd.decoding.weights import child_weight, passing_probability
from mdsd.drafts import DraftDistribution
from mdsd.rules.accepting import residual_or_target
from mdsd.verifiers.base import SelectionPlan


class BlockVerification(StepVerification):
    """Select a path of the tree as the optimal verifier would, then accept a prefix of it.

    Parameters
    ----------
    tolerance, max_iterations
        Of the search for a lottery at each node, as for `OptimalVerifier`.
    effort : {"fast", "exact"}, default "fast"
        As for `OptimalVerifier`.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range.

    Notes
    -----
    On a chain this is the block verification of Sun et al., "Block Verification Accelerates
    Speculative Decoding" (2024). With p and q at each prefix, ``w_0 = 1`` and
    ``w_i = min(1, w_{i-1} p(x_i) / q(x_i))``; the prefix of length i < g passes with probability
    ``h_i = S_i / (S_i + 1 - w_i)``, where ``S_i = sum (w_i p - q)+``, and the whole chain with
    ``h_g = w_g``. The longest prefix that passes is accepted, and one token is emitted from
    ``(w_i p - q)+``, or from p after the whole chain. Given its tokens, a prefix is accepted with
    probability w_i, whatever comes below it.

    On a tree, Khisti et al.'s decomposition ("Multi-Draft Speculative Sampling: Canonical
    Decomposition and Theoretical Limits") goes first: at each level the optimal verifier selects
    one of the drafts, whose law is m^ (`SelectingVerifier`). The path selected is a chain drafted
    from m^, independent of the drafts beside it, so that block verification with m^ in place of q
    is lossless; it may end at any depth. A token that it emits where a draft beside the path has
    the same one is gone on from, with a block of its own: nothing has been decided yet about what
    was drafted below.

    Where `optimal` level by level accepts a draft of the same law with ``min(1, p / m^)``, the
    expected number of accepted tokens is never below it, and on a chain never below that of
    single-draft verification. That takes for granted that the search for the lotteries has
    converged, and for the SpecHub pair that both drafts have equal trees below them. Nothing is
    gained with top-k drafts, which are known beforehand.

    At temperature 0 all laws are point masses. Every weight is 0 or 1, and the accepted path and
    the token after it are the target's greedy ones.

    Examples
    --------
    >>> import numpy as np
    >>> from mdsd import WithReplacement
    >>> from mdsd.decoding import TreeShape
    >>> from mdsd.decoding.choices import RandomChoices
    >>> from mdsd.decoding.drafted import DraftedTree
    >>> law, target_probs = WithReplacement([0.75, 0.25], 1), np.array([0.25, 0.75])
    >>> tree = DraftedTree(
    ...     TreeShape.chain(2), np.array([0, 0, 1]), (law, law, None), np.tile(target_probs, (3, 1))
    ... )
    >>> BlockVerification()(tree, RandomChoices(0)).path  # level by level the first passes in 1 / 3
    (1, 2)
    """

    source = (
        'chains: Sun et al., "Block Verification Accelerates Speculative Decoding"; trees: this '
        "library"
    )

    def __init__(
        self,
        *,
        tolerance: float = 1e-9,
        max_iterations: int | None = None,
        effort: str = "fast",
    ) -> None:
        self.verifier = SelectingVerifier(
            tolerance=tolerance, max_iterations=max_iterations, effort=effort
        )

    def check(self, laws: Iterable[DraftDistribution]) -> None:  # noqa: D102
        for law in laws:
            self.verifier.num_uniforms(law)

    def __call__(self, tree: DraftedTree, choices: Choices) -> StepOutcome:  # noqa: D102
        node: int | None = 0
        path: list[int] = []
        while node is not None:
            selected = self._select_path(tree, node, choices)
            length, token = self._accept(tree, selected, choices)
            path += [prefix.node for prefix in selected[1 : length + 1]]
            node = _unused_child(tree, selected[length], token)
            if node is not None:
                path.append(node)
        return StepOutcome(tuple(path), token)

    def accepted_by_depth(self, tree: DraftedTree) -> FloatArray:  # noqa: D102
        return accepted_by_ends(tree.shape, _Ends(tree, self.verifier).masses)

    def _select_path(self, tree: DraftedTree, start: int, choices: Choices) -> list[_Prefix]:
        """Select a draft at each level below a node, as far as the prefix can be accepted."""
        path = [_Prefix(start, 1.0)]
        while (law := tree.laws[path[-1].node]) is not None:
            last = path[-1]
            given = choices.plan(self.verifier, tree.target_probs[last.node], law)
            plan = cast(SelectionPlan, given)
            last.plan = plan
            place = choices.select(plan, tree.child_token_ids(last.node))
            if place < 0:
                break
            child = _longer(tree, last, plan, place)
            last.child = child.node
            if child.weight == 0.0:
                break
            path.append(child)
        return path

    def _accept(self, tree: DraftedTree, path: list[_Prefix], choices: Choices) -> tuple[int, int]:
        """Accept a prefix of the selected path: its length, and the token after it."""
        length = len(path) - 1
        while (token := self._token_after(tree, path[length], choices)) is None:
            length -= 1  # never below the root, whose weight is 1
        return length, token

    def _token_after(self, tree: DraftedTree, prefix: _Prefix, choices: Choices) -> int | None:
        """Emit the token after a prefix if that passes its test."""
        weight, plan = prefix.weight, prefix.plan
        target_probs = tree.target_probs[prefix.node]
        if plan is None:
            return choices.token(target_probs) if choices.accept(weight) else None
        passing, masses = _test(weight, target_probs, plan)
        return choices.token(masses) if choices.accept(passing) else None


@dataclass
class _Prefix:
    """A node of the selected path: its weight, and which child is selected by which plan.

    Of all paths at once, `unselected` is the mass of those of which no child is.
    """

    node: int
    weight: float
    plan: SelectionPlan | None = None
    child: int | None = None
    unselected: float = 0.0


def _longer(tree: DraftedTree, prefix: _Prefix, plan: SelectionPlan, place: int) -> _Prefix:
    """Give the prefix that is longer by the draft at a place, which the plan has selected."""
    child = tree.shape.children(prefix.node)[place]
    token = int(tree.token_ids[child])
    target_prob = float(tree.target_probs[prefix.node][token])
    selected = float(plan.selected_of(np.array([token]))[0])
    return _Prefix(child, child_weight(prefix.weight, target_prob, selected))


def _test(weight: float, target_probs: FloatArray, plan: SelectionPlan) -> tuple[float, FloatArray]:
    """Probability that a prefix passes once no longer one has; masses of the token after it."""
    masses = np.maximum(weight * target_probs - plan.selected, 0.0)
    passing = passing_probability(weight, float(masses.sum()))
    return passing, residual_or_target(masses, target_probs)


def _unused_child(tree: DraftedTree, prefix: _Prefix, token: int) -> int | None:
    """Find a drafted child of a token of which nothing has been used; None if there is none."""
    child = tree.child(prefix.node, token)
    return child if child != prefix.child else None


class _Ends:
    """With what probability each node, (N + 1,), is the last that is accepted: `masses`.

    All lots and tests are followed at once. Blocks begin at the root and at tokens that an earlier
    one emits, which come later in the order of nodes: each node begins one block, of all the mass
    that is gone on with from there.
    """

    def __init__(self, tree: DraftedTree, verifier: SelectingVerifier) -> None:
        self._tree, self._verifier = tree, verifier
        self._plans: dict[int, SelectionPlan] = {}
        self._starts = np.zeros(tree.shape.num_nodes + 1)
        self._starts[0] = 1.0
        self.masses = np.zeros_like(self._starts)
        for node in range(len(self._starts)):
            if self._starts[node] > 0.0:
                self._follow(node)

    def _follow(self, start: int) -> None:
        """Spread the mass of a block over where it ends and where the next ones begin."""
        prefixes = [_Prefix(start, 1.0)]
        # Of the paths selected through a node; once that was tested, those that do not pass there.
        left = {start: float(self._starts[start])}
        for prefix in prefixes:
            plan = self._plan(prefix.node)
            if plan is None:
                continue
            law = selection_law(plan, self._drafts(prefix.node))
            prefix.unselected = max(0.0, 1.0 - float(law.sum())) * left[prefix.node]
            for place, prob in enumerate(law.tolist()):
                if prob > 0.0:
                    child = _longer(self._tree, prefix, plan, place)
                    left[child.node] = left[prefix.node] * prob
                    if child.weight > 0.0:
                        prefixes.append(child)
        for prefix in reversed(prefixes):
            left[prefix.node] = self._end(prefix, left)

    def _end(self, prefix: _Prefix, left: dict[int, float]) -> float:
        """End where a prefix passes, if no longer one has; give the mass of which it does not."""
        node, plan = prefix.node, self._plan(prefix.node)
        if plan is None:
            self.masses[node] += left[node] * prefix.weight
            return left[node] * (1.0 - prefix.weight)
        failed = {child: left.get(child, 0.0) for child in self._tree.shape.children(node)}
        total = sum(failed.values()) + prefix.unselected
        passing, masses = _test(prefix.weight, self._tree.target_probs[node], plan)
        ended = total * passing
        emitted = masses / masses.sum()
        for token in set(self._drafts(node).tolist()):
            child = self._tree.child(node, token)
            # Of the paths through this very child something has been used.
            beside = prefix.unselected
            beside += sum(mass for other, mass in failed.items() if other != child)
            begun = beside * passing * float(emitted[token])
            self._starts[child] += begun
            ended -= begun
        self.masses[node] += ended
        return total * (1.0 - passing)

    def _drafts(self, node: int) -> IntArray:
        return self._tree.child_token_ids(node)

    def _plan(self, node: int) -> SelectionPlan | None:
        """Plan the selection below a node, once for all blocks; None at a leaf."""
        law = self._tree.laws[node]
        if law is not None and node not in self._plans:
            plan = self._verifier.plan(self._tree.target_probs[node], law)
            self._plans[node] = cast(SelectionPlan, plan)
        return self._plans.get(node)
