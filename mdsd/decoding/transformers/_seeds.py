"""Random streams of the rows of a batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from mdsd import _random
from mdsd.errors import InvalidArgumentError


def read_seed(rng: Any = None, generator: Any = None, seed: Any = None) -> int:
    """Read the one source of randomness that is given, under any of its names.

    Parameters
    ----------
    rng, generator, seed : numpy.random.Generator, torch.Generator, int or None
        At most one; without any the seed is drawn from torch's own generator.

    Returns
    -------
    int
        At least 0.

    Raises
    ------
    InvalidArgumentError
        If several are given, or one is of another kind.
    """
    named = {"rng": rng, "generator": generator, "seed": seed}
    given = {name: source for name, source in named.items() if source is not None}
    if len(given) > 1:
        raise InvalidArgumentError(f"{' and '.join(given)} are given; expected one of them")
    for name, source in given.items():
        return _random.read_seed(name, source)
    return _random.draw_torch_seed()


def row_seeds(seed: int, prompts: list[list[int]]) -> list[int]:
    """Give each row a seed of its own, whatever the other rows are.

    Parameters
    ----------
    seed : int
        At least 0.
    prompts : list of lists of int
        Token ids.

    Returns
    -------
    list of int
        Each depends on the seed, the prompt and how many equal prompts come before it.

    Examples
    --------
    >>> first, second, again = row_seeds(3, [[5, 6], [7], [5, 6]])
    >>> row_seeds(3, [[7], [5, 6]]) == [second, first], first == again
    (True, False)
    """
    copies: Counter[tuple[int, ...]] = Counter()
    seeds = []
    for prompt in prompts:
        key = tuple(prompt)
        sequence = np.random.SeedSequence([seed, copies[key], *prompt])
        seeds.append(int.from_bytes(sequence.generate_state(4).tobytes(), "little"))
        copies[key] += 1
    return seeds
