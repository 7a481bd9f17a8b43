"""Bad input of analyses."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd.errors import InvalidArgumentError, InvalidDistributionError, InvalidTokenError, MdsdError

from .rows import Row, Values, rows
from .values import (
    COUNTS,
    INF,
    ITERATIONS,
    MODELS,
    NAN,
    NOT_DRAFTS,
    NOT_NUMBERS,
    PROBS,
    SEEDS,
    TARGETS,
    TEXTS,
    TOLERANCES,
    P,
    Q,
    names,
    written,
)


def analysis_rows() -> Iterator[list[Row]]:
    analysis = mdsd.analysis
    square = [P, Q, P]
    table = mdsd.decoding.TableModel(square)
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
    counts: Values = {
        "none": (None, "object"),
        "list": ([0.5], "(1,)", "(R, R)"),
        "oblong": ([[0.5, 0.0]], "(1, 2)", "(R, R)"),
        "empty": ([[]], "(1, 0)"),
        "negative": ([[0.5, 0.0], [-0.1, 0.4]], "-0.1"),
        "nan": ([[NAN]], "nan"),
        "rank_that_is_not_there": ([[0.5, 0.1], [0.4, 0.3]], "row 0", "0.1", "rank 1"),
        "above_one": ([[0.5, 0.0], [0.7, 0.4]], "row 1", "1.1"),
    }
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
        "acceptance_by_count": (refused, counts),
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
        "target": (refused, MODELS),
        "draft_model": (refused, {**MODELS, "list": ([table, table],), "empty": ([], "[]")}),
        "prompt_ids": (InvalidTokenError, TEXTS),
        "draft": (refused, names("explicit", "custom", gredy="greedy")),
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
        "acceptance_by_count": [[0.5, 0.0], [0.4, 0.3]],
        "acceptance_by_num_drafts": [0.5, 0.6],
        "accepted": [0, 3, 1],
        "tree": [2, 1],
        "draft_cost": 0.1,
        "node_budget": 4,
        "target": table,
        "draft_model": table,
        "prompt_ids": [0],
        "draft": "greedy",
    }
    special: dict[tuple[str, str], tuple[type[MdsdError], Values]] = {
        ("simulate_rejections", "batch_size"): (refused, COUNTS),
        ("simulate_batch_rejections", "batch_size"): (refused, COUNTS),
        ("assess_acceptance_on_chain", "accept_probs"): (refused, accept_chain),
        ("tree_bound", "tree"): (refused, {k: v for k, v in trees.items() if k != "wide"}),
        ("iid_expected_tokens", "depth"): (
            refused,
            {kind: value for kind, value in COUNTS.items() if kind != "0"},
        ),
    }
    labels: Values = {
        **names("cactus:x", "single:1", cactuss="'cactus'"),
        "no_parameter": ("cactus", "cactus:DELTA"),
        "too_many": ("cactus:1:2", "parameters of cactus: delta"),
    }
    del labels["cactus:x"]
    special[("assess_rule", "draft")] = refused, NOT_DRAFTS
    checks |= {"rule": (refused, labels), "num_drafts": (refused, COUNTS)}
    usual |= {"rule": "mixture:0.5"}
    yield from rule_rows()
    tried: set[int] = set()
    for call in analysis.__all__:
        function = getattr(analysis, call)
        if isinstance(function, type):
            continue
        parameters = inspect.signature(function).parameters
        given = {
            name: mdsd.WithReplacement(Q, 1)
            if (call, name) == ("assess_rule", "draft")
            else usual[name]
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


def rule_rows() -> Iterator[list[Row]]:
    """What the rules of engines are made with, and asked."""
    analysis, refused = mdsd.analysis, InvalidArgumentError
    above_one: Values = {**TOLERANCES, "above_one": (1.5, "1.5", "at most 1")}
    parameters: dict[str, dict[str, Values]] = {
        "CactusAcceptance": {"delta": TOLERANCES},
        "MixtureAcceptance": {"weight": above_one},
        "OverAcceptance": {
            "epsilon": TOLERANCES,
            "redraw": names("draft", optmal="'optimal'"),
        },
        "RelaxedAcceptance": {"top_k": COUNTS, "delta": TOLERANCES},
        "ThresholdAcceptance": {
            "single": above_one,
            "accumulated": {**above_one, "zero": (0.0, "0.0")},
        },
        "TypicalAcceptance": {"threshold": TOLERANCES, "alpha": TOLERANCES},
    }
    made: dict[str, Any] = {"GumbelLists": analysis.GumbelLists()}
    for name, options in parameters.items():
        kind = getattr(analysis, name)
        usual = {option: kind.examples()[0].__dict__[option] for option in options}
        made[name] = kind(**usual)
        for option, values in options.items():
            yield rows(
                f"analysis.{name}",
                option,
                lambda v, k=kind, u=usual, o=option: k(**{**u, o: v}),
                refused,
                values,
            )
    for name, rule in made.items():
        draft = mdsd.TopKDraft(Q, 1) if "top_k" in rule.drafts else mdsd.WithReplacement(Q, 1)
        yield rows(
            f"analysis.{name}.outcome",
            "target_probs",
            lambda v, r=rule, d=draft: r.outcome(v, d),
            InvalidDistributionError,
            {kind: TARGETS[kind] for kind in list(TARGETS)[::6]},
        )
        yield rows(
            f"analysis.{name}.outcome",
            "draft",
            lambda v, r=rule: r.outcome(P, v),
            refused,
            NOT_DRAFTS,
        )


ROWS = [row for made in analysis_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
