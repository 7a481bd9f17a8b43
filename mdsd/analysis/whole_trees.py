"""How much of a drafted tree any lossless verifier can accept in expectation, for toys.

The linear program and its certificate are those of `solvers.tree_lp`; here they are set up from
models, with the trees that a decoder drafts, each with its probability.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mdsd.decoding.decoder import Decoder, make_decoder, read_prompt
from mdsd.decoding.growth import TreeGrowth
from mdsd.decoding.models import Model
from mdsd.drafts import Draft
from mdsd.errors import UnsupportedError, solver_errors
from mdsd.trees import TreeLike, TreeShape, read_tree

if TYPE_CHECKING:
    from mdsd._solvers.tree_lp import TreeInstance

MAX_DRAFTS = 100
"""Most drafts of a tree."""

MAX_STRINGS = 5_000
"""Most strings that may be drafted, each counted at every node of the shape it may stand at."""

MAX_WAYS = 100_000
"""Most ways to put the subtrees below one string together that are followed."""

MAX_VARIABLES = 40_000
"""Most variables of the linear program: drafted strings, added up over the trees."""

_String = tuple[int, ...]
_Tree = frozenset[_String]


def tree_bound(
    target: Model,
    draft_model: Model | Sequence[Model],
    prompt_ids: ArrayLike,
    *,
    tree: TreeLike,
    draft: Draft,
) -> float:
    """Compute the most expected accepted tokens of any lossless verifier of a drafted tree.

    A verifier sees the whole tree and the laws of both models, accepts a path of it and emits one
    more token. It is lossless if its output, continued by the target, has the target's law.

    Parameters
    ----------
    target, draft_model : Model
        Toy models: the law of a token must depend on nothing but its prefix. Independent drafts
        take a list of draft models.
    prompt_ids : array_like of int, shape (P,)
        The tokens to continue; at least one.
    tree : list of int, TreeShape, or object with a ``tree`` attribute
        Tree of a step, as for `mdsd.decoding.generate`; it does not depend on what is drafted.
    draft : str or DraftKind
        How the children of each node are drafted.

    Returns
    -------
    float
        Between 0 and the depth of the tree. Optimum of a linear program, proved to 1e-9: the
        certified upper bound.

    Raises
    ------
    InvalidArgumentError, InvalidDistributionError, InvalidTokenError
        As for `mdsd.decoding.generate`.
    UnsupportedError
        If the tree has more than 100 drafts, can hold more than 5,000 strings or be drafted in
        more than 100,000 ways, or the program would have more than 40,000 variables, which takes
        some 10 seconds; names the size. And as for `mdsd.decoding.generate`.
    SolverError
        If no solution was found that passes verification.

    Notes
    -----
    With T the drafted strings, P(T) their probability and c(T, v) that of drafting T and accepting
    v or more: maximise the sum of c(T, v) over all T and all v in T but the empty string, of which
    ``c(T, empty) = P(T)``, where ``sum over x of c(T, vx) <= c(T, v)``, and
    ``sum over T of c(T, vx) <= p(x|v) sum over T of c(T, v)``. At depth 1 this is the relaxed
    problem (9) of Hu et al., "Towards Optimal Multi-draft Speculative Decoding", and the result is
    the acceptance bound. On a chain block verification attains it (Sun et al., "Block Verification
    Accelerates Speculative Decoding").

    Examples
    --------
    >>> from mdsd.decoding import TableModel
    >>> from mdsd.testing import accepted_law
    >>> target = TableModel([[0.25, 0.75], [0.5, 0.5]])
    >>> draft_model = TableModel([[0.5, 0.5], [0.75, 0.25]])
    >>> step = {"tree": [2, 1], "draft": "with_replacement"}
    >>> round(tree_bound(target, draft_model, [0], **step), 9)
    1.859375
    >>> laws = [
    ...     accepted_law(target, draft_model, [0], verifier=verifier, **step)
    ...     for verifier in ("block", "rrs")
    ... ]
    >>> [round(float(law @ [0, 1, 2]), 9) for law in laws]
    [1.75, 1.53125]
    """
    from mdsd._solvers.tree_lp import solve_tree

    if isinstance(tree, TreeGrowth):
        raise UnsupportedError(
            f"tree is {tree!r}; trees that grow with what is drafted have no bound here"
        )
    shape = read_tree(tree)
    # Nothing is verified here: any verifier would do that takes every kind of draft.
    decoder = make_decoder(target, draft_model, draft=draft, verifier="optimal", tree=shape)
    prefix = read_prompt(prompt_ids, target.vocab_size)
    if shape.num_nodes > MAX_DRAFTS:
        raise UnsupportedError(
            f"the tree has {shape.num_nodes:,} drafts; trees of at most {MAX_DRAFTS} are followed"
        )
    trees = _Drafts(decoder, shape, prefix).trees((), 0)
    strings = sorted(set().union(*trees), key=lambda string: (len(string), string))
    variables = sum(map(len, trees))
    if variables > MAX_VARIABLES:
        raise UnsupportedError(
            f"the linear program of {len(trees):,} trees with {len(strings):,} strings has "
            f"{variables:,} variables; at most {MAX_VARIABLES:,} are solved"
        )
    if not strings:
        return 0.0  # the root alone
    steps = _target_steps(decoder, prefix, strings)
    with solver_errors():
        return solve_tree(_instance(trees, strings, steps)).value


class _Drafts:
    """What a decoder drafts after a prompt, and with which probability.

    Following every draw of a whole tree, as `mdsd.decoding.enumeration` does, would come to the
    same; here trees that hold the same strings are put together as soon as they arise.
    """

    def __init__(self, decoder: Decoder, shape: TreeShape, prefix: list[int]) -> None:
        self._decoder, self._shape, self._prefix = decoder, shape, prefix
        self._known: dict[tuple[_String, int], dict[_Tree, float]] = {}

    def trees(self, string: _String, node: int) -> dict[_Tree, float]:
        """Give the law of the strings drafted below one that stands at a node of the shape.

        What is drafted twice is there once.

        Raises
        ------
        UnsupportedError
            Above `MAX_STRINGS` strings, or above `MAX_WAYS` ways to put the subtrees of its
            children together.
        """
        if (string, node) not in self._known:
            if len(self._known) >= MAX_STRINGS:
                raise UnsupportedError(
                    f"the tree of {self._shape.num_nodes} drafts can hold more than "
                    f"{MAX_STRINGS:,} strings; at most as many are followed"
                )
            law: dict[_Tree, float] = defaultdict(float)
            ways = 0
            for tokens, prob in self._tuples(string, node):
                drawn = {frozenset[_String](): prob}
                # Where not all children can be drawn, the last ones are missing.
                for child, token in zip(self._shape.children(node), tokens, strict=False):
                    drafted = (*string, token)
                    below = self.trees(drafted, child)
                    ways += len(drawn) * len(below)
                    self._refuse_above(ways)
                    drawn = _joined(drawn, below, drafted)
                for strings, chance in drawn.items():
                    law[strings] += chance
            self._known[string, node] = dict(law)
        return self._known[string, node]

    def _tuples(self, string: _String, node: int) -> Iterable[tuple[_String, float]]:
        """Give the tokens that may be drafted at a node, none where it is a leaf."""
        decoder, count = self._decoder, len(self._shape.children(node))
        if count == 0:
            return [((), 1.0)]
        asked = [[*self._prefix, *string]]
        rows = [
            decoder.sampling.probs(asked, model.logits([asked])[0], model.name)[0]
            for model in decoder.draft_models
        ]
        probs = np.array(rows) if decoder.kind.one_model_each else rows[0]
        return decoder.kind.make_at_most(probs, count).tuples()

    def _refuse_above(self, ways: int) -> None:
        if ways > MAX_WAYS:
            raise UnsupportedError(
                f"the tree of {self._shape.num_nodes} drafts can be drafted in {ways:,} "
                f"ways or more; at most {MAX_WAYS:,} are followed"
            )


def _joined(
    drawn: dict[_Tree, float], below: dict[_Tree, float], drafted: _String
) -> dict[_Tree, float]:
    """Give the law of strings drawn with a further one and, independently, those below it."""
    law: dict[_Tree, float] = defaultdict(float)
    for strings, prob in drawn.items():
        for further, chance in below.items():
            law[strings | further | {drafted}] += prob * chance
    return law


def _target_steps(decoder: Decoder, prefix: list[int], strings: list[_String]) -> list[float]:
    """Give the target's probability of the last token of each string after those before it."""
    parents = list(dict.fromkeys(string[:-1] for string in strings))
    asked = [[*prefix, *parent] for parent in parents]
    logits = decoder.target.logits([asked])[0]
    rows = dict(zip(parents, decoder.sampling.probs(asked, logits, "target"), strict=True))
    return [float(rows[string[:-1]][string[-1]]) for string in strings]


def _instance(
    trees: dict[_Tree, float], strings: list[_String], steps: list[float]
) -> TreeInstance:
    """Give numbers to the strings, which stand shorter ones first, and write trees as arrays."""
    from mdsd._solvers.tree_lp import TreeInstance

    places = {string: place for place, string in enumerate([(), *strings])}
    numbered = [sorted(places[string] for string in drafted) for drafted in trees]
    return TreeInstance(
        parents=np.array([-1, *(places[string[:-1]] for string in strings)]),
        step_masses=np.array([1.0, *steps]),
        tree_masses=np.array(list(trees.values())),
        tree_starts=np.cumsum([0, *map(len, numbered)]),
        tree_strings=np.array(list(chain.from_iterable(numbered)), dtype=np.int64),
    )
