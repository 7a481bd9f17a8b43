"""What a verification of a whole drafted tree takes and returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree
from mdsd.drafts import DraftDistribution


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

    `BiasedVerification` alone is not lossless; there is no other way to ask for bias.

    Called with a `DraftedTree` and the `Choices` to ask for every random decision, it returns a
    `StepOutcome`.
    """

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

    @abstractmethod
    def __call__(self, tree: DraftedTree, choices: Choices) -> StepOutcome:
        """Verify a tree."""
