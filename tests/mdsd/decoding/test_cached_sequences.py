"""Sequences of a key-value cache as llama.cpp keeps them, without llama.cpp."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from mdsd.decoding.llama_cpp._sequences import TEXT, CachedTree


class Cells:
    """A cache that is looked at: what llama.cpp refuses, it refuses."""

    def __init__(self, num_sequences):
        self.num_sequences = num_sequences
        self.cells = {}  # by their numbers: position, token, sequences

    def positions(self, sequence):
        return sorted(position for position, _, own in self.cells.values() if sequence in own)

    def copy(self, source, sequence, start, stop):
        for position, _, own in self.cells.values():
            if source in own and start <= position < stop:
                own.add(sequence)

    def remove(self, sequence, start):
        for position, _, own in self.cells.values():
            if position >= start:
                own.discard(sequence)
        self.cells = {number: cell for number, cell in self.cells.items() if cell[2]}

    def read(self, tokens):
        """Take tokens with their positions and sequences; give what each sees."""
        used = {sequence for _, _, own in tokens for sequence in own}
        assert all(0 <= sequence < self.num_sequences for sequence in used)
        for sequence in used:
            before, now = self.positions(sequence), [p for _, p, own in tokens if sequence in own]
            assert [*before, *now] == list(range(len(before) + len(now)))
        for _, _, own in tokens:  # coupled sequences have not diverged
            assert len({tuple(self.positions(sequence)) for sequence in own}) == 1
        for token, position, own in tokens:
            free = next(number for number in range(10**6) if number not in self.cells)
            self.cells[free] = (position, token, set(own))
        seen = []
        for _, position, own in tokens:
            visible = [
                cell[:2]
                for _, cell in sorted(self.cells.items())
                if own[0] in cell[2] and cell[0] <= position
            ]
            # In the order of the text.
            assert [place for place, _ in visible] == list(range(position + 1))
            seen.append([token for _, token in visible])
        return seen


def read(tree, cells, prefixes):
    """Read what is new; give what the last tokens of the prefixes see, and how many were new."""
    new, asked = tree.unread(prefixes)
    places = tree.place(new)
    if places is None:
        return None
    tokens = [(n.token_id, n.position, own) for n, own in zip(new, places, strict=True)]
    seen = cells.read(tokens)
    found = dict(zip(map(id, new), seen, strict=True))
    assert sorted(cells.cells) == list(range(tree.num_cells))
    return [found[id(node)] for node in asked], len(new)


def made(num_sequences=16):
    cells = Cells(num_sequences)
    return CachedTree(cells, num_sequences), cells


def test_a_tree_is_read_in_one_call_and_an_accepted_path_is_kept():
    tree, cells = made()
    prefixes = [[1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 3, 5], [1, 2, 3, 6], [1, 2, 4, 5]]
    assert read(tree, cells, prefixes) == (prefixes, 7)
    # The first children are in the cells behind the text, and kept.
    assert read(tree, cells, [[1, 2, 3, 5, 9], [1, 2, 3, 5, 9, 9]]) == (
        [[1, 2, 3, 5, 9], [1, 2, 3, 5, 9, 9]],
        2,
    )
    assert tree.token_ids == [1, 2, 3, 5]
    # 4, 6 and the other 5 are gone.
    assert sorted(token for _, token, _ in cells.cells.values()) == [1, 2, 3, 5, 9, 9]


def test_what_would_leave_a_gap_is_read_again():
    tree, cells = made()
    prefixes = [[1, 2], [1, 2, 3], [1, 2, 4], [1, 2, 3, 5], [1, 2, 3, 6], [1, 2, 4, 5]]
    read(tree, cells, prefixes)
    assert read(tree, cells, [[1, 2, 3, 6, 9]]) == ([[1, 2, 3, 6, 9]], 2)
    assert tree.token_ids == [1, 2, 3]


def test_levels_of_drafting_read_new_tokens_only():
    tree, cells = made()
    assert read(tree, cells, [[1, 2]]) == ([[1, 2]], 2)
    level = [[1, 2, 3], [1, 2, 4], [1, 2, 5]]
    assert read(tree, cells, level) == (level, 3)
    below = [[1, 2, 3, 7], [1, 2, 3, 8], [1, 2, 5, 7]]
    assert read(tree, cells, below) == (below, 3)
    # The same text with another end: what was rejected is cut off.
    assert read(tree, cells, [[1, 2, 5, 8]]) == ([[1, 2, 5, 8]], 2)
    assert read(tree, cells, [[1, 9]]) == ([[1, 9]], 1)
    assert tree.token_ids == [1]


def test_a_prefix_that_was_read_is_read_again():
    tree, cells = made()
    for _ in range(20):  # more often than there are sequences
        assert read(tree, cells, [[1, 2, 3], [1, 2, 4]]) is not None or not tree.forget_branches()
    assert read(tree, cells, [[1, 2]]) == ([[1, 2]], 1)
    assert read(tree, cells, [[1, 2, 4], [1, 2]]) == ([[1, 2, 4], [1, 2]], 2)


def test_too_few_sequences_change_nothing():
    tree, cells = made(4)
    assert read(tree, cells, [[1]]) == ([[1]], 1)
    new, _ = tree.unread([[1, token] for token in range(4)])
    before = copy.deepcopy(cells.cells)
    assert tree.place(new) is None
    assert cells.cells == before
    tree.forget_branches()
    assert read(tree, cells, [[1, 2], [1, 3], [1, 4]]) == ([[1, 2], [1, 3], [1, 4]], 3)


def test_a_text_that_is_extended():
    tree, cells = made()
    read(tree, cells, [[1, 2], [1, 3]])
    tree.go_to([1, 2, 5, 6, 7])
    assert tree.token_ids == [1, 2]
    cells.read([(5, 2, [TEXT]), (6, 3, [TEXT])])
    tree.extend([5, 6])
    assert read(tree, cells, [[1, 2, 5, 6, 7]]) == ([[1, 2, 5, 6, 7]], 1)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_asked_sees_its_own_prefix(seed):
    """Trees, rejections and texts at random: as if everything was read anew each time."""
    rng = np.random.default_rng(seed)
    tree, cells = made(12)
    text = [0]
    for _ in range(30):
        prefixes, start = [], list(text)
        for _ in range(rng.integers(1, 6)):
            depth = rng.integers(0, 4)
            prefixes.append([*start, *rng.integers(0, 3, depth).tolist()])
        found = read(tree, cells, prefixes)
        if found is None:
            tree.forget_branches()
            found = read(tree, cells, prefixes)
        assert found is not None
        assert found[0] == prefixes
        chosen = prefixes[rng.integers(len(prefixes))]
        kind = rng.integers(5)
        text = (
            [*chosen, int(rng.integers(3))]
            if kind
            else rng.integers(0, 3, rng.integers(1, 4)).tolist()
        )
