"""What a verification of a whole drafted tree takes and returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mdsd._typing import FloatArray, IntArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.enumeration import branches
from mdsd.drafts import DraftDistribution
from mdsd.trees import TreeShape


@dataclass(frozen=True)
class StepOutcome:
    """What one step of a decoder emits: the tokens of a path, and one more.

    Attributes
    ----------
    path : tuple of int
        Accepted nodes from the root's child on; empty if there are none.
    token_id : int
        The last token: from a residual, or the target's own where the path ends in a leaf.
    """

    path: tuple[int, ...]
    token_id: int


class StepVerification(ABC):
    """A rule that turns a drafted tree into tokens whose law is that of the target.

    `BiasedVerification` alone is not lossless; there is no other way to ask for bias. The law is
    over chance, and of `GumbelVerification` over its seeds.

    Called with a `DraftedTree` and the `Choices` to ask for every random decision, it returns a
    `StepOutcome`.

    Attributes
    ----------
    source : str
        Paper, for listings.
    own_noise : bool
        Whether it draws from a noise of its own, given which nothing is left to `Choices`.
    """

    source: ClassVar[str] = ""
    own_noise: ClassVar[bool] = False

    @property
    def supported(self) -> str:
        """The draft distributions it supports, in words."""
        return "every draft distribution"

    @property
    def in_draft_order(self) -> bool:
        """Whether drafts of a node are tried in draft order, the first the likeliest to pass."""
        return False

    @abstractmethod
    def check(self, laws: Iterable[DraftDistribution]) -> None:
        """Refuse draft distributions that this rule is not lossless for.

        Parameters
        ----------
        laws : iterable of DraftDistribution
            One of each kind and number of drafts that the tree is to have.

        Raises
        ------
        UnsupportedError
            Naming the one that is not supported, and those that are.
        """

    def draw(self, draft: DraftDistribution, position: int, choices: Choices) -> IntArray:
        """Draw the tokens that are drafted at one node.

        Parameters
        ----------
        draft : DraftDistribution
        position : int
            Tokens of the text before them.
        choices : Choices

        Returns
        -------
        ndarray of int64, shape (n,)
            In draft order. By chance alone, unless drafts and verification share their noise.
        """
        return choices.drafts(draft)

    @abstractmethod
    def __call__(self, tree: DraftedTree, choices: Choices) -> StepOutcome:
        """Verify a tree."""

    def accepted_by_depth(self, tree: DraftedTree) -> FloatArray:
        """Give the chance that so many of the drafted tokens are accepted, given the tree.

        Parameters
        ----------
        tree : DraftedTree

        Returns
        -------
        ndarray of float64, shape (D,)
            Entry j - 1 belongs to at least j accepted tokens; D is the depth of the tree. A value
            known from the tree whose mean over drawn trees is the probability of accepting so
            many, so that the sum has the mean of the number accepted. Most rules, and this one,
            give the very probability given the tree.

        Raises
        ------
        UnsupportedError
            From the rule that stands here for verifications without one of their own, if the tree
            has more than a million branches.

        Notes
        -----
        What stands here follows every answer to every question that the verification asks, which
        is feasible for a few tokens of vocabulary. The verifications of this library are as quick
        at a full vocabulary as their plans are.

        Examples
        --------
        >>> import numpy as np
        >>> from mdsd import RRSVerifier, WithReplacement
        >>> from mdsd.decoding import TreeShape
        >>> from mdsd.decoding.levels import LevelVerification
        >>> law, target_probs = WithReplacement([0.75, 0.25], 1), np.array([0.25, 0.75])
        >>> tree = DraftedTree(
        ...     TreeShape.chain(2),
        ...     np.array([0, 0, 1]),
        ...     (law, law, None),
        ...     np.tile(target_probs, (3, 1)),
        ... )
        >>> LevelVerification(RRSVerifier()).accepted_by_depth(tree).round(12).tolist()
        [0.333333333333, 0.333333333333]
        """
        ends = np.zeros(tree.shape.num_nodes + 1)
        for prob, outcome in branches(lambda choices: self(tree, choices)):
            ends[outcome.path[-1] if outcome.path else 0] += prob
        return accepted_by_ends(tree.shape, ends)


def accepted_by_nodes(shape: TreeShape, passed: FloatArray) -> FloatArray:
    """Give `accepted_by_depth` from the probability that each node is accepted.

    Parameters
    ----------
    shape : TreeShape
    passed : ndarray of float64, shape (N + 1,)

    Returns
    -------
    ndarray of float64, shape (D,)

    Examples
    --------
    >>> accepted_by_nodes(TreeShape([-1, 0, 0, 1]), np.array([1.0, 0.5, 0.25, 0.25])).tolist()
    [0.75, 0.25]
    """
    return np.minimum(np.bincount(shape.depths, weights=passed)[1:], 1.0)


def accepted_by_ends(shape: TreeShape, ends: FloatArray) -> FloatArray:
    """Give `accepted_by_depth` from the probability that each node is the last accepted.

    Parameters
    ----------
    shape : TreeShape
    ends : ndarray of float64, shape (N + 1,)
        At the root, that none is accepted.

    Returns
    -------
    ndarray of float64, shape (D,)

    Examples
    --------
    >>> accepted_by_ends(TreeShape([-1, 0, 0, 1]), np.array([0.25, 0.25, 0.25, 0.25])).tolist()
    [0.75, 0.25]
    """
    law = np.bincount(shape.depths, weights=ends)
    return np.asarray(np.minimum(law[:0:-1].cumsum()[::-1], 1.0))
