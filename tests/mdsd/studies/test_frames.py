"""Rows of studies: tuples that are shown as tables and turn into data frames."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

from mdsd import datasets, studies
from mdsd.datasets import Dataset
from mdsd.errors import UnsupportedError

OPTIONS = {"num_drafts": [2], "drafts": ["greedy"], "positions": 1}


@pytest.fixture(scope="module")
def rows():
    return studies.compare("smollm2", **OPTIONS)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_has_the_columns_and_types_of_the_rows(rows, library):
    pytest.importorskip(library)
    frame = rows.to_frame(library)
    assert type(frame).__module__.partition(".")[0] == library
    assert list(frame.columns) == studies_columns()
    assert list(frame["verifier"]) == [row.verifier for row in rows]
    assert list(frame["acceptance"]) == [row.acceptance for row in rows]
    assert [str(frame[name].dtype).lower() for name in ("acceptance", "stderr", "top_k")] == [
        "float64",  # a standard error of one position is None
        "float64",
        "int64",
    ]
    missing = frame["stderr"].isna() if library == "pandas" else frame["stderr"].is_null()
    assert missing.all()


def studies_columns():
    from mdsd.studies.study_rows import columns

    return list(columns(studies.CompareRow))


def test_no_rows_are_an_empty_frame(rows):
    pytest.importorskip("pandas")
    assert rows[:0].to_frame("pandas").shape == (0, 0)
    assert repr(rows[:0]) == "no rows"


@pytest.mark.parametrize("asked", ["pandas", "polars", None])
def test_a_library_that_is_missing_is_named(rows, monkeypatch, asked):
    for library in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, library, None)
    wanted = asked or "pandas"
    with pytest.raises(UnsupportedError, match=f"needs {wanted}: pip install {wanted}"):
        rows.to_frame(asked)


def test_rows_stay_a_tuple(rows):
    assert rows == tuple(rows)
    assert rows[0] == next(iter(rows))
    assert type(rows[:2]) is type(pickle.loads(pickle.dumps(rows))) is studies.Rows


def test_a_name_and_a_path_are_taken_where_a_data_set_is(tmp_path, rows):
    data = datasets.load("smollm2")
    assert studies.compare(data, **OPTIONS) == rows
    bounds = studies.bound("smollm2", **OPTIONS)
    assert bounds == studies.bound(data, **OPTIONS)
    law = [[0.5, 0.3, 0.2]]
    np.savez(tmp_path / "mine.npz", target_probs=law, draft_probs=law)
    assert studies.compare(tmp_path / "mine.npz", **OPTIONS)[0].acceptance == 1.0


@pytest.mark.parametrize("kind", ["probs", "logits"])
def test_arrays_are_what_a_file_of_them_is(tmp_path, kind):
    rng = np.random.default_rng(0)
    target, drafts = rng.dirichlet(np.ones(5), 3), rng.dirichlet(np.ones(5), (2, 3))
    if kind == "logits":
        target, drafts = np.log(target), np.log(drafts)
    more = {
        "token_ids": np.arange(15).reshape(3, 5),
        "target_kept_mass": np.array([1.0, 0.9, 0.8]),
        "draft_kept_mass": np.array([[1.0, 0.9, 0.8], [0.5, 0.5, 0.5]]),
        "text_ids": np.array(["news", "story", "news"]),
    }
    keys = {f"target_{kind}": target, f"draft_{kind}": drafts}
    np.savez(tmp_path / "mine.npz", draft_names=["a", "b"], **keys, **more)
    read = datasets.read_npz(tmp_path / "mine.npz")
    for masses in (more["draft_kept_mass"], dict(zip("ab", more["draft_kept_mass"], strict=True))):
        given = {**keys, f"draft_{kind}": dict(zip("ab", drafts.tolist(), strict=True))}
        made = Dataset.from_arrays(
            **given, **{**more, "draft_kept_mass": masses}, provenance={"by": "hand"}
        )
        for name, value in vars(read).items():
            own = getattr(made, name)
            if name in ("name", "provenance"):
                continue
            if isinstance(value, np.ndarray | str):
                np.testing.assert_array_equal(own, value)
            else:
                assert list(own) == list(value)
                np.testing.assert_array_equal(list(own.values()), list(value.values()))
    assert made.provenance == {"by": "hand"}
    plain = Dataset.from_arrays(**keys)
    assert list(plain.draft_tables) == ["draft_0", "draft_1"]
    assert made.target_table.flags.writeable is False


def test_rows_are_joined():
    one = studies.bound("smollm2", num_drafts=[2], drafts=["greedy"], positions=2)
    two = studies.bound("smollm2", num_drafts=[3], drafts=["greedy"], positions=2)
    joined = one + two
    assert type(joined) is type(one)
    assert list(joined) == [*one, *two]
    assert joined.to_frame("pandas")["num_drafts"].tolist() == [2, 3]
