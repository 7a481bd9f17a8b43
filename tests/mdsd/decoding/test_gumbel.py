"""Shared noise: the text is that of plain sampling by the noise, whatever is drafted."""

from __future__ import annotations

import pickle
from functools import partial

import numpy as np
import pytest

from mdsd.analysis import gumbel_acceptance
from mdsd.decoding import GrowingTree, GumbelVerification, TableModel, generate
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.testing import accepted_law, sequence_law

from .toys import PrefixModel, filtered

PROMPT = [1, 0]
TARGET = PrefixModel(1)
DRAFT_MODELS = {seed: PrefixModel(seed, zeros=0.3 * (seed == 3)) for seed in (2, 3)}
TREES = {"chain": [1, 1, 1], "wide": [3], "levels": [2, 3, 1], "grown": GrowingTree(6, 3)}


def plain_text(seed, num_drafts, length, **filters):
    """Sample token by token with the noise of the class's docstring, and no draft at all."""
    text = list(PROMPT)
    for _ in range(length):
        probs = filtered(TARGET.probs(text), **filters)
        stream = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(len(text),)))
        times = stream.standard_exponential((num_drafts, len(probs))).min(axis=0)
        races = [t / p if p > 0 else np.inf for t, p in zip(times, probs, strict=True)]
        text.append(int(np.argmin(races)))
    return text[len(PROMPT) :]


def decoded(seed, num_drafts, length, draft_model, tree, **filters):
    found = generate(
        TARGET,
        draft_model,
        PROMPT,
        max_new_tokens=length,
        draft="with_replacement",
        verifier=GumbelVerification(seed, num_drafts),
        tree=tree,
        **filters,
    )
    return found.token_ids.tolist()


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("model", DRAFT_MODELS)
@pytest.mark.parametrize("filters", [{}, {"temperature": 0.7, "top_k": 2}], ids=["plain", "cut"])
@pytest.mark.parametrize("seed", range(3))
def test_text_is_that_of_sampling_without_drafts(tree, model, filters, seed):
    found = decoded(seed, 6, 20, DRAFT_MODELS[model], TREES[tree], **filters)
    assert found == plain_text(seed, 6, 20, **filters)


def test_texts_of_other_seeds_differ():
    texts = {tuple(decoded(seed, 2, 12, TARGET, [2, 2])) for seed in range(6)}
    assert len(texts) == 6


def test_first_tokens_have_the_law_of_the_target():
    """Chi-square over 2,000 seeds against p, 1 in 10,000 by chance."""
    probs = np.array([0.5, 0.3, 0.15, 0.05])
    target, draft_model = TableModel([probs] * 4), TableModel([[0.25] * 4] * 4)
    counts = np.zeros(4)
    for seed in range(2000):
        (token,) = generate(
            target,
            draft_model,
            [0],
            max_new_tokens=1,
            draft="with_replacement",
            verifier=GumbelVerification(seed, 2),
            tree=[2],
        ).token_ids
        counts[token] += 1
    assert ((counts - 2000 * probs) ** 2 / (2000 * probs)).sum() < 21.1


@pytest.mark.parametrize("num_drafts", [1, 3])
def test_drafts_are_accepted_as_often_as_theory_says(num_drafts):
    """Share of 2,000 positions against the exact acceptance, 4 standard errors."""
    p, q = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.2, 0.2, 0.3, 0.3])
    found = generate(
        TableModel([p] * 4),
        TableModel([q] * 4),
        [0],
        max_new_tokens=2000,
        draft="with_replacement",
        verifier=GumbelVerification(7, num_drafts),
        tree=[num_drafts],
    )
    expected = gumbel_acceptance(p, q, num_drafts)
    spread = np.sqrt(expected * (1 - expected) / found.drafted_by_depth[0])
    assert abs(found.acceptance_by_depth[0] - expected) < 4 * spread


def test_a_draft_model_that_is_the_target_is_always_accepted():
    found = generate(
        TARGET,
        TARGET,
        PROMPT,
        max_new_tokens=24,
        draft="with_replacement",
        verifier=GumbelVerification(0, 1),
        tree=[1, 1, 1],
    )
    assert found.acceptance_by_depth.tolist() == [1.0, 1.0, 1.0]
    assert found.target_calls == 6


@pytest.mark.parametrize("law", [accepted_law, partial(sequence_law, length=2)])
def test_laws_that_are_over_seeds_are_refused(law):
    with pytest.raises(UnsupportedError, match=r"GumbelVerification\(seed=3.*over its seeds"):
        law(
            TARGET,
            DRAFT_MODELS[2],
            PROMPT,
            verifier=GumbelVerification(3, 2),
            tree=[2, 1],
            draft="with_replacement",
        )


def test_little_noise_is_kept_and_none_is_pickled():
    verifier = GumbelVerification(5, 3)
    options = {"draft": "with_replacement", "tree": [2, 2, 1], "max_new_tokens": 40}
    text = generate(TARGET, DRAFT_MODELS[2], PROMPT, verifier=verifier, **options).token_ids
    kept = sum(each.size for each in verifier._kept.values())
    assert kept <= 3 * 3 * TARGET.vocab_size
    again = pickle.loads(pickle.dumps(verifier))
    assert not again._kept
    found = generate(TARGET, DRAFT_MODELS[3], PROMPT, verifier=again, **options).token_ids
    assert found.tolist() == text.tolist()


def test_noise_is_made_once_for_all_levels_of_a_tree(monkeypatch):
    """Of tokens that a step did not emit, the next step has it still."""
    made = []
    whole = np.random.SeedSequence
    monkeypatch.setattr(
        np.random,
        "SeedSequence",
        lambda seed, spawn_key: made.append(spawn_key) or whole(seed, spawn_key=spawn_key),
    )
    decoded(0, 2, 30, DRAFT_MODELS[2], [2, 2, 1])
    assert len(made) == len(set(made)) >= 30


def test_noise_of_trees_deeper_than_what_is_kept():
    found = decoded(0, 1, 45, TARGET, [1] * 40)
    assert found == plain_text(0, 1, 45)


@pytest.mark.parametrize(
    ("draft", "tree", "words"),
    [
        ("without_replacement", [2], "without_replacement"),
        ("with_replacement", [3], "3 drafts"),
    ],
)
def test_other_drafts_are_refused_before_any_model_is_asked(draft, tree, words):
    target, draft_model = PrefixModel(1), PrefixModel(2)
    with pytest.raises(UnsupportedError, match=rf"'gumbel'.*{words}.*num_drafts = 2"):
        generate(
            target,
            draft_model,
            PROMPT,
            max_new_tokens=3,
            draft=draft,
            tree=tree,
            verifier=GumbelVerification(0, 2),
        )
    assert not target.calls
    assert not draft_model.calls


def test_the_name_alone_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"'gumbel'.*GumbelVerification\(seed="):
        generate(TARGET, TARGET, PROMPT, max_new_tokens=1, verifier="gumbel")
