"""How many threads batch calls use."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import mdsd
from mdsd.batch import _threads
from mdsd.batch._threads import limit_threads, over_rows


@pytest.fixture(autouse=True)
def many_cores(monkeypatch):
    monkeypatch.setattr(_threads, "_available_cores", lambda: 4)
    monkeypatch.setattr(_threads, "_WORTH_A_THREAD", 1)


def threads_used():
    """Count the threads of a call: all that may start wait for one another."""
    used = set()
    meeting = threading.Barrier(_threads._most_threads())

    def work(start, stop):
        if threading.get_ident() not in used:
            used.add(threading.get_ident())
            meeting.wait(timeout=60)

    over_rows(work, 100, 1000)
    return len(used)


def test_every_core_is_used_unless_told():
    assert threads_used() == 4


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (3, 3), (4, 4), (100, 4)])
def test_a_limit_holds_within_its_block(limit, expected):
    with limit_threads(limit):
        assert threads_used() == expected
    assert threads_used() == 4


def test_an_inner_block_only_lowers_the_limit():
    with limit_threads(2):
        with limit_threads(1):
            assert threads_used() == 1
        with limit_threads(3):
            assert threads_used() == 2
        assert threads_used() == 2


def test_a_limit_ends_with_an_error():
    with pytest.raises(ZeroDivisionError), limit_threads(1):
        raise ZeroDivisionError
    assert threads_used() == 4


def test_other_threads_have_limits_of_their_own():
    found = []
    with limit_threads(1):
        other = threading.Thread(target=lambda: found.append(threads_used()))
        other.start()
        other.join()
        assert threads_used() == 1
    assert found == [4]


def test_one_thread_is_the_caller():
    seen = []
    with limit_threads(1):
        over_rows(lambda start, stop: seen.append(threading.get_ident()), 100, 1000)
    assert set(seen) == {threading.get_ident()}


def test_limits_change_no_number():
    rng = np.random.default_rng(0)
    targets, drafted = rng.dirichlet(np.ones(30), 40), rng.dirichlet(np.ones(30), 40)
    expected = mdsd.acceptance_bounds(targets, drafted, num_drafts=2)
    with limit_threads(1):
        found = mdsd.acceptance_bounds(targets, drafted, num_drafts=2)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("count", [0, -1, 1.0, True, None])
def test_bad_limits(count):
    with (
        pytest.raises(mdsd.InvalidArgumentError, match=f"count is {count}"),
        limit_threads(count),
    ):
        pass
