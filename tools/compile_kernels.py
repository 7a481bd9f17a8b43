"""Compile every kernel into numba's cache, so that processes that start together find it there.

Each kernel is compiled for the types of the call that reaches it: so calls are made here, on a few
tokens, that reach them all. A kernel that is missed costs time later, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

import numpy as np

import mdsd
from mdsd._typing import FloatArray
from mdsd.drafts import DraftDistribution, default_kinds
from mdsd.testing import drafts_of

ROWS = 4
NUM_DRAFTS = 2
MANY = 5_000


def _plan(target_probs: FloatArray, drafts: Iterable[DraftDistribution]) -> None:
    """Plan and verify with every verifier."""
    for draft in drafts:
        for verifier in map(mdsd.get_verifier, mdsd.verifier_names()):
            if verifier.supports(draft):
                plan = verifier.plan(target_probs, draft)
                plan.verify_many(draft.sample(0, ROWS), 0)


def _batches(targets: FloatArray, drafted: FloatArray) -> None:
    """Make the calls on whole batches, with every verifier and draft distribution there is."""
    ids = np.argsort(-drafted, axis=-1)[:, :NUM_DRAFTS]
    for draft in default_kinds():
        probs = np.stack([drafted] * NUM_DRAFTS, axis=1) if draft.one_model_each else drafted
        with suppress(mdsd.UnsupportedError):
            mdsd.acceptance_bounds(targets, probs, draft=draft, num_drafts=NUM_DRAFTS)
        for verifier in mdsd.verifier_names():
            with suppress(mdsd.UnsupportedError):
                mdsd.acceptance_rates(
                    targets, probs, draft=draft, num_drafts=NUM_DRAFTS, verifier=verifier
                )
                mdsd.verify_batch(targets, probs, ids, draft=draft, verifier=verifier, rng=0)


def _job(name: str) -> None:
    """Make the calls of one process."""
    rng = np.random.default_rng(0)
    targets, drafted = rng.dirichlet(np.ones(8), size=(2, ROWS))
    if name == "plans":
        for num_drafts in (1, NUM_DRAFTS):
            _plan(targets[0], drafts_of(list(drafted), num_drafts, rng))
        # At full vocabulary this bound has a kernel of its own.
        target, draft = rng.dirichlet(np.full(MANY, 0.1), size=2)
        mdsd.acceptance_bound(target, mdsd.WithoutReplacement(draft, NUM_DRAFTS))
        return
    for kind in (np.float64, np.float32):
        _batches(targets.astype(kind), drafted.astype(kind))


def main() -> None:
    """Make the calls, plans and batches side by side."""
    start = time.perf_counter()
    with ProcessPoolExecutor(2) as processes:
        list(processes.map(_job, ("batches", "plans")))
    print(f"kernels compiled in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
