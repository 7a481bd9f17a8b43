"""What commands do before and after a study: check files, show progress, write and print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from mdsd.studies.cases import Progress
    from mdsd.studies.output import Rows


def check_output(output: Path | None) -> None:
    """Refuse a table that could not be written, before anything is computed for it."""
    from mdsd.studies.output import TABLES, check_writable

    if output is not None:
        check_writable(output, TABLES)


@contextmanager
def drawing(
    plot: Path | None, name: str, dpi: int
) -> Iterator[Callable[[Callable[[], Figure]], dict[Path, bytes]]]:
    """Refuse a picture that could not be written, and give what draws it, if one was asked for.

    A folder that is made for it is removed again if the block fails.
    """
    from mdsd.studies.output import check_dpi, picture, picture_place

    check_dpi(dpi)
    with picture_place(plot, name) as place:
        yield (
            lambda draw: (
                {} if place is None else {place: picture(place.suffix.lower(), draw(), dpi)}
            )
        )


def deliver(
    rows: Rows,
    described: Mapping[str, Any],
    lay_out: Callable[[], RenderableType],
    as_json: bool,
    output: Path | None = None,
    more_files: Mapping[Path, bytes] = MappingProxyType({}),
    **more: Any,
) -> None:
    """Write the files, all of them or none, and then print."""
    from mdsd.studies.fitting import print_report
    from mdsd.studies.output import table, to_json, write_files

    files = dict(more_files)
    if output is not None:
        files = {output: table(output.suffix.lower(), rows, described, **more), **files}
    write_files(files)
    if as_json:
        click.echo(to_json(rows, described, **more))
    else:
        print_report(lay_out())


def renamed(options: Mapping[str, Any], plural: Sequence[str]) -> dict[str, Any]:
    """Give options their names in `mdsd.studies`, without those that were not given."""
    return {
        f"{name}s" if name in plural else name: value
        for name, value in options.items()
        if value is not None
    }


@contextmanager
def progress_bar(steps: str) -> Iterator[Progress | None]:
    """Show a bar on standard error where that is a terminal, and elsewhere a line now and then."""
    if not sys.stderr.isatty():
        with _told_now_and_then(steps) as progress:
            yield progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    layout = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*layout, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(steps, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


_PATIENCE = 60.0
"""Seconds between two lines of what is done, where there is no terminal for a bar."""


@contextmanager
def _told_now_and_then(steps: str) -> Iterator[Progress]:
    """Say what is done whenever a minute has passed: also while a step takes longer than that."""
    reached = [0, 0]
    over = Event()

    def tell() -> None:
        start = monotonic()
        while not over.wait(_PATIENCE):
            share = "{:,} of {:,}".format(*reached) if reached[1] else "still at"
            click.echo(f"mdsd: {share} {steps} after {monotonic() - start:.0f} s", err=True)

    def progress(done: int, total: int) -> None:
        reached[:] = done, total

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield progress
    finally:
        over.set()
        teller.join()
