"""Explicit transport problems with known optima, random families of them, and an oracle."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from mdsd._solvers.transport import TransportInstance, merge_tuples


@dataclass(frozen=True, eq=False)
class DraftProblem:
    """Target masses, and draft tuples with their masses, before any merging."""

    target: np.ndarray
    tuples: np.ndarray
    tuple_masses: np.ndarray
    value: float | None = None
    subset: tuple[int, ...] | None = None

    @property
    def instance(self) -> TransportInstance:
        return merge_tuples(self.target, self.tuples, self.tuple_masses)


def with_replacement(
    target: np.ndarray, draft: np.ndarray, n: int, **known: object
) -> DraftProblem:
    target, draft = np.asarray(target, dtype=float), np.asarray(draft, dtype=float)
    tuples = np.array(list(itertools.product(range(len(draft)), repeat=n)))
    return DraftProblem(target, tuples, draft[tuples].prod(axis=1), **known)


def brute_force(problem: DraftProblem) -> float:
    """Minimise p(H) + mass of tuples not inside H over all H, in fractions, tuple by tuple."""
    num_tokens = len(problem.target)
    target = [Fraction(mass) for mass in problem.target.tolist()]
    tuples = [
        (frozenset(row), Fraction(mass))
        for row, mass in zip(problem.tuples.tolist(), problem.tuple_masses.tolist(), strict=True)
    ]
    return float(
        min(
            sum(target[i] for i in chosen)
            + sum(mass for tokens, mass in tuples if not tokens <= set(chosen))
            for size in range(num_tokens + 1)
            for chosen in itertools.combinations(range(num_tokens), size)
        )
    )


TINY = 1e-12
KNOWN = {
    "n2-paper": with_replacement(
        np.array([309, 177, 14]) / 500, np.array([373, 580, 47]) / 1000, 2, value=0.988871
    ),
    "n3-reaches-1": with_replacement(
        np.array([469, 124, 407]) / 1000, np.array([201, 275, 524]) / 1000, 3, value=1.0
    ),
    "n2-three-tokens": with_replacement([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 2, value=0.86),
    "n3-three-tokens": with_replacement([0.5, 0.3, 0.2], [0.2, 0.5, 0.3], 3, value=0.988),
    "thirds": with_replacement([1 / 3, 2 / 3], [2 / 3, 1 / 3], 2, value=8 / 9, subset=(0,)),
    "tiny-n1": with_replacement([1 - TINY, TINY], [TINY, 1 - TINY], 1, value=2 * TINY, subset=(1,)),
    "tiny-n2": with_replacement([1 - TINY, TINY], [TINY, 1 - TINY], 2, value=3 * TINY, subset=(1,)),
    "half-the-support": with_replacement(
        [0.1] * 10, [0.25, 0, 0.25, 0, 0.25, 0, 0.25, 0, 0, 0], 2, value=0.4, subset=(0, 2, 4, 6)
    ),
    "one-token": with_replacement([1.0], [1.0], 2, value=1.0),
    "disjoint-supports": with_replacement([1.0, 0.0], [0.0, 1.0], 3, value=0.0, subset=(1,)),
    "point-masses-agree": with_replacement([1.0, 0.0], [1.0, 0.0], 2, value=1.0),
    "no-draft-mass": with_replacement([0.5, 0.5], [0.0, 0.0], 2, value=0.0, subset=()),
}


def _normalised(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum()


def _zeros(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    weights = rng.random((2, 5)) * (rng.random((2, 5)) < 0.5)
    weights[:, rng.integers(5)] += 0.1
    return weights[0], weights[1]


def _ties(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    weights = rng.integers(1, 4, (2, 5)).astype(float)
    return weights[0], weights[1]


def _point_mass(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return np.eye(4)[rng.integers(4)], rng.dirichlet(np.ones(4))


def _two_tokens(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.dirichlet(np.ones(2)), rng.dirichlet(np.ones(2))


def _one_token(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return np.ones(1), np.ones(1)


def _peaked(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    weights = TINY * rng.random((2, 5))
    weights[[0, 1], rng.integers(5, size=2)] = 1.0
    return weights[0], weights[1]


def _nearly_flat(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    weights = 1 + 1e-9 * rng.random((2, 5))
    return weights[0], weights[1]


def _sparse_dirichlet(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.dirichlet(np.full(5, 0.05)), rng.dirichlet(np.full(5, 0.05))


FAMILIES: dict[str, Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]] = {
    "zeros": _zeros,
    "ties": _ties,
    "point-mass": _point_mass,
    "one-token": _one_token,
    "two-tokens": _two_tokens,
    "peaked": _peaked,
    "nearly-flat": _nearly_flat,
    "sparse-dirichlet": _sparse_dirichlet,
}


@pytest.fixture(params=list(KNOWN))
def known_problem(request: pytest.FixtureRequest) -> DraftProblem:
    """A problem whose optimum is known on paper."""
    return KNOWN[request.param]


@pytest.fixture(
    params=[(family, seed) for family in FAMILIES for seed in range(6)],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def random_problem(request: pytest.FixtureRequest) -> DraftProblem:
    """A small random problem; for odd seeds the tuples have masses of no particular form."""
    family, seed = request.param
    rng = np.random.default_rng([seed, *family.encode()])
    target, draft = (_normalised(weights) for weights in FAMILIES[family](rng))
    problem = with_replacement(target, draft, n=1 + seed % 3)
    if seed % 2 == 0:
        return problem
    masses = _normalised(problem.tuple_masses * rng.random(len(problem.tuples)))
    return DraftProblem(target, problem.tuples, masses)


@pytest.fixture
def optimum() -> Callable[[DraftProblem], float]:
    """Return the brute-force oracle."""
    return brute_force


@pytest.fixture
def dirichlet_instance() -> Callable[..., TransportInstance]:
    """Return a factory of larger random instances, drafted with replacement."""

    def make(
        seed: int, *, num_tokens: int = 20, n: int = 2, concentration: float = 0.05
    ) -> TransportInstance:
        rng = np.random.default_rng(seed)
        target, draft = rng.dirichlet(np.full(num_tokens, concentration), size=2)
        return with_replacement(target, draft, n).instance

    return make


@pytest.fixture
def small_instance() -> TransportInstance:
    """Tokens of 0.25 and 0.75; sets {0, 1} of 0.25, {0} of 0.5 and {1} of 0.25: optimum 0.75."""
    return merge_tuples([0.25, 0.75], [[0, 0], [0, 1], [1, 1]], [0.5, 0.25, 0.25])


@pytest.fixture
def assert_optimal() -> Callable[..., None]:
    """Return a check of value, certificate and feasibility of a solution, from the definitions."""

    def check(solution: object, problem: DraftProblem, expected: float) -> None:
        instance = problem.instance
        assert solution.value >= 0
        assert solution.value == pytest.approx(expected, abs=1e-9, rel=0)
        assert solution.subset.dtype == np.bool_
        inside = [set(row) <= set(np.flatnonzero(solution.subset)) for row in problem.tuples]
        cut = problem.target[solution.subset].sum() + problem.tuple_masses[~np.array(inside)].sum()
        assert cut == pytest.approx(expected, abs=1e-9, rel=0)
        if solution.plan is not None:
            check_plan(instance, solution.plan)
            assert solution.plan.sum() == pytest.approx(expected, abs=1e-9, rel=0)
            assert solution.gap == pytest.approx(solution.value - solution.plan.sum(), abs=1e-15)

    def check_plan(instance: TransportInstance, plan: np.ndarray) -> None:
        dense = np.zeros((instance.num_tokens, instance.num_sets))
        dense[instance.set_tokens, instance.pair_sets()] = plan
        assert dense.dtype == np.float64
        assert (dense >= 0).all()
        assert (dense.sum(axis=1) <= instance.token_masses).all()
        assert (dense.sum(axis=0) <= instance.set_masses).all()

    return check
