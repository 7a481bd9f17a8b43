"""SGLang's layout: a batch of draft trees linked by first child and next sibling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mdsd._arguments import check_whole
from mdsd._random import RandomSource
from mdsd._typing import BoolArray, IntArray, Tensor, TensorLike
from mdsd.decoding.layouts._inputs import PADDING, read_ids, read_indices
from mdsd.decoding.layouts._steps import TreeSteps
from mdsd.decoding.layouts._trees import TreeBatch, tree_from_links
from mdsd.decoding.steps import StepVerification
from mdsd.drafts import Draft
from mdsd.errors import InvalidArgumentError
from mdsd.verifiers import Verifier


@dataclass(frozen=True, eq=False)
class SglangTree:
    """Outcome of `sglang_tree`, in arrays of the caller's kind, all int64.

    Attributes
    ----------
    predicts : array, shape (B * N,)
        At the slot of each node of the accepted path, the token emitted after that node; -1 at all
        other slots.
    accept_index : array, shape (B, S)
        Slots of the nodes of the accepted path, the root first, padded with -1: the tokens emitted
        are ``predicts`` at these slots.
    accept_token_num : array, shape (B,)
        Accepted drafts; neither the root nor the extra token at the end is counted.
    token_ids : array, shape (B, S)
        Emitted tokens of each tree, padded with -1: the accepted drafts, then one extra token.
    accepted : array, shape (B,)
        The same as `accept_token_num`: the extra token is NOT counted.
    emitted : array, shape (B,)
        ``accepted + 1``: the extra token, recovered or bonus, is counted.
    """

    predicts: Tensor
    accept_index: Tensor
    accept_token_num: Tensor
    token_ids: Tensor
    accepted: Tensor
    emitted: Tensor


def sglang_tree(
    *,
    candidates: TensorLike,
    retrive_index: TensorLike | None = None,
    retrive_next_token: TensorLike | None = None,
    retrive_next_sibling: TensorLike | None = None,
    retrieve_index: TensorLike | None = None,
    retrieve_next_token: TensorLike | None = None,
    retrieve_next_sibling: TensorLike | None = None,
    target_probs: TensorLike,
    draft_probs: TensorLike | None = None,
    draft: Draft,
    verifier: str | Verifier | StepVerification | None = None,
    num_speculative_tokens: int | None = None,
    rng: RandomSource = None,
    uniforms: TensorLike | None = None,
) -> SglangTree:
    """Verify a batch of draft trees in the layout of SGLang's tree verification kernels.

    Each of the three index arrays goes by either spelling.

    Parameters
    ----------
    candidates : array_like or tensor of int, shape (B, N)
        Token of each node. Node 0 is the root, the last token known: it is not tested. A node with
        the id -1 is left out, with everything below it.
    retrive_index : array_like or tensor of int, shape (B, N)
        Slot of each node in `predicts`, in 0..B N - 1, different for all nodes in use: in SGLang
        ``b N + i``. Nodes out of reach of the root may hold anything.
    retrive_next_token : array_like or tensor of int, shape (B, N)
        Number of the first child of each node within its tree, -1 for a leaf.
    retrive_next_sibling : array_like or tensor of int, shape (B, N)
        Number of the next sibling of each node within its tree, -1 after the last. From the first
        child on, siblings are in the order in which they were drafted.
    target_probs : array_like or tensor, shape (B, N, V)
        Row (b, i) is the target's distribution of the token after node i. For greedy decoding, as
        in ``verify_tree_greedy``, one-hot rows.
    draft_probs : array_like or tensor, shape (B, N, V)
        Row (b, i) is the draft model's output after node i, from which its children were drawn;
        rows of leaves are not looked at. None with ``draft="deterministic"``.
    draft : str or DraftKind
        How the children of each node were drawn together: any kind of draft from one model, such
        as ``"without_replacement"``, or ``"deterministic"`` for children that were chosen in
        whatever way without chance, which is what SGLang goes by. The last is lossless whatever the
        children; where they were drawn, their own kind accepts more.
    verifier : str, Verifier or StepVerification, optional
        Any verifier that supports that kind: one of a single step, used level by level, or one of
        whole paths, such as ``"layers"``, ``"block"`` or ``"traversal"``. By default the first of
        ``rrs``, ``greedy``, ``spechub`` and ``naive`` that does, and ``naive``, which is SGLang's
        target-only rule, for deterministic ones.
    num_speculative_tokens : int, optional
        S, the width of `accept_index`: most nodes on a path, the root included. By default the
        deepest tree says it.
    rng : numpy.random.Generator, torch.Generator, int or None
        Source of randomness; each tree has a stream of its own.
    uniforms : array_like or tensor, shape (B, L, m), optional
        Numbers in [0, 1) to use instead, where L is the number of levels of the deepest tree, the
        root's included, and m the largest ``verifier.num_uniforms`` of any node with children (1 if
        there is none). Row (b, d) belongs to the node of depth d on the accepted path of tree b:
        what the verifier needs there, in the verifier's order; at a leaf its first entry draws the
        bonus token. Not with verifiers of whole paths, which take as many numbers as they happen to
        need.

    Returns
    -------
    SglangTree
        Arrays of the kind of `target_probs`, on its device.

    Raises
    ------
    InvalidDistributionError
        If a distribution that counts is bad or missing, or shapes or devices do not agree.
    InvalidTokenError
        If an id is out of range, or siblings cannot have been drawn together.
    InvalidArgumentError
        If an index array is missing, given in both spellings or no tree, or `draft`, `verifier`,
        `num_speculative_tokens`, `rng` or `uniforms` is not what it should be, or `uniforms` comes
        with a verifier of whole paths.
    UnsupportedError
        If the verifier does not support the kind of draft.

    Notes
    -----
    From the root on, the verifier emits a token given the children of the node. If it is the token
    of a child, that child is accepted and the next node (the first one, should two children be the
    same); a residual token that happens to be drafted counts too. Otherwise the path ends with it.
    A path that reaches a leaf ends with a bonus token from the target there. The tokens emitted
    have the law of the target exactly. SGLang's thresholds, which give that up, are not offered.
    SGLang draws the extra token by a coin of its own; with ``naive`` one number decides both
    whether a child is accepted and what is emitted else. Distributions are verified where they are.

    A verifier of whole paths decides about each tree by itself, by a rule of its own, and on the
    host: the draft model's rows of a tree come there together, and the target's one by one, as they
    are asked for. The law of the tokens emitted is the target's exactly, provided that the shape of
    a tree depends on nothing that is drawn later. Only a `mdsd.decoding.BiasedVerification` gives
    that up, as it says.

    Examples
    --------
    A root with the children 5 and 3, and 7 below 5, all chosen:

    >>> import numpy as np
    >>> from mdsd.decoding.layouts import sglang_tree
    >>> found = sglang_tree(
    ...     candidates=[[1, 5, 3, 7]],
    ...     retrive_index=[[0, 1, 2, 3]],
    ...     retrive_next_token=[[1, 3, -1, -1]],
    ...     retrive_next_sibling=[[-1, 2, -1, -1]],
    ...     target_probs=np.eye(8)[[[5, 2, 0, 0]]],
    ...     draft="deterministic",
    ...     rng=0,
    ... )
    >>> found.predicts.tolist(), found.accept_index.tolist(), found.accept_token_num.tolist()
    ([5, 2, -1, -1], [[0, 1, -1]], [1])
    >>> found.token_ids.tolist(), found.emitted.tolist()
    ([[5, 2, -1]], [2])
    """
    ids = read_ids(candidates, "candidates", (None, None), "(B, N)")
    count, size = ids.shape
    if size == 0:
        raise InvalidArgumentError("candidates has no nodes; a tree has at least its root")
    slots, slots_name = _read_links(retrive_index, retrieve_index, ids.shape, "index")
    first = _read_links(retrive_next_token, retrieve_next_token, ids.shape, "next_token")
    sibling = _read_links(retrive_next_sibling, retrieve_next_sibling, ids.shape, "next_sibling")
    found = []
    for b, links in enumerate(zip(first[0], sibling[0], strict=True)):
        found.append(tree_from_links(*links, (f"{first[1]} row {b}", f"{sibling[1]} row {b}")))
    trees = TreeBatch.of(found, ids)
    _check_slots(slots, trees.used, slots_name)
    width = int(trees.num_levels.max(initial=1))
    if num_speculative_tokens is not None:
        width = check_whole("num_speculative_tokens", num_speculative_tokens, width)
    probs = (target_probs, draft_probs)
    steps = TreeSteps.read(trees, ids, "candidates", probs, draft, verifier)
    paths = steps.run(rng, uniforms)

    predicts = np.full(count * size, PADDING, dtype=np.int64)
    accept_index = np.full((count, width), PADDING, dtype=np.int64)
    tokens = accept_index.copy()
    on_path = np.nonzero(paths.nodes != PADDING)
    accept_index[on_path] = slots[on_path[0], paths.nodes[on_path]]
    tokens[on_path] = paths.emitted(ids)[on_path]
    predicts[accept_index[on_path]] = tokens[on_path]
    accepted = paths.lengths - 1
    results = (predicts, accept_index, accepted, tokens, accepted.copy(), accepted + 1)
    return SglangTree(*(steps.target.hand_over(array) for array in results))


def _read_links(short: Any, long: Any, shape: tuple[int, ...], part: str) -> tuple[IntArray, str]:
    """Read one of the index arrays in either spelling, and the name it was given by."""
    names = (f"retrive_{part}", f"retrieve_{part}")
    if short is not None and long is not None:
        raise InvalidArgumentError(f"{names[0]} and {names[1]} are both given; expected one")
    given, name = (short, names[0]) if long is None else (long, names[1])
    return read_indices(given, name, shape, f"({shape[0]}, {shape[1]}), as candidates"), name


def _check_slots(slots: IntArray, used: BoolArray, name: str) -> None:
    """Check that all nodes in use have different slots of `predicts`."""
    outside = used & ((slots < 0) | (slots >= slots.size))
    if outside.any():
        b, node = np.argwhere(outside)[0]
        raise InvalidArgumentError(
            f"{name} row {b}: slot {slots[b, node]} of node {node} is outside 0..{slots.size - 1}"
        )
    rows, nodes = np.nonzero(used)
    _, first = np.unique(slots[used], return_index=True)
    taken = np.ones(len(rows), dtype=np.bool_)
    taken[first] = False
    if taken.any():
        k = int(taken.argmax())
        raise InvalidArgumentError(
            f"{name} row {rows[k]}: slot {slots[rows[k], nodes[k]]} of node {nodes[k]} is taken by "
            "another node"
        )
