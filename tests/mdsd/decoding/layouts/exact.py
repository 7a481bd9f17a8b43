"""Exact laws of what a layout emits, on Markov chains over a few tokens.

Two ways to integrate over the uniforms. `measured_law` needs nothing but the function: what it
emits is constant on boxes of uniforms, whose faces are found by bisection. `forced_outcomes` goes
down a tree with plans: for every token that a plan can emit it looks for uniforms that make it so,
and multiplies the exact probabilities of these tokens; the layout is then called with them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

import mdsd

ROOT = 0
"""The last token before every step."""


def tables(vocab_size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Target and draft laws of the next token given the last one, no entry small."""
    rng = np.random.default_rng(seed)
    weights = rng.random((2, vocab_size, vocab_size)) + 0.15
    target, draft = weights / weights.sum(axis=-1, keepdims=True)
    return target, draft


def sequence_law(target: np.ndarray, length: int, last: int = ROOT) -> dict[tuple[int, ...], float]:
    """Law of the next tokens under the target alone."""
    if length == 0:
        return {(): 1.0}
    return {
        (token, *rest): float(target[last, token]) * prob
        for token in range(len(target))
        for rest, prob in sequence_law(target, length - 1, token).items()
    }


def completed(
    emitted: dict[tuple[int, ...], float], target: np.ndarray, length: int
) -> dict[tuple[int, ...], float]:
    """Law of the first tokens, where what a step left open follows from the target."""
    law: dict[tuple[int, ...], float] = {}
    for tokens, weight in emitted.items():
        missing = max(0, length - len(tokens))
        for rest, prob in sequence_law(target, missing, tokens[-1]).items():
            key = (*tokens, *rest)[:length]
            law[key] = law.get(key, 0.0) + weight * prob
    return law


def distance(first: dict[tuple[int, ...], float], second: dict[tuple[int, ...], float]) -> float:
    """Largest difference of two laws."""
    return max(abs(first.get(key, 0.0) - second.get(key, 0.0)) for key in first.keys() | second)


def row_tokens(token_ids: np.ndarray) -> list[tuple[int, ...]]:
    """Emitted tokens of each row, without padding, which stands at the end only."""
    rows = [tuple(int(token) for token in row if token >= 0) for row in token_ids]
    assert all(
        tuple(row) == kept + (-1,) * (len(row) - len(kept))
        for row, kept in zip(token_ids.tolist(), rows, strict=True)
    )
    return rows


# --- by bisection --------------------------------------------------------------------------------


def measured_law(
    emit: Callable[[np.ndarray, np.ndarray], list[tuple[int, ...]]],
    weights: np.ndarray,
    num_uniforms: int,
) -> dict[tuple[int, ...], float]:
    """Law of what a function of uniforms returns.

    Parameters
    ----------
    emit : callable
        Called with numbers of cases (R,) and uniforms (R, num_uniforms); returns R outcomes.
    weights : ndarray, shape (C,)
        Probability of each case.
    """
    tasks = [(case, ()) for case in range(len(weights))]
    chances = [float(weight) for weight in weights]
    for dimension in range(num_uniforms):
        pieces = _split(emit, tasks, num_uniforms, dimension)
        grown, masses = [], []
        for task, lower, upper in pieces:
            case, fixed = tasks[task]
            grown.append((case, (*fixed, (lower + upper) / 2)))
            masses.append(chances[task] * (upper - lower))
        tasks, chances = grown, masses
    outcomes = emit(np.array([case for case, _ in tasks]), np.array([u for _, u in tasks]))
    law: dict[tuple[int, ...], float] = {}
    for outcome, chance in zip(outcomes, chances, strict=True):
        law[outcome] = law.get(outcome, 0.0) + chance
    return law


def _split(
    emit: Callable[[np.ndarray, np.ndarray], list[tuple[int, ...]]],
    tasks: list[tuple[int, tuple[float, ...]]],
    num_uniforms: int,
    dimension: int,
) -> list[tuple[int, float, float]]:
    """Intervals of one uniform on which outcomes stay the same, whatever those after it are."""
    later = num_uniforms - dimension - 1
    probes = np.array(list(itertools.product((np.arange(5) + 0.5) / 5, repeat=later)))
    probes = probes.reshape(5**later, later)

    def signatures(places: list[tuple[int, float]]) -> list[tuple[tuple[int, ...], ...]]:
        cases = np.repeat([tasks[task][0] for task, _ in places], len(probes))
        fixed = np.array([(*tasks[task][1], x) for task, x in places])
        numbers = np.concatenate(
            [np.repeat(fixed, len(probes), axis=0), np.tile(probes, (len(places), 1))], axis=1
        )
        found = emit(cases, numbers)
        return [tuple(found[i : i + len(probes)]) for i in range(0, len(found), len(probes))]

    top = np.nextafter(1.0, 0.0)
    grid = [*(np.arange(8) / 8), top]
    places = [(task, x) for task in range(len(tasks)) for x in grid]
    known = dict(zip(places, signatures(places), strict=True))
    cuts: dict[int, list[float]] = {task: [0.0] for task in range(len(tasks))}
    open_ones = [(task, *pair) for task in cuts for pair in itertools.pairwise(grid)]
    while True:
        open_ones = [(task, a, b) for task, a, b in open_ones if known[task, a] != known[task, b]]
        for task, _, b in [found for found in open_ones if found[2] - found[1] < 1e-15]:
            cuts[task].append(b)
        open_ones = [found for found in open_ones if found[2] - found[1] >= 1e-15]
        if not open_ones:
            break
        middles = [(task, (a + b) / 2) for task, a, b in open_ones]
        known.update(zip(middles, signatures(middles), strict=True))
        open_ones = [
            half
            for (task, a, b), (_, middle) in zip(open_ones, middles, strict=True)
            for half in ((task, a, middle), (task, middle, b))
        ]
    return [
        (task, lower, upper)
        for task, ends in cuts.items()
        for lower, upper in itertools.pairwise([*sorted(ends), 1.0])
    ]


# --- by plans ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Toy:
    """A small tree over tables, with one draft distribution and one verifier.

    `children` lists the children of each node; node 0 is the root.
    """

    children: tuple[tuple[int, ...], ...]
    draft: str
    verifier: mdsd.Verifier
    target: np.ndarray
    drafted: np.ndarray

    @property
    def size(self) -> int:
        return len(self.children)

    @property
    def inner(self) -> list[int]:
        return [node for node, below in enumerate(self.children) if below]

    def law(self, token: int, count: int) -> mdsd.DraftDistribution:
        """Draft distribution of `count` children of a node with this token."""
        q = self.drafted[token]
        if self.draft == "deterministic":
            # The least likely ones first, which no law but this one draws.
            weights = np.zeros(len(q))
            weights[np.argsort(q, kind="stable")[:count]] = np.arange(count, 0, -1)
            return mdsd.TopKDraft(weights / weights.sum(), count)
        return mdsd.drafts.read_kind(self.draft).make(q, count)

    def plan(self, token: int, ids: tuple[int, ...]) -> mdsd.Plan:
        """Plan at a node; some verifiers know chosen children as one-hot draws."""
        law = self.law(token, len(ids))
        if not self.verifier.supports(law):
            law = mdsd.IndependentDrafts(np.eye(len(self.target))[list(ids)])
        return self.verifier.plan(self.target[token], law)

    def draft_trees(self) -> Iterator[tuple[list[int], float]]:
        """Every way to draft the tree: tokens of all nodes, and the probability."""

        def grow(
            ids: list[int], inner: list[int], prob: float
        ) -> Iterator[tuple[list[int], float]]:
            if not inner:
                yield list(ids), prob
                return
            node, *others = inner
            below = self.children[node]
            for tokens, chance in self.law(ids[node], len(below)).tuples():
                for child, token in zip(below, tokens, strict=True):
                    ids[child] = token
                yield from grow(ids, others, prob * chance)

        yield from grow([ROOT] * self.size, self.inner, 1.0)

    def numbers_shape(self) -> tuple[int, int]:
        """Levels, and most uniforms of a node."""

        def depth(node: int) -> int:
            return 1 + max((depth(child) for child in self.children[node]), default=0)

        counts = [
            self.plan(ROOT, next(self.law(ROOT, len(self.children[node])).tuples())[0]).num_uniforms
            for node in self.inner
        ]
        return depth(0), max(counts, default=1)

    # --- arrays ---

    def links(self, count: int) -> dict[str, np.ndarray]:
        """SGLang's index arrays, the same for each tree of a batch."""
        first = np.full(self.size, -1)
        sibling = np.full(self.size, -1)
        for node, below in enumerate(self.children):
            if below:
                first[node] = below[0]
                sibling[list(below[:-1])] = below[1:]
        return {
            "retrive_index": np.arange(count * self.size).reshape(count, -1),
            "retrive_next_token": np.tile(first, (count, 1)),
            "retrive_next_sibling": np.tile(sibling, (count, 1)),
        }

    def paths(self) -> np.ndarray:
        """EAGLE's `retrieve_indices`."""

        def down(node: int) -> list[list[int]]:
            below = [path for child in self.children[node] for path in down(child)]
            return [[node, *path] for path in below] or [[node]]

        rows = down(0)
        width = max(map(len, rows))
        return np.array([row + [-1] * (width - len(row)) for row in rows])

    def rows(self, ids: np.ndarray, declared: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Laws after each node, (..., N, V), with rubbish where there are no children."""
        found = {"target_probs": self.target[ids]}
        if self.draft != "deterministic":
            laws = (self.drafted if declared is None else declared)[ids]
            leaves = [node for node in range(self.size) if not self.children[node]]
            laws[..., leaves, :] = np.nan
            found["draft_probs"] = laws
        return found

    # --- outcomes ---

    def outcomes(self, ids: list[int]) -> Iterator[tuple[float, np.ndarray, tuple[int, ...]]]:
        """Everything that can happen to a drafted tree: probability, uniforms, emitted tokens."""
        shape = self.numbers_shape()

        def down(
            node: int, depth: int, weight: float, numbers: np.ndarray, emitted: tuple[int, ...]
        ) -> Iterator[tuple[float, np.ndarray, tuple[int, ...]]]:
            below = self.children[node]
            tokens = tuple(ids[child] for child in below)
            law, forcing = forced(self, ids[node], tokens)
            for token in np.flatnonzero(law).tolist():
                chosen = numbers.copy()
                chosen[depth, : len(forcing[token])] = forcing[token]
                step = (weight * float(law[token]), chosen, (*emitted, token))
                if token in tokens:
                    child = below[tokens.index(token)]
                    yield from down(child, depth + 1, *step)
                else:
                    yield step

        yield from down(0, 0, 1.0, np.full(shape, 0.5), ())


_FORCED: dict[tuple[Toy, int, tuple[int, ...]], tuple[np.ndarray, dict[int, np.ndarray]]] = {}


def forced(toy: Toy, token: int, ids: tuple[int, ...]) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Exact law of what is emitted after a node, and uniforms that lead to each token."""
    key = (toy, token, ids)
    if key not in _FORCED:
        if not ids:
            law = toy.target[token]
            sums = np.concatenate([[0.0], np.cumsum(law)])
            middles = (sums[:-1] + sums[1:]) / 2
            _FORCED[key] = law, {i: middles[[i]] for i in np.flatnonzero(law).tolist()}
            return _FORCED[key]
        plan = toy.plan(token, ids)
        law = plan.output_law(ids)
        law[law < 1e-15] = 0.0
        numbers = np.random.default_rng(0).random((4000, plan.num_uniforms))
        emitted = plan.verify_many(np.tile(ids, (len(numbers), 1)), uniforms=numbers).token_id
        found = {i: numbers[np.argmax(emitted == i)] for i in np.unique(emitted).tolist()}
        assert set(found) == set(np.flatnonzero(law).tolist())
        _FORCED[key] = law, found
    return _FORCED[key]
