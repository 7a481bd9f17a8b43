"""The command line: ``mdsd compare``, ``bound``, ``decode``, ``simulate`` and the others.

No logic of its own: options are checked, studies run, tables, files and plots made in
`mdsd.studies`. Heavy imports stand inside the commands, so that help and version stay quick.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from mdsd._arguments import one_line
from mdsd._version import __version__
from mdsd.errors import MdsdError
from mdsd.filters import Filters

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from mdsd.datasets import Source
    from mdsd.studies.cases import Progress
    from mdsd.studies.output import Rows
    from mdsd.studies.settings import StudySettings

__all__ = ["main"]

Command = TypeVar("Command", bound=Callable[..., Any])


class _Interrupted(click.ClickException):
    exit_code = 130


class _Commands(click.Group):
    """A group whose every failure is one line on standard error."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            sys.stdout.flush()  # a full disk is often found out about only here
        except (_Interrupted, click.Abort, KeyboardInterrupt):
            _fail("interrupted", 130)
        except click.ClickException as error:
            _fail(error.format_message(), 2)
        except MdsdError as error:
            _fail(str(error), 2)
        except MemoryError as error:
            _fail(f"not enough memory: {error}".removesuffix(": "), 2)
        except OSError as error:
            _abandon_stdout()
            if error.errno == errno.EPIPE:
                sys.exit(1)
            _fail(f"{error.filename or 'standard output'}: {error.strerror or error}", 2)
        sys.exit(result if isinstance(result, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        # Before click sees it: click prints an empty line for an interrupt.
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _Interrupted("interrupted") from None


def _abandon_stdout() -> None:
    """Let Python's own flush at the end find a file that takes all."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"mdsd: {one_line(message)}", err=True)
    sys.exit(code)


if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # generic in new versions only


class _List(_ParamType):
    """Comma-separated values of one type."""

    def __init__(self, kind: Callable[[str], Any], name: str, expected: str) -> None:
        self.name = name
        self._kind = kind
        self._expected = expected

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return [self._kind(part) for part in map(_not_empty, value.split(","))]
        except ValueError:
            self.fail(f"{value!r} is not a comma-separated list of {self._expected}", param, ctx)


def _not_empty(part: str) -> str:
    if not part.strip():
        raise ValueError
    return part.strip()


def _joined(
    ctx: click.Context, param: click.Parameter, value: Sequence[Sequence[Any]]
) -> list[Any] | None:
    """Join the lists of an option that was given more than once."""
    return [entry for part in value for entry in part] or None


_INTEGERS = _List(int, "N,...", "integers")
_NUMBERS = _List(float, "T,...", "numbers")
_NAMES = _List(str, "NAME,...", "names")


def _list_option(flag: str, kind: _List, help_text: str) -> Callable[[Command], Command]:
    return click.option(flag, type=kind, multiple=True, callback=_joined, help=help_text)


_PATH = click.Path(path_type=Path)
_POSITIONS = click.option(
    "--positions", type=int, metavar="N", help="Use the first N positions only."
)


def _filter_options(*, lists: Sequence[str] = (), shown: bool = True) -> tuple[Any, ...]:
    """Make an option of each filter; of some a list, and defaults that stand in help alone."""
    made = []
    for each in fields(Filters):
        flag, words = f"--{each.name.replace('_', '-')}", each.metadata["words"]
        whole = str(each.type).startswith("int")
        default = "" if each.default is None else f"  [default: {each.default}]"
        if each.name in lists:
            made.append(_list_option(flag, _INTEGERS if whole else _NUMBERS, words + default))
        elif shown and default:
            made.append(click.option(flag, default=each.default, show_default=True, help=words))
        else:
            made.append(click.option(flag, type=int if whole else float, help=words + default))
    return tuple(made)


_VERIFIERS = _list_option("--verifier", _NAMES, "Verifiers, see `mdsd verifiers`.  [default: all]")
_SEED = click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of what is estimated."
)
_OUTPUT = click.option(
    "--output", type=_PATH, metavar="FILE.csv|.json|.parquet", help="Write rows."
)
_PLOT = click.option("--plot", type=_PATH, metavar="FILE.png|.svg|.pdf", help="Draw the result.")
_DRAFTS = _list_option(
    "--draft",
    _NAMES,
    "Draft distributions, options behind colons: with_replacement, without_replacement, "
    "independent, greedy, spechub, top_k.  [default: all that apply]",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")

_SHARED = (
    click.argument("data", default="smollm2"),
    _list_option("--num-drafts", _INTEGERS, "Numbers of draft tokens.  [default: 2,3,4]"),
    _DRAFTS,
    _list_option("--draft-model", _NAMES, "Draft models.  [default: the first of the file]"),
)
_MORE = (
    *_filter_options(lists=["temperature"]),
    _POSITIONS,
    _SEED,
    _OUTPUT,
    _PLOT,
    _JSON,
)
_GRID = (
    *_SHARED,
    _VERIFIERS,
    *_filter_options(lists=[each.name for each in fields(Filters)]),
    _POSITIONS,
    _SEED,
    click.option("--workers", type=int, metavar="N", help="Local processes.  [default: cores]"),
    click.option("--scheduler", metavar="ADDRESS", help="Use the workers of a Dask scheduler."),
    click.option(
        "--output", type=_PATH, metavar="FOLDER", help="Keep the study here, and go on from there."
    ),
    click.option("--plot", type=_PATH, metavar="FOLDER", help="Draw the study (PNG)."),
    _JSON,
)
_MODELS = (
    click.option("--target", type=_PATH, metavar="FOLDER", help="A model of transformers."),
    click.option(
        "--draft-model",
        type=_PATH,
        multiple=True,
        metavar="FOLDER",
        help="Its draft model; several for independent drafts.",
    ),
)
_LOG = (
    click.argument("log", type=_PATH, metavar="LOG.jsonl"),
    _list_option("--num-drafts", _INTEGERS, "Numbers of draft tokens.  [default: 2,3,4]"),
    _list_option(
        "--draft",
        _NAMES,
        "Draft distributions: with_replacement, without_replacement, independent, greedy.  "
        "[default: all that apply]",
    ),
    _list_option("--draft-model", _NAMES, "Draft models.  [default: the first of the log]"),
    _POSITIONS,
    _OUTPUT,
    _JSON,
)
_DECODERS = (
    *_MODELS,
    _list_option(
        "--draft", _NAMES, "Draft distribution.  [default: without_replacement; --compare: all]"
    ),
    _list_option(
        "--verifier", _NAMES, "Verifier, block or traversal.  [default: rrs; --compare: all]"
    ),
    _list_option("--scheme", _NAMES, "tree or batch.  [default: tree; --compare: both]"),
    click.option("--tree", type=_INTEGERS, help="Children of a node by level.  [default: 3,2,1]"),
    click.option("--num-drafts", type=int, metavar="N", help="Instead: children of every node,"),
    click.option("--depth", type=int, metavar="N", help="and depth of the tree."),
    *_filter_options(),
    click.option("--prompt", default="The", show_default=True, help="Text to continue."),
    click.option(
        "--max-new-tokens", type=int, default=64, show_default=True, help="Length of a run."
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of the first run."),
    click.option("--compare", is_flag=True, help="Compare decoders over several runs."),
    click.option("--seeds", type=int, metavar="N", help="Runs of --compare.  [default: 5]"),
    _OUTPUT,
    _JSON,
)
_CAPTURE = (
    click.argument("folder", type=_PATH),
    *_MODELS,
    click.option(
        "--prompts",
        type=_PATH,
        metavar="FILE.txt|.jsonl",
        help="Paragraphs, or a text in each line under text or prompt.",
    ),
    click.option("--sample", is_flag=True, help="Record the target's own continuations instead."),
    click.option(
        "--max-new-tokens", type=int, metavar="N", help="Length of a continuation.  [default: 64]"
    ),
    click.option("--temperature", type=float, help="Of the continuations.  [default: 1.0]"),
    click.option(
        "--top-k",
        type=int,
        default=1024,
        show_default=True,
        help="Most probable tokens to keep of each model; 0 and -1 keep all.",
    ),
    click.option("--positions", type=int, metavar="N", help="Record the first N positions only."),
    click.option(
        "--min-context",
        type=int,
        default=1,
        show_default=True,
        metavar="N",
        help="Fewest tokens before a position.",
    ),
    click.option(
        "--positions-per-shard",
        type=int,
        metavar="N",
        help="Of one file, and what a kill can cost.  [default: up to 1024]",
    ),
    click.option(
        "--seed", type=int, default=0, show_default=True, help="Seed of the continuations."
    ),
)
_SIMULATION = (
    click.option("--vocab-size", type=int, metavar="N", help="Tokens of the chain.  [default: 8]"),
    click.option("--horizon", type=int, metavar="N", help="Tokens to decode.  [default: 50]"),
    click.option("--stationary", is_flag=True, help="The same chain at every position."),
    _list_option(
        "--batch-sizes", _INTEGERS, "Draft sequences of a round.  [default: 1,2,4,8,16,32,64]"
    ),
    _list_option(
        "--epsilons",
        _NUMBERS,
        "Over-acceptances of biased decoding.  [default: 0,0.05,0.1,0.2,0.4]",
    ),
    click.option("--runs", type=int, metavar="N", help="Runs for each number.  [default: 100000]"),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of chain and runs."),
    click.option(
        "--output", type=_PATH, metavar="FOLDER", help="Write figures (PNG) and tables (CSV)."
    ),
    _JSON,
)
_PLANNING = (
    click.argument("data", required=False),
    click.option(
        "--acceptance",
        metavar="A,...|FILE",
        help="Acceptance by rank, or a .csv or .json file with a line or list for each depth.",
    ),
    click.option("--budget", type=int, default=16, show_default=True, help="Most drafted nodes."),
    click.option("--max-depth", type=int, metavar="N", help="Most levels."),
    click.option("--max-branching", type=int, metavar="N", help="Most children of a node."),
    click.option(
        "--draft", metavar="NAME", help="With or without_replacement.  [default: without]"
    ),
    click.option("--draft-model", metavar="NAME", help="Draft model.  [default: the first]"),
    click.option("--ranks", type=int, metavar="N", help="Ranks to measure.  [default: 8]"),
    *_filter_options(shown=False),
    _POSITIONS,
    click.option("--seed", type=int, metavar="N", help="Seed of the measurement.  [default: 0]"),
    _OUTPUT,
    _PLOT,
    _JSON,
)

_REPORTING = (
    click.argument("folder", metavar="STUDY", type=_PATH),
    click.option(
        "--output",
        type=_PATH,
        metavar="FILE.html",
        default="report.html",
        show_default=True,
        help="The page.",
    ),
)


def _options(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="mdsd", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """Study bounds and verifiers of multi-draft speculative decoding on real next-token laws."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # a terminal without ± is no reason to lose a table
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@main.command()
@_options(*_SHARED, _VERIFIERS, *_MORE)
def compare(**options: Any) -> None:
    """Compare verifiers, and the bound none can exceed, over the positions of DATA.

    DATA is the name of an embedded data set, an .npz file or a folder that `mdsd capture` wrote.
    """
    from mdsd.studies.comparison import run_compare
    from mdsd.studies.plots import compare_figure
    from mdsd.studies.settings import compare_settings
    from mdsd.studies.tables import compare_report

    _study(compare_settings, run_compare, compare_figure, compare_report, **options)


@main.command()
@_options(*_SHARED, *_MORE)
def bound(**options: Any) -> None:
    """Show the acceptance bounds of draft distributions over the positions of DATA.

    DATA is the name of an embedded data set, an .npz file or a folder that `mdsd capture` wrote.
    """
    from mdsd.studies.bounding import run_bound
    from mdsd.studies.plots import bound_figure
    from mdsd.studies.settings import bound_settings
    from mdsd.studies.tables import bound_report

    _study(bound_settings, run_bound, bound_figure, bound_report, **options)


@main.command()
@_options(*_GRID)
def study(
    data: str,
    output: Path | None,
    plot: Path | None,
    workers: int | None,
    scheduler: str | None,
    as_json: bool,
    **options: Any,
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
    from mdsd.studies.grid.tables import study_table
    from mdsd.studies.output import picture, writable_folder, write_files
    from mdsd.studies.settings import grid_settings

    source = open_source(data)
    settings = grid_settings(source, **_renamed(options, plural=_LISTS))
    with writable_folder(plot, ["a.png"]), study_folder(output) as folder:
        with _progress_bar("cells and blocks") as progress:
            found = run_study(source, settings, folder, workers, scheduler, progress)
        if plot is not None:
            figures = study_figures(found)
            write_files({plot / name: picture(".png", f) for name, f in figures.items()})

    def lay_out() -> RenderableType:
        return study_table(found.rows, settings.positions)

    _deliver(found.rows, {"data": data, **settings.describe()}, lay_out, as_json, None)


@main.command()
@_options(*_LOG)
def interval(log: Path, output: Path | None, as_json: bool, **options: Any) -> None:
    """Bound the acceptance bounds from both sides, over the positions of a log.

    LOG.jsonl has one JSON object per line, with what a server returned as the most probable tokens
    of the target and of its draft, or drafts, after the same text: `top_logprobs` of OpenAI,
    `prompt_logprobs` of vLLM, `meta_info` of SGLang, or maps of token to log-probability.
    """
    from mdsd.datasets import scan_jsonl
    from mdsd.studies.intervals.runs import run_interval
    from mdsd.studies.intervals.settings import interval_settings
    from mdsd.studies.intervals.tables import interval_report

    _check_files(output)
    with _progress_bar("reading"):
        found = scan_jsonl(log)
    settings = interval_settings(found, **_renamed(options, plural=("draft", "draft_model")))
    with _progress_bar("positions") as progress:
        rows = run_interval(found, settings, progress)

    def lay_out() -> RenderableType:
        return interval_report(rows, settings.positions)

    _deliver(rows, {"data": str(log), **settings.describe()}, lay_out, as_json, output)


@main.command()
@_options(*_REPORTING)
def report(folder: Path, output: Path) -> None:
    """Write a page of HTML about a study: findings, pictures, and tables to sort.

    STUDY is a folder that `mdsd study --output` wrote. The page needs nothing but a browser.
    """
    from mdsd.studies.grid.folder import read_study
    from mdsd.studies.grid.report import study_report
    from mdsd.studies.output import check_writable, write_files
    from mdsd.studies.tables import counted

    check_writable(output, (".html",))
    found = read_study(folder)
    write_files({output: study_report(found).encode()})
    click.echo(f"{output}: {counted(len(found.rows), 'row')}")


@main.command()
@_options(*_DECODERS)
def decode(
    target: Path | None,
    draft_model: Sequence[Path],
    compare: bool,
    output: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Generate text by multi-draft speculative decoding, and show how deep drafts are accepted.

    Without folders, the models are n-grams of Python's language reference, trained on the spot.
    With --compare, every verifier runs with every draft distribution it supports, all with the same
    number of drafted tokens for a call of the target.
    """
    from mdsd.studies.decoding.models import choose_models
    from mdsd.studies.decoding.runs import run_comparison, run_decode
    from mdsd.studies.decoding.settings import comparison_settings, decode_settings
    from mdsd.studies.decoding.tables import comparison_report, decode_report

    _check_files(output)
    models = choose_models(target, draft_model)
    check = comparison_settings if compare else decode_settings
    settings = check(models, **_renamed(options, plural=("draft", "verifier", "scheme")))
    described = settings.describe(models)
    if compare:
        with _progress_bar("runs") as progress:
            rows = run_comparison(models, settings, progress)
        _deliver(rows, described, lambda: comparison_report(rows, settings), as_json, output)
        return
    text, row = run_decode(models, settings, None if as_json else _stream)
    if not as_json:
        _stream("\n\n")
    _deliver((row,), described, lambda: decode_report(row), as_json, output, text=text)


@main.command()
@_options(*_CAPTURE)
def capture(
    folder: Path,
    target: Path | None,
    draft_model: Sequence[Path],
    prompts: Path | None,
    **options: Any,
) -> None:
    """Record what a target and its draft models say at the positions of texts, into FOLDER.

    Positions are the tokens of the prompts or, with --sample, those that the target continues them
    by. Of each position the most probable tokens of every model are kept, with their
    log-probabilities under all of them. A capture that was stopped goes on where it was when the
    same command is given again.

    Without folders, the models are n-grams of Python's language reference, and the prompts pages of
    it that they were not trained on.
    """
    from mdsd.studies.capturing.folders import check_folder
    from mdsd.studies.capturing.jobs import text_job
    from mdsd.studies.capturing.prompts import choose_prompts
    from mdsd.studies.capturing.runs import run_capture
    from mdsd.studies.capturing.settings import capture_settings
    from mdsd.studies.capturing.summary import summary_lines
    from mdsd.studies.decoding.models import choose_models

    settings = capture_settings(**_renamed(options, plural=()))
    texts = choose_prompts(prompts, embedded=target is None and not draft_model)
    check_folder(folder)
    job = text_job(choose_models(target, draft_model), texts)
    with _progress_bar("positions") as progress:
        found = run_capture(job, settings, folder, progress)
    click.echo("\n".join(summary_lines(folder, found)))


def _stream(piece: str) -> None:
    click.echo(piece, nl=False)


@main.command("plan-tree")
@_options(*_PLANNING)
def plan_tree(
    data: str | None,
    acceptance: str | None,
    budget: int,
    max_depth: int | None,
    max_branching: int | None,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    **options: Any,
) -> None:
    """Find the draft tree with the most expected tokens for a number of nodes.

    Without --acceptance it is measured: how often rrs accepts each of several drafts, over the
    positions of DATA, the name of an embedded data set (smollm2 if left out), an .npz file or a
    folder that `mdsd capture` wrote.
    """
    from mdsd.datasets import open_source
    from mdsd.studies.planning import acceptance as rates
    from mdsd.studies.planning.plots import plan_figure
    from mdsd.studies.planning.tables import plan_report
    from mdsd.studies.planning.trees import plan_limits, planned_tree

    _check_files(output, plot)
    limits = plan_limits(budget=budget, max_depth=max_depth, max_branching=max_branching)
    described = dict(vars(limits))
    measuring = _renamed(options, plural=())
    if acceptance is not None:
        rates.refuse_measuring(data, measuring)
        found = planned_tree(rates.given_acceptance(acceptance), limits)
        described |= {"acceptance": acceptance}
    else:
        source = open_source(data or "smollm2")
        settings = rates.measuring_settings(source, **measuring)
        described |= {"data": source.name, **settings.describe()}
        with _progress_bar("positions") as progress:
            measured = rates.measured_acceptance(source, settings, progress)
        found = planned_tree(measured, limits)

    def lay_out() -> RenderableType:
        return plan_report(found)

    drawn = _drawn(plot, lambda: plan_figure(found))
    _deliver(found.rows, described, lay_out, as_json, output, drawn, **found.summary)


@main.command()
@_options(*_SIMULATION)
def simulate(output: Path | None, as_json: bool, **options: Any) -> None:
    """Set theory beside simulation: rejections, batches of draft sequences, biased decoding.

    Target and draft are random Markov chains, drawn from the seed.
    """
    from mdsd.studies.output import tables_to_json, writable_folder, write_files
    from mdsd.studies.simulation.files import FILE_NAMES, simulation_files
    from mdsd.studies.simulation.runs import run_simulation
    from mdsd.studies.simulation.settings import simulation_settings
    from mdsd.studies.simulation.tables import simulation_report
    from mdsd.studies.tables import print_report

    settings = simulation_settings(**_renamed(options, plural=()))
    with writable_folder(output, FILE_NAMES):
        with _progress_bar("simulations") as progress:
            found = run_simulation(settings, progress)
        if output is not None:
            files = simulation_files(found, settings)
            write_files({output / name: content for name, content in files.items()})
    if as_json:
        click.echo(tables_to_json(found.tables, settings.describe()))
    else:
        print_report(simulation_report(found, settings))


@main.command()
def verifiers() -> None:
    """List the verifiers, the draft distributions they support and where they come from."""
    from mdsd.studies.tables import print_report, verifiers_report

    print_report(verifiers_report())


_LISTS = ("draft", "draft_model", "verifier", "temperature")
"""Options that are lists, and have their plural in Python."""


def _study(
    check: Callable[..., StudySettings],
    run: Callable[[Source, StudySettings, Progress | None], Any],
    draw: Callable[[Any], Figure],
    lay_out: Callable[[Any, int], RenderableType],
    *,
    data: str,
    as_json: bool,
    output: Path | None,
    plot: Path | None,
    **options: Any,
) -> None:
    """Check everything, compute, write the files, and only then print."""
    from mdsd.datasets import open_source

    _check_files(output, plot)
    source = open_source(data)
    settings = check(source, **_renamed(options, plural=_LISTS))
    described = {"data": data, **settings.describe()}
    with _progress_bar("positions") as progress:
        rows = run(source, settings, progress)

    def report() -> RenderableType:
        return lay_out(rows, settings.positions)

    _deliver(rows, described, report, as_json, output, _drawn(plot, lambda: draw(rows)))


def _check_files(output: Path | None, plot: Path | None = None) -> None:
    """Refuse files that could not be written, before anything is computed for them."""
    from mdsd.studies.output import PICTURES, TABLES, check_writable

    if output is not None:
        check_writable(output, TABLES)
    if plot is not None:
        check_writable(plot, PICTURES)


def _drawn(plot: Path | None, draw: Callable[[], Figure]) -> dict[Path, bytes]:
    """Draw the picture that was asked for, if one was."""
    from mdsd.studies.output import picture

    return {} if plot is None else {plot: picture(plot.suffix.lower(), draw())}


def _deliver(
    rows: Rows,
    described: Mapping[str, Any],
    lay_out: Callable[[], RenderableType],
    as_json: bool,
    output: Path | None,
    more_files: Mapping[Path, bytes] = MappingProxyType({}),
    **more: Any,
) -> None:
    """Write the files, all of them or none, and then print."""
    from mdsd.studies.output import table, to_json, write_files
    from mdsd.studies.tables import print_report

    files = dict(more_files)
    if output is not None:
        files = {output: table(output.suffix.lower(), rows, described, **more), **files}
    write_files(files)
    if as_json:
        click.echo(to_json(rows, described, **more))
    else:
        print_report(lay_out())


def _renamed(options: Mapping[str, Any], plural: Sequence[str]) -> dict[str, Any]:
    """Give options their names in `mdsd.studies`, without those that were not given."""
    return {
        f"{name}s" if name in plural else name: value
        for name, value in options.items()
        if value is not None
    }


@contextmanager
def _progress_bar(steps: str) -> Iterator[Progress | None]:
    """Show a bar on standard error where that is a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
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
