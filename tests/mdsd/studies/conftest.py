"""What tests of pictures and reports share."""

from __future__ import annotations

from pathlib import Path

import pytest

from mdsd.studies.grid import Study
from mdsd.studies.grid.report import study_report

from .grids import HOSTILE, random_data, run_small


@pytest.fixture(scope="session")
def pictured(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study that all kinds of pictures can be drawn of."""
    return run_small(
        random_data([HOSTILE]),
        tmp_path_factory.mktemp("studies") / "pictured",
        num_drafts=[1, 2, 3],
        temperatures=[0.0, 0.6, 1.0],
        drafts=["with_replacement", "without_replacement", "greedy"],
        verifiers=["naive", "rrs", "kseq", "greedy", "optimal"],
        top_k=[None, 4],
    )


@pytest.fixture(scope="session")
def page_of_pictured(pictured: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its report, in a file."""
    file = tmp_path_factory.mktemp("reports") / "report.html"
    file.write_text(study_report(pictured))
    return file
