"""Files of a study: tables, pictures, and writing them whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mdsd._arguments import check_whole
from mdsd._extras import require
from mdsd._files import check_folder_name, destination, os_reason, temporary_path
from mdsd._version import __version__
from mdsd.errors import InvalidArgumentError
from mdsd.studies.study_rows import Row, columns, record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Row]

TABLES = (".csv", ".json", ".parquet")
"""Endings of files of rows."""

PICTURES = (".png", ".svg", ".pdf")
"""Endings of files of figures."""

_EXTRA_OF = {".parquet": "study", ".html": "report", **dict.fromkeys(PICTURES, "plot")}
"""The extra of mdsd that writes files of an ending, where one is needed."""

_PICTURE = f"a name that ends in {' or '.join(PICTURES)},"

SCREEN_DPI, PAPER_DPI = 150, 300
"""Dots per inch of pictures in a page, and of those that are written for papers."""

_MOST_PIXELS = 60_000
"""Along an edge: of more, none can be drawn."""


def table(ending: str, rows: Rows, settings: Mapping[str, Any], **more: Any) -> bytes:
    """Write rows as the file of an ending of `TABLES`; settings stand in JSON only."""
    if ending == ".json":
        return f"{to_json(rows, settings, **more)}\n".encode()
    return to_parquet(rows) if ending == ".parquet" else to_csv(rows).encode()


def picture(ending: str, figure: Figure, dpi: int = SCREEN_DPI) -> bytes:
    """Render a figure as the file of an ending of `PICTURES`: always the same bytes.

    A figure too large for so many dots per inch gets fewer.
    """
    import matplotlib as mpl

    undated: dict[str, dict[str, Any]] = {
        ".svg": {"Date": None},
        ".pdf": {"CreationDate": None},
    }
    stream = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "mdsd"}):
        most = _MOST_PIXELS / max(figure.get_size_inches())
        figure.savefig(stream, format=ending[1:], dpi=min(dpi, most), metadata=undated.get(ending))
    return stream.getvalue()


def to_json(rows: Rows, settings: Mapping[str, Any], **more: Any) -> str:
    """Write rows and settings as JSON; None becomes null, and NaN is refused.

    `more` stands between the two.

    Examples
    --------
    >>> print(to_json([], {"seed": 0}))
    {
      "version": "0.1.0",
      "settings": {
        "seed": 0
      },
      "rows": []
    }
    """
    return tables_to_json({"rows": rows}, settings, **more)


def tables_to_json(tables: Mapping[str, Rows], settings: Mapping[str, Any], **more: Any) -> str:
    """Write several tables as `to_json` writes one, each under its name."""
    report = {
        "version": __version__,
        "settings": dict(settings),
        **more,
        **{name: [record(row) for row in rows] for name, rows in tables.items()},
    }
    return json.dumps(report, indent=2, allow_nan=False)


def to_csv(rows: Rows) -> str:
    """Write rows as CSV with a header line; None becomes an empty field, a tuple its entries."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns(type(rows[0]))), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _field(value) for name, value in record(row).items()})
    return text.getvalue()


def to_parquet(rows: Rows) -> bytes:
    """Write rows of words, numbers and lists of them as a parquet file; None becomes null."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    kinds |= {f"tuple[{name},": pa.list_(kind) for name, kind in kinds.items()}
    # By its field, as a column may have no number to tell.
    records = [record(row) for row in rows]
    arrays = {
        name: pa.array([r[name] for r in records], kinds[kind.split()[0]])
        for name, kind in columns(type(rows[0])).items()
    }
    stream = io.BytesIO()
    pq.write_table(pa.table(arrays), stream)
    return stream.getvalue()


def _field(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def check_writable(path: Path, endings: Iterable[str]) -> None:
    """Refuse a file that could not be written, before there is anything to lose.

    Raises
    ------
    InvalidArgumentError
        If the ending is none of `endings`, or its folder takes no new file.
    UnsupportedError
        If libraries that write such a file are not installed.
    """
    known = tuple(endings)
    ending = path.suffix.lower()
    if ending not in known:
        raise InvalidArgumentError(f"{path}: expected a name that ends in {' or '.join(known)}")
    if ending in _EXTRA_OF:
        require(_EXTRA_OF[ending], f"{path}:")
    if os.path.isdir(path):
        raise InvalidArgumentError(f"{path}: cannot be written: it is a folder")
    if os.path.exists(path) and not os.path.isfile(path):
        raise InvalidArgumentError(f"{path}: cannot be written: it is not a regular file")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise InvalidArgumentError(f"{path}: cannot be written: it is read-only")
    # What a folder takes (rights, read-only disks, names too long) is known by trying only.
    temporary = temporary_path(path)
    try:
        temporary.open("xb").close()
        temporary.unlink()
    except OSError as error:
        reason = os_reason(path, error)
        raise InvalidArgumentError(f"{path}: cannot be written: {reason}") from None


def check_dpi(dpi: int) -> int:
    """Check the dots per inch of a picture.

    Raises
    ------
    InvalidArgumentError
        If it is none of 10 to 2400.
    """
    return check_whole("dpi", dpi, 10, 2400)


@contextmanager
def picture_place(plot: Path | None, name: str | None) -> Iterator[Path | None]:
    """Give the place of pictures: a name that ends as a picture's is a file, any other a folder.

    Parameters
    ----------
    plot : path or None
        None for no pictures.
    name : str or None
        Of the picture, in a folder; None for several pictures, which need a folder.

    Yields
    ------
    path or None
        Of the picture or, of several, their folder.

    Raises
    ------
    InvalidArgumentError
        If it is the name of a file of another kind, or of one file for several pictures, or as
        `check_writable` and `writable_folder`.
    """
    if plot is None:
        yield None
    elif name is not None and plot.suffix.lower() in PICTURES:
        check_writable(plot, PICTURES)
        yield plot
    else:
        check_folder_name("plot", plot, "a folder" if name is None else f"{_PICTURE} or a folder")
        with writable_folder(plot, [name or "any.png"]):
            yield plot / (name or "")


@contextmanager
def writable_folder(path: Path | None, names: Iterable[str]) -> Iterator[None]:
    """Make a folder that takes files of these names, unless it is there.

    One made here is removed again if the block fails.

    Parameters
    ----------
    path : path or None
        None for no folder and no files.
    names : iterable of str

    Raises
    ------
    InvalidArgumentError
        If there is something else in its place, it has the name of a file, it cannot be made, or a
        file could not be written.
    """
    if path is None:
        yield
        return
    check_folder_name("output", path)
    made = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidArgumentError(
                f"{path}: cannot be a folder: {os_reason(path, error)}"
            ) from None
        for name in names:
            check_writable(path / name, [Path(name).suffix])
        yield
    except BaseException:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        raise


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write files so that each is there in full or not at all.

    All are written under temporary names in their own folders first, and then renamed.

    Raises
    ------
    InvalidArgumentError
        If one cannot be written; none is left behind then.
    """
    waiting: dict[Path, Path] = {}
    path = Path()
    try:
        for path, content in contents.items():
            temporary = temporary_path(path)
            waiting[temporary] = path
            temporary.write_bytes(content)
        for temporary, path in waiting.items():
            temporary.replace(destination(path))
    except OSError as error:
        raise InvalidArgumentError(f"{path}: cannot be written: {os_reason(path, error)}") from None
    finally:
        for temporary in waiting:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
