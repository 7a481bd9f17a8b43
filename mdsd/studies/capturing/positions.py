"""One position: the tokens worth keeping, and their log-probabilities under every model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mdsd._typing import AnyArray, FloatArray, IntArray
from mdsd.datasets.captures import CapturedPosition


def captured_position(
    text: int, token: int, logits: Sequence[AnyArray], top_k: int | None
) -> CapturedPosition:
    """Keep the union of the most probable tokens of all models.

    Parameters
    ----------
    text : int
        Number of the text.
    token : int
        Number of the last token of the context in it.
    logits : sequence of ndarray, shape (V,)
        Of the target and of each draft model, each the logits of a distribution.
    top_k : int or None
        Tokens of each model; None for the whole vocabulary.

    Returns
    -------
    CapturedPosition
        Log-probabilities are those of the whole softmax at temperature 1, in float64; so are the
        masses of what is kept.

    Examples
    --------
    >>> found = captured_position(0, 5, np.log([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]]), top_k=1)
    >>> found.token_ids.tolist(), found.target_kept_mass
    ([0, 2], 0.7)
    """
    if top_k is None:
        ids = np.arange(len(logits[0]), dtype=np.int64)
    else:
        ids = np.unique(np.concatenate([most_probable(row, top_k) for row in logits]))
    logprobs = [_log_probs(row, ids) for row in logits]
    # A sum of probabilities may end just above 1.
    masses = np.minimum([np.exp(row).sum() for row in logprobs], 1.0)
    return CapturedPosition(
        text=text,
        token=token,
        token_ids=ids,
        target_logprobs=logprobs[0],
        draft_logprobs=np.stack(logprobs[1:]),
        target_kept_mass=float(masses[0]),
        draft_kept_mass=masses[1:],
    )


def most_probable(logits: AnyArray, count: int) -> IntArray:
    """Find the tokens of the largest logits, the lowest ids on ties.

    Parameters
    ----------
    logits : ndarray, shape (V,)
    count : int
        How many; fewer are found where fewer are possible at all.

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> sorted(most_probable(np.array([1.0, 3.0, 1.0, -np.inf]), 2).tolist())
    [0, 1]
    """
    place = max(0, len(logits) - count)
    least = np.partition(logits, place)[place]
    if least == -np.inf:
        return np.flatnonzero(logits > -np.inf)
    above = np.flatnonzero(logits > least)
    tied = np.flatnonzero(logits == least)
    return np.concatenate([above, tied[: count - len(above)]])


def _log_probs(logits: AnyArray, ids: IntArray) -> FloatArray:
    wide = logits.astype(np.float64)
    wide -= wide.max()
    kept: FloatArray = wide[ids]
    kept -= np.log(np.exp(wide, out=wide).sum())
    return kept
