"""The folder of a study: it holds what is done, so that a study that was killed goes on from there.

::

    study.json                      data, settings and versions; written first, never changed
    parts/0000/000000000.parquet    a cell at a block of positions, until the cell is whole
    cells/0000.parquet              a cell at all positions, see `mdsd.studies.grid.cell_files`
    study.parquet, study.csv        the rows; written last

Every file is there in full or not at all, and nothing in it tells the time: the same study leaves
the same bytes, in one go or in several, whatever the number of workers.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

from mdsd._arguments import check_name, read_json_object
from mdsd._files import (
    as_path,
    check_folder_name,
    new_file,
    only_writer,
    os_errors,
    os_reason,
    path_name,
)
from mdsd._version import __version__
from mdsd.datasets import Source
from mdsd.errors import InvalidArgumentError
from mdsd.filters import CUT_COLUMNS
from mdsd.studies.frames import Rows
from mdsd.studies.grid.cell_files import CellFile, write_cell
from mdsd.studies.means import study_rows
from mdsd.studies.output import to_csv, to_parquet, write_files
from mdsd.studies.study_rows import StudyRow
from mdsd.studies.study_settings import StudySettings
from mdsd.studies.values import BlockValues, study_blocks
from mdsd.verifiers.built_in import USUAL_REFERENCE

Block = tuple[int, int]
"""First position, and the one after the last."""

_PLAN = "study.json"
_FILES = frozenset({_PLAN, "parts", "cells", "study.parquet", "study.csv"})
_MADE_OF_IT = (".html", ".png")
_TEMPORARY = re.compile(r"\.(study\.(json|parquet|csv)|\d+\.parquet|.+\.(html|png))\.\d+\.tmp")
_LIBRARIES = ("numpy", "scipy", "numba", "pyarrow")


@dataclass(frozen=True, eq=False)
class Study:
    """A study, as its folder holds it.

    Attributes
    ----------
    name : str
        Of the folder.
    plan : mapping
        What `study.json` says: version, data, settings and versions of libraries.
    cells : tuple of CellFile
        In the order of the rows.
    rows : Rows of StudyRow
    """

    name: str
    plan: Mapping[str, Any]
    cells: tuple[CellFile, ...]
    rows: Rows[StudyRow]


class StudyFolder:
    """A study while it runs, in a folder that `opened_study` gave it.

    Attributes
    ----------
    num_tasks : int
        All tasks, done or not: a cell at a block of positions each.
    """

    def __init__(self, path: Path, source: Source, settings: StudySettings) -> None:
        self._path = path
        self._cells, self._against = settings.cells, settings.against
        self._blocks = tuple(study_blocks(source, settings.positions))
        self.num_tasks = len(self._cells) * len(self._blocks)
        self._claim(_plan(source, settings))
        self._left = [self._blocks_left(number) for number in range(len(self._cells))]
        for number, left in enumerate(self._left):
            if not left:  # a kill may have come before it was joined, or half-way
                self._join(number)

    def tasks(self) -> list[tuple[int, Block]]:
        """List the tasks that are left: numbers of cells, with a block of positions each."""
        return [(number, block) for number, left in enumerate(self._left) for block in sorted(left)]

    def keep(self, number: int, block: Block, values: BlockValues) -> None:
        """Write the numbers of a cell at a block, and the cell if that is its last one.

        Raises
        ------
        InvalidArgumentError
            If a file cannot be written, or one of the other blocks cannot be read.
        """
        folder = self._parts(number)
        _make(folder)
        write_cell(folder / _part_name(block), self._cells[number], [values])
        self._left[number].discard(block)
        if not self._left[number]:
            self._join(number)

    def finish(self) -> Study:
        """Write the rows, once all cells are here.

        Raises
        ------
        InvalidArgumentError
            If a cell cannot be read, or a file cannot be written.
        """
        found = _read(self._path, self._against)
        for file, cell in zip(found.cells, self._cells, strict=True):
            if file.cell != cell:
                raise InvalidArgumentError(
                    f"{path_name(file.path)}: holds another cell; remove it to have it computed "
                    "again"
                )
        tables = {
            self._path / "study.parquet": to_parquet(found.rows),
            self._path / "study.csv": to_csv(found.rows).encode(),
        }
        # They may be there, of a comparison with another verifier.
        write_files({path: new for path, new in tables.items() if not _holds(path, new)})
        return found

    def _claim(self, plan: Mapping[str, Any]) -> None:
        """Make the folder one of this study, unless it is, and clear what a kill left in it."""
        path, file = self._path, self._path / _PLAN
        with os_errors(path, "cannot be read: "):
            begun = file.exists()
            foreign = sorted(
                entry.name for entry in path.iterdir() if not _may_be_here(entry, begun)
            )
            places = [path, path / "cells", *path.glob("parts/*")]
            leftovers = [
                entry
                for place in places
                for entry in place.glob(".*.tmp")
                if _TEMPORARY.fullmatch(entry.name)
            ]
        if foreign:
            which = f"but no {_PLAN}" if foreign[0] in _FILES else "which no study wrote"
            raise InvalidArgumentError(
                f"{path_name(path)}: holds {foreign[0]!r}, {which}; name another folder"
            )
        if begun:
            _check_same(path, plan)
        for leftover in leftovers:
            with suppress(OSError):
                leftover.unlink()
        if not begun:
            with new_file(file) as stream:
                stream.write(_to_json(plan))

    def _blocks_left(self, number: int) -> set[Block]:
        """Find the blocks of a cell that are not here."""
        if _cell_path(self._path, number).exists():
            return set()
        try:
            here = set(os.listdir(self._parts(number)))
        except OSError:
            here = set()
        return {block for block in self._blocks if _part_name(block) not in here}

    def _join(self, number: int) -> None:
        """Write a cell of which all blocks are here, unless it is written, and remove them."""
        cell, folder = _cell_path(self._path, number), self._parts(number)
        parts = [folder / _part_name(block) for block in self._blocks]
        if not cell.exists():
            _make(cell.parent)
            blocks = (CellFile(part).block() for part in parts)
            write_cell(cell, self._cells[number], blocks)
        # What stays because it cannot be removed takes room and does no harm.
        with suppress(OSError):
            for part in parts if folder.exists() else ():
                part.unlink(missing_ok=True)
        for emptied in (folder, folder.parent):
            with suppress(OSError):  # not empty yet, or gone
                emptied.rmdir()

    def _parts(self, number: int) -> Path:
        return self._path / "parts" / f"{number:04d}"


@contextmanager
def opened_study(path: Path, source: Source, settings: StudySettings) -> Iterator[StudyFolder]:
    """Open the folder of a study, for this process alone while the block runs.

    Parameters
    ----------
    path : path
        Made if it is not there. One that holds the same study, whole or in part, is gone on with.
    source : Source
    settings : StudySettings

    Yields
    ------
    StudyFolder

    Raises
    ------
    InvalidArgumentError
        If the folder holds anything else, another study included, another process is running it,
        it has the name of a file, or it cannot be written.
    """
    check_folder_name("output", path)
    _make(path)
    with only_writer(path):
        yield StudyFolder(path, source, settings)


def read_study(path: str | os.PathLike[str], against: str | None = None) -> Study:
    """Read the folder of a study.

    Parameters
    ----------
    path : path-like
    against : str, optional
        The verifier of the study with which all are compared; "rrs" if None, where it is one.

    Returns
    -------
    Study

    Raises
    ------
    InvalidArgumentError
        If the folder holds no study, an unfinished one, a file that cannot be read, or no such
        verifier.
    """
    found = _read(as_path(path), against or USUAL_REFERENCE)
    if against is not None:
        asked = (names for file in found.cells for _, names in file.cell.asked)
        check_name("against", against, tuple(dict.fromkeys(chain.from_iterable(asked))))
    return found


def _read(folder: Path, against: str | None) -> Study:
    plan = _read_plan(folder)
    cells = []
    for number in range(plan["cells"]):
        file = _cell_path(folder, number)
        if not file.exists():
            raise InvalidArgumentError(
                f"{path_name(folder)}: the study is not finished: {number} of {plan['cells']} "
                "cells; run it again to go on"
            )
        cells.append(CellFile(file))
    about = {"data": plan["data"]["name"], "seed": plan["settings"]["seed"]}
    rows = Rows(row for file in cells for row in study_rows(file.cell, file, about, against))
    return Study(folder.resolve().name, plan, tuple(cells), rows)


def _holds(path: Path, content: bytes) -> bool:
    return path.exists() and path.read_bytes() == content


def _cell_path(folder: Path, number: int) -> Path:
    return folder / "cells" / f"{number:04d}.parquet"


def _part_name(block: Block) -> str:
    return f"{block[0]:09d}.parquet"


def _make(folder: Path) -> None:
    with os_errors(folder, "cannot be a folder: "):
        folder.mkdir(parents=True, exist_ok=True)


def _may_be_here(entry: Path, begun: bool) -> bool:
    """Tell the files of a study that was begun, and of what is made of it, from others."""
    if begun and entry.name in _FILES:
        return True
    if entry.is_dir():  # of pictures
        return all(file.name.endswith(_MADE_OF_IT) for file in entry.iterdir())
    return entry.name.endswith(_MADE_OF_IT) or _TEMPORARY.fullmatch(entry.name) is not None


def _plan(source: Source, settings: StudySettings) -> dict[str, Any]:
    """Say what is asked of what data, and with what versions."""
    return {
        "version": __version__,
        "data": {
            "name": source.name,
            "fingerprint": source.fingerprint,
            "positions": source.num_positions,
            "provenance": read_json_object("provenance", source.provenance),
        },
        "settings": settings.describe(),
        "cells": len(settings.cells),
        "libraries": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in _LIBRARIES},
        },
    }


def _read_plan(path: Path) -> dict[str, Any]:
    file = path / _PLAN
    try:
        content = file.read_bytes()
    except OSError as error:
        reason = f"holds no study: {_PLAN}: {os_reason(file, error)}"
        raise InvalidArgumentError(f"{path_name(path)}: {reason}") from None
    try:
        plan = json.loads(content)
    except (ValueError, RecursionError):  # not JSON, or not even text
        plan = None
    if not _has_shape(plan, _SHAPE) or plan["cells"] < 1:
        raise InvalidArgumentError(f"{path_name(file)}: is not what a study writes")
    return dict(plan)


_SHAPE = {
    "version": str,
    "data": {"name": str, "fingerprint": str, "positions": int, "provenance": {}},
    "settings": {"positions": int, "seed": int, **dict.fromkeys(CUT_COLUMNS, list)},
    "cells": int,
    "libraries": {},
}
"""What `_plan` makes, as far as anyone reads it."""


def _has_shape(found: Any, shape: Any) -> bool:
    """Tell JSON of a type, or objects that have at least the entries of another, from the rest."""
    if isinstance(shape, type):
        return isinstance(found, shape)
    return isinstance(found, dict) and all(_has_shape(found.get(k), shape[k]) for k in shape)


def _check_same(path: Path, plan: Mapping[str, Any]) -> None:
    """Refuse to go on with another study than the one that a folder holds."""
    held = _read_plan(path)
    mine = json.loads(_to_json(plan))
    differing = [
        f"{part}.{name}"
        for part in ("data", "settings")
        for name in sorted({*held[part], *mine[part]})
        if name not in ("name", "provenance") and held[part].get(name) != mine[part].get(name)
    ]
    if held["version"] != mine["version"]:
        differing.append("version")
    if differing:
        raise InvalidArgumentError(
            f"{path_name(path)}: holds another study (it differs in {', '.join(differing)}); name "
            "another folder"
        )


def _to_json(plan: Mapping[str, Any]) -> bytes:
    return json.dumps(plan, indent=2, allow_nan=False).encode() + b"\n"
