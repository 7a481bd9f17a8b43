"""Laws of drafts with what groups see of them, small enough to be enumerated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mdsd._solvers.group_selection import find_groups
from mdsd._solvers.grouped_law import GroupedLaw, join_parts
from mdsd._solvers.law_parts import (
    LawPart,
    certain_tokens,
    draws_without_replacement,
    independent_draws,
)

from . import exact_laws


@dataclass(frozen=True, eq=False)
class Grouped:
    """Target masses, the parts of a law on neighbouring vocabularies, and the groups of all."""

    target: np.ndarray
    parts: list[LawPart]
    law: GroupedLaw

    @property
    def size(self) -> int:
        return len(self.law.targets)

    @property
    def groups(self) -> np.ndarray:
        """Group of each token, (V,); -1 for those that cannot be drafted."""
        found = np.full(len(self.target), -1, dtype=np.int64)
        for place, part in enumerate(self.parts):
            own = self.target[part.offset : part.offset + part.vocab_size]
            find_groups(self.law, place, np.arange(len(self.target)), own, part.probs, found)
        return found

    @property
    def exact(self) -> exact_laws.ExactLaw:
        return exact_laws.joint(
            [exact_part(part) for part in self.parts], [part.offset for part in self.parts]
        )


def exact_part(part: LawPart) -> exact_laws.ExactLaw:
    if len(part.tokens):
        return exact_laws.certain(part.tokens.tolist())
    if len(part.probs) == 1 and part.kind == draws_without_replacement(part.probs[0], 2).kind:
        return exact_laws.draws_without_replacement(part.probs[0], part.num_drafts)
    rows = np.broadcast_to(part.probs, (part.num_drafts, part.vocab_size))
    return exact_laws.independent_draws(rows)


def grouped(
    target: np.ndarray, parts: list[LawPart], num_singles: int, num_buckets: int
) -> Grouped:
    """Let the parts follow each other, and group the tokens of each."""
    placed, law, offset = [], None, 0
    for part in parts:
        own = np.ascontiguousarray(target[offset : offset + part.vocab_size])
        placed.append(part.moved(offset))
        found = part.group(own, num_singles, num_buckets)
        found = found._replace(tokens=found.tokens + offset)
        law = found if law is None else join_parts(law, found)
        offset += part.vocab_size
    assert law is not None
    assert offset == len(target)
    return Grouped(target, placed, law)


def random_target(rng: np.random.Generator, size: int) -> np.ndarray:
    """Ratios of all kinds, so that tokens fall into groups in any way."""
    masses = np.exp(rng.choice([0.1, 1.0, 4.0]) * rng.normal(size=size))
    masses *= rng.random(size) < 0.9
    masses[rng.integers(size)] += 1e-3
    return masses / masses.sum()


def heavy_and_faint(rng: np.random.Generator, heavy: int, faint: int, tiny: float) -> np.ndarray:
    """Weights of draws: some heavy tokens, and others of that mass together, which may share."""
    small = np.exp(rng.normal(size=faint))
    weights = np.concatenate(
        [rng.dirichlet(np.full(heavy, 3.0)) * (1.0 - tiny), tiny * small / small.sum()]
    )
    return rng.permutation(weights)


def point(size: int, token: int) -> np.ndarray:
    masses = np.zeros(size)
    masses[token] = 1.0
    return masses


RNG = np.random.default_rng(0)
FAINT_DRAWS = {
    "faint-n2": (heavy_and_faint(RNG, 2, 6, 1e-3), 2),
    "faint-n3": (heavy_and_faint(RNG, 3, 5, 1e-4), 3),
    "faint-1e-20": (heavy_and_faint(RNG, 3, 4, 1e-20), 3),
    "faint-1e-300": (heavy_and_faint(RNG, 2, 5, 1e-300), 2),
    "faint-subnormal": (np.array([0.5, 0.5, 1e-310, 3e-312, 5e-324, 1e-323]), 2),
    "late-subnormal": (np.array([1.0, 1e-318, *np.full(5, 5e-324)]), 2),
    "faint-equal": (np.array([0.5, *np.full(5, 1e-5), 0.5 - 5e-5]), 2),
}
"""Draws without replacement where groups hold several tokens."""

DRAWS = {
    **FAINT_DRAWS,
    "flat": (np.array([0.2, 0.5, 0.3]), 2),
    "six": (np.array([0.01, 0.04, 0.15, 0.2, 0.25, 0.35]), 4),
    "equal": (np.full(6, 1 / 6), 3),
    "peaked-1e-12": (np.array([1e-12, 1 - 1.4e-11, 3e-12, 4e-12, 6e-12]), 3),
    "scales": (np.array([1e-250, 1e-120, 1e-60, 1e-5, 1 - 1e-5]), 3),
    "zeros": (np.array([0.0, 0.6, 0.0, 0.1, 0.3, 0.0]), 2),
    "all": (np.array([0.1, 0.2, 0.3, 0.4]), 4),
    "two": (np.array([1e-9, 1 - 1e-9]), 2),
}
INDEPENDENT = {
    "flat": RNG.dirichlet(np.ones(5), 3),
    "peaked": RNG.dirichlet(np.full(5, 0.1), 3),
    "four": RNG.dirichlet(np.ones(4), 4),
    "alone": RNG.dirichlet(np.ones(5), 1),
    "equal": np.full((3, 5), 0.2),
    "disjoint": np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.25, 0.75]]),
    "points": np.array([point(4, 1), point(4, 1), point(4, 3)]),
    "one-heavy": np.array([[1 - 2e-12, 1e-12, 1e-12, 0.0], [1e-12, 0.0, 1 - 2e-12, 1e-12]]),
    "scales": np.array([[1e-300, 1e-100, 0.5, 0.5], [0.5, 5e-324, 1e-20, 0.5]]),
    "zeros": np.array([[0.0, 0.3, 0.0, 0.7, 0.0], [0.4, 0.0, 0.0, 0.6, 0.0]]),
    "one": np.ones((3, 1)),
}
PARTS: dict[str, list[LawPart]] = {
    **{f"draws-{name}": [draws_without_replacement(*case)] for name, case in DRAWS.items()},
    **{f"independent-{name}": [independent_draws(q, len(q))] for name, q in INDEPENDENT.items()},
    "same-law-n3": [independent_draws(INDEPENDENT["flat"][:1], 3)],
    "certain": [certain_tokens(np.array([3, 0]), 5)],
    "top-and-tail": [
        certain_tokens(np.array([1]), 3),
        draws_without_replacement(FAINT_DRAWS["faint-n2"][0], 2),
    ],
    "two-draws": [
        draws_without_replacement(FAINT_DRAWS["faint-n2"][0], 2),
        draws_without_replacement(np.array([0.2, 0.5, 0.3]), 2),
    ],
    "three": [
        independent_draws(INDEPENDENT["flat"][:2], 2),
        certain_tokens(np.array([2]), 3),
        draws_without_replacement(FAINT_DRAWS["faint-equal"][0], 2),
    ],
    "copies": [
        independent_draws(INDEPENDENT["zeros"][:1], 2),
        independent_draws(INDEPENDENT["peaked"], 3),
    ],
}


def instances(name: str, count: int = 3) -> list[Grouped]:
    """Give the same law in groups of several shapes."""
    parts, found = PARTS[name], []
    for seed in range(count):
        rng = np.random.default_rng([seed, *name.encode()])
        target = random_target(rng, sum(part.vocab_size for part in parts))
        num_singles, num_buckets = ((0, 2), (1, 3), (9, 9))[seed % 3]
        found.append(grouped(target, parts, num_singles, num_buckets))
    return found


def random_lottery(rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Some orders of groups, and their probabilities."""
    count = int(rng.integers(1, 4))
    orders = np.array([rng.permutation(size) for _ in range(count)], dtype=np.int32)
    return orders, rng.dirichlet(np.ones(count))
