"""Verification by shared noise: the text depends on seed and target alone, not on the drafts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mdsd._arguments import MOST_WHOLE, check_whole
from mdsd._typing import FloatArray, IntArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.steps import StepOutcome, StepVerification
from mdsd.drafts import DraftDistribution, WithReplacement
from mdsd.errors import UnsupportedError

_MOST_KEPT = 16
"""Positions whose noise is kept: about as many as a tree is deep."""


class GumbelVerification(StepVerification):
    """Draw drafts and output by the same noise, so that the output is often among the drafts.

    For each position of the text there are exponential times S_ik, for n drafts k of every token i.
    Draft k is ``argmin_i S_ik / q_i``, the token of the text ``argmin_i min_k S_ik / p_i``. Each
    token is drawn from the target, so that the text has its law over the seeds; and given the seed,
    it is the same whatever draft models and trees propose, only sooner or later.

    Parameters
    ----------
    seed : int
        Of the noise. With the same seed and prompt the same text comes out; `rng` of `generate`
        plays no part.
    num_drafts : int
        n: most drafts at a node. The text depends on it.

    Raises
    ------
    InvalidArgumentError
        If `seed` is no integer >= 0, or `num_drafts` none >= 1.

    Notes
    -----
    Rowan, Phan and Khisti, "List-Level Distribution Coupling with Applications to Speculative
    Decoding and Lossy Compression", in its strongly invariant form. How often the token is drafted
    is `mdsd.analysis.gumbel_acceptance`, where a node has n drafts. Drafts are with replacement.
    The noise of a position is the same for all texts of a batch: give each row a seed of its own.

    Examples
    --------
    >>> from mdsd.decoding import TableModel, generate
    >>> target = TableModel([[0.6, 0.4], [0.3, 0.7]])
    >>> texts = [
    ...     generate(
    ...         target,
    ...         draft_model,
    ...         [0],
    ...         max_new_tokens=8,
    ...         draft="with_replacement",
    ...         verifier=GumbelVerification(seed=1, num_drafts=2),
    ...         tree=tree,
    ...     ).token_ids.tolist()
    ...     for draft_model, tree in (
    ...         (TableModel([[0.5, 0.5], [0.5, 0.5]]), [2, 2]),
    ...         (TableModel([[0.1, 0.9], [0.9, 0.1]]), [1]),
    ...     )
    ... ]
    >>> texts[0] == texts[1]
    True
    """

    name = "gumbel"
    own_noise = True
    source = 'Rowan et al., "List-Level Distribution Coupling"'

    def __init__(self, seed: int, num_drafts: int) -> None:
        self.seed = check_whole("seed", seed, 0, MOST_WHOLE)
        self.num_drafts = check_whole("num_drafts", num_drafts, 1)
        self._kept: dict[tuple[int, int], FloatArray] = {}

    def __repr__(self) -> str:
        return f"GumbelVerification(seed={self.seed!r}, num_drafts={self.num_drafts!r})"

    def __getstate__(self) -> dict[str, object]:
        """Leave the noise out, which the seed makes again."""
        return {**vars(self), "_kept": {}}

    @property
    def supported(self) -> str:  # noqa: D102
        return f"drafts with replacement, at most num_drafts = {self.num_drafts}"

    def check(self, laws: Iterable[DraftDistribution]) -> None:  # noqa: D102
        for draft in laws:
            if not isinstance(draft, WithReplacement) or draft.num_drafts > self.num_drafts:
                raise UnsupportedError(
                    f"verifier {self.name!r} does not support {draft.num_drafts} drafts of the "
                    f"{draft.name} draft distribution at one node; it takes {self.supported}"
                )

    def draw(  # noqa: D102
        self, draft: DraftDistribution, position: int, choices: Choices
    ) -> IntArray:
        times = self._times(position, draft.vocab_size)[: draft.num_drafts]
        return _first(times, draft.draft_probs)  # type: ignore[attr-defined]

    def __call__(self, tree: DraftedTree, choices: Choices) -> StepOutcome:  # noqa: D102
        if tree.position is None:
            raise UnsupportedError(
                f"verifier {self.name!r} needs trees that say where in the text they begin"
            )
        path: list[int] = []
        node = 0
        while True:
            probs = np.asarray(tree.target_probs[node])
            times = self._times(tree.position + len(path), len(probs)).min(axis=0)
            token = int(_first(times, probs))
            child = tree.child(node, token)
            if child is None:
                self._forget(tree.position + len(path))
                return StepOutcome(tuple(path), token)
            node = child
            path.append(node)

    def _times(self, position: int, vocab_size: int) -> FloatArray:
        """Give the exponential times, (n, V), of the token at a position."""
        key = position, vocab_size
        if key not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            sequence = np.random.SeedSequence(self.seed, spawn_key=(position,))
            rng = np.random.default_rng(sequence)
            self._kept[key] = rng.standard_exponential((self.num_drafts, vocab_size))
        return self._kept[key]

    def _forget(self, position: int) -> None:
        """Give up the noise of the tokens up to a position, which have been emitted."""
        self._kept = {key: times for key, times in self._kept.items() if key[0] > position}


def _first(times: FloatArray, probs: FloatArray) -> IntArray:
    """Find the token, (...), of least time over probability, of times (..., V)."""
    possible = probs > 0.0
    with np.errstate(over="ignore"):
        races = np.where(possible, times / np.where(possible, probs, 1.0), np.inf)
    return np.asarray(races.argmin(axis=-1))
