"""FlashInfer's layout: a batch of draft chains as dense arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mdsd._random import RandomSource
from mdsd._typing import Tensor, TensorLike
from mdsd.decoding.layouts._chain import Chains, draws_one
from mdsd.decoding.layouts._inputs import read_ids, read_probs
from mdsd.decoding.layouts._kinds import read_draft
from mdsd.drafts import Draft


@dataclass(frozen=True, eq=False)
class FlashInferChain:
    """Outcome of `flashinfer_chain`, in arrays of the caller's kind, all int64.

    Attributes
    ----------
    token_ids : array, shape (B, g + 1)
        Emitted tokens of each chain, padded with -1: the accepted drafts, then one extra token.
    drafted : array, shape (B,)
        Drafts of each chain before its first padding id.
    accepted : array, shape (B,)
        Drafts kept; the extra token is NOT counted.
    emitted : array, shape (B,)
        ``accepted + 1``: the extra token, recovered or bonus, is counted.
    output_accepted_token_num : array, shape (B,)
        FlashInfer's count of that name: drafts that pass the test when every position is tested by
        itself, also those after the first rejection. It measures how well draft and target agree;
        neither the extra token nor anything about the output is in it.
    output_emitted_draft_token_num : array, shape (B,)
        FlashInfer's count of that name, equal to `accepted`: the extra token is NOT counted.
    """

    token_ids: Tensor
    drafted: Tensor
    accepted: Tensor
    emitted: Tensor
    output_accepted_token_num: Tensor
    output_emitted_draft_token_num: Tensor


def flashinfer_chain(
    draft_probs: TensorLike | None,
    draft_token_ids: TensorLike,
    target_probs: TensorLike,
    *,
    draft: Draft = "with_replacement",
    rng: RandomSource = None,
    uniforms: TensorLike | None = None,
) -> FlashInferChain:
    """Verify a batch of draft chains in the layout of FlashInfer's ``chain_speculative_sampling``.

    Parameters
    ----------
    draft_probs : array_like or tensor, shape (B, g, V)
        Row (b, i) is the distribution that draft i of chain b was drawn from; None with
        ``draft="deterministic"``.
    draft_token_ids : array_like or tensor of int, shape (B, g)
        The drafts. A chain ends at its first -1: nothing of what stands behind it, in this array
        or in the others, is looked at.
    target_probs : array_like or tensor, shape (B, g + 1, V)
        Row (b, i) is the target's distribution of the token in the place of draft i, given the
        drafts before it; row g that of the bonus token, or, in a chain that ends early, the row
        at its end.
    draft : str or DraftKind, default "with_replacement"
        How each draft was drawn: a kind of draft that draws a single token, by chance, from one
        model. Drawing with and without replacement are then the same. Or ``"deterministic"``:
        the drafts were not drawn but chosen, as by a lookup or an argmax. `draft_probs` is None
        then, and one-hot rows stand in for it. That is lossless whatever the drafts, since given
        any of them the emitted token has the target's law; drafts that were drawn are accepted
        less often by it than by their own kind.
    rng : numpy.random.Generator, torch.Generator, int or None
        Source of randomness; each chain has a stream of its own.
    uniforms : array_like or tensor, shape (B, g + 1), optional
        Numbers in [0, 1) to use instead: entry (b, i) for i < g tests draft i, entry (b, g) draws
        the extra token. A test that is not made leaves its number unused.

    Returns
    -------
    FlashInferChain
        Arrays of the kind of `target_probs`, on its device.

    Raises
    ------
    InvalidDistributionError
        If a distribution that counts is bad or missing, or shapes or devices do not agree.
    InvalidTokenError
        If an id is out of range, or its distribution cannot have drawn it.
    InvalidArgumentError
        If `draft`, `rng` or `uniforms` is not what it should be.

    Notes
    -----
    Leviathan et al., Algorithm 1, position by position: draft x passes if ``u q(x) < p(x)``; the
    first that does not is replaced by a draw from ``(p - q)+`` by inverse CDF in token order; after
    a chain that passed as a whole, one bonus token is drawn from the target. The tokens emitted
    have the law of the target exactly. Distributions are verified where they are.

    Examples
    --------
    >>> from mdsd.decoding.layouts import flashinfer_chain
    >>> found = flashinfer_chain(
    ...     draft_probs=[[[0.2, 0.5, 0.3], [0.2, 0.5, 0.3]]],
    ...     draft_token_ids=[[2, 1]],
    ...     target_probs=[[[0.1, 0.3, 0.6], [0.5, 0.3, 0.2], [1.0, 0.0, 0.0]]],
    ...     uniforms=[[0.9, 0.9, 0.5]],
    ... )
    >>> found.token_ids.tolist(), found.accepted.tolist(), found.emitted.tolist()
    ([[2, 0, -1]], [1], [2])
    """
    ids = read_ids(draft_token_ids, "draft_token_ids", (None, None), "(B, g)")
    count, length = ids.shape
    target = read_probs(target_probs, "target_probs", (count, length + 1, None), "(B, g + 1, V)")
    drafted = read_draft(draft, draft_probs, draws_one, ids.shape, "(B, g, V)", target)
    places = tuple(np.indices((count, length + 1)))
    chains = Chains(ids, target, *drafted, places, np.full(count, length))
    found = chains.verify(rng, uniforms, (count, length + 1))
    return FlashInferChain(*found)
