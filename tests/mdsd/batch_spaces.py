"""Arrays of other libraries, put somewhere and taken back, for the tests of batches on devices."""

from __future__ import annotations

import numpy as np

import mdsd

RULES = [
    ("single", "with_replacement", 1),
    ("single", "without_replacement", 1),
    ("rrs", "with_replacement", 2),
    ("rrs", "with_replacement", 4),
    ("rrs", "without_replacement", 2),
    ("rrs", "without_replacement", 4),
    ("kseq", "with_replacement", 1),
    ("kseq", "with_replacement", 2),
    ("kseq", "with_replacement", 4),
    ("greedy", "greedy", 1),
    ("greedy", "greedy", 2),
    ("greedy", "greedy", 4),
    ("optimal", "greedy", 3),
    ("spechub", "spechub", 2),
    ("naive", "without_replacement", 2),
    ("naive_tree", "with_replacement", 3),
]
"""Verifiers that run on devices, with a draft distribution and a number of drafts."""


def laws_of(tests, back):
    """Law of the emitted token of each row, from what the code for devices computes."""
    chances, tested, residual = back(tests.chances), back(tests.tested), back(tests.residual)
    law, reached = np.zeros(residual.shape), np.ones(len(residual))
    rows = np.arange(len(residual))
    for k in range(chances.shape[1]):
        law[rows, tested[:, k]] += reached * chances[:, k]
        reached = reached * (1.0 - chances[:, k])
    return law + reached[:, np.newaxis] * residual / residual.sum(axis=1, keepdims=True)


def plans_of(verifier, targets, laws):
    chosen = mdsd.get_verifier(verifier)
    return [chosen.plan(p, law) for p, law in zip(targets, laws, strict=True)]


def peaked_rows(rng, rows, size):
    """Softmax of normal logits of standard deviation 3, and of the same with noise."""
    logits = 3.0 * rng.normal(size=(rows, size))
    noisy = logits + rng.normal(size=logits.shape)
    return mdsd.probs_from_logits(logits), mdsd.probs_from_logits(noisy)
