"""Verification layer by layer: every branch of a tree stays alive, with a weight of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import cast

import numpy as np

from mdsd._arguments import check_number, shown
from mdsd._typing import FloatArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.preference import preferring
from mdsd.decoding.selection import LotteryVerifier, selection_law
from mdsd.decoding.steps import StepOutcome, StepVerification
from mdsd.decoding.weights import child_weight, passing_probability
from mdsd.drafts import DraftDistribution, JointDrafts
from mdsd.errors import InvalidArgumentError
from mdsd.rules.accepting import residual_or_target
from mdsd.verifiers.base import Plan
from mdsd.verifiers.lottery import LotteryPlan

Planner = Callable[[FloatArray, DraftDistribution], Plan]
"""Plans the verification of drafts, as `LotteryVerifier.plan` does."""


@dataclass(frozen=True)
class DraftedString:
    """What one node of a tree spells, or several.

    Attributes
    ----------
    nodes : tuple of int
    weight : float
        Probability that the output goes through it, given the tree down to it.
    """

    nodes: tuple[int, ...]
    weight: float


class Layer:
    """The drafted strings of one length that may be accepted, and a plan for what follows them.

    Parameters
    ----------
    tree : DraftedTree
    strings : list of DraftedString
    min_weight : float
        A string of a smaller weight is not carried on.
    planner : Planner

    Attributes
    ----------
    strings : list of DraftedString
        Those that are carried on come first.
    plan : LotteryPlan or None
        Of what was drafted after those, a group for each; None if there are none.
    """

    def __init__(
        self,
        tree: DraftedTree,
        strings: list[DraftedString],
        min_weight: float,
        planner: Planner,
    ) -> None:
        self._tree = tree
        laws = [
            [law for node in string.nodes if (law := tree.laws[node]) is not None]
            for string in strings
        ]
        carried = [
            bool(found) and string.weight >= min_weight
            for found, string in zip(laws, strings, strict=True)
        ]
        order = sorted(range(len(strings)), key=lambda k: not carried[k])
        self.strings = [strings[k] for k in order]
        self.plan: LotteryPlan | None = None
        self._groups: tuple[tuple[DraftDistribution, ...], ...] = ()
        self._starts: list[int] = []
        if any(carried):
            joint = JointDrafts([laws[k] for k in order if carried[k]], num_others=1)
            self._groups, self._starts = joint.groups, joint.offsets.tolist()
            inner = self.strings[: len(self._starts)]
            masses = [string.weight * self.target_probs(string) for string in inner]
            others = max(0.0, 1.0 - sum(string.weight for string in inner))
            self.plan = cast(LotteryPlan, planner(np.concatenate([*masses, [others]]), joint))

    def target_probs(self, string: DraftedString) -> FloatArray:
        """Distribution, (V,), of the token after a string."""
        return self._tree.target_probs[string.nodes[0]]

    @property
    def weight(self) -> float:
        """Probability that the output comes so far, given the tree down to here."""
        return min(1.0, sum(string.weight for string in self.strings))

    def following(self) -> Iterator[DraftedString]:
        """Give the strings that are longer by one token and may be accepted."""
        plan, tree = self.plan, self._tree
        if plan is None:
            return
        children = [
            [child for node in string.nodes for child in tree.shape.children(node)]
            for string, _ in zip(self.strings, self._starts, strict=False)
        ]
        sizes = list(map(len, children))
        drawn = np.concatenate([tree.token_ids[nodes] for nodes in children])
        pairs = drawn + np.repeat(self._starts, sizes)
        probs = selection_law(plan, pairs)
        if tree.worths is not None:
            ends = np.cumsum(sizes)
            for laws, places, end in zip(self._groups, children, ends, strict=True):
                own = slice(end - len(places), end)
                probs[own] = preferring(laws, drawn[own], probs[own], tree.worths[places])
        nodes: dict[int, list[int]] = {}
        chances: dict[int, float] = {}
        masses: dict[int, list[float]] = {}
        selected = plan.target_probs[pairs].tolist(), plan.selected_of(pairs).tolist()
        found = zip(pairs.tolist(), chain(*children), probs.tolist(), *selected, strict=True)
        for pair, child, prob, *known in found:
            nodes.setdefault(pair, []).append(child)
            chances[pair] = chances.get(pair, 0.0) + prob
            masses[pair] = known
        for pair, chance in chances.items():
            passed = child_weight(1.0, *masses[pair]) if chance else 0.0
            if chance * passed > 0.0:
                yield DraftedString(tuple(nodes[pair]), chance * passed)

    def leave(self, choices: Choices) -> tuple[DraftedString, int] | None:
        """End the output after one of the strings, with a token; None to go up a layer."""
        weights = np.array([string.weight for string in self.strings])
        if self.plan is None:
            if not choices.accept(self.weight):
                return None
            string = self.strings[choices.token(weights)]
            return string, choices.token(self.target_probs(string))
        left_over = [self.left_over(place) for place in range(len(self.strings))]
        sums = np.array([masses.sum() for masses in left_over])
        if not choices.accept(passing_probability(self.weight, float(sums.sum()))):
            return None
        place = choices.token(residual_or_target(sums, weights))
        string = self.strings[place]
        masses = residual_or_target(left_over[place], self.target_probs(string))
        return string, choices.token(masses)

    def left_over(self, place: int) -> FloatArray:
        """Masses, (V,), to be emitted after one of the strings: those that are not passed on."""
        string = self.strings[place]
        masses = string.weight * self.target_probs(string)
        if self.plan is None or place >= len(self._starts):
            return masses
        start = self._starts[place]
        return np.maximum(masses - self.plan.selected[start : start + len(masses)], 0.0)


class LayerVerification(StepVerification):
    """Treat all drafts of a depth as one problem of optimal transport, and keep every branch.

    Parameters
    ----------
    tolerance, max_iterations
        Of the search for the lottery of each layer, as for `OptimalVerifier`.
    min_weight : float, default 0.0
        In [0, 1]: what is drafted below a string of a smaller weight is not looked at.
    effort : {"fast", "exact"}, default "fast"
        As for `OptimalVerifier`.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range.

    Notes
    -----
    Every drafted string v has a weight w_v, the probability that the output goes through it given
    the tree down to its depth; that of the root is 1. With p_v the target's distribution after v,
    the pairs (v, x) of a layer have target masses ``t(v, x) = w_v p_v(x)``, and what was drafted is
    one draw of `JointDrafts`, a group for each v. An optimal lottery over priority orders selects
    (v, x) with probability sigma, given these drafts, and with m^ over the draws; the string vx
    gets the weight ``sigma min(1, t / m^)``, whose mean is ``min(t, m^)``.

    What is left, ``R_v(x) = (t - m^)+``, is emitted after v without going on. With r the sum of R
    over a layer and f one less its weights, one goes up from the deepest layer and stops with
    probability ``r / (r + f)``; at the root for sure. By induction from the deepest one, a layer
    is left with probability r, given the tree down to it, so that the law of the output is the
    target's, whatever the lotteries are. It takes for granted that the shape of a layer depends on
    nothing that is drawn later.

    On a chain this is block verification, and with one level of drafts it is the optimum. In
    general it comes close to the most that any verification accepts (`mdsd.analysis.tree_bound`).
    What is drafted below a string plays no part in its weight; but where a tree is planned to have
    more below some places than below others, those are preferred (`mdsd.decoding.preference`).

    At temperature 0 all laws are point masses. Every weight is 0 or 1, and the accepted path and
    the token after it are the target's greedy ones.

    Examples
    --------
    >>> import numpy as np
    >>> from mdsd import WithReplacement
    >>> from mdsd.decoding import TreeShape
    >>> law, target_probs = WithReplacement([0.75, 0.25], 1), np.array([0.25, 0.75])
    >>> tree = DraftedTree(
    ...     TreeShape.chain(2), np.array([0, 0, 1]), (law, law, None), np.tile(target_probs, (3, 1))
    ... )
    >>> LayerVerification().accepted_by_depth(tree).round(12).tolist()
    [0.333333333333, 1.0]
    """

    source = "this library"

    def __init__(
        self,
        *,
        tolerance: float = 1e-9,
        max_iterations: int | None = None,
        min_weight: float = 0.0,
        effort: str = "fast",
    ) -> None:
        self.verifier = LotteryVerifier(
            tolerance=tolerance, max_iterations=max_iterations, effort=effort
        )
        self.min_weight = check_number("min_weight", min_weight)
        if self.min_weight > 1.0:
            raise InvalidArgumentError(f"min_weight is {shown(min_weight)}; expected at most 1")

    def check(self, laws: Iterable[DraftDistribution]) -> None:  # noqa: D102
        for law in laws:
            self.verifier.num_uniforms(law)

    def __call__(self, tree: DraftedTree, choices: Choices) -> StepOutcome:  # noqa: D102
        layers = self.layers(tree, partial(choices.plan, self.verifier))
        # Never above the root, whose weight is 1.
        found = None
        while found is None:
            found = layers.pop().leave(choices)
        string, token = found
        return StepOutcome(tree.shape.path(string.nodes[0]), token)

    def accepted_by_depth(self, tree: DraftedTree) -> FloatArray:
        """Probability, (D,), that so many tokens are accepted, given the tree down to each depth.

        Parameters
        ----------
        tree : DraftedTree
        """
        weights = [layer.weight for layer in self.layers(tree)[1:]]
        return np.array(weights + [0.0] * (tree.shape.depth - len(weights)))

    def layers(self, tree: DraftedTree, planner: Planner | None = None) -> list[Layer]:
        """Give the layers of a tree from the root down, as deep as a string may be accepted.

        Parameters
        ----------
        tree : DraftedTree
        planner : Planner, optional
            Makes the plan of each layer; by default with the options of this verification.
        """
        strings = [DraftedString((0,), 1.0)]
        layers = []
        while strings:
            layer = Layer(tree, strings, self.min_weight, planner or self.verifier.plan)
            layers.append(layer)
            strings = list(layer.following())
        return layers
