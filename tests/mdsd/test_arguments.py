"""What the checks of arguments share."""

from __future__ import annotations

import math

import numpy as np
import pytest

import mdsd
from mdsd._arguments import (
    check_name,
    check_number,
    check_whole,
    read_array,
    read_number,
    shown,
)
from mdsd.errors import InvalidArgumentError, InvalidTokenError
from mdsd.verifiers import registry


class Unprintable:
    def __repr__(self):
        raise ValueError("not today")


@pytest.mark.parametrize(
    "value",
    [
        np.zeros((100, 100)),
        list(range(10**5)),
        [[list(range(100))] * 100] * 100,
        "a\nb" * 10**4,
        10**400,
        10**5000,
        dict.fromkeys(range(1000), "x" * 1000),
        Unprintable(),
    ],
    ids=["matrix", "list", "nested", "string", "400-digits", "5000-digits", "dict", "unprintable"],
)
def test_shown_is_one_short_line(value):
    text = shown(value)
    assert len(text.splitlines()) == 1
    assert len(text) < 1000


@pytest.mark.parametrize("value", [True, np.True_, 2.0, "2", None, 0, 6, np.array(3), 10**30])
def test_whole_numbers_refused(value):
    with pytest.raises(InvalidArgumentError, match=r"^count is .*; expected an integer >= 1"):
        check_whole("count", value, 1, 5)


@pytest.mark.parametrize("value", [1, 5, np.int8(3), np.uint64(4)])
def test_whole_numbers_accepted(value):
    found = check_whole("count", value, 1, 5)
    assert (found, type(found)) == (int(value), int)


def test_whole_numbers_without_a_ceiling():
    assert check_whole("seed", 10**30, 0, math.inf) == 10**30


def test_numbers():
    assert [read_number(x) for x in (10**400, -(10**400), 2, np.float32(0.5))] == [
        math.inf,
        -math.inf,
        2.0,
        0.5,
    ]
    assert all(math.isnan(read_number(x)) for x in (True, "1", None, 1j, [1.0]))


@pytest.mark.parametrize("value", [-1e-300, math.nan, math.inf, 10**400, True, "1", None])
def test_numbers_below_0_and_beyond_all_are_refused(value):
    with pytest.raises(InvalidArgumentError) as caught:
        check_number("cost", value)
    assert str(caught.value) == f"cost is {shown(value)}; expected a finite number >= 0"


def test_numbers_of_0_and_more():
    assert [check_number("cost", x) for x in (0, 5e-324, np.float32(0.5))] == [0.0, 5e-324, 0.5]
    assert check_number("cost", 5e-324, positive=True) == 5e-324
    with pytest.raises(InvalidArgumentError) as caught:
        check_number("cost", 0, positive=True, otherwise=" or a table")
    assert str(caught.value) == "cost is 0; expected a finite number > 0 or a table"


def test_names():
    assert check_name("method", "lp", ("lp", "cover")) == "lp"
    with pytest.raises(InvalidArgumentError) as caught:
        check_name("method", "cove", ("lp", "cover"))
    assert str(caught.value) == "method is 'cove'; expected one of lp, cover; did you mean 'cover'?"


def test_arrays_that_cannot_be_read():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            raise KeyError("on\nanother device")

    with pytest.raises(InvalidTokenError, match=r"^ids cannot be read as an array: .*device"):
        read_array(Tensor(), "ids", InvalidTokenError)


def test_a_strangers_own_type_error_is_not_hidden(monkeypatch):
    class Strange(mdsd.NaiveVerifier):
        name = "strange"

        def __init__(self, *, depth=1):
            raise TypeError("a mistake of mine")

    monkeypatch.setattr(registry, "_registry", lambda: {"strange": Strange})
    with pytest.raises(TypeError, match="a mistake of mine"):
        mdsd.get_verifier("strange", depth=2)
    with pytest.raises(InvalidArgumentError, match=r"'strange'.*'width'"):
        mdsd.get_verifier("strange", width=2)
