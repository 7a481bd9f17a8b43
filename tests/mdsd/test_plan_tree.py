"""The study behind `mdsd plan-tree`, and its plans in decoders."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd import datasets
from mdsd.analysis import expected_tree_tokens, plan_tree
from mdsd.decoding import TableModel, TreeShape, generate
from mdsd.drafts import read_kind
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.studies.fitting import print_report
from mdsd.studies.output import picture
from mdsd.studies.planning.acceptance import (
    RankAcceptance,
    accepted_by_rank,
    given_acceptance,
    measured_acceptance,
    measuring_settings,
)
from mdsd.studies.planning.plan_table import plan_report, tree_lines
from mdsd.studies.planning.plots import leaf_places, plan_figure
from mdsd.studies.planning.trees import PlanLimits, PlannedTree, planned_tree
from mdsd.testing import accepted_law, sequence_law

from .decoding.toys import PrefixModel, distance, plain_law

UNBALANCED = [0.5, 0.2, 0.1]


def planned(rates: Any, **limits: Any) -> PlannedTree:
    return planned_tree(RankAcceptance(np.array(rates), None, "given"), PlanLimits(**limits))


# --- plans in decoders ---------------------------------------------------------------------------


class TestDecoders:
    PLAN = plan_tree(UNBALANCED, 4)

    def test_the_plan_is_unbalanced(self):
        assert self.PLAN.tree.parents == (-1, 0, 0, 1, 3)
        assert self.PLAN.tree.branching is None

    @pytest.mark.parametrize(
        ("draft", "verifier"),
        [
            ("with_replacement", "rrs"),
            ("without_replacement", "rrs"),
            ("without_replacement", "optimal"),
            ("with_replacement", "kseq"),
            ("greedy", "naive"),
        ],
    )
    def test_a_decoder_with_it_is_lossless(self, draft, verifier):
        target, draft_model = PrefixModel(1, 3), PrefixModel(2, 3)
        found = sequence_law(
            target, draft_model, [0], 3, tree=self.PLAN, draft=draft, verifier=verifier
        )
        assert distance(found, plain_law(target.probs, [0], 3)) <= 1e-12

    def test_a_decoder_drafts_it(self):
        target, draft_model = PrefixModel(3), PrefixModel(4)
        result = generate(target, draft_model, [0], tree=self.PLAN, max_new_tokens=12, rng=0)
        assert len(result.token_ids) == 12
        assert len(result.drafted_by_depth) == self.PLAN.tree.depth
        again = generate(target, draft_model, [0], tree=self.PLAN.tree, max_new_tokens=12, rng=0)
        assert result.token_ids.tolist() == again.token_ids.tolist()

    @pytest.mark.parametrize("budget", [1, 3, 4, 5])
    def test_expected_tokens_are_exactly_those_of_a_decoder(self, budget):
        """Laws that do not depend on the prefix; a rank's acceptance is that of one draft more."""
        p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
        rates = [
            mdsd.get_verifier("rrs").plan(p, mdsd.WithReplacement(q, n)).acceptance_rate
            for n in (1, 2, 3)
        ]
        plan = plan_tree(np.diff([0.0, *rates]), budget)
        law = accepted_law(
            TableModel([p] * 3), TableModel([q] * 3), [0], tree=plan, draft="with_replacement"
        )
        assert 1.0 + law @ np.arange(len(law)) == pytest.approx(plan.expected_tokens, abs=1e-12)


# --- nodes ---------------------------------------------------------------------------------------


def test_rows_say_how_likely_each_node_is():
    found = planned(UNBALANCED, budget=4)
    assert [(row.node, row.parent, row.depth, row.rank) for row in found.rows] == [
        (1, 0, 1, 0),
        (2, 0, 1, 1),
        (3, 1, 2, 0),
        (4, 3, 3, 0),
    ]
    assert [row.acceptance for row in found.rows] == [0.5, 0.2, 0.5, 0.5]
    assert [row.probability for row in found.rows] == [0.5, 0.2, 0.25, 0.125]


@pytest.mark.parametrize(
    "rates",
    [UNBALANCED, [0.1, 0.6], [[0.9, 0.05], [0.3, 0.3], [0.6, 0.4]], [1.0], [0.0, 0.0]],
    ids=str,
)
@pytest.mark.parametrize("budget", [1, 7, 20])
def test_probabilities_add_up_to_the_expected_tokens(rates, budget):
    found = planned(rates, budget=budget)
    total = 1.0 + math.fsum(row.probability for row in found.rows)
    assert total == pytest.approx(found.plan.expected_tokens, abs=1e-12)
    assert total == pytest.approx(expected_tree_tokens(found.plan, rates), abs=1e-12)
    assert TreeShape([-1, *(row.parent for row in found.rows)]) == found.plan.tree


@pytest.mark.parametrize(
    ("limit", "value", "words"),
    [
        ("budget", 0, "budget is 0"),
        ("budget", 10**9, "budget is 1000000000"),
        ("max_depth", 0, "max_depth is 0"),
        ("max_branching", -1, "max_branching is -1"),
    ],
)
def test_bad_limits(limit, value, words):
    with pytest.raises(InvalidArgumentError, match=words):
        PlanLimits(**{limit: value})


# --- acceptance given ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "0.6,0.2\n", [[0.6, 0.2]]),
        ("a.csv", "0.6, 0.2\n0.5,0.25,0.125\n", [[0.6, 0.2, 0.0], [0.5, 0.25, 0.125]]),
        ("a.CSV", "\ufeff1\n\n0\n", [[1.0], [0.0]]),
        ("a.json", "[0.6, 0.2]", [0.6, 0.2]),
        ("a.json", "[[0.6], [0.5, 0.25]]", [[0.6, 0.0], [0.5, 0.25]]),
        ("a.json", '{"acceptance_by_rank": [1, 0], "more": 3}', [1.0, 0.0]),
    ],
)
def test_files(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    found = given_acceptance(str(path))
    assert found.by_rank.tolist() == expected
    assert found.source == str(path)
    assert found.stderr is None


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"", "is empty"),
        ("a.csv", b"rank 0,rank 1\n0.6,0.2\n", "depth 1, rank 0 is 'rank 0'"),
        ("a.csv", b"0.6\n0.5,,0.1\n", "depth 2, rank 1 is ''"),
        ("a.csv", b"\xff\xfe\x00", "UTF-8"),
        ("a.json", b"[0.6, 0.2", "no JSON"),
        ("a.json", b"[" * 100_000, "no JSON"),
        ("a.json", b"[]", r"acceptance_by_rank is \[\]"),
        ("a.json", b"0.5", "acceptance_by_rank is 0.5"),
        ("a.json", b'{"rates": [0.5]}', "has no 'acceptance_by_rank'"),
        ("a.json", b'[0.5, "x"]', r"acceptance_by_rank\[1\] is 'x'"),
        ("a.json", b"[true]", r"acceptance_by_rank\[0\] is True"),
        ("a.json", b"[[0.5], 0.5]", "depth 2 is 0.5"),
        ("a.json", b"[[[0.5]]]", r"depth 1, rank 0 is \[0.5\]"),
    ],
)
def test_bad_files(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        given_acceptance(str(path))
    assert str(path) in str(caught.value)


def test_lists():
    assert given_acceptance("0.6,0.2, 0.1").by_rank.tolist() == [0.6, 0.2, 0.1]
    with pytest.raises(InvalidArgumentError, match="acceptance is ''"):
        given_acceptance("0.6,,0.2")


# --- acceptance measured -------------------------------------------------------------------------

LAWS = {
    "target_probs": [[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]],
    "draft_probs": [[0.2, 0.5, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1], [1.0, 0.0, 0.0, 0.0]],
}


def small_data(folder: Any) -> datasets.Source:
    np.savez(folder / "data.npz", **{key: np.array(value) for key, value in LAWS.items()})
    return datasets.open_source(folder / "data.npz")


def exact_acceptance(draft: str, ranks: int) -> np.ndarray:
    """Acceptance of each rank at each position: what one draft more adds."""
    kind = {
        "with_replacement": mdsd.WithReplacement,
        "without_replacement": mdsd.WithoutReplacement,
    }[draft]
    rows = []
    for p, q in zip(LAWS["target_probs"], LAWS["draft_probs"], strict=True):
        most = ranks if draft == "with_replacement" else np.count_nonzero(q)
        rates = [
            mdsd.get_verifier("rrs").plan(p, kind(q, min(n, most))).acceptance_rate
            for n in range(1, ranks + 1)
        ]
        rows.append(np.diff([0.0, *rates]))
    return np.array(rows)


@pytest.mark.parametrize("draft", ["with_replacement", "without_replacement"])
def test_measured_acceptance_is_that_of_each_rank(tmp_path, draft):
    """Six scores of means of 768 draws: all below 5, false alarm below 4e-6."""
    data = small_data(tmp_path)
    found = measured_acceptance(data, measuring_settings(data, draft=draft, ranks=3, seed=4))
    exact = exact_acceptance(draft, 3)
    error = np.sqrt((exact * (1.0 - exact)).sum(axis=0) / 256) / 3
    assert (np.abs(found.by_rank - exact.mean(axis=0)) <= 5.0 * error).all()
    # Ranks in another order are noticed.
    assert (np.abs(found.by_rank - exact.mean(axis=0)[::-1]) > 5.0 * error).any()
    # Of three positions the scatter is between them.
    spread = exact.std(axis=0, ddof=1) / math.sqrt(3)
    np.testing.assert_allclose(found.stderr, spread, rtol=0, atol=0.05)


def test_fewer_tokens_than_ranks(tmp_path):
    data = small_data(tmp_path)
    found = measured_acceptance(data, measuring_settings(data, ranks=6))
    assert found.by_rank.shape == (6,)
    assert found.by_rank[4:].tolist() == [0.0, 0.0]
    plan_tree(found.by_rank, 10)  # the shares of one node are no more than all


def test_measuring_depends_on_the_seed_and_on_nothing_else(tmp_path):
    data = small_data(tmp_path)

    def measure(**options: Any) -> list[float]:
        return measured_acceptance(data, measuring_settings(data, **options)).by_rank.tolist()

    assert measure(ranks=3, seed=1) == measure(ranks=3, seed=1) != measure(ranks=3, seed=2)


# --- acceptance by the number of siblings --------------------------------------------------------


def exact_by_count(verifier: str, draft: str, ranks: int) -> np.ndarray:
    """Acceptance of each rank by the number of drafts: mean over all drafts and positions."""
    found = np.zeros((ranks, ranks))
    for p, q in zip(LAWS["target_probs"], LAWS["draft_probs"], strict=True):
        for n in range(1, ranks + 1):
            law = read_kind(draft).make_at_most(np.array(q), n)
            rule = mdsd.get_verifier(verifier)
            plan = (rule if rule.supports(law) else mdsd.get_verifier("naive")).plan(p, law)
            for ids in np.ndindex(*(4,) * law.num_drafts):
                if prob := law.prob(list(ids)):
                    emitted = plan.output_law(list(ids))
                    for token in set(ids):
                        found[n - 1, ids.index(token)] += (
                            prob * emitted[token] / len(LAWS["draft_probs"])
                        )
    return found


@pytest.mark.parametrize(
    ("verifier", "draft"),
    [
        ("optimal", "with_replacement"),
        ("optimal", "without_replacement"),
        ("kseq", "with_replacement"),
        ("naive", "without_replacement"),
    ],
)
def test_measured_acceptance_is_that_of_each_rank_and_count(tmp_path, verifier, draft):
    """Six scores of means of 192 draws, of numbers in [0, 1]: all below 5."""
    data = small_data(tmp_path)
    settings = measuring_settings(data, verifier=verifier, draft=draft, ranks=3, seed=4)
    found = measured_acceptance(data, settings)
    exact = exact_by_count(verifier, draft, 3)
    assert found.by_count
    assert found.stderr.shape == (3, 3)
    error = 0.5 / math.sqrt(3 * 64)
    assert (np.abs(found.by_rank - exact) <= 5.0 * error).all()
    assert np.abs(found.by_rank - exact).mean() <= error
    # Other ranks are noticed, and other counts where they matter.
    assert (np.abs(found.by_rank - np.roll(exact, 1, axis=1)) > 5.0 * error).any()
    if verifier == "optimal":
        assert found.by_rank[0, 0] - found.by_rank[1, 0] > 0.09
    assert found.source.startswith(f"{verifier} on ")


def test_of_a_token_drafted_twice_the_first_has_it_all():
    p, q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
    plan = mdsd.get_verifier("optimal").plan(p, mdsd.WithReplacement(q, 3))
    ids = np.array([[0, 1, 2], [1, 1, 0], [2, 2, 2], [0, 2, 0]])
    found = accepted_by_rank(plan, ids)
    law = plan.output_law(ids)
    for row in range(len(ids)):
        tokens = set(ids[row].tolist())
        assert found[row].sum() == pytest.approx(sum(law[row, token] for token in tokens))
    assert (found[[1, 2, 2, 3], [1, 1, 2, 2]] == 0.0).all()
    assert (found[[0, 2, 3], 0] > 0.0).all()


def test_rows_of_a_plan_by_count():
    table = np.array([[0.5, 0.0], [0.4, 0.4]])
    found = planned_tree(RankAcceptance(table, None, "given", by_count=True), PlanLimits(budget=4))
    assert [(row.parent, row.rank, row.acceptance) for row in found.rows] == [
        (0, 0, 0.4),
        (0, 1, 0.4),
        (1, 0, 0.5),
        (2, 0, 0.5),
    ]
    total = 1.0 + math.fsum(row.probability for row in found.rows)
    assert total == pytest.approx(found.plan.expected_tokens, abs=1e-12)
    assert found.summary["acceptance_by_count"] == table.tolist()
    assert "acceptance_by_rank" not in found.summary


def test_report_of_a_plan_by_count(capsys):
    table = np.array([[0.5, 0.0], [0.4, 0.4]])
    acceptance = RankAcceptance(table, None, "given", by_count=True)
    print_report(plan_report(planned_tree(acceptance, PlanLimits(budget=4))))
    shown = " ".join(capsys.readouterr().out.split())
    assert "rank and number of siblings, up to 2, from given" in shown
    assert "taken to depend on the rank and the number of siblings" in shown


def test_one_position_has_no_standard_error(tmp_path):
    data = small_data(tmp_path)
    seen: list[tuple[int, int]] = []
    settings = measuring_settings(data, ranks=2, positions=1)
    found = measured_acceptance(data, settings, lambda *step: seen.append(step))
    assert found.stderr is None
    assert seen == [(1, 1)]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("draft", "greedy", "greedy"),
        ("draft", "witout_replacement", "did you mean 'without_replacement'"),
        ("ranks", 0, "ranks is 0"),
        ("ranks", 65, "ranks is 65"),
        ("draft_model", "none", "draft model is 'none'"),
        ("temperature", -1.0, "temperature"),
        ("top_p", 0.0, "top_p"),
        ("positions", 0, "positions is 0"),
        ("seed", -1, "seed is -1"),
        ("verifier", "optimum", "did you mean 'optimal'"),
        ("verifier", 3, "verifier is 3"),
        ("verifier", "biased", "verifier is 'biased'"),
        ("trees", 0, "trees is 0"),
        ("trees", 1, "trees is 1"),
        ("trees", 1.5, "trees is 1.5"),
        ("trees", 8, "trees is 8, which is for block, layers, traversal"),
    ],
)
def test_bad_measurements(tmp_path, option, value, words):
    with pytest.raises(InvalidArgumentError, match=words):
        measuring_settings(small_data(tmp_path), **{option: value})


@pytest.mark.parametrize(
    ("verifier", "draft"),
    [("single", "with_replacement"), ("kseq", "without_replacement"), ("greedy", "hybrid:1")],
)
def test_verifiers_that_do_not_take_the_drafts(tmp_path, verifier, draft):
    with pytest.raises(UnsupportedError, match=f"verifier '{verifier}' does not support"):
        measuring_settings(small_data(tmp_path), verifier=verifier, draft=draft)


# --- text and picture ----------------------------------------------------------------------------


def read_lines(lines: list[str]) -> tuple[list[float], list[tuple[int, ...]]]:
    """Read a printed tree back: probabilities, and the ranks on the way to each node."""
    probabilities, paths = [], []
    path: list[int] = []
    for line in lines[1:]:
        probability, indent, rank = re.fullmatch(r" +([\d.]+)  ([│├└─ ]*)(\d+)", line).groups()
        path = [*path[: len(indent) // 3 - 1], int(rank)]
        probabilities.append(float(probability))
        paths.append(tuple(path))
    return probabilities, paths


@pytest.mark.parametrize("rates", [UNBALANCED, [0.3, 0.3, 0.3], [0.1, 0.5], [1.0]], ids=str)
@pytest.mark.parametrize("budget", [1, 2, 9, 30])
def test_text_is_the_tree(rates, budget):
    found = planned(rates, budget=budget)
    shape, rows = found.plan.tree, found.rows
    lines = list(tree_lines(shape, rows))
    assert lines[0] == "     1.0000  root"
    probabilities, paths = read_lines(lines)
    assert TreeShape.from_paths(paths) == shape
    # Paths of the nodes as the shape itself has them.
    ranks = {
        tuple(rows[node - 1].rank for node in shape.path(row.node)): row.probability for row in rows
    }
    assert dict(zip(paths, probabilities, strict=True)) == {
        path: pytest.approx(probability, abs=5.1e-5) for path, probability in ranks.items()
    }


def test_report(capsys):
    print_report(plan_report(planned(UNBALANCED, budget=4)))
    shown = capsys.readouterr().out
    assert re.search(r"^ +0 +1 +2 +1\.0000$", shown, re.MULTILINE)
    assert re.search(r"^ +1 +2 +0 to 1 +0\.7000$", shown, re.MULTILINE)
    assert re.search(r"^ +3 +1 +0 +0\.1250$", shown, re.MULTILINE)
    assert "2.0750 expected tokens for a call of the target: 4 nodes, depth 3" in shown
    assert "acceptance by rank (given): 0.5, 0.2, 0.1" in shown


def test_report_says_what_more_nodes_would_add(capsys):
    print_report(plan_report(planned([[0.5, 0.25]], budget=9)))
    shown = capsys.readouterr().out
    assert "9 nodes allowed: more than 2 add nothing" in shown
    assert "rank and depth, 2 ranks at 1 depth, from given" in shown


@pytest.mark.parametrize(("rates", "budget"), [(UNBALANCED, 12), ([1.0], 60), ([0.0], 3)], ids=str)
def test_picture(rates, budget):
    found = planned(rates, budget=budget)
    figure = plan_figure(found)
    axis = figure.axes[0]
    labels = [text.get_text() for text in axis.texts]
    assert labels in ([str(row.rank) for row in found.rows], [])
    assert len(axis.collections[0].get_offsets()) == len(found.plan.tree.parents)
    assert f"{found.plan.expected_tokens:.3f} expected tokens" in figure.get_suptitle()
    assert picture(".png", figure).startswith(b"\x89PNG")


def test_a_node_that_is_never_accepted_is_drawn():
    found = planned([0.0, 0.5], budget=4)
    assert [row.probability for row in found.rows] == [0.0, 0.5, 0.0, 0.25]
    assert picture(".png", plan_figure(found)).startswith(b"\x89PNG")


def test_a_large_tree_is_drawn_without_ranks():
    found = planned([0.4, 0.3, 0.2, 0.1], budget=800)
    assert len(plan_figure(found).axes[0].texts) == 0


@pytest.mark.parametrize("budget", [5, 40])
def test_nodes_of_a_level_do_not_overlap(budget):
    shape = planned([0.4, 0.3, 0.2, 0.1], budget=budget).plan.tree
    places = leaf_places(shape)
    assert sorted(places[leaf] for leaf in shape.leaves) == list(range(len(shape.leaves)))
    for depth in range(shape.depth + 1):
        level = [places[node] for node in shape.level(depth)]
        assert (np.diff(level) >= 1.0).all()
    for node in set(shape.parents) - {-1}:
        below = [places[child] for child in shape.children(node)]
        assert min(below) <= places[node] <= max(below)
