"""Chance: drawn answers follow the laws, and enumerated ones are those laws."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest

import mdsd
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.enumeration import branches
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.testing import chi_square_p_value, drafts_of

from .toys import V

FALSE_ALARM = 1e-6
DRAWS = 4000

RNG = np.random.default_rng(5)
TARGET = RNG.dirichlet(np.ones(V))
LAWS = {
    f"{law.name}-{n}": law
    for n in (1, 2)
    for law in drafts_of([RNG.dirichlet(np.ones(V)) for _ in range(n)], n, 0)
}
PAIRS = [
    (law, name)
    for law, name in itertools.product(LAWS, mdsd.verifier_names())
    if mdsd.get_verifier(name).supports(LAWS[law])
]


def law_of(run):
    law = defaultdict(float)
    for prob, result in branches(run):
        law[result] += prob
    return dict(law)


@pytest.mark.parametrize("name", LAWS)
class TestDrafts:
    def test_enumerated_drafts_are_the_law(self, name):
        law = LAWS[name]
        found = law_of(lambda choices: tuple(choices.drafts(law).tolist()))
        assert found == pytest.approx(dict(law.tuples()), abs=1e-15)

    def test_drawn_drafts_are_samples_of_the_draft_stream(self, name):
        law = LAWS[name]
        choices, again = RandomChoices(3), RandomChoices(3)
        first = [choices.drafts(law).tolist() for _ in range(5)]
        # Verifying in between takes nothing from the stream of the drafts.
        second = []
        for _ in range(5):
            second.append(again.drafts(law).tolist())
            again.token(TARGET)
        assert first == second
        assert first[0] == law.sample(3).tolist()


@pytest.mark.parametrize(("name", "verifier"), PAIRS, ids=lambda part: str(part))
class TestVerify:
    def test_enumerated_tokens_are_the_output_law(self, name, verifier):
        law, rule = LAWS[name], mdsd.get_verifier(verifier)
        ids = law.sample(0)
        expected = rule.plan(TARGET, law).output_law(ids)
        found = law_of(lambda choices: choices.verify(rule, TARGET, law, ids))
        for token in range(V):
            assert found.get(token, 0.0) == expected[token]

    def test_drawn_tokens_are_those_of_the_plan(self, name, verifier):
        law, rule = LAWS[name], mdsd.get_verifier(verifier)
        choices, rng = RandomChoices(7), mdsd._random.generator(7, "verify")
        plan = rule.plan(TARGET, law)
        for ids in law.sample(1, 20):
            assert choices.verify(rule, TARGET, law, ids) == plan.verify(ids, rng).token_id


def test_a_law_of_ones_own_is_verified_by_its_plan():
    class Own(mdsd.DraftDistribution):
        name, num_drafts, vocab_size = "own", 1, 2
        draft_probs = np.array([0.5, 0.5])  # not what it draws from

        def sample(self, rng, size=None):
            return np.zeros((1,) if size is None else (size, 1), dtype=np.int64)

        def hit_probs(self, order):
            return np.concatenate([[0.0], np.cumsum(np.array([1.0, 0.0])[order])])

        def tuples(self):
            return iter([((0,), 1.0)])

    rule, target = mdsd.OptimalVerifier(), np.array([0.25, 0.75])
    for law in (Own(), Own()):
        found = law_of(lambda choices, law=law: choices.verify(rule, target, law, np.array([0])))
        assert found == pytest.approx({0: 0.25, 1: 0.75}, abs=1e-15)
    choices = RandomChoices(0)
    drawn = [choices.verify(rule, target, law, choices.drafts(law)) for _ in range(300)]
    counts = np.bincount(drawn, minlength=2)
    assert chi_square_p_value(counts, target) > FALSE_ALARM


class TestAcceptAndToken:
    @pytest.mark.parametrize(("prob", "expected"), [(0.0, {False: 1.0}), (1.0, {True: 1.0})])
    def test_certain(self, prob, expected):
        assert law_of(lambda choices: choices.accept(prob)) == expected
        assert {RandomChoices(k).accept(prob) for k in range(50)} == set(expected)

    def test_accept(self):
        assert law_of(lambda choices: choices.accept(0.25)) == {True: 0.25, False: 0.75}
        choices = RandomChoices(0)
        passed = sum(choices.accept(0.25) for _ in range(DRAWS))
        counts = [passed, DRAWS - passed]
        assert chi_square_p_value(counts, np.array([0.25, 0.75])) > FALSE_ALARM
        assert chi_square_p_value(counts, np.array([0.35, 0.65])) < FALSE_ALARM

    def test_token_of_masses(self):
        masses = np.array([0.0, 2.0, 0.0, 6.0])
        assert law_of(lambda choices: choices.token(masses)) == {1: 0.25, 3: 0.75}
        choices = RandomChoices(0)
        counts = np.bincount([choices.token(masses) for _ in range(DRAWS)], minlength=4)
        assert chi_square_p_value(counts, masses / 8.0) > FALSE_ALARM


@pytest.mark.parametrize(
    "law",
    [
        mdsd.WithReplacement(RNG.dirichlet(np.ones(V)), 3),
        mdsd.WithoutReplacement(RNG.dirichlet(np.ones(V)), 3),
        mdsd.IndependentDrafts(RNG.dirichlet(np.ones(V), size=3)),
    ],
    ids=lambda law: law.name,
)
class TestSelect:
    """Selection of the marks and of the lottery, the accept test left out."""

    def test_selected_tokens_have_the_masses_of_the_plan(self, law):
        plan = mdsd.OptimalVerifier().plan(TARGET, law)
        selected = np.zeros(V)
        for ids, prob in law.tuples():
            drafts = np.array(ids)
            found = law_of(lambda choices, drafts=drafts: choices.select(plan, drafts))
            for position, share in found.items():
                assert ids.index(ids[position]) == position  # the first of equal drafts
                selected[ids[position]] += prob * share
        np.testing.assert_allclose(selected, plan.selected, rtol=0, atol=1e-13)

    def test_drawn_positions(self, law):
        plan, choices = mdsd.OptimalVerifier().plan(TARGET, law), RandomChoices(0)
        for ids in law.sample(2, 3):
            expected = law_of(lambda choices, ids=ids: choices.select(plan, ids))
            counts = Counter(choices.select(plan, ids) for _ in range(1000))
            p_value = chi_square_p_value(
                [counts[k] for k in range(3)], np.array([expected.get(k, 0.0) for k in range(3)])
            )
            assert p_value > FALSE_ALARM


class TestStreams:
    def test_one_seed_gives_two_streams(self):
        choices = RandomChoices(11)
        law = mdsd.WithReplacement(np.full(1000, 1e-3), 1)
        drafted = [int(choices.drafts(law)[0]) for _ in range(20)]
        tokens = [choices.token(law.draft_probs) for _ in range(20)]
        assert drafted != tokens

    def test_a_generator_serves_both(self):
        rng = np.random.default_rng(0)
        choices = RandomChoices(rng)
        law = mdsd.WithReplacement(TARGET, 1)
        before = rng.bit_generator.state
        choices.drafts(law)
        between = rng.bit_generator.state
        choices.token(TARGET)
        assert before != between != rng.bit_generator.state

    @pytest.mark.parametrize("rng", ["0", 1.5, -1, np.random])
    def test_bad_source(self, rng):
        with pytest.raises(InvalidArgumentError, match="rng"):
            RandomChoices(rng)


class TestBranches:
    def test_every_branch_once_with_its_probability(self):
        first, second = np.array([0.5, 0.0, 0.5]), np.array([0.25, 0.75])

        def run(choices):
            token = choices.token(first)
            return (token, choices.token(second)) if token else (token,)

        found = [(prob, result) for prob, result in branches(run)]
        assert found == [(0.5, (0,)), (0.125, (2, 0)), (0.375, (2, 1))]

    def test_nothing_left_to_chance(self):
        assert list(branches(lambda choices: "done")) == [(1.0, "done")]

    def test_as_many_as_allowed(self, monkeypatch):
        monkeypatch.setattr("mdsd.decoding.enumeration.MAX_BRANCHES", 4)
        coin = np.array([0.5, 0.5])
        assert len(list(branches(lambda c: (c.token(coin), c.token(coin))))) == 4
        with pytest.raises(UnsupportedError, match="4 branches"):
            list(branches(lambda c: [c.token(coin) for _ in range(3)]))
