"""The commands: options are checked, studies run, tables, files and plots made in `mdsd.studies`.

Heavy imports stand inside the commands, so that help and version stay quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mdsd.cli._delivery import check_output, deliver, drawing, progress_bar, renamed
from mdsd.cli._group import main
from mdsd.cli._options import (
    BIAS,
    BOUND,
    CAPTURE,
    COMPARE,
    DECODERS,
    GRID,
    LISTING,
    LOG,
    PLANNING,
    REPORTING,
    SIMULATION,
    options,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from mdsd.datasets import Source
    from mdsd.studies.cells import Cell
    from mdsd.studies.means import CellValues
    from mdsd.studies.planning.acceptance import MeasuringSettings, RankAcceptance
    from mdsd.studies.planning.search import SearchedTree
    from mdsd.studies.planning.trees import PlanLimits, PlannedTree
    from mdsd.studies.study_rows import BoundRow, CompareRow


@main.command()
@options(*COMPARE)
def compare(**given: Any) -> None:
    """Compare verifiers, and the bound none can exceed, over the positions of DATA.

    DATA is the name of an embedded data set, an .npz file or a folder that `mdsd capture` wrote.
    """
    from mdsd.studies.means import compare_rows
    from mdsd.studies.plots import compare_figure
    from mdsd.studies.study_rows import CompareRow
    from mdsd.studies.terminal import compare_report

    lay_out = partial(compare_report, against=given["against"])
    _study(CompareRow, compare_rows, compare_figure, lay_out, **given)


@main.command()
@options(*BOUND)
def bound(**given: Any) -> None:
    """Show the acceptance bounds of draft distributions over the positions of DATA.

    DATA is the name of an embedded data set, an .npz file or a folder that `mdsd capture` wrote.
    """
    from mdsd.studies.means import bound_rows
    from mdsd.studies.plots import bound_figure
    from mdsd.studies.study_rows import BoundRow
    from mdsd.studies.terminal import bound_report

    _study(BoundRow, bound_rows, bound_figure, bound_report, **given)


@main.command()
@options(*BIAS)
def bias(
    data: str, output: Path | None, plot: Path | None, dpi: int, as_json: bool, **given: Any
) -> None:
    """Show what the rules of serving engines accept, and how far their output is from the target.

    DATA is the name of an embedded data set, an .npz file or a folder that `mdsd capture` wrote.
    Rules that are lossless have no bias. No rule accepts more than the front, which begins at the
    acceptance bound and rises by as much as the bias.
    """
    from mdsd.datasets import open_source
    from mdsd.studies.biases.bias_settings import bias_settings
    from mdsd.studies.biases.bias_table import bias_report
    from mdsd.studies.biases.plots import bias_figure
    from mdsd.studies.biases.runs import run_bias

    check_output(output)
    with drawing(plot, "bias.png", dpi) as draw:
        source = open_source(data)
        settings = bias_settings(source, **renamed(given, plural=("rule", *_LISTS)))
        described = {"data": data, **settings.describe()}
        with progress_bar("positions") as progress:
            rows = run_bias(source, settings, progress)
        picture = draw(lambda: bias_figure(rows))
        lay_out = partial(bias_report, rows, settings.positions)
        deliver(rows, described, lay_out, as_json, output, picture)


@main.command()
@options(*GRID)
def study(
    data: str,
    output: Path | None,
    plot: Path | None,
    dpi: int,
    workers: int | None,
    scheduler: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run a grid of studies over DATA, and show where the lost acceptance goes.

    DATA is the name of an embedded data set, an .npz file or a folder that `mdsd capture` wrote.
    Options that are lists span the grid. With --output, a study that was stopped goes on where it
    was when the same command is given again; the folder then has the numbers of every position, and
    the table as study.csv and study.parquet.
    """
    from mdsd.datasets import open_source
    from mdsd.studies.grid.plots import study_figures
    from mdsd.studies.grid.runs import run_study, study_folder
    from mdsd.studies.grid.study_table import study_table
    from mdsd.studies.output import check_dpi, picture, picture_place, write_files
    from mdsd.studies.study_rows import StudyRow
    from mdsd.studies.study_settings import study_settings

    check_dpi(dpi)
    source = open_source(data)
    settings = study_settings(source, StudyRow, **renamed(given, plural=_LISTS))
    with picture_place(plot, None) as pictures, study_folder(output) as folder:
        with progress_bar("cells and blocks") as progress:
            found = run_study(source, settings, folder, workers, scheduler, progress)
        if pictures is not None:
            figures = study_figures(found)
            write_files({pictures / name: picture(".png", f, dpi) for name, f in figures.items()})

    described = {"data": data, **settings.describe()}
    lay_out = partial(study_table, found.rows, settings.positions, given["against"])
    deliver(found.rows, described, lay_out, as_json)


@main.command()
@options(*LOG)
def interval(log: Path, output: Path | None, as_json: bool, **given: Any) -> None:
    """Bound the acceptance bounds from both sides, over the positions of a log.

    LOG.jsonl has one JSON object per line, with what a server returned as the most probable tokens
    of the target and of its draft, or drafts, after the same text: `top_logprobs` of OpenAI,
    `prompt_logprobs` of vLLM, `meta_info` of SGLang, `completion_probabilities` of llama-server, or
    maps of token to log-probability.
    """
    from mdsd.datasets import scan_jsonl
    from mdsd.studies.intervals.interval_settings import interval_settings
    from mdsd.studies.intervals.interval_table import interval_report
    from mdsd.studies.intervals.runs import run_interval

    check_output(output)
    with progress_bar("reading"):
        found = scan_jsonl(log)
    settings = interval_settings(found, **renamed(given, plural=("draft", "draft_model")))
    with progress_bar("positions") as progress:
        rows = run_interval(found, settings, progress)

    described = {"data": str(log), **settings.describe()}
    deliver(rows, described, lambda: interval_report(rows, settings.positions), as_json, output)


@main.command()
@options(*REPORTING)
def report(folder: Path, output: Path, against: str | None) -> None:
    """Write a page of HTML about a study: findings, pictures, and tables to sort.

    STUDY is a folder that `mdsd study --output` wrote. The page needs nothing but a browser.
    """
    from mdsd.studies.grid.folder import read_study
    from mdsd.studies.grid.report import study_report
    from mdsd.studies.output import check_writable, write_files
    from mdsd.studies.terminal import counted

    check_writable(output, (".html",))
    found = read_study(folder, against)
    write_files({output: study_report(found).encode()})
    click.echo(f"{output}: {counted(len(found.rows), 'row')}")


@main.command()
@options(*DECODERS)
def decode(
    target: Path | None,
    draft_model: Sequence[Path],
    compare: bool,
    output: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Generate text by multi-draft speculative decoding, and show how deep drafts are accepted.

    Without models given, these are n-grams of Python's language reference, trained on the spot.
    With --compare, every verifier is judged with every draft distribution it supports, all with the
    same number of drafted tokens for a call of the target, by what it is expected to accept of the
    same trees, drawn along texts of the target.
    """
    from mdsd.studies.decoding.decoder_settings import comparison_settings, decode_settings
    from mdsd.studies.decoding.decoder_tables import comparison_report, decode_report
    from mdsd.studies.decoding.drawn_trees import run_comparison
    from mdsd.studies.decoding.models import choose_models
    from mdsd.studies.decoding.runs import run_decode

    check_output(output)
    models = choose_models(target, draft_model)
    check = comparison_settings if compare else decode_settings
    settings = check(models, **renamed(given, plural=("draft", "verifier", "scheme")))
    described = settings.describe(models)
    if compare:
        with progress_bar("texts") as progress:
            rows = run_comparison(models, settings, progress)
        deliver(rows, described, lambda: comparison_report(rows, settings), as_json, output)
        return
    text, row = run_decode(models, settings, None if as_json else _stream)
    if not as_json:
        _stream("\n\n")
    deliver((row,), described, lambda: decode_report(row), as_json, output, text=text)


@main.command()
@options(*CAPTURE)
def capture(
    folder: Path,
    target: Path | None,
    draft_model: Sequence[Path],
    prompts: Path | None,
    **given: Any,
) -> None:
    """Record what a target and its draft models say at the positions of texts, into FOLDER.

    Positions are the tokens of the prompts or, with --sample, those that the target continues them
    by. Of each position the most probable tokens of every model are kept, with their
    log-probabilities under all of them. A capture that was stopped goes on where it was when the
    same command is given again, and is extended by one with more --positions.

    Without models given, these are n-grams of Python's language reference, and the prompts pages of
    it that they were not trained on.
    """
    from mdsd.datasets.captures.folder import check_folder
    from mdsd.studies.capturing.capture_settings import CaptureSettings
    from mdsd.studies.capturing.jobs import text_job
    from mdsd.studies.capturing.prompts import choose_prompts
    from mdsd.studies.capturing.runs import run_capture
    from mdsd.studies.capturing.summary import summary_lines
    from mdsd.studies.decoding.models import choose_models

    settings = CaptureSettings(**renamed(given, plural=()))
    texts = choose_prompts(prompts, embedded=target is None and not draft_model)
    check_folder(folder)
    job = text_job(choose_models(target, draft_model), texts)
    with progress_bar("positions") as progress:
        found = run_capture(job, settings, folder, progress)
    click.echo("\n".join(summary_lines(folder, found)))


def _stream(piece: str) -> None:
    click.echo(piece, nl=False)


@main.command("plan-tree")
@options(*PLANNING)
def plan_tree(
    data: str | None,
    acceptance: str | None,
    budget: int,
    max_depth: int | None,
    max_branching: int | None,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    dpi: int,
    **given: Any,
) -> None:
    """Find the draft tree with the most expected tokens for a number of nodes.

    Without --acceptance it is measured: how often a verifier accepts each of several drafts, over
    the positions of DATA, the name of an embedded data set (smollm2 if left out), an .npz file or a
    folder that `mdsd capture` wrote. For block, layers and traversal, which verify whole paths, the
    tree is searched for, on trees drawn from these positions.
    """
    from mdsd.datasets import open_source
    from mdsd.studies.planning import acceptance as rates
    from mdsd.studies.planning.plan_table import plan_report
    from mdsd.studies.planning.plots import plan_figure
    from mdsd.studies.planning.trees import PlanLimits, planned_tree

    limits = PlanLimits(budget=budget, max_depth=max_depth, max_branching=max_branching)
    described = dict(vars(limits))
    measuring = renamed(given, plural=())
    found: PlannedTree | SearchedTree
    check_output(output)
    with drawing(plot, "plan_tree.png", dpi) as draw:
        if acceptance is not None:
            rates.refuse_measuring(data, measuring)
            found = planned_tree(rates.given_acceptance(acceptance), limits)
            described |= {"acceptance": acceptance}
        else:
            source = open_source(data or "smollm2")
            settings = rates.measuring_settings(source, **measuring)
            described |= {"data": source.name, **settings.describe()}
            with progress_bar("positions") as progress:
                measured = rates.measured_acceptance(source, settings, progress)
            found = _planned(measured, source, settings, limits)
        picture = draw(lambda: plan_figure(found))
        lay_out = partial(plan_report, found)
        deliver(found.rows, described, lay_out, as_json, output, picture, **found.summary)


def _planned(
    measured: RankAcceptance, source: Source, settings: MeasuringSettings, limits: PlanLimits
) -> PlannedTree | SearchedTree:
    """Plan a tree for one-step verifiers, or search for one for a verifier of paths."""
    from mdsd.studies.planning.recorded import recorded_trees
    from mdsd.studies.planning.search import optimal_starts, searched_tree
    from mdsd.studies.planning.trees import planned_tree

    if not settings.searches:
        return planned_tree(measured, limits)
    with progress_bar("positions for starts") as progress:
        starts = optimal_starts(source, settings, limits, progress)
    trees = recorded_trees(source, settings)
    with progress_bar("shapes") as progress:
        return searched_tree(trees, measured, limits, settings, progress, starts=starts)


@main.command()
@options(*SIMULATION)
def simulate(output: Path | None, dpi: int, as_json: bool, **given: Any) -> None:
    """Set theory beside simulation: rejections, batches of draft sequences, biased decoding.

    Target and draft are random Markov chains, drawn from the seed.
    """
    from mdsd.studies.fitting import print_report
    from mdsd.studies.output import check_dpi, tables_to_json, writable_folder, write_files
    from mdsd.studies.simulation.files import FILE_NAMES, simulation_files
    from mdsd.studies.simulation.runs import run_simulation
    from mdsd.studies.simulation.simulation_settings import SimulationSettings
    from mdsd.studies.simulation.simulation_table import simulation_report

    check_dpi(dpi)
    settings = SimulationSettings(**renamed(given, plural=()))
    with writable_folder(output, FILE_NAMES):
        with progress_bar("simulations") as progress:
            found = run_simulation(settings, progress)
        if output is not None:
            files = simulation_files(found, settings, dpi)
            write_files({output / name: content for name, content in files.items()})
    if as_json:
        click.echo(tables_to_json(found.tables, settings.describe()))
    else:
        print_report(simulation_report(found, settings))


@main.command()
@options(*LISTING)
def verifiers(as_json: bool) -> None:
    """List the verifiers, the draft distributions they support and where they come from.

    The kinds of drafts follow, with their options, and the rules of engines with their parameters.
    """
    from mdsd.studies.fitting import print_report
    from mdsd.studies.listing import listing_json, listing_report

    if as_json:
        click.echo(listing_json())
    else:
        print_report(listing_report())


@main.command()
def warmup() -> None:
    """Compile everything that is compiled when first used, so that nothing waits for it later."""
    from time import perf_counter

    from mdsd.warmup import warm_up

    click.echo("mdsd: compiling for this machine (a minute or two)", err=True)
    start = perf_counter()
    with progress_bar("jobs") as progress:
        folder = warm_up(progress)
    if folder is None:
        kept = "not kept, as no cache can be written to: set NUMBA_CACHE_DIR to a folder that can"
    else:
        kept = f"kept in {folder}"
    click.echo(f"compiled in {perf_counter() - start:.0f} s, {kept}")


_LISTS = ("draft", "draft_model", "verifier", "temperature")
"""Options that are lists, and have their plural in Python."""


def _study(
    kind: type[BoundRow] | type[CompareRow],
    average: Callable[[Cell, CellValues, Mapping[str, Any]], list[Any]],
    draw_rows: Callable[[Any], Figure],
    lay_out: Callable[[Any, int], RenderableType],
    *,
    data: str,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    dpi: int,
    **given: Any,
) -> None:
    """Check everything, compute, write the files, and only then print."""
    from mdsd.datasets import open_source
    from mdsd.studies.means import all_rows
    from mdsd.studies.study_settings import study_settings

    check_output(output)
    with drawing(plot, f"{click.get_current_context().info_name}.png", dpi) as draw:
        source = open_source(data)
        settings = study_settings(source, kind, **renamed(given, plural=_LISTS))
        described = {"data": data, **settings.describe()}
        with progress_bar("positions") as progress:
            rows = all_rows(average, source, settings, progress)
        picture = draw(lambda: draw_rows(rows))
        lay_out_rows = partial(lay_out, rows, settings.positions)
        deliver(rows, described, lay_out_rows, as_json, output, picture)
