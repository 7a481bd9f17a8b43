"""What a study is asked to do, checked and completed before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from mdsd._arguments import check_name, check_whole, shown
from mdsd.datasets import Dataset
from mdsd.drafts.base import check_num_drafts
from mdsd.errors import InvalidArgumentError
from mdsd.filters import filter_probs
from mdsd.studies.positions import DRAFT_NAMES, Case, applies, probe_draft
from mdsd.verifiers import Verifier, get_verifier, verifier_names

__all__ = [
    "MONTE_CARLO_PATHS",
    "SEARCH_TOLERANCE",
    "Settings",
    "bound_settings",
    "compare_settings",
    "listed",
    "make_verifier",
    "read_names",
    "search_tolerance",
    "settle",
    "supporting",
    "verifier_label",
]

MONTE_CARLO_PATHS = 1024
"""Rejection paths where an acceptance rate is estimated; positions average the noise out."""

SEARCH_TOLERANCE = 2e-4
"""Certified gap at which searches stop on large vocabularies: far below any standard error."""

EXACT_TOKENS = 512
"""Largest vocabulary at which searches go on to rounding level instead."""

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """A checked request.

    Attributes
    ----------
    num_drafts : tuple of int
    drafts, draft_models : tuple of str
        Draft distributions that apply, and the draft models of those that take one.
    verifiers : tuple of str or Verifier
        Empty for a study of bounds.
    temperatures : tuple of float
    top_k : int or None
    top_p : float
    positions : int
        How many positions, counted from the first.
    seed : int
    search_tolerance : float
        Gap at which the search for an optimal lottery stops.
    cases : tuple of Case
        All that follows from it, in the order of the rows.
    """

    num_drafts: tuple[int, ...]
    drafts: tuple[str, ...]
    draft_models: tuple[str, ...]
    verifiers: tuple[str | Verifier, ...]
    temperatures: tuple[float, ...]
    top_k: int | None
    top_p: float
    positions: int
    seed: int
    search_tolerance: float
    cases: tuple[Case, ...]

    def describe(self, data: str) -> dict[str, Any]:
        """Give the settings as they are written next to the rows.

        Parameters
        ----------
        data : str
            Name or path of the data set.
        """
        described: dict[str, Any] = {
            "data": data,
            "positions": self.positions,
            "draft_models": list(self.draft_models),
            "drafts": list(self.drafts),
            "num_drafts": list(self.num_drafts),
            "temperatures": list(self.temperatures),
            "top_k": self.top_k,
            "top_p": self.top_p,
        }
        if self.verifiers:
            described["verifiers"] = [verifier_label(verifier) for verifier in self.verifiers]
            described["monte_carlo_paths"] = MONTE_CARLO_PATHS
        return described | {"search_tolerance": self.search_tolerance, "seed": self.seed}

    def verifiers_at(self, position: int) -> tuple[Verifier, ...]:
        """Make the verifiers for one position.

        What is estimated there depends on the seed and the position only: not on the other
        verifiers, drafts and positions of the study.
        """
        sequence = np.random.SeedSequence(self.seed, spawn_key=(position,))
        options = {
            "seed": int(sequence.generate_state(1, np.uint64)[0]),
            "monte_carlo_paths": MONTE_CARLO_PATHS,
            "tolerance": self.search_tolerance,
        }
        return tuple(make_verifier(verifier, options) for verifier in self.verifiers)


def verifier_label(verifier: str | Verifier) -> str:
    """Name of a verifier that is given by name or as it is."""
    return verifier if isinstance(verifier, str) else verifier.name


def search_tolerance(vocab_size: int) -> float:
    """Give the certified gap at which searches stop, for a number of tokens."""
    return SEARCH_TOLERANCE if vocab_size > EXACT_TOKENS else 1e-9


def make_verifier(verifier: str | Verifier, options: Mapping[str, float]) -> Verifier:
    """Make a verifier that is given by name, with those of the options that it takes."""
    if not isinstance(verifier, str):
        return verifier
    taken = _parameters(verifier)
    return get_verifier(verifier, **{key: options[key] for key in options if key in taken})


@cache
def _parameters(name: str) -> frozenset[str]:
    """Options that the class of a registered verifier takes."""
    return frozenset(signature(type(get_verifier(name))).parameters)


def bound_settings(
    dataset: Dataset,
    *,
    num_drafts: Iterable[int] = (2, 3, 4),
    drafts: Iterable[str] | None = None,
    draft_models: Iterable[str] | None = None,
    temperatures: Iterable[float] = (1.0,),
    top_k: int | None = None,
    top_p: float = 1.0,
    positions: int | None = None,
    seed: int = 0,
) -> Settings:
    """Check the options of a study of bounds; they are those of `mdsd.studies.bound`.

    Returns
    -------
    Settings

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.
    """
    if not isinstance(dataset, Dataset):
        raise InvalidArgumentError(
            f"dataset is {type(dataset).__name__}; expected a Dataset from mdsd.datasets.load or "
            "mdsd.datasets.read_npz"
        )
    return settle(
        tuple(dataset.draft_logits),
        dataset.num_positions,
        search_tolerance(dataset.vocab_size),
        num_drafts=num_drafts,
        drafts=drafts,
        draft_models=draft_models,
        temperatures=temperatures,
        top_k=top_k,
        top_p=top_p,
        positions=positions,
        seed=seed,
    )


def settle(
    models: Sequence[str],
    available: int,
    tolerance: float,
    *,
    num_drafts: Iterable[int],
    drafts: Iterable[str] | None,
    draft_models: Iterable[str] | None,
    temperatures: Iterable[float],
    top_k: int | None,
    top_p: float,
    positions: int | None,
    seed: int,
) -> Settings:
    """Check options against the draft models, positions and tokens that there are.

    Parameters
    ----------
    models : sequence of str
    available : int
        Number of positions.
    tolerance : float
        Certified gap at which searches stop.
    num_drafts, drafts, draft_models, temperatures, top_k, top_p, positions, seed
        As for `mdsd.studies.bound`.

    Returns
    -------
    Settings

    Raises
    ------
    InvalidArgumentError
        As for `bound_settings`.
    """
    given = listed("num_drafts", num_drafts)
    counts = _distinct("num_drafts", [check_num_drafts(n) for n in given])
    chosen = read_names("draft model", draft_models, models, models[:1])
    asked = read_names("draft distribution", drafts, DRAFT_NAMES, DRAFT_NAMES)
    warm = listed("temperatures", temperatures)
    for heat in warm or [1.0]:
        filter_probs([1.0], temperature=heat, top_k=top_k, top_p=top_p)
    heats = _distinct("temperatures", [float(heat) + 0.0 for heat in warm])  # -0.0 is 0.0
    if positions is not None:
        check_whole("positions", positions, 1, math.inf, otherwise=" or None")
    check_whole("seed", seed, 0, math.inf)

    used = tuple(name for name in asked if any(applies(name, n, len(models)) for n in counts))
    if not used:
        raise InvalidArgumentError(
            f"nothing to compute: {', '.join(asked)} with num_drafts "
            f"{', '.join(map(str, counts))} on {len(models)} draft model(s); spechub needs "
            "num_drafts = 2 and independent as many draft models as drafts"
        )
    return Settings(
        num_drafts=counts,
        drafts=used,
        draft_models=chosen,
        verifiers=(),
        temperatures=heats,
        top_k=top_k if top_k is not None and top_k > 0 else None,
        top_p=float(top_p),
        positions=available if positions is None else min(int(positions), available),
        seed=int(seed),
        search_tolerance=tolerance,
        cases=_cases(tuple(models), chosen, heats, used, counts),
    )


def compare_settings(
    dataset: Dataset, *, verifiers: Iterable[str | Verifier] | None = None, **options: Any
) -> Settings:
    """Check the options of a comparison; they are those of `mdsd.studies.compare`.

    Returns
    -------
    Settings
        Without the cases to which no verifier applies.

    Raises
    ------
    InvalidArgumentError
        If an option is out of range, a name is not known, or nothing is left to compute.
    """
    return supporting(bound_settings(dataset, **options), verifiers)


def supporting(settings: Settings, verifiers: Iterable[str | Verifier] | None) -> Settings:
    """Add verifiers to settings, and leave out the cases to which none of them applies.

    Parameters
    ----------
    settings : Settings
    verifiers : iterable of str or Verifier, or None
        All registered ones if None.

    Returns
    -------
    Settings

    Raises
    ------
    InvalidArgumentError
        If a name is not known, or nothing is left to compute.
    """
    chosen = _choose_verifiers(verifiers)
    judges = [make_verifier(verifier, {}) for verifier in chosen]
    cases = tuple(
        case
        for case in settings.cases
        if any(judge.supports(probe_draft(case)) for judge in judges)
    )
    if not cases:
        raise InvalidArgumentError(
            f"nothing to compute: none of the verifiers {', '.join(map(verifier_label, chosen))} "
            f"supports {', '.join(settings.drafts)} with num_drafts "
            f"{', '.join(map(str, settings.num_drafts))}"
        )
    return Settings(**{**vars(settings), "verifiers": chosen, "cases": cases})


def _cases(
    models: tuple[str, ...],
    chosen: tuple[str, ...],
    temperatures: tuple[float, ...],
    drafts: tuple[str, ...],
    counts: tuple[int, ...],
) -> tuple[Case, ...]:
    """List the cases by draft model, temperature, draft distribution, number of drafts.

    Independent drafts come last: they have their own models, whatever model the others take.
    """
    own = [
        Case((model,), draft, n, heat)
        for model in chosen
        for heat in temperatures
        for draft in drafts
        for n in counts
        if draft != "independent" and applies(draft, n, len(models))
    ]
    joint = [
        Case(models[:n], "independent", n, heat)
        for heat in temperatures
        for n in counts
        if "independent" in drafts and applies("independent", n, len(models))
    ]
    return (*own, *joint)


def _choose_verifiers(verifiers: Iterable[str | Verifier] | None) -> tuple[str | Verifier, ...]:
    if verifiers is None:
        return verifier_names()
    chosen: dict[str, str | Verifier] = {}
    for verifier in listed("verifiers", verifiers):
        if not isinstance(verifier, Verifier):
            get_verifier(verifier)  # refuses an unknown name
        label = verifier_label(verifier)
        if chosen.setdefault(label, verifier) is not verifier and chosen[label] != verifier:
            raise InvalidArgumentError(
                f"verifiers holds two of the name {label!r}; set another `name` on one of them"
            )
    return _distinct("verifiers", list(chosen.values()))


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
        raise InvalidArgumentError(f"{name} is {shown(given)}; expected a list")
    return list(given)


def _distinct(name: str, given: list[T]) -> tuple[T, ...]:
    if not given:
        raise InvalidArgumentError(f"{name} is empty; expected at least one")
    return tuple(dict.fromkeys(given))
