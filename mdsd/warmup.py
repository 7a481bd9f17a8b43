"""Compiling all kernels beforehand, so that no later call has to wait for a compiler.

A kernel is compiled for the types of the call that reaches it: so calls are made here, on a few
tokens, that reach them all. One that is missed costs time later, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import mdsd
from mdsd._solvers._compiled import cache_folder, silence
from mdsd._typing import FloatArray
from mdsd.batch._threads import _available_cores
from mdsd.decoding import generate
from mdsd.decoding.ngram import NGramModel
from mdsd.drafts import DraftDistribution, default_kinds
from mdsd.testing import drafts_of

_ROWS = 4
_DRAWS = 64  # some of which are rejected
_NUM_DRAFTS = 3
_FEW, _MANY, _VAST = 8, 800, 8000
"""Tokens of a vector: so few that all is enumerated, so many that tokens are grouped, and so many
that they are not even sorted for that."""


def warm_up(progress: Callable[[int, int], object] | None = None) -> Path | None:
    """Compile every kernel into the cache, by processes side by side.

    Parameters
    ----------
    progress : callable, optional
        Called with the number of jobs that are done and that of all.

    Returns
    -------
    Path or None
        The folder under which it is kept, or None where no place can be written to: then
        nothing was kept, and each process compiles for itself.
    """
    workers = min(len(_JOBS), _available_cores())
    # Not forked: a compiler's locks and threads would be copied in whatever state they are in.
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=silence) as processes:
        jobs = [processes.submit(run_job, name) for name in _JOBS]
        if progress is not None:
            progress(0, len(jobs))
        for done, job in enumerate(as_completed(jobs), start=1):
            job.result()
            if progress is not None:
                progress(done, len(jobs))
    return cache_folder()


def run_job(name: str) -> None:
    """Make the calls of one process: ``batches``, ``plans`` or ``trees``."""
    _JOBS[name]()


def _laws(size: int) -> tuple[FloatArray, FloatArray]:
    """Targets and drafts that are neither alike nor far apart."""
    rng = np.random.default_rng(0)
    targets, others = rng.dirichlet(np.full(size, 0.5), size=(2, _ROWS))
    return targets, 0.5 * (targets + others)


def _batches() -> None:
    """Make the calls on whole batches, with every verifier and draft distribution there is."""
    for size in (_FEW, _MANY):
        targets, drafted = _laws(size)
        for kind in (np.float64, np.float32):
            _batch(targets.astype(kind), drafted.astype(kind))


def _batch(targets: FloatArray, drafted: FloatArray) -> None:
    for num_drafts in (1, 2, _NUM_DRAFTS):
        ids = np.argsort(-drafted, axis=-1)[:, :num_drafts]
        for draft in default_kinds():
            if draft.refusal(num_drafts) is not None:
                continue
            probs = np.stack([drafted] * num_drafts, axis=1) if draft.one_model_each else drafted
            with suppress(mdsd.UnsupportedError):
                mdsd.acceptance_bounds(targets, probs, draft=draft, num_drafts=num_drafts)
            for verifier in mdsd.verifier_names():
                with suppress(mdsd.UnsupportedError):
                    mdsd.acceptance_rates(
                        targets, probs, draft=draft, num_drafts=num_drafts, verifier=verifier
                    )
                    mdsd.verify_batch(targets, probs, ids, draft=draft, verifier=verifier, rng=0)


def _plans() -> None:
    """Plan and verify by hand, with every verifier; bounds, intervals and laws of draws."""
    targets, drafted = _laws(_FEW)
    rng = np.random.default_rng(0)
    for num_drafts in (1, 2, _NUM_DRAFTS):
        _plan(targets[0], drafts_of(list(drafted), num_drafts, rng))
    targets_vast, drafted_vast = _laws(_VAST)
    vast = mdsd.WithoutReplacement(drafted_vast[0], 2)
    plan = mdsd.get_verifier("optimal").plan(targets_vast[0], vast)
    plan.verify_many(vast.sample(0, 2), 0)
    mdsd.acceptance_bound(targets_vast[0], vast)
    known = dict(enumerate(np.log(targets[0, :4]))), dict(enumerate(np.log(drafted[0, :4])))
    for draft in ("with_replacement", "without_replacement"):
        mdsd.acceptance_interval(*known, draft=draft, num_drafts=2)


def _plan(target_probs: FloatArray, drafts: Iterable[DraftDistribution]) -> None:
    for draft in drafts:
        mdsd.acceptance_bound(target_probs, draft)
        for verifier in map(mdsd.get_verifier, mdsd.verifier_names()):
            if verifier.supports(draft):
                plan = verifier.plan(target_probs, draft)
                ids = draft.sample(0, _DRAWS)
                plan.verify_many(ids, 0)
                plan.output_law(ids[0])
                with suppress(mdsd.UnsupportedError):
                    plan.acceptance_rate, plan.marginal_law()


def _trees() -> None:
    """Decode trees by every verifier of whole paths, and level by level by the optimal one."""
    tokens = np.random.default_rng(0).integers(0, _MANY, size=4 * _MANY).tolist()
    target, draft_model = (NGramModel(tokens, vocab_size=_MANY, order=n) for n in (2, 1))
    for draft in ("with_replacement", "without_replacement", "greedy"):
        for verifier in ("optimal", "layers", "block", "traversal"):
            with suppress(mdsd.UnsupportedError):
                generate(
                    target,
                    draft_model,
                    tokens[:4],
                    max_new_tokens=4,
                    draft=draft,
                    verifier=verifier,
                    tree=[_NUM_DRAFTS, 2],
                    rng=0,
                )


_JOBS = {"batches": _batches, "plans": _plans, "trees": _trees}
