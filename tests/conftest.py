"""What tests of commands have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from mdsd._solvers._compiled import silence


@pytest.fixture(scope="session", autouse=True)
def _no_word_of_compilation() -> None:
    """Commands are held to what they print: a kernel that is compiled late must not add a line."""
    silence()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, in a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path
