"""What tests of verifications share: toy instances, trees and laws of outcomes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from mdsd.decoding import TreeShape
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.enumeration import branches
from mdsd.decoding.steps import StepOutcome, StepVerification
from mdsd.drafts import read_kind
from mdsd.testing import accepted_law

from .toys import PrefixModel, V

SHAPES: dict[str, Any] = {
    "chain": [1, 1],
    "wide": [2, 1],
    "low": [1, 2],
    # The first child has two of its own, the second none; and the other way round.
    "first": TreeShape([-1, 0, 0, 1, 1]),
    "second": TreeShape([-1, 0, 0, 2, 2]),
}


class EdgeModel(PrefixModel):
    """Rows with zeros, ties and point masses, whichever the prefix falls on."""

    KINDS = ([0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [1 / 3, 1 / 3, 1 / 3], [0.0, 0.375, 0.625])

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 3)

    def probs(self, prefix: Any) -> np.ndarray:
        rng = np.random.default_rng([self.seed, *prefix])
        return np.array(self.KINDS[rng.integers(len(self.KINDS))])


def drafted_tree(shape: TreeShape, draft: str = "with_replacement", seed: int = 0) -> DraftedTree:
    """A tree of V tokens with laws of its own at each node; two rows for independent drafts."""
    rng = np.random.default_rng(seed)
    tokens, laws = np.zeros(len(shape.parents), dtype=np.int64), []
    for node in range(len(shape.parents)):
        children = shape.children(node)
        law = None
        if children:
            several = (2,) if draft == "independent" else ()
            law = read_kind(draft).make_at_most(
                rng.dirichlet(np.ones(V), size=several), len(children)
            )
            tokens[children.start : children.stop] = law.sample(rng)
        laws.append(law)
    rows = rng.dirichlet(np.ones(V), size=len(shape.parents))
    return DraftedTree(shape, tokens, tuple(laws), rows)


class AskedRows:
    """Rows that note the nodes they are asked for."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.asked = rows, list[int]()

    def __getitem__(self, node: int) -> np.ndarray:
        self.asked.append(node)
        return self.rows[node]


def outcome_law(tree: DraftedTree, verification: StepVerification) -> dict[StepOutcome, float]:
    law: dict[StepOutcome, float] = defaultdict(float)
    for prob, outcome in branches(lambda choices: verification(tree, choices)):
        law[outcome] += prob
    return dict(law)


def expected_accepted(*args: Any, **options: Any) -> float:
    law = accepted_law(*args, **options)
    return float(law @ np.arange(len(law)))


class PeakedModel(PrefixModel):
    """Rows of a size and a spread of its own, some of them with zeros."""

    def __init__(self, seed: int, vocab_size: int, spread: float, zeros: float) -> None:
        super().__init__(seed, vocab_size, zeros)
        self.spread = spread

    def probs(self, prefix: Any) -> np.ndarray:
        key = tuple(prefix)
        if key not in self._rows:
            rng = np.random.default_rng([self.seed, *key])
            row = rng.dirichlet(np.full(self.vocab_size, self.spread))
            row[rng.random(self.vocab_size) < self.zeros] = 0.0
            row[rng.integers(self.vocab_size)] += 0.02
            self._rows[key] = row / row.sum()
        return self._rows[key]


def toy_pair(seed: int, vocab_size: int = 3) -> tuple[PeakedModel, PeakedModel]:
    """A target and a draft model; rows even, usual or peaked, every other pair with zeros."""
    spread, zeros = (0.3, 1.0, 3.0)[seed % 3], 0.3 * (seed % 2)
    target = PeakedModel(2 * seed, vocab_size, spread, zeros)
    return target, PeakedModel(2 * seed + 1, vocab_size, spread, zeros)
