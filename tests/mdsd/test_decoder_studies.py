"""Studies of decoders: budgets, pooled runs, streamed text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mdsd
from mdsd.decoding import DecodeResult, DecodeSeconds, TableModel, TreeShape
from mdsd.decoding.choices import RandomChoices
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.rows import Row
from mdsd.decoding.verification import step_verification
from mdsd.drafts import default_kinds
from mdsd.errors import InvalidArgumentError, UnsupportedError
from mdsd.studies.decoding.cases import DecoderCase, applicable, candidates
from mdsd.studies.decoding.decoder_settings import comparison_settings, decode_settings, shown_tree
from mdsd.studies.decoding.drawn_trees import compare_on_trees, run_comparison
from mdsd.studies.decoding.models import TextModels, choose_models
from mdsd.studies.decoding.runs import decoder_row, ratio_of_totals, run_decode
from mdsd.studies.study_rows import DrawnTreesRow
from mdsd.testing import accepted_law

TARGET = TableModel([[0.1, 0.6, 0.3], [0.5, 0.1, 0.4], [0.3, 0.3, 0.4]])
DRAFT = TableModel([[0.3, 0.4, 0.3], [0.2, 0.4, 0.4], [0.4, 0.3, 0.3]])
OTHER = TableModel([[0.2, 0.2, 0.6], [0.6, 0.2, 0.2], [0.1, 0.8, 0.1]])
ALL = (*mdsd.verifier_names(), "block", "traversal")


def letters(*draft_models: TableModel, ends: tuple[int, ...] = ()) -> TextModels:
    """Models whose tokens are the letters a, b, c."""
    return TextModels(
        TARGET,
        draft_models or (DRAFT,),
        lambda text: [(ord(letter) - ord("a")) % 3 for letter in text],
        lambda token_ids: "".join("abc"[token] for token in token_ids),
        ends,
        ("target", "draft"),
    )


# --- which decoders ------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", [(3, 2, 1), (2, 2), (4,), (1, 1, 1)], ids=shown_tree)
def test_candidates_draft_as_many_tokens_as_the_tree(tree):
    nodes = TreeShape.from_branching(tree).num_nodes
    found = candidates(tree, ALL, default_kinds(), ("tree", "batch"))
    assert len(set(found)) == len(found)
    for case in found:
        left = nodes - case.num_nodes
        # M chains of one length: what is left over would not make all of them longer.
        assert 0 <= left < (case.tree[0] if case.scheme == "batch" else 1)


def test_every_verifier_runs_with_what_it_supports():
    found = applicable(
        candidates((2, 1), ALL, default_kinds(), ("tree", "batch")), letters(DRAFT, OTHER)
    )
    pairs = {(case.verifier, str(case.draft)) for case in found if case.scheme == "tree"}
    verifiers = {name: mdsd.get_verifier(name) for name in mdsd.verifier_names()}
    laws = {
        "with_replacement": mdsd.WithReplacement([0.5, 0.5], 2),
        "without_replacement": mdsd.WithoutReplacement([0.5, 0.5], 2),
        "independent": mdsd.IndependentDrafts([[0.5, 0.5], [0.5, 0.5]]),
        "greedy": mdsd.GreedyDraft([0.5, 0.5], 2),
        "top_k": mdsd.TopKDraft([0.5, 0.5], 2),
    }
    expected = {(v, d) for v in verifiers for d, law in laws.items() if verifiers[v].supports(law)}
    expected |= {("single", "with_replacement")}  # on the chain
    expected |= {("block", draft) for draft in laws}
    expected |= {("traversal", draft) for draft in list(laws)[:3]}
    assert pairs == expected
    assert {case.tree for case in found if case.verifier == "single"} == {(1, 1, 1, 1)}
    assert {case.tree for case in found if case.scheme == "batch"} == {(2, 1)}


def test_spechub_needs_two_drafts_at_each_node():
    one, two = (
        applicable(candidates(tree, ["spechub"], default_kinds(), ["tree"]), letters())
        for tree in ((2, 1), (2, 2))
    )
    assert one == ()
    assert two == (DecoderCase("spechub", "spechub", (2, 2)),)


def test_a_chain_is_no_tree_of_many_kinds():
    settings = comparison_settings(letters(), num_drafts=1, depth=3)
    assert {str(case.draft) for case in settings.cases} == {"with_replacement", "top_k"}
    assert {case.tree for case in settings.cases} == {(1, 1, 1)}
    assert {case.scheme for case in settings.cases} == {"tree"}


@pytest.mark.parametrize(
    ("options", "tree"),
    [
        ({}, (3, 2, 1)),
        ({"tree": [2, 2]}, (2, 2)),
        ({"num_drafts": 2}, (2, 2, 2, 2)),
        ({"depth": 2}, (3, 3)),
        ({"schemes": ["batch"]}, (3, 1, 1, 1, 1)),
        ({"schemes": ["batch"], "depth": 2}, (3, 1)),
    ],
    ids=str,
)
def test_tree_of_a_single_run(options, tree):
    (case,) = decode_settings(letters(), drafts=["with_replacement"], **options).cases
    assert case.tree == tree


def test_trees_that_grow():
    (case,) = decode_settings(letters(), grow=7, verifiers=["optimal"]).cases
    assert case.label == {
        "verifier": "optimal",
        "draft": "without_replacement",
        "tree": (),
        "scheme": "growing",
        "num_nodes": 7,
    }
    grown = case.decoder(letters()).shape
    assert (grown.budget, grown.depth, grown.max_children, grown.ordered) == (7, 6, 4, None)
    options = {"grow": 5, "depth": 2, "num_drafts": 3}
    (case,) = decode_settings(letters(), verifiers=["traversal"], **options).cases
    grown = case.decoder(letters()).shape
    assert (grown.budget, grown.depth, grown.max_children, grown.ordered) == (5, 2, 3, None)


@pytest.mark.parametrize(
    "case", candidates((2, 1), ["rrs"], ["with_replacement"], ["tree", "batch"])
)
def test_a_case_is_what_generate_runs(case):
    decoder = case.decoder(letters())
    assert decoder.shape.branching == case.tree
    assert decoder.kind.label == "with_replacement"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drafts": ["with_replacement", "greedy"]}, ["drafts", "with_replacement, greedy"]),
        ({"verifiers": []}, ["verifiers", "empty"]),
        ({"verifiers": ["traversl"]}, ["did you mean 'traversal'"]),
        ({"schemes": ["batches"]}, ["scheme", "batches"]),
        ({"seeds": 3}, ["seeds is 3"]),
        ({"seed": -1}, ["seed is -1"]),
        ({"max_new_tokens": 0}, ["max_new_tokens is 0"]),
        ({"temperature": -1.0}, ["temperature is -1.0"]),
        ({"tree": [2], "depth": 3}, ["tree and depth"]),
        ({"tree": [2], "num_drafts": 3}, ["tree and num_drafts"]),
        ({"tree": [2], "schemes": ["batch"]}, ["tree and scheme 'batch'"]),
        ({"schemes": ["batch"], "verifiers": ["kseq"]}, ["kseq", "rrs"]),
        ({"grow": 0}, ["grow is 0"]),
        ({"grow": 10**6}, ["grow is 1000000"]),
        ({"grow": 2.0}, ["grow is 2.0"]),
        ({"grow": 4, "tree": [2]}, ["grow and tree"]),
        ({"grow": 4, "schemes": ["batch"]}, ["grow and scheme 'batch'"]),
        ({"grow": 4, "depth": 0}, ["depth is 0"]),
        ({"grow": 4, "num_drafts": 5}, ["num_drafts is 5"]),
        ({"prompt": ""}, ["prompt is ''"]),
        ({"prompt": 3}, ["prompt is int"]),
    ],
    ids=str,
)
def test_bad_options_of_a_run(options, words):
    with pytest.raises(InvalidArgumentError) as caught:
        decode_settings(letters(), **options)
    assert [word for word in words if word not in str(caught.value)] == []


def test_verifier_that_does_not_support_the_drafts():
    with pytest.raises(UnsupportedError, match="kseq"):
        decode_settings(letters(), verifiers=["kseq"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seeds": 0}, ["seeds is 0"]),
        ({"grow": 4}, ["grow is 4", "single run only"]),
        ({"drafts": ["greedy"], "verifiers": ["kseq"]}, ["nothing to run", "kseq", "greedy"]),
        ({"drafts": ["independent"]}, ["nothing to run"]),
        ({"top_p": 0.0}, ["top_p is 0.0"]),
    ],
    ids=str,
)
def test_bad_options_of_a_comparison(options, words):
    with pytest.raises(InvalidArgumentError) as caught:
        comparison_settings(letters(), **options)
    assert [word for word in words if word not in str(caught.value)] == []


# --- pooled runs ---------------------------------------------------------------------------------


def test_ratio_weighs_runs_by_what_they_took():
    ratio, stderr = ratio_of_totals([10, 30], [10, 10])
    assert (ratio, stderr) == (2.0, pytest.approx(1.0, abs=1e-15))
    ratio, stderr = ratio_of_totals([3, 6, 12], [1, 2, 4])
    assert (ratio, stderr) == (3.0, 0.0)


def test_standard_error_covers_the_truth():
    # 400 studies of 20 runs: a right 95% interval misses 20 of them, give or take 4.4 (one sigma).
    rng = np.random.default_rng(0)
    calls = rng.integers(20, 40, size=(400, 20))
    tokens = rng.normal(2.5 * calls, 3.0 * np.sqrt(calls))
    found = [ratio_of_totals(*study) for study in zip(tokens, calls, strict=True)]
    quantile = 2.093  # of Student's law with 19 degrees of freedom
    misses = sum(abs(ratio - 2.5) > quantile * stderr for ratio, stderr in found)
    assert 4 <= misses <= 42  # 4.5 sigma: a false alarm in about 10^5
    too_small = sum(abs(ratio - 2.5) > quantile * stderr / 2 for ratio, stderr in found)
    assert too_small > 42


def result(tokens: int, calls: int, drafted: list[int], lengths: list[int]) -> DecodeResult:
    accepted = [sum(length >= d for length in lengths) for d in range(1, len(drafted) + 1)]
    return DecodeResult(
        token_ids=np.zeros(tokens, dtype=np.int64),
        tokens_per_target_call=tokens / calls,
        acceptance_by_depth=np.array(accepted) / np.array(drafted),
        drafted_by_depth=np.array(drafted),
        accepted_lengths=np.array(lengths),
        target_calls=calls,
        draft_calls=2 * calls,
        seconds=DecodeSeconds(1.0, 2.0, 1.0),
    )


def test_runs_are_pooled():
    case = DecoderCase("rrs", "with_replacement", (2, 1))
    row = decoder_row(case, [result(6, 3, [3, 2], [2, 0, 1]), result(2, 1, [1], [1])])
    assert (row.tokens, row.target_calls, row.draft_calls, row.runs) == (8, 4, 8, 2)
    assert row.tokens_per_target_call == 2.0
    assert row.drafted_by_depth == (4, 2)
    assert row.acceptance_by_depth == (0.75, 0.5)
    assert row.accepted_lengths == (2, 0, 1, 1)
    assert row.synthetic_acceptance_rates == (0.75, 0.5)
    assert row.verification_share == 0.25
    assert (row.drafting_seconds, row.target_seconds, row.verification_seconds) == (2.0, 4.0, 2.0)
    assert (row.tree, row.num_nodes) == ((2, 1), 4)


def test_end_tokens_end_a_run_but_no_text_of_a_comparison():
    models = letters(ends=(2,))
    text, row = run_decode(models, decode_settings(models, prompt="a", seed=1))
    assert text.index("c") == len(text) - 1
    assert row.tokens == len(text) < 64
    (first, *_) = run_comparison(models, comparison_settings(models, verifiers=["rrs"], seeds=1))
    assert first.target_calls == 64


def test_steps_of_each_depth_are_counted():
    settings = decode_settings(letters(), max_new_tokens=9, prompt="a", temperature=0.0)
    _, row = run_decode(letters(), settings)
    drafted = np.array(row.drafted_by_depth)
    assert drafted[0] == row.target_calls or row.tokens == 9
    assert (np.diff(drafted) <= 0).all()
    accepted = np.array(row.acceptance_by_depth) * drafted
    # Each step emits what it accepts and one token more, but for a last step that was cut short.
    assert row.tokens - row.target_calls <= accepted.sum() <= row.tokens


# --- the same trees ------------------------------------------------------------------------------


def untimed(row: DrawnTreesRow) -> dict[str, object]:
    return {name: value for name, value in vars(row).items() if not name.startswith("verification")}


def trees_by_hand(case: DecoderCase, seed: int, length: int) -> tuple[list[DraftedTree], list[int]]:
    """A tree before each token of a text that the target alone decides about."""
    decoder = case.decoder(letters(DRAFT, OTHER), temperature=0.8)
    choices, prefix, trees = RandomChoices(seed), [0, 1], []
    for _ in range(length):
        (tree,) = decoder.score(decoder.draw([Row(prefix, 99, choices)]))
        trees.append(tree)
        prefix = [*prefix, choices.token(tree.target_probs[0])]
    return trees, prefix


def test_comparison_is_the_mean_over_the_same_trees():
    models = letters(DRAFT, OTHER)
    settings = comparison_settings(
        models, tree=[2, 1], prompt="ab", max_new_tokens=4, temperature=0.8, seed=4, seeds=2
    )
    steps = []
    rows = run_comparison(models, settings, lambda done, total: steps.append((done, total)))
    total = 2 * len({(case.kind, case.tree) for case in settings.cases})
    assert steps == [(done, total) for done in range(1, total + 1)]
    assert len(rows) == len(settings.cases)
    means = [row.tokens_per_target_call for row in rows]
    assert means == sorted(means, reverse=True)
    texts = set()
    for row in rows:
        case = DecoderCase(row.verifier, row.draft, row.tree, row.scheme)
        found, others = [], []
        for seed in (4, 5):
            trees, text = trees_by_hand(case, seed, 4)
            texts.add((seed, *text))
            for tree in trees:
                found.append(step_verification(row.verifier).accepted_by_depth(tree))
                others.append(step_verification(row.reference).accepted_by_depth(tree))
        accepted = np.array(found).sum(axis=1)
        gained = accepted - np.array(others).sum(axis=1)
        assert row.tokens_per_target_call == pytest.approx(1.0 + accepted.mean(), abs=1e-12)
        assert row.stderr == pytest.approx(accepted.std(ddof=1) / 8**0.5, abs=1e-12)
        assert row.acceptance_by_depth == pytest.approx(np.mean(found, axis=0), abs=1e-12)
        assert row.difference == pytest.approx(gained.mean(), abs=1e-12)
        assert row.difference_stderr == pytest.approx(gained.std(ddof=1) / 8**0.5, abs=1e-12)
        assert (row.target_calls, row.runs) == (8, 2)
    assert len(texts) == 2  # whatever is drafted


def test_reference_is_rrs_where_that_applies():
    settings = comparison_settings(letters(DRAFT, OTHER), tree=[2, 2], seeds=1, max_new_tokens=3)
    rows = run_comparison(letters(DRAFT, OTHER), settings)
    names = {str(kind) for kind in default_kinds()}
    assert {row.draft for row in rows} == names
    others = {"greedy", "spechub", "top_k"}
    assert {row.draft for row in rows if row.reference == "rrs"} == names - others
    assert {row.draft for row in rows if row.reference == "naive"} == others
    assert all(row.difference == 0.0 for row in rows if row.verifier == row.reference)
    assert any(row.difference > 0.01 for row in rows)


def test_a_single_tree_has_no_standard_error():
    settings = comparison_settings(letters(), verifiers=["rrs"], seeds=1, max_new_tokens=1)
    (row, *_) = run_comparison(letters(), settings)
    assert (row.target_calls, row.stderr, row.difference_stderr) == (1, None, None)


def test_rows_are_the_same_whatever_they_are_compared_with():
    cases = candidates((2, 1), ["rrs", "block"], ["with_replacement"], ["tree", "batch"])
    together = compare_on_trees(letters(), cases, [([0], 0)], 5)
    alone = [compare_on_trees(letters(), [case], [([0], 0)], 5)[0] for case in cases]
    timed = ("drafting_seconds", "target_seconds")
    for row, other in zip(together, alone, strict=True):
        assert untimed(replace(row, **dict.fromkeys(timed, 0.0))) == untimed(
            replace(other, **dict.fromkeys(timed, 0.0))
        )


def test_mean_over_trees_covers_the_law():
    """At the first position of many texts: the mean is that of the enumerated law."""
    names = ("rrs", "optimal", "block")
    cases = [DecoderCase(name, "without_replacement", (2, 1)) for name in names]
    texts = [([0], seed) for seed in range(300)]
    rows = compare_on_trees(letters(), cases, texts, 1)
    laws = [accepted_law(TARGET, DRAFT, [0], verifier=name, tree=[2, 1]) for name in names]
    expected = [float(law @ np.arange(3)) for law in laws]
    for row, accepted in zip(rows, expected, strict=True):
        assert abs(row.tokens_per_target_call - 1.0 - accepted) <= 4.5 * row.stderr
        assert abs(row.difference - (accepted - expected[0])) <= 4.5 * row.difference_stderr
        if row.verifier != "rrs":  # what pairing is for
            assert row.difference_stderr < 0.9 * np.hypot(row.stderr, rows[0].stderr)


# --- text ----------------------------------------------------------------------------------------


def spelled(*pieces: bytes) -> TextModels:
    """Models over pieces of bytes, each followed by the next."""
    size = len(pieces)
    table = TableModel(np.roll(np.eye(size), 1, axis=1))

    def decode(token_ids: list[int]) -> str:
        return b"".join(pieces[token] for token in token_ids).decode(errors="replace")

    return TextModels(table, (table,), lambda _: [0], decode, (), ("", ""))


def test_text_is_streamed_in_whole_characters():
    models = spelled(b"a", b"\xc3", b"\xa9", b"b", b"\xf0\x9f", b"\x8d\x8e")
    pieces: list[str] = []
    settings = decode_settings(models, prompt="a", tree=[1], max_new_tokens=5)
    text, _ = run_decode(models, settings, pieces.append)
    assert text == "éb\N{RED APPLE}"
    assert "".join(pieces) == "a" + text
    assert len(pieces) > 2
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


def test_an_unfinished_character_at_the_end_is_shown_as_such():
    models = spelled(b"a", b"b", b"\xc3")
    settings = decode_settings(models, prompt="a", tree=[1], max_new_tokens=2)
    text, _ = run_decode(models, settings)
    assert text == "b\N{REPLACEMENT CHARACTER}"


# --- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "drafts", "words"),
    [
        (None, ["d"], "target is missing"),
        ("t", [], "draft_model is missing"),
        ("nothere", ["."], "target is 'nothere', which is no folder"),
        (".", [".", "nothere"], "draft_model is 'nothere', which is no folder"),
    ],
)
def test_folders_are_checked_before_anything_is_imported(target, drafts, words):
    with pytest.raises(InvalidArgumentError, match=words):
        choose_models(None if target is None else Path(target), [Path(path) for path in drafts])


@pytest.mark.parametrize("module", ["torch", "transformers"])
def test_missing_extra_is_named(monkeypatch, tmp_path, module):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(UnsupportedError, match=r"pip install 'mdsd\[models\]'"):
        choose_models(tmp_path, [tmp_path])
