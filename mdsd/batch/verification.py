"""Verification of a whole batch of positions in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mdsd._random import RandomSource, Uniforms, read_uniforms
from mdsd._tokens import check_token_ids, read_token_ids, refuse_impossible
from mdsd._typing import BoolArray, FloatArray, IntArray, Tensor, TensorLike
from mdsd.batch._inputs import BatchProbs, check_support, example_draft, make_draft, read_pair
from mdsd.batch._rules import Rule, mark_gap, rule_of, selection_of
from mdsd.batch._threads import over_rows, plan_rows
from mdsd.batch.tensors.spaces import Located, check_device, is_whole, locate_sides
from mdsd.drafts import Draft, DraftDistribution, DraftKind, read_kind
from mdsd.errors import InvalidArgumentError, InvalidTokenError
from mdsd.rules.possible import are_distinct, are_positive
from mdsd.verifiers import Verifier, get_verifier
from mdsd.verifiers.base import accept_index

if TYPE_CHECKING:
    from mdsd.batch.tensors.selections import Method


@dataclass(frozen=True, eq=False)
class BatchVerification:
    """Outcome of the verification of a batch.

    Attributes
    ----------
    token_ids : ndarray or tensor of int64, shape (B,)
        The emitted token of each row: its law is that row's target.
    accept_index : ndarray or tensor of int64, shape (B,)
        Position of the emitted token among the row's drafts (the first, if it was drafted twice),
        -1 where it was not drafted.
    """

    token_ids: Tensor
    accept_index: Tensor


def verify_batch(
    target_probs: TensorLike,
    draft_probs: TensorLike,
    draft_token_ids: TensorLike,
    *,
    draft: Draft,
    verifier: str | Verifier,
    rng: RandomSource = None,
    uniforms: TensorLike | None = None,
) -> BatchVerification:
    """Verify the drafts of many positions, each with its own target and draft distribution.

    Parameters
    ----------
    target_probs : array_like or tensor, shape (B, V)
        Distribution of the next token under the target model, one row for each position.
    draft_probs : array_like or tensor, shape (B, V), or (B, n, V) for independent drafts
        Output distributions of the draft model, or of the n draft models in draft order; on the
        device of `target_probs`.
    draft_token_ids : array_like or tensor of int, shape (B, n)
        Tokens drawn from each row's draft distribution, in draft order; on the device of
        `target_probs` or on the host.
    draft : str or DraftKind
        Kind of draft: one of `mdsd.drafts.draft_names`, or ``kind()`` of a class.
    verifier : str or Verifier
        A verifier or its name, as for `get_verifier`.
    rng : numpy.random.Generator, torch.Generator, int or None
        Source of randomness; an integer seeds the verifying stream.
    uniforms : array_like or tensor, shape (B, num_uniforms), optional
        Numbers in [0, 1) to use instead, ``verifier.num_uniforms(draft)`` for each row; on the
        device of `target_probs` or on the host.

    Returns
    -------
    BatchVerification
        For each row what ``verifier.plan(target_probs[i], draft_i).verify(draft_token_ids[i],
        uniforms=uniforms[i])`` returns, whatever the other rows are. Arrays are of the kind of
        `target_probs` and on its device.

    Raises
    ------
    InvalidDistributionError
        If a probability vector is bad or too short of tokens for the draft distribution, or shapes
        do not agree; names argument, row, index and value. If the probabilities live on different
        devices, or a tensor requires a gradient.
    InvalidTokenError
        If an id is out of range, or the draft distribution cannot have drawn a row's tuple.
    InvalidArgumentError
        If `draft`, `verifier`, `rng` or `uniforms` is not what it should be.
    UnsupportedError
        If the verifier does not support the draft distribution.

    Notes
    -----
    All rows are checked before any of them is verified. ``single``, ``rrs``, ``kseq``, ``naive``,
    ``naive_tree``, ``greedy``, ``spechub``, and ``optimal`` for greedy, SpecHub and top-k drafts
    run in compiled code on all cores, without a copy of the probabilities if they are C-ordered
    float64 or float32. ``optimal`` runs on all cores for every other law, too, a plan for each row
    where drafts are not with replacement; the name stands for ``effort="fast"`` here. What is left
    goes through plans row by row, in the time that takes: ``rrs`` for several independent drafts,
    verifiers and drafts of other packages, and rows (about one in a million) that rounding could
    decide either way.

    Tensors on the host, such as those of torch, are read in place. On any other device, the rules
    of ``single``, ``rrs``, ``kseq``, ``spechub``, ``greedy``, ``naive`` and ``naive_tree`` run
    there for built-in drafts of one model (pairs of SpecHub whose hub is a near tie do not). So
    does a fast ``optimal``, for greedy drafts and those with and without replacement: the passes
    over the vocabulary are made on the device, what the host needs to search by comes to it in one
    transfer, and draws from the residual are made on the device again. The host waits once, to hear
    that all rows are good, or for that transfer; with `rng` it sends the uniforms, and for
    ``optimal`` what it has found. For everything else, and where a row is bad, the tensors are
    copied to the host. On the device no plan decides what rounding leaves open: about one row in
    1e9 emits another token than its plan would, though every row may whose target and draft agree
    to many digits: with ``kseq``, as any factor rho near its root is as good there, and with
    ``optimal``, as is any order of tokens. The law of what is emitted is the target to 1e-12. On a
    device without float64 everything that is as long as the vocabulary is computed in float32: the
    law is then the target to 1e-5, and V 6e-8 more for draws that cannot tell smaller masses apart;
    a search may end at another rule that is as good.

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
    kind = read_kind(draft)
    chosen = verifier if isinstance(verifier, Verifier) else get_verifier(verifier).for_many()
    target, drafted = locate_sides(target_probs, draft_probs)
    ids, numbers = Located.of(draft_token_ids), Located.of(uniforms)
    # What is small may come from the host, wherever the rest is.
    for name, small, error in (
        ("draft_token_ids", ids, InvalidTokenError),
        ("uniforms", numbers, InvalidArgumentError),
    ):
        if small.device is not None:
            check_device(name, small, "target_probs", target.device, error=error)
    found = None
    if target.device is not None:
        found = _verify_on_device(target, drafted, ids, kind, chosen, rng, numbers)
    if found is None:
        sides = target.on_host(), drafted.on_host(), ids.on_host()
        tokens, index = _verify_on_host(*sides, kind, chosen, rng, numbers.on_host())
        found = target.answer(tokens), target.answer(index)
    return BatchVerification(*found)


def _verify_on_device(
    target: Located,
    drafted: Located,
    draft_token_ids: Located,
    kind: DraftKind,
    verifier: Verifier,
    rng: RandomSource,
    uniforms: Located,
) -> tuple[Tensor, Tensor] | None:
    """Verify rows where they are, or give None for what only the host can do, or say is wrong."""
    from mdsd.batch.tensors.laws import TESTS
    from mdsd.batch.tensors.verification import verify_on_device

    ids = draft_token_ids.values
    if draft_token_ids.device is None:
        ids = read_token_ids(ids)
    known = kind.draft_type.declared and not kind.one_model_each
    if not (known and target.values.ndim == 2 and is_whole(ids) and ids.ndim == 2):
        return None
    num_drafts = ids.shape[1]
    if num_drafts == 0 or kind.refusal(num_drafts) is not None:
        return None
    # Built-in rules do not depend on the size of the vocabulary: the smallest will do.
    example = example_draft(kind, num_drafts, vocab_size=1)
    rule: Rule | Method | None = rule_of(verifier, example)
    if rule not in TESTS:
        rule = _method_of(verifier, example)
    if rule is None:
        return None
    return verify_on_device(
        target,
        drafted.values,
        ids,
        kind=kind,
        rule=rule,
        num_uniforms=verifier.num_uniforms(example),
        rng=rng,
        uniforms=uniforms,
    )


def _method_of(verifier: Verifier, draft: DraftDistribution) -> Method | None:
    if selection_of(verifier, draft) is None:
        return None
    from mdsd.batch.tensors.methods import method_of

    return method_of(verifier, draft)


def _verify_on_host(
    target_probs: ArrayLike,
    draft_probs: ArrayLike,
    draft_token_ids: ArrayLike,
    kind: DraftKind,
    verifier: Verifier,
    rng: RandomSource,
    uniforms: Uniforms,
) -> tuple[IntArray, IntArray]:
    target, drafted, models = read_pair(target_probs, draft_probs, kind)
    num_drafts = models or _count_drafts(draft_token_ids, kind)
    check_support(drafted, kind, num_drafts)
    example = example_draft(kind, num_drafts, target.vocab_size)
    num_uniforms = verifier.num_uniforms(example)
    ids = _check_ids(draft_token_ids, target, drafted, kind, num_drafts)
    numbers = read_uniforms(rng, uniforms, (len(ids), num_uniforms))

    tokens = np.full(len(ids), -1, dtype=np.int64)
    rule = rule_of(verifier, example)
    if rule is not None:
        _run(_kernel(rule, verifier), target, drafted, ids, numbers, tokens)
    # Rows without a kernel, and those that rounding could decide either way.
    left = np.flatnonzero(tokens < 0)

    def work(start: int, stop: int) -> None:
        for row in left[start:stop].tolist():
            plan = verifier.plan(target.given[row], make_draft(kind, drafted, row, num_drafts))
            tokens[row] = plan.verify(ids[row], uniforms=numbers[row]).token_id

    plan_rows(verifier, kind, work, len(left), target.vocab_size)
    return tokens, accept_index(ids, tokens)


def verify_one(
    verifier: Verifier,
    target_probs: FloatArray,
    draft: DraftDistribution,
    draft_token_ids: IntArray,
    rng: np.random.Generator,
) -> int:
    """Verify drafts that were drawn a moment ago: compiled, where that does without a plan.

    Parameters
    ----------
    verifier : Verifier
        Supports `draft`.
    target_probs : ndarray of float64, shape (V,)
        Checked.
    draft : DraftDistribution
    draft_token_ids : ndarray of int64, shape (n,)
        Drawn from it.
    rng : numpy.random.Generator

    Returns
    -------
    int
        The emitted token: that of the verifier's plan.
    """
    numbers = rng.random((1, verifier.num_uniforms(draft)))
    tokens = np.full(1, -1, dtype=np.int64)
    rule = rule_of(verifier, draft)
    if rule is not None:
        target = _rows_of(target_probs[np.newaxis])
        # Several models, or none: the rule asks for the target alone.
        drafted = _rows_of(np.atleast_2d(getattr(draft, "draft_probs", target_probs)))
        kernel = _kernel(rule, verifier)
        _run(kernel, target, drafted, draft_token_ids[np.newaxis], numbers, tokens)
    if tokens[0] < 0:
        plan = verifier.plan(target_probs, draft)
        return int(plan.verify(draft_token_ids, uniforms=numbers[0]).token_id)
    return int(tokens[0])


def _rows_of(probs: FloatArray) -> BatchProbs:
    rows = np.ascontiguousarray(probs).view()
    rows.setflags(write=False)
    return BatchProbs(rows, rows, rows.sum(axis=1), np.count_nonzero(rows, axis=1))


def _count_drafts(draft_token_ids: ArrayLike, kind: DraftKind) -> int:
    """Read n from the shape of the ids, and check that it is a number of drafts of that kind."""
    shape = read_token_ids(draft_token_ids).shape
    if len(shape) != 2 or shape[1] == 0:
        raise InvalidTokenError(f"draft_token_ids has shape {shape}; expected (B, n) with n >= 1")
    refusal = kind.refusal(shape[1])
    if refusal is not None:
        raise InvalidTokenError(f"draft_token_ids has shape {shape}; {refusal}")
    return int(shape[1])


def _check_ids(
    draft_token_ids: ArrayLike,
    target: BatchProbs,
    drafted: BatchProbs,
    kind: DraftKind,
    num_drafts: int,
) -> IntArray:
    ids = check_token_ids(
        draft_token_ids, num_drafts=num_drafts, vocab_size=target.vocab_size, ndim=2
    )
    if len(ids) != len(target.rows):
        raise InvalidTokenError(
            f"draft_token_ids has {len(ids)} rows, shape {ids.shape}, "
            f"but target_probs has {len(target.rows)}"
        )
    refuse_impossible(ids, _possible(ids, drafted, kind), kind.name)
    return ids


def _possible(ids: IntArray, drafted: BatchProbs, kind: DraftKind) -> BoolArray:
    """Tell which rows of ids can have been drawn, as `DraftDistribution.is_possible` does."""
    num_drafts = ids.shape[1]
    if not kind.draft_type.declared:
        made = (make_draft(kind, drafted, row, num_drafts) for row in range(len(ids)))
        found = [draft.is_possible(own) for draft, own in zip(made, ids, strict=True)]
        return np.array(found, dtype=np.bool_)
    if kind.one_model_each:
        positive = are_positive(drafted.rows, ids.reshape(-1, 1)).reshape(ids.shape).all(axis=1)
    else:
        positive = are_positive(drafted.rows, ids)
    possible: BoolArray = np.asarray(positive)
    if kind.distinct:
        possible &= are_distinct(ids)
    certain = kind.num_certain(num_drafts)
    if certain:
        leading = _tops_match(ids[:, :certain], drafted)
        if not kind.draft_type.certain_first:
            leading |= _tops_match(ids[:, -certain:], drafted)
        possible &= leading
    return possible


def _tops_match(tops: IntArray, drafted: BatchProbs) -> BoolArray:
    from mdsd.batch._kernels import tops_match

    matching = np.ones(len(tops), dtype=np.bool_)
    sides = drafted.rows, drafted.masses, np.ascontiguousarray(tops)
    over_rows(partial(tops_match, *sides, matching), *drafted.rows.shape)
    return matching


def _run(
    kernel: Callable[..., None],
    target: BatchProbs,
    drafted: BatchProbs,
    ids: IntArray,
    numbers: FloatArray,
    tokens: IntArray,
) -> None:
    """Fill in the tokens that a rule emits, -1 where rounding could decide either way."""
    sides = target.rows, target.masses, drafted.rows, drafted.masses
    arrays = (*sides, np.ascontiguousarray(ids), numbers, tokens)
    over_rows(partial(kernel, *arrays), *target.rows.shape)


def _kernel(rule: Rule, verifier: Verifier) -> Callable[..., None]:
    if rule is Rule.MARKS:
        from mdsd.batch._mark_rows import verify_mark_rows

        return partial(verify_mark_rows, mark_gap(verifier))
    from mdsd.batch._kernels import verify_rows

    return partial(verify_rows, int(rule))
