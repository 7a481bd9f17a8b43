"""Verifiers for the decoding loop of the package `economize`, wherever that is installed.

`economize` finds them through its entry points as ``mdsd_single``, ``mdsd_naive``,
``mdsd_naive_tree``, ``mdsd_rrs``, ``mdsd_kseq`` and ``mdsd_optimal``; here they have the names of
the verifiers of `mdsd` that they use. They are made when they are first asked for: this module can
be imported without `economize` and torch.

>>> from mdsd.decoding import economize
>>> economize.NAMES["mdsd_optimal"]
'OptimalVerifier'

A decoder takes one by ``economize.DecodeConfig(verifier="mdsd_optimal", verifier_options={...})``.
The options are those of the verifier, and ``draft``: how the children of a node of a draft tree
were drawn together, ``"with_replacement"`` or ``"without_replacement"``. Chains need none, nor do
trees whose tokens were chosen without chance, which is what drafts without probabilities are in
`economize`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from inspect import signature
from typing import Any, ClassVar

import numpy as np

import mdsd.verifiers
from mdsd._arguments import check_name
from mdsd._typing import BoolArray, IntArray
from mdsd.decoding.layouts._inputs import PADDING, ProbRows, read_probs
from mdsd.decoding.layouts._paths import Paths
from mdsd.decoding.layouts._steps import LevelSteps
from mdsd.decoding.layouts._trees import TreeBatch, tree_from_parents
from mdsd.decoding.levels import LevelVerification
from mdsd.drafts import read_kind
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.verifiers import Verifier

NAMES = {
    "mdsd_single": "SingleDraftVerifier",
    "mdsd_naive": "NaiveVerifier",
    "mdsd_naive_tree": "NaiveTreeVerifier",
    "mdsd_rrs": "RRSVerifier",
    "mdsd_kseq": "KSeqVerifier",
    "mdsd_optimal": "OptimalVerifier",
}
"""Names in `economize`, and here."""

_DRAFTS = ("with_replacement", "without_replacement")

_SAME = 1e-4
"""Largest difference of two distributions in float32 that are meant to be one."""


def __getattr__(name: str) -> Any:
    if name in NAMES.values():
        return _make(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _make(name: str) -> Any:
    """Make the verifier of `economize` around one of `mdsd`."""
    from economize.decoding import Verifier as Base

    kind = getattr(mdsd.verifiers, name)
    options = {key: given.default for key, given in signature(kind).parameters.items()}
    parts = {
        "__doc__": f"The verifier {kind.name!r} of mdsd.",
        "__module__": __name__,
        "kind": kind,
        "default_options": {"draft": None, **options},
    }
    return type(name, (_LayoutVerifier, Base), parts)


class _LayoutVerifier:
    """A verifier of `economize` that goes down chains and trees with one of `mdsd`.

    Drafts are drawn from the selector's distribution, which is handed on as what they were
    drawn from. Random numbers come from the selector's generator.
    """

    kind: ClassVar[type[Verifier]]
    needs_draft_probs: ClassVar[bool] = True
    supports_trees: ClassVar[bool] = True
    config: Any
    options: dict[str, Any]

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]  # that of the class of economize
        options = dict(self.options)
        draft = options.pop("draft")
        with _config_errors():
            self._draft = None if draft is None else check_name("draft", draft, _DRAFTS)
            self._verifier = self.kind(**options)

    # --- drafting --------------------------------------------------------------------------------

    def draft(self, logits: Any, selector: Any, history: Any) -> tuple[int, Any]:
        """Draw a draft token, and give the distribution, (V,), that it was drawn from."""
        probs = self._probs(logits, selector, history)
        return int(_draw(probs[None], selector)[0]), probs

    def draft_many(self, logits: Any, selector: Any) -> tuple[Any, Any] | None:
        """Draw a draft token for each row, and give the distributions, (B, V)."""
        from economize.decoding.capabilities import selector_distributions

        probs = selector_distributions(selector, logits)
        return None if probs is None else (_draw(probs, selector), probs)

    def _probs(self, logits: Any, selector: Any, history: Any) -> Any:
        from economize.decoding.capabilities import selector_distribution

        return selector_distribution(selector, logits, history, self.config.verifier_name)

    # --- verification ----------------------------------------------------------------------------

    def verify(
        self, logits: Any, drafts: list[int], probs: Any, selector: Any, history: Any, end: int
    ) -> tuple[int, int]:
        """Verify one chain: the number of accepted drafts, and the token after them."""
        import torch

        target = [self._probs(row, selector, history[: end + i]) for i, row in enumerate(logits)]
        ids = np.array([drafts], dtype=np.int64)
        declared = None if probs is None else probs[None]
        paths = self._go_down(torch.stack(target)[None], ids, _chains(ids), declared, selector)
        return int(paths.lengths[0]) - 1, int(paths.token_ids[0])

    def verify_batch(
        self, logits: Any, draft: Any, selector: Any, seq: Any, ends: Sequence[int]
    ) -> tuple[Any, Any]:
        """Verify chains: numbers of accepted drafts and the tokens after them, both (B,)."""
        import torch
        from economize.decoding.capabilities import selector_distributions

        target = selector_distributions(selector, logits)
        if target is None:  # row by row, for a selector that needs the history
            found = super().verify_batch(logits, draft, selector, seq, ends)  # type: ignore[misc]
            return tuple(found)
        ids = _before(draft)
        paths = self._go_down(target, ids, _chains(ids), draft.probs, selector)
        accepted = torch.from_numpy(paths.lengths - 1)
        return accepted.to(logits.device), torch.from_numpy(paths.token_ids).to(logits.device)

    def verify_tree(
        self, logits: Any, draft: Any, selector: Any
    ) -> tuple[list[list[int]], list[int]]:
        """Verify trees: the accepted path of each, and the token after it."""
        from economize import ConfigError
        from economize.decoding.capabilities import selector_distributions

        target = selector_distributions(selector, logits)
        if target is None or draft.parents is None:
            raise ConfigError(
                f"the {self.config.verifier_name!r} verifier needs parents, and a selector with "
                "distributions(), which ignores the history, for draft trees"
            )
        parents = draft.parents.cpu().numpy()
        paths = self._go_down(target, _before(draft), parents, draft.probs, selector)
        accepted = [
            (nodes[1:length] - 1).tolist()
            for nodes, length in zip(paths.nodes, paths.lengths, strict=True)
        ]
        return accepted, paths.token_ids.tolist()

    def _go_down(
        self, table: Any, ids: IntArray, parents: IntArray, probs: Any, selector: Any
    ) -> Paths:
        """Verify a batch of trees.

        Parameters
        ----------
        table : tensor, shape (B, T + 1, V)
            The target's, after the last token known and after each node.
        ids, parents : ndarray of int64, shape (B, T)
            Token of each node, -1 where there is none, and the node it follows, -1 for the root.
        probs : tensor, shape (B, T, V), or None
            Law that each node was drawn from, given its siblings before it.
        selector : TokenSelector
        """
        import torch
        from economize.decoding.capabilities import selector_generator

        # The root becomes node 0.
        root = np.full((len(ids), 1), PADDING)
        every = np.concatenate([root, ids], axis=1)
        above = np.concatenate([root, np.where(ids == PADDING, PADDING, parents + 1)], axis=1)
        trees = TreeBatch.of([tree_from_parents(row.tolist()) for row in above], every)
        with _config_errors():
            target = read_probs(table, "target_probs", (*every.shape, None), "(B, T + 1, V)")
            drafted, chosen = None, np.ones(every.shape, dtype=np.bool_)
            if probs is not None and ids.size:
                drafted, chosen = self._siblings(probs.to(table.device), every, trees, target)
            kind = read_kind(self._draft or "with_replacement")
            level = LevelVerification(self._verifier)
            steps = LevelSteps(trees, every, target, drafted, chosen, kind, level, "drafts")
            steps.check()
            numbers = torch.rand(
                steps.taken.shape,
                generator=selector_generator(selector, table.device),
                dtype=torch.float64,
                device=table.device,
            )
            return steps.verify(numbers.cpu().numpy())

    def _siblings(
        self, probs: Any, ids: IntArray, trees: TreeBatch, target: ProbRows
    ) -> tuple[ProbRows, BoolArray]:
        """Find what the children of each node were drawn from, and which were chosen.

        The first child was drawn from the draft model's output itself.
        """
        import torch
        from economize import ConfigError

        chosen = np.zeros(ids.shape, dtype=np.bool_)
        for b, node in np.argwhere(trees.num_children > 1).tolist():
            nodes = trees.children[b, node, : trees.num_children[b, node]]
            own, tokens = probs[b, nodes - 1], ids[b, nodes]
            if bool((own[range(len(nodes)), tokens] == 1.0).all()):
                chosen[b, node] = True
            elif self._draft is None:
                raise ConfigError(
                    "siblings of a draft tree were drawn, not chosen: say how by "
                    f"verifier_options={{'draft': ...}}, one of {', '.join(_DRAFTS)}"
                )
            elif not _drawn_so(own, tokens, self._draft):
                raise ConfigError(
                    f"the laws of the children of node {node - 1} in row {b} are not those of "
                    f"draws {self._draft.replace('_', ' ')}"
                )
        inner = trees.num_children > 0
        first = np.zeros(ids.shape, dtype=np.int64)
        first[inner] = trees.children[inner][:, 0] - 1
        rows = torch.arange(len(ids), device=probs.device)[:, None]
        shared = probs[rows, torch.from_numpy(first).to(probs.device)]
        shape = (*ids.shape, target.vocab_size)
        return read_probs(shared, "draft_probs", shape, "(B, T + 1, V)", target), chosen


def _drawn_so(probs: Any, tokens: IntArray, draft: str) -> bool:
    """Tell whether siblings were drawn so, each from a row of (n, V) given those before it."""
    import torch

    expected = probs[0].clone()
    for own, token in zip(probs, tokens.tolist(), strict=True):
        if not torch.allclose(own, expected / expected.sum(), rtol=0.0, atol=_SAME):
            return False
        if draft == "without_replacement":
            expected[token] = 0.0
    return True


def _draw(probs: Any, selector: Any) -> Any:
    """Draw a token from each distribution, (B, V), by the selector's generator."""
    import torch
    from economize.decoding.capabilities import selector_generator

    generator = selector_generator(selector, probs.device)
    return torch.multinomial(probs, 1, generator=generator)[:, 0]


def _before(draft: Any) -> IntArray:
    """Read the tokens of drafts, (B, T), with padding behind the length of each row."""
    ids: IntArray = draft.tokens.cpu().numpy().astype(np.int64)
    ids[np.arange(ids.shape[1]) >= np.array(draft.lengths, dtype=np.int64)[:, np.newaxis]] = PADDING
    return ids


def _chains(ids: IntArray) -> IntArray:
    """Let every node follow the one before it."""
    return np.tile(np.arange(ids.shape[1]) - 1, (len(ids), 1))


@contextmanager
def _config_errors() -> Iterator[None]:
    """Report options that do not fit, or not together, by the error of `economize` for it."""
    from economize import ConfigError

    try:
        yield
    except (InvalidArgumentError, UnsupportedError) as error:
        raise ConfigError(str(error)) from error
