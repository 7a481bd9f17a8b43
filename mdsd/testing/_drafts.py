"""The conformance suite for draft distributions: all that they state, against their tuples."""

from __future__ import annotations

from typing import Any

import numpy as np

from mdsd._arguments import check_type
from mdsd._typing import FloatArray, IntArray
from mdsd.drafts import DraftDistribution
from mdsd.testing._exact import follows
from mdsd.testing._failures import EXACT, close, require

_DRAWS = 4000


def check_draft(draft: DraftDistribution, *, seed: int = 0) -> None:
    """Check that a draft distribution is what it states; silent if it is.

    Parameters
    ----------
    draft : DraftDistribution
        One that enumerates its support; if it has `draft_probs`, its kind is checked too.
    seed : int, default 0
        Of the orders that are tried and of the sampling check.

    Raises
    ------
    CheckFailure
        If `hit_probs`, `token_hit_probs`, `prob` or `next_probs` differ by more than 1e-12 from
        what the tuples give; if tuples contradict `distinct`, `num_certain` or `certain_first`; if
        the kind makes another draft of `draft_probs`; or if `sample` does not follow the tuples.
    UnsupportedError
        If `draft` does not list its tuples.
    InvalidArgumentError
        If it is no draft distribution.

    Examples
    --------
    >>> import mdsd
    >>> mdsd.testing.check_draft(mdsd.GreedyDraft([0.2, 0.5, 0.3], 2))
    """
    check_type("draft", draft, DraftDistribution)
    ids, probs = draft.tuple_arrays()
    tokens, rng = np.arange(draft.vocab_size), np.random.default_rng(seed)
    hits = np.array([probs[(ids == i).any(axis=1)].sum() for i in tokens])
    close(draft.token_hit_probs(), hits, EXACT, "token_hit_probs is not that of the tuples")
    for order in (tokens, tokens[::-1], *(rng.permutation(tokens) for _ in range(4))):
        first = np.argsort(order)[ids].min(axis=1)
        expected = [probs[first < k].sum() for k in range(draft.vocab_size + 1)]
        close(draft.hit_probs(order), expected, EXACT, "hit_probs is not that of the tuples")
    if type(draft).prob is not DraftDistribution.prob:
        close(draft.prob(ids), probs, EXACT, "prob is not that of the tuples")
    if draft.distinct:
        ascending = np.sort(ids, axis=1)
        repeated = (ascending[:, 1:] == ascending[:, :-1]).any()
        require(not repeated, "drafts are stated to be distinct, but some tuple repeats a token")
    if draft.successive:
        _check_next_probs(draft, ids, probs)
    if hasattr(draft, "draft_probs"):
        _check_kind(draft, ids, probs)
    drawn = (draft.sample(seed, _DRAWS)[:, np.newaxis] == ids).all(axis=2)
    require(bool(drawn.any(axis=1).all()), "sample draws a tuple that is not listed")
    merged, place = np.unique(ids, axis=0, return_inverse=True)
    counts = np.bincount(place.ravel()[drawn.argmax(axis=1)], minlength=len(merged))
    merged_probs = np.bincount(place.ravel(), probs).astype(np.float64)
    follows(counts, merged_probs, "sample does not follow the tuples")


def _check_next_probs(draft: DraftDistribution, ids: IntArray, probs: FloatArray) -> None:
    """Check each token's distribution after those before it, for every beginning of a tuple."""
    for length in range(draft.num_drafts):
        for drafted in np.unique(ids[:, :length], axis=0):
            same = (ids[:, :length] == drafted).all(axis=1)
            following = np.bincount(ids[same, length], probs[same], draft.vocab_size)
            label = f"next_probs after {drafted.tolist()} is not that of the tuples"
            close(draft.next_probs(drafted), following / probs[same].sum(), EXACT, label)


def _check_kind(draft: Any, ids: IntArray, probs: FloatArray) -> None:
    """Check what a class states of all drafts that are made from output distributions."""
    kind, n = draft.own_kind, draft.num_drafts
    shape = (n, draft.vocab_size) if kind.one_model_each else (draft.vocab_size,)
    require(draft.draft_probs.shape == shape, f"draft_probs has shape {draft.draft_probs.shape}")
    remade = kind.make(draft.draft_probs, n).tuple_arrays()
    same = remade[0].shape == ids.shape and bool((remade[0] == ids).all())
    require(same, "its kind makes another draft of draft_probs")
    close(remade[1], probs, EXACT, "its kind makes another draft of draft_probs")
    certain = kind.num_certain(n)
    if certain:
        top = np.argsort(-draft.draft_probs, kind="stable")[:certain]
        leading = (ids[:, :certain] == top).all(axis=1)
        if not draft.certain_first:
            leading |= (ids[:, -certain:] == top).all(axis=1)
        require(bool(leading.all()), f"{certain} tokens are stated to be certain, but are not")
    if not kind.one_model_each and np.count_nonzero(draft.draft_probs) > n:
        everywhere = sum((ids == i).any(axis=1).all() for i in range(draft.vocab_size))
        message = f"{everywhere} tokens are in every tuple, but {certain} are stated to be certain"
        require(everywhere == certain, message)
