"""The folder of a study: it holds what is done, so that a study that was killed goes on from there.

::

    study.json              data, settings and versions; written first, never changed
    parts/0000/000000.parquet   a cell at a block of positions, until the cell is whole
    cells/0000.parquet      a cell at all positions, see `mdsd.studies.grid.cell_files`
    study.parquet, study.csv    the rows; written last

Every file is there in full or not at all, and nothing in it tells the time: the same study leaves
the same bytes, in one go or in several, whatever the number of workers.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from mdsd._files import path_name
from mdsd._version import __version__
from mdsd.datasets import Source
from mdsd.errors import InvalidArgumentError
from mdsd.studies.grid.cell_files import CellFile, write_cell
from mdsd.studies.grid.rows import StudyRow, study_rows
from mdsd.studies.grid.settings import GridSettings
from mdsd.studies.grid.values import BlockValues
from mdsd.studies.output import to_csv, to_parquet, write_files

__all__ = ["Block", "Study", "StudyFolder", "read_study"]

Block = tuple[int, int]
"""First position, and the one after the last."""

_PLAN = "study.json"
_FILES = frozenset({_PLAN, "parts", "cells", "study.parquet", "study.csv"})
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
    rows : tuple of StudyRow
    """

    name: str
    plan: Mapping[str, Any]
    cells: tuple[CellFile, ...]
    rows: tuple[StudyRow, ...]


class StudyFolder:
    """A study while it runs.

    Parameters
    ----------
    path : path
        Made if it is not there. One that holds the same study, whole or in part, is gone on with.
    source : Source
    settings : GridSettings

    Raises
    ------
    InvalidArgumentError
        If the folder holds anything else, another study included, or cannot be written.
    """

    def __init__(self, path: Path, source: Source, settings: GridSettings) -> None:
        self._path = path
        self._cells = settings.cells
        self._blocks = tuple(
            (start, min(stop, settings.positions))
            for start, stop in source.blocks
            if start < settings.positions
        )
        plan = _plan(source, settings)
        try:
            path.mkdir(parents=True, exist_ok=True)
            leftovers = {*path.glob(".*.tmp"), *path.glob("*/**/.*.tmp")}  # of a kill
            foreign = sorted(
                entry.name
                for entry in path.iterdir()
                if not _may_be_here(entry) and entry not in leftovers
            )
        except OSError as error:
            raise InvalidArgumentError(
                f"{path_name(path)}: cannot be a folder: {error.strerror}"
            ) from None
        if foreign:
            raise InvalidArgumentError(
                f"{path_name(path)}: holds {foreign[0]!r}, which no study wrote; name another "
                "folder"
            )
        if (path / _PLAN).exists():
            _check_same(path, plan)
        else:
            write_files({path / _PLAN: _to_json(plan)})
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)

    def tasks(self) -> list[tuple[int, Block]]:
        """List all tasks: numbers of cells, with each block of positions."""
        return [(number, block) for number in range(len(self._cells)) for block in self._blocks]

    def is_done(self, number: int, block: Block) -> bool:
        """Tell whether the numbers of a cell at a block are here."""
        return self._cell(number).exists() or self._part(number, block).exists()

    def keep(self, number: int, block: Block, values: BlockValues) -> None:
        """Write the numbers of a cell at a block, and the cell if that is its last one."""
        self._make(self._part(number, block).parent)
        write_cell(self._part(number, block), self._cells[number], [values])
        self.join(number)

    def join(self, number: int) -> None:
        """Write a cell of which all blocks are here."""
        parts = [self._part(number, block) for block in self._blocks]
        if not self._cell(number).exists():
            if not all(part.exists() for part in parts):
                return
            self._make(self._cell(number).parent)
            blocks = (CellFile(part).block() for part in parts)
            write_cell(self._cell(number), self._cells[number], blocks)
        for part in parts:
            part.unlink(missing_ok=True)
        for folder in (parts[0].parent, parts[0].parent.parent):
            with suppress(OSError):  # not empty yet, or gone
                folder.rmdir()

    def finish(self) -> tuple[StudyRow, ...]:
        """Write the rows, once all cells are here."""
        rows = read_study(self._path).rows
        tables = {
            self._path / "study.parquet": to_parquet(rows),
            self._path / "study.csv": to_csv(rows).encode(),
        }
        write_files({path: content for path, content in tables.items() if not path.exists()})
        return rows

    def _make(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def _cell(self, number: int) -> Path:
        return self._path / "cells" / f"{number:04d}.parquet"

    def _part(self, number: int, block: Block) -> Path:
        return self._path / "parts" / f"{number:04d}" / f"{block[0]:09d}.parquet"


def read_study(path: Path) -> Study:
    """Read the folder of a study.

    Parameters
    ----------
    path : path

    Returns
    -------
    Study

    Raises
    ------
    InvalidArgumentError
        If the folder holds no study, an unfinished one, or a file that cannot be read.
    """
    plan = _read_plan(path)
    cells = []
    for number in range(plan["cells"]):
        file = path / "cells" / f"{number:04d}.parquet"
        if not file.exists():
            raise InvalidArgumentError(
                f"{path_name(path)}: the study is not finished: {number} of {plan['cells']} cells; "
                "run it again to go on"
            )
        cells.append(CellFile(file))
    rows = tuple(row for cell in cells for row in study_rows(cell))
    return Study(path.resolve().name, plan, tuple(cells), rows)


def _may_be_here(entry: Path) -> bool:
    """Tell the files of a study, and of what is made of it, from others."""
    return entry.name in _FILES or entry.suffix in {".html", ".png"}


def _plan(source: Source, settings: GridSettings) -> dict[str, Any]:
    """Say what is asked of what data, and with what versions."""
    return {
        "version": __version__,
        "data": {
            "name": source.name,
            "fingerprint": source.fingerprint,
            "positions": source.num_positions,
            "provenance": dict(source.provenance),
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
        plan = json.loads(file.read_bytes())
        whole = isinstance(plan["cells"], int) and {"version", "data", "settings"} <= plan.keys()
    except OSError as error:
        raise InvalidArgumentError(
            f"{path_name(path)}: holds no study: {_PLAN}: {error.strerror}"
        ) from None
    except (ValueError, TypeError, KeyError):
        whole = False
    if not whole:
        raise InvalidArgumentError(f"{path_name(file)}: is not what a study writes")
    return dict(plan)


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
