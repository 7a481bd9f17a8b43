"""Names that a shell completes: nothing is read or imported but what the word at hand needs.

Nothing goes wrong here: where names cannot be found, as of a file that is damaged, there are none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

Names = Callable[[click.Context], Iterable[str]]

_MOST_OPTIONS = 4
"""Drafts of an example, by which options of kinds of drafts are suggested."""

_TABLES = ".npz"


def completing(names: Names) -> dict[str, Any]:
    """Give the argument of an option or argument that completes names, or lists of them."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        found = [name for name in _quietly(names, ctx) if name.startswith(last)]
        return [CompletionItem(f"{before}{comma}{name}") for name in found if name not in given]

    return {"shell_complete": complete}


def completing_data() -> dict[str, Any]:
    """Give the argument of an argument that completes data: names of data sets, files, folders."""

    def complete(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
        named = [name for name in _data_sets() if name.startswith(incomplete)]
        if not named:
            return [CompletionItem(incomplete, type="file")]
        beside = [path.name for path in Path().iterdir() if path.is_dir() or path.suffix == _TABLES]
        return [
            CompletionItem(name)
            for name in [*named, *sorted(beside)]
            if name.startswith(incomplete) and (incomplete or name[0] != ".")
        ]

    return {"shell_complete": complete}


def _quietly(names: Names, ctx: click.Context) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return list(names(ctx))
        except Exception:  # of any class: a line of the shell is no place for it
            return []


def draft_labels(_: click.Context) -> Iterable[str]:
    """List kinds of drafts, with some options where they have any."""
    from mdsd.drafts.registry import draft_types

    for each in draft_types():
        yield from [kind.label for kind in each.example_kinds(_MOST_OPTIONS)] or [each.name]


def step_verifiers(_: click.Context) -> Iterable[str]:
    """List the verifiers of a step."""
    from mdsd.verifiers import verifier_names

    return verifier_names()


def rule_names(_: click.Context) -> Iterable[str]:
    """List the rules of engines, and the verifiers of a step."""
    from mdsd.engines.registry import rule_names as names

    return names()


def all_verifiers(ctx: click.Context) -> Iterable[str]:
    """List the verifiers of a step and of paths."""
    from mdsd.decoding.verification import PATH_VERIFICATIONS

    return [*step_verifiers(ctx), *PATH_VERIFICATIONS]


def schemes(_: click.Context) -> Iterable[str]:
    """List what a decoder drafts."""
    from mdsd.decoding.decoder import SCHEMES

    return SCHEMES


def draft_models(ctx: click.Context) -> Iterable[str]:
    """List the draft models of the data that the command names, or takes without a name."""
    import numpy as np

    from mdsd.datasets.captures.folder import is_capture, read_header
    from mdsd.datasets.embedded import embedded_file

    # What stands before an option without its value is left over, and not yet read as data.
    data = next(iter(ctx.args), None) or ctx.params.get("data") or _data_sets()[0]
    if is_capture(data):
        return read_header(Path(data)).draft_models
    embedded = data in _data_sets()
    with embedded_file(data) if embedded else nullcontext(data) as path, np.load(path) as archive:
        return [str(name) for name in archive.get("draft_names", ["draft_0"])]


def _data_sets() -> tuple[str, ...]:
    from mdsd.datasets.embedded import names

    return names()


class _Bash(BashComplete):
    """bash takes colons and equals signs for ends of words: these are put together again."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        for word in [*args, incomplete.lstrip("=")]:
            if word == "=":  # an option and its value are two words to the parser as well
                continue
            if words and (word.startswith(":") or words[-1].endswith(":")):
                words[-1] += word
            else:
                words.append(word)
        self._typed = words[-1].rpartition(":")[0] if ":" in words[-1] else None
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem) -> str:
        if self._typed is not None:
            # What stands before the last colon is there already, and what bash would replace
            # is what stands after it.
            item = CompletionItem(item.value.removeprefix(f"{self._typed}:"), type=item.type)
        return super().format_completion(item)


class _WholeWords(ShellComplete):
    """Other shells replace the whole word, the option before an equals sign included."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        found = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if not (equals and option.startswith("-")):
            return found
        return [CompletionItem(f"{option}={item.value}", type=item.type) for item in found]


class _Zsh(_WholeWords, ZshComplete):
    pass


class _Fish(_WholeWords, FishComplete):
    """fish splits what it is told at commas: at the first only, as lists have more."""

    source_template = FishComplete.source_template.replace("string split ", "string split -m 1 ", 1)


def use_own_shells() -> None:
    """Have shells complete labels with colons, lists with commas, and what follows an equals."""
    for shell in (_Bash, _Zsh, _Fish):
        add_completion_class(shell)
