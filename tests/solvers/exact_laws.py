"""Laws of a few draws in exact fractions, and what a lottery over grouped orders does with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from solvers.groups import TokenGroups
from solvers.polymatroid import OrderLottery

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


def hit(law: ExactLaw, chosen: set[int]) -> Fraction:
    """Probability that some draw is among the chosen tokens."""
    return sum((prob for row, prob in law.items() if chosen & set(row)), Fraction(0))


def lottery_of(orders: np.ndarray, weights: np.ndarray) -> OrderLottery:
    """Give a lottery over orders of groups, of which nothing but these is known."""
    size = orders.shape[1]
    return OrderLottery(
        orders=orders.astype(np.int32),
        weights=weights,
        selected=np.zeros(size),
        attained=0.0,
        upper=1.0,
        subset=np.zeros(size, dtype=np.bool_),
        iterations=len(orders),
    )


def token_orders(groups: TokenGroups, order: np.ndarray) -> Iterator[list[int]]:
    """Spell an order of groups out, all its groups as they are and all of them reversed."""
    members, starts = groups.members.tolist(), groups.starts.tolist()
    pieces = [members[starts[g] : starts[g + 1]] for g in order.tolist()]
    for step in (1, -1):
        yield [token for piece in pieces for token in piece[::step]]


def selection(law: ExactLaw, groups: TokenGroups, lottery: OrderLottery) -> np.ndarray:
    """Probability that each token is selected by the lottery, over all tuples of the law."""
    selected = [Fraction(0)] * groups.vocab_size
    for order, weight in zip(lottery.orders, lottery.weights.tolist(), strict=True):
        for tokens in token_orders(groups, order):
            rank = {token: place for place, token in enumerate(tokens)}
            for row, prob in law.items():
                selected[min(row, key=rank.__getitem__)] += Fraction(weight) / 2 * prob
    return np.array([float(mass) for mass in selected])


def random_groups(rng: np.random.Generator, tokens: np.ndarray, vocab_size: int) -> TokenGroups:
    """Cut a random order of the tokens at random places, at least one group of several tokens."""
    members = rng.permutation(tokens)
    count = int(rng.integers(1, max(2, len(members))))
    cuts = np.sort(rng.permutation(np.arange(1, len(members)))[: count - 1])
    return TokenGroups(vocab_size, members, np.concatenate([[0], cuts, [len(members)]]))


def random_lottery(rng: np.random.Generator, size: int) -> OrderLottery:
    count = int(rng.integers(1, 4))
    orders = np.array([rng.permutation(size) for _ in range(count)])
    return lottery_of(orders, rng.dirichlet(np.ones(count)))
