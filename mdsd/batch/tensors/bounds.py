"""Acceptance bounds with replacement on the device: every prefix of tokens sorted by p/q."""

from __future__ import annotations

from mdsd._typing import Tensor
from mdsd.batch.tensors.inputs import pieces, read_probs
from mdsd.batch.tensors.spaces import Space
from mdsd.rules.arrays import falling_order, namespace, take
from mdsd.rules.kseq import capped_ratios
from mdsd.rules.sums import any_of, running_sums, sums_after


def bounds_on_device(
    space: Space, target_probs: Tensor, draft_probs: Tensor, num_drafts: int
) -> Tensor | None:
    """Compute bounds for n independent draws, or None where an argument did not pass its checks.

    Parameters
    ----------
    space : Space
    target_probs, draft_probs : array, shape (B, V)
        The callers' arrays.
    num_drafts : int
        n.

    Returns
    -------
    array, shape (B,), or None
    """
    target, drafted = read_probs(space, target_probs), read_probs(space, draft_probs)
    if target is None or drafted is None or target_probs.shape != draft_probs.shape:
        return None
    if not bool(target.good & drafted.good):
        return None
    found = [space.zeros(0)]
    for rows in pieces(target_probs.shape):
        p, q = target.probs(rows), drafted.probs(rows)
        found.append(bounds_with_replacement(p, q, num_drafts))
    return space.xp.concat(found, axis=0)


def bounds_with_replacement(p: Tensor, q: Tensor, num_drafts: int) -> Tensor:
    """Compute ``min over k of p(H_k) + 1 - (1 - q(A_k))**n``, A_k the first k tokens by p/q.

    Parameters
    ----------
    p, q : array, shape (B, V)
        Target and draft probabilities.
    num_drafts : int
        n.

    Returns
    -------
    array, shape (B,)

    Notes
    -----
    Hu et al., "Towards Optimal Multi-draft Speculative Decoding": the hit function is q-convex, so
    some prefix attains the minimum of eq. (8).
    """
    order = falling_order(capped_ratios(p, q, num_drafts))
    p, q = take(p, order), take(q, order)
    values = sums_after(p) + any_of(running_sums(q), num_drafts)
    return namespace(p).min(values, axis=-1)
