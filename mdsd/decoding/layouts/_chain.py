"""Single-draft verification of many positions of chains in one call."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd._arguments import check_name, row_name
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.batch import verify_batch
from mdsd.decoding.layouts._inputs import PADDING, ProbRows, check_ids, host_ids
from mdsd.decoding.layouts._laws import DETERMINISTIC, one_hot_rows, read_law
from mdsd.errors import InvalidTokenError

__all__ = ["check_drafts", "read_chain_law", "verify_positions"]

_CHAIN_DRAFTS = ("with_replacement", "without_replacement", DETERMINISTIC)
"""Of a single token the first two are the same law."""


def read_chain_law(
    draft: Any, draft_probs: Any, shape: tuple[int, ...], words: str, target: ProbRows
) -> ProbRows | None:
    """Read the laws that the tokens of chains were drawn from, as `read_law` does.

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError
        As for `read_law`, and if `draft` is not known.
    """
    return read_law(check_name("draft", draft, _CHAIN_DRAFTS), draft_probs, shape, words, target)


def check_drafts(ids: IntArray, drafted: ProbRows | None, judged: BoolArray, size: int) -> None:
    """Check the tokens that are judged, and the laws they were drawn from.

    Raises
    ------
    InvalidTokenError
        If an id is outside the vocabulary, of `size` tokens, or its law cannot have drawn it.
    InvalidDistributionError
        If a law is bad.
    """
    check_ids(ids, judged, size, "draft_token_ids")
    if drafted is None:
        return
    drafted.check(judged)
    places = np.nonzero(judged)
    drawn = drafted.entries((*places, ids[judged])) > 0
    if not drawn.all():
        *row, position = (int(index[drawn.argmin()]) for index in places)
        raise InvalidTokenError(
            f"{row_name('draft_token_ids', row)}: id {ids[(*row, position)]} at position "
            f"{position} cannot be drawn from its row of draft_probs, where it has no mass"
        )


def verify_positions(
    target: ProbRows,
    drafted: ProbRows | None,
    ids: IntArray,
    judged: BoolArray,
    tests: FloatArray,
    residuals: FloatArray,
) -> IntArray:
    """Judge every drafted token by itself.

    Parameters
    ----------
    target, drafted : ProbRows
        Checked laws; None in the place of those they were drawn from where they were chosen.
    ids : ndarray of int64, shape (...)
    judged : ndarray of bool, shape (...)
        The drafts before padding.
    tests, residuals : ndarray, shape (...)
        Numbers in [0, 1) for the accept test and for the residual draw of each position.

    Returns
    -------
    ndarray of int64, shape (...)
        The drafted token where it is accepted, else the one drawn from the residual, and -1 where
        none is judged.
    """
    found = np.full(ids.shape, PADDING, dtype=np.int64)
    places = np.nonzero(judged)
    if len(places[0]):
        drafts = ids[places]
        verified = verify_batch(
            target.take(places),
            one_hot_rows(drafts, target) if drafted is None else drafted.take(places),
            drafts[:, np.newaxis],
            draft="with_replacement",
            verifier="single",
            uniforms=np.stack([tests[places], residuals[places]], axis=1),
        )
        found[places] = host_ids(verified.token_ids)
    return found
