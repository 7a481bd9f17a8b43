"""Verification of batches of draft trees, level by level, with any one-step verifier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mdsd._arguments import row_name
from mdsd._probabilities import check_probs
from mdsd._random import RandomSource
from mdsd._typing import BoolArray, FloatArray, IntArray
from mdsd.batch import verify_batch
from mdsd.batch.tensors.spaces import to_host
from mdsd.decoding.layouts._inputs import PADDING, Places, ProbRows, check_ids, draw_rows, host_ids
from mdsd.decoding.layouts._laws import ChildrenLaw
from mdsd.decoding.layouts._trees import TreeBatch
from mdsd.decoding.layouts._uniforms import read_numbers
from mdsd.drafts import read_kind
from mdsd.errors import InvalidDistributionError, InvalidTokenError
from mdsd.verifiers import Verifier

__all__ = ["Paths", "TreeSteps"]

_INSIDE = 0.6180339887498949
"""A number in [0, 1) for draws whose outcome is of no interest: no sum is likely to hit it."""


@dataclass(frozen=True, eq=False)
class Paths:
    """Where the verification of each tree of a batch ended.

    Attributes
    ----------
    nodes : ndarray of int64, shape (B, L)
        The path of accepted nodes of each tree, the root first, padded with -1.
    lengths : ndarray of int64, shape (B,)
        Number of these nodes, the root included.
    token_ids : ndarray of int64, shape (B,)
        The token emitted after it: a residual token, or the target's own where it ends in a leaf.
    """

    nodes: IntArray
    lengths: IntArray
    token_ids: IntArray

    def emitted(self, ids: IntArray) -> IntArray:
        """Tokens emitted by each tree, (B, L), padded with -1: those of its path, then the last.

        Parameters
        ----------
        ids : ndarray of int64, shape (B, N)
            Token of each node.
        """
        tokens = np.full(self.nodes.shape, PADDING, dtype=np.int64)
        rows, columns = np.nonzero(self.nodes[:, 1:] != PADDING)
        tokens[rows, columns] = ids[rows, self.nodes[rows, columns + 1]]
        tokens[np.arange(len(tokens)), self.lengths - 1] = self.token_ids
        return tokens


@dataclass(frozen=True, eq=False)
class TreeSteps:
    """A batch of draft trees with the laws of their nodes.

    Attributes
    ----------
    trees : TreeBatch
    ids : ndarray of int64, shape (B, N)
        Token of each node; that of a root is not looked at.
    target : ProbRows, shape (B, N, V)
        Law of the token after each node.
    drafted : ProbRows, shape (B, N, V), or None
        Law that the children of each node were drawn from; None where all are deterministic.
    deterministic : ndarray of bool, shape (B, N)
        Nodes whose children were chosen, not drawn.
    draft : str
        Draft distribution of the children of all other nodes.
    verifier : Verifier
    ids_name : str
        What to call the ids in an error.
    """

    trees: TreeBatch
    ids: IntArray
    target: ProbRows
    drafted: ProbRows | None
    deterministic: BoolArray
    draft: str
    verifier: Verifier
    ids_name: str

    # --- what does not depend on the draws -------------------------------------------------------

    def check(self) -> None:
        """Check every law and every token that the trees lead to; nothing else is looked at.

        Raises
        ------
        InvalidTokenError
            If a token is out of range, or children cannot have been drawn together.
        InvalidDistributionError
            If a law is bad or too short of tokens for its draft distribution.
        UnsupportedError
            If the verifier does not support the draft distribution.
        """
        _ = self.corners  # refuses laws that the verifier does not support
        used, inner = self.trees.used, self.trees.num_children > 0
        self.target.check(used)
        judged = used.copy()
        judged[:, :1] = False
        check_ids(self.ids, judged, self.target.vocab_size, self.ids_name, self.target.alone)
        for law, places in self._by_law(np.nonzero(inner)):
            self._check_children(law, places)

    def _check_children(self, law: ChildrenLaw, places: Places) -> None:
        """Check the laws of children, and that they can have been drawn together."""
        ids = self._children(law, places)
        if law.chosen:
            ascending = np.sort(ids, axis=1)
            repeated = (ascending[:, 1:] == ascending[:, :-1]).any(axis=1)
            if repeated.any():
                raise InvalidTokenError(f"{self._named(places, repeated.argmax())} repeat a token")
            return
        rows = self._law_rows(law, places, ids)
        try:
            # The naive verifier supports every law: this checks laws and drafts, and draws a token.
            verify_batch(
                self.target.take(places),
                rows,
                ids,
                draft=law.draft,
                verifier="naive",
                uniforms=np.full((len(ids), 1), _INSIDE),
            )
        except (InvalidDistributionError, InvalidTokenError):
            # What is left is to name the place as the caller knows it.
            host = to_host(rows)
            for k, drafts in enumerate(ids):
                name, place = self._named(places, k), _at(places, k)
                self._check_node(law, host[k, ...], drafts, name, place)
            raise

    def _check_node(
        self, law: ChildrenLaw, row: Any, drafts: IntArray, name: str, place: list[int]
    ) -> None:
        try:
            known = read_kind(law.draft).make(row, law.num_drafts)
        except InvalidDistributionError as error:
            where = row_name("draft_probs", place[self.target.alone :])
            message = str(error).replace("draft_probs", where, 1)
            raise InvalidDistributionError(message) from None
        if not known.is_possible(drafts):
            raise InvalidTokenError(
                f"{name} cannot be drawn from the {law.draft} draft distribution"
            )

    def _named(self, places: Places, k: int | np.integer[Any]) -> str:
        """Name the children of a node, for an error."""
        b, node = place = _at(places, k)
        children = self.trees.children[b, node, : self.trees.num_children[b, node]]
        name = row_name(self.ids_name, place[self.target.alone : -1])
        return f"{name}: the children {self.ids[b, children].tolist()} of node {node}"

    @cached_property
    def _laws(self) -> dict[tuple[int, bool], ChildrenLaw]:
        """Laws of children by their number and whether they were chosen."""
        inner = self.trees.num_children > 0
        keys = np.stack([self.trees.num_children[inner], self.deterministic[inner]], axis=1)
        return {
            (count, bool(chosen)): ChildrenLaw.chosen_for(self.verifier, count)
            if chosen
            else ChildrenLaw(self.draft, count)
            for count, chosen in np.unique(keys, axis=0).tolist()
        }

    def _by_law(self, places: Places) -> Iterator[tuple[ChildrenLaw, Places]]:
        """Group nodes with children, (tree, node), by the law of these."""
        counts, chosen = self.trees.num_children[places], self.deterministic[places]
        for (count, certain), law in self._laws.items():
            (members,) = np.nonzero((counts == count) & (chosen == certain))
            if len(members):
                yield law, (places[0][members], places[1][members])

    def _law_rows(self, law: ChildrenLaw, places: Places, ids: IntArray) -> Any:
        """Give the laws of the children of nodes, as `verify_batch` takes them."""
        if self.drafted is None or law.chosen:
            return law.chosen_rows(ids, self.target)
        return self.drafted.take(places)

    def _children(self, law: ChildrenLaw, places: Places) -> IntArray:
        """Tokens, (R, n), of the children of nodes that have n of them."""
        nodes = self.trees.children[places][:, : law.num_drafts]
        return self.ids[places[0][:, np.newaxis], nodes]

    # --- randomness ------------------------------------------------------------------------------

    @cached_property
    def corners(self) -> list[tuple[int, int]]:
        """Levels of each tree, and most numbers that one of its nodes takes."""
        numbers = np.ones(self.ids.shape, dtype=np.int64)
        for law, places in self._by_law(np.nonzero(self.trees.num_children)):
            numbers[places] = self.verifier.num_uniforms(law.example)
        most = numbers.max(axis=1)
        return list(zip(self.trees.num_levels.tolist(), most.tolist(), strict=True))

    @property
    def numbers_shape(self) -> tuple[int, int, int]:
        """Shape (B, L, m) of the numbers of a verification."""
        levels = max((levels for levels, _ in self.corners), default=1)
        return len(self.ids), levels, max((count for _, count in self.corners), default=1)

    def read_numbers(self, rng: RandomSource, uniforms: Any) -> FloatArray:
        """Read the caller's numbers, (B, L, m), or draw them."""
        return read_numbers(rng, uniforms, self.numbers_shape, self.corners)

    # --- verification ----------------------------------------------------------------------------

    def verify(self, numbers: FloatArray) -> Paths:
        """Go down every tree from its root until a token is emitted that was not drafted there.

        Parameters
        ----------
        numbers : ndarray, shape (B, L, m)
            Entry (b, d) feeds the verification at the node of depth d on the path of tree b, or
            the draw from the target if that node is a leaf.
        """
        count, levels = numbers.shape[:2]
        nodes = np.full((count, levels), PADDING, dtype=np.int64)
        tokens = np.full(count, PADDING, dtype=np.int64)
        going = np.arange(count)
        current = np.zeros(count, dtype=np.int64)
        for depth in range(levels):
            nodes[going, depth] = current
            ends = self.trees.num_children[going, current] == 0
            leaves = (going[ends], current[ends])
            tokens[leaves[0]] = draw_rows(self.target.take(leaves), numbers[leaves[0], depth, 0])
            further = np.full(count, PADDING, dtype=np.int64)
            for law, places in self._by_law((going[~ends], current[~ends])):
                rows = places[0]
                tokens[rows], index = self._emit(law, places, numbers[rows, depth])
                child = self.trees.children[(*places, index)]
                further[rows] = np.where(index >= 0, child, PADDING)
            (going,) = np.nonzero(further != PADDING)
            current = further[going]
        return Paths(nodes, (nodes != PADDING).sum(axis=1), tokens)

    def _emit(
        self, law: ChildrenLaw, places: Places, numbers: FloatArray
    ) -> tuple[IntArray, IntArray]:
        """Emit a token after each node, and find its index among the children, -1 for none."""
        ids = self._children(law, places)
        found = verify_batch(
            self.target.take(places),
            self._law_rows(law, places, ids),
            ids,
            draft=law.draft,
            verifier=self.verifier,
            uniforms=numbers[:, : self.verifier.num_uniforms(law.example)],
        )
        return host_ids(found.token_ids), host_ids(found.accept_index)

    def law_after(self, b: int, node: int, token: int) -> FloatArray:
        """Law, (V,), of the token emitted after a node, given that the path ends there.

        Of the tokens emitted at a node those that were drafted go on: what is left of their law,
        normalised. `token` was drawn from it.
        """
        target = check_probs(to_host(self.target.values[b, node, ...]), self.target.name)
        if self.trees.num_children[b, node] == 0:
            return target.copy()
        ((law, places),) = self._by_law((np.array([b]), np.array([node])))
        ids = self._children(law, places)
        row = to_host(self._law_rows(law, places, ids))[0, ...]
        plan = self.verifier.plan(target, read_kind(law.draft).make(row, law.num_drafts))
        left = plan.output_law(ids[0])
        left[ids[0]] = 0.0
        if not left.any():
            # Once rounded, stopping here has no probability left, yet a number led here.
            left[token] = 1.0
        return np.asarray(left / left.sum())


def _at(places: Places, k: int | np.integer[Any]) -> list[int]:
    """Give the tree and the node of one place."""
    return [int(index[k]) for index in places]
