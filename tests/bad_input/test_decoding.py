"""Bad input of decoding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    MdsdError,
    UnsupportedError,
)

from .rows import Row, Values, rows
from .values import (
    COUNTS,
    INF,
    MATRIX,
    MIN_PS,
    MODELS,
    NAN,
    NOT_NUMBERS,
    PROBS,
    SEEDS,
    TEMPERATURES,
    TEXTS,
    TOKENS,
    TOLERANCES,
    TOP_KS,
    TOP_PS,
    WHOLE_SEEDS,
    P,
    Q,
    names,
    written,
)


def decoding_rows() -> Iterator[list[Row]]:
    decoding = mdsd.decoding
    table = decoding.TableModel([P, Q, P])
    good: dict[str, Any] = {
        "target": table,
        "draft_model": table,
        "prompt_ids": [0],
        "max_new_tokens": 2,
    }
    by_depth: Values = {
        **{kind: COUNTS[kind] for kind in COUNTS if kind not in ("none",)},
        "none": (None, "None"),
    }
    trees: Values = {
        "empty": ([], "empty"),
        "number": (3, "3"),
        "string": ("21", "'21'"),
        "zero": ([2, 0], "tree[1]", "0"),
        "float": ([2.0], "tree[0]", "2.0"),
        "bool": ([True], "tree[0]", "True"),
        "nested": ([[2, 1]], "tree[0]", "[2, 1]"),
        "huge": ([10**9], "100,000"),
    }
    ends: Values = {
        "negative": (-1, "-1"),
        "too_large": ([0, 3], "3", "position 1", "0..2"),
        "float": (0.0, "float64"),
        "bool": (True, "bool"),
        "string": ("0", "str"),
        "empty": ([], "(0,)"),
        "matrix": ([[0]], "(1, 1)"),
    }
    no_functions: Values = {"number": (3, "int"), "string": ("print", "str")}
    tables: dict[str, tuple[type[MdsdError], Values]] = {
        "target": (InvalidArgumentError, MODELS),
        "draft_model": (
            InvalidArgumentError,
            {**MODELS, "list": ([table, table],), "empty": ([], "[]")},
        ),
        "prompt_ids": (InvalidTokenError, TEXTS),
        "max_new_tokens": (InvalidArgumentError, by_depth),
        "draft": (InvalidArgumentError, names("explicit", "custom", gredy="greedy")),
        "verifier": (
            InvalidArgumentError,
            {
                **names("block_", krs="rrs"),
                "label_of_a_rule": ("mixture:0.5", "'mixture:0.5'", "MixtureAcceptance"),
                "rule": (mdsd.analysis.CactusAcceptance(0.1), "delta=0.1", "BiasedVerification"),
            },
        ),
        "num_drafts": (InvalidArgumentError, by_depth),
        "depth": (InvalidArgumentError, by_depth),
        "tree": (InvalidArgumentError, trees),
        "scheme": (InvalidArgumentError, names("forest", btch="batch")),
        "temperature": (InvalidArgumentError, TEMPERATURES),
        "top_k": (InvalidArgumentError, TOP_KS),
        "top_p": (InvalidArgumentError, TOP_PS),
        "min_p": (InvalidArgumentError, MIN_PS),
        "logits_processor": (InvalidArgumentError, no_functions),
        "eos_token_id": (InvalidTokenError, ends),
        "rng": (InvalidArgumentError, SEEDS),
        "callback": (InvalidArgumentError, no_functions),
    }
    for parameter, (error, values) in tables.items():
        yield rows(
            "decoding.generate",
            parameter,
            lambda v, p=parameter: decoding.generate(**{**good, p: v}),
            error,
            values,
        )

    unknown: Values = {"typo": ("topp", "'topp'", "'top_p'"), "other": ("typical_p", "'typical_p'")}
    yield rows(
        "decoding.generate",
        "filters",
        lambda name: decoding.generate(**good, **{name: 0.9}),
        InvalidArgumentError,
        unknown,
        named="filter",
    )

    growing = decoding.GrowingTree
    for parameter in ("budget", "depth"):
        yield rows(
            "decoding.GrowingTree",
            parameter,
            lambda v, p=parameter: growing(**{"budget": 4, "depth": 2, p: v}),
            InvalidArgumentError,
            by_depth,
        )
    ranks: Values = {
        **{kind: by_depth[kind] for kind in by_depth if kind != "none"},
        "beyond": (5, "5", "<= 4"),
    }
    acceptances: Values = {
        "none": (None,),
        "empty": ([], "(0,)"),
        "string": ("0.5",),
        "nan": ([0.5, NAN], "index 1", "nan"),
        "negative": ([-0.1], "-0.1"),
        "mass": ([0.8, 0.7], "1.5"),
        "by_depth": ([[0.5], [0.4]], "(2, 1)"),
    }
    for parameter, values in (
        ("max_children", ranks),
        ("acceptance_by_rank", acceptances),
        ("ordered", {"number": (1, "int"), "string": ("no", "str")}),
        ("min_value", {**TOLERANCES, "above": (1.5, "1.5", "at most 1")}),
    ):
        yield rows(
            "decoding.GrowingTree",
            parameter,
            lambda v, p=parameter: growing(4, 2, **{p: v}),
            InvalidArgumentError,
            values,
        )
    level = decoding.DraftedLevel(
        mdsd.WithReplacement.kind(), None, (-1,), (0,), (np.array([P]),), 2, 4
    )
    levels: Values = {
        **{kind: COUNTS[kind] for kind in COUNTS if kind not in ("none", "0")},
        "below": (1, "1", "0..0"),
    }
    yield rows("decoding.DraftedLevel.at", "depth", level.at, InvalidArgumentError, levels)
    yield rows(
        "decoding.DraftedLevel.can_draft",
        "count",
        level.can_draft,
        InvalidArgumentError,
        COUNTS,
    )

    biased = decoding.BiasedVerification
    refused = InvalidArgumentError
    yield rows("decoding.BiasedVerification", "epsilon", biased, refused, TOLERANCES)
    yield rows(
        "decoding.BiasedVerification",
        "redraw",
        lambda redraw: biased(0.1, redraw=redraw),
        refused,
        names("draft", optmal="optimal"),
    )
    yield rows(
        "decoding.BiasedVerification",
        "rule",
        lambda rule: biased(rule=rule),
        refused,
        {
            "name": ("typical", "str", "BiasedRule"),
            "verifier": (mdsd.RRSVerifier(), "RRSVerifier", "BiasedRule"),
            "lossless": (mdsd.analysis.GumbelLists(), "GumbelLists", "BiasedRule"),
        },
    )
    yield rows(
        "decoding.BiasedVerification.check",
        "laws",
        biased(0.1).check,
        UnsupportedError,
        {"two_drafts": ([mdsd.WithReplacement(P, 2)], "'biased'", "2 drafts")},
        named="num_drafts",
    )

    shared = decoding.GumbelVerification
    yield rows("decoding.GumbelVerification", "seed", lambda v: shared(v, 2), refused, WHOLE_SEEDS)
    yield rows("decoding.GumbelVerification", "num_drafts", lambda v: shared(0, v), refused, COUNTS)
    yield rows(
        "decoding.GumbelVerification.check",
        "laws",
        shared(0, 1).check,
        UnsupportedError,
        {
            "two_drafts": ([mdsd.WithReplacement(P, 2)], "'gumbel'", "2 drafts"),
            "without": ([mdsd.WithoutReplacement(P, 1)], "without_replacement"),
        },
        named="num_drafts",
    )

    square: Values = {
        **{kind: PROBS[kind] for kind in NOT_NUMBERS},
        "vector": (P, "(3,)"),
        "oblong": ([P, Q], "(2, 3)"),
        "empty": (np.zeros((0, 0)), "empty"),
        "nan": ([[0.5, 0.5], [NAN, 1.0]], "row 1", "nan"),
        "mass": ([[0.5, 0.5], [0.5, 0.6]], "row 1", "1.1"),
    }
    yield rows(
        "decoding.TableModel", "probs", decoding.TableModel, InvalidDistributionError, square
    )
    logits: Values = {
        "none": (None,),
        "nan": ([[0.0, NAN], [0.0, 0.0]], "row 0", "nan"),
        "masked": ([[0.0, 0.0], [-INF, -INF]], "row 1", "empty support"),
    }
    yield rows(
        "decoding.TableModel.from_logits",
        "logits",
        decoding.TableModel.from_logits,
        InvalidDistributionError,
        logits,
    )
    prefixes: Values = {"empty": ([[0], []], "row 1"), "too_large": ([[3]], "row 0", "3")}
    yield rows("decoding.TableModel.logits", "prefixes", table.logits, InvalidTokenError, prefixes)

    def ngrams(token_ids: Any = (0, 1), vocab_size: Any = 3, order: Any = 2) -> Any:
        return decoding.NGramModel(token_ids, vocab_size, order)

    yield rows("decoding.NGramModel", "token_ids", ngrams, InvalidTokenError, TEXTS)
    for parameter in ("vocab_size", "order"):
        yield rows(
            "decoding.NGramModel",
            parameter,
            lambda v, p=parameter: ngrams(**{p: v}),
            InvalidArgumentError,
            COUNTS,
        )

    maps: Values = {
        **{kind: TOKENS[kind] for kind in TOKENS if kind not in ("negative", "too_long")},
        "negative": ([-2, 0], "-2", "position 0", "-1..2"),
        "too_large": ([0, 3], "3", "position 1"),
        "too_long": ([0, 1, 2], "(3,)"),
        "beyond_int64": (np.array([2**63 + 1, 0], dtype=np.uint64), str(2**63 + 1)),
    }
    halves = [0.5, 0.5]
    pair = decoding.TableModel([halves, halves])
    for call, make in (
        ("map_vocabulary", lambda ids, size: decoding.map_vocabulary(halves, ids, size)),
        ("MappedModel", lambda ids, size: decoding.MappedModel(pair, ids, size)),
    ):
        yield rows(
            f"decoding.{call}",
            "target_token_ids",
            lambda ids, f=make: f(ids, 3),
            InvalidTokenError,
            maps,
        )
        yield rows(
            f"decoding.{call}",
            "vocab_size",
            lambda size, f=make: f([0, 1], size),
            InvalidArgumentError,
            COUNTS,
        )
    drafted: Values = {
        **{kind: PROBS[kind] for kind in PROBS if kind not in ("matrix", "scalar")},
        "rows_nan": ([P, [0.5, NAN, 0.5]], "row 1", "index 1", "nan"),
        "rows_mass": ([P, [0.6, 0.5, 0.1]], "row 1", "1.2"),
        "nothing_left": ([P, [0.0, 0.0, 1.0]], "row 1", "no mass"),
    }
    yield rows(
        "decoding.map_vocabulary",
        "draft_probs",
        lambda probs: decoding.map_vocabulary(probs, [0, 1, -1], 3),
        InvalidDistributionError,
        drafted,
    )
    yield rows(
        "decoding.MappedModel",
        "model",
        lambda model: decoding.MappedModel(model, [0, 1], 3),
        InvalidArgumentError,
        MODELS,
    )
    yield rows(
        "decoding.MappedModel",
        "unknown_token_id",
        lambda token: decoding.MappedModel(pair, [0, 1], 3, unknown_token_id=token),
        InvalidArgumentError,
        {**MATRIX, **written(-1, 2, 0.0, True, "0")},
    )

    vocabulary = decoding.PieceVocabulary(("", "a", "b"))
    pieces: Values = {
        "none": (None, "NoneType"),
        "list": (["", "a"], "list"),
        "equal": (("", "a", "a"), "'a'"),
        "not_empty": (("a", "b"), "('a', 'b')"),
        "numbers": (("", 1), "1"),
        "nothing": ((), "()"),
    }
    no_text: Values = {
        "none": (None, "NoneType"),
        "bytes": (b"a", "bytes"),
        "list": (["a"], "list"),
    }
    yield rows(
        "decoding.PieceVocabulary",
        "pieces",
        decoding.PieceVocabulary,
        InvalidArgumentError,
        pieces,
    )
    yield rows(
        "decoding.PieceVocabulary.encode",
        "text",
        vocabulary.encode,
        InvalidArgumentError,
        {**no_text, "unknown": ("abc", "'c'")},
    )
    spelled = {kind: TEXTS[kind] for kind in TEXTS if kind != "empty"}
    yield rows(
        "decoding.PieceVocabulary.decode",
        "token_ids",
        vocabulary.decode,
        InvalidTokenError,
        spelled,
    )
    fit = decoding.PieceVocabulary.fit
    call = "decoding.PieceVocabulary.fit"
    yield rows(call, "text", lambda text: fit(text, 200), InvalidArgumentError, no_text)
    few = {**COUNTS, "too_few": (96, "96", "97")}
    yield rows(call, "vocab_size", lambda size: fit("a", size), InvalidArgumentError, few)


ROWS = [row for made in decoding_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
