"""Options of the commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mdsd.cli._completion import (
    Names,
    all_verifiers,
    completing,
    completing_data,
    draft_labels,
    draft_models,
    rule_names,
    schemes,
    step_verifiers,
)
from mdsd.filters import Filters

Command = TypeVar("Command", bound=Callable[..., Any])

Option = Callable[[Any], Any]

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


INTEGERS = _List(int, "N,...", "integers")
NUMBERS = _List(float, "T,...", "numbers")
NAMES = _List(str, "NAME,...", "names")


def _list(flag: str, kind: _List, help_text: str, names: Names | None = None) -> Option:
    more = {} if names is None else completing(names)
    return click.option(flag, type=kind, multiple=True, callback=_joined, help=help_text, **more)


def _name(flag: str, words: str, names: Names) -> Option:
    return click.option(flag, metavar="NAME", help=words, **completing(names))


def _number(flag: str, words: str, **more: Any) -> Option:
    """Make an option of a whole number that need not be given."""
    return click.option(flag, type=int, metavar="N", help=words, **more)


def _given(flag: str, default: Any, words: str) -> Option:
    """Make an option with a default, of its type."""
    return click.option(flag, default=default, show_default=True, help=words)


def _path(flag: str, metavar: str, words: str, **more: Any) -> Option:
    return click.option(flag, type=_PATH, metavar=metavar, help=words, **more)


def _filters(*, lists: Sequence[str] = (), shown: bool = True) -> tuple[Any, ...]:
    """Make an option of each filter; of some a list, and defaults that stand in help alone."""
    made = []
    for each in fields(Filters):
        flag, words = f"--{each.name.replace('_', '-')}", each.metadata["words"]
        whole = str(each.type).startswith("int")
        default = "" if each.default is None else f"  [default: {each.default}]"
        if each.name in lists:
            made.append(_list(flag, INTEGERS if whole else NUMBERS, words + default))
        elif shown and default:
            made.append(_given(flag, each.default, words))
        else:
            made.append(click.option(flag, type=int if whole else float, help=words + default))
    return tuple(made)


def _drafts(
    names: str = "with_replacement, without_replacement, independent, greedy, spechub, top_k",
) -> Option:
    words = f"Draft distributions, options behind colons: {names}.  [default: all that apply]"
    return _list("--draft", NAMES, words, draft_labels)


_PATH = click.Path(path_type=Path)
_POSITIONS = _number("--positions", "Use the first N positions only.")
_VERIFIERS = _list(
    "--verifier", NAMES, "Verifiers, see `mdsd verifiers`.  [default: all]", step_verifiers
)
_AGAINST = click.option(
    "--against",
    metavar="NAME",
    help="Show differences to this verifier, position by position.",
    **completing(step_verifiers),
)
_COUNTS = _list("--num-drafts", INTEGERS, "Numbers of draft tokens.  [default: 2,3,4]")
_SEED = _given("--seed", 0, "Seed of what is estimated.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
_OUTPUT = _path("--output", "FILE.csv|.json|.parquet", "Write rows.")
_DPI = click.option(
    "--dpi", type=int, default=300, show_default=True, metavar="N", help="Dots per inch of a PNG."
)
_PLOT = (
    _path("--plot", "FILE.png|.svg|.pdf|FOLDER", "Draw the result; in a folder as PNG."),
    _DPI,
)
_MODELS = (
    _path("--target", "FOLDER|FILE.gguf", "A model of transformers, or one for llama.cpp."),
    _path(
        "--draft-model",
        "FOLDER|FILE.gguf",
        "Its draft model; several for independent drafts.",
        multiple=True,
    ),
)
_SHARED = (
    click.argument("data", default="smollm2", **completing_data()),
    _COUNTS,
    _drafts(),
    _list("--draft-model", NAMES, "Draft models.  [default: the first of the file]", draft_models),
)

_MORE = (*_filters(lists=["temperature"]), _POSITIONS, _SEED, _OUTPUT, *_PLOT, _JSON)

BIAS = (
    click.argument("data", default="smollm2", **completing_data()),
    _list(
        "--rule",
        NAMES,
        "Rules, parameters behind colons: typical, relaxed, threshold, cactus, mixture, "
        "over_accepting, gumbel, or verifiers.  [default: all]",
        rule_names,
    ),
    _list("--num-drafts", INTEGERS, "Numbers of draft tokens.  [default: 1,3]"),
    _list(
        "--draft",
        NAMES,
        "Draft distributions.  [default: those that engines use]",
        draft_labels,
    ),
    _list("--draft-model", NAMES, "Draft models.  [default: the first of the file]", draft_models),
    *_filters(lists=["temperature"]),
    _POSITIONS,
    _OUTPUT,
    *_PLOT,
    _JSON,
)
BOUND = (*_SHARED, *_MORE)
COMPARE = (*_SHARED, _VERIFIERS, _AGAINST, *_MORE)
GRID = (
    *_SHARED,
    _VERIFIERS,
    _AGAINST,
    *_filters(lists=[each.name for each in fields(Filters)]),
    _POSITIONS,
    _SEED,
    _number("--workers", "Local processes.  [default: cores]"),
    click.option("--scheduler", metavar="ADDRESS", help="Use the workers of a Dask scheduler."),
    _path("--output", "FOLDER", "Keep the study here, and go on from there."),
    _path("--plot", "FOLDER", "Draw the study (PNG)."),
    _DPI,
    _JSON,
)
LOG = (
    click.argument("log", type=_PATH, metavar="LOG.jsonl"),
    _COUNTS,
    _drafts("with_replacement, without_replacement, independent, greedy"),
    _list("--draft-model", NAMES, "Draft models.  [default: the first of the log]"),
    _POSITIONS,
    _OUTPUT,
    _JSON,
)
DECODERS = (
    *_MODELS,
    _list(
        "--draft",
        NAMES,
        "Draft distribution.  [default: without_replacement; --compare: all]",
        draft_labels,
    ),
    _list(
        "--verifier",
        NAMES,
        "Verifier, also of paths, as layers.  [default: rrs; --compare: all]",
        all_verifiers,
    ),
    _list("--scheme", NAMES, "tree or batch.  [default: tree; --compare: both]", schemes),
    click.option("--tree", type=INTEGERS, help="Children of a node by level.  [default: 3,2,1]"),
    _number("--num-drafts", "Instead: children of every node,"),
    _number("--depth", "and depth of the tree."),
    _number("--grow", "Instead: most drafts of a tree that grows, --depth its most levels."),
    *_filters(),
    _given("--prompt", "The", "Text to continue."),
    _given("--max-new-tokens", 64, "Length of a text; --compare: also its trees."),
    _given("--seed", 0, "Seed of the first text."),
    click.option("--compare", is_flag=True, help="Compare decoders on the same drawn trees."),
    _number("--seeds", "Texts of --compare.  [default: 5]"),
    _OUTPUT,
    _JSON,
)
CAPTURE = (
    click.argument("folder", type=_PATH),
    *_MODELS,
    _path(
        "--prompts",
        "FILE.txt|.jsonl",
        "Paragraphs, or a text in each line under text or prompt.",
    ),
    click.option("--sample", is_flag=True, help="Record the target's own continuations instead."),
    _number("--max-new-tokens", "Length of a continuation.  [default: 64]"),
    click.option("--temperature", type=float, help="Of the continuations.  [default: 1.0]"),
    _given("--top-k", 1024, "Most probable tokens to keep of each model; 0 and -1 keep all."),
    _number("--positions", "Record the first N positions only."),
    _given("--min-context", 1, "Fewest tokens before a position."),
    _number(
        "--positions-per-shard", "Of one file, and what a kill can cost.  [default: up to 1024]"
    ),
    _given("--seed", 0, "Seed of the continuations."),
)
SIMULATION = (
    _number("--vocab-size", "Tokens of the chain.  [default: 8]"),
    _number("--horizon", "Tokens to decode.  [default: 50]"),
    click.option("--stationary", is_flag=True, help="The same chain at every position."),
    _list("--batch-sizes", INTEGERS, "Draft sequences of a round.  [default: 1,2,4,8,16,32,64]"),
    _list(
        "--epsilons", NUMBERS, "Over-acceptances of biased decoding.  [default: 0,0.05,0.1,0.2,0.4]"
    ),
    _number("--runs", "Runs for each number.  [default: 100000]"),
    _given("--seed", 0, "Seed of chain and runs."),
    _path("--output", "FOLDER", "Write figures (PNG) and tables (CSV)."),
    _DPI,
    _JSON,
)
PLANNING = (
    click.argument("data", required=False, **completing_data()),
    click.option(
        "--acceptance",
        metavar="A,...|FILE",
        help="Acceptance by rank, or a .csv or .json file with a line or list for each depth.",
    ),
    _given("--budget", 16, "Most drafted nodes."),
    _number("--max-depth", "Most levels."),
    _number("--max-branching", "Most children of a node."),
    _name("--draft", "Draft distribution.  [default: without_replacement]", draft_labels),
    _name("--draft-model", "Draft model.  [default: the first]", draft_models),
    _name("--verifier", "Any verifier, also of paths, as layers.  [default: rrs]", all_verifiers),
    _number("--ranks", "Ranks to measure.  [default: 8]"),
    _number("--trees", "Trees to compare shapes on, for verifiers of paths.  [default: 256]"),
    *_filters(shown=False),
    _POSITIONS,
    _number("--seed", "Seed of the measurement.  [default: 0]"),
    _OUTPUT,
    *_PLOT,
    _JSON,
)
LISTING = (_JSON,)
REPORTING = (
    click.argument("folder", metavar="STUDY", type=_PATH),
    _AGAINST,
    _path("--output", "FILE.html", "The page.", default="report.html", show_default=True),
)


def options(*decorators: Option) -> Callable[[Command], Command]:
    """Give a command these options."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate
