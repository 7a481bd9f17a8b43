"""Verification of batches of draft trees: level by level as batches, or tree by tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from mdsd._arguments import row_name
from mdsd._probabilities import check_probs
from mdsd._random import RandomSource
from mdsd._typing import BoolArray, FloatArray, IntArray, TensorLike
from mdsd.batch import BatchVerification, verify_batch
from mdsd.batch._threads import over_rows
from mdsd.batch.tensors.spaces import to_host
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.layouts import _inputs as inputs
from mdsd.decoding.layouts import _kinds as kinds
from mdsd.decoding.layouts._inputs import PADDING, Places, ProbRows
from mdsd.decoding.layouts._paths import HostRows, Paths
from mdsd.decoding.layouts._trees import TreeBatch
from mdsd.decoding.levels import LevelVerification
from mdsd.decoding.steps import StepVerification
from mdsd.decoding.verification import PATH_VERIFICATIONS
from mdsd.drafts import Draft, DraftDistribution, DraftKind
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, InvalidTokenError
from mdsd.verifiers import Verifier

_INSIDE = 0.6180339887498949
"""A number in [0, 1) for draws whose outcome is of no interest: no sum is likely to hit it."""


class _Siblings(NamedTuple):
    """Children of R nodes that have n of them each, and how they came about."""

    kind: DraftKind
    chosen: bool  # not drawn: `kind` is one that always draws these
    places: Places  # tree and number of each node
    ids: IntArray  # (R, n)

    @property
    def example(self) -> DraftDistribution:
        """Some draft of that kind: what does not depend on its probabilities."""
        return self.kind.example(self.ids.shape[1])


@dataclass(frozen=True, eq=False)
class TreeSteps:
    """A batch of draft trees with the distributions of their nodes, verified tree by tree.

    Attributes
    ----------
    trees : TreeBatch
    ids : ndarray of int64, shape (B, N)
        Token of each node; that of a root is not looked at.
    target : ProbRows, shape (B, N, V)
        Distribution of the token after each node.
    drafted : ProbRows, shape (B, N, V), or None
        What the children of each node were drawn from; None where all are deterministic.
    deterministic : ndarray of bool, shape (B, N)
        Nodes whose children were chosen, not drawn.
    kind : DraftKind or None
        How the children of all other nodes were drawn; None where there are none.
    verification : StepVerification
    ids_name : str
        What to call the ids in an error.
    """

    trees: TreeBatch
    ids: IntArray
    target: ProbRows
    drafted: ProbRows | None
    deterministic: BoolArray
    kind: DraftKind | None
    verification: StepVerification
    ids_name: str

    @classmethod
    def read(
        cls,
        trees: TreeBatch,
        ids: IntArray,
        ids_name: str,
        probs: tuple[Any, Any],
        draft: Draft,
        verifier: str | Verifier | StepVerification | None,
    ) -> TreeSteps:
        """Read and check what belongs to the nodes of trees, for the verifier that is asked for.

        Parameters
        ----------
        trees : TreeBatch
        ids : ndarray of int64, shape (B, N), or (N,) for one tree alone
        ids_name : str
        probs : pair of array_like or tensor
            Of the target, (B, N, V) or (N, V), and of the draft.
        draft, verifier
            As for `sglang_tree`.

        Raises
        ------
        MdsdError
            If an argument is not what it should be, as for `check`.
        """
        shape, words = (*ids.shape, None), "(N, V)" if ids.ndim == 1 else "(B, N, V)"
        target = inputs.read_probs(probs[0], "target_probs", shape, words)
        kind, drafted = kinds.read_draft(draft, probs[1], _has_one_model, ids.shape, words, target)
        if ids.ndim == 1:
            ids, target = ids[np.newaxis], target.as_batch()
            drafted = drafted and drafted.as_batch()
        counts = np.unique(trees.num_children[trees.num_children > 0]).tolist()
        found = kinds.find_verification(verifier, kind, counts)
        every = np.full(ids.shape, kind is None)
        parts = (trees, ids, target, drafted, every, kind)
        steps: TreeSteps
        if type(found) is LevelVerification:  # one derived from it may do something else
            steps = LevelSteps(*parts, found, ids_name)
        else:
            steps = cls(*parts, found, ids_name)
        steps.check()
        return steps

    # --- what does not depend on the draws -------------------------------------------------------

    def check(self) -> None:
        """Check all distributions and tokens that the trees lead to; nothing else is looked at.

        Raises
        ------
        InvalidTokenError
            If a token is out of range, or children cannot have been drawn together.
        InvalidDistributionError
            If a distribution is bad or too short of tokens for its kind of draft.
        UnsupportedError
            If the verification does not support the kind of draft.
        """
        every = self._siblings(np.nonzero(self.trees.num_children))
        self.verification.check(siblings.example for siblings in every)
        used = self.trees.used
        self.target.check(np.nonzero(used))
        tested = used.copy()
        tested[:, :1] = False
        inputs.check_ids(self.ids, tested, self.target.vocab_size, self.ids_name, self.target.alone)
        for siblings in self._siblings(np.nonzero(self.trees.num_children)):
            self._check_children(siblings)

    def _check_children(self, siblings: _Siblings) -> None:
        """Check the distributions of children, and that they can have been drawn together."""
        kind, chosen, places, ids = siblings
        if chosen:
            ascending = np.sort(ids, axis=1)
            repeated = (ascending[:, 1:] == ascending[:, :-1]).any(axis=1)
            if repeated.any():
                raise InvalidTokenError(f"{self._named(places, repeated.argmax())} repeat a token")
            return
        try:
            # The naive verifier supports every kind: this checks probabilities and drafts.
            self._verify(siblings, "naive", np.full((len(ids), 1), _INSIDE))
        except (InvalidDistributionError, InvalidTokenError):
            # What is left is to name the place as the caller knows it.
            rows = to_host(self._rows(siblings))
            for k, drafts in enumerate(ids):
                try:
                    known = kind.make(rows[k, ...], len(drafts))
                except InvalidDistributionError as error:
                    where = row_name("draft_probs", _at(places, k)[self.target.alone :])
                    message = str(error).replace("draft_probs", where, 1)
                    raise InvalidDistributionError(message) from None
                if not known.is_possible(drafts):
                    raise InvalidTokenError(
                        f"{self._named(places, k)} cannot be drawn from the {kind.label} draft "
                        "distribution"
                    ) from None
            raise

    def _named(self, places: Places, k: int | np.integer[Any]) -> str:
        """Name the children of a node, for an error."""
        b, node = place = _at(places, k)
        children = self.trees.children[b, node, : self.trees.num_children[b, node]]
        name = row_name(self.ids_name, place[self.target.alone : -1])
        return f"{name}: the children {self.ids[b, children].tolist()} of node {node}"

    def _siblings(self, places: Places) -> Iterator[_Siblings]:
        """Group nodes with children, (tree, node), by the number and the kind of these."""
        counts, chosen = self.trees.num_children[places], self.deterministic[places]
        for count, certain in sorted(set(zip(counts.tolist(), chosen.tolist(), strict=True))):
            (members,) = np.nonzero((counts == count) & (chosen == certain))
            trees, nodes = places[0][members], places[1][members]
            ids = self.ids[trees[:, np.newaxis], self.trees.children[trees, nodes, :count]]
            kind = (not certain and self.kind) or kinds.chosen_kind(self.verification, count)
            yield _Siblings(kind, certain, (trees, nodes), ids)

    def _rows(self, siblings: _Siblings) -> Any:
        """Give what children are drawn from, as `verify_batch` takes it."""
        if self.drafted is None or siblings.chosen:
            return kinds.chosen_rows(siblings.kind, siblings.ids, self.target)
        return self.drafted.take(siblings.places)

    def _verify(
        self, siblings: _Siblings, verifier: str | Verifier, uniforms: FloatArray
    ) -> BatchVerification:
        return verify_batch(
            self.target.take(siblings.places),
            self._rows(siblings),
            siblings.ids,
            draft=siblings.kind,
            verifier=verifier,
            uniforms=uniforms,
        )

    # --- verification ----------------------------------------------------------------------------

    def run(self, rng: RandomSource, uniforms: TensorLike | None) -> Paths:
        """Verify every tree by itself, with a stream of its own.

        Raises
        ------
        InvalidArgumentError
            If `rng` is not what it should be, or `uniforms` is given: how many numbers a
            verification of whole paths takes depends on them.
        """
        if uniforms is not None:
            raise InvalidArgumentError(
                f"uniforms is given together with verifier {type(self.verification).__name__}, "
                "which decides about whole paths and takes as many numbers as it happens to need; "
                "expected rng in place of uniforms"
            )
        shape = len(self.ids), int(self.trees.num_levels.max(initial=1))
        nodes = np.full(shape, PADDING, dtype=np.int64)
        tokens = np.full(len(nodes), PADDING, dtype=np.int64)
        streams = list(inputs.row_streams(rng, len(nodes)))

        def work(start: int, stop: int) -> None:
            for b in range(start, stop):
                tree, numbers = self.drafted_tree(b)
                outcome = self.verification(tree, RandomChoices(streams[b]))
                nodes[b, : len(outcome.path) + 1] = [numbers[node] for node in (0, *outcome.path)]
                tokens[b] = outcome.token_id

        # Ours keep nothing between trees, and most of their time is compiled code.
        declared = self.kind is None or self.kind.draft_type.declared
        if declared and type(self.verification) in PATH_VERIFICATIONS.values():
            over_rows(work, len(nodes), self.ids.shape[1] * self.target.vocab_size)
        else:
            work(0, len(nodes))
        return Paths(nodes, (nodes != PADDING).sum(axis=1), tokens)

    def drafted_tree(self, b: int) -> tuple[DraftedTree, list[int]]:
        """Give one tree as verifications take it, and the number here of each of its nodes."""
        numbers, shape = self.trees.breadth_first(b)
        inner = np.array([n for n in numbers if self.trees.num_children[b, n]], dtype=np.int64)
        laws: dict[int, DraftDistribution] = {}
        for siblings in self._siblings((np.full(len(inner), b), inner)):
            given = to_host(self._rows(siblings))
            rows = check_probs(given, "draft_probs", ndim=given.ndim)
            for row, node in zip(rows, siblings.places[1].tolist(), strict=True):
                laws[node] = siblings.kind.make(row, siblings.ids.shape[1])
        ids, in_order = self.ids[b, numbers], tuple(map(laws.get, numbers))
        return DraftedTree(shape, ids, in_order, HostRows(self.target, b, numbers)), numbers

    def probs_after(self, b: int, node: int, token: int) -> FloatArray:
        """Distribution, (V,), of the token emitted after a node, given that the path ends there.

        `token`, which was drawn from it, has all mass: it was decided about together with the path.
        """
        return np.asarray(np.arange(self.target.vocab_size) == token, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class LevelSteps(TreeSteps):
    """A batch of draft trees that a one-step verifier goes down level by level, all at once.

    Attributes
    ----------
    verification : LevelVerification
    """

    verification: LevelVerification

    @property
    def verifier(self) -> Verifier:
        """The one-step verifier."""
        return self.verification.verifier

    def run(self, rng: RandomSource, uniforms: TensorLike | None) -> Paths:
        """Verify with the caller's numbers, or with numbers drawn from a stream for each tree.

        Raises
        ------
        InvalidArgumentError
            If `rng` or `uniforms` is not what it should be.
        """
        return self.verify(self.read_numbers(rng, uniforms))

    # --- randomness ------------------------------------------------------------------------------

    @cached_property
    def taken(self) -> BoolArray:
        """Numbers that a tree takes, (B, L, m): at each of its levels, as many as any node."""
        numbers = np.ones(self.ids.shape, dtype=np.int64)
        for siblings in self._siblings(np.nonzero(self.trees.num_children)):
            numbers[siblings.places] = self.verifier.num_uniforms(siblings.example)
        most, levels = numbers.max(axis=1), self.trees.num_levels[:, np.newaxis, np.newaxis]
        level = np.arange(levels.max(initial=1))[:, np.newaxis]
        return np.asarray((level < levels) & (np.arange(most.max(initial=1)) < most[:, None, None]))

    def read_numbers(self, rng: RandomSource, uniforms: TensorLike | None) -> FloatArray:
        """Read the caller's numbers, (B, L, m), or draw them; (L, m) for a tree alone."""
        return inputs.read_numbers(rng, uniforms, self.taken, self.taken.shape[self.target.alone :])

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
            tokens[leaves[0]] = inputs.draw_rows(
                self.target.take(leaves), numbers[leaves[0], depth, 0]
            )
            further = np.full(count, PADDING, dtype=np.int64)
            for siblings in self._siblings((going[~ends], current[~ends])):
                rows = siblings.places[0]
                uniforms = numbers[rows, depth, : self.verifier.num_uniforms(siblings.example)]
                found = self._verify(siblings, self.verifier, uniforms)
                tokens[rows] = inputs.host_ids(found.token_ids)
                index = inputs.host_ids(found.accept_index)
                child = self.trees.children[(*siblings.places, index)]
                further[rows] = np.where(index >= 0, child, PADDING)
            (going,) = np.nonzero(further != PADDING)
            current = further[going]
        return Paths(nodes, (nodes != PADDING).sum(axis=1), tokens)

    def probs_after(self, b: int, node: int, token: int) -> FloatArray:
        """Distribution, (V,), of the token emitted after a node, given that the path ends there.

        Of the tokens emitted at a node those that were drafted go on: what is left, normalised.
        `token` was drawn from it.
        """
        target = check_probs(to_host(self.target.values[b, node, ...]), self.target.name)
        if self.trees.num_children[b, node] == 0:
            return target.copy()
        (siblings,) = self._siblings((np.array([b]), np.array([node])))
        drafts = siblings.ids[0]
        row = to_host(self._rows(siblings))[0, ...]
        plan = self.verifier.plan(target, siblings.kind.make(row, len(drafts)))
        left = plan.output_law(drafts)
        left[drafts] = 0.0
        if not left.any():
            # Once rounded, stopping here has no probability left, yet a number led here.
            left[token] = 1.0
        return np.asarray(left / left.sum())


def _has_one_model(kind: DraftKind) -> bool:
    return not kind.one_model_each


def _at(places: Places, k: int | np.integer[Any]) -> list[int]:
    """Give the tree and the node of one place."""
    return [int(index[k]) for index in places]
