"""New files are there in full or not at all, and replace none."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from mdsd._files import as_path, new_file, only_writer, path_name, temporary_path
from mdsd.errors import InvalidArgumentError


def write(path: Any, content: bytes = b"new") -> None:
    with new_file(path) as stream:
        stream.write(content)


def test_nothing_has_the_name_before_the_end(tmp_path):
    path = tmp_path / "mine"
    with new_file(path) as stream:
        stream.write(b"new")
        assert [file.name for file in tmp_path.iterdir()] == [temporary_path(path).name]
    assert [file.name for file in tmp_path.iterdir()] == ["mine"]
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_failure_leaves_nothing(tmp_path, error):
    def begin() -> None:
        with new_file(tmp_path / "mine") as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(error):
        begin()
    assert list(tmp_path.iterdir()) == []


def without_links(*arguments: Any) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_is_there_stays(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", without_links)
    path = tmp_path / "mine"
    path.write_bytes(b"old")
    with pytest.raises(InvalidArgumentError, match="mine: is there already"):
        write(path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("mine", b"old")]


def test_systems_without_hard_links(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", without_links)
    write(tmp_path / "mine")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("mine", b"new")]


def test_no_folder(tmp_path):
    with pytest.raises(
        InvalidArgumentError, match=r"gone/mine: cannot .*: there is no folder .*gone$"
    ):
        write(tmp_path / "gone" / "mine")


def test_a_leftover_of_the_same_process_number_is_overwritten(tmp_path):
    temporary_path(tmp_path / "mine").write_bytes(b"left by a kill, and long")
    write(tmp_path / "mine")
    assert (tmp_path / "mine").read_bytes() == b"new"


@pytest.mark.parametrize("value", [None, 3, b"mine", ["mine"], "a\0b"], ids=repr)
def test_what_is_no_path(value):
    with pytest.raises(InvalidArgumentError) as caught:
        as_path(value, "folder")
    assert len(str(caught.value).splitlines()) == 1


def test_names_are_one_line(tmp_path):
    assert path_name(tmp_path / "a\nb") == repr(str(tmp_path / "a\nb"))


def test_only_writer_keeps_others_out_while_it_lasts(tmp_path):
    pytest.importorskip("fcntl")
    for _ in range(2):  # and no longer
        with (
            only_writer(tmp_path),
            pytest.raises(InvalidArgumentError, match="another process is writing to it"),
            only_writer(tmp_path),
        ):
            pytest.fail("both write")
    with pytest.raises(InvalidArgumentError, match="nowhere: "), only_writer(tmp_path / "nowhere"):
        pytest.fail("both write")
