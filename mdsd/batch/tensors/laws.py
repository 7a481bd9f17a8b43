"""What each rule makes of the rows of a batch: tests at the drafted tokens, and a residual."""

from __future__ import annotations

from collections.abc import Callable

from mdsd._typing import Tensor
from mdsd.batch._rules import Rule
from mdsd.batch.tensors.emission import RowTests
from mdsd.rules import greedy, kseq, naive, rrs, single, spechub
from mdsd.rules.accepting import Tests
from mdsd.rules.arrays import concat, full, namespace, take
from mdsd.rules.sums import marked


class _Drafted:
    """Reads masses (B, V) at the tested drafts (B, m) of each row."""

    def __init__(self, ids: Tensor) -> None:
        self.ids = ids

    def __call__(self, masses: Tensor, drafts: slice) -> Tensor:
        return take(masses, self.ids[:, drafts])


def _rows(tests: Tests, tested: Tensor) -> RowTests:
    chances = tests.chances or [full(tests.residual, (tested.shape[0], 0), 0.0)]
    return RowTests(concat(chances), tested, tests.residual)


def _naive(p: Tensor, q: Tensor, ids: Tensor) -> RowTests:
    return _rows(naive.naive_tests(p), ids[:, naive.TESTED])


def _single(p: Tensor, q: Tensor, ids: Tensor) -> RowTests:
    return _rows(single.single_tests(p, q, _Drafted(ids)), ids[:, single.TESTED])


def _greedy(p: Tensor, q: Tensor, ids: Tensor) -> RowTests:
    tail = greedy.tail_law(q, ids[:, :-1])
    return _rows(greedy.greedy_tests(p, tail, _Drafted(ids)), ids[:, greedy.TESTED])


def _steady(p: Tensor, q: Tensor, ids: Tensor) -> RowTests:
    return _rows(rrs.rrs_tests(p, [q] * ids.shape[1], _Drafted(ids)), ids[:, rrs.TESTED])


def _shrinking(p: Tensor, q: Tensor, ids: Tensor) -> RowTests:
    laws = rrs.laws_without_replacement(q, ids)
    return _rows(rrs.rrs_tests(p, laws, _Drafted(ids)), ids[:, rrs.TESTED])


def _kseq(p: Tensor, q: Tensor, ids: Tensor) -> RowTests:
    count = ids.shape[1]
    rho = kseq.kseq_root(p, q, count)
    return _rows(kseq.kseq_tests(p, q, rho, count, _Drafted(ids)), ids[:, kseq.TESTED])


def _spechub(p: Tensor, q: Tensor, ids: Tensor) -> RowTests:
    xp, given = namespace(q), take(q, ids)
    ahead, behind = given[:, :1], given[:, 1:]
    hub_first = (ahead > behind) | ((ahead == behind) & (ids[:, :1] < ids[:, 1:]))
    tested = spechub.tested_in_turn(ids, hub_first)
    is_hub = marked(tested[:, 1:], q.shape[1])
    cases = spechub.case_masses(q, is_hub)
    tests = spechub.spechub_tests(p, is_hub, cases, _Drafted(tested))
    other_first, hub_ahead = tests.chances
    return RowTests(xp.where(hub_first, hub_ahead, other_first), tested, tests.residual)


TESTS: dict[Rule, Callable[[Tensor, Tensor, Tensor], RowTests]] = {
    Rule.NAIVE: _naive,
    Rule.SINGLE_FIRST: _single,
    Rule.SINGLE_LAST: _greedy,
    Rule.RRS_STEADY: _steady,
    Rule.RRS_SHRINKING: _shrinking,
    Rule.KSEQ: _kseq,
    Rule.SPECHUB: _spechub,
}
"""What each rule makes of p and q (B, V) and ids (B, n): the law of what is emitted."""
