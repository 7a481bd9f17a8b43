"""EAGLE's layout: one draft tree, listed by the paths to its leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mdsd._random import RandomSource
from mdsd._typing import Tensor, TensorLike
from mdsd.decoding.layouts._inputs import read_ids, read_indices
from mdsd.decoding.layouts._steps import TreeSteps
from mdsd.decoding.layouts._trees import TreeBatch, tree_from_paths
from mdsd.decoding.steps import StepVerification
from mdsd.drafts import Draft
from mdsd.errors import InvalidArgumentError
from mdsd.verifiers import Verifier


@dataclass(frozen=True, eq=False)
class EagleTree:
    """Outcome of `eagle_tree`.

    Attributes
    ----------
    best_candidate : int
        The first row of `retrieve_indices` that starts with the accepted path.
    accept_length : int
        Accepted drafts; neither the root nor the token after them is counted. The accepted path is
        ``retrieve_indices[best_candidate, : accept_length + 1]``.
    next_token_probs : array of float64, shape (V,)
        Distribution of the token after the accepted path, of the caller's kind and on the caller's
        device: EAGLE's ``sample_p``.
    token_id : int
        A token drawn from `next_token_probs`: emit it, or draw another from them, not both.
    """

    best_candidate: int
    accept_length: int
    next_token_probs: Tensor
    token_id: int

    @property
    def accepted(self) -> int:
        """The same as `accept_length`: the token after the path is NOT counted."""
        return self.accept_length

    @property
    def emitted(self) -> int:
        """``accepted + 1``: the token after the path, recovered or bonus, is counted."""
        return self.accept_length + 1


def eagle_tree(
    draft_token_ids: TensorLike,
    retrieve_indices: TensorLike,
    draft_probs: TensorLike | None,
    target_probs: TensorLike,
    *,
    draft: Draft,
    verifier: str | Verifier | StepVerification | None = None,
    rng: RandomSource = None,
    uniforms: TensorLike | None = None,
) -> EagleTree:
    """Verify one draft tree in the layout of EAGLE's ``evaluate_posterior``.

    Parameters
    ----------
    draft_token_ids : array_like or tensor of int, shape (N,)
        Token of each node (EAGLE's ``draft_tokens`` without its batch axis). Node 0 is the root,
        the last token known: it is not tested. A node with the id -1 is left out, with everything
        below it.
    retrieve_indices : array_like or tensor of int, shape (L, D)
        For each leaf the numbers of the nodes on the path to it, the root first; a row ends at its
        first -1. Siblings were drafted in the order of their numbers, whatever the order of rows.
    draft_probs : array_like or tensor, shape (N, V)
        Row i is the draft model's output after node i, from which its children were drawn; rows of
        leaves are not looked at. None with ``draft="deterministic"``.
    target_probs : array_like or tensor, shape (N, V)
        Row i is the target's distribution of the token after node i: node by node, before any
        indexing with `retrieve_indices`, which would read a wrong row at every -1.
    draft : str or DraftKind
        How the children of each node were drawn together, as for `sglang_tree`. EAGLE-2 chooses
        them by top-k: that is ``deterministic``.
    verifier : str, Verifier or StepVerification, optional
        As for `sglang_tree`. One of whole paths decides about the token together with the path: all
        mass of `next_token_probs` is then on `token_id`.
    rng : numpy.random.Generator, torch.Generator, int or None
        Source of randomness.
    uniforms : array_like or tensor, shape (L, m), optional
        Numbers in [0, 1) to use instead: one row for each level, as for one tree of `sglang_tree`.
        Not with verifiers of whole paths.

    Returns
    -------
    EagleTree

    Raises
    ------
    InvalidDistributionError
        If a distribution that counts is bad or missing, or shapes or devices do not agree.
    InvalidTokenError
        If an id is out of range, or siblings cannot have been drawn together.
    InvalidArgumentError
        If `retrieve_indices` holds no tree, or `draft`, `verifier`, `rng` or `uniforms` is not what
        it should be, or `uniforms` comes with a verifier of whole paths.
    UnsupportedError
        If the verifier does not support the kind of draft.

    Notes
    -----
    The rule is that of `sglang_tree`. Where a path ends that a verifier has gone down level by
    level, its output law, given the children of the last node and that none of them is emitted, is
    `next_token_probs`; after a leaf it is the target's own distribution. Accepted path and a token
    from it have the law of the target exactly. EAGLE's own rule is ``verifier="rrs"``: on
    deterministic children it accepts as often as ``naive``. Distributions are verified where they
    are, except by verifiers of whole paths.

    Examples
    --------
    A root with the children 5 and 3, and 7 below 5, all chosen:

    >>> import numpy as np
    >>> from mdsd.decoding.layouts import eagle_tree
    >>> found = eagle_tree(
    ...     draft_token_ids=[1, 5, 3, 7],
    ...     retrieve_indices=[[0, 1, 3], [0, 2, -1]],
    ...     draft_probs=None,
    ...     target_probs=np.eye(8)[[3, 0, 6, 0]],
    ...     draft="deterministic",
    ...     rng=0,
    ... )
    >>> found.best_candidate, found.accept_length, found.emitted, found.token_id
    (1, 1, 2, 6)
    >>> found.next_token_probs.tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    """
    ids = read_ids(draft_token_ids, "draft_token_ids", (None,), "(N,)")
    if len(ids) == 0:
        raise InvalidArgumentError("draft_token_ids has no nodes; a tree has at least its root")
    indices = read_indices(retrieve_indices, "retrieve_indices", (None, None), "(L, D)")
    tree = tree_from_paths(indices, len(ids), "retrieve_indices")
    trees, probs = TreeBatch.of([tree], ids[np.newaxis]), (target_probs, draft_probs)
    steps = TreeSteps.read(trees, ids, "draft_token_ids", probs, draft, verifier)
    paths = steps.run(rng, uniforms)

    length, token = int(paths.lengths[0]), int(paths.token_ids[0])
    path = paths.nodes[0, :length]
    starts = (indices[:, :length] == path).all(axis=1)
    best = int(starts.argmax()) if len(starts) else 0
    after = steps.probs_after(0, int(path[-1]), token)
    return EagleTree(best, length - 1, steps.target.hand_over(after), token)
