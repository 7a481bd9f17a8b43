"""Completions of truncated laws: many ways to place the mass that a log does not know.

A completion keeps every known probability and spreads the rest over the tokens that the other side
knows and over new ones. An interval is right if it holds the bound of every completion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import mdsd

NEW = 50
"""Tokens that neither side knows: the first half for both tails, the other for the draft's."""

Log = dict[int, float]


@dataclass(frozen=True, eq=False)
class Truncated:
    """What is known of a target and of drafts, by probabilities and not by logarithms."""

    target: Log
    drafts: tuple[Log, ...]

    def interval(self, draft: str, num_drafts: int) -> mdsd.AcceptanceInterval:
        logs = [logarithms(probs) for probs in self.drafts]
        return mdsd.acceptance_interval(
            logarithms(self.target),
            logs if draft == "independent" else logs[0],
            draft=draft,
            num_drafts=num_drafts,
        )

    @property
    def tokens(self) -> list[int]:
        """Every known token."""
        return sorted(set(self.target).union(*self.drafts))


def logarithms(probs: Log) -> Log:
    return {token: math.log(p) if p > 0.0 else -math.inf for token, p in probs.items()}


def random_truncated(rng: np.random.Generator, num_models: int = 1) -> Truncated:
    """Draw laws of 8 tokens and forget some: top-k lists, with an extra token or as a union."""
    laws = [rng.dirichlet(np.full(8, rng.choice([0.2, 0.6, 2.0]))) for _ in range(num_models + 1)]
    if rng.random() < 0.3:
        laws[1] = (laws[0] + 0.1 * laws[1]) / 1.1
    lists = [np.argsort(-law, kind="stable")[: rng.integers(1, 9)].tolist() for law in laws]
    if rng.random() < 0.5:
        lists = [[*tokens, int(rng.integers(8))] for tokens in lists]
    elif rng.random() < 0.3:
        lists = [np.concatenate(lists).tolist()] * len(lists)
    pairs = zip(laws, lists, strict=True)
    logs = [{i: float(law[i]) for i in set(tokens)} for law, tokens in pairs]
    return Truncated(logs[0], tuple(logs[1:]))


def ways(known: Log, others: list[Log], tokens: list[int], rng, random: int) -> np.ndarray:
    """Weights, (C, V), by which a tail is spread over the tokens unknown to its side."""
    size = len(tokens) + NEW
    other = np.array([sum(log.get(token, 0.0) for log in others) for token in tokens])
    unknown = np.array([token not in known for token in tokens])
    new = np.arange(size) >= len(tokens)
    free = np.concatenate([unknown, np.ones(NEW, dtype=bool)])
    found = [
        new & (np.arange(size) < len(tokens) + NEW // 2),  # split in equal parts
        np.arange(size) >= len(tokens) + NEW // 2,  # the same, off the half above
        np.arange(size) == len(tokens),  # one lump
        np.arange(size) == size - 1,  # another
    ]
    beside = np.concatenate([np.where(unknown, other, 0.0), np.zeros(NEW)])
    if beside.any():
        found += [beside, beside == beside.max()]  # what only the other side knows
    sparse = rng.dirichlet(np.full(size, 0.02), random)
    flat = rng.dirichlet(np.full(size, 0.5), random)
    near = np.where(np.arange(size) < len(tokens) + 2, rng.random((random, size)), 0.0)
    weights = np.concatenate([np.array(found, dtype=float), sparse, flat, near]) * free
    weights = weights[weights.sum(axis=1) > 0.0]
    return weights / weights.sum(axis=1, keepdims=True)


def fill(known: Log, tokens: list[int], weights: np.ndarray) -> np.ndarray:
    """Complete a law, (C, V), with its tail spread by each row of weights."""
    fixed = np.array([known.get(token, 0.0) for token in tokens] + [0.0] * NEW)
    return fixed + max(0.0, 1.0 - math.fsum(known.values())) * weights


def completions(case: Truncated, rng, random: int = 2) -> tuple[np.ndarray, list[np.ndarray]]:
    """Targets (C, V), and the same of each draft: every way of one side with those of others."""
    tokens = case.tokens
    target = fill(case.target, tokens, ways(case.target, list(case.drafts), tokens, rng, random))
    drafts = [
        fill(log, tokens, ways(log, [case.target], tokens, rng, random)) for log in case.drafts
    ]
    if len(drafts) == 1:
        return every_pair(target, drafts[0])
    count = len(target) * max(map(len, drafts))
    picks = [rng.integers(len(draft), size=count) for draft in drafts]
    picked = [draft[pick] for draft, pick in zip(drafts, picks, strict=True)]
    return target[np.arange(count) % len(target)], picked


def every_pair(target: np.ndarray, draft: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    return np.repeat(target, len(draft), axis=0), [np.tile(draft, (len(target), 1))]


def possible(case: Truncated, draft: np.ndarray, kind: str, num_drafts: int) -> np.ndarray:
    """Mark the completions that can draft, and of which the log may be one."""
    good = np.ones(len(draft), dtype=bool)
    if kind in ("without_replacement", "greedy"):
        good &= np.count_nonzero(draft, axis=1) >= num_drafts
    log = case.drafts[0]
    if kind == "greedy" and len(log) > 1:
        # The log holds the most likely draft tokens and at most one more.
        ranked = sorted(log.values(), reverse=True)
        place = np.array([token in log for token in case.tokens] + [False] * NEW)
        surpassed = draft[:, ~place].max(axis=1) >= ranked[len(ranked) - 2]
        good &= ~surpassed
    return good


def bounds(target: np.ndarray, drafts: list[np.ndarray], kind: str, num_drafts: int) -> np.ndarray:
    """Bound of every completion."""
    if kind == "independent":
        laws = zip(target, np.stack(drafts, axis=1), strict=True)
        found = [mdsd.acceptance_bound(p, mdsd.IndependentDrafts(q)) for p, q in laws]
        return np.array([bound.value - bound.gap / 2 for bound in found])
    return mdsd.acceptance_bounds(target, drafts[0], draft=kind, num_drafts=num_drafts)


def values(case: Truncated, kind: str, num_drafts: int, rng, random: int = 2) -> np.ndarray:
    """Bounds of many completions of a truncated instance."""
    target, drafts = completions(case, rng, random)
    good = possible(case, drafts[0], kind, num_drafts)
    return bounds(target[good], [draft[good] for draft in drafts], kind, num_drafts)


def violation(interval: mdsd.AcceptanceInterval, found: np.ndarray) -> float:
    """How far the bound of some completion lies outside the interval; at most 0 if none does."""
    return float(max(interval.lower - found.min(), found.max() - interval.upper))


def searched(
    case: Truncated, kind: str, num_drafts: int, rng, *, sign: int, rounds: int = 10
) -> float:
    """Climb from completion to completion: the greatest bound found, or for -1 the least."""
    tokens = case.tokens
    sides = [(case.target, list(case.drafts)), (case.drafts[0], [case.target])]
    starts = [ways(known, others, tokens, rng, 4) for known, others in sides]
    free = [weights.any(axis=0) for weights in starts]
    width, best, kept = 64, -np.inf, None
    for _ in range(rounds):
        weights = []
        for j, start in enumerate(starts):
            if kept is None:
                weights.append(start[rng.integers(len(start), size=width)])
                continue
            # Some of the mass goes where little or much of it is.
            moved = rng.dirichlet(np.full(int(free[j].sum()), 0.1), width)
            share = rng.choice([0.0, 0.01, 0.1, 0.5], size=(width, 1))
            step = np.zeros((width, len(free[j])))
            step[:, free[j]] = moved
            weights.append((1.0 - share) * kept[j] + share * step)
        laws = [fill(known, tokens, w) for (known, _), w in zip(sides, weights, strict=True)]
        good = np.flatnonzero(possible(case, laws[1], kind, num_drafts))
        if not len(good):
            continue
        found = sign * bounds(laws[0][good], [laws[1][good]], kind, num_drafts)
        if found.max() > best:
            best = float(found.max())
            kept = [w[good[found.argmax()]] for w in weights]
    return sign * best
