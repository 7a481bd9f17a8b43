"""Acceptance bounds of a whole batch of positions in one call."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mdsd._typing import FloatArray, Tensor, TensorLike
from mdsd.batch._inputs import check_support, example_draft, make_draft, read_pair
from mdsd.batch._rules import bound_of
from mdsd.batch._values import closed_values
from mdsd.batch.tensors.spaces import Located, check_device
from mdsd.bounds import acceptance_bound, check_search_options
from mdsd.drafts import Draft, DraftKind, WithReplacement, read_kind


def acceptance_bounds(
    target_probs: TensorLike,
    draft_probs: TensorLike,
    *,
    draft: Draft = "with_replacement",
    num_drafts: int,
    tolerance: float = 1e-9,
) -> Tensor:
    """Compute the acceptance bound alpha* of many positions.

    Parameters
    ----------
    target_probs : array_like or tensor, shape (B, V)
        Distribution of the next token under the target model, one row for each position.
    draft_probs : array_like or tensor, shape (B, V), or (B, n, V) for independent drafts
        Output distributions of the draft model, or of the n draft models in draft order; on the
        device of `target_probs`.
    draft : str or DraftKind, default "with_replacement"
        Kind of draft: one of `mdsd.drafts.draft_names`, or ``kind()`` of a class.
    num_drafts : int
        n >= 1; 2 for the SpecHub draft, the number of models for independent drafts.
    tolerance : float, default 1e-9
        As for `acceptance_bound`, where a bound has to be searched for.

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
        If `draft`, `num_drafts` or `tolerance` is not what it should be.
    UnsupportedError
        As for `acceptance_bound`, for kinds without compiled code.

    Notes
    -----
    All rows are checked before any bound is computed. Rows run in compiled code on all cores,
    without a copy of the probabilities if they are C-ordered float64 or float32; two and more
    independent drafts, and kinds of other packages, go through `acceptance_bound` row by row.

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
    kind = read_kind(draft)
    num_drafts = kind.check_count(num_drafts)
    check_search_options(tolerance, None)
    target, drafted = Located.of(target_probs), Located.of(draft_probs)
    check_device("target_probs", target, "target_probs", target.device)
    check_device("draft_probs", drafted, "target_probs", target.device)
    if target.device is not None and kind.draft_type is WithReplacement:
        from mdsd.batch.tensors.bounds import bounds_on_device

        found = bounds_on_device(target.device, target_probs, draft_probs, num_drafts)
        if found is not None:
            return found
    sides = target.on_host(), drafted.on_host()
    return target.answer(_bounds_on_host(*sides, kind, num_drafts, tolerance))


def _bounds_on_host(
    target_probs: ArrayLike,
    draft_probs: ArrayLike,
    kind: DraftKind,
    num_drafts: int,
    tolerance: float,
) -> FloatArray:
    target, drafted, _ = read_pair(target_probs, draft_probs, kind)
    check_support(drafted, kind, num_drafts)
    bound = bound_of(example_draft(kind, num_drafts, target.vocab_size))
    if bound is not None:
        return closed_values(bound, target, drafted, num_drafts)
    rows = range(len(target.rows))
    made = (make_draft(kind, drafted, row, num_drafts) for row in rows)
    bounds = (
        acceptance_bound(p, draft, tolerance=tolerance)
        for p, draft in zip(target.given, made, strict=True)
    )
    return np.array([bound.value for bound in bounds], dtype=np.float64)
