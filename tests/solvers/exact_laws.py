"""Laws of a few draws in exact fractions, and what a lottery over orders of groups selects."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

ExactLaw = dict[tuple[int, ...], Fraction]


def draws_without_replacement(weights: np.ndarray, n: int) -> ExactLaw:
    """Law of n successive draws without replacement, from the definition."""
    masses = [Fraction(float(w)) for w in weights]
    law: ExactLaw = {}
    for row in itertools.permutations(np.flatnonzero(weights).tolist(), n):
        prob, left = Fraction(1), sum(masses)
        for i in row:
            prob *= masses[i] / left
            left -= masses[i]
        law[row] = prob
    return law


def independent_draws(laws: np.ndarray) -> ExactLaw:
    """Law of one draw from each of the laws, (n, V), each divided by its sum."""
    supports = [np.flatnonzero(q).tolist() for q in laws]
    masses = [[Fraction(float(x)) for x in q] for q in laws]
    totals = [sum(q) for q in masses]
    law: ExactLaw = {}
    for row in itertools.product(*supports):
        prob = Fraction(1)
        for j, i in enumerate(row):
            prob *= masses[j][i] / totals[j]
        law[row] = prob
    return law


def certain(tokens: list[int]) -> ExactLaw:
    """Law of tokens that are drafted whatever chance does."""
    return {tuple(tokens): Fraction(1)}


def joint(laws: list[ExactLaw], offsets: list[int]) -> ExactLaw:
    """Law of independent parts, the tokens of each moved by its offset."""
    joined: ExactLaw = {(): Fraction(1)}
    for law, offset in zip(laws, offsets, strict=True):
        joined = {
            (*before, *(token + offset for token in row)): mass * prob
            for before, mass in joined.items()
            for row, prob in law.items()
        }
    return joined


def hit(law: ExactLaw, chosen: set[int]) -> Fraction:
    """Probability that some draw is among the chosen tokens."""
    return sum((prob for row, prob in law.items() if chosen & set(row)), Fraction(0))


def group_hits(law: ExactLaw, groups: np.ndarray, order: np.ndarray) -> list[float]:
    """Probability that some draw is in the first k groups of an order, for every k."""
    ahead = [
        set(np.flatnonzero(np.isin(groups, order[:k])).tolist()) for k in range(len(order) + 1)
    ]
    return [float(hit(law, tokens)) for tokens in ahead]


def selection(
    law: ExactLaw, groups: np.ndarray, orders: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Probability that each token is selected, over all tuples of the law.

    Each draft in the first group of an order that was met is selected with equal chances; `groups`
    gives that of each token, (V,).
    """
    selected, group = [Fraction(0)] * len(groups), groups.tolist()
    for order, weight in zip(orders.tolist(), weights.tolist(), strict=True):
        rank = {g: place for place, g in enumerate(order)}
        for row, prob in law.items():
            first = min(rank[group[token]] for token in row)
            met = [token for token in row if rank[group[token]] == first]
            for token in met:
                selected[token] += Fraction(weight) * prob / len(met)
    return np.array([float(mass) for mass in selected])
