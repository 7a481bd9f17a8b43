"""Rules that accept or redraw, along a Markov chain: expected and simulated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mdsd._typing import FloatArray
from mdsd.analysis._chains import ChainPair
from mdsd.analysis._simulation import RowSampler, blocks, mean_and_stderr
from mdsd.analysis.rules import excess, output_laws, rejection_probabilities

Prefixes = Literal["output", "target"]
"""Whose tokens a position follows: those that the rule emitted, or those of the target."""


@dataclass(frozen=True, eq=False)
class RuleOnChain:
    """An acceptance function and a rejection law for every last token of a pair of chains.

    Attributes
    ----------
    pair : ChainPair
    accept, redraw : ndarray of float64, shape (1, S, V) or (T, S, V)
        Row a of matrix t holds the vectors of the position t + 1 after token a.
    """

    pair: ChainPair
    accept: FloatArray
    redraw: FloatArray

    def expected(self, prefixes: Prefixes = "output") -> tuple[float, float]:
        """Compute expected rejections, and the expected distances of all positions added up.

        Notes
        -----
        Along the prefixes that the rule emits, the second number bounds the total variation
        between the sequences of T tokens (by the chain rule, position by position).
        """
        marginal = self.pair.initial
        rejections = distance = 0.0
        for (target, draft, accept, redraw), length in self.pair.stretches(
            self.accept, self.redraw
        ):
            output = output_laws(draft, accept, redraw)
            rejected = rejection_probabilities(draft, accept)
            distances = excess(output, target)
            kernel = output if prefixes == "output" else target
            for _ in range(length):
                rejections += float(marginal @ rejected)
                distance += float(marginal @ distances)
                marginal = marginal @ kernel
        return rejections, distance

    def simulated(self, runs: int, stream: np.random.Generator) -> tuple[float, ...]:
        """Simulate the rule on the tokens that it emits.

        Returns
        -------
        tuple of float
            Rejections and their standard error, distance from the target and its standard error,
            over all positions together.

        Notes
        -----
        With A the set of tokens that a position emits too often, its distance from the target is
        the probability of A under the output less that under the target; the first is counted.
        """
        start = RowSampler(self.pair.initial[np.newaxis])
        rejections, distances = [], []
        for block in blocks(runs):
            tokens = start.draw(np.zeros(block, dtype=np.int64), stream.random(block))
            rejected, distance = np.zeros(block), np.zeros(block)
            for (target, draft, accept, redraw), length in self.pair.stretches(
                self.accept, self.redraw
            ):
                drafted, redrawn = RowSampler(draft), RowSampler(redraw)
                # A margin, so that rounding puts no token of a lossless rule into the set.
                often = output_laws(draft, accept, redraw) > target + 1e-12
                share = np.where(often, target, 0.0).sum(axis=1)
                for _ in range(length):
                    rows = tokens
                    tokens = drafted.draw(rows, stream.random(block))
                    failed = np.flatnonzero(stream.random(block) >= accept[rows, tokens])
                    tokens[failed] = redrawn.draw(rows[failed], stream.random(len(failed)))
                    rejected[failed] += 1.0
                    distance += often[rows, tokens] - share[rows]
            rejections.append(rejected)
            distances.append(distance)
        return (
            *mean_and_stderr(np.concatenate(rejections)),
            *mean_and_stderr(np.concatenate(distances)),
        )
