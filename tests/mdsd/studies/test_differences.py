"""Paired differences between verifiers, and standard errors clustered by text."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import t as student

import mdsd
from mdsd import studies
from mdsd.datasets import Dataset, load, open_source, read_npz
from mdsd.errors import InvalidArgumentError
from mdsd.studies.grid import read_study
from mdsd.studies.study_rows import Mean, Texts

from ...commands import assert_refused, printed, run
from .grids import random_data

# --- the formula ---------------------------------------------------------------------------------

BY_HAND = {
    # Differences from the mean .45 add up to -.3 and .3: sqrt(2/1 * .18) / 4.
    "two texts of two": ([0.2, 0.4, 0.5, 0.7], [0, 0, 1, 1], 0.15),
    # Mean 2, sums -1 - 1 + 0 and 2: sqrt(2/1 * 8) / 4.
    "three and one": ([1.0, 1.0, 2.0, 4.0], [7, 7, 7, 3], 1.0),
    # Mean 0, sums 1, 1 and -2: sqrt(3/2 * 6) / 4; texts need not stand together.
    "three texts apart": ([1.0, -1.0, 2.0, -2.0], [5, 9, 9, 8], math.sqrt(9.0) / 4),
    "alike": ([0.5, 0.5], [0, 1], 0.0),
    "one text": ([0.2, 0.9], [4, 4], None),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_standard_errors_by_text_are_those_by_hand(name):
    values, texts, expected = BY_HAND[name]
    found = Mean(values, texts=Texts(texts)).stderr_by_text
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-14))


def test_unequal_texts_against_fractions():
    rng = np.random.default_rng(2)
    texts = rng.integers(0, 5, 23)
    values = [Fraction(int(k), 64) for k in rng.integers(0, 64, 23)]
    mean = sum(values) / 23
    sums = [sum(v - mean for v, t in zip(values, texts, strict=True) if t == g) for g in range(5)]
    squared = Fraction(5, 4) * sum(e * e for e in sums) / 23**2
    found = Texts(texts).stderr(np.array(values, dtype=np.float64))
    assert found == pytest.approx(math.sqrt(squared), rel=1e-13)


def test_a_position_a_text_is_the_usual_error_and_equal_texts_are_means():
    values = np.random.default_rng(3).random(24)
    alone = Mean(values, texts=Texts(np.arange(24)))
    assert alone.stderr_by_text == pytest.approx(alone.stderr, rel=1e-13)
    by_four = Mean(values, texts=Texts(np.repeat(np.arange(6), 4)))
    means = values.reshape(6, 4).mean(axis=1)
    assert by_four.stderr_by_text == pytest.approx(means.std(ddof=1) / math.sqrt(6), rel=1e-13)


def test_errors_by_text_cover_where_those_over_positions_do_not():
    runs, texts, each = 2000, 16, 9
    rng = np.random.default_rng(4)
    of_text, of_each = rng.normal(size=(runs, texts, 1)), rng.normal(size=(runs, texts, each))
    values = (of_text + of_each).reshape(runs, -1)
    group = Texts(np.repeat(np.arange(texts), each))
    means = [Mean(row, texts=group) for row in values]
    reach = student.ppf(0.975, texts - 1)
    covered = np.mean([abs(found.mean) <= reach * found.stderr_by_text for found in means])
    assert 0.93 < covered < 0.97  # 0.95 +- 0.005
    assert np.mean([abs(found.mean) <= reach * found.stderr for found in means]) < 0.75


# --- data ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [([3, 3, 8], [0, 0, 1]), (["b", "a", "b"], [0, 1, 0]), (np.uint8([1, 0, 1]), [0, 1, 0])],
)
def test_a_file_says_which_text_a_position_is_of(tmp_path, given, expected):
    laws = np.full((3, 2), 0.5)
    np.savez(tmp_path / "a.npz", target_probs=laws, draft_probs=laws, text_ids=given)
    data = read_npz(tmp_path / "a.npz")
    assert data.text_ids.tolist() == expected
    assert not data.text_ids.flags.writeable
    assert open_source(data).read(1, 3).text_ids.tolist() == expected[1:]


@pytest.mark.parametrize("given", [[0, 1], [[0], [1], [2]], [0.0, 1.0, 2.0], [True, False, True]])
def test_texts_of_another_form_are_refused(tmp_path, given):
    laws = np.full((3, 2), 0.5)
    np.savez(tmp_path / "a.npz", target_probs=laws, draft_probs=laws, text_ids=given)
    with pytest.raises(
        InvalidArgumentError, match=r"a\.npz: text_ids has shape .* expected \(3,\)"
    ):
        read_npz(tmp_path / "a.npz")


def test_the_embedded_texts_are_known():
    data = load("smollm2")
    assert np.bincount(data.text_ids).tolist() == [9] * 16
    assert open_source("smollm2").read(9, 10).text_ids.tolist() == [1]


def test_texts_are_part_of_what_a_data_set_is():
    data = random_data(["small"])
    texts = replace(data, text_ids=np.arange(12))
    others = replace(data, text_ids=np.arange(12) // 2)
    prints = {open_source(each).fingerprint for each in (data, texts, others)}
    assert len(prints) == 3


# --- rows ----------------------------------------------------------------------------------------

TEXTS = [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2]


@pytest.fixture(scope="module")
def data() -> Dataset:
    return replace(random_data(["small"]), text_ids=np.array(TEXTS))


def rates(data: Dataset, draft: str, verifier: str) -> np.ndarray:
    target = mdsd.probs_from_logits(data.target_table)
    drafted = mdsd.probs_from_logits(data.draft_tables["small"])
    return mdsd.acceptance_rates(target, drafted, draft=draft, num_drafts=2, verifier=verifier)


@pytest.mark.parametrize("against", [None, "rrs", "kseq", "optimal"])
def test_differences_are_those_at_the_same_positions(data, against):
    found = studies.compare(data, num_drafts=[2], drafts=["with_replacement"], against=against)
    reference = against or "rrs"
    other = rates(data, "with_replacement", reference)
    assert len(found) == 5
    for row in found:
        own = rates(data, "with_replacement", row.verifier)
        assert (row.reference, row.texts) == (reference, 3)
        assert row.difference == pytest.approx((own - other).mean(), rel=0, abs=1e-13)
        scatter = (own - other).std(ddof=1) / math.sqrt(12)
        assert row.difference_stderr == pytest.approx(scatter, rel=1e-9, abs=1e-15)
        for values, error in (
            (own - other, row.difference_stderr_by_text),
            (own, row.stderr_by_text),
        ):
            assert error == pytest.approx(Texts(TEXTS).stderr(values), rel=1e-9, abs=1e-15)
        assert row.stderr == pytest.approx(own.std(ddof=1) / math.sqrt(12), rel=1e-12)
    own = next(row for row in found if row.verifier == reference)
    assert (own.difference, own.difference_stderr, own.difference_stderr_by_text) == (0.0, 0.0, 0.0)


def test_without_the_reference_there_is_no_difference(data):
    rows = studies.compare(data, num_drafts=[2], drafts=["greedy", "spechub", "top_k"])
    assert len(rows) > 5
    for row in rows:
        missing = row.reference, row.difference, row.difference_stderr
        assert missing == (None, None, None)
        assert row.texts == 3
        assert row.stderr_by_text is not None


def test_data_without_texts_have_differences_without_errors_by_text():
    (first, *_) = studies.compare(
        random_data(["small"]),
        num_drafts=[2],
        drafts=["with_replacement"],
        verifiers=["rrs", "kseq"],
    )
    assert (first.texts, first.stderr_by_text, first.difference_stderr_by_text) == (None,) * 3
    assert first.verifier == "kseq"
    assert first.difference > 0.0
    assert first.difference_stderr > 0.0


def test_the_reference_joins_the_verifiers(data):
    rows = studies.compare(
        data, num_drafts=[2], drafts=["with_replacement"], verifiers=["kseq"], against="naive"
    )
    assert [row.verifier for row in rows] == ["kseq", "naive"]
    (row,) = studies.compare(data, num_drafts=[2], drafts=["with_replacement"], verifiers=["kseq"])
    assert (row.reference, row.difference) == (None, None)


def test_bounds_have_errors_by_text(data):
    (row,) = studies.bound(data, num_drafts=[2], drafts=["greedy"])
    assert row.bound_stderr_by_text == pytest.approx(Texts(TEXTS).stderr(np.array(row.values)))


# --- studies -------------------------------------------------------------------------------------


def test_a_study_has_them_and_another_reference_computes_nothing(data, tmp_path):
    asked = {"num_drafts": [2], "drafts": ["with_replacement", "greedy"], "output": tmp_path / "s"}
    rows = studies.study(data, **asked)
    compared = studies.compare(data, num_drafts=[2], drafts=["with_replacement", "greedy"])
    for row, other in zip(rows, compared, strict=True):
        for name in ("reference", "difference", "difference_stderr", "difference_stderr_by_text"):
            assert getattr(row, name) == getattr(other, name)
    column = pq.read_table(tmp_path / "s" / "cells" / "0000.parquet").column("text")
    assert column.to_pylist() == TEXTS
    first = (tmp_path / "s" / "study.csv").read_bytes()
    done: list[tuple[int, int]] = []
    again = studies.study(data, **asked, against="kseq", progress=lambda *step: done.append(step))
    assert done == []
    assert {row.reference for row in again} == {"kseq", None}
    assert (tmp_path / "s" / "study.csv").read_bytes() != first
    assert read_study(tmp_path / "s").rows == rows
    assert read_study(tmp_path / "s", "kseq").rows == again
    with pytest.raises(InvalidArgumentError, match=r"against is 'kesq'; .*'kseq'"):
        read_study(tmp_path / "s", "kesq")


def test_a_study_of_before_texts_were_kept_is_read(data, tmp_path):
    studies.study(data, num_drafts=[2], drafts=["greedy"], output=tmp_path / "s")
    file = tmp_path / "s" / "cells" / "0000.parquet"
    known = {b"mdsd": pq.read_metadata(file).metadata[b"mdsd"]}
    pq.write_table(pq.read_table(file).drop_columns("text").replace_schema_metadata(known), file)
    assert {row.texts for row in read_study(tmp_path / "s").rows} == {None}


# --- commands ------------------------------------------------------------------------------------


@pytest.fixture
def saved(folder: Path, data: Dataset) -> Path:
    np.savez(
        folder / "data.npz",
        target_logits=data.target_table,
        draft_logits=data.draft_tables["small"],
        text_ids=data.text_ids,
    )
    return folder


def test_tables_show_differences_when_asked(saved):
    asked = "compare data.npz --num-drafts 2 --draft with_replacement,greedy"
    assert "minus" not in printed(run(asked))
    said = printed(run(f"{asked} --against rrs"))
    assert "minus rrs" in said
    assert "clustered by text (3 texts)" in " ".join(said.split())
    rows = json.loads(printed(run(f"{asked} --json")))["rows"]
    kseq = next(row for row in rows if row["verifier"] == "kseq")
    points, error = 100 * kseq["difference"], 100 * kseq["difference_stderr_by_text"]
    assert f"{points:+.2f} ± {error:.2f}" in said
    assert {row["difference"] for row in rows if row["draft"] == "greedy"} == {None}
    said = printed(run("study data.npz --num-drafts 2 --draft with_replacement --against kseq"))
    assert "minus kseq" in said
    assert f"{-points:+.2f} ± {error:.2f}" in said
    assert_refused(run(f"{asked} --against kesq"), "against is 'kesq'", "'kseq'")
