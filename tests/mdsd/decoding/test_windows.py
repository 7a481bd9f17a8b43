"""Draft models that cannot follow: shorter contexts, and tokens that the target does not have."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from mdsd.decoding import GrowingTree, MappedModel, TableModel, generate
from mdsd.decoding.windows import window_start
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, InvalidTokenError
from mdsd.testing import accepted_law, sequence_law

from .toys import PrefixModel, SameRow, combinations, distance, plain_law

PROMPT = [1, 0, 2]
PATHS = [
    ("with_replacement", name, tree)
    for name in ("block", "traversal", "layers")
    for tree in ([2, 1], GrowingTree(3, 2))
]


class Short(PrefixModel):
    """A model that fails, as an embedding does, beyond its context."""

    def __init__(self, seed: int, context_length: int, **options: Any) -> None:
        super().__init__(seed, **options)
        self.context_length = context_length

    def logits(self, prefixes: list[list[int]]) -> np.ndarray:
        longest = max(map(len, prefixes))
        if longest > self.context_length or not min(map(len, prefixes)):
            raise IndexError("index out of range in self")
        return super().logits(prefixes)


class Sometimes(PrefixModel):
    """A model that puts all its mass on its last token after every other token."""

    def probs(self, prefix: Any) -> np.ndarray:
        if prefix[-1] % 2 == 0:
            return np.eye(self.vocab_size)[-1]
        return super().probs(prefix)


def law(draft_model: Any, length: int, vocab_size: int = 4, **options: Any) -> float:
    """Distance of the law of the output from that of the target."""
    target = PrefixModel(1, vocab_size)
    found = sequence_law(target, draft_model, PROMPT, length, **options)
    return distance(found, plain_law(target.probs, PROMPT, length))


@pytest.fixture
def told():
    """Warnings that were given."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


# --- a shorter context ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draft", "verifier", "tree"), [*combinations(2), *PATHS], ids=lambda part: str(part)
)
def test_output_has_the_law_of_the_target(draft, verifier, tree, told):
    models: Any = Short(2, 4, vocab_size=3)
    if draft == "independent":
        models = [models, PrefixModel(3, 3)]
    assert law(models, 3, 3, draft=draft, verifier=verifier, tree=tree) < 1e-12
    assert [str(warning.message).split(" was made for")[1] for warning in told] == [
        " texts of 4 tokens: of longer ones it is shown the end"
    ]


@pytest.mark.parametrize("context", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("tree", [[1] * 6, [2, 1, 1], GrowingTree(6, 4)], ids=str)
def test_drafting_goes_on_and_is_told_of_once(context, tree, told):
    draft_model = Short(2, context)
    result = generate(PrefixModel(1), draft_model, PROMPT, tree=tree, max_new_tokens=40, rng=0)
    assert len(result.token_ids) == 40
    assert len(told) == 1
    shown = [len(prefix) for call in draft_model.calls for prefix in call]
    assert min(shown) >= min(3, (context + 1) // 2)
    assert max(shown) == context
    assert result.drafted_by_depth[0] >= result.target_calls - 1  # nothing for the last token


def test_a_model_that_looks_at_few_tokens_is_as_good_as_ever(told):
    class Short(TableModel):
        context_length = 4

    rng = np.random.default_rng(0)
    table, target = rng.dirichlet(np.ones(5), 5), TableModel(rng.dirichlet(np.ones(5), 5))
    results = [
        generate(target, model, [0], tree=[2, 1], max_new_tokens=30, rng=1)
        for model in (TableModel(table), Short(table))
    ]
    assert results[0].token_ids.tolist() == results[1].token_ids.tolist()
    assert len(told) == 1


def test_nothing_is_said_where_all_texts_fit(told):
    generate(PrefixModel(1), Short(2, 12), PROMPT, max_new_tokens=9, rng=0)
    assert told == []


def test_a_mapped_model_counts_its_own_tokens(told):
    # Of the target's four tokens it knows two: texts of eight tokens are four of its own, or fewer.
    inner = Short(2, 4, vocab_size=2)
    options = {"max_new_tokens": 30, "tree": [2, 1], "rng": 0}
    result = generate(PrefixModel(1), MappedModel(inner, [1, 2], 4), PROMPT, **options)
    assert len(result.token_ids) == 30
    assert max(len(prefix) for call in inner.calls for prefix in call) == 4
    assert law(MappedModel(Short(2, 3, vocab_size=2), [1, 2], 4), 3, tree=[2, 1]) < 1e-12


@pytest.mark.parametrize("context", [0, 2.5, "8", True])
def test_a_context_that_is_none(context):
    with pytest.raises(InvalidArgumentError, match="context_length of draft_model"):
        generate(PrefixModel(1), Short(2, context), PROMPT, max_new_tokens=2)


@pytest.mark.parametrize("context", [1, 2, 3, 7, 20])
def test_windows_hold_half_a_context(context):
    for token in range(60):
        shown = token + 1 - window_start(token, context)
        assert min(token + 1, (context + 1) // 2) <= shown <= context


# --- a target's context --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draft", "verifier", "tree"), [*combinations(2), *PATHS], ids=lambda part: str(part)
)
def test_a_target_is_read_to_its_end(draft, verifier, tree):
    # The last token is never read: three may follow three where five fit.
    target = Short(1, 5, vocab_size=3)
    models = [PrefixModel(2, 3), PrefixModel(3, 3)] if draft == "independent" else PrefixModel(2, 3)
    options = {"draft": draft, "verifier": verifier, "tree": tree}
    found = sequence_law(target, models, PROMPT, 3, **options)
    assert distance(found, plain_law(target.probs, PROMPT, 3)) < 1e-12


@pytest.mark.parametrize(
    ("prompt", "length", "words"),
    [
        (PROMPT, 4, "max_new_tokens is 4 after a prompt of 3 tokens.*of 5: expected at most 3"),
        ([0] * 5, 2, "at most 1"),
        ([0] * 6, 1, "a shorter prompt"),
        ([0] * 60, 5, "a shorter prompt"),
    ],
)
def test_longer_outputs_are_refused_before_any_model_runs(prompt, length, words):
    target, draft_model = Short(1, 5), PrefixModel(2)
    with pytest.raises(InvalidArgumentError, match=words):
        generate(target, draft_model, prompt, max_new_tokens=length)
    with pytest.raises(InvalidArgumentError, match=words.replace("max_new_tokens", "length")):
        sequence_law(target, draft_model, prompt, length)
    assert target.calls == draft_model.calls == []


# --- nothing to draft ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draft", "verifier", "tree"), [*combinations(2), *PATHS], ids=lambda part: str(part)
)
def test_without_drafts_the_output_has_the_law_of_the_target(draft, verifier, tree, told):
    models: Any = MappedModel(Sometimes(2, 4), [0, 1, 2, -1], 3)
    if draft == "independent":
        models = [PrefixModel(3, 3), models]
    assert law(models, 3, 3, draft=draft, verifier=verifier, tree=tree) < 1e-12
    assert len(told) == 1
    assert "nothing is drafted there" in str(told[0].message)


def test_a_draft_model_that_never_has_a_token(told):
    lost = MappedModel(SameRow([-np.inf, 0.0]), [0, -1], 4)
    result = generate(PrefixModel(1), lost, PROMPT, max_new_tokens=9, rng=0)
    assert (len(result.token_ids), result.target_calls) == (9, 9)
    assert result.drafted_by_depth.tolist() == result.synthetic_acceptance_rates.tolist() == []
    assert len(told) == 1
    with pytest.raises(InvalidDistributionError, match="no mass"):
        lost.logits([[0]])


def test_tokens_that_a_processor_forbids(told):
    def last_only(prefix, logits):
        return np.where(np.arange(4) < 3, -np.inf, logits)

    known = MappedModel(PrefixModel(2, 3), [0, 1, 2], 4)
    options = {"max_new_tokens": 5, "logits_processor": last_only, "rng": 0}
    assert generate(PrefixModel(1), known, PROMPT, **options).token_ids.tolist() == [3] * 5
    assert len(told) == 1


def test_other_bad_logits_are_errors_as_ever():
    for logits, words in (([np.nan, 0.0, 0.0, 0.0], "nan"), ([np.inf, 0.0, 0.0, 0.0], "inf")):
        with pytest.raises(InvalidDistributionError, match=f"draft_model: .*{words}"):
            generate(PrefixModel(1), SameRow(logits), PROMPT, max_new_tokens=2)
    with pytest.raises(InvalidDistributionError, match=r"target: .*empty support"):
        generate(SameRow([-np.inf] * 4), PrefixModel(1), PROMPT, max_new_tokens=2)
    unread = MappedModel(TableModel([[0.5, 0.5]] * 2), [3, -1], 4)
    with pytest.raises(InvalidTokenError):
        generate(PrefixModel(1), unread, [0], max_new_tokens=2)


def test_acceptance_is_that_of_the_drafts_there_are(told):
    some = MappedModel(Sometimes(2, 4), [0, 1, 2, -1], 3)
    found = accepted_law(PrefixModel(1, 3), some, [1, 0], tree=[2, 1])
    assert found.tolist() == [1.0, 0.0, 0.0]
