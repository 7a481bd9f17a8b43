"""Toy models: tables, n-grams against counts written out, and the embedded pair."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

import mdsd
from mdsd.decoding import (
    Model,
    NGramModel,
    PieceVocabulary,
    TableModel,
    embedded_pair,
    generate,
)
from mdsd.decoding.embedded import python_pages
from mdsd.decoding.models import check_model, model_logits
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    UnsupportedError,
)

from .toys import PrefixModel

TABLE = np.array([[0.25, 0.75, 0.0], [0.0, 0.0, 1.0], [0.5, 0.25, 0.25]])


class TestTable:
    def test_rows_of_the_last_tokens(self):
        model = TableModel(TABLE)
        logits = model.logits([[1, 1, 2], [0], [2, 1]])
        np.testing.assert_allclose(np.exp(logits), TABLE[[2, 0, 1]], rtol=0, atol=1e-15)
        assert model.vocab_size == 3
        assert model.logits([]).shape == (0, 3)

    def test_from_logits(self):
        logits = [[0.0, np.log(3.0)], [-np.inf, 5.0]]
        found = np.exp(TableModel.from_logits(logits).logits([[0], [1]]))
        np.testing.assert_allclose(found, [[0.25, 0.75], [0.0, 1.0]], rtol=0, atol=1e-15)

    def test_stays_as_it_is(self):
        given = TABLE.copy()
        model = TableModel(given)
        given[:] = 0.0
        again = pickle.loads(pickle.dumps(model))
        for one in (model, again):
            np.testing.assert_allclose(np.exp(one.logits([[0]])), TABLE[:1], rtol=0, atol=1e-15)
            rows = one.logits([[0]])
            rows[:] = 0.0  # a caller's copy
            assert one.logits([[1]])[0, 0] == -np.inf

    @pytest.mark.parametrize(
        ("prefixes", "words"), [([[0], []], "row 1 is empty"), ([[0, 3]], "row 0 ends in 3")]
    )
    def test_bad_prefixes(self, prefixes, words):
        with pytest.raises(InvalidTokenError, match=words):
            TableModel(TABLE).logits(prefixes)


def witten_bell(text, vocab_size, context):
    """The law of the next token by its recursive definition."""
    if context is None:
        return np.full(vocab_size, 1.0 / vocab_size)
    shorter = witten_bell(text, vocab_size, context[1:] if context else None)
    n = len(context)
    after = [text[i + n] for i in range(len(text) - n) if tuple(text[i : i + n]) == tuple(context)]
    counts = np.bincount(np.array(after, dtype=np.int64), minlength=vocab_size)
    kinds = np.count_nonzero(counts)
    return (counts + kinds * shorter) / (len(after) + kinds) if after else shorter


class TestNGrams:
    @pytest.mark.parametrize("order", [1, 2, 3, 4])
    def test_laws_are_interpolated_counts(self, order):
        rng = np.random.default_rng(order)
        text = rng.integers(0, 3, 40).tolist()
        model = NGramModel(text, vocab_size=4, order=order)  # token 3 is never seen
        prefixes = [rng.integers(0, 4, n).tolist() for n in range(7) for _ in range(4)]
        found = np.exp(model.logits(prefixes))
        for prefix, law in zip(prefixes, found, strict=True):
            context = tuple(prefix[len(prefix) - order + 1 :] if order > 1 else ())
            if len(prefix) < order - 1:
                context = tuple(prefix)
            np.testing.assert_allclose(law, witten_bell(text, 4, context), rtol=0, atol=1e-14)

    def test_laws(self):
        model = NGramModel(np.random.default_rng(0).integers(0, 50, 500), 60, 3)
        laws = np.exp(model.logits([[k, k + 1] for k in range(50)] + [[], [59], [7]]))
        np.testing.assert_allclose(laws.sum(axis=1), 1.0, rtol=0, atol=1e-13)
        assert laws.min() > 0.0

    def test_text_shorter_than_the_order(self):
        model = NGramModel([1, 0], vocab_size=2, order=5)
        np.testing.assert_allclose(np.exp(model.logits([[0, 1]])), [[0.75, 0.25]], atol=1e-15)

    def test_one_token(self):
        assert NGramModel([0], vocab_size=1, order=3).logits([[0, 0], []]).tolist() == [[0], [0]]

    def test_text_is_not_modified_and_travels(self):
        text = np.array([0, 1, 0, 2], dtype=np.uint8)
        model = NGramModel(text, 3, 2)
        assert text.tolist() == [0, 1, 0, 2]
        again = pickle.loads(pickle.dumps(model))
        assert again.logits([[0]]).tolist() == model.logits([[0]]).tolist()


class TestEmbeddedPair:
    def test_generates_text(self):
        pair = embedded_pair()
        prompt = pair.vocabulary.encode("The operator")
        result = generate(pair.target, pair.draft_model, prompt, max_new_tokens=24, rng=1)
        assert len(result.token_ids) == 24
        assert result.tokens_per_target_call > 1.0
        assert pair.vocabulary.decode(result.token_ids).isascii()

    def test_target_knows_its_text_better_than_the_draft(self):
        pair = embedded_pair()
        ids = pair.vocabulary.encode(python_pages(["assignment"])["assignment"][:500])
        prefixes = [ids[:k] for k in range(1, len(ids))]

        def mean_log_probs(model):
            rows = model.logits(prefixes)
            return rows[np.arange(len(prefixes)), ids[1:]].mean()

        assert mean_log_probs(pair.target) > mean_log_probs(pair.draft_model)

    def test_is_trained_once(self):
        assert embedded_pair() is embedded_pair()

    def test_python_without_its_help_pages(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
        with pytest.raises(UnsupportedError, match="pydoc_data"):
            embedded_pair.__wrapped__()


class TestPieces:
    TEXT = "One two, one two. And one 'more'\n\tend 12"

    def test_text_survives(self):
        vocabulary = PieceVocabulary.fit(self.TEXT.replace("\t", ""), 110)
        text = "One two three\n  'x' 42!"
        ids = vocabulary.encode(text)
        assert vocabulary.decode(ids) == text
        assert vocabulary.decode(np.array(ids)) == text
        assert vocabulary.eos_token_id not in ids
        assert vocabulary.decode([vocabulary.eos_token_id]) == ""

    def test_frequent_pieces_come_whole(self):
        vocabulary = PieceVocabulary.fit(self.TEXT, 99)
        assert vocabulary.pieces[97:] == (" one", " two")
        assert len(vocabulary.encode(" one two")) == 2
        assert len(vocabulary.encode(" end")) == 4

    def test_unknown_character(self):
        with pytest.raises(InvalidArgumentError, match="'é'"):
            PieceVocabulary.fit(self.TEXT, 97).encode("caf\u00e9")


class TestChecks:
    def test_protocol(self):
        assert isinstance(TableModel(TABLE), Model)
        assert isinstance(NGramModel([0], 1, 1), Model)
        assert not isinstance(TABLE, Model)

    @pytest.mark.parametrize(
        "model", [None, TABLE, object(), TableModel], ids=["none", "table", "object", "class"]
    )
    def test_no_model(self, model):
        with pytest.raises(InvalidArgumentError, match="draft_model"):
            check_model("draft_model", model)

    @pytest.mark.parametrize("size", [0, -3, 2.0, None])
    def test_bad_vocab_size(self, size):
        model = PrefixModel(0)
        model.vocab_size = size
        with pytest.raises(InvalidArgumentError, match="vocab_size of target"):
            check_model("target", model)

    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            (np.zeros((1, 4)), r"\(1, 4\)"),
            (np.zeros((2, 5)), r"\(2, 5\)"),
            (np.zeros(8), r"\(8,\)"),
            ([["a"] * 4] * 2, "str"),
            (None, "missing"),
        ],
        ids=["rows", "columns", "vector", "strings", "none"],
    )
    def test_bad_logits(self, rows, words):
        model = PrefixModel(0)
        model.logits = lambda prefixes: rows
        with pytest.raises(InvalidDistributionError, match=f"logits of target.*{words}"):
            model_logits("target", model, [[0], [1]])

    @pytest.mark.parametrize("name", ["target", "draft_model"])
    def test_bad_numbers_name_the_model(self, name):
        bad = PrefixModel(0)
        bad.logits = lambda prefixes: np.full((len(prefixes), 4), np.nan)
        models = {"target": PrefixModel(1), "draft_model": PrefixModel(2), name: bad}
        with pytest.raises(InvalidDistributionError, match=f"{name}.*nan"):
            mdsd.decoding.generate(**models, prompt_ids=[0], max_new_tokens=2)
