"""vLLM's layout: draft chains of different lengths, flattened one after another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd._arguments import check_whole
from mdsd._random import RandomSource
from mdsd._tokens import read_token_ids
from mdsd._typing import IntArray, Tensor, TensorLike
from mdsd.batch.tensors.spaces import to_host
from mdsd.decoding.layouts._chain import Chains, draws_one
from mdsd.decoding.layouts._inputs import check_ids, read_ids, read_indices, read_probs
from mdsd.decoding.layouts._kinds import read_draft
from mdsd.drafts import Draft
from mdsd.errors import InvalidArgumentError


@dataclass(frozen=True, eq=False)
class VllmFlattened:
    """Outcome of `vllm_flattened`, in arrays of the caller's kind, all int64.

    Attributes
    ----------
    token_ids : array, shape (B, max_spec_len + 1)
        Emitted tokens of each request, padded with -1: the accepted drafts, then one extra token.
    drafted : array, shape (B,)
        Drafts of each request before its first padding id.
    accepted : array, shape (B,)
        Drafts kept; the extra token is NOT counted.
    emitted : array, shape (B,)
        ``accepted + 1``: the extra token, recovered or bonus, is counted.
    """

    token_ids: Tensor
    drafted: Tensor
    accepted: Tensor
    emitted: Tensor


def vllm_flattened(
    draft_token_ids: TensorLike,
    cu_num_draft_tokens: TensorLike,
    draft_probs: TensorLike | None,
    target_probs: TensorLike,
    bonus_token_ids: TensorLike,
    *,
    draft: Draft = "with_replacement",
    max_spec_len: int | None = None,
    rng: RandomSource = None,
    uniforms: TensorLike | None = None,
) -> VllmFlattened:
    """Verify draft chains in the flattened layout of vLLM's ``rejection_sample``.

    Parameters
    ----------
    draft_token_ids : array_like or tensor of int, shape (T,)
        The drafts of all B requests, one request after another. A request ends at its first -1, if
        it has one: nothing of what stands behind it is looked at.
    cu_num_draft_tokens : array_like or tensor of int, shape (B,)
        Cumulative number of drafts up to and including each request, so that the last entry is T;
        there is no leading 0. A request without drafts repeats the entry before it.
    draft_probs : array_like or tensor, shape (T, V)
        Row t is the distribution that draft t was drawn from; None with ``draft="deterministic"``.
    target_probs : array_like or tensor, shape (T, V)
        Row t is the target's distribution of the token in the place of draft t, given the drafts
        before it. There is no row for the bonus token.
    bonus_token_ids : array_like or tensor of int, shape (B,) or (B, 1)
        For each request a token drawn from the target after all of its drafts, by the caller, with
        the same filters. It is emitted if every draft is accepted.
    draft : str or DraftKind, default "with_replacement"
        How the drafts came about, as for `flashinfer_chain`. vLLM takes missing probabilities for
        ``"deterministic"`` drafts; here that is to be said.
    max_spec_len : int, optional
        Most drafts of a request, for the width of the output; the largest of the batch by default.
    rng : numpy.random.Generator, torch.Generator, int or None
        Source of randomness; each request has a stream of its own.
    uniforms : array_like or tensor, shape (T + B,), optional
        Numbers in [0, 1) to use instead, request after request: the tests of its drafts in their
        order, then the draw of its extra token. The bonus token needs none: then that number is
        left unused.

    Returns
    -------
    VllmFlattened
        Arrays of the kind of `target_probs`, on its device.

    Raises
    ------
    InvalidDistributionError
        If a distribution that counts is bad or missing, or shapes or devices do not agree.
    InvalidTokenError
        If an id is out of range, or its distribution cannot have drawn it.
    InvalidArgumentError
        If `cu_num_draft_tokens` does not rise from 0 to T, or `draft`, `max_spec_len`, `rng` or
        `uniforms` is not what it should be.

    Notes
    -----
    The rule is that of `flashinfer_chain`; only the bonus token is the caller's. A request that
    padding cuts short has no use for its bonus token, which was drawn behind other drafts: its
    extra token is drawn from the target's row at the padding. The tokens emitted have the law of
    the target exactly, if the bonus tokens have. Distributions are verified where they are.

    Examples
    --------
    >>> from mdsd.decoding.layouts import vllm_flattened
    >>> found = vllm_flattened(
    ...     draft_token_ids=[2, 1],
    ...     cu_num_draft_tokens=[1, 1, 2],
    ...     draft_probs=[[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]],
    ...     target_probs=[[0.1, 0.3, 0.6], [0.5, 0.3, 0.2]],
    ...     bonus_token_ids=[0, 1, 2],
    ...     uniforms=[0.9, 0.5, 0.5, 0.9, 0.5],
    ... )
    >>> found.token_ids.tolist(), found.accepted.tolist(), found.emitted.tolist()
    ([[2, 0], [1, -1], [0, -1]], [1, 0, 0], [2, 1, 1])
    """
    ids = read_ids(draft_token_ids, "draft_token_ids", (None,), "(T,)")
    starts, stops = _read_bounds(cu_num_draft_tokens, len(ids))
    target = read_probs(target_probs, "target_probs", (len(ids), None), "(T, V)")
    drafted = read_draft(draft, draft_probs, draws_one, ids.shape, "(T, V)", target)
    bonus = _read_bonus(bonus_token_ids, len(stops), target.vocab_size)
    sizes = stops - starts
    width = int(sizes.max(initial=0))
    if max_spec_len is not None:
        width = check_whole("max_spec_len", max_spec_len, width)
    places = (starts[:, np.newaxis] + np.arange(width + 1),)
    chains = Chains(ids, target, *drafted, places, sizes, bonus)
    return VllmFlattened(*chains.verify(rng, uniforms, (len(ids) + len(sizes),))[:4])


def _read_bounds(cu_num_draft_tokens: Any, total: int) -> tuple[IntArray, IntArray]:
    """Read where the drafts of each request start and stop."""
    stops = read_indices(cu_num_draft_tokens, "cu_num_draft_tokens", (None,), "(B,)")
    starts = np.concatenate([np.zeros(1, dtype=np.int64), stops])[:-1]
    falls = stops < starts
    if falls.any():
        b = int(falls.argmax())
        raise InvalidArgumentError(
            f"cu_num_draft_tokens falls to {stops[b]} at request {b}; expected cumulative counts"
        )
    last = int(stops[-1]) if len(stops) else 0
    if last != total:
        raise InvalidArgumentError(
            f"cu_num_draft_tokens ends at {last}, but draft_token_ids holds {total} drafts"
        )
    return starts, stops


def _read_bonus(bonus_token_ids: Any, count: int, vocab_size: int) -> IntArray:
    """Read one bonus token for each request."""
    given = read_token_ids(to_host(bonus_token_ids), "bonus_token_ids")
    shape = (count, 1) if given.ndim == 2 else (count,)
    bonus = read_ids(given, "bonus_token_ids", shape, "(B,) or (B, 1)").reshape(-1)
    check_ids(bonus, np.ones(count, dtype=np.bool_), vocab_size, "bonus_token_ids")
    return bonus
