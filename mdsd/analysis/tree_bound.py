"""How much of a drafted tree any lossless verifier can accept in expectation, for toys.

The linear program and its certificate are those of `solvers.tree_lp`; here they are set up from
models, with the trees that a decoder drafts, each with its probability.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mdsd._typing import AnyArray
from mdsd.decoding.choices import Choices
from mdsd.decoding.decoder import Decoder, make_decoder, read_prompt
from mdsd.decoding.drafting import Drafting
from mdsd.decoding.enumeration import branches
from mdsd.decoding.models import Model
from mdsd.decoding.rows import Row
from mdsd.drafts import Draft
from mdsd.errors import UnsupportedError, solver_errors
from mdsd.trees import TreeLike, read_tree

if TYPE_CHECKING:
    from solvers.tree_lp import TreeInstance

MAX_DRAWS = 100_000
"""Most ways to draft a tree that are followed."""

MAX_VARIABLES = 20_000
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
        If the tree can be drafted in more than `MAX_DRAWS` ways, or the program would have more
        than `MAX_VARIABLES` variables; and as for `mdsd.decoding.generate`.
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
    from solvers.tree_lp import solve_tree

    # Any verifier would do that takes every kind of draft: nothing is verified here.
    shape = read_tree(tree)
    decoder = make_decoder(target, draft_model, draft=draft, verifier="optimal", tree=shape)
    prefix = read_prompt(prompt_ids, target.vocab_size)
    trees, steps = _drafted(decoder, prefix)
    with solver_errors():
        return solve_tree(_instance(trees, steps)).value


def _drafted(
    decoder: Decoder, prefix: list[int]
) -> tuple[dict[_Tree, float], dict[_String, float]]:
    """Trees with their probabilities, and that of the last token of each string in them.

    A string that is drafted more than once is there once.
    """
    depth = decoder.shape.depth
    trees: dict[_Tree, float] = defaultdict(float)
    laws: dict[_String, AnyArray] = {}

    def draw(choices: Choices) -> Drafting:
        return decoder.draw([Row(prefix, depth + 1, choices)])[0]

    variables = 0
    for draws, (prob, drafting) in enumerate(branches(draw), start=1):
        if draws > MAX_DRAWS:
            raise UnsupportedError(
                f"the tree of {decoder.shape.num_nodes} drafts can be drafted in more than "
                f"{MAX_DRAWS:,} ways; at most as many are followed"
            )
        strings = [tuple(path[len(prefix) :]) for path in drafting.paths]
        drafted = frozenset(strings[1:])
        variables += 0 if drafted in trees else len(drafted)
        trees[drafted] += prob
        if any(string not in laws for string in strings):
            (scored,) = decoder.score([drafting])
            laws.update((string, scored.target_probs[k]) for k, string in enumerate(strings))
    if variables > MAX_VARIABLES:
        raise UnsupportedError(
            f"the linear program of {len(trees):,} trees and {len(laws):,} strings has "
            f"{variables:,} variables; at most {MAX_VARIABLES:,} are solved"
        )
    return trees, {string: float(laws[string[:-1]][string[-1]]) for string in laws if string}


def _instance(trees: dict[_Tree, float], steps: dict[_String, float]) -> TreeInstance:
    """Give numbers to the strings, shorter ones first, and write the trees as arrays."""
    from solvers.tree_lp import TreeInstance

    ordered = [(), *sorted(steps, key=lambda string: (len(string), string))]
    places = {string: place for place, string in enumerate(ordered)}
    return TreeInstance(
        parents=np.array([-1, *(places[string[:-1]] for string in ordered[1:])]),
        step_masses=np.array([1.0, *(steps[string] for string in ordered[1:])]),
        tree_masses=np.array(list(trees.values())),
        tree_starts=np.cumsum([0, *map(len, trees)]),
        tree_strings=np.array(
            [place for drafted in trees for place in sorted(map(places.__getitem__, drafted))],
            dtype=np.int64,
        ),
    )
