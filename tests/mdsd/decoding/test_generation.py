"""Generation: what comes out, how many calls it takes, and what is reported about it."""

from __future__ import annotations

import dataclasses
import pickle
from collections import Counter

import numpy as np
import pytest

import mdsd
from mdsd.decoding import TableModel, TreeShape, generate
from mdsd.decoding.batch_scheme import batch_shape
from mdsd.decoding.decoder import make_decoder
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    UnsupportedError,
)
from mdsd.testing import accepted_law, chi_square_p_value, sequence_law

from .toys import (
    DRAFTS,
    HastyVerifier,
    PrefixModel,
    SameRow,
    V,
    combinations,
    filtered,
    plain_law,
)

FALSE_ALARM = 1e-6
PROMPT = [1]


def models(draft="without_replacement"):
    second = [PrefixModel(2), PrefixModel(3), PrefixModel(4)]
    return PrefixModel(1), second if draft == "independent" else second[0]


def run(draft="without_replacement", length=12, **options):
    target, draft_model = models(draft)
    return generate(target, draft_model, PROMPT, draft=draft, max_new_tokens=length, **options)


def greedy_output(target, length):
    tokens = []
    for _ in range(length):
        tokens.append(int(np.argmax(target.probs([*PROMPT, *tokens]))))
    return tokens


COMBINATIONS = list(combinations(3))


@pytest.mark.parametrize(
    ("draft", "verifier", "tree"), COMBINATIONS, ids=lambda part: str(part).replace(" ", "")
)
class TestEveryCombination:
    def test_temperature_zero_is_greedy_decoding(self, draft, verifier, tree):
        expected = greedy_output(models()[0], 7)
        for seed in (1, 2):
            result = run(draft, 7, verifier=verifier, tree=tree, temperature=0.0, rng=seed)
            assert result.token_ids.tolist() == expected

    def test_same_seed_same_output(self, draft, verifier, tree):
        options = {"verifier": verifier, "tree": tree}
        first, again, other = (run(draft, rng=seed, **options) for seed in (17, 17, 18))
        assert first.token_ids.tolist() == again.token_ids.tolist()
        assert first.acceptance_by_depth.tolist() == again.acceptance_by_depth.tolist()
        assert (first.target_calls, first.draft_calls) == (again.target_calls, again.draft_calls)
        assert first.token_ids.tolist() != other.token_ids.tolist()
        assert len(first.token_ids) == 12


class TestCalls:
    @pytest.mark.parametrize(
        "tree", [[3, 2, 1], [1, 1, 1, 1], TreeShape([-1, 0, 0, 2, 3])], ids=str
    )
    def test_one_target_call_for_each_step(self, tree):
        target, draft_model = models()
        chunks = []
        result = generate(
            target, draft_model, PROMPT, tree=tree, max_new_tokens=20, rng=0, callback=chunks.append
        )
        assert result.target_calls == len(target.calls) == len(chunks)
        assert result.draft_calls == len(draft_model.calls)
        assert [token for chunk in chunks for token in chunk] == result.token_ids.tolist()
        shape = mdsd.trees.read_tree(tree)
        prefix = list(PROMPT)
        for chunk, prefixes in zip(chunks, target.calls, strict=True):
            left = 20 - (len(prefix) - len(PROMPT))
            assert prefixes[0] == prefix
            assert len(prefixes) == 1 + shape.truncated(left).num_nodes
            # What was accepted is one of the prefixes the target was asked about.
            assert [*prefix, *chunk][:-1] in prefixes or len(chunk) == left
            prefix += chunk

    def test_each_level_is_drafted_in_one_call(self):
        target, draft_model = models()
        generate(target, draft_model, PROMPT, tree=[3, 2, 2], max_new_tokens=9, rng=3)
        sizes = [len(prefixes) for prefixes in draft_model.calls]
        assert sizes[:3] == [1, 3, 6]

    def test_independent_drafts_call_each_model(self):
        target, drafts = models("independent")
        result = generate(
            target, drafts, PROMPT, draft="independent", tree=[3, 2], max_new_tokens=5, rng=0
        )
        assert result.draft_calls == sum(len(model.calls) for model in drafts)
        assert {len(model.calls) for model in drafts} == {result.draft_calls // 3}

    def test_children_are_what_the_draft_model_proposed(self):
        target, draft_model = models()
        generate(target, draft_model, PROMPT, tree=[2, 2], max_new_tokens=3, rng=5, top_k=2)
        nodes = target.calls[0]
        for node in (0, 1, 2):
            children = [nodes[k][-1] for k in TreeShape.k_ary(2, 2).children(node)]
            top = np.argsort(-draft_model.probs(nodes[node]))[:2]
            assert sorted(children) == sorted(top)

    def test_models_may_not_see_each_others_lists(self):
        target, draft_model = models()
        prompt = np.array(PROMPT)
        generate(target, draft_model, prompt, max_new_tokens=5, rng=0)
        assert prompt.tolist() == PROMPT
        assert all(type(token) is int for prefixes in target.calls for p in prefixes for token in p)

    def test_only_rows_on_the_path_are_filtered(self):
        target, draft_model = models()
        seen = []

        def processor(prefix, logits):
            seen.append(tuple(prefix))
            return logits

        result = generate(
            target,
            draft_model,
            PROMPT,
            tree=[3, 2, 1],
            max_new_tokens=30,
            rng=0,
            logits_processor=processor,
        )
        drafted = sum(len(prefixes) for prefixes in draft_model.calls)
        assert len(seen) - drafted <= 4 * result.target_calls
        assert len(seen) - drafted < sum(len(prefixes) for prefixes in target.calls)


class TestReport:
    def test_counts_agree(self):
        chunks = []
        result = run(length=200, tree=[2, 2, 1], rng=4, callback=chunks.append)
        assert result.token_ids.dtype == np.int64
        assert result.tokens_per_target_call == 200 / result.target_calls
        assert len(result.acceptance_by_depth) == 3
        assert (np.diff(result.acceptance_by_depth) <= 0.0).all()
        # Every step but the last emits its accepted tokens and one more.
        lengths = Counter(min(len(chunk) - 1, 3) for chunk in chunks[:-1])
        for depth in (1, 2, 3):
            reached = sum(count for length, count in lengths.items() if length >= depth)
            found = result.acceptance_by_depth[depth - 1] * result.target_calls
            assert reached <= found + 1e-9
            assert found <= reached + 1 + 1e-9

    def test_first_step_accepts_with_the_probabilities_of_theory(self):
        # Rows do not depend on the prefix: depth d is accepted with (sum of min(p, q))**d.
        p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
        target, draft_model = SameRow(np.log(p)), SameRow(np.log(q))
        law = accepted_law(target, draft_model, [0], verifier="single", num_drafts=1, depth=3)
        np.testing.assert_allclose(
            law[::-1].cumsum()[::-1], 0.7 ** np.arange(4), rtol=0, atol=1e-14
        )

    def test_sampled_acceptance(self):
        p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
        result = generate(
            SameRow(np.log(p)),
            SameRow(np.log(q)),
            [0],
            verifier="single",
            num_drafts=1,
            depth=2,
            max_new_tokens=1000,
            rng=0,
        )
        steps = result.target_calls
        first = round(result.acceptance_by_depth[0] * steps)
        assert chi_square_p_value([first, steps - first], np.array([0.7, 0.3])) > FALSE_ALARM
        assert chi_square_p_value([first, steps - first], np.array([0.8, 0.2])) < FALSE_ALARM

    def test_equal_models_accept_everything(self):
        target = PrefixModel(1)
        result = generate(
            target, PrefixModel(1), PROMPT, num_drafts=1, depth=4, max_new_tokens=13, rng=0
        )
        assert result.acceptance_by_depth.tolist() == [1.0] * 4
        assert (result.target_calls, result.draft_calls) == (3, 4 + 4 + 3)

    def test_depth_beyond_the_length_is_not_reported(self):
        result = run(length=2, tree=[1] * 6, rng=0)
        assert len(result.acceptance_by_depth) == 2
        assert len(run(length=3, tree=TreeShape([-1])).acceptance_by_depth) == 0

    def test_seconds(self):
        seconds = run(rng=0).seconds
        assert min(seconds.drafting, seconds.target, seconds.verification) > 0.0
        assert seconds.total == seconds.drafting + seconds.target + seconds.verification

    def test_result_is_frozen(self):
        result = pickle.loads(pickle.dumps(run(rng=0)))
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.target_calls = 0
        with pytest.raises(ValueError, match="read-only"):
            result.token_ids[0] = 0


class TestEnd:
    TARGET = TableModel(np.eye(6)[[1, 2, 3, 4, 5, 0]])  # counts up

    def out(self, length, eos, depth=3):
        chunks = []
        result = generate(
            self.TARGET,
            self.TARGET,
            [0],
            num_drafts=1,
            depth=depth,
            max_new_tokens=length,
            eos_token_id=eos,
            callback=chunks.append,
        )
        assert [token for chunk in chunks for token in chunk] == result.token_ids.tolist()
        return result

    @pytest.mark.parametrize("eos", [3, [3], [3, 5], np.array([5, 3]), np.int64(3)], ids=repr)
    def test_end_token_is_the_last(self, eos):
        assert self.out(9, eos).token_ids.tolist() == [1, 2, 3]

    def test_end_token_as_bonus_and_across_steps(self):
        assert self.out(9, 4).token_ids.tolist() == [1, 2, 3, 4]
        assert self.out(9, 5).token_ids.tolist() == [1, 2, 3, 4, 5]

    def test_end_token_in_the_prompt_ends_nothing(self):
        assert self.out(5, 0).token_ids.tolist() == [1, 2, 3, 4, 5]

    @pytest.mark.parametrize("length", range(1, 10))
    def test_exact_length(self, length):
        result = self.out(length, None)
        assert result.token_ids.tolist() == [(k + 1) % 6 for k in range(length)]
        assert result.target_calls == -(-length // 4)

    def test_cut_tail_is_not_counted(self):
        result = self.out(9, 2)
        assert result.acceptance_by_depth.tolist() == [1.0, 1.0, 0.0]


class TestBatchScheme:
    def test_shape(self):
        assert batch_shape(3, 2).parents == (-1, 0, 0, 0, 1, 2, 3)
        decoder = make_decoder(*models(), scheme="batch", num_drafts=2, depth=3)
        assert decoder.shape == batch_shape(2, 3)

    def test_one_chain_is_single_draft_decoding(self):
        options = {"draft": "with_replacement", "num_drafts": 1, "depth": 3, "rng": 5}
        alone = run(length=30, verifier="single", **options)
        assert run(length=30, scheme="batch", **options).token_ids.tolist() == (
            alone.token_ids.tolist()
        )

    def test_more_chains_accept_more_first_tokens(self):
        p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.3])
        rates = []
        for chains in (1, 2, 4):
            options = {"draft": "with_replacement", "num_drafts": chains, "depth": 1}
            models = SameRow(np.log(p)), SameRow(np.log(q))
            _, rate = accepted_law(*models, [0], scheme="batch", **options)
            plan = mdsd.RRSVerifier().plan(p, mdsd.WithReplacement(q, chains))
            assert rate == pytest.approx(plan.acceptance_rate, abs=1e-14)
            rates.append(rate)
        assert rates == sorted(set(rates))

    def test_no_tree_and_no_other_verifier(self):
        with pytest.raises(InvalidArgumentError, match="tree"):
            run(scheme="batch", tree=[2, 1])
        with pytest.raises(InvalidArgumentError, match="rrs"):
            run(scheme="batch", verifier="optimal")
        with pytest.raises(InvalidArgumentError, match="rrs"):
            run(scheme="batch", verifier=HastyVerifier())
        assert len(run(scheme="batch", verifier=mdsd.RRSVerifier(), rng=0).token_ids) == 12


class TestSampling:
    """Runs with fixed seeds against the law; each check is wrong once in a million seeds."""

    LENGTH = 2

    def p_value(self, expected, runs=400, **options):
        target, draft_model = models()
        rng = np.random.default_rng(9)
        cells = {tokens: k for k, tokens in enumerate(sorted(expected))}
        counts = np.zeros(len(cells), dtype=np.int64)
        for _ in range(runs):
            result = generate(
                target, draft_model, PROMPT, max_new_tokens=self.LENGTH, rng=rng, **options
            )
            counts[cells[tuple(result.token_ids.tolist())]] += 1
        return chi_square_p_value(counts, np.array([expected[tokens] for tokens in cells]))

    def expected(self):
        return plain_law(models()[0].probs, PROMPT, self.LENGTH)

    def test_sequences_follow_the_target(self):
        assert self.p_value(self.expected(), tree=[2, 1]) > FALSE_ALARM

    def test_and_those_of_a_wrong_verifier_do_not(self):
        options = {"tree": [2, 1], "verifier": HastyVerifier()}
        assert self.p_value(self.expected(), **options) < FALSE_ALARM
        # They follow the law that is worked out for it, wrong as it is.
        law = sequence_law(*models(), PROMPT, self.LENGTH, **options)
        assert self.p_value(law, **options) > FALSE_ALARM


def test_fresh_entropy_and_global_state():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    outputs = {tuple(run(length=40).token_ids.tolist()) for _ in range(2)}
    assert len(outputs) == 2
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_one_token_vocabulary():
    model = SameRow([0.0])
    for draft in DRAFTS[:4]:
        verifier = "optimal"
        result = generate(model, model, [0], draft=draft, verifier=verifier, max_new_tokens=5)
        assert result.token_ids.tolist() == [0] * 5


@pytest.mark.parametrize("settings", [{"temperature": 0.7}, {"top_k": 2}, {"top_p": 0.6}], ids=str)
def test_filters_bound_what_can_be_emitted(settings):
    target, _ = models()
    result = run(length=60, rng=0, **settings)
    prefix = list(PROMPT)
    for token in result.token_ids.tolist():
        assert mdsd.filter_probs(target.probs(prefix), **settings)[token] > 0.0
        prefix.append(token)


def test_drafts_come_from_the_filtered_law():
    target, draft_model = models()
    generate(
        target, draft_model, PROMPT, draft="with_replacement", max_new_tokens=30, top_k=1, rng=0
    )
    for prefixes in target.calls:
        for prefix in prefixes[1:]:
            law = filtered(draft_model.probs(prefix[:-1]), top_k=1)
            assert law[prefix[-1]] == 1.0


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "error", "words"),
        [
            ({"verifier": "single"}, UnsupportedError, "single.*without_replacement"),
            ({"verifier": "kseq"}, UnsupportedError, "kseq.*without_replacement"),
            ({"draft": "greedy"}, UnsupportedError, "rrs.*greedy"),
            ({"draft": "spechub", "verifier": "spechub"}, InvalidArgumentError, "spechub.*2"),
            (
                {"draft": "spechub", "verifier": "spechub", "tree": [2, 1]},
                InvalidArgumentError,
                "spechub.*2",
            ),
            ({"draft": "independent"}, InvalidArgumentError, "draft_model.*list"),
            ({"draft": "explicit"}, InvalidArgumentError, "draft is 'explicit'"),
            ({"scheme": "forest"}, InvalidArgumentError, "scheme is 'forest'"),
        ],
        ids=lambda part: str(part) if isinstance(part, dict) else "",
    )
    def test_before_any_model_is_asked(self, options, error, words):
        target, draft_model = models()
        with pytest.raises(error, match=words):
            generate(target, draft_model, PROMPT, max_new_tokens=3, **options)
        assert target.calls == draft_model.calls == []

    def test_more_children_than_models(self):
        with pytest.raises(UnsupportedError, match=r"4 children.*3 draft models"):
            run("independent", num_drafts=4, depth=1)

    @pytest.mark.parametrize("given", [[], [PrefixModel(2), PrefixModel(3)]], ids=len)
    def test_several_models_for_one_law(self, given):
        with pytest.raises(InvalidArgumentError, match="draft_model"):
            generate(PrefixModel(1), given, PROMPT, max_new_tokens=3)

    def test_vocabularies_of_different_size(self):
        models = [PrefixModel(2), PrefixModel(3, vocab_size=5)]
        with pytest.raises(InvalidDistributionError, match=r"draft_model\[1\] has 5"):
            generate(PrefixModel(1), models, PROMPT, max_new_tokens=3, draft="independent")

    @pytest.mark.parametrize("prompt", [[], [V], [-1], [0.0], [[0]], None], ids=repr)
    def test_bad_prompt(self, prompt):
        with pytest.raises(InvalidTokenError, match="prompt_ids"):
            generate(*models(), prompt, max_new_tokens=3)

    def test_errors_of_a_callback_pass(self):
        def stop(token_ids):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(callback=stop)
