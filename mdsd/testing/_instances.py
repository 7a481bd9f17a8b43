"""Instances that verifiers and solvers are tried on, drawn from a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mdsd._arguments import check_name, check_whole
from mdsd._random import RandomSource, generator
from mdsd._typing import FloatArray
from mdsd.drafts import DraftDistribution, DraftKind, ExplicitDraft, IndependentDrafts
from mdsd.drafts.base import check_num_drafts
from mdsd.drafts.registry import example_kinds
from mdsd.errors import InvalidDistributionError, UnsupportedError


@dataclass(frozen=True, eq=False)
class Instance:
    """A target and a draft distribution to try a verifier on.

    Attributes
    ----------
    label : str
        Readable name.
    target_probs : ndarray of float64, shape (V,)
    draft : DraftDistribution
    tie_free : bool
        Whether no two tokens can be confused, so that relabelling tokens must relabel the law.
    """

    label: str
    target_probs: FloatArray
    draft: DraftDistribution
    tie_free: bool = field(default=False)


@dataclass(frozen=True)
class DraftRecipe:
    """A draft distribution as it was asked for; its text is the call that makes it.

    The object itself keeps renormalised vectors: built again from those it may differ in the last
    digit, and the fault that is looked for may be gone.

    Attributes
    ----------
    kind : callable
        Class of the draft distribution, or its `from_probs`.
    args : tuple
        Lists and integers.
    options : mapping of str
        Keyword arguments.

    Examples
    --------
    >>> import mdsd
    >>> recipe = DraftRecipe.of(mdsd.WithReplacement.kind(), [0.25, 0.75], 2)
    >>> print(recipe)
    mdsd.WithReplacement([0.25, 0.75], 2)
    >>> recipe.build()
    WithReplacement(num_drafts=2, vocab_size=2)
    """

    kind: Callable[..., DraftDistribution]
    args: tuple[Any, ...]
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: DraftKind, draft_probs: list[Any], num_drafts: int) -> DraftRecipe:
        """Write down what a kind makes of output distributions."""
        made: Any = kind.draft_type
        default: Any = DraftDistribution
        if made.from_probs.__func__ is not default.from_probs.__func__:
            made = made.from_probs
        return cls(made, (draft_probs, num_drafts), dict(kind.options))

    def build(self) -> DraftDistribution:
        """Make the draft distribution."""
        return self.kind(*self.args, **self.options)

    def __str__(self) -> str:
        given = [repr(value) for value in self.args]
        given += [f"{name}={value!r}" for name, value in self.options.items()]
        module = self.kind.__module__
        package = "mdsd" if module.startswith("mdsd.") else module
        return f"{package}.{self.kind.__qualname__}({', '.join(given)})"


_WEIGHTS: Mapping[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "flat": lambda rng, size: rng.dirichlet(np.ones(size)),
    "peaked": lambda rng, size: rng.dirichlet(np.full(size, 0.1)),
    "sparse": lambda rng, size: rng.dirichlet(np.ones(size)) * (rng.random(size) < 0.6),
    "ties": lambda rng, size: rng.integers(0, 4, size).astype(np.float64),
    "point": lambda _, size: np.zeros(size),
    "nearly_flat": lambda rng, size: 1.0 + 1e-9 * rng.random(size),
    "one_heavy": lambda _, size: np.full(size, 1e-12 / size),
    "scales": lambda rng, size: 10.0 ** rng.uniform(-30.0, 0.0, size),
}


def random_probs(rng: RandomSource, vocab_size: int, kind: str | None = None) -> FloatArray:
    """Draw a probability vector of a kind that solvers and verifiers stumble on.

    Parameters
    ----------
    rng : numpy.random.Generator, torch.Generator, int or None
    vocab_size : int
        V >= 1.
    kind : str, optional
        flat, peaked (Dirichlet 0.1), sparse (exact zeros), ties (small fractions), point
        (one-hot), nearly_flat, one_heavy (one token at 1 - 1e-12) or scales (masses from 1e-30 to
        1); random by default.

    Returns
    -------
    ndarray of float64, shape (V,)

    Raises
    ------
    InvalidArgumentError
        If an argument is out of range, or the kind is not known.

    Examples
    --------
    >>> import numpy as np
    >>> float(random_probs(np.random.default_rng(0), 5).sum().round(12))
    1.0
    """
    rng = generator(rng, "study")
    vocab_size = check_whole("vocab_size", vocab_size, 1)
    if kind is None:
        kind = str(rng.choice(list(_WEIGHTS)))
    check_name("kind", kind, _WEIGHTS)
    chosen = int(rng.integers(vocab_size))
    weights = _WEIGHTS[kind](rng, vocab_size)
    if kind == "one_heavy" or not weights.sum() > 0.0:
        weights[chosen] = 1.0
    return np.asarray(weights / weights.sum())


def drafts_of(
    draft_probs: Sequence[FloatArray], num_drafts: int, rng: RandomSource
) -> list[DraftDistribution]:
    """Build every draft distribution that the vectors allow.

    Parameters
    ----------
    draft_probs : sequence of ndarray
        At least `num_drafts` draft vectors; all but drafts with a model each use the first.
    num_drafts : int
    rng : numpy.random.Generator, torch.Generator, int or None
        Draws the explicit draft.

    Returns
    -------
    list of DraftDistribution
        Of every registered kind that lists its tuples, and an explicit one.

    Raises
    ------
    InvalidDistributionError
        If a vector is not a probability vector, or there are fewer than `num_drafts`.
    InvalidArgumentError
        If `num_drafts` or `rng` is not what it should be.
    """
    rng, num_drafts = generator(rng, "study"), check_num_drafts(num_drafts)
    independent = IndependentDrafts(draft_probs)
    if independent.num_drafts < num_drafts:
        raise InvalidDistributionError(
            f"draft_probs has {independent.num_drafts} vectors; num_drafts={num_drafts} needs as "
            "many"
        )
    vocab_size = independent.vocab_size
    tuples = rng.integers(0, vocab_size, (int(rng.integers(1, 7)), num_drafts))
    explicit = ExplicitDraft(tuples, random_probs(rng, len(tuples)), vocab_size=vocab_size)
    found: list[DraftDistribution] = []
    for kind in example_kinds(num_drafts):
        probs = np.array(draft_probs[:num_drafts] if kind.one_model_each else draft_probs[0])
        if kind.drawable(probs[np.newaxis], num_drafts)[0]:
            draft = kind.make(probs, num_drafts)
            with suppress(UnsupportedError):
                draft.tuple_arrays()
                found.append(draft)
    return [*found, explicit]


def instances(seed: int = 0, count: int = 24) -> Iterator[Instance]:
    """Give instances of every draft distribution: generic ones first, then degenerate ones.

    Parameters
    ----------
    seed : int, default 0
    count : int, default 24
        Pairs of vectors; each gives a draft of every kind that it allows.

    Returns
    -------
    iterator of Instance

    Raises
    ------
    InvalidArgumentError
        If `seed` is not an integer >= 0 or `count` not an integer >= 1.
    """
    return _instances(check_whole("seed", seed, 0, math.inf), check_whole("count", count, 1))


def _instances(seed: int, count: int) -> Iterator[Instance]:
    rng = np.random.default_rng(seed)
    for number in range(count):
        generic = number < 3
        vocab_size = 5 if generic else int(rng.integers(1, 7))
        num_drafts = number % 3 + 1
        kind = "flat" if generic else None
        target = random_probs(rng, vocab_size, kind)
        vectors = [random_probs(rng, vocab_size, kind) for _ in range(num_drafts)]
        if number % 6 == 5:
            vectors[0] = target.copy()
        for draft in drafts_of(vectors, num_drafts, rng):
            # What was made from vectors can be made again from the same with other labels.
            tie_free = generic and hasattr(draft, "draft_probs")
            label = f"{draft.own_kind.label}-{num_drafts}-{number}"
            yield Instance(label, target, draft, tie_free)
