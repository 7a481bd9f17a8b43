"""Studies of grids that tests draw and report: small ones, computed or made up."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mdsd import studies
from mdsd.datasets import Dataset
from mdsd.filters import CUT_COLUMNS, FILTER_COLUMNS, Filters
from mdsd.studies.grid import Study, StudyRow, read_study

HOSTILE = "org/</td><script>alert('x')</script> & \"tiny\" {{ 7 * 7 }} %s"


def random_data(models: Sequence[str], positions: int = 12, tokens: int = 8) -> Dataset:
    """Logits of a target, and of models that are ever further from it."""
    rng = np.random.default_rng(7)
    target = rng.normal(0.0, 2.0, (positions, tokens))
    drafts = {
        name: target + rng.normal(0.0, 0.8 + 0.5 * number, target.shape)
        for number, name in enumerate(models)
    }
    ones = np.ones(positions)
    return Dataset(
        name="made up",
        target_table=target,
        draft_tables=drafts,
        token_ids=np.tile(np.arange(tokens), (positions, 1)),
        target_kept_mass=ones,
        draft_kept_mass=dict.fromkeys(drafts, ones),
        provenance={"from": "a seed", "nested": {"deep": [1, 2]}},
        target_kind="logits",
        draft_kind="logits",
    )


def run_small(data: Dataset, folder: Path, **options: Any) -> Study:
    """Run a study, and read it."""
    asked = {"num_drafts": [2], **options}
    studies.study(data, **asked, output=folder)
    return read_study(folder)


def made_row(**changes: Any) -> StudyRow:
    """Make a row of a verifier that attains its bound, unless that is changed."""
    row: dict[str, Any] = {
        "draft_model": "small",
        "draft": "with_replacement",
        "num_drafts": 2,
        "filters": Filters(),
        "data": "made up",
        "seed": 0,
        "verifier": "rrs",
        "acceptance": 0.75,
        "stderr": 0.01,
        "q10": 0.5,
        "q50": 0.7,
        "q90": 0.9,
        "bound": 0.75,
        "bound_stderr": 0.02,
        "share_of_bound": 1.0,
        "best_draft": "without_replacement",
        "lost_to_model": 0.15,
        "lost_to_construction": 0.1,
        "positions": 10,
    }
    filters = {name: changes.pop(name) for name in FILTER_COLUMNS if name in changes}
    row |= {**changes, "filters": Filters(**filters)}
    row.setdefault("joint", row["draft"] == "independent")
    known = row["bound"] is not None and row["acceptance"] is not None
    row.setdefault("lost_to_verifier", row["bound"] - row["acceptance"] if known else None)
    return StudyRow(**row)


NOTHING: dict[str, Any] = dict.fromkeys(
    [
        "acceptance",
        "stderr",
        "q10",
        "q50",
        "q90",
        "bound",
        "bound_stderr",
        "share_of_bound",
        "best_draft",
        "lost_to_model",
        "lost_to_construction",
    ]
)
"""Changes that leave a row without numbers."""


def made_study(rows: Sequence[StudyRow], positions: int = 10) -> Study:
    """Make a study of rows, without the numbers of its positions."""
    plan = {
        "version": "1",
        "data": {"name": "made up", "fingerprint": "77", "positions": 20, "provenance": {}},
        "settings": {
            "positions": positions,
            **{name: [getattr(Filters(), name)] for name in CUT_COLUMNS},
            "seed": 0,
        },
        "cells": 1,
        "libraries": {"numpy": "2"},
    }
    return Study("folder", plan, (), tuple(rows))
