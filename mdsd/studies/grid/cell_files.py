"""The file of a cell: one row a position, one column a bound or an acceptance (parquet).

A column says which text a position is of, null where the data do not. For every kind of draft a
column of truth values says where its n tokens can be drafted; elsewhere its numbers are null. What
the cell is, and why columns were not computed, stands in the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mdsd._arguments import one_line
from mdsd._files import new_file, path_name
from mdsd._typing import AnyArray
from mdsd.errors import InvalidArgumentError
from mdsd.filters import Filters
from mdsd.studies.cells import TEXT_COLUMN, Cell, DraftedFrom
from mdsd.studies.study_rows import Missing
from mdsd.studies.values import BlockValues

_KEY = "mdsd"


class CellFile:
    """Numbers of one cell at all its positions.

    Parameters
    ----------
    path : path

    Attributes
    ----------
    path : path
    cell : Cell
    missing : mapping of str to Missing
        Columns that were not computed, and why.

    Raises
    ------
    InvalidArgumentError
        If the file cannot be read, or is none of a study.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _reading(path):
            import pyarrow.parquet as pq

            footer = pq.read_metadata(path)
            self._positions, self._has_texts = footer.num_rows, TEXT_COLUMN in footer.schema.names
            described = json.loads(footer.metadata[_KEY.encode()])
            self.cell = _read_cell(described["cell"])
            self.missing: Mapping[str, Missing] = {
                column: Missing(**found) for column, found in described["missing"].items()
            }

    def column(self, name: str) -> AnyArray:
        """Read one column, as `columns` reads several."""
        return self.columns([name])[name]

    def columns(self, names: Sequence[str]) -> dict[str, AnyArray]:
        """Read columns; memory is that of these.

        Parameters
        ----------
        names : sequence of str
            As `DraftedFrom` gives them.

        Returns
        -------
        dict of (str, ndarray of float64, int64 or bool, shape (N,))
            NaN where a number is null.
        """
        # Studies of a time before texts were kept do not know them.
        here = [name for name in names if name != TEXT_COLUMN or self._has_texts]
        with _reading(self.path):
            import pyarrow.parquet as pq

            table = pq.read_table(
                self.path, columns=here, use_threads=False, page_checksum_verification=True
            )
            found = dict.fromkeys(names, np.full(self._positions, np.nan))
            found |= {name: table.column(name).to_numpy() for name in here}
            for name, values in found.items():
                # A damaged page header may cost a column its rows and pass its checksum.
                if len(values) != self._positions:
                    raise ValueError(f"{name!r} has {len(values)} of {self._positions} positions")
        return found

    def block(self) -> BlockValues:
        """Read all columns."""
        return BlockValues(self.columns(self.cell.columns), self.missing)


def write_cell(path: Path, cell: Cell, blocks: Iterable[BlockValues]) -> None:
    """Write the numbers of a cell, block by block.

    Parameters
    ----------
    path : path
        Of no file yet, nor before this one is whole.
    cell : Cell
    blocks : iterable of BlockValues
        In the order of the positions, read one at a time.

    Raises
    ------
    InvalidArgumentError
        If the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {TEXT_COLUMN: pa.int64()}
    kinds |= {each.drawable_column: pa.bool_() for each in cell.drafted}
    schema = pa.schema([(name, kinds.get(name, pa.float64())) for name in cell.columns])
    missing: dict[str, Missing] = {}
    with (
        new_file(path) as stream,
        pq.ParquetWriter(stream, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for values in blocks:
            for column, found in values.missing.items():
                missing.setdefault(column, found)
            arrays = [
                pa.array(values.columns[each.name], each.type, from_pandas=True) for each in schema
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
        described = {
            "cell": asdict(cell),
            "missing": {column: asdict(found) for column, found in missing.items()},
        }
        writer.add_key_value_metadata({_KEY: json.dumps(described)})


def _read_cell(described: Mapping[str, Any]) -> Cell:
    asked = ((_drafted(each), tuple(verifiers)) for each, verifiers in described["asked"])
    return Cell(
        tuple(described["draft_models"]),
        described["num_drafts"],
        Filters(**described["filters"]),
        described["joint"],
        tuple(asked),
        tuple(map(_drafted, described["yardsticks"])),
    )


def _drafted(described: Mapping[str, Any]) -> DraftedFrom:
    return DraftedFrom(described["draft"], tuple(described["draft_models"]))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InvalidArgumentError(f"{path_name(path)}: is missing") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:  # pyarrow's too
        raise InvalidArgumentError(
            f"{path_name(path)}: cannot be read: {one_line(error)}; "
            "remove it to have it computed again"
        ) from None
