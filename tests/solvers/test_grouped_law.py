"""Laws of drafts as groups see them: parts put together, and nodes left out."""

from __future__ import annotations

import numpy as np
import pytest

from mdsd._solvers.grouped_law import (
    CERTAIN,
    DRAWS,
    INDEPENDENT,
    GroupedLaw,
    join_parts,
    part_of,
    single_groups,
    with_fewer_nodes,
)
from mdsd._solvers.law_parts import certain_tokens, draws_without_replacement, independent_draws

from .grouped_laws import INDEPENDENT as LAWS
from .grouped_laws import PARTS, grouped, instances


def check_law(law: GroupedLaw) -> None:
    """Check that all arrays agree on how many parts, groups, nodes and numbers there are."""
    parts, size = len(law.kinds), len(law.targets)
    for starts in (law.firsts, law.single_starts, law.time_starts, law.number_starts):
        assert starts.shape == (parts + 1,)
        assert starts[0] == 0
        assert (np.diff(starts) >= 0).all()
    assert law.firsts[-1] == size
    assert law.single_starts[-1] == len(law.singles)
    assert law.time_starts[-1] == len(law.times) == len(law.node_weights)
    assert law.number_starts[-1] == len(law.numbers)
    for of_parts in (law.draws, law.tokens, law.tables, law.scales, law.latest):
        assert len(of_parts) == parts
    for of_groups in (law.likely, law.heads, law.rates, law.powers):
        assert len(of_groups) == size
    for c, kind in enumerate(law.kinds):
        groups = law.firsts[c + 1] - law.firsts[c]
        singles = law.singles[law.single_starts[c] : law.single_starts[c + 1]]
        nodes = law.time_starts[c + 1] - law.time_starts[c]
        numbers = law.number_starts[c + 1] - law.number_starts[c]
        assert (np.diff(singles) > 0).all()
        assert set(law.tables[c][law.tables[c] >= 0]) == set(range(len(singles), groups))
        per_group = {CERTAIN: 0, INDEPENDENT: law.draws[c], DRAWS: law.draws[c] * nodes}[kind]
        assert numbers == groups * per_group
        assert (nodes > 0) == (kind == DRAWS)


def part_laws(name: str) -> list[GroupedLaw]:
    """Give the law of each part by itself."""
    rng, found = np.random.default_rng(0), []
    for part in PARTS[name]:
        found.append(part.group(rng.dirichlet(np.ones(part.vocab_size)), 1, 2))
    return found


@pytest.mark.parametrize("name", PARTS)
class TestLaws:
    def test_arrays_agree(self, name):
        for case in instances(name):
            check_law(case.law)

    def test_targets_are_those_of_the_tokens(self, name):
        for case in instances(name):
            groups, drafted = case.groups, case.groups >= 0
            expected = np.bincount(groups[drafted], case.target[drafted], case.size)
            np.testing.assert_allclose(case.law.targets, expected, rtol=1e-14)

    def test_every_group_is_of_its_part(self, name):
        for case in instances(name):
            parts = part_of(np.arange(case.size), case.law)
            for place, part in enumerate(case.parts):
                mine = slice(part.offset, part.offset + part.vocab_size)
                found = case.groups[mine][case.groups[mine] >= 0]
                assert set(parts[found]) == {place}
                assert set(found) == set(np.flatnonzero(parts == place))

    def test_no_group_is_likelier_than_said(self, name):
        """As many drafts as are of a group on average, or more."""
        for case in instances(name):
            expected = np.zeros(case.size)
            for row, prob in case.exact.items():
                np.add.at(expected, case.groups[list(row)], float(prob))
            assert (case.law.likely >= expected * (1.0 - 1e-12)).all()


@pytest.mark.parametrize("wrong", ["targets", "numbers", "firsts", "singles"])
def test_check_notices_what_does_not_fit(wrong):
    """Negative controls of `check_law`."""
    law = instances("three")[1].law
    check_law(law)
    value = getattr(law, wrong)[1:]
    with pytest.raises(AssertionError):
        check_law(law._replace(**{wrong: value}))


class TestJoin:
    @pytest.mark.parametrize("name", ["top-and-tail", "two-draws", "copies"])
    def test_what_follows_comes_after(self, name):
        first, second = part_laws(name)
        law = join_parts(first, second)
        check_law(law)
        for field in ("kinds", "draws", "targets", "times", "numbers", "singles", "scales"):
            expected = [*getattr(first, field), *getattr(second, field)]
            assert getattr(law, field).tolist() == expected
        assert law.firsts.tolist() == [
            0,
            len(first.targets),
            len(first.targets) + len(second.targets),
        ]

    def test_three_in_either_way(self):
        first, second, third = part_laws("three")
        left = join_parts(join_parts(first, second), third)
        right = join_parts(first, join_parts(second, third))
        check_law(left)
        for one, other in zip(left, right, strict=True):
            np.testing.assert_array_equal(one, other)

    def test_the_first_group_of_each_part(self):
        law = instances("three")[1].law
        order = np.concatenate([law.firsts[:-1], law.firsts[1:] - 1])
        assert part_of(order, law).tolist() == [0, 1, 2, 0, 1, 2]


class TestFewerNodes:
    @pytest.mark.parametrize("every", [1, 2, 3, 5])
    @pytest.mark.parametrize("name", ["draws-faint-n3", "three", "two-draws", "certain"])
    def test_one_of_so_many_is_kept(self, name, every):
        law = instances(name)[1].law
        fewer = with_fewer_nodes(law, every)
        check_law(fewer)
        for c, kind in enumerate(law.kinds):
            nodes = slice(law.time_starts[c], law.time_starts[c + 1])
            kept = slice(fewer.time_starts[c], fewer.time_starts[c + 1])
            assert fewer.times[kept].tolist() == law.times[nodes][::every].tolist()
            np.testing.assert_array_equal(
                fewer.node_weights[kept], law.node_weights[nodes][::every] * every
            )
            numbers = law.numbers[law.number_starts[c] : law.number_starts[c + 1]]
            if kind == DRAWS:
                width = len(law.times[nodes])
                numbers = numbers.reshape(-1, width)[:, ::every].ravel()
            found = fewer.numbers[fewer.number_starts[c] : fewer.number_starts[c + 1]]
            np.testing.assert_array_equal(found, numbers)

    def test_all_else_is_the_same(self):
        law = instances("two-draws")[1].law
        fewer = with_fewer_nodes(law, 3)
        changed = {"time_starts", "times", "node_weights", "number_starts", "numbers"}
        for field in set(law._fields) - changed:
            np.testing.assert_array_equal(getattr(law, field), getattr(fewer, field))


@pytest.mark.parametrize("name", PARTS)
def test_single_groups_hold_one_token(name):
    """Or one, and others that are nothing beside it."""
    for case in instances(name):
        groups, single = case.groups, single_groups(case.law)
        for part, first, stop in zip(
            case.parts, case.law.firsts, case.law.firsts[1:], strict=False
        ):
            for g in range(first, stop):
                tokens = np.flatnonzero(groups == g) - part.offset
                if part.kind == INDEPENDENT:
                    assert not single[g] or len(tokens) == 1
                elif part.kind == DRAWS:
                    masses = np.sort(part.probs[0, tokens])
                    assert single[g] == (masses[:-1].sum() <= 1e-16 * masses[-1])
                else:
                    assert single[g]


def test_independent_draws_share_groups():
    case = grouped(np.full(5, 0.2), [independent_draws(LAWS["flat"], 3)], 0, 2)
    assert np.bincount(case.groups).max() > 1
    assert not single_groups(case.law).any()
    alone = grouped(np.full(5, 0.2), [independent_draws(LAWS["flat"], 3)], 3, 2)
    assert single_groups(alone.law).all()


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (certain_tokens(np.array([2, 0]), 4), CERTAIN),
        (independent_draws(np.full((2, 4), 0.25), 2), INDEPENDENT),
        (draws_without_replacement(np.full(4, 0.25), 2), DRAWS),
        (draws_without_replacement(np.full(4, 0.25), 1), INDEPENDENT),
    ],
    ids=["certain", "independent", "draws", "one draw"],
)
def test_parts(part, kind):
    law = part.group(np.full(4, 0.25), 8, 8)
    check_law(law)
    assert law.kinds.tolist() == [kind]
    assert law.draws.tolist() == [part.num_drafts]
    assert part.moved(7).moved(2).offset == 9


def test_rows_of_the_same_law_are_as_one():
    """One row for n draws, or n rows that are equal."""
    rows = LAWS["flat"][:1]
    target = np.random.default_rng(0).dirichlet(np.ones(5))
    one = independent_draws(rows, 3).group(target, 9, 9)
    many = independent_draws(rows.repeat(3, axis=0), 3).group(target, 9, 9)
    np.testing.assert_array_equal(one.numbers, many.numbers)
