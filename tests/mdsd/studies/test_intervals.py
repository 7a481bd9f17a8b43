"""A study of a log: what its numbers are, and that the bounds of the whole laws lie between."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mdsd import SolverError, datasets, studies
from mdsd.datasets import Dataset, LoggedPosition, TopLogprobs
from mdsd.errors import InvalidArgumentError
from mdsd.intervals import acceptance_interval
from mdsd.studies.study_rows import columns

DRAFTS = ["with_replacement", "without_replacement", "greedy", "independent"]


def logs_of(probs: dict[str, float]) -> dict[str, float]:
    return {token: math.log(prob) for token, prob in probs.items()}


def made(*positions: tuple[dict[str, float], dict[str, dict[str, float]]]) -> TopLogprobs:
    """A log of these known probabilities of a target and its drafts."""
    found = tuple(
        LoggedPosition(line, logs_of(target), {name: logs_of(q) for name, q in drafts.items()})
        for line, (target, drafts) in enumerate(positions, 1)
    )
    return TopLogprobs("made", tuple(found[0].drafts), found)


HALF = ({"a": 0.5}, {"one": {"a": 0.4}})
WHOLE = ({"a": 0.7, "b": 0.3}, {"one": {"a": 0.7, "b": 0.3}})


def only(log: TopLogprobs, **options: Any) -> studies.IntervalRow:
    (row,) = studies.interval(log, **{"num_drafts": [1], "drafts": ["with_replacement"]} | options)
    return row


# --- the numbers ---------------------------------------------------------------------------------


def test_means_errors_and_masses():
    row = only(made(HALF, WHOLE))
    # One draft: a token counts min(p, q); of the rest nothing, or all that both sides have left.
    assert (row.lower, row.upper) == pytest.approx((0.7, 0.95))
    assert (row.lower_stderr, row.upper_stderr) == pytest.approx((0.3, 0.05))
    assert row.width == pytest.approx(0.25)
    assert (row.known_target_mass, row.known_draft_mass) == pytest.approx((0.75, 0.7))
    assert (row.draft_model, row.draft, row.num_drafts) == ("one", "with_replacement", 1)
    assert (row.positions, row.missing) == (2, ())


def test_a_single_position_has_no_error():
    row = only(made(HALF, WHOLE), positions=1)
    assert (row.positions, row.lower, row.upper) == (1, pytest.approx(0.4), pytest.approx(0.9))
    assert row.lower_stderr is row.upper_stderr is None


def test_independent_drafts_know_the_mean_of_their_models():
    log = made(({"a": 0.5, "b": 0.5}, {"one": {"a": 1.0}, "two": {"b": 0.5}}))
    row = only(log, drafts=["independent"], num_drafts=[2])
    assert row.draft_model == "one+two"
    assert row.known_draft_mass == pytest.approx(0.75)
    assert (row.lower, row.upper) == pytest.approx((1.0, 1.0))


def test_rows_in_their_order():
    log = made(({"a": 0.5}, {"one": {"a": 0.5}, "two": {"a": 0.5}, "three": {"a": 0.5}}))
    rows = studies.interval(log, num_drafts=[1, 4], draft_models=["two", "one", "two"])
    assert [(row.draft_model, row.draft, row.num_drafts) for row in rows] == [
        *((model, draft, n) for model in ("two", "one") for draft in DRAFTS[:3] for n in (1, 4)),
        ("one", "independent", 1),
    ]


def test_numbers_do_not_depend_on_what_else_is_asked_for():
    log = made(HALF, WHOLE, ({"a": 0.2, "c": 0.1}, {"one": {"c": 0.3}}))
    rows = studies.interval(log, num_drafts=[1, 2, 3])
    assert studies.interval(log, num_drafts=[2], drafts=["greedy"])[0] in rows


@pytest.mark.parametrize("draft", DRAFTS[:3])
def test_nothing_known_leaves_everything_open(draft):
    log = made(({}, {"one": {"a": 0.4}}), ({"a": 0.4}, {"one": {}}), ({}, {"one": {}}))
    row = only(log, drafts=[draft], num_drafts=[2])
    assert (row.lower, row.upper, row.positions) == (0.0, 1.0, 3)
    assert row.known_target_mass == pytest.approx(0.4 / 3)


def test_positions_with_too_few_tokens_are_left_out():
    log = made(({"a": 1.0}, {"one": {"a": 1.0}}), HALF)
    row = only(log, drafts=["without_replacement"], num_drafts=[2])
    assert (row.positions, row.lower_stderr) == (1, None)
    assert row.known_draft_mass == pytest.approx(0.4)
    nothing = only(log, drafts=["without_replacement"], num_drafts=[2], positions=1)
    assert (nothing.positions, nothing.lower, nothing.width) == (0, None, None)
    assert nothing.missing == ()


def test_what_cannot_be_computed_is_missing(monkeypatch):
    def fail(*_: Any, **options: Any) -> None:
        raise SolverError("search", "stopped")

    monkeypatch.setattr("mdsd.studies.intervals.runs.acceptance_interval", fail)
    row = only(made(HALF, WHOLE))
    assert (row.lower, row.upper, row.width, row.positions) == (None, None, None, 2)
    assert [(m.what, m.position, m.tokens) for m in row.missing] == [
        ("lower", 0, 1),
        ("upper", 0, 1),
    ]
    assert row.known_target_mass == pytest.approx(0.75)


def test_progress_counts_positions():
    told: list[tuple[int, int]] = []
    studies.interval(made(*[HALF] * 3), positions=2, progress=lambda *step: told.append(step))
    assert told == [(1, 2), (2, 2)]


def test_columns():
    assert tuple(columns(studies.IntervalRow)) == (
        "draft_model",
        "draft",
        "num_drafts",
        "lower",
        "lower_stderr",
        "upper",
        "upper_stderr",
        "width",
        "known_target_mass",
        "known_draft_mass",
        "positions",
    )


def test_drafts_without_intervals_are_refused():
    with pytest.raises(InvalidArgumentError, match="'spechub'; expected one of with_replacement"):
        only(made(HALF), drafts=["spechub"])


# --- logs of whole laws that are known -----------------------------------------------------------

POSITIONS = range(0, 144, 12)
MODELS = ["drop2", "ngram"]


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Some of the embedded positions."""
    full = datasets.load("smollm2")
    rows = np.array(POSITIONS)
    return Dataset(
        "part",
        full.target_table[rows],
        {name: full.draft_tables[name][rows] for name in MODELS},
        full.token_ids[rows],
        full.target_kept_mass[rows],
        {name: full.draft_kept_mass[name][rows] for name in MODELS},
        {},
        "logits",
        "logits",
    )


def reported(logits: np.ndarray, ids: np.ndarray, count: int, extra: int) -> dict[str, Any]:
    """What vLLM would return: the most probable tokens, and one that ranks lower."""
    values = logits - np.log(np.exp(logits).sum())
    order = np.argsort(-values, kind="stable")
    ranks = [*range(count), count + extra]
    return {
        str(ids[order[rank]]): {"logprob": float(values[order[rank]]), "rank": rank + 1}
        for rank in ranks
        if np.isfinite(values[order[rank]])
    }


def as_chat(position: dict[str, Any]) -> list[dict[str, Any]]:
    """The same from the chat endpoint of vLLM, the token that ranks lower first."""
    *top, last = position.items()
    return [
        {"token": f"token_id:{token}", "logprob": value["logprob"]} for token, value in [last, *top]
    ]


@pytest.fixture(scope="module")
def log(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> TopLogprobs:
    """The 20 most probable tokens of each side."""
    path: Path = tmp_path_factory.mktemp("log") / "top20.jsonl"
    lines = []
    for row, ids in enumerate(data.token_ids):
        target = reported(data.target_table[row], ids, 20, 7)
        drafts = {
            name: reported(table[row], ids, 20, 90) for name, table in data.draft_tables.items()
        }
        lines.append(json.dumps({"target": as_chat(target), "drafts": drafts}))
    path.write_text("\n".join(lines))
    return datasets.read_jsonl(path)


def test_the_top_is_read_and_no_more(log):
    assert {len(position.target) for position in log.positions} == {20}
    assert {len(known) for p in log.positions for known in p.drafts.values()} == {20}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("draft", DRAFTS[:3])
def test_intervals_hold_the_bounds_of_the_whole_laws(data, log, draft, model):
    options: dict[str, Any] = {"drafts": [draft], "num_drafts": [3], "draft_models": [model]}
    (bound,) = studies.bound(data, **options)
    for position, value in zip(log.positions, bound.values, strict=True):
        found = acceptance_interval(
            position.target, position.drafts[model], draft=draft, num_drafts=3
        )
        assert found.lower <= value <= found.upper
    (row,) = studies.interval(log, **options)
    assert row.lower < bound.bound < row.upper
    assert row.known_target_mass > 0.7


def test_intervals_hold_the_bounds_of_independent_drafts(data, log):
    options: dict[str, Any] = {"drafts": ["independent"], "num_drafts": [2]}
    (bound,), (row,) = studies.bound(data, **options), studies.interval(log, **options)
    assert row.draft_model == bound.draft_model == "drop2+ngram"
    assert row.lower < bound.bound < row.upper


def test_the_comparison_notices_a_wrong_target(data, log):
    """Tokens that the log does not know make no difference; the wrong law of a token does."""
    options: dict[str, Any] = {"drafts": ["with_replacement"], "num_drafts": [3]}
    (bound,) = studies.bound(data, **options)
    swapped = TopLogprobs(
        "swapped",
        log.draft_models,
        tuple(
            LoggedPosition(p.line, p.drafts["ngram"], {"drop2": p.drafts["drop2"]})
            for p in log.positions
        ),
    )
    (row,) = studies.interval(swapped, draft_models=["drop2"], **options)
    assert not row.lower <= bound.bound <= row.upper


def test_whole_laws_leave_nothing_open():
    target = [[0.5, 0.3, 0.2], [0.4, 0.35, 0.25]]
    drafts = [[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]]
    known = [
        (dict(zip("abc", p, strict=True)), {"one": dict(zip("abc", q, strict=True))})
        for p, q in zip(target, drafts, strict=True)
    ]
    data = Dataset(
        "whole",
        np.array(target),
        {"one": np.array(drafts)},
        np.tile(np.arange(3), (2, 1)),
        np.ones(2),
        {"one": np.ones(2)},
        {},
        "probs",
        "probs",
    )
    options: dict[str, Any] = {"drafts": DRAFTS[:3], "num_drafts": [1, 2, 3]}
    for row, bound in zip(
        studies.interval(made(*known), **options), studies.bound(data, **options), strict=True
    ):
        assert (row.draft, row.num_drafts) == (bound.draft, bound.num_drafts)
        assert (row.lower, row.upper) == pytest.approx((bound.bound,) * 2, abs=1e-9)
        assert row.lower_stderr == pytest.approx(bound.bound_stderr, abs=1e-9)
