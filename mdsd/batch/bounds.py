"""Acceptance bounds of a whole batch of positions in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd._typing import FloatArray
from mdsd.batch._inputs import BatchProbs, check_draft_name, check_support, make_draft, read_pair
from mdsd.batch._threads import over_rows
from mdsd.bounds import acceptance_bound
from mdsd.drafts import SpecHubDraft
from mdsd.drafts.base import check_num_drafts
from mdsd.errors import InvalidArgumentError

__all__ = ["acceptance_bounds"]


def acceptance_bounds(
    target_probs: Any,
    draft_probs: Any,
    *,
    draft: str = "with_replacement",
    num_drafts: int,
) -> FloatArray:
    """Compute the acceptance bound alpha* of many positions.

    Parameters
    ----------
    target_probs : array_like, shape (B, V)
        Law of the next token under the target model, one row for each position.
    draft_probs : array_like, shape (B, V), or (B, n, V) for independent drafts
        Output distributions of the draft model, or of the n draft models in draft order.
    draft : str, default "with_replacement"
        Draft distribution: ``with_replacement``, ``without_replacement``, ``independent``,
        ``greedy``, ``spechub`` or ``top_k``.
    num_drafts : int
        n >= 1; 2 for the SpecHub draft, the number of models for independent drafts.

    Returns
    -------
    ndarray of float64, shape (B,)
        ``acceptance_bound(target_probs[i], draft_i).value`` within 1e-12. A row gives the same bits
        alone and in any batch.

    Raises
    ------
    InvalidDistributionError
        If a probability vector is bad or too short of tokens for the draft distribution, or shapes
        do not agree; names argument, row, index and value.
    InvalidArgumentError
        If `draft` or `num_drafts` is not what it should be.
    UnsupportedError
        As for `acceptance_bound`, for two and more independent drafts.

    Notes
    -----
    All rows are checked before any bound is computed. Rows run in compiled code on all cores,
    without a copy of the probabilities if they are C-ordered float64 or float32; two and more
    independent drafts go through `acceptance_bound` row by row.

    Examples
    --------
    >>> import mdsd
    >>> mdsd.acceptance_bounds(
    ...     [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3]], [[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]], num_drafts=2
    ... ).round(12).tolist()
    [0.86, 1.0]
    """
    draft = check_draft_name(draft)
    num_drafts = check_num_drafts(num_drafts)
    if draft == SpecHubDraft.name and num_drafts != SpecHubDraft.num_drafts:
        raise InvalidArgumentError(f"num_drafts is {num_drafts}; the spechub draft has 2 drafts")
    target, drafted, models = read_pair(target_probs, draft_probs, draft)
    if models is not None and models != num_drafts:
        raise InvalidArgumentError(
            f"num_drafts is {num_drafts}; draft_probs of shape {drafted.given.shape} has {models}"
        )
    check_support(drafted, draft, num_drafts)
    if models is not None and models > 1:
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
