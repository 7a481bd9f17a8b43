"""What a study is asked to do, checked and completed before anything is computed."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from itertools import product
from typing import Any, TypeVar

import numpy as np

from mdsd._arguments import check_name, check_whole, shown
from mdsd._typing import AnyArray
from mdsd.datasets import Source
from mdsd.drafts import Draft, DraftKind, default_kinds, read_kind
from mdsd.drafts.base import check_num_drafts
from mdsd.errors import InvalidArgumentError
from mdsd.filters import CUT_COLUMNS, Filters
from mdsd.studies.cases import Case
from mdsd.studies.cells import Cell, grid_cells
from mdsd.studies.study_rows import BoundRow, CompareRow, StudyRow
from mdsd.verifiers import Verifier, get_verifier, verifier_names
from mdsd.verifiers.built_in import USUAL_REFERENCE

MONTE_CARLO_PATHS = 1024
"""Rejection paths where an acceptance rate is estimated; positions average the noise out."""

SEARCH_TOLERANCE = 2e-4
"""Certified gap at which searches stop on large vocabularies: far below any standard error."""

_EXACT_TOKENS = 512
"""Largest vocabulary at which searches go on to rounding level instead."""

_MOST_PROBED = 1000
"""Drafts of an example: no verifier tells larger numbers apart, and an example has to be cheap."""

T = TypeVar("T")


@dataclass(frozen=True)
class Cases:
    """What is drafted, from which models, under which filters.

    Attributes
    ----------
    num_drafts : tuple of int
    kinds : tuple of DraftKind
        Those that apply.
    draft_models : tuple of str
        Of the drafts that have one.
    positions : int
        How many positions, counted from the first.
    cases : tuple of Case
        All that follows from it, in the order of the rows: by filter, draft model, temperature,
        kind of draft, number of drafts.
    """

    num_drafts: tuple[int, ...]
    kinds: tuple[DraftKind, ...]
    draft_models: tuple[str, ...]
    positions: int
    cases: tuple[Case, ...]

    def describe(self) -> dict[str, Any]:
        """Give what was asked for as it is written next to the rows."""
        return {
            "positions": self.positions,
            "draft_models": list(self.draft_models),
            "drafts": [kind.label for kind in self.kinds],
            "num_drafts": list(self.num_drafts),
        }


@dataclass(frozen=True)
class StudySettings:
    """A checked request.

    Attributes
    ----------
    asked : Cases
    described : mapping of str to object
        Filters, and what else is written next to the rows.
    verifiers : mapping of str to (str or Verifier)
        By name; empty for a study of bounds.
    seed : int
    cells : tuple of Cell
        The cases, arranged as they are computed.
    against : str or None
        The verifier that all others are compared with.
    """

    asked: Cases
    described: Mapping[str, Any]
    verifiers: Mapping[str, str | Verifier]
    seed: int
    cells: tuple[Cell, ...]
    against: str | None = None

    @property
    def positions(self) -> int:
        """How many positions, counted from the first."""
        return self.asked.positions

    def describe(self) -> dict[str, Any]:
        """Give the settings as they are written next to the rows."""
        described = {**self.asked.describe(), **self.described}
        own = {k.label: _described(k.draft_type, k.options) for k in self.asked.kinds if _own(k)}
        if own:
            described["given_drafts"] = own
        if self.verifiers:
            described["verifiers"] = list(self.verifiers)
            given = {
                name: _described(type(verifier), sorted(vars(verifier).items()))
                for name, verifier in self.verifiers.items()
                if not isinstance(verifier, str)
            }
            if given:
                described["given_verifiers"] = given
            described["monte_carlo_paths"] = MONTE_CARLO_PATHS
        return described | {"seed": self.seed}

    def kind(self, label: str) -> DraftKind:
        """Give the kind of draft of a label that a cell has."""
        given = (kind for kind in self.asked.kinds if kind.label == label)
        return next(given, None) or read_kind(label)

    def verifier(self, name: str, tolerance: float, seed: int = 0) -> Verifier:
        """Make a verifier whose searches stop at a certified gap."""
        options = {"tolerance": tolerance, "monte_carlo_paths": MONTE_CARLO_PATHS, "seed": seed}
        return _make_verifier(self.verifiers[name], options)

    def verifier_for_many(self, name: str, tolerance: float) -> Verifier:
        """Make a verifier for many positions at once: on large vocabularies one that is fast."""
        made, exact = self.verifier(name, tolerance), tolerance < SEARCH_TOLERANCE
        return made if exact or made is self.verifiers[name] else made.for_many()

    def seeds(self, positions: Iterable[int]) -> AnyArray:
        """Make the seed of what is estimated at each of some positions.

        It depends on the seed and the position only: not on the cell, nor on what else is asked.
        """
        sequences = (np.random.SeedSequence(self.seed, spawn_key=(p,)) for p in positions)
        states = [int(sequence.generate_state(1, np.uint64)[0]) for sequence in sequences]
        return np.array(states, dtype=np.uint64)


def search_tolerance(vocab_size: int) -> float:
    """Give the certified gap at which searches stop, for a number of tokens."""
    return SEARCH_TOLERANCE if vocab_size > _EXACT_TOKENS else 1e-9


def study_settings(
    source: Source,
    rows: type[BoundRow] | type[CompareRow] | type[StudyRow],
    *,
    verifiers: Iterable[str | Verifier] | None = None,
    against: str | None = None,
    temperatures: Iterable[float] = (1.0,),
    seed: int = 0,
    **options: Any,
) -> StudySettings:
    """Check the options of a study; they are those of the function that returns such rows.

    Parameters
    ----------
    source : Source
    rows : {BoundRow, CompareRow, StudyRow}
        The first have no verifiers, and the last lists of filters, and drafts to which those of a
        cell are compared.
    verifiers, against, temperatures, seed, **options
        As for `mdsd.studies.bound`, `compare` or `study`.

    Returns
    -------
    StudySettings
        Without the cases to which no verifier applies.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.
    """
    chosen: dict[str, str | Verifier] = {}
    reference = None
    if rows is not BoundRow:
        chosen, reference = _read_compared(verifiers, against)
    default = Filters().columns
    cuts: dict[str, list[Any]] = {name: [default[name]] for name in CUT_COLUMNS}
    for name in cuts.keys() & options.keys():
        given = options.pop(name)
        cuts[name] = listed(name, given) if rows is StudyRow else [given]
    filters, described = filter_grid(temperatures, cuts)
    yardsticks: tuple[DraftKind, ...] = ()
    if rows is StudyRow:
        yardsticks = tuple(kind for kind in default_kinds() if not kind.one_model_each)
    else:
        alone: dict[str, Any] = {name: described[name][0] for name in CUT_COLUMNS}
        alone["search_tolerance"] = search_tolerance(source.read(0, 1).vocab_size)
        described |= alone
    check_whole("seed", seed, 0, math.inf)
    asked = read_cases(source.draft_models, source.num_positions, filters, **options)
    cases = [(case, _supporting(case, chosen)) for case in asked.cases]
    if chosen:
        cases = [(case, names) for case, names in cases if names]
        if not cases:
            raise InvalidArgumentError(
                f"nothing to compute: none of the verifiers {', '.join(chosen)} supports "
                f"{', '.join(map(str, asked.kinds))} with num_drafts "
                f"{', '.join(map(str, asked.num_drafts))}"
            )
    cells = grid_cells(cases, yardsticks)
    for cell in cells:
        for column, times in Counter(cell.columns).items():
            if times > 1:  # each has a name of its own, in memory and in files
                raise InvalidArgumentError(
                    f"verifiers holds one whose column {column!r} has the name of another; set "
                    "another `name` on it"
                )
    return StudySettings(asked, described, chosen, int(seed), cells, reference)


def filter_grid(
    temperatures: Iterable[float], cuts: Mapping[str, Sequence[Any]]
) -> tuple[list[tuple[Filters, ...]], dict[str, list[Any]]]:
    """Make all filters: for each way to leave tokens out, those of all temperatures.

    Parameters
    ----------
    temperatures : iterable of float
    cuts : mapping of str to sequence
        Of the filters that leave tokens out, the values of each.

    Returns
    -------
    filters : list of tuple of Filters
    described : dict of str to list
        As it is written next to the rows.

    Raises
    ------
    InvalidArgumentError
        If one is empty, or a value is out of range.
    """
    asked = listed("temperatures", temperatures)
    for name, values in {"temperatures": asked, **cuts}.items():
        if not values:
            raise InvalidArgumentError(f"{name} is empty; expected at least one")
    found: dict[tuple[Filters, ...], None] = {}
    for combination in product(*cuts.values()):
        cut = dict(zip(cuts, combination, strict=True))
        found[_distinct("temperatures", [Filters(each, **cut) for each in asked])] = None
    described = {
        name: list(dict.fromkeys(getattr(each, name) for row in found for each in row))
        for name in ("temperature", *cuts)
    }
    for name in cuts:
        for value in described[name]:
            if isinstance(value, int):
                check_whole(name, value, 1)  # that a column can hold it
    return list(found), {"temperatures": described.pop("temperature"), **described}


def read_cases(
    models: Sequence[str],
    available: int,
    filters: Sequence[tuple[Filters, ...]] = ((Filters(),),),
    *,
    num_drafts: Iterable[int] = (2, 3, 4),
    drafts: Iterable[Draft] | None = None,
    draft_models: Iterable[str] | None = None,
    positions: int | None = None,
) -> Cases:
    """Check options against the draft models and positions that there are.

    Parameters
    ----------
    models : sequence of str
    available : int
        Number of positions.
    filters : sequence of tuple of Filters
        For each way to leave tokens out, those of all temperatures.
    num_drafts, drafts, draft_models, positions
        As for `mdsd.studies.bound`.

    Returns
    -------
    Cases

    Raises
    ------
    InvalidArgumentError
        As for `study_settings`.
    """
    given = listed("num_drafts", num_drafts)
    counts = _distinct("num_drafts", [check_num_drafts(n) for n in given])
    chosen = read_names("draft model", draft_models, models, models[:1])
    asked = read_kinds(drafts)
    if positions is not None:
        check_whole("positions", positions, 1, math.inf, otherwise=" or None")
    used = tuple(kind for kind in asked if any(kind.applies(n, len(models)) for n in counts))
    if not used:
        reasons = dict.fromkeys(
            kind.refusal(n) or f"{kind} needs as many draft models as drafts"
            for kind in asked
            for n in counts
        )
        raise InvalidArgumentError(
            f"nothing to compute: {', '.join(map(str, asked))} with num_drafts "
            f"{', '.join(map(str, counts))} on {len(models)} draft model(s): {'; '.join(reasons)}"
        )
    # Drafts of several models come last: they have their own, whatever model the others take.
    joint = tuple(models)
    cases = tuple(
        Case(kind, joint[:n] if kind.one_model_each else of, n, each)
        for warm in filters
        for of in (*((model,) for model in chosen), joint)
        for each in warm
        for kind in used
        if kind.one_model_each is (of is joint)
        for n in counts
        if kind.applies(n, len(of))
    )
    first = available if positions is None else min(int(positions), available)
    return Cases(counts, used, chosen, first, cases)


def _supporting(case: Case, verifiers: Mapping[str, str | Verifier]) -> tuple[str, ...]:
    """Name the verifiers that support drafts like those of a case.

    There is an example even where the data leave no position at which n tokens can be drafted.
    """
    if not verifiers:
        return ()
    num_drafts = min(case.num_drafts, _MOST_PROBED)
    example = case.kind.example(num_drafts, num_drafts + 1)
    return tuple(n for n, each in verifiers.items() if _make_verifier(each, {}).supports(example))


def _make_verifier(verifier: str | Verifier, options: Mapping[str, float]) -> Verifier:
    """Make a verifier that is given by name, with those of the options that it takes."""
    if not isinstance(verifier, str):
        return verifier
    taken = _parameters(verifier)
    return get_verifier(verifier, **{key: options[key] for key in options if key in taken})


@cache
def _parameters(name: str) -> frozenset[str]:
    """Options that the class of a registered verifier takes."""
    return frozenset(signature(type(get_verifier(name))).parameters)


def _read_verifiers(
    verifiers: Iterable[str | Verifier] | None,
) -> dict[str, str | Verifier]:
    """Check a list of verifiers, and give them by name."""
    if verifiers is None:
        return {name: name for name in verifier_names()}
    return _by_label("verifiers", listed("verifiers", verifiers), _verifier_name)


def _read_compared(
    verifiers: Iterable[str | Verifier] | None, against: str | None
) -> tuple[dict[str, str | Verifier], str | None]:
    """Check a list of verifiers and the one they are compared with, which joins them if asked."""
    chosen = _read_verifiers(verifiers)
    if against is None:
        return chosen, USUAL_REFERENCE if USUAL_REFERENCE in chosen else None
    known = (*chosen, *(name for name in verifier_names() if name not in chosen))
    return {**chosen, against: chosen.get(check_name("against", against, known), against)}, against


def _verifier_name(verifier: str | Verifier) -> str:
    if isinstance(verifier, Verifier):
        return verifier.name
    try:
        get_verifier(verifier)
    except InvalidArgumentError:
        from mdsd.decoding.verification import PATH_VERIFICATIONS  # not needed but for this

        if isinstance(verifier, str) and verifier in PATH_VERIFICATIONS:
            raise InvalidArgumentError(
                f"verifier {verifier!r} decides about the paths of trees, not at one position: "
                "it is for decoders, `mdsd decode` and `mdsd plan-tree`"
            ) from None
        raise
    return verifier


def read_kinds(drafts: Iterable[Draft] | None) -> tuple[DraftKind, ...]:
    """Check a list of kinds of drafts, or of their labels; all without options if there is none.

    Raises
    ------
    InvalidArgumentError
        If it is no list, an empty one, or one is not known.
    """
    if drafts is None:
        return default_kinds()
    kinds = map(read_kind, listed("drafts", drafts))
    return tuple(_by_label("drafts", kinds, lambda kind: kind.label).values())


def _by_label(name: str, given: Iterable[T], label_of: Callable[[T], str]) -> dict[str, T]:
    """Arrange a list by labels, of which no two others may share one."""
    chosen: dict[str, T] = {}
    for each in given:
        label = label_of(each)
        if chosen.setdefault(label, each) is not each and chosen[label] != each:
            raise InvalidArgumentError(
                f"{name} holds two of the name {label!r}; set another `name` on one of them"
            )
    _distinct(name, list(chosen))
    return chosen


def read_names(
    kind: str, given: Iterable[str] | None, known: Sequence[str], default: Sequence[str]
) -> tuple[str, ...]:
    """Check a list of names, and leave out repetitions.

    Parameters
    ----------
    kind : str
        What one of them names.
    given : iterable of str, or None
    known, default : sequence of str
        The names there are, and those chosen where none is given.

    Raises
    ------
    InvalidArgumentError
        If it is no list, an empty one, or a name is not known.
    """
    if given is None:
        return tuple(default)
    return _distinct(
        f"{kind}s", [check_name(kind, name, known) for name in listed(f"{kind}s", given)]
    )


def listed(name: str, given: Iterable[T]) -> list[T]:
    """Read a list that is an argument.

    Raises
    ------
    InvalidArgumentError
        If it is none.
    """
    # A string is a list of letters, which nobody means.
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidArgumentError(
            f"{name} is {shown(given)}; expected a list, as [{shown(given)}]"
        )
    return list(given)


def _distinct(name: str, given: list[T]) -> tuple[T, ...]:
    if not given:
        raise InvalidArgumentError(f"{name} is empty; expected at least one")
    return tuple(dict.fromkeys(given))


def _own(kind: DraftKind) -> bool:
    """Tell kinds that no other process knows by their labels."""
    try:
        return read_kind(kind.label) != kind
    except InvalidArgumentError:
        return True


def _described(cls: type, options: Iterable[tuple[str, Any]]) -> str:
    """Tell what was given as an object from others of its name, in every process alike."""
    values = ", ".join(f"{name}={value!r}" for name, value in options)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", f"{cls.__module__}.{cls.__qualname__}({values})")
