"""Verification of a whole batch of positions in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mdsd._random import RandomSource, read_uniforms
from mdsd._tokens import check_token_ids, read_token_ids, refuse_impossible
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.batch._inputs import (
    BatchProbs,
    check_draft_name,
    check_support,
    make_draft,
    read_pair,
)
from mdsd.batch._threads import over_rows
from mdsd.drafts import (
    DraftDistribution,
    GreedyDraft,
    IndependentDrafts,
    SpecHubDraft,
    TopKDraft,
    WithoutReplacement,
    WithReplacement,
)
from mdsd.errors import InvalidTokenError
from mdsd.verifiers import (
    GreedyVerifier,
    KSeqVerifier,
    NaiveTreeVerifier,
    NaiveVerifier,
    OptimalVerifier,
    RRSVerifier,
    SingleDraftVerifier,
    SpecHubVerifier,
    Verifier,
    get_verifier,
)
from mdsd.verifiers.optimal import _closed_form

__all__ = ["BatchVerification", "verify_batch"]


@dataclass(frozen=True, eq=False)
class BatchVerification:
    """Outcome of the verification of a batch.

    Attributes
    ----------
    token_ids : ndarray of int64, shape (B,)
        The emitted token of each row: its law is that row's target.
    accept_index : ndarray of int64, shape (B,)
        Position of the emitted token among the row's drafts (the first, if it was drafted twice),
        -1 where it was not drafted.
    """

    token_ids: IntArray
    accept_index: IntArray


def verify_batch(
    target_probs: Any,
    draft_probs: Any,
    draft_token_ids: Any,
    *,
    draft: str,
    verifier: str | Verifier,
    rng: RandomSource = None,
    uniforms: Any = None,
) -> BatchVerification:
    """Verify the drafts of many positions, each with its own target and draft distribution.

    Parameters
    ----------
    target_probs : array_like, shape (B, V)
        Law of the next token under the target model, one row for each position.
    draft_probs : array_like, shape (B, V), or (B, n, V) for independent drafts
        Output distributions of the draft model, or of the n draft models in draft order.
    draft_token_ids : array_like of int, shape (B, n)
        Tokens drawn from each row's draft distribution, in draft order.
    draft : str
        Draft distribution: ``with_replacement``, ``without_replacement``, ``independent``,
        ``greedy``, ``spechub`` or ``top_k``.
    verifier : str or Verifier
        A verifier or its name, as for `get_verifier`.
    rng : numpy.random.Generator, int or None
        Source of randomness; an integer seeds the verifying stream.
    uniforms : array_like, shape (B, num_uniforms), optional
        Numbers in [0, 1) to use instead, ``verifier.num_uniforms(draft)`` for each row.

    Returns
    -------
    BatchVerification
        For each row what ``verifier.plan(target_probs[i], draft_i).verify(draft_token_ids[i],
        uniforms=uniforms[i])`` returns, whatever the other rows are.

    Raises
    ------
    InvalidDistributionError
        If a probability vector is bad or too short of tokens for the draft distribution, or shapes
        do not agree; names argument, row, index and value.
    InvalidTokenError
        If an id is out of range, or the draft distribution cannot have drawn a row's tuple.
    InvalidArgumentError
        If `draft`, `verifier`, `rng` or `uniforms` is not what it should be.
    UnsupportedError
        If the verifier does not support the draft distribution.

    Notes
    -----
    All rows are checked before any of them is verified. ``single``, ``rrs``, ``kseq``, ``naive``,
    ``naive_tree``, ``greedy``, ``spechub``, and ``optimal`` for drafts with replacement, greedy,
    SpecHub and top-k drafts run in compiled code on all cores, without a copy of the probabilities
    if they are C-ordered float64 or float32. What is left goes through plans row by row, in the
    time that takes: ``optimal`` for other laws, ``rrs`` for several independent drafts, verifiers
    of other packages, and rows (about one in a million) that rounding could decide either way.

    Examples
    --------
    >>> import mdsd
    >>> found = mdsd.verify_batch(
    ...     [[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]],
    ...     [[0.2, 0.5, 0.3], [0.5, 0.3, 0.2]],
    ...     [[1, 2], [0, 0]],
    ...     draft="with_replacement",
    ...     verifier="rrs",
    ...     uniforms=[[0.7, 0.9, 0.5], [0.7, 0.9, 0.5]],
    ... )
    >>> found.token_ids.tolist(), found.accept_index.tolist()
    ([0, 0], [-1, 0])
    """
    draft = check_draft_name(draft)
    chosen = verifier if isinstance(verifier, Verifier) else get_verifier(verifier)
    target, drafted, models = read_pair(target_probs, draft_probs, draft)
    num_drafts = _count_drafts(draft_token_ids, draft, models)
    check_support(drafted, draft, num_drafts)
    example = _example_draft(draft, num_drafts, target.vocab_size)
    num_uniforms = chosen.num_uniforms(example)
    ids = _check_ids(draft_token_ids, target, drafted, example)
    numbers = read_uniforms(rng, uniforms, (len(ids), num_uniforms))

    tokens = np.full(len(ids), -1, dtype=np.int64)
    kernel = _kernel(chosen, example)
    if kernel is not None:
        _run(kernel, target, drafted, ids, numbers, tokens)
    # Rows without a kernel, and those that rounding could decide either way.
    for row in np.flatnonzero(tokens < 0):
        law = make_draft(draft, drafted.given[row], num_drafts)
        plan = chosen.plan(target.given[row], law)
        tokens[row] = plan.verify(ids[row], uniforms=numbers[row]).token_id
    matches = ids == tokens[:, np.newaxis]
    index = np.where(matches.any(axis=1), matches.argmax(axis=1), -1)
    return BatchVerification(tokens, index.astype(np.int64))


def _count_drafts(draft_token_ids: Any, draft: str, models: int | None) -> int:
    """Read n from the shape of the ids, unless the draft distribution says it."""
    if models is not None:
        return models
    if draft == SpecHubDraft.name:
        return SpecHubDraft.num_drafts
    shape = read_token_ids(draft_token_ids).shape
    if len(shape) != 2 or shape[1] == 0:
        raise InvalidTokenError(f"draft_token_ids has shape {shape}; expected (B, n) with n >= 1")
    return int(shape[1])


def _example_draft(draft: str, num_drafts: int, vocab_size: int) -> DraftDistribution:
    """Make some draft distribution of the kind: what does not depend on its probabilities."""
    uniform = np.full(max(vocab_size, num_drafts, 2), 1.0)
    uniform /= len(uniform)
    several = draft == IndependentDrafts.name
    return make_draft(draft, [uniform] * num_drafts if several else uniform, num_drafts)


def _check_ids(
    draft_token_ids: Any, target: BatchProbs, drafted: BatchProbs, example: DraftDistribution
) -> IntArray:
    ids = check_token_ids(
        draft_token_ids, num_drafts=example.num_drafts, vocab_size=target.vocab_size, ndim=2
    )
    if len(ids) != len(target.rows):
        raise InvalidTokenError(
            f"draft_token_ids has {len(ids)} rows, shape {ids.shape}, "
            f"but target_probs has {len(target.rows)}"
        )
    refuse_impossible(ids, _possible(ids, drafted, example), example.name)
    return ids


def _possible(ids: IntArray, drafted: BatchProbs, example: DraftDistribution) -> BoolArray:
    """Tell which rows of ids can have been drawn, as `DraftDistribution.is_possible` does."""
    if isinstance(example, IndependentDrafts):
        models = drafted.rows.reshape(*ids.shape, drafted.vocab_size)
        positive = np.take_along_axis(models, ids[:, :, np.newaxis], axis=2)[:, :, 0] > 0.0
        return np.asarray(positive.all(axis=1))
    if isinstance(example, TopKDraft):
        return _tops_match(ids, drafted)
    positive = np.take_along_axis(drafted.rows, ids, axis=1) > 0.0
    possible = np.asarray(positive.all(axis=1))
    if not isinstance(example, WithReplacement):
        ascending = np.sort(ids, axis=1)
        possible &= (ascending[:, 1:] != ascending[:, :-1]).all(axis=1)
    if isinstance(example, GreedyDraft):
        possible &= _tops_match(ids[:, :-1], drafted)
    if isinstance(example, SpecHubDraft):
        possible &= _tops_match(ids[:, :1], drafted) | _tops_match(ids[:, 1:], drafted)
    return possible


def _tops_match(tops: IntArray, drafted: BatchProbs) -> BoolArray:
    from mdsd.batch._kernels import tops_match

    ordered = np.ascontiguousarray(tops)
    matching = np.ones(len(tops), dtype=np.bool_)

    def check(start: int, stop: int) -> None:
        tops_match(drafted.rows, drafted.masses, ordered, matching, start, stop)

    over_rows(check, *drafted.rows.shape)
    return matching


_Kernel = Callable[..., None]
"""Called with target rows and masses, draft rows and masses, ids, uniforms, tokens, start, stop."""


def _kernel(verifier: Verifier, draft: DraftDistribution) -> _Kernel | None:
    """Give the kernel of a verifier for a kind of draft, or None where only its plans know.

    Types are compared exactly: a subclass may do anything.
    """
    from mdsd.batch import _kernels as kernels

    kind = type(verifier)
    if kind is OptimalVerifier:
        closed = _closed_form(draft)
        if closed is not None:
            # A single top token is drafted with probability 1, whatever its row says.
            certain = draft.num_drafts == 1 and type(draft) is TopKDraft
            return None if certain else _kernel(closed, draft)
        if type(draft) is WithReplacement:
            from mdsd.batch._mark_kernels import verify_mark_rows

            return verify_mark_rows
        return None
    rules = {
        SingleDraftVerifier: kernels.SINGLE_FIRST,
        NaiveTreeVerifier: kernels.SINGLE_FIRST,
        NaiveVerifier: kernels.NAIVE,
        KSeqVerifier: kernels.KSEQ,
        GreedyVerifier: kernels.SINGLE_LAST,
        SpecHubVerifier: kernels.SPECHUB,
    }
    if kind is RRSVerifier:
        if draft.num_drafts == 1:
            rules[kind] = kernels.SINGLE_FIRST
        elif type(draft) is WithReplacement:
            rules[kind] = kernels.RRS_STEADY
        elif type(draft) is WithoutReplacement:
            rules[kind] = kernels.RRS_SHRINKING
    return partial(kernels.verify_rows, rules[kind]) if kind in rules else None


def _run(
    kernel: _Kernel,
    target: BatchProbs,
    drafted: BatchProbs,
    ids: IntArray,
    numbers: FloatArray,
    tokens: IntArray,
) -> None:
    # Of several independent draft models only the naive verifier comes here, which asks for none.
    law = drafted if len(drafted.rows) == len(target.rows) else target
    arrays = (target.rows, target.masses, law.rows, law.masses, np.ascontiguousarray(ids), numbers)

    def verify(start: int, stop: int) -> None:
        kernel(*arrays, tokens, start, stop)

    over_rows(verify, *target.rows.shape)
