"""Studies of a grid: every verifier in every cell, and where the lost acceptance goes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack

from mdsd._extras import require
from mdsd._files import as_path
from mdsd.datasets import Dataset, Source, open_source
from mdsd.drafts import Draft
from mdsd.filters import CUT_COLUMNS, FilterAxes, check_filter_names
from mdsd.studies.cases import Progress, Steps, check_progress
from mdsd.studies.frames import Rows
from mdsd.studies.grid.folder import Block, Study, opened_study
from mdsd.studies.grid.workers import check_workers, run_tasks
from mdsd.studies.study_rows import StudyRow
from mdsd.studies.study_settings import StudySettings, study_settings
from mdsd.studies.values import BlockValues, FilteredBlock, block_values
from mdsd.verifiers import Verifier


def study(
    data: str | os.PathLike[str] | Dataset,
    *,
    num_drafts: Iterable[int] = (2, 3, 4),
    drafts: Iterable[Draft] | None = None,
    draft_models: Iterable[str] | None = None,
    verifiers: Iterable[str | Verifier] | None = None,
    against: str | None = None,
    temperatures: Iterable[float] = (1.0,),
    positions: int | None = None,
    seed: int = 0,
    output: str | os.PathLike[str] | None = None,
    workers: int | None = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
    **filters: Unpack[FilterAxes],
) -> Rows[StudyRow]:
    """Run every verifier in every cell of a grid, and say where the lost acceptance goes.

    Parameters
    ----------
    data : str, path-like or Dataset
        The name of an embedded data set, an `.npz` file, a folder that `mdsd capture` wrote, or
        what `mdsd.datasets` read.
    num_drafts, drafts, draft_models, verifiers, against, temperatures, positions
        As for `compare`.
    seed : int, default 0
        Seed of acceptance rates that are estimated.
    output : path-like, optional
        Folder to keep the study in: numbers of every position, and the rows as parquet and CSV. If
        it holds the same study unfinished, what is done is not done again.
    workers : int or None, default 1
        Local processes; 1 is this one alone, None one for each core.
    scheduler : str, optional
        Address of a Dask scheduler, whose workers are used instead. They must find `data` under
        the same path.
    progress : callable, optional
        Called with (tasks done, all tasks); a task is a cell at a block of positions.
    **filters
        Lists of filters for target and draft alike, such as `top_k` and `top_p` of
        `mdsd.probs_from_logits`; the grid has every combination.

    Returns
    -------
    Rows of StudyRow
        By cell and draft distribution, best first. They depend on nothing but the data, the options
        of their own cell and the seed: not on the number of workers, nor on other cells.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, nothing is left to compute, the output
        folder holds something else, is in use or cannot be written, or the scheduler does not
        answer.
    InvalidDistributionError
        If the data cannot be read.
    UnsupportedError
        If libraries that a study needs are not installed; with a scheduler, `distributed`, too.
    MdsdError
        If a worker process was killed.

    Notes
    -----
    The parts of 1 - acceptance: a verifier loses what it stays below the bound of its draft
    distribution; the construction of the draft loses what that bound stays below the best bound of
    any way of drafting from the same models (all kinds without options that take one model, and
    what is asked for); the rest is lost to the draft model.

    Rates of rrs without replacement for three drafts and more are estimated at each position from
    1,024 rejection paths where there are more; `stderr`, over positions, includes that.

    Examples
    --------
    >>> rows = study("smollm2", num_drafts=[2], drafts=["with_replacement"], positions=20)
    >>> row = rows[0]
    >>> row.verifier, round(row.acceptance, 3), row.best_draft
    ('optimal', 0.848, 'without_replacement')
    >>> lost = row.lost_to_model + row.lost_to_construction + row.lost_to_verifier
    >>> round(lost + row.acceptance, 12)
    1.0
    """
    check_progress(progress)
    check_filter_names(filters, CUT_COLUMNS)
    source = open_source(data)
    settings = study_settings(
        source,
        StudyRow,
        num_drafts=num_drafts,
        drafts=drafts,
        draft_models=draft_models,
        verifiers=verifiers,
        against=against,
        temperatures=temperatures,
        positions=positions,
        seed=seed,
        **filters,
    )
    with study_folder(None if output is None else as_path(output, "output")) as folder:
        return run_study(source, settings, folder, workers, scheduler, progress).rows


def run_study(
    source: Source,
    settings: StudySettings,
    output: Path,
    workers: int | None = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Study:
    """Run a study as settings that were checked before say.

    Parameters
    ----------
    source : Source
    settings : StudySettings
        From `study_settings`.
    output, workers, scheduler, progress
        As for `study`.

    Returns
    -------
    Study

    Raises
    ------
    MdsdError
        As `study`.
    """
    require("study", "a study")
    processes = check_workers(workers, scheduler)
    run = partial(_run, source, settings)
    with opened_study(output, source, settings) as folder:
        tasks = folder.tasks()
        step = Steps(folder.num_tasks, progress, folder.num_tasks - len(tasks))
        # Closed at once where the study ends early: its processes and warnings end with it.
        with closing(run_tasks(run, tasks, processes, scheduler)) as results:
            for number, block, values in results:
                folder.keep(number, block, values)
                step()
        return folder.finish()


def _run(
    source: Source, settings: StudySettings, task: tuple[int, Block]
) -> tuple[int, Block, BlockValues]:
    number, block = task
    cell, data = settings.cells[number], source.read(*block)
    filtered = FilteredBlock(data, cell.filters)
    return number, block, block_values(filtered, block[0], cell, settings)


@contextmanager
def study_folder(output: Path | None) -> Iterator[Path]:
    """Give the folder of a study; without one, a folder that is removed afterwards."""
    if output is not None:
        yield output
        return
    with TemporaryDirectory(prefix="mdsd-") as name:
        yield Path(name)
