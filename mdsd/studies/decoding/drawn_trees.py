"""Comparison of decoders on the same drawn trees, by what each is expected to accept of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from itertools import groupby
from time import perf_counter
from typing import Any, cast

import numpy as np

from mdsd._typing import FloatArray
from mdsd.decoding.choices import Choices, RandomChoices
from mdsd.decoding.decoder import Decoder
from mdsd.decoding.drafted import DraftedTree
from mdsd.decoding.rows import Row
from mdsd.decoding.sampling import FilteredRows
from mdsd.decoding.steps import StepVerification
from mdsd.studies.cases import Progress, Steps
from mdsd.studies.decoding.cases import DecoderCase, applicable
from mdsd.studies.decoding.decoder_settings import DecodeSettings
from mdsd.studies.decoding.models import TextModels
from mdsd.studies.study_rows import DrawnTreesRow, Mean
from mdsd.verifiers import NaiveVerifier, RRSVerifier

Text = tuple[Sequence[int], int]
"""A prompt, and the seed of the text that continues it."""


def run_comparison(
    models: TextModels, settings: DecodeSettings, progress: Progress | None = None
) -> tuple[DrawnTreesRow, ...]:
    """Compare all decoders along a text for each seed.

    Parameters
    ----------
    models : TextModels
    settings : DecodeSettings
        From `comparison_settings`.
    progress : callable, optional
        Called with (texts done, all texts): each counts once for each kind of drafts and tree.

    Returns
    -------
    tuple of DrawnTreesRow
        Most tokens per call of the target first.
    """
    texts = [(settings.prompt_ids, seed) for seed in settings.seeds]
    groups = len({_drafts(case) for case in settings.cases})
    rows = compare_on_trees(
        models,
        settings.cases,
        texts,
        settings.max_new_tokens,
        step=Steps(groups * len(texts), progress),
        **settings.filters.columns,
    )
    return tuple(sorted(rows, key=lambda row: -row.tokens_per_target_call))


def compare_on_trees(
    models: TextModels,
    cases: Sequence[DecoderCase],
    texts: Sequence[Text],
    length: int,
    *,
    step: Callable[[], object] = lambda: None,
    **sampling: Any,
) -> list[DrawnTreesRow]:
    """Work out what decoders are expected to accept of trees drawn along texts of the target.

    Parameters
    ----------
    models : TextModels
    cases : sequence of DecoderCase
        Those of equal drafts and trees are given the same drawn trees.
    texts : sequence of (sequence of int, int)
    length : int
        Tokens of each text, all sampled from the target: a tree is drawn before each of them.
    step : callable, optional
        Called after each text of each group of cases.
    **sampling
        Filters, as for `mdsd.decoding.generate`.

    Returns
    -------
    list of DrawnTreesRow
        In the order of the cases.

    Notes
    -----
    Whatever a verification of a tree leaves to chance is averaged out exactly
    (`StepVerification.accepted_by_depth`); what is left is the scatter over trees. The texts have
    the law of the target and no verification has a part in them, so that they are the same for all
    cases. A decoder itself draws trees at fewer positions, those at which its steps begin, and the
    mean over these may be a little different.

    Every tree is verified once, too, for the time it takes: from the target's logits on, as if
    nobody had looked at it before.
    """
    found: dict[DecoderCase, DrawnTreesRow] = {}
    for _, together in groupby(sorted(cases, key=_drafts), key=_drafts):
        group = _Group(tuple(together), models, sampling)
        for prompt_ids, seed in texts:
            group.follow(prompt_ids, seed, length)
            step()
        found |= {case: group.row(case, len(texts)) for case in group.cases}
    return [found[case] for case in cases]


def _drafts(case: DecoderCase) -> tuple[str, tuple[int, ...]]:
    """Tell which cases can be given the same trees."""
    return case.kind.label, case.tree


class _Account:
    """What one decoder made of its trees, and the seconds spent on verifying them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._chances: list[FloatArray] = []

    def look(self, verification: StepVerification, tree: DraftedTree, choices: Choices) -> None:
        """Work out what is expected to be accepted of a tree; measure a verification of it."""
        if not self._chances:  # which compiles
            verification(tree, RandomChoices(0))
        self._chances.append(verification.accepted_by_depth(tree))
        rows = cast(FilteredRows, tree.target_probs)
        # Nor are the laws those whose last search is remembered.
        untouched = replace(tree, laws=tuple(map(copy, tree.laws)), target_probs=rows.anew())
        begin = perf_counter()
        verification(untouched, choices)
        self.seconds += perf_counter() - begin

    @property
    def accepted(self) -> FloatArray:
        """Tokens expected to be accepted, of each tree."""
        return np.array([chances.sum() for chances in self._chances])

    @property
    def by_depth(self) -> tuple[float, ...]:
        """Chance that at least so many are accepted, over all trees."""
        mean = np.zeros(max(map(len, self._chances)))
        for chances in self._chances:
            mean[: len(chances)] += chances / len(self._chances)
        return tuple(mean.tolist())


class _Group:
    """Decoders that verify the same trees, and what they have made of them so far."""

    def __init__(
        self, cases: tuple[DecoderCase, ...], models: TextModels, sampling: dict[str, Any]
    ) -> None:
        self.cases = cases
        names = (RRSVerifier.name, NaiveVerifier.name)
        self._reference = applicable(
            (replace(cases[0], verifier=name, scheme="tree") for name in names), models
        )[0]
        looking = dict.fromkeys((*cases, self._reference))
        self._decoders = {case: case.decoder(models, **sampling) for case in looking}
        self._accounts = {case: _Account() for case in looking}
        self._draft_calls = 0
        self._drafting_seconds = self._target_seconds = 0.0

    def follow(self, prompt_ids: Sequence[int], seed: int, length: int) -> None:
        """Draw a tree before each token of a text, and look at it."""
        decoder = self._decoders[self._reference]
        choices, verifying = RandomChoices(seed), RandomChoices(seed)
        # As if more tokens followed the text, so that no tree is cut at its end.
        row = Row(list(prompt_ids), length + self._reference.num_nodes, choices)
        # What is compiled, loaded or read at the first tree is no part of the time of a step.
        decoder.score(decoder.draw([replace(row, choices=RandomChoices(0))]))
        for _ in range(length):
            tree = self._draw(decoder, row)
            for case, account in self._accounts.items():
                account.look(self._decoders[case].verification, tree, verifying)
            row.append([choices.token(tree.target_probs[0])])
        decoder.notices.give()

    def _draw(self, decoder: Decoder, row: Row) -> DraftedTree:
        clock = [perf_counter()]
        drawn = decoder.draw([row])
        clock.append(perf_counter())
        (tree,) = decoder.score(drawn)
        clock.append(perf_counter())
        self._drafting_seconds += clock[1] - clock[0]
        self._target_seconds += clock[2] - clock[1]
        self._draft_calls += tree.shape.depth * len(decoder.draft_models)
        return tree

    def row(self, case: DecoderCase, num_texts: int) -> DrawnTreesRow:
        """Give the means over all trees so far."""
        account = self._accounts[case]
        accepted = account.accepted
        difference = accepted - self._accounts[self._reference].accepted
        total = self._drafting_seconds + self._target_seconds + account.seconds
        return DrawnTreesRow(
            **case.label,
            tokens_per_target_call=1.0 + float(np.mean(accepted)),
            stderr=Mean(accepted).stderr,
            acceptance_by_depth=account.by_depth,
            reference=self._reference.verifier,
            difference=float(np.mean(difference)),
            difference_stderr=Mean(difference).stderr,
            target_calls=len(accepted),
            draft_calls=self._draft_calls,
            runs=num_texts,
            drafting_seconds=self._drafting_seconds,
            target_seconds=self._target_seconds,
            verification_seconds=account.seconds,
            verification_share=account.seconds / total,
        )
