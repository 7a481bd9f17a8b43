"""Oracles: decoding on a chain followed branch by branch, in exact fractions.

They know the algorithms as published and nothing of the library: no caps, no recursion on the last
token. A chain is a list of T matrices of fractions; `initial` is the law of the token before them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Row = Sequence[Fraction]
Chain = Sequence[Sequence[Row]]
Branch = tuple[Fraction, tuple[int, ...], int]
"""Probability, tokens emitted from here on, and rejections among them."""


# --- chains --------------------------------------------------------------------------------------


def random_row(rng: np.random.Generator, size: int) -> list[Fraction]:
    """A law of small fractions, with zeros now and then."""
    while True:
        weights = [int(w) for w in rng.integers(0, 7, size)]
        if sum(weights):
            return [Fraction(w, sum(weights)) for w in weights]


def random_chain(rng: np.random.Generator, size: int, horizon: int) -> list[list[list[Fraction]]]:
    return [[random_row(rng, size) for _ in range(size)] for _ in range(horizon)]


def floats(chain: Any) -> np.ndarray:
    """The fractions as the library takes them."""
    return np.array(chain, dtype=np.float64)


# --- Algorithm 4 of Yin et al. -------------------------------------------------------------------


def positive_part(p: Row, q: Row) -> list[Fraction] | None:
    """norm((p - q)+); None where nothing is left, which is then never needed."""
    left = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
    mass = sum(left)
    return [x / mass for x in left] if mass else None


def accept_probability(p: Row, q: Row, token: int) -> Fraction:
    return min(Fraction(1), p[token] / q[token])


def residuals(p: Row, q: Row, batch_size: int) -> list[list[Fraction] | None]:
    """p^1, p^2, ..., p^(M + 1)."""
    found: list[Any] = [list(p)]
    for _ in range(batch_size):
        found.append(positive_part(found[-1], q) if found[-1] is not None else None)
    return found


def whole_rounds(
    target: Chain, draft: Chain, batch_size: int, last: int, position: int = 0
) -> Iterator[Branch]:
    """Algorithm 4 to the letter: all M sequences are drafted to the horizon before any test."""
    if position == len(target):
        yield Fraction(1), (), 0
        return
    p, q = target[position][last], draft[position][last]
    laws = residuals(p, q, batch_size)
    length = len(target) - position
    sequences = list(drafted(draft, last, position, length))
    for batch in itertools.product(sequences, repeat=batch_size):
        reached = Fraction(1)
        for prob, _ in batch:
            reached *= prob
        for law, (_, sequence) in zip(laws, batch, strict=False):
            passed = accept_probability(law, q, sequence[0])
            for prob, tokens, count in followed(
                target, draft, batch_size, sequence, position + 1, sequence[0]
            ):
                yield reached * passed * prob, (sequence[0], *tokens), count
            reached *= 1 - passed
            if not reached:
                break
        else:
            for branch in emitted(target, draft, batch_size, position, laws[-1]):
                yield reached * branch[0], branch[1], branch[2]


def drafted(
    draft: Chain, last: int, position: int, length: int
) -> Iterator[tuple[Fraction, tuple[int, ...]]]:
    """Every sequence that can be drafted from here, with its probability."""
    if length == 0:
        yield Fraction(1), ()
        return
    for token, prob in enumerate(draft[position][last]):
        if prob:
            for rest, tokens in drafted(draft, token, position + 1, length - 1):
                yield prob * rest, (token, *tokens)


def followed(
    target: Chain,
    draft: Chain,
    batch_size: int,
    sequence: tuple[int, ...],
    position: int,
    last: int,
) -> Iterator[Branch]:
    """Ordinary speculative decoding along the rest of an accepted sequence."""
    if position == len(target):
        yield Fraction(1), (), 0
        return
    token = sequence[len(sequence) - (len(target) - position)]
    p, q = target[position][last], draft[position][last]
    passed = accept_probability(p, q, token)
    for prob, tokens, count in followed(target, draft, batch_size, sequence, position + 1, token):
        yield passed * prob, (token, *tokens), count
    if passed < 1:
        for prob, tokens, count in emitted(
            target, draft, batch_size, position, positive_part(p, q)
        ):
            yield (1 - passed) * prob, tokens, count


def emitted(
    target: Chain, draft: Chain, batch_size: int, position: int, law: Row | None
) -> Iterator[Branch]:
    """A rejection: one token from the residual, and a new round."""
    assert law is not None
    for token, prob in enumerate(law):
        if prob:
            for rest, tokens, count in whole_rounds(target, draft, batch_size, token, position + 1):
                yield prob * rest, (token, *tokens), count + 1


class Outcome:
    """What an enumeration found.

    Attributes
    ----------
    law : dict
        Probability of every sequence emitted.
    rejections, square : Fraction
        Mean of the number of rejections and of its square.
    """

    def __init__(self, branches: Iterator[Branch]) -> None:
        self.law: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
        self.rejections = self.square = Fraction(0)
        for prob, tokens, count in branches:
            if prob:
                self.law[tokens] += prob
                self.rejections += prob * count
                self.square += prob * count * count
        self.law = dict(self.law)


def from_start(initial: Row, rounds: Any) -> Iterator[Branch]:
    """Branches for every token before the first position."""
    for last, prob in enumerate(initial):
        if prob:
            for rest, tokens, count in rounds(last):
                yield prob * rest, tokens, count


def enumerate_whole(target: Chain, draft: Chain, initial: Row, batch_size: int) -> Outcome:
    return Outcome(from_start(initial, lambda last: whole_rounds(target, draft, batch_size, last)))


def lazy_rounds(
    target: Chain,
    draft: Chain,
    batch_size: int,
    last: int,
    position: int = 0,
    fresh: bool = True,
    residual_of: int | None = None,
) -> Iterator[Branch]:
    """The same, but a drafted token is drawn only when it is tested, and draws are merged by token.

    `residual_of` emits from another p^m than p^(M + 1): a wrong algorithm, for a control.
    """
    if position == len(target):
        yield Fraction(1), (), 0
        return
    p, q = target[position][last], draft[position][last]
    tests = batch_size if fresh else 1
    laws = residuals(p, q, tests)
    passed = [Fraction(0)] * len(p)
    reached = Fraction(1)
    for law in laws[:-1]:
        if law is None:
            break
        chances = [accept_probability(law, q, x) if q[x] else Fraction(0) for x in range(len(q))]
        for token, prob in enumerate(q):
            passed[token] += reached * prob * chances[token]
        reached *= sum(prob * (1 - chance) for prob, chance in zip(q, chances, strict=True))
    wrong = fresh and residual_of is not None
    redraw = laws[residual_of - 1 if wrong and residual_of else -1]
    for token in range(len(p)):
        for mass, rejected in (
            (passed[token], False),
            (reached * redraw[token] if reached and redraw else Fraction(0), True),
        ):
            if mass:
                for rest, tokens, count in lazy_rounds(
                    target, draft, batch_size, token, position + 1, rejected, residual_of
                ):
                    yield mass * rest, (token, *tokens), count + rejected


def enumerate_lazily(
    target: Chain, draft: Chain, initial: Row, batch_size: int, residual_of: int | None = None
) -> Outcome:
    def rounds(last: int) -> Iterator[Branch]:
        return lazy_rounds(target, draft, batch_size, last, residual_of=residual_of)

    return Outcome(from_start(initial, rounds))


# --- what the results are compared with ----------------------------------------------------------


def chain_law(chain: Chain, initial: Row) -> dict[tuple[int, ...], Fraction]:
    """Probability of every sequence under a chain."""
    law: dict[tuple[int, ...], Fraction] = defaultdict(Fraction)
    for first, start in enumerate(initial):
        for tokens in itertools.product(range(len(initial)), repeat=len(chain)):
            prob, last = start, first
            for matrix, token in zip(chain, tokens, strict=True):
                prob *= matrix[last][token]
                last = token
            law[tokens] += prob
    return {tokens: prob for tokens, prob in law.items() if prob}


def paper_formula(target: Chain, draft: Chain, initial: Row, batch_size: int) -> Fraction:
    """Theorem 3 as published, over whole prefixes.

    The sum over positions of E_p[TV(p, q)] - E_F[TV(p, q) - prod_m TV(p^m, q)], with F(prefix) the
    probability that the prefix is emitted and its last draft was rejected.
    """
    size = len(initial)
    total = Fraction(0)
    prefixes = {(x,): (initial[x], initial[x]) for x in range(size)}
    for p_matrix, q_matrix in zip(target, draft, strict=True):
        following: dict[tuple[int, ...], tuple[Fraction, Fraction]] = {}
        for prefix, (prob, fresh) in prefixes.items():
            p, q = p_matrix[prefix[-1]], q_matrix[prefix[-1]]
            laws = residuals(p, q, batch_size)
            distance = variation(p, q)
            product = Fraction(1)
            for law in laws[:-1]:
                product *= variation(law, q) if law is not None else 0
            total += prob * distance - fresh * (distance - product)
            for y in range(size):
                first = fresh * product * laws[-1][y] if product else Fraction(0)
                later = (prob - fresh) * distance * laws[1][y] if distance else Fraction(0)
                following[(*prefix, y)] = (prob * p[y], first + later)
        prefixes = following
    return total


def variation(p: Row, q: Row) -> Fraction:
    return sum((abs(a - b) for a, b in zip(p, q, strict=True)), Fraction(0)) / 2
