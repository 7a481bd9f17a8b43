"""Rows of every kind for batch calls, shared by their tests on the host and on devices."""

from __future__ import annotations

import numpy as np

import mdsd

LARGEST = 1.0 - 2.0**-53  # the largest uniform there is

DRAFTS = {
    "with_replacement": mdsd.WithReplacement,
    "without_replacement": mdsd.WithoutReplacement,
    "greedy": mdsd.GreedyDraft,
    "top_k": mdsd.TopKDraft,
    "spechub": lambda q, n: mdsd.SpecHubDraft(q),
    "independent": lambda q, n: mdsd.IndependentDrafts(q),
}

KINDS = ("random", "equal", "zeros", "ties", "peaked", "point", "apart")


def pair_of_kind(rng, size, kind):
    """Target and draft vector: ordinary, or degenerate in one of many ways."""
    p, q = rng.dirichlet(np.ones(size)), rng.dirichlet(np.ones(size))
    if kind == "equal":
        q = p.copy()
    elif kind == "zeros":
        p[rng.random(size) < 0.4] = 0.0
        q[rng.random(size) < 0.4] = 0.0
        p[0], q[-4:] = 0.1, 0.1
    elif kind == "ties":
        p, q = rng.integers(0, 3, size) + 0.0, rng.integers(1, 3, size) + 0.0
        p[0] += 1.0
    elif kind == "peaked":
        for vector in (p, q):
            vector *= 1e-12
            vector[rng.integers(size)] = 1.0
    elif kind == "point":
        p = np.eye(size)[rng.integers(size)]
    elif kind == "apart":
        p[size // 2 :] = 0.0
        q[: size // 2] = 0.0
    return p / p.sum(), q / q.sum()


def instances(draft, n, *, size, repeats, seed=0):
    """Targets, draft vectors, drawn ids and draft objects of a batch with rows of every kind."""
    rng = np.random.default_rng(seed)
    rows = []
    for kind in KINDS * repeats:
        p, q = pair_of_kind(rng, size, kind)
        if draft == "independent":
            q = np.stack([q, *(rng.dirichlet(np.ones(size)) for _ in range(n - 1))])
        law = DRAFTS[draft](q, n)
        rows.append((p, q, law.sample(rng), law))
    targets, drafted, ids, laws = zip(*rows, strict=True)
    return np.array(targets), np.array(drafted), np.array(ids), laws


def uniforms_of_every_kind(rng, shape):
    """Ordinary uniforms, and the ends of their range."""
    yield rng.random(shape)
    yield 1.0 - 0.3 * rng.random(shape) ** 4  # late in every decision
    ends = rng.random(shape)
    ends[:, :-1] = LARGEST
    yield np.minimum(ends, LARGEST)
    yield np.where(rng.random(shape) < 0.5, 0.0, rng.random(shape))
    yield np.full(shape, LARGEST)
