"""The rows that a study gives: a tuple that is shown as a table, and turns into a data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, SupportsIndex, TypeVar, overload

from mdsd._arguments import check_name
from mdsd._extras import is_installed
from mdsd._shown import html_rows, html_table
from mdsd.errors import UnsupportedError
from mdsd.studies.study_rows import Row, columns, record

AnyRow = TypeVar("AnyRow", bound=Row, covariant=True)

_MOST_SHOWN = 40
"""Most rows that are shown."""


class Rows(tuple[AnyRow, ...]):
    """Rows of one kind.

    Examples
    --------
    >>> from mdsd import studies
    >>> rows = studies.compare("smollm2", num_drafts=[2], drafts=["greedy"], positions=5)
    >>> rows
    3 rows of CompareRow, all with data smollm2, draft_model drop2, draft greedy, num_drafts 2, \
temperature 1, top_p 1, min_p 0, seed 0, bound 0.7346, bound_stderr 0.06959, positions 5, texts 1
    verifier  acceptance  stderr  share_of_bound
    greedy        0.7346  0.0696          1.0000
    optimal       0.7346  0.0696          1.0000
    naive         0.2693  0.1620          0.3666
    >>> rows[0].acceptance == max(row.acceptance for row in rows)
    True
    """

    __slots__ = ()

    def to_frame(self, library: str | None = None) -> Any:
        """Give the rows as a data frame, one column for each of CSV and parquet files.

        Parameters
        ----------
        library : {"pandas", "polars"}, optional
            The first that is installed if None.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            What is None in a row is a missing value.

        Raises
        ------
        InvalidArgumentError
            If `library` is none of these.
        UnsupportedError
            If it is not installed.

        Examples
        --------
        >>> from mdsd import studies
        >>> rows = studies.bound("smollm2", num_drafts=[2, 3], drafts=["greedy"], positions=5)
        >>> rows.to_frame("pandas")[["draft", "num_drafts", "bound"]].round(3)
            draft  num_drafts  bound
        0  greedy           2  0.735
        1  greedy           3  0.775
        """
        if library is None:
            name = next(filter(is_installed, _FRAMES), "pandas")
        else:
            name = check_name("library", library, _FRAMES)
        if not is_installed(name):
            raise UnsupportedError(f"a data frame needs {name}: pip install {name}")
        module = import_module(name)
        kinds = {
            column: _FRAMES[name].get(kind)
            for column, kind in (columns(type(self[0])) if self else {}).items()
        }
        records = [record(row) for row in self]
        values = {column: [each[column] for each in records] for column in kinds}
        if name == "polars":
            typed = {column: kind and getattr(module, kind) for column, kind in kinds.items()}
            return module.DataFrame(values, schema=typed)
        made = {column: module.Series(values[column], dtype=kinds[column]) for column in kinds}
        return module.DataFrame(made)

    def __add__(self, other: Any, /) -> Rows[Any]:
        """Give these rows and those of another study, of one kind for `to_frame`."""
        return Rows((*self, *other)) if isinstance(other, tuple) else NotImplemented

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> AnyRow: ...
    @overload
    def __getitem__(self, key: slice, /) -> Rows[AnyRow]: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> AnyRow | Rows[AnyRow]:
        if isinstance(key, slice):
            return Rows(super().__getitem__(key))
        return super().__getitem__(key)

    def __repr__(self) -> str:
        caption, heads, lines = self._table()
        if not lines:
            return caption
        numeric = [_is_number(self[0], head) for head in heads]
        widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
        return "\n".join(
            [
                caption,
                *(
                    "  ".join(
                        cell.rjust(width) if right else cell.ljust(width)
                        for cell, width, right in zip(line, widths, numeric, strict=True)
                    ).rstrip()
                    for line in (heads, *lines)
                ),
            ]
        )

    def _repr_html_(self) -> str:
        caption, heads, lines = self._table()
        return html_table(caption, html_rows(heads, lines) if lines else ())

    def _table(self) -> tuple[str, list[str], list[list[str]]]:
        """Give what all rows share in words, and the other columns with their heads."""
        if not self:
            return "no rows", [], []
        records = [record(row) for row in self]
        heads = [name for name in records[0] if len({row[name] for row in records}) > 1]
        shared = [
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {_written(value)}"
            for name, value in records[0].items()
            if name not in heads and value is not None
        ]
        kind = type(self[0]).__name__
        many = f"{len(self):,} rows of {kind}, all with " if len(self) > 1 else f"{kind}: "
        lines = [[_written(row[name]) for name in heads] for row in records[:_MOST_SHOWN]]
        if len(self) > _MOST_SHOWN:
            lines.append(["..." for _ in heads])
        return many + ", ".join(shared), heads, lines if heads else []


_FRAMES: Mapping[str, Mapping[str, str]] = {
    "pandas": {
        "int": "int64",
        "float": "float64",
        "float | None": "float64",
        "int | None": "Int64",
    },
    "polars": {
        "str": "String",
        "str | None": "String",
        "int": "Int64",
        "int | None": "Int64",
        "float": "Float64",
        "float | None": "Float64",
    },
}
"""Types of columns by the types of fields, where the library does not find them out by itself."""


def _is_number(row: Row, column: str) -> bool:
    return not columns(type(row))[column].startswith(("str", "tuple"))


def _written(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(_written, value))
    return "" if value is None else str(value)
