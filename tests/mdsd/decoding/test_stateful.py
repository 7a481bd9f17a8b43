"""Whether the code of an object shows that calls of it change what it returns later."""

from __future__ import annotations

import linecache
from functools import partial

import pytest

from mdsd.decoding.transformers._stateful import kept_state


class Automaton:
    def __init__(self):
        self.place, self.table = 0, {0: 1, 1: 0}

    def move(self, token):
        self.place = self.table[self.place] + token
        return self.place

    def after(self, tokens):
        place = 0
        for token in tokens:
            place = self.table[place] + token
        return place

    def allowed(self):
        return [self.place]


class Holding:
    def __init__(self, *held):
        self.held, self.all, self.named = held[0], list(held), {"first": held[0]}


class Moves(Holding):
    def __call__(self, row, text):
        return [self.held.move(text[-1])]


class MovesOneOfMany(Holding):
    def __call__(self, row, text):
        place = self.all[row].move(text[-1])
        return [place]


class MovesOneByName(Holding):
    def __call__(self, row, text):
        return [self.named["first"].move(text[-1])]


class MovesInside(Holding):
    def __call__(self, row, text):
        return self.held(row, text)

    def step(self, text):
        return self.held.move(text[-1])


class StepsInside(Holding):
    def __call__(self, row, text):
        return self.held.step(text)


class Asks(Holding):
    def __call__(self, row, text):
        return [self.held.after(text), self.all[row].after(text), *self.named]


class Looks(Holding):
    def __call__(self, row, text):
        return self.held.allowed()


def closing_over(automaton):
    def walk(row, text):
        return [automaton.move(text[-1])]

    return walk


def looking_through(automaton):
    def walk(row, text):
        return [automaton.after(text)]

    return walk


def counting():
    calls = 0

    def count(row, text):
        nonlocal calls
        calls += 1
        return [calls]

    return count


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (Moves(Automaton()), "place"),
        (MovesOneOfMany(Automaton(), Automaton()), "place"),
        (MovesOneByName(Automaton()), "place"),
        (StepsInside(MovesInside(Automaton())), "place"),
        (closing_over(Automaton()), "place"),
        (Automaton().move, "place"),
        (counting(), "calls"),
    ],
)
def test_state_is_found_in_what_an_object_holds(function, name):
    assert kept_state(function) == name


@pytest.mark.parametrize(
    "function",
    [
        Asks(Automaton(), Automaton()),
        Looks(Automaton()),
        looking_through(Automaton()),
        Automaton().after,
        partial(max, 3),
        max,
    ],
)
def test_what_does_not_change_is_no_state(function):
    assert kept_state(function) is None


def test_objects_that_hold_each_other():
    first = Asks(Automaton())
    first.held = first.all[0] = Looks(first)
    with pytest.raises(AttributeError):
        first(0, [1])
    assert kept_state(first) is None


SOURCE = """
class Counter:
    def __init__(self):
        self.calls = 0

    def __call__(self, row, text):
        self.calls += 1
        return [self.calls]
"""


@pytest.mark.parametrize("now", [None, "\n" * 5 + "    def other(self):\n        return 3\n"])
def test_code_without_its_source(now):
    # Typed at a prompt, or in a file that has changed since it was imported.
    name, names = f"<stateful {now is None}>", {"__name__": __name__}
    exec(compile(SOURCE, name, "exec"), names)
    if now is not None:
        linecache.cache[name] = (len(now), None, now.splitlines(keepends=True), name)
    assert kept_state(names["Counter"]()) == "calls"
