"""The whole decoder is lossless: its exact law, branch by branch, is the target's."""

from __future__ import annotations

import numpy as np
import pytest

import mdsd
from mdsd.decoding import MappedModel, TreeShape, map_vocabulary
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.testing import sequence_law

from .toys import (
    DRAFTS,
    HastyVerifier,
    LyingVerifier,
    PrefixModel,
    SameRow,
    V,
    combinations,
    distance,
    draft_evenly,
    filtered,
    plain_law,
)

EXACT = 1e-12
PROMPT, LENGTH = [2, 0], 3

TARGET = PrefixModel(1)
DRAFT_MODEL = PrefixModel(2)
SECOND = PrefixModel(3)
GAPPY = PrefixModel(4, zeros=0.6)
"""A draft model that often has fewer tokens than are to be drafted."""

COMBINATIONS = list(combinations())
each_combination = pytest.mark.parametrize(
    ("draft", "verifier", "tree"),
    COMBINATIONS,
    ids=[f"{draft}-{verifier}-{tree}" for draft, verifier, tree in COMBINATIONS],
)


def expected_law(eos=(), **filters):
    return plain_law(lambda prefix: filtered(TARGET.probs(prefix), **filters), PROMPT, LENGTH, eos)


def draft_models(draft, model=DRAFT_MODEL):
    return [model, SECOND] if draft == "independent" else model


def law_of(draft="without_replacement", model=DRAFT_MODEL, **options):
    models = draft_models(draft, model)
    return sequence_law(TARGET, models, PROMPT, LENGTH, draft=draft, **options)


def test_nothing_is_left_out():
    assert {draft for draft, _, _ in COMBINATIONS} == set(DRAFTS)
    assert {verifier for _, verifier, _ in COMBINATIONS} == set(mdsd.verifier_names())


@each_combination
@pytest.mark.parametrize("filters", [{}, {"top_k": 2}], ids=["plain", "top_k"])
def test_law_is_that_of_the_target(draft, verifier, tree, filters):
    law = law_of(draft, verifier=verifier, tree=tree, **filters)
    assert distance(law, expected_law(**filters)) <= EXACT


@each_combination
def test_draft_models_short_of_tokens(draft, verifier, tree):
    models = draft_models(draft, GAPPY)
    law = sequence_law(TARGET, models, PROMPT, 2, draft=draft, verifier=verifier, tree=tree)
    assert distance(law, plain_law(TARGET.probs, PROMPT, 2)) <= EXACT


@pytest.mark.parametrize("tree", [[2, 2], [1, 2], TreeShape([-1, 0, 0, 2, 2])], ids=str)
@pytest.mark.parametrize("draft", ["without_replacement", "greedy"])
def test_other_trees(draft, tree):
    verifier, top_k = ("greedy", None) if draft == "greedy" else ("rrs", 3)
    law = law_of(draft, verifier=verifier, tree=tree, top_k=top_k)
    assert distance(law, expected_law(top_k=top_k)) <= EXACT


@pytest.mark.parametrize(
    ("draft", "verifier"),
    [("greedy", "greedy"), ("top_k", "optimal"), ("without_replacement", "rrs")],
)
def test_uneven_tree_of_three_drafts(draft, verifier):
    tree = TreeShape([-1, 0, 0, 0, 1, 1, 2])
    top_k = None if draft != "without_replacement" else 3
    law = law_of(draft, verifier=verifier, tree=tree, top_k=top_k)
    assert distance(law, expected_law(top_k=top_k)) <= EXACT


def test_the_root_alone_is_plain_decoding():
    law = law_of(tree=TreeShape([-1]))
    assert distance(law, expected_law()) <= 1e-15


def test_deeper_than_the_output():
    law = law_of(draft="greedy", verifier="greedy", num_drafts=1, depth=5)
    assert distance(law, expected_law()) <= EXACT


@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_batch_scheme(draft, num_drafts):
    law = law_of(draft, scheme="batch", num_drafts=num_drafts, depth=2, top_k=2)
    assert distance(law, expected_law(top_k=2)) <= EXACT


@pytest.mark.parametrize("temperature", [0.0, 0.6, 2.5])
def test_temperature(temperature):
    law = law_of(tree=[2, 1], temperature=temperature)
    assert distance(law, expected_law(temperature=temperature)) <= EXACT


def test_top_p():
    def nucleus(prefix):
        return mdsd.filter_probs(TARGET.probs(prefix), top_p=0.7)

    law = law_of(tree=[2, 1], top_p=0.7)
    assert distance(law, plain_law(nucleus, PROMPT, LENGTH)) <= EXACT


@pytest.mark.parametrize("eos", [(1,), (0, 3)], ids=str)
def test_end_tokens(eos):
    law = law_of(tree=[2, 1], eos_token_id=list(eos))
    expected = expected_law(eos=eos)
    assert any(len(tokens) < LENGTH for tokens in expected)
    assert distance(law, expected) <= EXACT


def test_logits_processor_holds_at_every_position():
    def banned(prefix):
        return (prefix[-1] + 1) % V

    def processor(prefix, logits):
        changed = logits.copy()
        changed[banned(prefix)] = -np.inf
        return changed

    def probs(prefix):
        row = TARGET.probs(prefix).copy()
        row[banned(prefix)] = 0.0
        return row / row.sum()

    law = law_of(tree=[2, 1], logits_processor=processor)
    assert distance(law, plain_law(probs, PROMPT, LENGTH)) <= EXACT


class TestVocabularies:
    OWN = PrefixModel(7, vocab_size=3)
    IDS = (3, 0, 1)  # token 2 of the target cannot be drafted

    @pytest.mark.parametrize("unknown", [None, 1])
    def test_smaller_and_reordered(self, unknown):
        model = MappedModel(self.OWN, self.IDS, V, unknown_token_id=unknown)
        law = law_of(model=model, tree=[2, 1])
        assert distance(law, expected_law()) <= EXACT

    def test_by_hand(self):
        model = PrefixModel(0)
        model.probs = lambda prefix: map_vocabulary(self.OWN.probs(prefix), self.IDS, V)
        law = law_of("with_replacement", model, verifier="kseq", tree=[2, 1])
        assert distance(law, expected_law()) <= EXACT

    def test_tokens_the_target_does_not_have(self):
        model = MappedModel(PrefixModel(8, vocab_size=6), [5, -1, 0, 2, -1, 1], 6)
        target = PrefixModel(9, vocab_size=6)
        law = sequence_law(target, model, [4], 2, draft="greedy", verifier="greedy", tree=[2, 1])
        assert distance(law, plain_law(target.probs, [4], 2)) <= EXACT


class TestNegativeControls:
    """Decoders that are not lossless must be found out."""

    @pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
    def test_a_verifier_that_lies_about_the_draft(self, draft):
        law = law_of(draft, verifier=LyingVerifier(), tree=[2, 1])
        assert sum(law.values()) == pytest.approx(1.0, abs=1e-12)
        assert distance(law, expected_law()) > 1e-4

    def test_a_verifier_that_takes_the_first_draft(self):
        law = law_of(verifier=HastyVerifier(), tree=[2, 1])
        assert distance(law, expected_law()) > 1e-2

    def test_drafts_from_another_law_than_declared(self, monkeypatch):
        draft_evenly(monkeypatch)
        assert distance(law_of(tree=[2, 1]), expected_law()) > 1e-3

    def test_rows_of_other_nodes(self):
        class Shifted(PrefixModel):
            def logits(self, prefixes):
                return np.roll(super().logits(prefixes), 1, axis=0)

        law = sequence_law(Shifted(1), DRAFT_MODEL, PROMPT, 2, tree=[2, 1])
        assert distance(law, plain_law(TARGET.probs, PROMPT, 2)) > 1e-3


def test_sequences_that_cannot_be_generated_are_left_out():
    law = law_of(tree=[2, 1], top_k=1)
    (only,) = law
    assert law[only] == pytest.approx(1.0, abs=1e-15)


def test_unknown_option():
    with pytest.raises(InvalidArgumentError, match="colour"):
        law_of(colour="red")


@pytest.mark.parametrize("length", [0, 1.5, None])
def test_bad_length(length):
    with pytest.raises(InvalidArgumentError, match="length"):
        sequence_law(TARGET, DRAFT_MODEL, PROMPT, length)


def test_too_many_branches(monkeypatch):
    monkeypatch.setattr("mdsd.decoding.enumeration.MAX_BRANCHES", 100)
    with pytest.raises(UnsupportedError, match="100 branches"):
        sequence_law(SameRow(np.zeros(9)), SameRow(np.zeros(9)), [0], 2, num_drafts=3, depth=1)
