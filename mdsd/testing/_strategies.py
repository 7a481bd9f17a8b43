"""Hypothesis strategies for probability vectors, draft distributions and whole problems.

Everything is built from small integers and exponents, so that a failing example shrinks to a few
plain fractions. Hypothesis is imported when a strategy is asked for, not before: the rest of
`mdsd.testing` works without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mdsd._typing import FloatArray
from mdsd.drafts import (
    Draft,
    DraftDistribution,
    DraftKind,
    ExplicitDraft,
    draft_names,
    read_kind,
)
from mdsd.drafts.registry import example_kinds
from mdsd.errors import InvalidArgumentError
from mdsd.testing._instances import DraftRecipe, Instance

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

_TINY = (1e-12, 1e-30, 2.0**-1060)
"""Weights beside a token of weight 1; the last is subnormal, with digits left to be divided."""


def probability_vectors(
    vocab_size: int | None = None, *, max_vocab_size: int = 6, min_support: int = 1
) -> SearchStrategy[FloatArray]:
    """Give a strategy for probability vectors of the kinds that verifiers stumble on.

    Parameters
    ----------
    vocab_size : int, optional
        V; by default from 1 to `max_vocab_size`.
    max_vocab_size : int, default 6
    min_support : int, default 1
        Fewest tokens with positive probability.

    Returns
    -------
    hypothesis.strategies.SearchStrategy of ndarray of float64, shape (V,)
        Small fractions with exact ties and zeros, point masses, generic vectors, nearly flat ones,
        masses over 30 decades, one token at ``1 - 1e-12`` or closer to 1, subnormal entries, and
        mixtures of these. They shrink towards fewer tokens and small fractions.

    Raises
    ------
    ImportError
        If Hypothesis is not installed.
    InvalidArgumentError
        If no vector has the size and the support asked for.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=20, database=None, derandomize=True)
    ... @given(probability_vectors(3))
    ... def check_mass(probs):
    ...     assert abs(probs.sum() - 1.0) < 1e-12
    >>> check_mass()
    """
    _require_hypothesis()
    from hypothesis import strategies as st

    sizes = [size for size in _choices(vocab_size, max_vocab_size) if size >= min_support]
    if not sizes:
        raise InvalidArgumentError(
            f"min_support is {min_support}, with at most {vocab_size or max_vocab_size} tokens"
        )

    weights = st.sampled_from(sizes).flatmap(_weights)
    return weights.map(lambda found: _normalised(found, min_support))


def draft_distributions(
    vocab_size: int | None = None,
    num_drafts: int | None = None,
    *,
    kinds: Sequence[Draft] | None = None,
    max_vocab_size: int = 6,
    max_num_drafts: int = 3,
) -> SearchStrategy[DraftDistribution]:
    """Give a strategy for draft distributions, small enough to be enumerated.

    Parameters
    ----------
    vocab_size, num_drafts : int, optional
        V and n; by default from 1 to `max_vocab_size` and `max_num_drafts`.
    kinds : sequence of str or DraftKind, optional
        Kinds of drafts or their names, such as ``("greedy", "top_k")``, and ``"explicit"``; all by
        default. What cannot be drawn at these sizes is left out.
    max_vocab_size : int, default 6
    max_num_drafts : int, default 3

    Returns
    -------
    hypothesis.strategies.SearchStrategy of DraftDistribution
        Hypothesis prints a failing one as the call that makes it, with all its digits.

    Raises
    ------
    ImportError
        If Hypothesis is not installed.
    InvalidArgumentError
        If a kind is not known, or none can be drawn at these sizes.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=20, database=None, derandomize=True)
    ... @given(draft_distributions(num_drafts=2, kinds=("greedy", "spechub")))
    ... def check_hits(draft):
    ...     assert draft.hit_probs(range(draft.vocab_size))[-1] == 1.0
    >>> check_hits()
    """
    _require_hypothesis()
    from hypothesis import strategies as st

    recipes = _recipes(vocab_size, num_drafts, kinds, max_vocab_size, max_num_drafts)

    def build(drawn: _Drawn) -> SearchStrategy[DraftDistribution]:
        # By builds() and not by map(): Hypothesis then prints the call.
        recipe, _ = drawn
        positional = [st.just(value) for value in recipe.args]
        named: dict[str, Any] = {name: st.just(value) for name, value in recipe.options.items()}
        return st.builds(recipe.kind, *positional, **named)

    return recipes.flatmap(build)


def problems(
    vocab_size: int | None = None,
    num_drafts: int | None = None,
    *,
    kinds: Sequence[Draft] | None = None,
    max_vocab_size: int = 6,
    max_num_drafts: int = 3,
) -> SearchStrategy[Instance]:
    """Give a strategy for problems: a target and a draft distribution over the same tokens.

    Parameters
    ----------
    vocab_size, num_drafts, kinds, max_vocab_size, max_num_drafts
        As for `draft_distributions`.

    Returns
    -------
    hypothesis.strategies.SearchStrategy of Instance
        The target is a vector of its own, a vector of the draft, or one next to that, all of whose
        ratios nearly tie. The label is source code of target and draft with all their digits, to
        paste into ``acceptance_bound(...)`` or ``plan(...)``.

    Raises
    ------
    ImportError, InvalidArgumentError
        As for `draft_distributions`.

    Examples
    --------
    >>> import mdsd
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=20, database=None, derandomize=True)
    ... @given(problems(max_vocab_size=4))
    ... def check_rate(problem):
    ...     plan = mdsd.get_verifier("naive").plan(problem.target_probs, problem.draft)
    ...     bound = mdsd.acceptance_bound(problem.target_probs, problem.draft)
    ...     assert plan.acceptance_rate <= bound.value + 1e-12
    >>> check_rate()
    """
    _require_hypothesis()
    from hypothesis import strategies as st

    recipes = _recipes(vocab_size, num_drafts, kinds, max_vocab_size, max_num_drafts)

    @st.composite
    def instances(draw: DrawFn) -> Instance:
        recipe, vectors = draw(recipes)
        draft = recipe.build()
        likeness = draw(st.sampled_from(("any", "same", "near")))
        if likeness == "any" or not vectors:
            target = draw(probability_vectors(draft.vocab_size))
        else:
            target = np.array(draw(st.sampled_from(vectors)))
        if likeness == "near":
            step = draw(st.sampled_from((1e-6, 1e-12, 2.0**-52)))
            ups = draw(_lists(st.integers(0, 2), draft.vocab_size))
            target = _normalised([x * (1 + step * k) for x, k in zip(target, ups, strict=True)], 1)
        return Instance(f"{target.tolist()}, {recipe}", target, draft)

    return instances()


# --- the parts ---------------------------------------------------------------------------------


def _require_hypothesis() -> None:
    try:
        import hypothesis  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "the strategies of mdsd.testing need Hypothesis: pip install hypothesis"
        ) from error


def _choices(fixed: int | None, largest: int) -> list[int]:
    return list(range(1, largest + 1)) if fixed is None else [fixed]


def _lists(entries: SearchStrategy[Any], size: int) -> SearchStrategy[list[Any]]:
    from hypothesis import strategies as st

    return st.lists(entries, min_size=size, max_size=size)


def _weights(size: int) -> SearchStrategy[list[float]]:
    """Weights >= 0, the simplest kind first, for that is what examples shrink to."""
    from hypothesis import strategies as st

    small = st.integers(0, 4)
    decades = st.integers(0, 30).map(lambda exponent: 10.0**-exponent)
    flat = st.integers(0, 3).map(lambda k: 1.0 + k * 1e-9)
    subnormal = st.integers(1, 9).map(lambda k: k * _TINY[-1])

    def beside(parts: tuple[list[int], float, int]) -> list[float]:
        weights = [k * parts[1] for k in parts[0]]
        weights[parts[2]] = 1.0
        return weights

    heavy = st.tuples(_lists(small, size), st.sampled_from(_TINY), st.integers(0, size - 1))
    return st.one_of(
        _lists(small, size),
        _lists(st.integers(1, 1000), size),
        _lists(flat, size),
        _lists(st.tuples(st.integers(0, 9), decades).map(lambda pair: pair[0] * pair[1]), size),
        heavy.map(beside),
        _lists(st.one_of(small, flat, decades, subnormal), size),
    )


def _normalised(weights: Sequence[float], min_support: int) -> FloatArray:
    """Normalise weights, with weight 1 on the first tokens without any where too few have some."""
    values = np.array(weights, dtype=np.float64)
    missing = max(1, min_support) - int(np.count_nonzero(values))
    if missing > 0:
        values[np.flatnonzero(values == 0.0)[:missing]] = 1.0
    return np.asarray(values / values.sum())


_Drawn = tuple[DraftRecipe, list[list[float]]]
"""A draft, and the draft vectors that a target can be compared with."""


def _recipes(
    vocab_size: int | None,
    num_drafts: int | None,
    kinds: Sequence[Draft] | None,
    max_vocab_size: int,
    max_num_drafts: int,
) -> SearchStrategy[_Drawn]:
    from hypothesis import assume
    from hypothesis import strategies as st

    known = [*draft_names(), ExplicitDraft.name]
    asked = known if kinds is None else list(kinds)
    unknown = [each for each in asked if isinstance(each, str) and each.split(":")[0] not in known]
    if unknown:
        raise InvalidArgumentError(
            f"kinds holds {unknown[0]!r}; expected some of {', '.join(known)}"
        )
    sizes = _choices(vocab_size, max_vocab_size)
    counts: dict[DraftKind | None, list[int]] = {}
    for n in _choices(num_drafts, max_num_drafts):
        for kind in (found for each in asked for found in _kinds_of(each, n)):
            if kind is None or not kind.distinct or n <= max(sizes):
                counts.setdefault(kind, []).append(n)
    if not counts:
        raise InvalidArgumentError(
            f"none of the draft distributions {', '.join(map(str, asked))} can be drawn with "
            f"vocab_size={vocab_size or f'1..{max_vocab_size}'} and "
            f"num_drafts={num_drafts or f'1..{max_num_drafts}'}"
        )

    @st.composite
    def recipes(draw: DrawFn) -> _Drawn:
        kind = draw(st.sampled_from(list(counts)))
        n = draw(st.sampled_from(counts[kind]))
        support = n if kind is not None and kind.distinct else 1
        size = draw(st.sampled_from([size for size in sizes if size >= support]))
        if kind is None:
            tuples = st.lists(_lists(st.integers(0, size - 1), n), min_size=1, max_size=6)
            ids = draw(tuples)
            masses = draw(probability_vectors(len(ids)))
            return DraftRecipe(ExplicitDraft, (ids, masses.tolist()), {"vocab_size": size}), []
        vector = probability_vectors(size, min_support=support)
        rows = [draw(vector).tolist() for _ in range(n if kind.one_model_each else 1)]
        probs = rows if kind.one_model_each else rows[0]
        assume(kind.drawable(np.array([probs]), n)[0])
        return DraftRecipe.of(kind, probs, n), rows

    return recipes()


def _kinds_of(draft: Draft, num_drafts: int) -> list[DraftKind | None]:
    """Kinds of n drafts that are meant; None stands for explicit ones."""
    if draft == ExplicitDraft.name:
        return [None]
    if isinstance(draft, str) and ":" not in draft:
        return [kind for kind in example_kinds(num_drafts) if kind.name == draft]
    kind = read_kind(draft)
    return [kind] if kind.refusal(num_drafts) is None else []
