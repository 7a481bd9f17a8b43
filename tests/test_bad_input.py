"""Bad input, argument by argument: refused before any work, by one line that names it.

`ROWS` holds one row for each argument of each public callable and each kind of bad value. The class
of the error is exact, the message is one line that names the argument and the value (and the row,
where there are several), nothing warns and no input changes. `test_every_parameter_is_covered`
reads the public signatures and fails for an argument that is neither in the table nor in `EXEMPT`.
"""

from __future__ import annotations

import datetime
import inspect
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import mdsd
from mdsd.cli import main
from mdsd.errors import (
    InvalidArgumentError,
    InvalidDistributionError,
    InvalidTokenError,
    MdsdError,
    UnsupportedError,
)

NAN, INF = float("nan"), float("inf")
P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
DATA = mdsd.datasets.load("smollm2")
LOG = mdsd.datasets.TopLogprobs(
    "log", ("drop2",), (mdsd.datasets.LoggedPosition(1, {"a": -0.5}, {"drop2": {"a": -0.7}}),)
)


class NotConvertible:
    """Refuses to become an array with an error of its own, as a torch tensor with a gradient."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("Can't call numpy() on\nTensor that requires grad.")


@dataclass(frozen=True, eq=False)
class Row:
    """One call that must be refused.

    `run` is called with `value`; `words` are what the message must hold.
    """

    call: str
    parameter: str
    kind: str
    run: Callable[[Any], object]
    value: Any
    error: type[MdsdError]
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.call}-{self.parameter}-{self.kind}"


Values = Mapping[str, tuple[Any, ...]]
"""Bad values by kind: the value, then words that a message about it holds."""


def rows(
    call: str,
    parameter: str,
    run: Callable[[Any], object],
    error: type[MdsdError],
    values: Values,
    *,
    named: str | None = None,
    without: tuple[str, ...] = (),
) -> list[Row]:
    """Make the rows of one argument; `named` is what messages call it, if not by its name."""
    return [
        Row(
            call,
            parameter,
            kind,
            run,
            value,
            error,
            (parameter if named is None else named, *words),
        )
        for kind, (value, *words) in values.items()
        if kind not in without
    ]


# --- bad values ----------------------------------------------------------------------------------

NOT_NUMBERS: Values = {
    "none": (None,),
    "string": ("abc", "str"),
    "strings": (["0.2", "0.5", "0.3"], "str"),
    "bytes": (b"abc", "bytes"),
    "objects": (np.array([0.5, 0.5, None]), "object"),
    "ragged": ([[0.2], [0.5, 0.3]],),
    "complex": (np.array([0.2j, 0.5, 0.3]), "complex128"),
    "bool": ([True, False, False], "bool"),
    "dict": ({0: 1.0}, "object"),
    "date": (np.array(["2024-01-01"] * 3, dtype="datetime64[D]"), "datetime64"),
    "not_convertible": (NotConvertible(),),
}

PROBS: Values = {
    **NOT_NUMBERS,
    "nan": ([0.5, NAN, 0.5], "nan", "index 1"),
    "negative": ([0.6, 0.5, -0.1], "-0.1", "index 2"),
    "barely_negative": ([-1e-300, 0.5, 0.5], "-1e-300", "index 0"),
    "inf": ([INF, 0.5, 0.5], "inf", "index 0"),
    "minus_inf": ([0.5, 0.5, -INF], "-inf", "index 2"),
    "beyond_float64": (np.array(["1e4000", "0", "0"], dtype=np.longdouble), "inf"),
    "huge": ([1e308, 1e308, 0.0], "inf"),
    "all_zero": ([0.0, 0.0, 0.0], "sums to 0"),
    "mass_float64": ([0.2, 0.5, 0.30002], "1.00002", "float64"),
    "mass_float32": (np.array([0.2, 0.5, 0.3002], dtype=np.float32), "1.0001", "float32"),
    "mass_float16": (np.array([0.2, 0.5, 0.33], dtype=np.float16), "1.03", "float16"),
    "mass_bfloat16": (np.array([0.2, 0.5, 0.35], dtype=ml_dtypes.bfloat16), "1.0", "bfloat16"),
    "mass_longdouble": (np.array([0.2, 0.5, 0.30002], dtype=np.longdouble), "1.00002"),
    "mass_int": ([1, 3, 0], "sums to 4"),
    "empty": ([], "empty"),
    "scalar": (1.0, "()"),
    "matrix": ([[0.2, 0.5, 0.3]], "(1, 3)"),
    "read_only": (np.broadcast_to(np.float64(0.5), 3), "1.5"),
}

TARGETS: Values = {
    **PROBS,
    "shorter": ([0.5, 0.5], "2 tokens", "3"),
    "longer": ([0.25, 0.25, 0.25, 0.25], "4 tokens", "3"),
}

TOKENS: Values = {
    "none": (None, "object"),
    "negative": ([-1, 0], "-1", "position 0"),
    "too_large": ([0, 3], "3", "position 1", "0..2"),
    "beyond_int32": ([2**40, 0], str(2**40)),
    "beyond_int64": (np.array([2**63 + 1, 0], dtype=np.uint64), str(2**63 + 1)),
    "beyond_uint64": ([2**64, 0], "integers"),
    "float": ([0.0, 1.0], "float64", "integers"),
    "bool": ([True, False], "bool", "integers"),
    "nan": ([NAN, 0], "float64"),
    "string": ("ab", "str"),
    "strings": (["0", "1"], "str"),
    "objects": (np.array([0, None]), "object"),
    "complex": ([0j, 1j], "complex128"),
    "ragged": ([[0], [1, 2]],),
    "scalar": (0, "()"),
    "too_short": ([0], "(1,)"),
    "too_long": ([0, 1, 2], "(3,)"),
    "empty": ([], "(0,)"),
    "not_convertible": (NotConvertible(),),
}
IDS: Values = {**TOKENS, "matrix": ([[0, 1]], "(1, 2)")}
TOKEN_ROWS: Values = {
    "none": (None, "object"),
    "negative": ([[0, 1], [-1, 0]], "row 1", "-1"),
    "too_large": ([[0, 1], [1, 0], [0, 3]], "row 2", "3"),
    "float": ([[0.0, 1.0]], "float64"),
    "bool": ([[True, False]], "bool"),
    "string": ("ab", "str"),
    "objects": (np.array([[0, None]]), "object"),
    "complex": ([[0j, 1j]], "complex128"),
    "ragged": ([[0], [1, 2]],),
    "vector": ([0, 1], "(2,)"),
    "too_short": ([[0]], "(1, 1)"),
    "too_long": ([[0, 1, 2]], "(1, 3)"),
    "empty": ([], "(0,)"),
    "not_convertible": (NotConvertible(),),
}


def written(*values: Any) -> Values:
    """Values that a message repeats as they are written."""
    return {repr(value).strip("'"): (value, repr(value)) for value in values}


MATRIX: Values = {"matrix": (np.zeros((3, 3)),), "list": ([2], "[2]"), "nan": (NAN, "nan")}
BEYOND = "beyond_int64"
COUNTS: Values = {
    **MATRIX,
    **written(0, -1, 1.5, 2.0, True, "2", 2j),
    "none": (None, "None"),
    "array": (np.array([2]),),
    "numpy_float": (np.float64(2.0), "2.0"),
    "inf": (INF, "inf"),
    "beyond_int64": (10**30, str(10**30)),
}
SEEDS: Values = {
    **MATRIX,
    **written(-1, 1.5, True, "0"),
    "global_state": (np.random.RandomState(0),),
    "module": (np.random,),
}
WHOLE_SEEDS: Values = {**SEEDS, "none": (None, "None")}
SIZES: Values = {
    **MATRIX,
    **written(-1, 1.5, 2.0, True, "3"),
    "tuple": ((2, 3), "(2, 3)"),
    "beyond_int64": (10**30, str(10**30)),
}
TEMPERATURES: Values = {
    **written(-1.0, "1", True, 1j),
    "nan": (NAN, "nan"),
    "inf": (INF, "inf"),
    "none": (None, "None"),
    "strings": (np.array([["a", "b"], ["c", "d"]]),),
    "objects": ([1.0, None], "None"),
    "ragged": ([[1.0], [1.0, 2.0]],),
    "wrong_length": ([1.0, 1.0, 1.0], "(3,)"),
    "empty": ([], "(0,)"),
    "beyond_float64": (10**400,),
}
TOP_KS: Values = {**MATRIX, **written(-2, 1.5, 2.0, True, "2"), "inf": (INF, "inf")}
TOP_PS: Values = {
    **MATRIX,
    **written(0, 0.0, -0.5, 1.5, "0.9", True, 1j),
    "none": (None, "None"),
    "beyond_float64": (10**400,),
}
TOLERANCES: Values = {
    **MATRIX,
    **written(-1e-9, "1e-9", True, 1j),
    "inf": (INF, "inf"),
    "none": (None, "None"),
    "beyond_float64": (10**400,),
}
ITERATIONS: Values = {**MATRIX, **written(0, -1, 1.5, 2.0, True, "10"), "inf": (INF, "inf")}
UNIFORMS: Values = {
    "negative": ([0.5, -0.1, 0.5], "-0.1"),
    "one": ([0.5, 0.5, 1.0], "1.0"),
    "nan": ([NAN, 0.5, 0.5], "nan"),
    "inf": ([0.5, INF, 0.5], "inf"),
    "missing_entry": ([0.5, None, 0.5],),
    "string": ("abc",),
    "strings": (["0.5", "0.5", "0.5"],),
    "complex": (np.array([0.5j, 0.5, 0.5]),),
    "bool": ([False, False, False],),
    "ragged": ([[0.5], [0.5, 0.5]],),
    "beyond_float64": ([10**400, 0.5, 0.5],),
    "scalar": (0.5, "()"),
    "too_short": ([0.5, 0.5], "(2,)"),
    "too_long": ([0.5] * 4, "(4,)"),
    "matrix": ([[0.5, 0.5, 0.5]], "(1, 3)"),
    "empty": ([], "(0,)"),
    "not_convertible": (NotConvertible(),),
}
UNIFORM_ROWS: Values = {
    "negative": ([[0.5] * 3, [0.5, -0.1, 0.5]], "row 1", "-0.1"),
    "one": ([[0.5] * 3, [0.5, 0.5, 1.0]], "row 1", "1.0"),
    "nan": ([[0.5] * 3, [NAN, 0.5, 0.5]], "row 1", "nan"),
    "too_few_rows": ([[0.5] * 3], "(1, 3)"),
    "vector": ([0.5] * 3, "(3,)"),
    "complex": (np.full((2, 3), 0.5j),),
    "ragged": ([[0.5], [0.5, 0.5]],),
}
SEED_ROWS: Values = {
    "negative": ([0, -1], "row 1", "-1"),
    "float": ([0.0, 1.0], "float64"),
    "bool": ([True, False], "bool"),
    "strings": (["0", "1"], "str"),
    "objects": (np.array([0, None]), "object"),
    "complex": ([0j, 1j], "complex128"),
    "beyond_uint64": ([0, 2**64], "2**64"),
    "too_few_rows": ([0], "(1,)"),
    "scalar": (0, "()"),
    "matrix": ([[0], [1]], "(2, 1)"),
    "ragged": ([[0], [0, 1]],),
    "not_convertible": (NotConvertible(),),
}
ORDERS: Values = {
    "none": (None,),
    "repeated": ([0, 1, 1], "2"),
    "negative": ([0, 1, -1], "2"),
    "too_large": ([0, 1, 3], "2"),
    "too_short": ([0, 1], "(2,)"),
    "too_long": ([0, 1, 2, 0], "(4,)"),
    "scalar": (0, "()"),
    "matrix": ([[0, 1, 2]], "(1, 3)"),
    "float": ([0.0, 1.0, 2.0], "float64"),
    "bool": ([True, False, True], "bool"),
    "string": ("abc", "str"),
    "objects": (np.array([0, 1, None]), "object"),
    "ragged": ([[0], [1, 2]],),
    "empty": ([], "(0,)"),
    "beyond_int64": ([2**64, 0, 1],),
    "not_convertible": (NotConvertible(),),
}
NOT_DRAFTS: Values = {
    "none": (None, "NoneType"),
    "name": ("with_replacement", "str"),
    "probs": (Q, "list"),
    "array": (np.array(Q), "ndarray"),
    "class": (mdsd.WithReplacement,),
    "verifier": (mdsd.NaiveVerifier(), "NaiveVerifier"),
}


def names(*unknown: str, **near: str) -> Values:
    """Names that are not known, near ones with the suggestion to expect, and what is no name."""
    return {
        **written(*unknown),
        **{typo: (typo, repr(typo), meant) for typo, meant in near.items()},
        "empty": ("", "''"),
        "number": (3, "3"),
        "list": (["lp"], "lp"),
        "array": (np.array(["lp", "subset"]),),
        "lines": ("a\nb", r"a\nb"),
    }


# --- what is called ------------------------------------------------------------------------------

DRAFTS: dict[str, mdsd.DraftDistribution] = {
    "WithReplacement": mdsd.WithReplacement(Q, 2),
    "WithoutReplacement": mdsd.WithoutReplacement(Q, 2),
    "IndependentDrafts": mdsd.IndependentDrafts([Q, P]),
    "GreedyDraft": mdsd.GreedyDraft(Q, 2),
    "SpecHubDraft": mdsd.SpecHubDraft(Q),
    "TopKDraft": mdsd.TopKDraft(Q, 2),
    "ExplicitDraft": mdsd.ExplicitDraft([[0, 1], [2, 1]], [0.25, 0.75], vocab_size=3),
}
PLANS: dict[str, mdsd.Plan] = {
    "single": mdsd.SingleDraftVerifier().plan(P, mdsd.WithReplacement(Q, 1)),
    "naive": mdsd.NaiveVerifier().plan(P, DRAFTS["ExplicitDraft"]),
    "naive_tree": mdsd.NaiveTreeVerifier().plan(P, DRAFTS["WithReplacement"]),
    "rrs": mdsd.RRSVerifier().plan(P, DRAFTS["WithReplacement"]),
    "rrs_paths": mdsd.RRSVerifier().plan(P, DRAFTS["WithoutReplacement"]),
    "kseq": mdsd.KSeqVerifier().plan(P, DRAFTS["WithReplacement"]),
    "spechub": mdsd.SpecHubVerifier().plan(P, DRAFTS["SpecHubDraft"]),
    "greedy": mdsd.GreedyVerifier().plan(P, DRAFTS["GreedyDraft"]),
    "marks": mdsd.OptimalVerifier().plan(P, DRAFTS["WithReplacement"]),
    "lottery": mdsd.OptimalVerifier().plan(P, DRAFTS["IndependentDrafts"]),
    "top_k": mdsd.OptimalVerifier().plan(P, DRAFTS["TopKDraft"]),
}
VERIFIERS: dict[str, mdsd.Verifier] = {
    type(verifier).__name__: verifier
    for verifier in (
        mdsd.SingleDraftVerifier(),
        mdsd.NaiveVerifier(),
        mdsd.NaiveTreeVerifier(),
        mdsd.RRSVerifier(),
        mdsd.KSeqVerifier(),
        mdsd.SpecHubVerifier(),
        mdsd.GreedyVerifier(),
        mdsd.OptimalVerifier(),
    )
}
SUPPORTED: dict[str, mdsd.DraftDistribution] = {
    "SingleDraftVerifier": mdsd.WithReplacement(Q, 1),
    "SpecHubVerifier": DRAFTS["SpecHubDraft"],
    "GreedyVerifier": DRAFTS["GreedyDraft"],
}
UNSUPPORTED: dict[str, mdsd.DraftDistribution] = {
    "SingleDraftVerifier": DRAFTS["WithReplacement"],
    "NaiveTreeVerifier": DRAFTS["WithoutReplacement"],
    "RRSVerifier": DRAFTS["GreedyDraft"],
    "KSeqVerifier": DRAFTS["IndependentDrafts"],
    "SpecHubVerifier": DRAFTS["GreedyDraft"],
    "GreedyVerifier": DRAFTS["SpecHubDraft"],
}


class LyingDraft(mdsd.DraftDistribution):
    """A user's draft distribution whose hit probabilities are what they are set to."""

    name, num_drafts, vocab_size = "lying", 2, 3

    def __init__(self, hits: Any) -> None:
        self.hits = hits

    def hit_probs(self, order: Any) -> Any:
        return self.hits

    def sample(self, rng: Any, size: int | None = None) -> Any:
        return np.zeros((2,) if size is None else (size, 2), dtype=np.int64)


class BareDraft(LyingDraft):
    """It says neither how many tokens it drafts nor from how many."""

    num_drafts = vocab_size = None


LYING_DRAFTS: Values = {
    "hits_nan": (LyingDraft(np.full(4, NAN)), "nan"),
    "hits_too_short": (LyingDraft(np.array([0.0, 0.5, 1.0])), "(3,)"),
    "hits_falling": (LyingDraft(np.array([0.0, 1.0, 0.5, 1.0])),),
    "hits_above_one": (LyingDraft(np.array([0.0, 1.0, 2.0, 3.0])),),
    "hits_end_below_one": (LyingDraft(np.array([0.0, 0.1, 0.2, 0.3])), "0.3"),
    "hits_strings": (LyingDraft(["0", "0.5", "1", "1"]),),
    "no_sizes": (BareDraft(np.array([0.0, 0.5, 1.0, 1.0])), "None"),
}


def draft_rows() -> Iterator[list[Row]]:
    for kind in ("WithReplacement", "WithoutReplacement", "GreedyDraft", "TopKDraft"):
        make = getattr(mdsd, kind)
        # Without replacement a count beyond all bounds is a lack of tokens.
        counts = {k: v for k, v in COUNTS.items() if make is mdsd.WithReplacement or k != BEYOND}
        yield rows(kind, "draft_probs", lambda q, m=make: m(q, 2), InvalidDistributionError, PROBS)
        yield rows(kind, "num_drafts", lambda n, m=make: m(Q, n), InvalidArgumentError, counts)
    yield rows("SpecHubDraft", "draft_probs", mdsd.SpecHubDraft, InvalidDistributionError, PROBS)
    few = {"too_few": ([1.0, 0.0, 0.0], "1 token", "2")}
    for kind in ("WithoutReplacement", "GreedyDraft", "TopKDraft"):
        make = getattr(mdsd, kind)
        yield rows(kind, "draft_probs", lambda q, m=make: m(q, 2), InvalidDistributionError, few)
        more = {"too_many": (4, "3", "4")}
        yield rows(kind, "num_drafts", lambda n, m=make: m(Q, n), InvalidDistributionError, more)
    yield rows("SpecHubDraft", "draft_probs", mdsd.SpecHubDraft, InvalidDistributionError, few)

    second = {
        kind: ([Q, value], "draft_probs[1]", *words) for kind, (value, *words) in PROBS.items()
    }
    whole: Values = {
        "none": (None, "missing"),
        "empty": ([], "missing"),
        "number": (0.5,),
        "scalar_array": (np.array(0.5),),
        "one_vector": (Q, "draft_probs[0]", "()"),
        "string": ("abc", "str"),
        "lengths_differ": ([Q, [0.5, 0.5]], "draft_probs[1]", "2", "3"),
        "generator": (iter([Q, P]),),
    }
    for values in (second, whole):
        yield rows(
            "IndependentDrafts",
            "draft_probs",
            mdsd.IndependentDrafts,
            InvalidDistributionError,
            {f"second_{k}" if values is second else k: v for k, v in values.items()},
        )

    def explicit(
        token_ids: Any = ((0, 1), (2, 1)), probs: Any = (0.25, 0.75), size: Any = 3
    ) -> Any:
        return mdsd.ExplicitDraft(token_ids, probs, vocab_size=size)

    ids: Values = {
        **{kind: TOKEN_ROWS[kind] for kind in TOKEN_ROWS if kind not in ("too_short", "too_long")},
        "none": (None, "()"),
        "string": ("ab", "()"),
        "no_columns": (np.zeros((2, 0), dtype=np.int64), "(2, 0)"),
        "cube": (np.zeros((2, 1, 2), dtype=np.int64), "(2, 1, 2)"),
    }
    yield rows("ExplicitDraft", "token_ids", explicit, InvalidTokenError, ids)
    pairs: Values = {
        **{kind: PROBS[kind] for kind in NOT_NUMBERS},
        "nan": ([NAN, 1.0], "nan", "index 0"),
        "negative": ([1.1, -0.1], "-0.1", "index 1"),
        "inf": ([INF, 0.0], "inf"),
        "mass": ([0.5, 0.6], "1.1"),
        "too_short": ([1.0], "1", "2"),
        "too_long": ([0.5, 0.25, 0.25], "3", "2"),
        "empty": ([], "empty"),
        "matrix": ([[0.5, 0.5]], "(1, 2)"),
    }
    yield rows(
        "ExplicitDraft",
        "probs",
        lambda probs: explicit(probs=probs),
        InvalidDistributionError,
        pairs,
    )
    yield rows(
        "ExplicitDraft",
        "vocab_size",
        lambda size: explicit(size=size),
        InvalidArgumentError,
        COUNTS,
    )
    yield rows(
        "ExplicitDraft",
        "vocab_size",
        lambda size: explicit(size=size),
        InvalidTokenError,
        {"too_small": (2, "2")},
        named="token_ids",
    )

    for kind, draft in DRAFTS.items():
        orders, tokens = ORDERS, TOKENS
        seeds = {k: v for k, v in SEEDS.items() if k != "list"}
        yield rows(f"{kind}.hit_probs", "order", draft.hit_probs, InvalidArgumentError, orders)
        yield rows(f"{kind}.prob", "draft_token_ids", draft.prob, InvalidTokenError, tokens)
        yield rows(f"{kind}.sample", "rng", draft.sample, InvalidArgumentError, seeds)
        yield rows(
            f"{kind}.sample",
            "size",
            lambda size, d=draft: d.sample(0, size),
            InvalidArgumentError,
            SIZES,
        )


def plan_rows() -> Iterator[list[Row]]:
    plan = PLANS["rrs"]
    good, batch = [0, 1], [[0, 1], [1, 0]]
    batches = {f"rows_{kind}": TOKEN_ROWS[kind] for kind in ("negative", "too_large", "too_short")}
    for call, run, values in (
        ("Plan.verify", lambda ids: plan.verify(ids, 0), IDS),
        ("Plan.verify_many", lambda ids: plan.verify_many(ids, 0), TOKEN_ROWS),
        ("Plan.output_law", plan.output_law, {**TOKENS, **batches}),
    ):
        yield rows(call, "draft_token_ids", run, InvalidTokenError, values)
    both: Values = {"and_uniforms": ((0, 0.5), "uniforms")}
    for call, method, ids in (
        ("Plan.verify", plan.verify, good),
        ("Plan.verify_many", plan.verify_many, batch),
    ):
        yield rows(call, "rng", lambda rng, m=method, i=ids: m(i, rng), InvalidArgumentError, SEEDS)
        yield rows(
            call,
            "rng",
            lambda pair, m=method, i=ids: m(i, pair[0], uniforms=pair[1]),
            InvalidArgumentError,
            both,
        )
    yield rows(
        "Plan.verify",
        "uniforms",
        lambda numbers: plan.verify(good, uniforms=numbers),
        InvalidArgumentError,
        UNIFORMS,
    )
    yield rows(
        "Plan.verify_many",
        "uniforms",
        lambda numbers: plan.verify_many(batch, uniforms=numbers),
        InvalidArgumentError,
        UNIFORM_ROWS,
    )

    for label, each in PLANS.items():
        n = each.draft.num_drafts
        every: Values = {
            "negative": ([-1] * n, "-1"),
            "too_large": ([3] * n, "3", "0..2"),
            "float": ([0.0] * n, "float64"),
            "bool": ([False] * n, "bool"),
            "wrong_length": ([0] * (n + 1), f"({n + 1},)"),
        }
        values = {f"{label}_{kind}": value for kind, value in every.items()}
        yield rows(
            "Plan.verify",
            "draft_token_ids",
            lambda ids, p=each: p.verify(ids, 0),
            InvalidTokenError,
            values,
        )
        short: Values = {f"{label}_too_long": (np.full(each.num_uniforms + 1, 0.5), "shape")}
        ids = each.draft.sample(0)
        yield rows(
            "Plan.verify",
            "uniforms",
            lambda numbers, p=each, i=ids: p.verify(i, uniforms=numbers),
            InvalidArgumentError,
            short,
        )

    # The draft of token 0 has probability 0, a repeated token cannot be drawn, ...
    zero = [0.0, 0.6, 0.4]
    for draft, ids in (
        (mdsd.WithReplacement(zero, 2), [1, 0]),
        (mdsd.WithoutReplacement(zero, 2), [1, 0]),
        (mdsd.WithoutReplacement(Q, 2), [1, 1]),
        (mdsd.IndependentDrafts([Q, zero]), [1, 0]),
        (mdsd.GreedyDraft(Q, 2), [0, 1]),
        (mdsd.SpecHubDraft(Q), [0, 2]),
        (mdsd.TopKDraft(Q, 2), [2, 1]),
        (DRAFTS["ExplicitDraft"], [1, 0]),
    ):
        impossible = mdsd.NaiveVerifier().plan(P, draft)
        kind = f"impossible_{draft.name}_{ids[0]}{ids[1]}"
        words = (str(ids), draft.name)
        for call, value, more in (
            ("verify", ids, ()),
            ("verify_many", [draft.sample(0).tolist(), ids], ("row 1",)),
            ("output_law", ids, ()),
        ):
            run = getattr(impossible, call)
            values = {kind: (value, *words, *more)}
            yield rows(f"Plan.{call}", "draft_token_ids", run, InvalidTokenError, values)


def verifier_rows() -> Iterator[list[Row]]:
    for kind, verifier in VERIFIERS.items():
        draft = SUPPORTED.get(kind, DRAFTS["WithReplacement"])
        yield rows(
            f"{kind}.plan",
            "target_probs",
            lambda target, v=verifier, d=draft: v.plan(target, d),
            InvalidDistributionError,
            TARGETS,
        )
        yield rows(
            f"{kind}.plan",
            "draft",
            lambda draft, v=verifier: v.plan(P, draft),
            InvalidArgumentError,
            NOT_DRAFTS,
        )
        count = verifier.num_uniforms
        yield rows(f"{kind}.num_uniforms", "draft", count, InvalidArgumentError, NOT_DRAFTS)
        if kind in UNSUPPORTED:
            other = UNSUPPORTED[kind]
            wrong: Values = {"unsupported": (other, other.name, verifier.name)}
            yield rows(
                f"{kind}.plan",
                "draft",
                lambda draft, v=verifier: v.plan(P, draft),
                UnsupportedError,
                wrong,
            )
            yield rows(f"{kind}.num_uniforms", "draft", count, UnsupportedError, wrong)
    yield rows(
        "OptimalVerifier.plan",
        "draft",
        lambda draft: mdsd.OptimalVerifier().plan(P, draft),
        InvalidDistributionError,
        LYING_DRAFTS,
        named="lying",
        without=("no_sizes",),
    )
    bare = {"no_sizes": LYING_DRAFTS["no_sizes"]}
    for verifier in (mdsd.OptimalVerifier(), mdsd.NaiveVerifier()):
        yield rows(
            f"{type(verifier).__name__}.plan",
            "draft",
            lambda draft, v=verifier: v.plan(P, draft),
            InvalidArgumentError,
            bare,
            named="num_drafts",
        )

    options: tuple[tuple[str, str, Values], ...] = (
        ("OptimalVerifier", "tolerance", TOLERANCES),
        ("OptimalVerifier", "max_iterations", ITERATIONS),
        ("RRSVerifier", "monte_carlo_paths", {**COUNTS, **written(1)}),
        ("RRSVerifier", "seed", WHOLE_SEEDS),
    )
    for kind, option, values in options:
        yield rows(
            kind,
            option,
            lambda value, k=kind, o=option: getattr(mdsd, k)(**{o: value}),
            InvalidArgumentError,
            values,
        )

    unknown = names("lottery", optmal="'optimal'", RRS="rrs")
    unknown["class"] = (mdsd.NaiveVerifier, "NaiveVerifier")
    yield rows(
        "get_verifier", "name", mdsd.get_verifier, InvalidArgumentError, unknown, named="verifier"
    )
    taken: Values = {
        "unknown": ({"tol": 1e-9}, "tol", "optimal"),
        "out_of_range": ({"tolerance": -1.0}, "tolerance", "-1.0"),
    }
    yield rows(
        "get_verifier",
        "options",
        lambda options: mdsd.get_verifier("optimal", **options),
        InvalidArgumentError,
        taken,
        named="tol",
    )
    none_taken: Values = {"none_taken": ({"tolerance": 1e-9}, "naive")}
    yield rows(
        "get_verifier",
        "options",
        lambda options: mdsd.get_verifier("naive", **options),
        InvalidArgumentError,
        none_taken,
        named="tolerance",
    )


def bound_rows() -> Iterator[list[Row]]:
    draft = DRAFTS["WithReplacement"]
    call = "acceptance_bound"
    yield rows(
        call,
        "target_probs",
        lambda target: mdsd.acceptance_bound(target, draft),
        InvalidDistributionError,
        TARGETS,
    )
    yield rows(
        call,
        "draft",
        lambda draft: mdsd.acceptance_bound(P, draft),
        InvalidArgumentError,
        NOT_DRAFTS,
    )
    yield rows(
        call,
        "draft",
        lambda draft: mdsd.acceptance_bound(P, draft),
        InvalidDistributionError,
        LYING_DRAFTS,
        named="lying",
        without=("no_sizes",),
    )
    bare = {"no_sizes": LYING_DRAFTS["no_sizes"]}
    yield rows(
        call,
        "draft",
        lambda draft: mdsd.acceptance_bound(P, draft),
        InvalidArgumentError,
        bare,
        named="num_drafts",
    )
    for option, values in (
        ("method", names("simplex", prefx="prefix", LP="lp", matchin="matching")),
        ("method", {"none": (None, "None")}),
        ("tolerance", TOLERANCES),
        ("max_iterations", ITERATIONS),
    ):
        yield rows(
            call,
            option,
            lambda value, o=option: mdsd.acceptance_bound(P, draft, **{o: value}),
            InvalidArgumentError,
            values,
        )
    inapplicable: Values = {"inapplicable": ("prefix", "independent", "submodular", "lp")}
    independent = DRAFTS["IndependentDrafts"]
    yield rows(
        call,
        "method",
        lambda method: mdsd.acceptance_bound(P, independent, method=method),
        UnsupportedError,
        inapplicable,
    )


def filter_rows() -> Iterator[list[Row]]:
    scores = [[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]]
    logits: Values = {
        **NOT_NUMBERS,
        "nan": ([0.0, NAN, 1.0], "index 1", "nan"),
        "plus_inf": ([0.0, 1.0, INF], "index 2", "inf"),
        "beyond_float64": (np.array(["1e4000", "0"], dtype=np.longdouble), "inf"),
        "all_masked": ([-INF, -INF], "empty support"),
        "empty": ([], "(0,)"),
        "no_tokens": (np.zeros((2, 0)), "(2, 0)"),
        "scalar": (1.0, "()"),
        "rows_nan": ([[0.0, 1.0], [NAN, 0.0]], "row 1", "index 0", "nan"),
        "rows_masked": ([[0.0, 1.0], [-INF, -INF]], "row 1", "empty support"),
        "cube_nan": ([[[0.0, 1.0], [0.0, NAN]]], "row 0, 1", "index 1"),
    }
    call = "probs_from_logits"
    yield rows(call, "logits", mdsd.probs_from_logits, InvalidDistributionError, logits)
    allowed: Values = {
        "negative": ([-1], "-1"),
        "too_large": ([0, 3], "3"),
        "float": ([0.0], "float64"),
        "bool": ([True, False, True], "bool"),
        "string": ("abc", "str"),
        "scalar": (1, "()"),
        "matrix": ([[0, 1]], "(1, 2)"),
        "set": ({0, 1}, "object"),
        "objects": (np.array([0, None]), "object"),
        "ragged": ([[0], [1, 2]],),
        "beyond_int64": ([2**64],),
        "not_convertible": (NotConvertible(),),
    }
    yield rows(
        call,
        "allowed_token_ids",
        lambda ids: mdsd.probs_from_logits(scores, allowed_token_ids=ids),
        InvalidArgumentError,
        allowed,
    )
    none_left: Values = {"empty": ([], "empty support")}
    yield rows(
        call,
        "allowed_token_ids",
        lambda ids: mdsd.probs_from_logits(scores, allowed_token_ids=ids),
        InvalidDistributionError,
        none_left,
        named="row 0",
    )

    probs: Values = {
        **{kind: PROBS[kind] for kind in PROBS if kind not in ("matrix", "scalar")},
        "scalar": (1.0, "()"),
        "no_tokens": (np.zeros((2, 0)), "empty"),
        "rows_nan": ([P, [0.5, NAN, 0.5]], "row 1", "index 1", "nan"),
        "rows_negative": ([P, [0.6, 0.5, -0.1]], "row 1", "-0.1"),
        "rows_mass": ([P, [0.6, 0.5, 0.1]], "row 1", "1.2"),
        "cube_mass": ([[P, [0.6, 0.5, 0.1]]], "row 0, 1", "1.2"),
    }
    yield rows("filter_probs", "probs", mdsd.filter_probs, InvalidDistributionError, probs)
    by_row: Values = {
        "second_negative": ([1.0, -1.0], "-1.0", "row 1"),
        "second_nan": ([1.0, NAN], "nan", "row 1"),
    }
    for call, function, values in (
        ("probs_from_logits", mdsd.probs_from_logits, scores),
        ("filter_probs", mdsd.filter_probs, [P, Q]),
    ):
        for option, bad in (
            ("temperature", TEMPERATURES),
            ("temperature", by_row),
            ("top_k", TOP_KS),
            ("top_p", TOP_PS),
        ):
            yield rows(
                call,
                option,
                lambda v, f=function, x=values, o=option: f(x, **{o: v}),
                InvalidArgumentError,
                bad,
            )


def data_rows() -> Iterator[list[Row]]:
    unknown = {**names("mine", smolm2="smollm2"), "none": (None, "None")}
    yield rows(
        "datasets.load", "name", mdsd.datasets.load, InvalidArgumentError, unknown, named="data set"
    )
    paths: Values = {
        "none": (None, "None"),
        "number": (3, "3"),
        "bytes": (b"mine.npz", "bytes"),
        "list": (["mine.npz"], "mine.npz"),
        "missing": ("no/such.npz", "no/such.npz", "No such file"),
        "folder": (".", ".", "Is a directory"),
        "null_byte": ("a\0b.npz", "null"),
        "lines": ("a\nb.npz", "No such file"),
    }
    yield rows(
        "datasets.read_npz", "path", mdsd.datasets.read_npz, InvalidArgumentError, paths, named=""
    )
    for call, read in (
        ("datasets.read_jsonl", mdsd.datasets.read_jsonl),
        ("datasets.scan_jsonl", mdsd.datasets.scan_jsonl),
    ):
        yield rows(call, "path", read, InvalidArgumentError, paths, named="")


HEADER: dict[str, Any] = {
    "target": "large",
    "draft_models": ("small",),
    "vocab_size": 3,
    "tokenizer_hash": "77",
    "top_k": 2,
    "provenance": {},
}
LOGS = np.log([0.5, 0.25])
POSITION = mdsd.datasets.CapturedPosition(0, 0, [1, 2], LOGS, [LOGS], 0.75, [0.75])


def write_positions(positions: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        header = mdsd.datasets.CaptureHeader(**HEADER)
        mdsd.datasets.CaptureWriter(folder, header).write_shard(positions)


def capture_rows() -> Iterator[list[Row]]:
    yield from capture_header_rows()
    yield from captured_position_rows()
    paths: Values = {
        "none": (None, "None"),
        "number": (3, "3"),
        "bytes": (b"mine", "bytes"),
        "null_byte": ("a\0b", "null"),
        "file": (__file__, __file__),
    }
    writer, header = mdsd.datasets.CaptureWriter, mdsd.datasets.CaptureHeader(**HEADER)
    more: Values = {**paths, "foreign": (".", "no part of a capture")}
    call = "datasets.CaptureWriter"
    yield rows(call, "folder", lambda v: writer(v, header), InvalidArgumentError, more, named="")
    wrong: Values = {"none": (None, "NoneType"), "dict": (HEADER, "dict", "CaptureHeader")}
    yield rows(call, "header", lambda v: writer("no", v), InvalidArgumentError, wrong)
    positions: Values = {
        "none": (None, "None"),
        "empty": ([], "[]"),
        "one": (POSITION, "CapturedPosition"),
        "arrays": ([POSITION, LOGS], "row 1", "ndarray"),
    }
    yield rows(f"{call}.write_shard", "positions", write_positions, InvalidArgumentError, positions)
    missing: Values = {
        "missing": ("no/such", "no/such", "No such file"),
        "folder": (".", "capture.json"),
        "lines": ("a\nb/c", "No such file"),
    }
    yield rows(
        "datasets.read_capture",
        "folder",
        mdsd.datasets.read_capture,
        InvalidArgumentError,
        {**paths, **missing},
        named="",
    )
    opened: Values = {
        **{kind: paths[kind] for kind in ("none", "number", "bytes")},
        **missing,
        "null_byte": ("a/\0b", "null"),
        "name": ("smolm2", "data set", "'smollm2'"),
        "npz": ("no/such.npz", "No such file"),
        "arrays": ({"target_probs": [P]}, "dict", "Dataset"),
    }
    call, source = "datasets.open_source", mdsd.datasets.open_source("smollm2")
    yield rows(call, "data", mdsd.datasets.open_source, InvalidArgumentError, opened, named="")
    call = "datasets.Source.read"
    places: Values = {**MATRIX, **written(-1, 1.0, True, "1"), "none": (None, "None")}
    for argument, beyond, run in (
        ("start", 3, lambda v: source.read(v, 3)),
        ("stop", 145, lambda v: source.read(0, v)),
    ):
        values = {**places, **written(beyond)}
        yield rows(call, argument, run, InvalidArgumentError, values)


def capture_header_rows() -> Iterator[list[Row]]:
    texts: Values = {"none": (None, "None"), "empty": ("", "''"), "number": (3, "3")}
    tables: dict[str, Values] = {
        "target": texts,
        "tokenizer_hash": texts,
        "draft_models": {
            "none": (None, "None"),
            "string": ("small", "'small'"),
            "empty": ((), "()"),
            "number": ([3], "3"),
            "repeated": (["a", "a"], "'a'"),
            "comma": (["a,b"], "a,b"),
            "lines": (["a\nb"], r"a\nb"),
            "spaces": ([" a"], "' a'"),
        },
        "vocab_size": COUNTS,
        "top_k": {kind: COUNTS[kind] for kind in COUNTS if kind != "none"},
        "provenance": {
            "none": (None, "None"),
            "list": ([1], "[1]"),
            "nan": ({"a": NAN},),
            "array": ({"a": np.zeros(2)}, "ndarray"),
        },
    }
    for argument, values in tables.items():
        yield rows(
            "datasets.CaptureHeader",
            argument,
            lambda v, a=argument: mdsd.datasets.CaptureHeader(**{**HEADER, a: v}),
            InvalidArgumentError,
            values,
        )


def captured_position_rows() -> Iterator[list[Row]]:
    numbers: Values = {**MATRIX, **written(-1, 1.0, True, "1"), "none": (None, "None")}
    masses: Values = {**written(-0.5, 1.5), "nan": (NAN, "nan"), "inf": (INF, "inf")}
    logs: Values = {
        **{kind: NOT_NUMBERS[kind] for kind in NOT_NUMBERS if kind not in ("ragged",)},
        "ragged": ([[0.2], [0.5, 0.3]],),
        "scalar": (-0.5, "()"),
        "too_short": ([-0.5], "(1,)"),
        "too_long": ([-0.5, -1.0, -2.0], "(3,)"),
    }
    tables: dict[str, tuple[type[MdsdError], Values]] = {
        "text": (InvalidArgumentError, numbers),
        "token": (InvalidArgumentError, numbers),
        "token_ids": (
            InvalidArgumentError,
            {
                **{kind: NOT_NUMBERS[kind] for kind in ("none", "strings", "bool", "ragged")},
                "float": ([1.0, 2.0], "float64"),
                "negative": ([-1, 2], "-1"),
                "too_large": ([1, 3], "index 1 is 3", "0 to 2"),
                "beyond_int32": ([1, 2**40], str(2**40)),
                "repeated": ([1, 1], "index 1 is 1 after 1"),
                "falling": ([2, 1], "index 1 is 1 after 2"),
                "scalar": (1, "()"),
                "matrix": ([[1, 2]], "(1, 2)"),
                "not_convertible": (NotConvertible(),),
            },
        ),
        "target_logprobs": (
            InvalidDistributionError,
            {
                **logs,
                "nan": ([NAN, -1.0], "index 0 is nan"),
                "inf": ([-1.0, INF], "index 1 is inf"),
                "positive": ([-1.0, 0.5], "index 1 is 0.5"),
                "masked": ([-INF, -INF], "empty support"),
                "mass": ([-1.0, -2.0], "0.503", "target_kept_mass is 0.75"),
                "matrix": ([LOGS], "(1, 2)"),
            },
        ),
        "draft_logprobs": (
            InvalidDistributionError,
            {
                **logs,
                "vector": (LOGS, "(2,)", "(1, 2)"),
                "two": ([LOGS, LOGS], "(2, 2)", "(1, 2)"),
                "nan": ([[-1.0, NAN]], "draft_logprobs_0", "index 1 is nan"),
                "mass": ([[-1.0, -2.0]], "draft_kept_mass_0 is 0.75"),
            },
        ),
        "target_kept_mass": (
            InvalidArgumentError,
            {**masses, "none": (None, "object"), "string": ("1", "str"), "vector": ([0.75],)},
        ),
        "draft_kept_mass": (
            InvalidArgumentError,
            {
                "negative": ([-0.5], "-0.5"),
                "nan": ([NAN], "nan"),
                "scalar": (0.75, "()"),
                "too_long": ([0.75, 0.75], "(2,)", "(1,)"),
                "none": (None, "object"),
            },
        ),
    }
    for argument, (error, values) in tables.items():
        yield rows(
            "datasets.CapturedPosition",
            argument,
            lambda v, a=argument: write_positions([POSITION, replace(POSITION, **{a: v})]),
            error,
            {kind: (value, "row 1", *words) for kind, (value, *words) in values.items()},
        )


def study_rows() -> Iterator[list[Row]]:
    nested: Values = {"nested": ([["greedy"]], "greedy")}
    one_name: Values = {"one_name": ("greedy", "'greedy'", "list")}
    not_lists: Values = {"number": (3, "3"), "empty": ([], "empty")}
    temperatures: Values = {
        **not_lists,
        "bare": (0.7, "0.7"),
        "none": (None, "None"),
        "nested": ([[1.0]],),
        "negative": ([1.0, -1.0], "-1.0"),
        "nan": ([NAN], "nan"),
        "inf": ([INF], "inf"),
        "strings": (["1"], "'1'"),
        "bool": ([True], "True"),
        "string": ("0.7", "'0"),
    }
    counts: Values = {
        **not_lists,
        "none": (None, "None"),
        "string": ("23", "'23'"),
        **{f"of_{kind}": ([value], *words) for kind, (value, *words) in COUNTS.items()},
    }
    options: tuple[tuple[str, Values, str], ...] = (
        ("num_drafts", counts, "num_drafts"),
        ("temperatures", temperatures, "temperature"),
        ("top_k", TOP_KS, "top_k"),
        ("top_p", TOP_PS, "top_p"),
        ("positions", {**MATRIX, **written(0, -1, 1.5, True, "5")}, "positions"),
        (
            "drafts",
            {
                **not_lists,
                **nested,
                **one_name,
                "unknown": (["greddy"], "'greddy'", "'greedy'"),
                "none_applies": (["spechub"], "spechub"),
            },
            "draft",
        ),
        (
            "draft_models",
            {
                **not_lists,
                **nested,
                **one_name,
                "unknown": (["drop22"], "'drop22'", "'drop2'"),
            },
            "draft",
        ),
        ("progress", {"number": (5, "int"), "string": ("yes", "str")}, "progress"),
    )
    verifiers: Values = {
        **not_lists,
        **nested,
        **one_name,
        "unknown": (["optmal"], "'optmal'", "'optimal'"),
        "none_entry": ([None], "None"),
        "class": ([mdsd.NaiveVerifier], "NaiveVerifier"),
        "none_applies": (["spechub"], "spechub", "greedy"),
        "same_name_twice": (
            [mdsd.OptimalVerifier(), mdsd.OptimalVerifier(tolerance=1e-3)],
            "'optimal'",
        ),
    }
    extra = (("verifiers", verifiers, "verifier"), ("seed", WHOLE_SEEDS, "seed"))
    datasets: Values = {
        "none": (None, "NoneType"),
        "name": ("smollm2", "str"),
        "arrays": ({"target_probs": [P], "draft_probs": [Q]}, "dict"),
    }
    for call, study, data, argument, table in (
        ("studies.compare", mdsd.studies.compare, DATA, "dataset", options + extra),
        ("studies.bound", mdsd.studies.bound, DATA, "dataset", options),
        (
            "studies.interval",
            mdsd.studies.interval,
            LOG,
            "log",
            [row for row in options if not row[0].startswith(("temp", "top"))],
        ),
    ):
        yield rows(call, argument, study, InvalidArgumentError, datasets)
        for option, values, named in table:
            usual = {"num_drafts": [3], "drafts": ["greedy"], "positions": 1}
            yield rows(
                call,
                option,
                lambda v, s=study, d=data, o=option, u=usual: s(d, **{**u, o: v}),
                InvalidArgumentError,
                values,
                named=named,
            )
    filters = {"top_k": TOP_KS, "top_p": TOP_PS}
    of_a_grid = [
        (option, listed(filters[option]) if option in filters else values, named)
        for option, values, named in options + extra
    ]
    of_a_run: list[tuple[str, Values, str]] = [
        (
            "data",
            {"none": (None, "None"), "number": (5, "5"), "unknown": ("smolm", "smollm2")},
            "data",
        ),
        ("output", {"number": (5, "5"), "bytes": (b"study", "bytes")}, "output"),
        ("workers", written(0, -1, 1.5, True, "2"), "workers"),
        ("scheduler", {"number": (5, "5"), "bytes": (b"tcp://a:1", "b'tcp")}, "scheduler"),
    ]
    for option, values, named in (*of_a_grid, *of_a_run):
        usual = {"data": DATA, "num_drafts": [3], "drafts": ["greedy"], "positions": 1}
        yield rows(
            "studies.study",
            option,
            lambda v, o=option, u=usual: mdsd.studies.study(**{**u, o: v}),
            InvalidArgumentError,
            values,
            named=named,
        )


def listed(values: Values) -> Values:
    """What is bad in a list of values that are bad by themselves, and what is no list."""
    return {
        "number": (3, "3"),
        "string": ("all", "'all'"),
        "empty": ([], "empty"),
        **{f"of_{kind}": ([value], *words) for kind, (value, *words) in values.items()},
    }


def capture_study_rows() -> Iterator[list[Row]]:
    decoding = mdsd.decoding
    table, other = (decoding.TableModel(np.full((size, size), 1 / size)) for size in (3, 2))
    # In no folder at all: what is not refused before is refused there, in other words.
    good: dict[str, Any] = {
        "target": table,
        "draft_models": table,
        "prompts": [[0, 1, 2]],
        "folder": f"{__file__}/captured",
    }
    no_models: Values = {
        "none": (None, "NoneType"),
        "probs": (Q, "list"),
        "class": (decoding.TableModel, "type"),
        "without_logits": (DATA, "Dataset"),
    }
    drafts: Values = {
        **{kind: no_models[kind] for kind in ("none", "class", "without_logits")},
        "empty": ([], "empty"),
        "probs": ([table, Q], "draft_models[1]", "list"),
    }
    texts: Values = {
        "none": (None, "None"),
        "number": (3, "3"),
        "string": ("The", "'The'"),
        "empty": ([], "empty"),
        "short": ([[0], []], "longest has 1"),
    }
    flat: Values = {
        "flat": ([0, 1, 2], "prompts[0]", "()"),
        "too_large": ([[0, 1], [0, 3]], "prompts[1]", "3", "0..2"),
        "floats": ([[0.0, 1.0]], "prompts[0]", "float64"),
        "texts": (["The"], "prompts[0]", "str"),
    }
    folders: Values = {
        "none": (None, "None"),
        "number": (3, "3"),
        "bytes": (b"mine", "bytes"),
        "file": (__file__, "cannot be a folder"),
    }
    labels: Values = {
        "string": ("ab", "'ab'"),
        "number": (3, "3"),
        "few": (["large"], "expected 2"),
        "many": (["a", "b", "c"], "expected 2"),
        "comma": (["large", "a,b"], "'a,b'"),
        "empty": (["", "small"], "''"),
        "not_strings": (["large", 3], "3"),
    }
    vocabularies: Values = {
        "list": (["a", "b"], "['a', 'b']"),
        "not_tokens": ({1: "a"}, "1"),
        "not_ids": ({"a": "b"}, "'b'"),
    }
    ends: Values = {
        "negative": (-1, "-1"),
        "too_large": ([0, 3], "3", "0..2"),
        "float": (0.0, "float64"),
        "empty": ([], "(0,)"),
    }
    sampled = ("max_new_tokens", "temperature", "eos_token_id")
    refused = InvalidArgumentError
    counts = {kind: value for kind, value in COUNTS.items() if kind != "none"}
    heats = {**written(-1.0, "1", True, 1j), "nan": (NAN, "nan"), "inf": (INF, "inf")}
    tables: tuple[tuple[str, type[MdsdError], Values], ...] = (
        ("target", refused, no_models),
        ("draft_models", refused, drafts),
        ("draft_models", InvalidDistributionError, {"other": (other, "mixed", "2")}),
        ("prompts", refused, texts),
        ("prompts", InvalidTokenError, flat),
        ("folder", refused, folders),
        ("names", refused, labels),
        ("vocabulary", refused, vocabularies),
        ("sample", refused, written(1, "yes", None)),
        ("max_new_tokens", refused, counts),
        ("temperature", refused, heats),
        ("eos_token_id", InvalidTokenError, ends),
        ("top_k", refused, TOP_KS),
        ("positions", refused, counts),
        ("min_context", refused, COUNTS),
        ("positions_per_shard", refused, counts),
        ("seed", refused, WHOLE_SEEDS),
        ("progress", refused, {"number": (5, "int"), "string": ("yes", "str")}),
    )
    for parameter, error, values in tables:
        sample = {"sample": True} if parameter in sampled else {}
        yield rows(
            "studies.capture",
            parameter,
            lambda v, p=parameter, more=sample: mdsd.studies.capture(**{**good, **more, p: v}),
            error,
            values,
            named="" if parameter == "folder" else None,
        )


def batch_rows() -> Iterator[list[Row]]:
    """Calls on whole batches: every message names the row."""
    targets, drafts, ids = [P, Q], [Q, P], [[0, 1], [1, 0]]
    second = {
        kind: ([Q, value], "row 1", *words)
        for kind, (value, *words) in PROBS.items()
        if kind in ("nan", "negative", "barely_negative", "inf", "mass_float64", "all_zero")
    }
    matrices: Values = {
        **{kind: PROBS[kind] for kind in NOT_NUMBERS},
        **second,
        "vector": (Q, "(3,)"),
        "empty": ([], "shape"),
        "other_length": ([[0.5, 0.5]] * 2, "2", "3"),
        "other_rows": ([Q, Q, Q], "3", "2"),
    }
    token_rows = {k: v for k, v in TOKEN_ROWS.items() if k != "too_large"}
    token_rows["too_large"] = ([[0, 1], [0, 3]], "row 1", "3")
    usual: dict[str, dict[str, Any]] = {
        "acceptance_bounds": {
            "target_probs": targets,
            "draft_probs": drafts,
            "draft": "with_replacement",
            "num_drafts": 2,
        },
        "acceptance_rates": {
            "target_probs": targets,
            "draft_probs": drafts,
            "draft": "with_replacement",
            "num_drafts": 2,
            "verifier": "rrs",
        },
        "verify_batch": {
            "target_probs": targets,
            "draft_probs": drafts,
            "draft_token_ids": ids,
            "draft": "with_replacement",
            "verifier": "rrs",
        },
    }
    known = names("explict", greddy="'greedy'")
    tables: dict[str, tuple[type[MdsdError], Values]] = {
        "target_probs": (InvalidDistributionError, matrices),
        "draft_probs": (InvalidDistributionError, matrices),
        "draft_token_ids": (InvalidTokenError, token_rows),
        "draft": (InvalidArgumentError, known),
        "num_drafts": (InvalidArgumentError, COUNTS),
        "verifier": (InvalidArgumentError, names("lottery", optmal="'optimal'")),
        "rng": (InvalidArgumentError, SEEDS),
        "uniforms": (InvalidArgumentError, UNIFORM_ROWS),
        "seeds": (InvalidArgumentError, SEED_ROWS),
    }
    for call, arguments in usual.items():
        function = getattr(mdsd, call, None)
        if function is None:
            continue  # not there yet
        for parameter in inspect.signature(function).parameters:
            error, values = tables[parameter]
            yield rows(
                call,
                parameter,
                lambda v, f=function, a=arguments, p=parameter: f(**{**a, p: v}),
                error,
                values,
            )


def interval_rows() -> Iterator[list[Row]]:
    """Intervals from truncated logs: every message names the token and the value."""
    target, draft = {5: -0.5, 7: -1.5}, {7: -0.5, 5: -1.5}
    logs: Values = {
        "none": (None, "missing"),
        "number": (0.5, "float"),
        "list": ([-0.5, -1.5], "list"),
        "array": (np.array([-0.5, -1.5]), "ndarray"),
        "pairs": ([(5, -0.5)], "list"),
        "string": ("abc", "str"),
        "empty": ({}, "empty"),
        "nan": ({5: -0.5, 7: NAN}, "token 7", "nan"),
        "positive": ({5: -0.5, 7: 0.5}, "token 7", "0.5"),
        "barely_positive": ({5: 1e-300}, "token 5", "1e-300"),
        "inf": ({5: INF}, "token 5", "inf"),
        "no_value": ({5: None}, "token 5", "None"),
        "text": ({5: "-0.5"}, "token 5", "'-0.5'"),
        "bool": ({5: False}, "token 5", "False"),
        "complex": ({5: -1j}, "token 5", "1j"),
        "array_value": ({5: np.array([-0.5])}, "token 5", "array"),
        "beyond_float64": ({5: 10**400}, "token 5"),
        "lines": ({"a\nb": 1.0}, r"'a\nb'", "1.0"),
        "probabilities": ({5: 0.6, 7: 0.4}, "token 5", "0.6"),
        "mass": ({5: -0.1, 7: -2.0}, "sum to 1.0401", "0.001"),
        "mass_of_two": ({5: 0.0, 7: 0.0}, "sum to 2"),
    }
    texts = {"five": -0.5, "seven": -1.5}
    short = {7: 0.0, 5: -INF}

    def interval(**changes: Any) -> object:
        usual = {"target_logprobs": target, "draft_logprobs": draft, "num_drafts": 2}
        return mdsd.acceptance_interval(**{**usual, **changes})

    def rows_of(parameter: str, values: Values, **options: Any) -> list[Row]:
        error: type[MdsdError] = InvalidDistributionError
        if parameter in ("draft", "num_drafts"):
            error = InvalidArgumentError
        error, given = options.pop("error", error), options.pop("given", {})
        run = lambda value: interval(**{**given, parameter: value})  # noqa: E731
        return rows("acceptance_interval", parameter, run, error, values, **options)

    yield rows_of("target_logprobs", logs)
    yield rows_of("draft_logprobs", logs)
    for side in ("target_logprobs", "draft_logprobs"):
        mixed: Values = {"texts_for_ids": (texts, "integers", "strings", "'five'")}
        yield rows_of(side, mixed, error=InvalidArgumentError)
    for name in ("without_replacement", "greedy"):
        too_few: Values = {f"{name}_too_few": (short, "1 tokens", "num_drafts=2")}
        yield rows_of("draft_logprobs", too_few, given={"draft": name})
    independent: dict[str, Any] = {"draft": "independent"}
    several: Values = {
        "independent_none": (None, "missing"),
        "independent_mapping": (draft, "each independent draft"),
        "independent_number": (3, "3"),
        "independent_string": ("ab", "'ab'"),
        "independent_empty": ([], "[]"),
        "independent_nan": ([draft, {7: NAN}], "draft_logprobs[1]", "token 7", "nan"),
        "independent_lists": ([draft, [-0.5]], "draft_logprobs[1]", "list"),
        "independent_mass": ([{7: 0.0, 5: -1.0}, draft], "draft_logprobs[0]", "1.367879"),
    }
    yield rows_of("draft_logprobs", several, given=independent)
    yield rows_of(
        "draft_logprobs",
        {
            "independent_texts": ([draft, texts], "draft_logprobs[1]", "strings"),
            "independent_count": ([draft] * 3, "num_drafts is 2", "3 mappings"),
        },
        given=independent,
        error=InvalidArgumentError,
    )
    yield rows_of("draft", names("lottery", greddy="'greedy'"))
    without: Values = {
        name: (name, repr(name), "without_replacement, independent, greedy")
        for name in ("spechub", "top_k", "explicit")
    }
    yield rows_of("draft", without, error=UnsupportedError)
    yield rows_of("num_drafts", COUNTS)


def decoding_rows() -> Iterator[list[Row]]:
    decoding = mdsd.decoding
    table = decoding.TableModel([P, Q, P])
    good: dict[str, Any] = {
        "target": table,
        "draft_model": table,
        "prompt_ids": [0],
        "max_new_tokens": 2,
    }
    no_models: Values = {
        "none": (None, "NoneType"),
        "table": (np.eye(3), "ndarray"),
        "class": (decoding.TableModel, "type"),
        "function": (len, "builtin_function_or_method"),
    }
    texts: Values = {**IDS}
    del texts["too_short"], texts["too_long"]
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
        "target": (InvalidArgumentError, no_models),
        "draft_model": (
            InvalidArgumentError,
            {**no_models, "list": ([table, table],), "empty": ([], "[]")},
        ),
        "prompt_ids": (InvalidTokenError, texts),
        "max_new_tokens": (InvalidArgumentError, by_depth),
        "draft": (InvalidArgumentError, names("explicit", "custom", gredy="greedy")),
        "verifier": (InvalidArgumentError, names("block_", krs="rrs")),
        "num_drafts": (InvalidArgumentError, by_depth),
        "depth": (InvalidArgumentError, by_depth),
        "tree": (InvalidArgumentError, trees),
        "scheme": (InvalidArgumentError, names("forest", btch="batch")),
        "temperature": (InvalidArgumentError, TEMPERATURES),
        "top_k": (InvalidArgumentError, TOP_KS),
        "top_p": (InvalidArgumentError, TOP_PS),
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
        "decoding.BiasedVerification.check",
        "laws",
        biased(0.1).check,
        UnsupportedError,
        {"two_drafts": ([mdsd.WithReplacement(P, 2)], "'biased'", "2 drafts")},
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

    yield rows("decoding.NGramModel", "token_ids", ngrams, InvalidTokenError, texts)
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
        no_models,
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
    spelled = {kind: texts[kind] for kind in texts if kind != "empty"}
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


def tree_rows() -> Iterator[list[Row]]:
    shape = mdsd.decoding.TreeShape([-1, 0, 0])
    make = mdsd.decoding.TreeShape
    parents: Values = {
        "none": (None, "None"),
        "string": ("ab", "'ab'"),
        "number": (3, "3"),
        "empty": ([], "[]"),
        "no_root": ([0, 0], "[0, 0]"),
        "two_roots": ([-1, -1], "parents[1]", "-1"),
        "own_parent": ([-1, 1], "parents[1]", "1"),
        "falling": ([-1, 0, 1, 0], "parents[3]", "0"),
        "float": ([-1, 0.0], "parents[1]", "0.0"),
        "bool": ([-1, False], "parents[1]", "False"),
        "beyond_int64": ([-1, 2**70], "parents[1]", str(2**70)),
    }
    branchings: Values = {
        "none": (None, "None"),
        "empty": ([], "empty"),
        "zero": ([2, 0], "tree[1]", "0"),
        "float": ([2.0], "tree[0]", "2.0"),
        "huge": ([10**6], "100,000"),
    }
    paths: Values = {
        "none": (None, "None"),
        "numbers": ([0], "paths[0]", "0"),
        "root": ([()], "paths[0]", "()"),
        "twice": ([(0,), (0,)], "paths[1]", "twice"),
        "no_parent": ([(0, 0)], "paths[0]", "(0,)"),
        "no_sibling": ([(1,)], "paths[0]", "(0,)"),
        "negative": ([(-1,)], "paths[0]", "-1"),
        "float": ([(0.0,)], "paths[0]", "0.0"),
    }
    no_nodes: Values = {**MATRIX, **written(-1, 3, 1.0, True, "1")}
    depths: Values = {**MATRIX, **written(-1, 1.0, True, "1"), "none": (None, "None")}
    name = "decoding.TreeShape"
    refused = InvalidArgumentError
    yield rows(name, "parents", make, refused, parents)
    yield rows(f"{name}.chain", "depth", make.chain, refused, COUNTS)
    yield rows(f"{name}.k_ary", "num_drafts", lambda n: make.k_ary(n, 2), refused, COUNTS)
    yield rows(f"{name}.k_ary", "depth", lambda depth: make.k_ary(2, depth), refused, COUNTS)
    yield rows(
        f"{name}.from_branching",
        "branching",
        make.from_branching,
        refused,
        branchings,
        named="tree",
    )
    yield rows(f"{name}.from_paths", "paths", make.from_paths, refused, paths)
    for method in ("children", "path"):
        yield rows(f"{name}.{method}", "node", getattr(shape, method), refused, no_nodes)
    for method in ("level", "truncated"):
        yield rows(f"{name}.{method}", "depth", getattr(shape, method), refused, depths)


def analysis_rows() -> Iterator[list[Row]]:
    analysis = mdsd.analysis
    square = [P, Q, P]
    second = {
        kind: ([P, value, Q], "row 1", *words)
        for kind, (value, *words) in PROBS.items()
        if kind in ("nan", "negative", "inf", "mass_float64", "all_zero")
    }
    chains: Values = {
        **{kind: PROBS[kind] for kind in NOT_NUMBERS},
        **second,
        "vector": (P, "(3,)"),
        "oblong": ([P, Q], "(2, 3)"),
        "empty": (np.zeros((0, 0)), "empty"),
        "other_length": (np.eye(2), "tokens", "2", "3"),
        "too_few_positions": (np.tile(P, (2, 3, 1)), "(2, 3, 3)", "horizon = 4"),
        "position_mass": ([square, square, [P, Q, [0.5, 0.6, 0.0]], square], "row 2, 2", "1.1"),
    }
    lengths: Values = {"shorter": ([0.5, 0.5], "tokens", "2", "3")}
    rates: Values = {
        **{kind: PROBS[kind] for kind in NOT_NUMBERS},
        "nan": ([0.5, NAN, 0.0], "index 1", "nan"),
        "negative": ([0.5, 0.0, -0.1], "index 2", "-0.1"),
        "above_one": ([1.5, 0.0, 0.0], "index 0", "1.5"),
        "scalar": (0.5, "()"),
        "cube": (np.zeros((2, 1, 1)), "(2, 1, 1)"),
    }
    row_rates: Values = {
        "row_nan": ([[0.5] * 3, [0.5, NAN, 0.0]], "row 1", "index 1", "nan"),
        "row_above_one": ([[0.5] * 3, [1.5, 0.0, 0.0]], "row 1", "1.5"),
    }
    accept: Values = {
        **rates,
        "too_short": ([1.0, 1.0], "(2,)", "(3,)"),
        "matrix": ([[1.0] * 3], "(1, 3)", "(3,)"),
    }
    accept_chain: Values = {
        **{kind: PROBS[kind] for kind in NOT_NUMBERS},
        "row_nan": ([[0.5] * 3, [0.5, NAN, 0.0], [0.5] * 3], "row 1", "nan"),
        "vector": ([1.0] * 3, "(3,)", "(3, 3)"),
        "positions": (np.zeros((2, 3, 3)), "(2, 3, 3)", "(4, 3, 3)"),
    }
    ranks: Values = {
        **rates,
        **row_rates,
        "empty": ([], "(0,)"),
        "no_ranks": (np.zeros((2, 0)), "(2, 0)"),
        "sum": ([0.8, 0.7, 0.0], "1.5", "at most 1"),
        "row_sum": ([[0.5, 0.1, 0.0], [0.8, 0.7, 0.0]], "row 1", "1.5"),
    }
    epsilons: Values = {
        "none": (None, "None"),
        "number": (0.1, "0.1"),
        "empty": ([], "[]"),
        "string": ("0.1", "'0.1'"),
        "bool": ([True], "True"),
        "nested": ([[0.1]], "[[0.1]]"),
        "negative": ([0.0, -0.1], "[1]", "-0.1"),
        "nan": ([NAN], "[0]", "nan"),
        "inf": ([0.1, INF], "[1]", "inf"),
        "ragged": ([[0.1], [0.1, 0.2]],),
    }
    limits = {kind: value for kind, value in COUNTS.items() if kind != "inf"}
    limits["minus_inf"] = (-INF, "-inf")
    sizes: Values = {
        "none": (None, "NoneType"),
        "number": (3, "int"),
        "empty": ([], "empty"),
        "limit": ([1, INF], "[1]", "inf"),
        "string": ("23", "[0]", "'2'"),
        **{f"of_{kind}": ([2, value], "[1]", *words) for kind, (value, *words) in COUNTS.items()},
    }
    redraws = names("residual", optimum="'optimal'")
    costs: Values = {
        **written(-0.1, "1", True, 1j),
        "nan": (NAN, "nan"),
        "inf": (INF, "inf"),
        "none": (None, "None"),
        "list": ([1.0], "[1.0]"),
    }
    tables: Values = {
        "empty_table": ({}, "empty"),
        "table_of_zero": ({0: 1.0}, "0", "integer >= 1"),
        "negative_in_table": ({1: 1.0, 2: -2.0}, "[2]", "-2.0"),
        "short_table": ({2: 1.0, 9: 2.0}, "2 tokens", "1"),
        "bad_function": (lambda tokens: NAN, "nan"),
    }
    trees: Values = {
        "none": (None, "None"),
        "empty": ([], "empty"),
        "zero": ([2, 0], "[1]", "0"),
        "wide": ([4], "3 ranks", "4 children"),
    }
    accepted: Values = {
        "none": (None, "None"),
        "number": (1, "1"),
        "empty": ([], "[]"),
        "float": ([1.0, 2.0], "[1.0, 2.0]"),
        "bool": ([True, False], "True"),
        "matrix": ([[1, 2]], "[[1, 2]]"),
        "negative": ([0, -1], "[1]", "-1"),
        "too_large": ([3, 4], "[1]", "4", "0..3"),
        "ragged": ([[1], [1, 2]],),
    }
    by_num_drafts: Values = {
        **rates,
        **row_rates,
        "empty": ([], "(0,)"),
        "other_depth": ([[0.5, 0.5]], "(1, 2)", "(N, 3)"),
    }
    rejection_laws: Values = {**PROBS, **lengths}
    nodes: Values = {**COUNTS, "too_many": (100_001, "100001", "100000")}

    wrong_law = InvalidDistributionError
    refused = InvalidArgumentError
    checks: dict[str, tuple[type[MdsdError], Values]] = {
        "target_chain": (wrong_law, chains),
        "draft_chain": (wrong_law, chains),
        "initial": (wrong_law, {**PROBS, **lengths}),
        "horizon": (refused, COUNTS),
        "batch_size": (refused, limits),
        "batch_sizes": (refused, sizes),
        "runs": (refused, {**COUNTS, **written(1)}),
        "rng": (refused, SEEDS),
        "target_probs": (wrong_law, TARGETS),
        "draft_probs": (wrong_law, {**PROBS, **lengths}),
        "accept_probs": (refused, accept),
        "rejection_law": (wrong_law, {k: v for k, v in rejection_laws.items() if k != "none"}),
        "tolerance": (refused, TOLERANCES),
        "epsilon": (refused, TOLERANCES),
        "epsilons": (refused, epsilons),
        "redraw": (refused, redraws),
        "prefixes": (refused, names("draft", outputs="'output'")),
        "acceptance_by_depth": (refused, {**rates, "matrix": ([[0.5]], "(1, 1)")}),
        "acceptance": (refused, {**costs, "above_one": (1.5, "1.5")}),
        "acceptance_by_rank": (refused, ranks),
        "acceptance_by_num_drafts": (refused, by_num_drafts),
        "accepted": (refused, accepted),
        "depth": (refused, COUNTS),
        "tree": (refused, trees),
        "draft_cost": (refused, {**costs, **tables}),
        "verification_cost": (refused, {**costs, "table": ({1: 1.0}, "{1: 1.0}")}),
        "target_cost": (refused, {**costs, **tables, "zero": (0.0, "0.0")}),
        "layout": (refused, names("forest", tre="'tree'")),
        "node_budget": (refused, nodes),
        "max_depth": (refused, ITERATIONS),
        "max_branching": (refused, ITERATIONS),
    }
    usual: dict[str, Any] = {
        "target_chain": square,
        "draft_chain": [Q, P, Q],
        "horizon": 4,
        "initial": P,
        "batch_sizes": [1, 2],
        "batch_size": 2,
        "runs": 10,
        "rng": 0,
        "target_probs": P,
        "draft_probs": Q,
        "accept_probs": [1.0, 0.5, 0.5],
        "epsilon": 0.1,
        "epsilons": [0.0, 0.1],
        "acceptance_by_depth": [0.5, 0.4],
        "acceptance": 0.5,
        "depth": 3,
        "acceptance_by_rank": [0.5, 0.2, 0.1],
        "acceptance_by_num_drafts": [0.5, 0.6],
        "accepted": [0, 3, 1],
        "tree": [2, 1],
        "draft_cost": 0.1,
        "node_budget": 4,
    }
    special: dict[tuple[str, str], tuple[type[MdsdError], Values]] = {
        ("simulate_rejections", "batch_size"): (refused, COUNTS),
        ("simulate_batch_rejections", "batch_size"): (refused, COUNTS),
        ("assess_acceptance_on_chain", "accept_probs"): (refused, accept_chain),
        ("iid_expected_tokens", "depth"): (
            refused,
            {kind: value for kind, value in COUNTS.items() if kind != "0"},
        ),
    }
    tried: set[int] = set()
    for call in analysis.__all__:
        function = getattr(analysis, call)
        if isinstance(function, type):
            continue
        parameters = inspect.signature(function).parameters
        given = {
            name: usual[name]
            for name, each in parameters.items()
            if each.default is each.empty or name in ("runs", "rng")
        }
        for parameter in parameters:
            error, values = special.get((call, parameter), checks[parameter])
            # One reader serves all functions: all of a table once, then every eighth of it.
            kinds = list(values)[:: 8 if id(values) in tried else 1]
            tried.add(id(values))
            for kind in kinds:
                # A tree with more children than ranks lacks acceptances.
                named = "acceptance_by_rank" if kind == "wide" else parameter
                yield rows(
                    f"analysis.{call}",
                    parameter,
                    lambda v, f=function, g=given, p=parameter: f(**{**g, p: v}),
                    error,
                    {kind: values[kind]},
                    named=named,
                )


ROWS = [
    row
    for group in (
        draft_rows,
        plan_rows,
        verifier_rows,
        bound_rows,
        filter_rows,
        data_rows,
        capture_rows,
        study_rows,
        capture_study_rows,
        batch_rows,
        interval_rows,
        analysis_rows,
        decoding_rows,
        tree_rows,
    )
    for made in group()
    for row in made
]


def state_of(value: Any) -> Any:
    """Give what must not change about an argument."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.flags.writeable, value.tobytes()
    return repr(value)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    before = state_of(row.value)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(MdsdError) as caught:
            row.run(row.value)
    message = str(caught.value)
    assert caught.type is row.error
    assert [word for word in row.words if word not in message] == [], message
    assert len(message.splitlines()) == 1, message
    assert [str(warning.message) for warning in warned] == []
    assert state_of(row.value) == before


# --- files ---------------------------------------------------------------------------------------

LAWS = {"target_probs": [P, Q], "draft_probs": [Q, P]}
NOT_SAVED = object()


def saved(**changes: Any) -> dict[str, Any]:
    """Give the arrays of a good file with some of them changed, or left out."""
    return {k: v for k, v in {**LAWS, **changes}.items() if v is not NOT_SAVED}


FILES: dict[str, tuple[dict[str, Any], type[MdsdError], tuple[str, ...]]] = {
    "no_keys": ({"logits": [P]}, InvalidArgumentError, ("target_logits", "keys found: logits")),
    "no_target": (saved(target_probs=NOT_SAVED), InvalidArgumentError, ("target_probs",)),
    "no_draft": (saved(draft_probs=NOT_SAVED), InvalidArgumentError, ("draft_probs",)),
    "two_targets": (saved(target_logits=[P, Q]), InvalidArgumentError, ("target_logits",)),
    "two_drafts": (saved(draft_logits=[P, Q]), InvalidArgumentError, ("draft_logits",)),
    "objects": (
        saved(target_probs=np.array([[0.5, None]], dtype=object)),
        InvalidDistributionError,
        ("target_probs", "Object arrays"),
    ),
    "strings": (saved(target_probs=[["a", "b"]]), InvalidDistributionError, ("target_probs", "U1")),
    "complex": (
        saved(draft_probs=[[1j, 0j]]),
        InvalidDistributionError,
        ("draft_probs", "complex"),
    ),
    "bool": (saved(draft_probs=[[True, False]]), InvalidDistributionError, ("draft_probs", "bool")),
    "target_vector": (saved(target_probs=P), InvalidDistributionError, ("target_probs", "(3,)")),
    "target_cube": (
        saved(target_probs=[[P, Q]]),
        InvalidDistributionError,
        ("target_probs", "(1, 2, 3)"),
    ),
    "draft_vector": (saved(draft_probs=Q), InvalidDistributionError, ("draft_probs", "(3,)")),
    "no_positions": (
        saved(target_probs=np.zeros((0, 3)), draft_probs=np.zeros((0, 3))),
        InvalidDistributionError,
        ("target_probs", "empty"),
    ),
    "no_models": (
        saved(draft_probs=np.zeros((0, 2, 3))),
        InvalidDistributionError,
        ("draft_probs",),
    ),
    "positions_differ": (
        saved(draft_probs=[Q]),
        InvalidDistributionError,
        ("draft_probs", "1", "2"),
    ),
    "tokens_differ": (
        saved(draft_probs=[[0.5, 0.5]] * 2),
        InvalidDistributionError,
        ("draft_probs", "2", "3"),
    ),
    "nan": (
        saved(target_probs=[P, [NAN, 0.5, 0.5]]),
        InvalidDistributionError,
        ("target_probs row 1", "index 0", "nan"),
    ),
    "negative": (
        saved(draft_probs=[Q, [0.6, 0.5, -0.1]]),
        InvalidDistributionError,
        ("draft_probs row 1", "index 2", "-0.1"),
    ),
    "mass": (saved(draft_probs=[Q, [0.6, 0.5, 0.1]]), InvalidDistributionError, ("row 1", "1.2")),
    "second_model": (
        saved(draft_probs=[[P, Q], [Q, [0.6, 0.5, 0.1]]]),
        InvalidDistributionError,
        ("draft_probs[1] row 1", "1.2"),
    ),
    "logit_inf": (
        {"target_logits": [[0.0, INF]], "draft_logits": [[0.0, 1.0]]},
        InvalidDistributionError,
        ("target_logits row 0", "index 1", "inf"),
    ),
    "logits_masked": (
        {"target_logits": [[0.0, 1.0]], "draft_logits": [[-INF, -INF]]},
        InvalidDistributionError,
        ("draft_logits row 0", "empty support"),
    ),
    "too_few_names": (
        saved(draft_probs=[LAWS["draft_probs"]] * 2, draft_names=["a"]),
        InvalidArgumentError,
        ("draft_names", "['a']"),
    ),
    "same_names": (
        saved(draft_probs=[LAWS["draft_probs"]] * 2, draft_names=["a", "a"]),
        InvalidArgumentError,
        ("draft_names", "['a', 'a']"),
    ),
    "number_names": (saved(draft_names=[1]), InvalidArgumentError, ("draft_names", "[1]")),
    "names_of_two_lines": (saved(draft_names=["a\nb"]), InvalidArgumentError, ("draft_names",)),
    "empty_name": (saved(draft_names=[""]), InvalidArgumentError, ("draft_names",)),
    "name_with_comma": (saved(draft_names=["a,b"]), InvalidArgumentError, ("draft_names", "a,b")),
    "token_ids_shape": (
        saved(token_ids=[[0, 1, 2]]),
        InvalidArgumentError,
        ("token_ids", "(1, 3)"),
    ),
    "token_ids_float": (
        saved(token_ids=[[0.0, 1.0, 2.0]] * 2),
        InvalidArgumentError,
        ("token_ids", "float64"),
    ),
    "token_ids_bool": (
        saved(token_ids=[[True, False, True]] * 2),
        InvalidArgumentError,
        ("token_ids", "bool"),
    ),
    "token_ids_negative": (
        saved(token_ids=[[0, 1, 2], [0, 1, -7]]),
        InvalidArgumentError,
        ("token_ids", "-7"),
    ),
    "kept_mass_shape": (
        saved(target_kept_mass=[1.0]),
        InvalidArgumentError,
        ("target_kept_mass", "(1,)"),
    ),
    "kept_mass_nan": (
        saved(target_kept_mass=[1.0, NAN]),
        InvalidArgumentError,
        ("target_kept_mass", "nan"),
    ),
    "kept_mass_above_one": (
        saved(draft_kept_mass=[[1.0, 2.5]]),
        InvalidArgumentError,
        ("draft_kept_mass", "2.5"),
    ),
    "provenance_text": (saved(provenance="mine"), InvalidArgumentError, ("provenance", "JSON")),
    "provenance_list": (saved(provenance="[]"), InvalidArgumentError, ("provenance", "JSON")),
}


def contents(folder: Any) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", FILES)
def test_bad_file_is_refused(kind, tmp_path):
    arrays, error, words = FILES[kind]
    path = tmp_path / "mine.npz"
    np.savez(path, **{key: np.array(value) for key, value in arrays.items()})
    before = contents(tmp_path)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(MdsdError) as caught:
            mdsd.datasets.read_npz(path)
    message = str(caught.value)
    assert caught.type is error
    assert [word for word in ("mine.npz", *words) if word not in message] == [], message
    assert len(message.splitlines()) == 1, message
    assert [str(warning.message) for warning in warned] == []
    assert contents(tmp_path) == before


COMMANDS = {
    "missing_file": ("compare other.npz", "other.npz"),
    "folder": ("compare .", "directory"),
    "not_an_archive": ("bound text.npz", "text.npz"),
    "unknown_verifier": ("compare mine.npz --verifier optmal", "optimal"),
    "unknown_draft": ("bound mine.npz --draft greddy", "greedy"),
    "unknown_model": ("bound mine.npz --draft-model draft_1", "draft_0"),
    "empty_list": ("bound mine.npz --num-drafts ,", "--num-drafts"),
    "no_positions": ("bound mine.npz --positions 0", "positions"),
    "many_drafts": (
        "bound mine.npz --draft greedy --num-drafts 99999999999999999999",
        "num_drafts",
    ),
    "temperature": ("bound mine.npz --temperature -1", "-1"),
    "top_p": ("bound mine.npz --top-p 0", "top_p"),
    "ending": ("bound mine.npz --output x.txt", ".csv"),
    "plot_ending": ("bound mine.npz --output x.csv --plot x.jpg", ".png"),
    "study_temperature": ("study mine.npz --temperature -1 --output kept", "-1"),
    "study_workers": ("study mine.npz --workers 0 --output kept", "workers"),
    "study_missing_file": ("study other.npz --output kept", "other.npz"),
    "study_file_for_a_folder": ("study mine.npz --output text.npz", "text.npz"),
    "report_missing": ("report kept --output report.html", "kept"),
    "report_ending": ("report kept --output report.pdf", ".html"),
    "log": ("compare mine.jsonl", "mdsd interval"),
    "log_missing": ("interval mine.jsonl --output x.csv", "mine.jsonl"),
    "log_line": ("interval text.npz --output x.csv", "line 1"),
    "log_ending": ("interval text.npz --output x.txt", ".csv"),
    "no_folder": ("bound mine.npz --output x.csv --plot no/x.png", "no/x.png"),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_bad_command_leaves_nothing(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, word = COMMANDS[kind]
    np.savez("mine.npz", **LAWS)
    (tmp_path / "text.npz").write_text("no archive")
    before = contents(tmp_path)
    output = [] if "--output" in command else ["--output", "rows.csv", "--plot", "rows.png"]
    result = CliRunner().invoke(main, [*command.split(), *output], prog_name="mdsd")
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert word in line
    assert contents(tmp_path) == before


# --- nothing is half-done after an error ---------------------------------------------------------


@pytest.mark.parametrize("label", PLANS)
@pytest.mark.parametrize("method", ["verify", "verify_many"])
def test_refused_tokens_draw_no_numbers(label, method):
    plan, rng = PLANS[label], np.random.default_rng(0)
    ids = [-1] * plan.draft.num_drafts
    before = rng.bit_generator.state
    with pytest.raises(InvalidTokenError):
        getattr(plan, method)(ids if method == "verify" else [ids], rng)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("kind", DRAFTS)
def test_refused_size_draws_no_numbers(kind):
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    with pytest.raises(InvalidArgumentError):
        DRAFTS[kind].sample(rng, -1)
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("label", PLANS)
def test_plans_work_after_an_error(label):
    plan = PLANS[label]
    ids, uniforms = plan.draft.sample(0, 5), np.full((5, plan.num_uniforms), 0.5)
    before = plan.output_law(ids), plan.verify_many(ids, uniforms=uniforms).token_id
    with pytest.raises(InvalidTokenError):
        plan.output_law([[0] * plan.draft.num_drafts, [3] * plan.draft.num_drafts])
    after = plan.output_law(ids), plan.verify_many(ids, uniforms=uniforms).token_id
    assert [part.tolist() for part in after] == [part.tolist() for part in before]


def test_global_numpy_state_is_left_alone():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    with pytest.raises(InvalidTokenError):
        PLANS["rrs"].verify([0, 9])
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


# --- completeness --------------------------------------------------------------------------------

CHECKED = "given by the library: called with arrays that were checked before"
RECORD = "a record that the library fills in; nobody else has to make one"
ANY_OBJECT = "any object is a fair question; the answer is False"
ABSTRACT = "abstract: the classes derived from it are covered"
TEST_HELPER = "covered in tests/mdsd/test_testing.py"

DRAFT_CLASSES = ("DraftDistribution", *DRAFTS)
EXEMPT: dict[tuple[str, str], str] = {
    **{(f"{name}.is_possible", "draft_token_ids"): CHECKED for name in DRAFT_CLASSES},
    **{(f"{name}.prefix_order", "target_probs"): CHECKED for name in DRAFT_CLASSES},
    **{(f"{name}.best_prefix", "target_probs"): CHECKED for name in DRAFT_CLASSES},
    **{(f"{name}.grouped_laws", "target_probs"): CHECKED for name in DRAFT_CLASSES},
    **{(f"{name}.supports", "draft"): ANY_OBJECT for name in ("Verifier", *VERIFIERS)},
    ("DraftDistribution.hit_probs", "order"): ABSTRACT,
    ("DraftDistribution.sample", "rng"): ABSTRACT,
    ("DraftDistribution.sample", "size"): ABSTRACT,
    ("DraftDistribution.prob", "draft_token_ids"): ABSTRACT,
    ("Verifier.plan", "target_probs"): ABSTRACT,
    ("Verifier.plan", "draft"): ABSTRACT,
    ("Verifier.num_uniforms", "draft"): ABSTRACT,
    ("Plan", "target_probs"): CHECKED,
    ("Plan", "draft"): CHECKED,
    ("decoding.NGramModel.logits", "prefixes"): CHECKED,
    ("decoding.MappedModel.logits", "prefixes"): CHECKED,
    ("decoding.Model.logits", "prefixes"): ABSTRACT,
    ("datasets.Source", "args"): ABSTRACT,
    ("datasets.Source", "kwargs"): ABSTRACT,
    ("decoding.Model", "args"): ABSTRACT,
    ("decoding.Model", "kwargs"): ABSTRACT,
}
RECORDS = (
    "AcceptanceBound",
    "AcceptanceInterval",
    "BatchVerification",
    "Verification",
    "analysis.AcceptRule",
    "analysis.AcceptanceAssessment",
    "analysis.BatchImprovement",
    "analysis.BestDepth",
    "analysis.BestNumDrafts",
    "analysis.MeasuredAcceptance",
    "analysis.ParetoFront",
    "analysis.SimulatedFront",
    "analysis.SimulatedRejections",
    "analysis.TreePlan",
    "datasets.Dataset",
    "datasets.LoggedPosition",
    "datasets.TopLogprobs",
    "decoding.DecodeResult",
    "decoding.DecodeSeconds",
    "decoding.EmbeddedPair",
    "studies.BoundRow",
    "studies.CaptureSummary",
    "studies.CompareRow",
    "studies.IntervalRow",
    "studies.Missing",
    "studies.StudyRow",
    "testing.Instance",
)


def public_callables() -> Iterator[tuple[str, Any]]:
    """Walk over what `mdsd` and its public modules export, each thing under its shortest name."""
    seen: set[int] = set()
    modules = [(name, getattr(mdsd, name)) for name in mdsd.__all__]
    folders = [("", mdsd), *((f"{n}.", m) for n, m in modules if isinstance(m, ModuleType))]
    for prefix, module in folders:
        for name in module.__all__:
            thing = getattr(module, name)
            if isinstance(thing, ModuleType) or not callable(thing) or id(thing) in seen:
                continue
            seen.add(id(thing))
            yield f"{prefix}{name}", thing


def public_parameters() -> Iterator[tuple[str, str]]:
    for name, thing in public_callables():
        if isinstance(thing, type) and issubclass(thing, BaseException):
            continue
        found = {name: inspect.signature(thing)}
        if isinstance(thing, type):
            for method, function in inspect.getmembers(thing, callable):
                if not method.startswith("_"):
                    found[f"{name}.{method}"] = inspect.signature(function)
        for call, signature in found.items():
            yield from (
                (call, parameter) for parameter in signature.parameters if parameter != "self"
            )


PUBLIC = list(dict.fromkeys(public_parameters()))
EXEMPT |= {part: TEST_HELPER for part in PUBLIC if part[0].startswith("testing.")}
COVERED = {(row.call, row.parameter) for row in ROWS}


@pytest.mark.parametrize(("call", "parameter"), PUBLIC, ids=lambda part: part)
def test_every_parameter_is_covered(call, parameter):
    if call in RECORDS:
        return
    covered = (call, parameter) in COVERED
    assert covered != ((call, parameter) in EXEMPT)


def test_no_row_is_about_something_else():
    assert (COVERED | set(EXEMPT)) - set(PUBLIC) == set()


def test_ids_are_distinct():
    ids = [str(row) for row in ROWS]
    assert sorted({name for name in ids if ids.count(name) > 1}) == []


def test_dates_are_not_read_as_numbers():
    with pytest.raises(InvalidDistributionError, match="object"):
        mdsd.SpecHubDraft([datetime.date(2024, 1, 1)])
