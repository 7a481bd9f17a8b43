"""The code and the commands of the README run and print what stands below them."""

import pytest

from . import pages

TEXT = pages.README.read_text(encoding="utf-8")


def test_there_are_examples_and_the_table():
    blocks = pages.read_blocks(TEXT)
    assert sum(block.is_example for block in blocks) >= 3
    assert [block.command for block in blocks if block.command] == ["compare --num-drafts 3"]


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 200


@pytest.mark.usefixtures("folder")
def test_it_does_what_it_shows(tmp_path):
    pages.play(TEXT, tmp_path)
