"""Independent draws, each from tokens of its own, seen together by orders of groups of tokens.

Whether an order meets a draw of one law has nothing to do with the others: the hit function is
``1 - prod (1 - f_c)``, and a group is selected where its own law selects it and no other law has
hit a group before it. So an order costs what its parts cost, and what a law selects is known from
the chance, for each of its groups, that all others miss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from solvers._compiled import compiled
from solvers._typing import FloatArray, IntArray
from solvers.groups import TokenGroups, falling_ratio, single_tokens
from solvers.token_lottery import GroupedLaw, KnownSelection, Selection


@compiled()
def join_hits(
    law_of_place: IntArray, hits: FloatArray, starts: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Join the prefix hits of several laws along one order.

    Parameters
    ----------
    law_of_place : ndarray of int64, shape (G,)
        Which law each group of the order belongs to.
    hits : ndarray
        Prefix hits of each law along its own part of the order, one after the other.
    starts : ndarray of int64, shape (C,)
        Where those of each law begin.

    Returns
    -------
    joint : ndarray, shape (G + 1,)
        Prefix hits of all together: a sum of terms that are not negative.
    missed : ndarray, shape (G,)
        Chance that no other law has hit a group before each place.
    """
    size, count = len(law_of_place), len(starts)
    reached = starts.copy()
    misses = np.ones(count)
    joint, missed = np.zeros(size + 1), np.empty(size)
    for k in range(size):
        c = law_of_place[k]
        others = 1.0
        for u in range(count):
            if u != c:
                others *= misses[u]
        missed[k] = others
        before, after = hits[reached[c]], hits[reached[c] + 1]
        joint[k + 1] = min(1.0, joint[k] + max(after - before, 0.0) * others)
        misses[c] = max(1.0 - after, 0.0)
        reached[c] += 1
    return joint, missed


class GroupedJoint:
    """Independent draws on disjoint tokens, as orders of groups of tokens see them.

    Parameters
    ----------
    laws : sequence of GroupedLaw
        Each over tokens that no other one can draw.
    offsets : sequence of int
        What to add to the tokens of each law to have them in the vocabulary of all.
    vocab_size : int
        Of all.

    Examples
    --------
    >>> import numpy as np
    >>> from solvers.grouped_independent import GroupedIndependent
    >>> coin = GroupedIndependent(np.array([[0.5, 0.5]]), single_tokens(2))
    >>> GroupedJoint([coin, coin], [0, 2], 4).prefix_hits(np.array([0, 2, 1, 3])).tolist()
    [0.0, 0.5, 0.75, 1.0, 1.0]
    """

    def __init__(self, laws: Sequence[GroupedLaw], offsets: Sequence[int], vocab_size: int) -> None:
        self._laws = tuple(laws)
        counts = [len(law.groups) for law in laws]
        self._firsts = np.concatenate([[0], np.cumsum(counts)])
        self._law_of = np.repeat(np.arange(len(laws)), counts)
        self._hit_starts = self._firsts[:-1] + np.arange(len(laws))
        parts = [law.groups for law in laws]
        sizes = np.cumsum([0, *(len(part.members) for part in parts)])
        members = [part.members + by for part, by in zip(parts, offsets, strict=True)]
        starts = [part.starts[:-1] + by for part, by in zip(parts, sizes[:-1], strict=True)]
        self.groups = TokenGroups(
            vocab_size, np.concatenate(members), np.concatenate([*starts, sizes[-1:]])
        )

    def first_order(self, target_masses: FloatArray) -> IntArray:
        """Order of the groups by target mass (G,) over the chance of a hit, largest first."""
        return falling_ratio(target_masses, np.maximum(self.group_hits(), np.finfo(float).tiny))

    def group_hits(self) -> FloatArray:
        """Probability, (G,), that some draw is in each group, or a bound on it."""
        return np.concatenate([law.group_hits() for law in self._laws])

    def prefix_hits(self, order: IntArray) -> FloatArray:
        """Probability, (G + 1,), that some draw is in the first k groups of an order."""
        return self._joined(order)[0]

    def select(self, orders: NDArray[np.int32], weights: FloatArray) -> JointSelection:
        """Say with what mass each token is selected by a lottery over orders of the groups."""
        counting = np.empty(orders.shape)
        for row, order, weight in zip(counting, orders, weights, strict=True):
            row[order] = weight[order] * self._joined(order.astype(np.int64))[1]
        selections = []
        for c, law in enumerate(self._laws):
            first, stop = self._firsts[c : c + 2]
            own = orders[self._law_of[orders] == c].reshape(len(orders), stop - first) - first
            selections.append(law.select(own.astype(np.int32), counting[:, first:stop]))
        return JointSelection(selections, self._firsts)

    def _joined(self, order: IntArray) -> tuple[FloatArray, FloatArray]:
        """Prefix hits (G + 1,) of an order, and at each place the chance that all others miss."""
        law_of_place = self._law_of[order]
        hits = [
            law.prefix_hits(order[law_of_place == c] - self._firsts[c])
            for c, law in enumerate(self._laws)
        ]
        return join_hits(law_of_place, np.concatenate(hits), self._hit_starts)


class JointSelection:
    """Selection masses of a lottery over orders of groups of several laws.

    Parameters
    ----------
    selections : sequence of Selection
        Of each law.
    firsts : ndarray of int64, shape (C + 1,)
        First group of each law, and the number of all groups.
    """

    def __init__(self, selections: Sequence[Selection], firsts: IntArray) -> None:
        self._selections, self._firsts = selections, firsts

    def of_group(self, group: int) -> FloatArray:
        """Give the selection masses of the tokens of a group, in its order."""
        c = int(np.searchsorted(self._firsts, group, side="right")) - 1
        return self._selections[c].of_group(group - int(self._firsts[c]))

    def of_all(self) -> FloatArray:
        """Give the selection masses of the tokens of all groups, group by group."""
        return np.concatenate([selection.of_all() for selection in self._selections])


class GroupedCertain:
    """Tokens that are drawn whatever chance does, each a group by itself.

    Parameters
    ----------
    tokens : ndarray of int64, shape (m,)
        At least one.
    vocab_size : int

    Examples
    --------
    >>> import numpy as np
    >>> GroupedCertain(np.array([4, 2]), 5).prefix_hits(np.array([1, 0])).tolist()
    [0.0, 1.0, 1.0]
    """

    def __init__(self, tokens: IntArray, vocab_size: int) -> None:
        self.groups = single_tokens(vocab_size, tokens)

    def first_order(self, target_masses: FloatArray) -> IntArray:
        """Order of the tokens by target mass (m,), largest first."""
        return np.argsort(-target_masses)

    def group_hits(self) -> FloatArray:
        """Probability, (m,), that each is drawn."""
        return np.ones(len(self.groups))

    def prefix_hits(self, order: IntArray) -> FloatArray:
        """Probability, (m + 1,), that some draw is among the first k of an order."""
        hits = np.ones(len(order) + 1)
        hits[0] = 0.0
        return hits

    def select(self, orders: NDArray[np.int32], weights: FloatArray) -> KnownSelection:
        """Say with what mass each token is selected: an order selects its first."""
        selected = np.zeros(len(self.groups))
        firsts = orders[:, 0]
        np.add.at(selected, firsts, weights[np.arange(len(orders)), firsts])
        return KnownSelection(selected)


def refined_joint(
    parts: Sequence[Iterator[GroupedLaw]], offsets: Sequence[int], vocab_size: int
) -> Iterator[GroupedJoint]:
    """Give independent draws as groups see them, from coarse groups to the finest of each law.

    Parameters
    ----------
    parts : sequence of iterators of GroupedLaw
        Each from coarse to fine groups.
    offsets, vocab_size
        As for `GroupedJoint`.
    """
    laws = [next(part) for part in parts]
    while True:
        yield GroupedJoint(laws, offsets, vocab_size)
        finer = [next(part, None) for part in parts]
        if all(law is None for law in finer):
            return
        laws = [new or old for new, old in zip(finer, laws, strict=True)]
