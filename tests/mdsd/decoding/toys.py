"""Toy models, and the law of their output from the definition: nothing of the library's code."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd import RRSVerifier, Verifier, WithoutReplacement, WithReplacement
from mdsd.decoding.enumeration import EnumeratedChoices

V = 4

Law = dict[tuple[int, ...], float]


class PrefixModel:
    """A law for each prefix, from a seed: a row of a wrong node shows at once."""

    def __init__(self, seed: int, vocab_size: int = V, zeros: float = 0.0) -> None:
        self.seed, self.vocab_size, self.zeros = seed, vocab_size, zeros
        self.calls: list[list[list[int]]] = []
        self._rows: dict[tuple[int, ...], np.ndarray] = {}

    def probs(self, prefix: Any) -> np.ndarray:
        key = tuple(prefix)
        if key not in self._rows:
            rng = np.random.default_rng([self.seed, *key])
            row = rng.dirichlet(np.ones(self.vocab_size))
            row[rng.random(self.vocab_size) < self.zeros] = 0.0
            row[rng.integers(self.vocab_size)] += 0.1
            self._rows[key] = row / row.sum()
        return self._rows[key]

    def logits(self, prefixes: list[list[int]]) -> np.ndarray:
        self.calls.append([list(prefix) for prefix in prefixes])
        with np.errstate(divide="ignore"):
            return np.log([self.probs(prefix) for prefix in prefixes])


class SameRow:
    """The same logits after every prefix."""

    def __init__(self, logits: Any) -> None:
        self._row = np.asarray(logits)
        self.vocab_size = len(self._row)

    def logits(self, prefixes: list[list[int]]) -> np.ndarray:
        return np.tile(self._row, (len(prefixes), 1))


def filtered(row: np.ndarray, temperature: float = 1.0, top_k: int | None = None) -> np.ndarray:
    """Temperature and top-k by their definitions."""
    ranked = sorted(range(len(row)), key=lambda i: (-row[i], i))
    if temperature == 0.0:
        return np.eye(len(row))[ranked[0]]
    weights = np.array([x ** (1.0 / temperature) if x > 0.0 else 0.0 for x in row])
    weights[ranked[top_k:] if top_k else []] = 0.0
    return weights / weights.sum()


def plain_law(
    probs: Callable[[list[int]], np.ndarray], prompt: list[int], length: int, eos: Any = ()
) -> Law:
    """Law of sampling token by token."""
    law = {(): 1.0}
    for _ in range(length):
        longer: Law = {}
        for tokens, prob in law.items():
            if tokens and tokens[-1] in eos:
                longer[tokens] = prob
                continue
            for token, after in enumerate(probs([*prompt, *tokens])):
                if after > 0.0:
                    longer[(*tokens, token)] = prob * after
        law = longer
    return law


def distance(found: Law, expected: Law) -> float:
    return max(abs(found.get(k, 0.0) - expected.get(k, 0.0)) for k in {*found, *expected})


TREES: dict[int, Any] = {
    1: [1, 1],
    2: [2, 1],
    # The first child has two of its own, the second one, the third none.
    3: mdsd.decoding.TreeShape([-1, 0, 0, 0, 1, 1, 2]),
}
DRAFTS = ("with_replacement", "without_replacement", "greedy", "top_k", "spechub", "independent")


def supporting(draft: str, counts: list[int]) -> list[str]:
    """Names of all verifiers that support a draft distribution with these numbers of drafts."""
    from mdsd.drafts import read_kind

    laws = [read_kind(draft).example(count) for count in counts]
    return [
        name
        for name in mdsd.verifier_names()
        if all(mdsd.get_verifier(name).supports(law) for law in laws)
    ]


def combinations(most: int = 2) -> Iterator[tuple[str, str, Any]]:
    """Every draft distribution with every verifier that applies, on trees of two levels."""
    for draft, n in itertools.product(DRAFTS, range(1, most + 1)):
        if draft == "spechub":
            if n == 2:
                yield from ((draft, name, [2, 2]) for name in supporting(draft, [2]))
            continue
        yield from ((draft, name, TREES[n]) for name in supporting(draft, list(range(1, n + 1))))


def draft_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have enumerated drafts drawn from the uniform law, whatever law is declared."""
    choose = EnumeratedChoices.drafts

    def drafts(self: EnumeratedChoices, law: Any) -> np.ndarray:
        flat = type(law)(np.full(law.vocab_size, 1.0 / law.vocab_size), law.num_drafts)
        return choose(self, flat)

    monkeypatch.setattr(EnumeratedChoices, "drafts", drafts)


class LyingVerifier(RRSVerifier):
    """Plans for another draft distribution than the one it is told of."""

    def _plan(self, target_probs: Any, draft: Any) -> mdsd.Plan:
        other = draft.draft_probs + 0.2 * (draft.draft_probs > 0.0)
        lie = type(draft)(other / other.sum(), draft.num_drafts)
        return super()._plan(target_probs, lie)


class HastyVerifier(Verifier):
    """Emits the first draft, whatever the target says."""

    name = "hasty"
    draft_types = (WithReplacement, WithoutReplacement)

    def _num_uniforms(self, draft: Any) -> int:
        return 1

    def _plan(self, target_probs: Any, draft: Any) -> mdsd.Plan:
        return HastyPlan(target_probs, draft)


class HastyPlan(mdsd.Plan):
    num_uniforms = 1
    acceptance_rate = 1.0

    def marginal_law(self) -> np.ndarray:
        return self.draft.draft_probs

    def _emit(self, ids: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        return ids[:, 0]

    def _law(self, ids: np.ndarray) -> np.ndarray:
        return np.eye(self.draft.vocab_size)[ids[:, 0]]
