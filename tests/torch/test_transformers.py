"""Models of transformers: one forward a step, caches, and output of the law of plain generation."""

from __future__ import annotations

import copy
import inspect
import pickle
import textwrap
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from time import perf_counter

import numpy as np
import pytest

import mdsd
from mdsd.decoding import GrowingTree, MappedModel, NGramModel, TableModel, TreeShape
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.decoder import Decoder
from mdsd.decoding.enumeration import branches
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    MdsdError,
    UnsupportedError,
)
from mdsd.testing import chi_square_p_value

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers import (  # noqa: E402
    DynamicCache,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaModel,
    LogitsProcessor,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MptConfig,
    MptForCausalLM,
    PreTrainedTokenizerFast,
    StaticCache,
    StoppingCriteria,
    StopStringCriteria,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.generation.streamers import BaseStreamer  # noqa: E402

from mdsd.decoding.transformers import CausalLM, _batch, _rows, multi_draft  # noqa: E402
from mdsd.decoding.transformers._seeds import row_seeds  # noqa: E402
from mdsd.decoding.transformers._texts import CachedText  # noqa: E402

from .. import commands, pages  # noqa: E402
from ..mdsd.decoding.toys import combinations, plain_law  # noqa: E402
from .folders import byte_tokenizer, tiny_llama, word_tokenizer  # noqa: E402

FALSE_ALARM = 1e-6
V = 12
NO_SPECIAL = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, **NO_SPECIAL}
PATHS = (
    ("without_replacement", "block", [1, 1, 1]),
    ("without_replacement", "block", [2, 2]),
    ("with_replacement", "traversal", [2, 2]),
    ("without_replacement", "traversal", [3, 1]),
    ("without_replacement", "layers", [2, 2]),
    ("with_replacement", "layers", [2, 1, 1]),
)
# The first child has two of its own, the second one, the third none.
TREES = ([3, 2, 1], [1, 1, 1], TreeShape([-1, 0, 0, 0, 1, 1, 2]))
GROWING = GrowingTree(9, 4)


def build(kind, config, seed, **options):
    torch.manual_seed(seed)
    # Weights this large make laws that differ from token to token.
    return kind(config(**{**SIZES, "initializer_range": 0.6, **options})).eval()


@cache
def llama(seed=28, vocab_size=V, attention="sdpa"):
    return build(
        LlamaForCausalLM,
        LlamaConfig,
        seed,
        vocab_size=vocab_size,
        intermediate_size=16,
        max_position_embeddings=256,
        attn_implementation=attention,
    )


@cache
def near(seed=28, vocab_size=V, attention="sdpa", noise=0.08):
    """A model that agrees with another often, but not always."""
    model = copy.deepcopy(llama(seed, vocab_size, attention))
    torch.manual_seed(seed + 100)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(noise * torch.randn_like(weights) * weights.std().nan_to_num())
    return model


def double(model):
    """A copy in float64, in which what is equal is so to many digits."""
    return copy.deepcopy(model).double()


@contextmanager
def forwards(*models):
    """Count the forwards of each model."""
    counts = Counter()

    def count(model, arguments, output):
        counts[id(model)] += 1

    hooks = [model.register_forward_hook(count) for model in models]
    try:
        yield lambda model: counts[id(model)]
    finally:
        for hook in hooks:
            hook.remove()


def batch_of(*prompts, pad=0):
    """Left-padded prompts and their mask."""
    longest = max(map(len, prompts))
    ids = [[pad] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


# The name that this version of transformers gives the cache.
CACHE = (
    "cache"
    if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters
    else ("past_key_values")
)
PROMPTS = [[5, 1, 7], [2], [4, 4, 9, 10, 3, 6], [11, 8]]


def drafted(target, prompts, length=14, draft_model=None, **options):
    """Generate with drafts."""
    options = {"do_sample": False, "pad_token_id": 0, "draft_model": draft_model, **options}
    return target.generate(
        **batch_of(*prompts), max_new_tokens=length, custom_generate=multi_draft, **options
    )


def plain(target, prompts, length=14, **options):
    options = {"do_sample": False, "pad_token_id": 0, **options}
    return target.generate(**batch_of(*prompts), max_new_tokens=length, **options)


def new_tokens(output, prompts):
    return output[:, max(map(len, prompts)) :].tolist()


def fresh_logits(model, prefix):
    """Logits of the next token by a forward of the whole prefix."""
    with torch.no_grad():
        return model(torch.tensor([prefix])).logits[0, -1]


class Collector(BaseStreamer):
    def __init__(self):
        self.puts, self.ended = [], False

    def put(self, value):
        assert not self.ended
        self.puts.append(value.tolist())

    def end(self):
        self.ended = True


# --- one forward of the target for each step ------------------------------------------------------


class TestForwards:
    @pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS], ids=len)
    @pytest.mark.parametrize("tree", TREES, ids=str)
    def test_one_of_the_target_and_one_for_each_level(self, prompts, tree, monkeypatch):
        steps = []
        draw = Decoder.draw

        def counted(self, rows):
            steps.append(min(shape.depth, max(row.left for row in rows)))
            return draw(self, rows)

        monkeypatch.setattr(Decoder, "draw", counted)
        shape = mdsd.trees.read_tree(tree)
        target, draft_model = llama(), near()
        with forwards(target, draft_model) as count:
            drafted(target, prompts, 20, draft_model, tree=tree, do_sample=True, seed=0)
        assert count(target) == len(steps) < 20
        assert count(draft_model) == sum(steps)

    @pytest.mark.parametrize("do_sample", [False, True])
    def test_equal_models_accept_whole_paths(self, do_sample):
        target, draft_model = llama(), copy.deepcopy(llama())
        with forwards(target, draft_model) as count:
            drafted(
                target, PROMPTS, 20, draft_model, num_drafts=1, depth=4, do_sample=do_sample, seed=0
            )
        assert count(target) == 4
        assert count(draft_model) == 16

    @pytest.mark.parametrize("chunk", [1, 2, 3, 8])
    def test_prompts_read_ahead_in_pieces(self, chunk):
        target, draft_model = llama(), llama(5, 9)
        widths = []
        hook = target.register_forward_hook(
            lambda model, inputs, keywords, output: widths.append(keywords["input_ids"].shape[1]),
            with_kwargs=True,
        )
        options = {"tree": [2, 1], "target_token_ids": ORDER, "prefill_chunk_size": chunk}
        found = drafted(target, PROMPTS, 8, draft_model, **options)
        hook.remove()
        assert found.tolist() == plain(target, PROMPTS, 8).tolist()
        pieces = -(-5 // chunk)
        assert max(widths[:pieces]) == min(5, chunk)
        assert widths[pieces] <= 3

    def test_finished_rows_are_not_read_on(self):
        target = llama()
        lengths = []
        hook = target.register_forward_hook(
            lambda model, inputs, keywords, output: lengths.append(len(keywords["input_ids"])),
            with_kwargs=True,
        )
        eos = new_tokens(plain(target, PROMPTS), PROMPTS)[0][2]
        lengths.clear()
        drafted(target, PROMPTS, 14, near(), eos_token_id=eos)
        hook.remove()
        assert lengths[0] == len(PROMPTS)
        assert lengths[-1] < lengths[0]


# --- greedy decoding ------------------------------------------------------------------------------


class TestGreedy:
    @pytest.mark.parametrize("attention", ["sdpa", "eager"])
    @pytest.mark.parametrize("tree", [*TREES, GROWING], ids=str)
    @pytest.mark.parametrize("size", [1, 2, 4])
    def test_output_is_that_of_plain_generation(self, size, tree, attention):
        target, draft_model = llama(28, V, attention), near(28, V, attention)
        rng = np.random.default_rng(size)
        for _ in range(4):
            prompts = [rng.integers(0, V, size=rng.integers(1, 9)).tolist() for _ in range(size)]
            expected = plain(target, prompts, 16)
            found = drafted(target, prompts, 16, draft_model, tree=tree)
            assert found.tolist() == expected.tolist()

    @pytest.mark.parametrize(
        ("draft", "verifier", "tree"), [*combinations(3), *PATHS], ids=lambda part: str(part)
    )
    def test_with_every_combination(self, draft, verifier, tree):
        target, draft_model = llama(), near()
        if draft == "independent":
            draft_model = [near(), llama(2), NGramModel([1, 2, 3, 1, 2, 4], V, 2)]
        options = {"draft": draft, "verifier": verifier, "tree": tree}
        found = drafted(target, PROMPTS[:2], 9, draft_model, **options)
        assert found.tolist() == self.expected()

    @staticmethod
    @cache
    def expected():
        return plain(llama(), PROMPTS[:2], 9).tolist()

    @pytest.mark.parametrize(
        ("kind", "config", "options"),
        [
            (GPT2LMHeadModel, GPT2Config, {}),
            (GPTNeoXForCausalLM, GPTNeoXConfig, {"intermediate_size": 16}),
        ],
        ids=["learned positions", "neox"],
    )
    def test_other_architectures(self, kind, config, options):
        target = build(kind, config, 3, vocab_size=V, max_position_embeddings=64, **options)
        drafts = NGramModel(np.arange(300) ** 2 % V, V, 3)
        expected = plain(target, PROMPTS, 16).tolist()
        for draft_model in (drafts, copy.deepcopy(target)):
            options = {"draft": "top_k", "verifier": "optimal", "tree": [2, 2]}
            assert drafted(target, PROMPTS, 16, draft_model, **options).tolist() == expected

    def test_bfloat16(self):
        # Rounding differs between one forward and another: only runs without near ties can agree.
        target = copy.deepcopy(llama()).to(torch.bfloat16)
        found = drafted(target, PROMPTS, 8, near())
        assert found.shape == plain(target, PROMPTS, 8).shape
        assert found[:, 6].tolist() == plain(target, PROMPTS, 1)[:, 6].tolist()

    def test_both_names_of_the_cache(self):
        other = "past_key_values" if CACHE == "cache" else "cache"

        def forward(self, input_ids=None, attention_mask=None, position_ids=None, **rest):
            rest[CACHE] = rest.pop(other)
            return LlamaForCausalLM.forward(self, input_ids, attention_mask, position_ids, **rest)

        parameters = [
            *list(inspect.signature(forward).parameters.values())[:-1],
            inspect.Parameter(other, inspect.Parameter.KEYWORD_ONLY, default=None),
            inspect.Parameter("rest", inspect.Parameter.VAR_KEYWORD),
        ]
        forward.__signature__ = inspect.Signature(parameters)
        kind = type("OtherLlama", (LlamaForCausalLM,), {"forward": forward})
        renamed = kind(llama().config).eval()
        renamed.load_state_dict(llama().state_dict())
        expected = plain(llama(), PROMPTS, 10).tolist()
        assert drafted(llama(), PROMPTS, 10, renamed).tolist() == expected
        with forwards(renamed) as count:
            assert new_tokens(drafted(renamed, PROMPTS, 10, renamed), PROMPTS) == new_tokens(
                torch.tensor(expected), PROMPTS
            )
        assert 0 < count(renamed) < 15


# --- law of the output ----------------------------------------------------------------------------

SMALL = 6
START = [1, 4, 2]


@cache
def next_law(model, prefix, warped=False):
    """Law of the next token by a forward of the whole prefix."""
    scores = fresh_logits(model, list(prefix)).double()
    if warped:  # temperature 0.7, then the four most likely, then what makes up 0.9 of them
        scores = scores / 0.7
        probs = scores.softmax(0)
        ranked = probs.argsort(descending=True)
        probs[ranked[4:]] = 0.0
        probs /= probs.sum()
        before = probs[ranked].cumsum(0) - probs[ranked]
        probs[ranked[before >= 0.9]] = 0.0
        return (probs / probs.sum()).numpy()
    return scores.softmax(0).numpy()


WARPERS = {"temperature": 0.7, "top_k": 4, "top_p": 0.9}


def law_of(length, warped=False):
    def probs(prefix):
        return next_law(llama(1, SMALL), tuple(prefix), warped)

    return plain_law(probs, START, length)


def sampled_p_value(runs, length=3, rows=500, warped=False, **options):
    """Chi-square test of seeded runs against the law of plain generation."""
    counts = Counter()
    for seed in range(runs // rows):
        output = drafted(
            llama(1, SMALL),
            [START] * rows,
            length,
            do_sample=True,
            seed=seed,
            **{
                "top_k": 0,
                **(WARPERS if warped else {}),
                "draft_model": llama(2, SMALL),
                **options,
            },
        )
        counts.update(map(tuple, new_tokens(output, [START])))
    law = law_of(length, warped)
    assert set(counts) <= set(law)
    cells = sorted(law)
    return chi_square_p_value([counts[cell] for cell in cells], np.array([law[c] for c in cells]))


class Neutral(LogitsProcessor):
    """One of one's own, about which nothing is known: rows wait for each other."""

    def __call__(self, input_ids, scores):
        assert len(input_ids) == 2
        return scores


class TestLaw:
    """Each check by sampling is wrong once in a million choices of seeds."""

    def test_twenty_thousand_runs(self):
        assert sampled_p_value(20_000, tree=[2, 1]) > FALSE_ALARM

    @pytest.mark.parametrize(
        ("draft", "verifier", "tree"),
        [
            ("with_replacement", "kseq", [3, 1]),
            ("without_replacement", "optimal", [2, 2]),
            ("without_replacement", "block", [2, 1]),
            ("with_replacement", "traversal", [2, 1]),
        ],
        ids=str,
    )
    def test_warpers_on_both_sides(self, draft, verifier, tree):
        options = {"draft": draft, "verifier": verifier, "tree": tree}
        assert sampled_p_value(1_000, 2, warped=True, **options) > FALSE_ALARM

    def test_drafts_of_another_law_than_declared_show(self, monkeypatch):
        def sharper(self, law):
            return type(law)(
                mdsd.filter_probs(law.draft_probs, temperature=0.5), law.num_drafts
            ).sample(self._draft)

        monkeypatch.setattr(RandomChoices, "drafts", sharper)
        assert sampled_p_value(1_500, 2, tree=[2, 1]) < FALSE_ALARM

    @pytest.mark.parametrize(
        ("tree", "mates", "processors"),
        [
            ([2, 1], [], []),
            ([2], [[2, 2], [0, 1, 0, 1]], []),
            ([1, 1], [[2, 2]], [Neutral()]),
            (GrowingTree(4, 2), [], []),
        ],
        ids=["alone", "with others", "in step", "growing"],
    )
    def test_every_branch(self, tree, mates, processors, monkeypatch):
        # The very law of a row, from every answer to its questions; the logits are float32.
        target, draft_model = llama(1, 3), llama(2, 3)
        row_class = _batch.BatchRow
        prompts = [[1, 0, 2], *mates]

        def run(choices):
            class Followed(row_class):
                def __init__(self, index, *rest):
                    super().__init__(index, *rest)
                    if index == 0:
                        self.choices = choices

            monkeypatch.setattr(_batch, "BatchRow", Followed)
            options = {"do_sample": True, "top_k": 0, "seed": 0, "logits_processor": processors}
            output = drafted(target, prompts, 2, draft_model, tree=tree, **options)
            return tuple(new_tokens(output, prompts)[0])

        law = Counter()
        for probability, tokens in branches(run):
            law[tokens] += probability
        expected = plain_law(lambda prefix: next_law(target, tuple(prefix)), prompts[0], 2)
        assert set(law) == set(expected)
        assert max(abs(law[tokens] - expected[tokens]) for tokens in law) < 1e-6


class TestSeeds:
    def out(self, prompts=PROMPTS, **options):
        return drafted(llama(), prompts, 12, near(), do_sample=True, **options)

    @pytest.mark.parametrize("name", ["rng", "seed", "generator"])
    def test_same_seed_same_output(self, name):
        first, again, other = (self.out(**{name: seed}).tolist() for seed in (3, 3, 4))
        assert first == again != other
        assert first == self.out(rng=np.int64(3)).tolist()

    def test_generators(self):
        for make in (np.random.default_rng, lambda seed: torch.Generator().manual_seed(seed)):
            source = make(3)
            first, second = self.out(generator=source).tolist(), self.out(generator=source).tolist()
            assert first == self.out(rng=make(3)).tolist() != second

    def test_global_seed_of_torch(self):
        outputs = []
        for seed in (5, 5, 6):
            torch.manual_seed(seed)
            outputs.append(self.out().tolist())
        assert outputs[0] == outputs[1] != outputs[2]

    def test_rows_of_equal_prompts_differ(self):
        rows = new_tokens(self.out([[5, 1, 7]] * 6, seed=0), [[5, 1, 7]])
        assert len({tuple(row) for row in rows}) > 1
        several = llama().generate(
            torch.tensor([[5, 1, 7]]),
            max_new_tokens=12,
            custom_generate=multi_draft,
            draft_model=near(),
            do_sample=True,
            seed=0,
            num_return_sequences=6,
        )
        assert several[:, 3:].tolist() == rows

    @pytest.mark.parametrize("tree", [*TREES, GROWING], ids=str)
    def test_a_row_does_not_depend_on_its_mates(self, tree):
        options = {"tree": tree, "seed": 11, "eos_token_id": 7}
        together = new_tokens(self.out(**options), PROMPTS)
        for order in ([2, 0], [3, 1, 0], [1]):
            prompts = [PROMPTS[k] for k in order]
            found = new_tokens(self.out(prompts, **options), prompts)
            for k, row in zip(order, found, strict=True):
                # A row ends in padding where others go on.
                ended = min(len(row), len(together[k]))
                assert row[:ended] == together[k][:ended]
                assert set(row[ended:] + together[k][ended:]) <= {0}

    def test_row_seeds_tell_rows_apart(self):
        prompts = [[1, 2], [1], [2, 1], [1, 2], [0, 1, 2]]
        assert len(set(row_seeds(0, prompts))) == 5
        assert not set(row_seeds(0, prompts)) & set(row_seeds(1, prompts))


# --- caches ---------------------------------------------------------------------------------------


class TestCaches:
    @pytest.mark.parametrize("tree", [*TREES, GROWING], ids=str)
    @pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS], ids=len)
    @pytest.mark.parametrize("attention", ["sdpa", "eager"])
    def test_logits_are_those_of_fresh_forwards(self, tree, prompts, attention, monkeypatch):
        asked, gap = [], []
        logits = _rows.CachedRows.logits

        def compared(self, prefixes):
            found = logits(self, prefixes)
            for row, row_prefixes in zip(found, prefixes, strict=True):
                for node, prefix in zip(row, row_prefixes, strict=True):
                    fresh = fresh_logits(self._model, prefix)
                    gap.append(float((node - fresh).abs().max()))
                    asked.append(len(prefix))
            return found

        monkeypatch.setattr(_rows.CachedRows, "logits", compared)
        target, draft_model = double(llama(28, V, attention)), double(near(28, V, attention))
        drafted(target, prompts, 14, draft_model, tree=tree, do_sample=True, seed=2, eos_token_id=3)
        assert len(asked) > 20
        # Eager attention takes its softmax in float32.
        assert max(gap) < (1e-12 if attention == "sdpa" else 1e-4)

    def test_only_the_accepted_path_is_kept(self, monkeypatch):
        kept = []
        keep = _rows.CachedRows.keep

        def checked(self, rows, prefixes):
            keep(self, rows, prefixes)
            kept.append([len(prefix) for prefix in prefixes])
            assert [text.token_ids for text in self._texts] == [
                prefix[: len(text.token_ids)]
                for text, prefix in zip(self._texts, prefixes, strict=True)
            ]
            assert self.cache.get_seq_length() == max(len(text.token_ids) for text in self._texts)
            # Of the accepted path at most the leaf has not been read, by a draft model.
            assert all(
                len(prefix) - len(text.token_ids) <= 2
                for text, prefix in zip(self._texts, prefixes, strict=True)
            )

        monkeypatch.setattr(_rows.CachedRows, "keep", checked)
        drafted(llama(), PROMPTS, 14, near(), tree=[3, 2, 1], do_sample=True, seed=2)
        assert len(kept) > 4

    @pytest.mark.parametrize("eos", [None, 3])
    def test_returned_cache_is_that_of_a_fresh_forward(self, eos):
        target = double(llama())
        for seed in range(5):
            output = drafted(
                target,
                PROMPTS[:1],
                14,
                near(),
                tree=[3, 2, 1],
                do_sample=True,
                seed=seed,
                eos_token_id=eos,
                return_dict_in_generate=True,
            )
            tokens = output.sequences[0].tolist()
            given = next(value for name, value in output.items() if name != "sequences")
            fresh = DynamicCache(config=target.config)
            with torch.no_grad():
                target(torch.tensor([tokens[:-1]]), use_cache=True, **{CACHE: fresh})
            assert given.get_seq_length() == len(tokens) - 1
            for layer, expected in zip(given.layers, fresh.layers, strict=True):
                torch.testing.assert_close(layer.keys, expected.keys, atol=1e-12, rtol=0)
                torch.testing.assert_close(layer.values, expected.values, atol=1e-12, rtol=0)

    def test_no_cache_of_several_rows(self):
        output = drafted(llama(), PROMPTS, 5, near(), return_dict_in_generate=True)
        assert list(output) == ["sequences", "results"]
        assert output.sequences.tolist() == plain(llama(), PROMPTS, 5).tolist()

    @pytest.mark.parametrize("tree", [[3, 2, 1], [1, 1, 1, 1], GROWING], ids=str)
    def test_what_each_row_took(self, tree):
        options = {"tree": tree, "do_sample": True, "seed": 4, "eos_token_id": 7}
        options["return_dict_in_generate"] = True
        begin = perf_counter()
        output = drafted(llama(), PROMPTS, 14, near(), **options)
        wall = perf_counter() - begin
        rows = new_tokens(output.sequences, PROMPTS)
        depth = 4 if tree != [3, 2, 1] else 3
        for prompt, row, result in zip(PROMPTS, rows, output.results, strict=True):
            tokens = result.token_ids.tolist()
            assert tokens == row[: len(tokens)]
            assert set(row[len(tokens) :]) <= {0}
            lengths, rates = result.accepted_lengths, result.synthetic_acceptance_rates
            assert result.tokens_per_target_call == len(tokens) / len(lengths)
            assert result.target_calls == len(lengths)
            # Each step emits one token more, but for a last one that is cut short.
            assert 0 <= lengths.sum() + len(lengths) - len(tokens) <= 1
            shares = [(lengths >= d).sum() for d in range(1, len(rates) + 1)]
            assert (
                result.acceptance_by_depth.tolist() == (shares / result.drafted_by_depth).tolist()
            )
            assert rates.tolist() == [
                min(result.acceptance_by_depth[: d + 1]) for d in range(len(rates))
            ]
            assert len(rates) <= depth
            alone = drafted(llama(), [prompt], 14, near(), **options).results[0]
            for name in ("token_ids", "accepted_lengths", "drafted_by_depth"):
                assert getattr(alone, name).tolist() == getattr(result, name).tolist()
            assert alone.draft_calls == result.draft_calls
        assert 0.0 < sum(result.seconds.total for result in output.results) < wall
        copied = pickle.loads(pickle.dumps(output))
        assert copied.results[0].token_ids.tolist() == output.results[0].token_ids.tolist()

    def test_equal_models_accept_all(self):
        target, options = llama(), {"num_drafts": 1, "depth": 4, "return_dict_in_generate": True}
        (result,) = drafted(target, PROMPTS[:1], 20, copy.deepcopy(target), **options).results
        assert result.accepted_lengths.tolist() == [4] * 4
        assert result.synthetic_acceptance_rates.tolist() == [1.0] * 4
        assert (result.tokens_per_target_call, result.draft_calls) == (5.0, 16)

    def test_what_a_criterion_takes_back_is_not_counted(self):
        class Short(StoppingCriteria):
            def __call__(self, input_ids, scores, **others):
                return input_ids.shape[1] >= torch.tensor([9, 20])

        prompts = [PROMPTS[0], PROMPTS[2]]
        rare = set(range(V)).difference(*plain(llama(), prompts).tolist()).pop()
        options = {"stopping_criteria": [Short()], "eos_token_id": rare}
        options["return_dict_in_generate"] = True
        models = llama(), prompts, 14, copy.deepcopy(llama())
        output = drafted(*models, num_drafts=1, depth=4, **options)
        # The first row has come to 5 tokens when it is found that it should have stopped at 3.
        assert [len(result.token_ids) for result in output.results] == [3, 14]
        assert [result.accepted_lengths.tolist() for result in output.results] == [[3], [4, 4, 4]]
        assert output.sequences[0, 9:].tolist() == [0] * 11

    def test_a_cache_of_ones_own(self):
        cache = DynamicCache(config=llama().config)
        output = drafted(llama(), PROMPTS[:1], 6, near(), **{CACHE: cache})
        assert output.tolist() == plain(llama(), PROMPTS[:1], 6).tolist()
        assert cache.get_seq_length() > 3


class TestTexts:
    """What is read, and where it is, against prefixes kept as they are."""

    @pytest.mark.parametrize("seed", range(5))
    def test_slots_hold_what_they_should(self, seed):
        rng = np.random.default_rng(seed)
        text, held = CachedText(), []
        prefix = [0]
        for _ in range(60):
            tails = [[]] + [
                rng.integers(0, 3, size=rng.integers(0, 4)).tolist()
                for _ in range(rng.integers(0, 5))
            ]
            asked = [prefix + tail for tail in tails]
            new, ends = text.unread(asked)
            start = len(held)
            visible = np.zeros((len(new), start + len(new)), dtype=bool)
            for branch in new:
                branch.slot = len(held)
                held.append(branch.token_id)
                text.see(visible, branch, start)
            for branch, expected in zip(ends, asked, strict=True):
                seen = np.flatnonzero(visible[branch.slot - start])
                assert [held[slot] for slot in seen] == expected
                assert branch.position == len(expected) - 1
            assert len(new) <= len({tuple(p[:k]) for p in asked for k in range(1, len(p) + 1)})
            kept = asked[rng.integers(len(asked))][: rng.integers(1, len(prefix) + 5)]
            slots = text.keep(kept)
            held = [held[slot] for slot in slots]
            assert held == text.token_ids == kept[: len(held)]
            prefix = [*kept, int(rng.integers(3))]

    def test_text_is_cut_to_what_is_common(self):
        text = CachedText()
        for slot, branch in enumerate(text.unread([[1, 2, 3, 4]])[0]):
            branch.slot = slot
        assert text.keep([1, 2, 3, 4]) == [0, 1, 2, 3]
        new, asked = text.unread([[1, 2, 5], [1, 2, 3, 4]])
        assert text.token_ids == [1, 2]
        assert [branch.token_id for branch in new] == [5, 3, 4]
        assert [branch.position for branch in asked] == [2, 3]


# --- ends -----------------------------------------------------------------------------------------


class TestEnds:
    @pytest.mark.parametrize("place", range(7))
    def test_end_token(self, place):
        target = llama()
        tokens = new_tokens(plain(target, PROMPTS[:1]), PROMPTS[:1])[0]
        eos = tokens[place]
        # With equal models the token stands inside an accepted path, at its end, or behind it.
        for draft_model in (near(), copy.deepcopy(target)):
            found = drafted(
                target, PROMPTS[:1], 14, draft_model, num_drafts=1, depth=4, eos_token_id=eos
            )
            expected = plain(target, PROMPTS[:1], eos_token_id=eos)
            assert found.tolist() == expected.tolist()
            assert found[0, -1] == eos

    @pytest.mark.parametrize("eos", [[3, 8], [0], [10, 11, 5]], ids=str)
    def test_end_tokens_and_padding_in_a_batch(self, eos):
        options = {"eos_token_id": eos, "pad_token_id": 6}
        expected = plain(llama(), PROMPTS, **options)
        assert drafted(llama(), PROMPTS, 14, near(), **options).tolist() == expected.tolist()

    @pytest.mark.parametrize("length", range(1, 8))
    def test_exact_length(self, length):
        target, draft_model = llama(), copy.deepcopy(llama())
        with forwards(target) as count:
            found = drafted(target, PROMPTS, length, draft_model, num_drafts=1, depth=3)
        assert found.tolist() == plain(target, PROMPTS, length).tolist()
        assert count(target) == -(-length // 4)

    def test_stopping_criteria(self):
        class AfterSum(StoppingCriteria):
            """Stop a row whose tokens add up to more than is allowed at its place."""

            def __init__(self, limits):
                self.limits = torch.tensor(limits)

            def __call__(self, input_ids, scores, **others):
                return input_ids.sum(dim=1) > self.limits[: len(input_ids)]

        limits = [50, 30, 1000, 60]
        options = {"stopping_criteria": [AfterSum(limits)], "pad_token_id": 6, "eos_token_id": 6}
        found = drafted(llama(), PROMPTS, 14, near(), **options)
        assert found.tolist() == plain(llama(), PROMPTS, **options).tolist()
        assert (found[0] == 6).sum() > 2

    def test_criteria_see_every_token_in_order(self):
        seen = []

        class Watcher(StoppingCriteria):
            def __call__(self, input_ids, scores, **others):
                seen.append(input_ids[0].tolist())
                return torch.full((len(input_ids),), False)

        output = drafted(llama(), PROMPTS[:1], 9, near(), stopping_criteria=[Watcher()])
        tokens = output[0].tolist()
        assert seen == [tokens[: 4 + k] for k in range(9)]

    def calls_of(self, generate, limits, **options):
        """What a criterion that remembers its rows is asked, and what comes out."""
        seen = []

        class Remembering(StoppingCriteria):
            """A row is done for good once its tokens add up to more than its own limit."""

            def __init__(self):
                self.done = torch.zeros(len(limits), dtype=torch.bool)

            def __call__(self, input_ids, scores, **others):
                seen.append((input_ids.tolist(), scores))
                for row, ids in enumerate(input_ids):
                    if ids.sum() > limits[row]:
                        self.done[row] = True
                return self.done.clone()

        output = generate(llama(), stopping_criteria=[Remembering()], **options)
        return seen, output.tolist()

    @pytest.mark.parametrize("eos", [6, [6, 1], None], ids=str)
    @pytest.mark.parametrize("tree", [[2, 1], [1, 1, 1, 1], GROWING], ids=str)
    @pytest.mark.parametrize("limits", [[50, 1000], [30, 60, 25, 45], [1000] * 3, [60]], ids=len)
    def test_criteria_are_asked_as_in_plain_generation(self, limits, tree, eos):
        prompts = PROMPTS[: len(limits)]
        options = {"pad_token_id": 6, "eos_token_id": eos}
        expected = self.calls_of(partial(plain, prompts=prompts), limits, **options)
        ours = partial(drafted, prompts=prompts, draft_model=near(), tree=tree)
        assert self.calls_of(ours, limits, **options) == expected

    @pytest.mark.parametrize("eos", [None, 6])
    @pytest.mark.parametrize("count", [1, 2, 4])
    def test_stop_strings(self, count, eos):
        tokenizer, prompts = byte_tokenizer(), PROMPTS[:count]
        texts = new_tokens(plain(llama(), prompts), prompts)
        stops = [tokenizer.decode(row[k + 2]) for k, row in enumerate(texts)]
        criterion = StopStringCriteria(tokenizer, stops)
        options = {"eos_token_id": eos, "stopping_criteria": [criterion]}
        expected = plain(llama(), prompts, **options)
        for tree in ([2, 1], [1, 1, 1, 1], GROWING):
            found = drafted(llama(), prompts, 14, near(), tree=tree, **options)
            assert found.tolist() == expected.tolist()
        assert max(map(len, new_tokens(expected, prompts))) < 14

    def test_without_an_end_token_rows_go_on_until_all_are_complete(self):
        class Short(StoppingCriteria):
            def __call__(self, input_ids, scores, **others):
                return input_ids.shape[1] == torch.tensor([8, 11, 9])

        options = {"pad_token_id": None, "stopping_criteria": [Short()]}
        options["return_dict_in_generate"] = True
        output = drafted(llama(), PROMPTS[:3], 14, near(), **options)
        assert output.sequences.tolist() == plain(llama(), PROMPTS[:3], 5).tolist()
        assert [len(result.token_ids) for result in output.results] == [5] * 3

    @pytest.mark.parametrize("eos", [6, None])
    def test_streamer_gets_no_token_that_is_taken_back(self, eos):
        class Short(StoppingCriteria):
            def __call__(self, input_ids, scores, **others):
                return input_ids.shape[1] >= torch.tensor([8, 11, 9])

        options = {"pad_token_id": 6, "eos_token_id": eos, "stopping_criteria": [Short()]}
        streams = Collector(), Collector()
        expected = plain(llama(), PROMPTS[:3], streamer=streams[0], **options)
        found = drafted(llama(), PROMPTS[:3], 14, near(), streamer=streams[1], **options)
        assert found.tolist() == expected.tolist()
        assert streams[1].puts == streams[0].puts

    def test_streamer_gets_tokens_in_order(self):
        expected, found = Collector(), Collector()
        plain(llama(), PROMPTS[:1], streamer=expected)
        drafted(llama(), PROMPTS[:1], 14, near(), streamer=found)
        assert found.puts == expected.puts
        assert found.ended

    @pytest.mark.parametrize("eos", [None, 3])
    def test_streamer_of_a_batch(self, eos):
        options = {"eos_token_id": eos, "pad_token_id": 0}
        expected, found = Collector(), Collector()
        plain(llama(), PROMPTS, streamer=expected, **options)
        drafted(llama(), PROMPTS, 14, near(), streamer=found, **options)
        assert found.puts == expected.puts
        assert found.ended

    def test_tokens_are_streamed_before_the_end(self):
        counts = []

        class Timed(Collector):
            def put(self, value):
                super().put(value)
                counts.append(count(target))

        target = llama()
        with forwards(target) as count:
            drafted(target, PROMPTS[:1], 14, near(), streamer=Timed())
        assert counts[0] == 0  # the prompt
        assert counts[1] == 1
        assert len(set(counts)) > 4


# --- logits processors ----------------------------------------------------------------------------


def allowed_by_row(batch_id, input_ids):
    return [k for k in range(V) if k % 3 != batch_id % 3]


class Recorder(LogitsProcessor):
    """Makes tokens unlikely that the prefix already holds, and remembers the prefixes."""

    def __init__(self):
        self.seen = []

    def __call__(self, input_ids, scores):
        self.seen += input_ids.tolist()
        scores = scores.clone()
        scores[torch.arange(len(scores)), input_ids[:, -1]] -= 5.0
        scores[torch.arange(len(scores)), input_ids.sum(dim=1) % V] += 2.0
        return scores


PROCESSORS = {
    "repetition": {"repetition_penalty": 1.7},
    "no repeated pairs": {"no_repeat_ngram_size": 2},
    "bad words": {"bad_words_ids": [[3], [4, 9], [1, 0, 6]]},
    "bias": {"sequence_bias": {(2,): 3.0, (5, 1): -4.0}},
    "least length": {"min_new_tokens": 6, "eos_token_id": [0, 1, 2, 3, 5]},
    "suppressed": {"suppress_tokens": [0, 7], "begin_suppress_tokens": [2, 9]},
    "forced end": {"forced_eos_token_id": 4, "eos_token_id": 4},
    "growing end": {"exponential_decay_length_penalty": (2, 1.5), "eos_token_id": 4},
    "prompt": {"encoder_repetition_penalty": 2.0, "encoder_no_repeat_ngram_size": 2},
    "allowed by row": {"prefix_allowed_tokens_fn": allowed_by_row},
}


def tries(row, start, text, eos):
    """Tokens that a row may go on with; raises an error where it cannot have come to."""
    for place in range(start, len(text)):
        token = text[place]
        if token == eos or (eos is not None and eos in text[start:place]):
            continue
        assert token in tries(row, start, text[:place], eos), (row, text)
    if eos is not None and len(text) - start >= 3 + row:
        return [eos]
    return [2 + (row + sum(text[start:])) % 4, 6 + row]


class Tries(LogitsProcessor):
    def __init__(self, allowed):
        self.allowed = allowed

    def __call__(self, input_ids, scores):
        assert len(input_ids) == len(scores) == 3
        mask = torch.full_like(scores, -torch.inf)
        for row, ids in enumerate(input_ids):
            mask[row, self.allowed(row, ids)] = 0.0
        return scores + mask


class Counting(LogitsProcessor):
    def __init__(self):
        self.calls = 0

    def __call__(self, input_ids, scores):
        self.calls += 1
        return scores if self.calls < 5 else scores + 1.0


class PerRow(LogitsProcessor):
    """Remembers which rows have had a token."""

    def __init__(self):
        self.had = {}

    def __call__(self, input_ids, scores):
        for row, ids in enumerate(input_ids):
            self.had[row] = self.had.get(row, False) or bool(ids[-1] == 3)
        return scores


class Grammar(LogitsProcessor):
    """Moves on by the last token of each row, in a method of its own."""

    def __init__(self):
        self.matcher = []

    def __call__(self, input_ids, scores):
        self.advance(input_ids[:, -1].tolist())
        scores[:, len(self.matcher) % 4] = -torch.inf
        return scores

    def advance(self, tokens):
        self.matcher.append(tokens)


def walking():
    """A function for allowed tokens that goes one step further at each call."""
    places = {}

    def walk(row, text):
        places[row] = places.get(row, 0) + 1
        return [places[row] % V]

    return walk


class Trusted(Counting):
    stateless = True


class TestProcessors:
    @pytest.mark.parametrize("name", PROCESSORS)
    @pytest.mark.parametrize("prompts", [PROMPTS[2:3], PROMPTS[:3]], ids=len)
    def test_greedy_output_is_that_of_plain_generation(self, name, prompts):
        options = PROCESSORS[name]
        expected = plain(llama(), prompts, 10, **options).tolist()
        found = drafted(llama(), prompts, 10, near(), tree=[2, 1, 1], **options)
        assert found.tolist() == expected

    @pytest.mark.parametrize("name", PROCESSORS)
    def test_they_change_drafts_alike(self, name):
        # Then equal models agree as ever.
        target, draft_model = llama(), copy.deepcopy(llama())
        with forwards(target) as count:
            found = drafted(
                target, PROMPTS[:3], 10, draft_model, num_drafts=1, depth=4, **PROCESSORS[name]
            )
        assert count(target) == -(-(found.shape[1] - 6) // 5)

    def test_one_of_ones_own(self):
        for prompts in (PROMPTS[:1], PROMPTS[:3]):
            first, second = Recorder(), Recorder()
            expected = plain(llama(), prompts, 10, logits_processor=[first])
            found = drafted(llama(), prompts, 10, near(), tree=[2, 2], logits_processor=[second])
            assert found.tolist() == expected.tolist()
            # It has seen all prefixes of the output, and none that is not drafted from one.
            assert {tuple(ids) for ids in first.seen} <= {tuple(ids) for ids in second.seen}
            texts = [row.tolist() for row in found]
            for ids in second.seen:
                agreed = max(
                    next((k for k, (a, b) in enumerate(zip(ids, t)) if a != b), len(ids))  # noqa: B905
                    for t in texts
                )
                assert len(ids) - agreed <= 2

    @pytest.mark.parametrize("growing", [False, True])
    @pytest.mark.parametrize("do_sample", [False, True])
    @pytest.mark.parametrize("eos", [None, 1])
    @pytest.mark.parametrize("way", ["function", "processor"])
    def test_each_row_has_a_trie_of_its_own(self, way, eos, do_sample, growing):
        asked = []

        def allowed(row, text):
            asked.append((row, text.tolist()))
            return tries(row, len(PROMPTS[2]), text.tolist(), eos)

        options = {"prefix_allowed_tokens_fn": allowed}
        if way == "processor":
            options = {"logits_processor": [Tries(allowed)]}
        options |= {"eos_token_id": eos, "do_sample": do_sample}
        expected = plain(llama(), PROMPTS[:3], 9, **options)
        plainly = asked.copy()
        asked.clear()
        tree = GROWING if growing else [2, 1, 1]
        found = drafted(llama(), PROMPTS[:3], 9, near(), tree=tree, seed=3, **options)
        if not do_sample:
            assert found.tolist() == expected.tolist()
            # What has ended is asked about no more.
            going = {(row, *text) for row, text in plainly if eos not in text[6:]}
            assert going <= {(row, *text) for row, text in asked}
        start = batch_of(*PROMPTS[:3])["input_ids"].tolist()
        assert all(text[:6] == start[row] for row, text in asked)

    def test_an_empty_set_of_tokens_names_row_and_text(self):
        def allowed(row, text):
            return [] if row == 1 and len(text) > 7 else [3, 4]

        with pytest.raises(ValueError, match=r"row 1 after \["):
            drafted(llama(), PROMPTS[:3], 9, near(), prefix_allowed_tokens_fn=allowed)

    def test_warpers_bound_what_is_emitted(self):
        output = drafted(
            llama(), PROMPTS, 14, near(), do_sample=True, seed=0, top_k=2, temperature=1.5
        )
        for prompt, row in zip(PROMPTS, new_tokens(output, PROMPTS), strict=True):
            prefix = list(prompt)
            for token in row:
                assert token in fresh_logits(llama(), prefix).topk(2).indices
                prefix.append(token)


# --- other draft models ---------------------------------------------------------------------------

NGRAMS = NGramModel(np.arange(400) ** 2 % V, V, 3)
ORDER = [7, -1, 3, 0, 11, 10, 1, 2, 4]  # what nine draft tokens are in the target's vocabulary


class TestDraftModels:
    @pytest.mark.parametrize(
        "draft_model",
        [
            NGRAMS,
            TableModel(np.full((V, V), 1.0 / V)),
            MappedModel(NGramModel(np.arange(50) % 9, 9, 2), ORDER, V),
        ],
        ids=["ngram", "table", "mapped"],
    )
    def test_models_of_the_library(self, draft_model):
        expected = plain(llama(), PROMPTS).tolist()
        for draft in ("without_replacement", "top_k"):
            found = drafted(
                llama(), PROMPTS, 14, draft_model, draft=draft, verifier="optimal", tree=[3, 2]
            )
            assert found.tolist() == expected

    def mapped(self, **options):
        small = llama(5, 9)
        ways = (
            {"draft_model": small, "target_token_ids": ORDER},
            {"draft_model": MappedModel(CausalLM(small), ORDER, V, **options)},
        )
        return small, ways if not options else ways[1:]

    @pytest.mark.parametrize("prompts", [[[7, 3, 0]], [[7, 3, 0], [11, 10], [1, 2, 4, 7]]], ids=len)
    def test_another_vocabulary(self, prompts):
        small, ways = self.mapped()
        outputs = []
        for way in ways:
            with forwards(llama(), small) as count:
                found = drafted(llama(), prompts, 12, tree=[2, 1], **way)
            assert found.tolist() == plain(llama(), prompts, 12).tolist()
            assert count(small) == 2 * count(llama()) - (count(llama()) * 3 > 12)  # the last level
            outputs.append(drafted(llama(), prompts, 12, do_sample=True, seed=1, **way).tolist())
        assert outputs[0] == outputs[1]

    def test_prefixes_with_unknown_tokens(self):
        # Token 9 has no counterpart: it is left out, or read as another token.
        for options in ({}, {"unknown_token_id": 1}):
            _, ways = self.mapped(**options)
            for way in ways:
                found = drafted(llama(), [[7, 9, 3], [3, 9]], 10, tree=[2, 2], **way)
                assert found.tolist() == plain(llama(), [[7, 9, 3], [3, 9]], 10).tolist()

    WORDS = ("<unk>", "</s>", *(f"w{k}" for k in range(278)))  # with 280 tokens

    def family(self, folder=None):
        """Models of one family: of the same tokenizer, and padded to 282 and to 302 tokens."""
        models = tiny_llama(0, 282), tiny_llama(1, 302)
        if folder is None:
            return models
        for name, model in zip("td", models, strict=True):
            model.save_pretrained(folder / name)
            word_tokenizer(self.WORDS).save_pretrained(folder / name)
        return tuple(LlamaForCausalLM.from_pretrained(folder / name).eval() for name in "td")

    @pytest.mark.parametrize("which", ["target_tokenizer", "draft_tokenizer"])
    @pytest.mark.parametrize("order", [[0, 1], [1, 0]], ids=["larger draft", "smaller draft"])
    def test_padded_vocabularies_of_one_family(self, order, which):
        target, draft_model = (self.family()[k] for k in order)
        options = {which: word_tokenizer(self.WORDS), "return_dict_in_generate": True}
        options["suppress_tokens"] = [280, 281]  # as a trained model does
        output = drafted(target, PROMPTS, 12, draft_model, tree=[2, 1], **options)
        expected = plain(target, PROMPTS, 12, suppress_tokens=[280, 281])
        assert output.sequences.tolist() == expected.tolist()
        assert sum(result.draft_calls for result in output.results) > 0

    def test_padded_vocabularies_by_the_folders_of_the_models(self, tmp_path):
        target, draft_model = self.family(tmp_path)
        expected = plain(target, PROMPTS[:1], 12).tolist()
        assert drafted(target, PROMPTS[:1], 12, draft_model).tolist() == expected
        found = mdsd.decoding.generate(
            CausalLM(target), CausalLM(draft_model), PROMPTS[0], max_new_tokens=12, temperature=0.0
        )
        assert found.token_ids.tolist() == expected[0][3:]

    def test_equal_models_agree_over_padding(self):
        # What the draft model gives to padding tokens is spread over the others.
        small = tiny_llama(0, 282)
        large = copy.deepcopy(small)
        large.resize_token_embeddings(302)
        with torch.no_grad():
            large.get_output_embeddings().weight[282:] = large.get_output_embeddings().weight[:20]
        options = {"target_tokenizer": word_tokenizer(self.WORDS), "num_drafts": 1, "depth": 4}
        (result,) = drafted(
            small, PROMPTS[:1], 10, large, return_dict_in_generate=True, **options
        ).results
        assert result.accepted_lengths.tolist() == [4, 4]

    def test_tokenizers_that_differ(self):
        words = [*self.WORDS[:2], *self.WORDS[:1:-1]]
        options = {
            "target_tokenizer": word_tokenizer(self.WORDS),
            "draft_tokenizer": word_tokenizer(words),
        }
        small, other = tiny_llama(0, 282), tiny_llama(0, 282)
        ids = [words.index(word) for word in self.WORDS] + [280, 281]
        with torch.no_grad():  # the same model with its tokens in another order
            for weights in (other.get_input_embeddings(), other.get_output_embeddings()):
                weights.weight[ids] = weights.weight.clone()
        options |= {"num_drafts": 1, "depth": 4, "suppress_tokens": [280, 281]}
        (result,) = drafted(
            small, PROMPTS[:1], 10, other, return_dict_in_generate=True, **options
        ).results
        assert result.accepted_lengths.tolist() == [4, 4]

    def test_nothing_left_to_read(self):
        _, ways = self.mapped()
        for way in ways:
            with pytest.raises(InvalidTokenError, match="unknown_token_id"):
                drafted(llama(), [[9, 9]], 4, **way)

    def test_batch_scheme(self):
        options = {"scheme": "batch", "draft": "with_replacement", "num_drafts": 3, "depth": 3}
        found = drafted(llama(), PROMPTS, 14, near(), **options)
        assert found.tolist() == plain(llama(), PROMPTS).tolist()

    def test_target_drafts_for_itself(self):
        found = drafted(llama(), PROMPTS, 14, llama())
        assert found.tolist() == plain(llama(), PROMPTS).tolist()

    def test_example_of_the_documentation(self):
        for thing in (multi_draft, CausalLM):
            code = inspect.getdoc(thing).split("::\n")[1]
            names = {
                "target": llama(),
                "draft_model": near(),
                "input_ids": torch.tensor([[5, 1, 7]]),
                "prompt_ids": [5, 1, 7],
            }
            exec(textwrap.dedent(code), names)
            assert "output" in names or names["result"].target_calls < 8
            assert names.get("output", torch.zeros(1, 11)).shape == (1, 11)


class Even:
    vocab_size = V + 1

    def logits(self, prefixes):
        lost = np.where(np.arange(V + 1) < V, -np.inf, 0.0)
        return np.stack([lost if len(p) % 2 == 0 else np.arange(V + 1.0) for p in prefixes])


def gpt2(seed, context):
    return build(GPT2LMHeadModel, GPT2Config, seed, vocab_size=V, max_position_embeddings=context)


class TestDraftModelsThatCannotFollow:
    @pytest.mark.parametrize("tree", [[2, 1, 1], GROWING], ids=str)
    @pytest.mark.parametrize("prompts", [PROMPTS[2:3], PROMPTS], ids=len)
    @pytest.mark.parametrize("context", [5, 8, 12])
    def test_a_shorter_context(self, context, prompts, tree):
        # Learned positions: an index beyond them is an error of torch, which a GPU does not forget.
        draft_model = gpt2(3, context)
        words = f"draft_model was made for texts of {context} tokens"
        with pytest.warns(UserWarning, match=words) as told:
            found = drafted(llama(), prompts, 20, draft_model, tree=tree)
        assert len(told) == 1
        assert found.tolist() == plain(llama(), prompts, 20).tolist()

    def test_a_shorter_context_and_another_vocabulary(self):
        small = build(GPT2LMHeadModel, GPT2Config, 4, vocab_size=9, max_position_embeddings=6)
        with pytest.warns(UserWarning, match="of 6 tokens"):
            found = drafted(llama(), PROMPTS, 20, small, target_token_ids=ORDER, tree=[2, 1])
        assert found.tolist() == plain(llama(), PROMPTS, 20).tolist()

    def test_prompts_read_ahead(self):
        prompt = [[k % V for k in range(30)]]
        with pytest.warns(UserWarning, match="of 8 tokens"):
            found = drafted(llama(), prompt, 9, gpt2(3, 8), prefill_chunk_size=4)
        assert found.tolist() == plain(llama(), prompt, 9).tolist()

    def test_drafts_from_windows_are_accepted(self):
        target = gpt2(3, 64)
        draft_model = copy.deepcopy(target)
        draft_model.config.max_position_embeddings = 40
        options = {"num_drafts": 1, "depth": 3, "return_dict_in_generate": True}
        with pytest.warns(UserWarning, match="of 40 tokens"):
            output = drafted(target, PROMPTS[:1], 60, draft_model, **options)
        assert output.sequences.tolist() == plain(target, PROMPTS[:1], 60).tolist()
        assert output.results[0].drafted_by_depth[0] == output.results[0].target_calls

    def test_a_model_of_the_library(self):
        found = []
        for draft_model in (gpt2(3, 64), gpt2(3, 8)):
            found.append(
                partial(
                    mdsd.decoding.generate,
                    CausalLM(llama()),
                    CausalLM(draft_model),
                    [5, 1, 7],
                    max_new_tokens=20,
                    temperature=0.0,
                )
            )
        expected = found[0]().token_ids.tolist()
        with pytest.warns(UserWarning, match="of 8 tokens"):
            assert found[1]().token_ids.tolist() == expected

    @pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS], ids=len)
    @pytest.mark.parametrize("do_sample", [False, True])
    def test_mass_on_tokens_that_the_target_lacks(self, prompts, do_sample):
        options = {"do_sample": do_sample, "top_p": 0.9, "top_k": 5, "seed": 0, "tree": [2, 1, 1]}
        draft_model = MappedModel(Even(), [*range(V), -1], V)
        with pytest.warns(UserWarning, match="nothing is drafted there") as told:
            found = drafted(llama(), prompts, 12, draft_model, **options)
        assert len(told) == 1
        if not do_sample:
            assert found.tolist() == plain(llama(), prompts, 12).tolist()

    def test_mass_on_tokens_that_a_processor_forbids(self):
        options = {"suppress_tokens": sorted(set(ORDER) - {-1})}
        small = llama(5, 9)
        with pytest.warns(UserWarning, match="nothing is drafted there"):
            found = drafted(llama(), PROMPTS, 9, small, target_token_ids=ORDER, **options)
        assert found.tolist() == plain(llama(), PROMPTS, 9, **options).tolist()


class TestCausalLM:
    def test_generate_of_the_library(self):
        class Fresh:
            vocab_size = V

            def __init__(self, model):
                self._model = model

            def logits(self, prefixes):
                return [fresh_logits(self._model, prefix).numpy() for prefix in prefixes]

        target, draft_model = llama(), near()
        options = {"tree": [3, 2, 1], "max_new_tokens": 20, "rng": 3}
        with forwards(target, draft_model) as count:
            found = mdsd.decoding.generate(
                CausalLM(target), CausalLM(draft_model), [5, 1, 7], **options
            )
        assert count(target) == found.target_calls
        assert count(draft_model) == found.draft_calls
        expected = mdsd.decoding.generate(Fresh(target), Fresh(draft_model), [5, 1, 7], **options)
        assert found.token_ids.tolist() == expected.token_ids.tolist()

    def test_any_prefixes_in_any_order(self):
        model = CausalLM(double(llama()))
        rng = np.random.default_rng(0)
        prefix = [1]
        for _ in range(25):
            cut = rng.integers(1, len(prefix) + 1)
            prefix = prefix[:cut] + rng.integers(0, V, size=rng.integers(0, 4)).tolist()
            asked = [prefix[: rng.integers(1, len(prefix) + 1)] for _ in range(2)] + [
                prefix + rng.integers(0, 2, size=rng.integers(0, 4)).tolist() for _ in range(3)
            ]
            found = model.logits(asked)
            expected = [fresh_logits(model.model, each).float().numpy() for each in asked]
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)

    def test_new_tokens_only_are_read(self):
        lengths = []
        target = llama()
        hook = target.register_forward_hook(
            lambda model, inputs, keywords, output: lengths.append(keywords["input_ids"].shape[1]),
            with_kwargs=True,
        )
        model = CausalLM(target)
        model.logits([[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 5, 6]])
        model.logits([[1, 2, 3, 5, 6, 7]])
        model.logits([[1, 2, 3, 5, 6, 7, 8], [1, 2, 3, 5, 6, 7, 9]])
        hook.remove()
        assert lengths == [6, 1, 2]

    def test_form(self):
        model = CausalLM(llama())
        assert isinstance(model, mdsd.decoding.Model)
        assert model.vocab_size == V
        assert model.logits([[1], [2]]).dtype == np.float32
        assert model.logits([]).shape == (0, V)
        with pytest.raises(InvalidTokenError, match="no token"):
            model.logits([[1], []])


# --- what is not supported ------------------------------------------------------------------------


class Silent(LogitsProcessor):
    def __call__(self, input_ids, scores):
        return torch.full_like(scores, -torch.inf)


def unsupported_models():
    base = {**SIZES, "vocab_size": V}
    yield "T5", T5ForConditionalGeneration, T5Config, {
        **base, "d_model": 16, "d_kv": 8, "num_layers": 1, "num_heads": 2, "d_ff": 16,
        "decoder_start_token_id": 0,
    }, "encoder-decoder"  # fmt: skip
    yield "Mistral", MistralForCausalLM, MistralConfig, {
        **base, "intermediate_size": 16, "num_key_value_heads": 2, "sliding_window": 4,
    }, "sliding"  # fmt: skip
    yield "Mamba", MambaForCausalLM, MambaConfig, {**base, "state_size": 4}, "recurrent"
    yield "Mpt", MptForCausalLM, MptConfig, {
        "vocab_size": V, "d_model": 16, "n_heads": 2, "n_layers": 1,
    }, "position_ids"  # fmt: skip
    yield "headless", LlamaModel, LlamaConfig, {**base, "intermediate_size": 16}, "head"


UNSUPPORTED = {name: rest for name, *rest in unsupported_models()}


PAGE = pages.ROOT / "docs" / "transformers.md"
BLOCKS = [block for block in pages.read_blocks(PAGE.read_text("utf-8")) if block.language == "py"]


class TestPage:
    """The code of docs/transformers.md that needs models."""

    def played(self, block, **names):
        target, draft_model = tiny_llama(0, 256), tiny_llama(1, 256)
        for model in (target, draft_model):
            model.generation_config.pad_token_id = 0
        names |= {"target": target, "draft_model": draft_model, "tokenizer": byte_tokenizer()}
        names["input_ids"] = torch.tensor([[60, 61], [62, 63]])
        exec(block.content, names)
        return names

    @pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"line {block.line}")
    def test_code_runs(self, block, capsys):
        output = self.played(block)["output"]
        assert getattr(output, "sequences", output).shape == (2, 22)
        assert len(capsys.readouterr().out.splitlines()) == (2 if "results" in block.content else 0)

    def test_stop_strings(self):
        (block,) = (block for block in BLOCKS if "StopStringCriteria" in block.content)
        names = self.played(block)
        letters = [
            [letter for letter in map(names["tokenizer"].decode, row) if letter.isascii()]
            for row in names["output"][:, 3:16].tolist()
        ]
        stops = [own[0] for own in letters]
        expected = names["target"].generate(
            names["input_ids"],
            max_new_tokens=20,
            tokenizer=names["tokenizer"],
            stop_strings=stops,
        )
        shown = str(["\n\n", "Question:"]).replace("'", '"')
        assert shown in block.content
        code = block.content.replace(shown, repr(stops))
        found = self.played(replace(block, content=code))["output"]
        assert found.tolist() == expected.tolist()
        assert found.shape[1] < names["output"].shape[1]


class TestRefused:
    """One line that says what is not supported, before any forward."""

    def refused(self, error, words, target=None, prompts=PROMPTS, **options):
        target = llama() if target is None else target
        options = {"draft_model": near(), **options}
        models = [target, options["draft_model"]]
        models = [model for model in models if isinstance(model, torch.nn.Module)]
        with (
            forwards(*models) as count,
            pytest.raises(MdsdError, match=words) as caught,
        ):
            drafted(target, prompts, 5, **options)
        assert type(caught.value) is error
        assert "\n" not in str(caught.value)
        assert [count(model) for model in models] == [0] * len(models)

    @pytest.mark.parametrize("name", UNSUPPORTED)
    def test_models(self, name):
        kind, config, options, words = UNSUPPORTED[name]
        model = build(kind, config, 0, **options) if name != "Mpt" else kind(config(**options))
        if name != "T5":
            self.refused(UnsupportedError, f"draft_model .*{words}", draft_model=model)
        if hasattr(model, "generate") and name != "T5":
            self.refused(UnsupportedError, f"target .*{words}", target=model)
        with pytest.raises(UnsupportedError, match=words):
            CausalLM(model)

    def test_encoder_decoder_target(self):
        kind, config, options, words = UNSUPPORTED["T5"]
        model = build(kind, config, 0, **options)
        decoder = []
        model.decoder.register_forward_hook(lambda *arguments: decoder.append(1))
        with pytest.raises(UnsupportedError, match=words):
            drafted(model, PROMPTS, 5, near())
        assert decoder == []

    @pytest.mark.parametrize("name", ["flash_attention_2", "flex_attention", "paged|sdpa"])
    def test_attention_without_masks(self, name, monkeypatch):
        model = copy.deepcopy(llama())
        model.config._attn_implementation = name
        self.refused(UnsupportedError, f"target .*{name.split('|')[0]}.*4-D", target=model)
        self.refused(
            UnsupportedError, f"draft_model .*{name.split('|')[0]}.*4-D", draft_model=model
        )

    def test_static_cache(self):
        self.refused(UnsupportedError, "Static", cache_implementation="static")
        own = StaticCache(config=llama().config, max_cache_len=64)
        self.refused(UnsupportedError, "Static", prompts=PROMPTS[:1], **{CACHE: own})

    def test_other_caches(self):
        self.refused(UnsupportedError, "use_cache", use_cache=False)
        filled = DynamicCache(config=llama().config)
        with torch.no_grad():
            llama()(torch.tensor([[1, 2]]), **{CACHE: filled})
        self.refused(UnsupportedError, "already holds 2", prompts=PROMPTS[:1], **{CACHE: filled})

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"num_beams": 2}, "beam_search"),
            ({"return_dict_in_generate": True, "output_scores": True}, "output_scores"),
            ({"return_dict_in_generate": True, "output_logits": True}, "output_logits"),
            ({"guidance_scale": 1.5}, "ClassifierFreeGuidance"),
            ({"position_ids": torch.arange(6).expand(4, -1) + 1}, "position_ids"),
            ({"verifier": "kseq"}, "kseq.*without_replacement"),
            ({"draft": "greedy"}, "rrs.*greedy"),
        ],
        ids=lambda part: next(iter(part)) if isinstance(part, dict) else "",
    )
    def test_settings(self, options, words):
        self.refused(UnsupportedError, words, **options)

    def test_watermark_with_a_state(self):
        config = transformers.SynthIDTextWatermarkingConfig(keys=[1, 2, 3], ngram_len=2)
        self.refused(UnsupportedError, "SynthID.*state", watermarking_config=config)

    @pytest.mark.parametrize(
        ("processor", "words"),
        [
            (Counting(), "Counting keeps 'calls'"),
            (PerRow(), "PerRow keeps 'had'"),
            (Grammar(), "Grammar keeps 'matcher'"),
        ],
        ids=["counter", "rows", "grammar"],
    )
    @pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS], ids=len)
    def test_processors_of_ones_own_with_a_state(self, prompts, processor, words):
        options = {"prompts": prompts, "logits_processor": [processor]}
        self.refused(UnsupportedError, f"{words} .*rejected; .*stateless", **options)

    def test_a_function_with_a_state(self):
        words = r"walking.*walk keeps 'places'"
        self.refused(UnsupportedError, words, prefix_allowed_tokens_fn=walking())

    def test_one_that_says_it_has_no_state_is_trusted(self):
        assert drafted(llama(), PROMPTS[:1], 3, near(), logits_processor=[Trusted()]).shape[1] == 6

    def test_other_inputs(self):
        embedded = llama().get_input_embeddings()(torch.tensor([[1, 2]]))
        with pytest.raises(UnsupportedError, match="inputs_embeds"):
            llama().generate(
                inputs_embeds=embedded,
                max_new_tokens=3,
                custom_generate=multi_draft,
                draft_model=near(),
            )

    def test_a_bad_draft_model_of_several_is_named(self):
        broken = TableModel(np.eye(V))
        broken.logits = lambda prefixes: np.full((len(prefixes), V), np.nan)
        options = {"draft": "independent", "num_drafts": 2, "depth": 1}
        models = [near(), broken]
        self.refused(InvalidDistributionError, r"draft_model\[1\]", draft_model=models, **options)

    def test_vocabularies_without_tokenizers(self):
        models = {"target": tiny_llama(0, 282), "draft_model": tiny_llama(1, 302)}
        self.refused(InvalidDistributionError, "draft_model has 302", **models)
        for name in ("target_tokenizer", "draft_tokenizer"):
            for wrong in ("gpt2", PreTrainedTokenizerFast, 3):
                self.refused(InvalidArgumentError, f"{name} is .*tokenizer", **{name: wrong})

    def test_vocabularies(self):
        self.refused(InvalidDistributionError, "draft_model has 9", draft_model=llama(5, 9))
        self.refused(
            InvalidTokenError,
            r"target_token_ids has shape \(8,\)",
            draft_model=llama(5, 9),
            target_token_ids=ORDER[:8],
        )

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"draft_model": None}, "draft_model is missing"),
            ({"draft_model": "gpt2"}, "draft_model is str"),
            ({"draft_model": [near()]}, "draft_model"),
            ({"draft_model": near(), "draft": "independent"}, "list of models"),
            ({"verifier": "rss"}, "did you mean 'rrs'"),
            ({"draft": "top"}, "draft is 'top'"),
            ({"tree": [2, 0]}, r"tree\[1\] is 0"),
            ({"num_drafts": 0}, "num_drafts is 0"),
            ({"scheme": "forest"}, "scheme is 'forest'"),
            ({"seed": 1, "rng": 2}, "rng and seed"),
            ({"seed": -1}, "seed is -1"),
            ({"generator": True}, "generator is True"),
            ({"rng": 0.5}, r"rng is 0\.5"),
        ],
        ids=str,
    )
    def test_arguments(self, options, words):
        self.refused(InvalidArgumentError, words, **options)

    def test_empty_rows(self):
        with pytest.raises(InvalidTokenError, match="row 1"):
            llama().generate(
                torch.tensor([[1, 2], [3, 4]]),
                attention_mask=torch.tensor([[0, 1], [0, 0]]),
                max_new_tokens=3,
                custom_generate=multi_draft,
                draft_model=near(),
            )

    def test_padding_that_is_not_set(self):
        class Never(StoppingCriteria):
            eos_token_id = torch.tensor([1])  # by which ``generate`` knows that rows are padded

            def __call__(self, input_ids, scores, **others):
                return torch.full((len(input_ids),), False)

        options = {"stopping_criteria": [Never()], "pad_token_id": None}
        self.refused(InvalidArgumentError, "pad_token_id", **options)
        assert drafted(llama(), PROMPTS[:1], 3, near(), **options).shape == (1, 6)

    @pytest.mark.parametrize("length", [17, 18, 60])
    def test_texts_longer_than_the_target_can_read(self, length):
        # The longest prompt has six tokens; the last new token is never read.
        target = gpt2(3, 21)
        words = f"max_new_tokens is {length} after a prompt of 6 tokens.*of 21: expected at most 16"
        with forwards(target) as count, pytest.raises(InvalidArgumentError, match=words):
            drafted(target, PROMPTS, length, near())
        assert count(target) == 0
        for tree in ([2, 1, 1], GROWING):
            found = drafted(target, PROMPTS, 16, near(), tree=tree)
            assert found.tolist() == plain(target, PROMPTS, 16).tolist()

    def test_without_generate(self):
        with pytest.raises(InvalidArgumentError, match="generation_config"):
            multi_draft(llama(), torch.tensor([[1]]), draft_model=near())

    def test_nothing_left_to_emit(self):
        with pytest.raises(InvalidDistributionError, match="empty support"):
            drafted(llama(), PROMPTS, 3, near(), logits_processor=[Silent()])

    def test_a_model_that_does_not_use_its_cache(self):
        model = copy.deepcopy(llama())
        original = model.forward

        def forward(**arguments):
            del arguments[CACHE]
            arguments["use_cache"] = False
            return original(**arguments)

        model.forward = forward
        with pytest.raises(UnsupportedError, match="0 slots in its cache after reading"):
            drafted(llama(), PROMPTS, 3, model)

    def test_not_a_model(self):
        with pytest.raises(InvalidArgumentError, match="model is NGramModel"):
            CausalLM(NGRAMS)


def test_importing_the_adapter_imports_nothing_heavy():
    code = (
        "import mdsd.decoding.transformers, sys; "
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    assert commands.run_python(code).stdout.strip() == "[]"
