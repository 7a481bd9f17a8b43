"""Kinds of drafts of other packages, and filters that nobody has thought of, in studies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd import datasets, studies
from mdsd.errors import InvalidArgumentError
from mdsd.filters import CUT_COLUMNS
from mdsd.studies.grid import read_study

P = np.array([[0.5, 0.3, 0.2, 0.0], [0.4, 0.35, 0.05, 0.2], [0.1, 0.2, 0.3, 0.4]])
Q = np.array([[0.2, 0.5, 0.3, 0.0], [0.6, 0.1, 0.1, 0.2], [0.25, 0.25, 0.25, 0.25]])
STUDIES = Path(studies.__file__).parent


class StubbornDraft(mdsd.DraftDistribution):
    """One token, drawn once: all drafts are the same, as in no package yet."""

    name = "stubborn"
    options = ("power",)

    def __init__(self, draft_probs: Any, num_drafts: int, power: float) -> None:
        probs = np.asarray(draft_probs, dtype=float) ** power
        self.probs = probs / probs.sum()
        self.num_drafts, self.vocab_size = num_drafts, len(probs)

    def hit_probs(self, order: Any) -> Any:
        return np.concatenate([[0.0], np.cumsum(self.probs[order])]).clip(0.0, 1.0)

    def sample(self, rng: Any, size: int | None = None) -> Any:
        drawn = np.random.default_rng(rng).choice(self.vocab_size, size or 1, p=self.probs)
        tuples = np.repeat(drawn[:, np.newaxis], self.num_drafts, axis=1)
        return tuples if size is not None else tuples[0]


@pytest.fixture
def data(tmp_path: Path) -> datasets.Dataset:
    np.savez(tmp_path / "data.npz", target_probs=P, draft_probs=Q)
    return datasets.read_npz(tmp_path / "data.npz")


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_kind_of_another_package_is_studied(data, tmp_path, power):
    kind = StubbornDraft.kind(power=power)
    asked = {"num_drafts": [2, 3], "drafts": [kind, "greedy"], "verifiers": ["optimal", "rrs"]}
    rows = studies.compare(data, **asked)
    # Only what can be drawn from: the drafts are as good as one.
    values = [
        np.minimum(p, StubbornDraft(q, 2, power).probs).sum() for p, q in zip(P, Q, strict=True)
    ]
    own = [row for row in rows if row.draft == f"stubborn:{power}"]
    assert [(row.verifier, row.num_drafts) for row in own] == [("optimal", 2), ("optimal", 3)]
    for row in own:
        assert row.bound == pytest.approx(np.mean(values), abs=1e-9)
        assert row.acceptance == pytest.approx(np.mean(values), abs=1e-9)
        assert (row.positions, row.missing) == (3, ())
    (bound,) = studies.bound(data, num_drafts=[2], drafts=[kind])
    assert bound.values == pytest.approx(values, abs=1e-9)
    folder = tmp_path / "study"
    found = studies.study(data, **asked, output=folder)
    assert read_study(folder).rows == found
    shared = ("draft", "num_drafts", "verifier", "acceptance", "bound")
    assert {tuple(getattr(row, name) for name in shared) for row in found} == {
        tuple(getattr(row, name) for name in shared) for row in rows
    }
    # Its drafts are worse than what else there is, which is said of it.
    best = {row.best_draft for row in found if row.draft == kind.label}
    assert best == {"greedy", "without_replacement"}
    with pytest.raises(InvalidArgumentError, match=r"settings\.(drafts|given_drafts)"):
        studies.study(data, **{**asked, "drafts": [StubbornDraft.kind(power=2.0)]}, output=folder)


def test_two_kinds_of_one_label_are_refused(data):
    other = type("StubbornDraft", (StubbornDraft,), {})
    with pytest.raises(InvalidArgumentError, match=r"two of the name 'stubborn:1\.0'"):
        studies.bound(data, drafts=[StubbornDraft.kind(power=1.0), other.kind(power=1.0)])


@pytest.mark.parametrize("name", [name for name in CUT_COLUMNS if name != "top_k"])
def test_no_study_knows_a_filter_by_name(name):
    """A filter added to `Filters` reaches studies without them (top_k is also a kind of draft)."""
    knowing = {
        str(path.relative_to(STUDIES)): line
        for path in (*STUDIES.rglob("*.py"), *(STUDIES.parent / "cli").glob("*.py"))
        for line in re.sub(r'""".*?"""', "", path.read_text("utf-8"), flags=re.DOTALL).splitlines()
        if re.search(rf"\b{name}\b", line)
    }
    assert knowing == {}
