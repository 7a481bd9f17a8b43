"""The table of `docs/trees.md`: the linear program of a tree beside what verifiers accept of it.

Means over random pairs of toy models, exact: the program is `mdsd.analysis.tree_bound`, and the
laws of the numbers accepted are enumerated. Printed in markdown; two minutes::

    python tools/tree_tables.py
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mdsd._typing import FloatArray
from mdsd.analysis import tree_bound
from mdsd.decoding import TableModel
from mdsd.testing import accepted_law

VERIFIERS = ("layers", "block", "optimal", "traversal", "rrs")
CASES = ((3, [2, 1]), (4, [2, 1]), (3, [2, 1, 1]), (2, [2, 1, 1]), (3, [3, 1]))
"""Sizes of the vocabulary, and trees by the children of a node at each level."""
DRAFTS = ("with_replacement", "without_replacement")
SEEDS = range(4)


def pair(vocab_size: int, seed: int) -> tuple[TableModel, TableModel]:
    """Draw a target, the softmax of normal logits of deviation 1.5, and a draft model of noise 1.

    Parameters
    ----------
    vocab_size, seed : int
    """
    rng = np.random.default_rng([vocab_size, seed])
    logits = 1.5 * rng.normal(size=(vocab_size, vocab_size))
    noisy = logits + rng.normal(size=logits.shape)
    return TableModel.from_logits(logits), TableModel.from_logits(noisy)


def expected(vocab_size: int, tree: list[int], draft: str) -> FloatArray:
    """Compute expected accepted tokens after token 0, for each seed and each of `VERIFIERS`.

    Parameters
    ----------
    vocab_size : int
    tree : list of int
    draft : str

    Returns
    -------
    ndarray of float64, shape (S, 1 + number of verifiers)
        The first column is the most that any lossless verifier accepts.
    """
    rows = []
    for seed in SEEDS:
        target, draft_model = pair(vocab_size, seed)
        row = [tree_bound(target, draft_model, [0], tree=tree, draft=draft)]
        for verifier in VERIFIERS:
            law = accepted_law(target, draft_model, [0], tree=tree, draft=draft, verifier=verifier)
            row.append(float(law @ np.arange(len(law))))
        rows.append(row)
    return np.array(rows)


def line(vocab_size: int, tree: list[int], draft: str) -> str:
    """Lay out a line of the table.

    Parameters
    ----------
    vocab_size : int
    tree : list of int
    draft : str
    """
    found = expected(vocab_size, tree, draft)
    shares = found[:, 1] / found[:, 0]
    words = draft.split("_")[0]
    cells = [
        f"V = {vocab_size}, {','.join(map(str, tree))}, {words}",
        *(f"{mean:.4f}" for mean in found.mean(axis=0)),
        f"{shares.mean():.2%}",
        f"{shares.min():.2%}",
    ]
    return f"| {' | '.join(cells)} |"


def table() -> Iterable[str]:
    """Lay out the table, line by line."""
    heads = ["tree, replacement", "LP", *VERIFIERS, "layers / LP", "worst pair"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for vocab_size, tree in CASES:
        for draft in DRAFTS:
            yield line(vocab_size, tree, draft)


if __name__ == "__main__":
    for each in table():
        print(each, flush=True)
