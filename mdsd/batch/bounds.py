"""Acceptance bounds of a whole batch of positions in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd._typing import FloatArray
from mdsd.batch._inputs import BatchProbs, check_count, check_draft_name, make_draft, read_laws
from mdsd.batch._threads import over_rows
from mdsd.batch.tensors.spaces import check_device, device_space, is_tensor, space_of, to_host
from mdsd.bounds import acceptance_bound
from mdsd.drafts import IndependentDrafts, WithReplacement

__all__ = ["acceptance_bounds"]


def acceptance_bounds(
    target_probs: Any,
    draft_probs: Any,
    *,
    draft: str = "with_replacement",
    num_drafts: int,
) -> Any:
    """Compute the acceptance bound alpha* of many positions.

    Parameters
    ----------
    target_probs : array_like or tensor, shape (B, V)
        Law of the next token under the target model, one row for each position.
    draft_probs : array_like or tensor, shape (B, V), or (B, n, V) for independent drafts
        Output distributions of the draft model, or of the n draft models in draft order; on the
        device of `target_probs`.
    draft : str, default "with_replacement"
        Draft distribution: ``with_replacement``, ``without_replacement``, ``independent``,
        ``greedy``, ``spechub`` or ``top_k``.
    num_drafts : int
        n >= 1; 2 for the SpecHub draft, the number of models for independent drafts.

    Returns
    -------
    ndarray of float64, or tensor on the device of `target_probs`, shape (B,)
        ``acceptance_bound(target_probs[i], draft_i).value`` within 1e-12. On the host a row gives
        the same bits alone and in any batch.

    Raises
    ------
    InvalidDistributionError
        If a probability vector is bad or too short of tokens for the draft distribution, or shapes
        do not agree; names argument, row, index and value. If the arguments live on different
        devices, or a tensor requires a gradient.
    InvalidArgumentError
        If `draft` or `num_drafts` is not what it should be.
    UnsupportedError
        As for `acceptance_bound`, for two and more independent drafts.

    Notes
    -----
    All rows are checked before any bound is computed. Rows run in compiled code on all cores,
    without a copy of the probabilities if they are C-ordered float64 or float32; two and more
    independent drafts go through `acceptance_bound` row by row.

    Tensors on the host, such as those of torch, are read in place. On any other device, bounds with
    replacement are computed there; the host waits once, to hear that all rows are good. For the
    other draft distributions, and where a row is bad, the tensors are copied to the host. On a
    device without float64 everything is computed in float32, and bounds are within 2e-5.

    Probabilities that were rounded to a narrower type move a bound by at most (1 + n) u, with u
    half the spacing of that type at 1: for n = 4,

    ==========  ======  =================================================
    type        error   and
    ==========  ======  =================================================
    float32     3e-7
    float16     2.5e-3  V 1.5e-7 for all that is lost below 6e-8
    bfloat16    1e-2
    ==========  ======  =================================================

    Examples
    --------
    >>> import mdsd
    >>> mdsd.acceptance_bounds(
    ...     [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3]], [[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]], num_drafts=2
    ... ).round(12).tolist()
    [0.86, 1.0]
    """
    draft = check_draft_name(draft)
    num_drafts = check_count(draft, num_drafts)
    space = device_space(target_probs)
    check_device("target_probs", target_probs, "target_probs", space)
    check_device("draft_probs", draft_probs, "target_probs", space)
    if space is not None and draft == WithReplacement.name:
        from mdsd.batch.tensors.bounds import bounds_on_device

        found = bounds_on_device(space, target_probs, draft_probs, num_drafts)
        if found is not None:
            return found
    values = _bounds_on_host(to_host(target_probs), to_host(draft_probs), draft, num_drafts)
    return space_of(target_probs).send(values) if is_tensor(target_probs) else values


def _bounds_on_host(target_probs: Any, draft_probs: Any, draft: str, num_drafts: int) -> FloatArray:
    target, drafted = read_laws(target_probs, draft_probs, draft, num_drafts)
    if draft == IndependentDrafts.name and num_drafts > 1:
        rows = zip(target.given, drafted.given, strict=True)
        laws = ((p, make_draft(draft, q, num_drafts)) for p, q in rows)
        return np.array([acceptance_bound(p, law).value for p, law in laws], dtype=np.float64)
    return _compiled_bounds(target, drafted, draft, num_drafts)


def _compiled_bounds(
    target: BatchProbs, drafted: BatchProbs, draft: str, num_drafts: int
) -> FloatArray:
    from mdsd.batch import _bound_kernels as kernels
    from solvers.hitting import _step

    law = {
        "without_replacement": kernels.WITHOUT,
        "greedy": kernels.TOP_AND_ONE,
        "spechub": kernels.TOP_AND_ONE,  # the greedy pair in another order
        "top_k": kernels.DETERMINISTIC,
    }.get(draft, kernels.WITH)
    values = np.empty(len(target.rows))

    def bound(start: int, stop: int) -> None:
        kernels.bound_rows(
            law,
            num_drafts,
            _step(num_drafts),
            target.rows,
            target.masses,
            drafted.rows,
            drafted.masses,
            values,
            start,
            stop,
        )

    over_rows(bound, *target.rows.shape)
    return values
