"""What there is to choose from: verifiers and kinds of drafts, those of other packages included.

And the rules of engines.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from mdsd._version import __version__
from mdsd.decoding.steps import StepVerification
from mdsd.decoding.verification import PATH_VERIFICATIONS
from mdsd.drafts.registry import draft_types
from mdsd.engines.registry import default_rules, rule_parameters
from mdsd.studies.fitting import Paragraph
from mdsd.verifiers import Verifier, get_verifier, verifier_names

_LEAST_TABLE = 70
"""Columns below which entries are listed one under the other."""


@dataclass(frozen=True)
class ListedVerifier:
    """A verifier that has a name.

    Attributes
    ----------
    name : str
    verifies : str
        "a step", or "paths" of a drafted tree, which decoders alone have.
    drafts : str
        The draft distributions it supports, in words.
    what : str
        What it does.
    source : str
        Paper.
    package : str
        Where it comes from.
    """

    name: str
    verifies: str
    drafts: str
    what: str
    source: str
    package: str


@dataclass(frozen=True)
class ListedDrafts:
    """A kind of drafts that has a name.

    Attributes
    ----------
    name : str
    options : tuple of str
        That stand behind its name and colons, in this order.
    what : str
        What is drafted.
    package : str
        Where it comes from.
    """

    name: str
    options: tuple[str, ...]
    what: str
    package: str


@dataclass(frozen=True)
class ListedRule:
    """What an engine does, as a study of rules has it.

    Attributes
    ----------
    name : str
    options : tuple of str
        Its parameters, which stand behind its name and colons, in this order.
    used_by : str
        Who has it.
    drafts : str
        The draft distributions it takes, in words.
    what : str
        What it does.
    source : str
        Where it is stated.
    package : str
        Where it comes from.
    """

    name: str
    options: tuple[str, ...]
    used_by: str
    drafts: str
    what: str
    source: str
    package: str


def listed_verifiers() -> tuple[ListedVerifier, ...]:
    """List the verifiers of a step and then those of paths, built-in ones first."""
    found: list[tuple[str, str, Verifier | StepVerification]] = []
    found += [(name, "a step", get_verifier(name)) for name in verifier_names()]
    found += [(name, "paths", kind()) for name, kind in PATH_VERIFICATIONS.items()]
    return tuple(
        ListedVerifier(name, of, each.supported, _what(each), each.source, _package(type(each)))
        for name, of, each in found
    )


def listed_drafts() -> tuple[ListedDrafts, ...]:
    """List the kinds of drafts, built-in ones first."""
    return tuple(
        ListedDrafts(each.name, each.options, _what(each), _package(each)) for each in draft_types()
    )


def listed_rules() -> tuple[ListedRule, ...]:
    """List the rules of engines that a study shows by itself."""
    rules = {rule.name: rule for rule in default_rules()}
    return tuple(
        ListedRule(
            name,
            rule_parameters(name),
            rule.used_by,
            rule.supported,
            _what(rule.described),
            rule.source,
            _package(type(rule.described)),
        )
        for name, rule in rules.items()
    )


def _what(described: Any) -> str:
    """First sentence of a docstring."""
    text = (described.__doc__ or "").replace("`", "").strip()
    return " ".join(text.split("\n\n")[0].split())


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def listing_json() -> str:
    """Write the lists as JSON."""
    lists: dict[str, Sequence[Any]] = {
        "verifiers": listed_verifiers(),
        "drafts": listed_drafts(),
        "rules": listed_rules(),
    }
    found = {name: list(map(vars, listed)) for name, listed in lists.items()}
    return json.dumps({"version": __version__, **found}, indent=2)


def listing_report() -> RenderableType:
    """Lay the lists out."""
    verifiers = listed_verifiers()
    heads = ("verifier", "draft distributions", "what it does")
    parts: list[RenderableType] = []
    for of, title in (
        ("a step", "Verifiers of a step"),
        ("paths", "Verifiers of the paths of a tree, in decoders and plans of trees"),
    ):
        lines = [
            (each.name, each.drafts, _with_source(each))
            for each in verifiers
            if each.verifies == of
        ]
        parts += [Paragraph(title, "bold"), "", _Entries(heads, lines), ""]
    drafts = [(":".join([each.name, *each.options]), _said(each)) for each in listed_drafts()]
    title = "Draft distributions, options behind colons, as in hybrid:1"
    parts += [Paragraph(title, "bold"), "", _Entries(("draft distribution", "drafts"), drafts), ""]
    rules = []
    for rule in listed_rules():
        what = _with_source(rule)
        if rule.options:
            what.append("\n" + ":".join([rule.name, *rule.options]))
        rules.append((rule.name, rule.used_by, what))
    title = "Rules of engines, with parameters behind colons, as in mdsd bias"
    heads = ("rule", "who has it", "what it does")
    parts += [Paragraph(title, "bold"), "", _Entries(heads, rules)]
    return Group(*parts)


def _said(each: ListedVerifier | ListedDrafts | ListedRule) -> Text:
    """Say what an entry does, and of which package it is if it is another one."""
    return Text(each.what if each.package == "mdsd" else f"{each.what} ({each.package})")


def _with_source(each: ListedVerifier | ListedRule) -> Text:
    what = _said(each)
    if each.source:
        what.append(f"\n{each.source}", style="dim")
    return what


class _Entries:
    """Lines of names and words: a table, or a list where that is too wide."""

    def __init__(
        self, heads: Sequence[str], lines: Iterable[tuple[str, *tuple[str | Text, ...]]]
    ) -> None:
        self._heads, self._lines = heads, list(lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < _LEAST_TABLE:
            for name, *words in self._lines:
                yield Text(name, "bold")
                for text in words:
                    for part in str(text).splitlines():
                        yield Paragraph(f"  {part}", indent="  ")
            return
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        table.add_column(self._heads[0], no_wrap=True, style="bold")
        for head in self._heads[1:-1]:
            table.add_column(head, max_width=24)
        table.add_column(self._heads[-1], overflow="fold")
        for name, *words in self._lines:
            table.add_row(Text(name), *map(_as_text, words))
            table.add_section()
        yield table


def _as_text(words: str | Text) -> Text:
    return Text(words) if isinstance(words, str) else words
