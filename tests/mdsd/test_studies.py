"""Studies average what bounds and verifiers say at each position, and say what is missing."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mdsd
from mdsd import datasets, studies
from mdsd.datasets import Dataset
from mdsd.errors import InvalidArgumentError
from mdsd.studies.output import check_writable, picture, write_files
from mdsd.studies.plots import bound_figure, compare_figure
from mdsd.studies.study_rows import CompareRow, Mean, Missing
from mdsd.studies.study_settings import MONTE_CARLO_PATHS, study_settings

P = np.array([[0.5, 0.3, 0.2], [0.4, 0.35, 0.25]])
Q = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
R = np.array([[0.1, 0.1, 0.8], [0.3, 0.3, 0.4]])

DRAFTS = {
    "with_replacement": lambda q, n: mdsd.WithReplacement(q, n),
    "without_replacement": lambda q, n: mdsd.WithoutReplacement(q, n),
    "greedy": lambda q, n: mdsd.GreedyDraft(q, n),
    "spechub": lambda q, n: mdsd.SpecHubDraft(q),
    "top_k": lambda q, n: mdsd.TopKDraft(q, n),
}


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Dataset]:
    def make(**arrays: Any) -> Dataset:
        np.savez(tmp_path / "data.npz", **arrays)
        return datasets.read_npz(tmp_path / "data.npz")

    return make


@pytest.fixture
def small(make) -> Dataset:
    return make(target_probs=P, draft_probs=Q)


@pytest.fixture(scope="module")
def smollm2() -> Dataset:
    return datasets.load("smollm2")


def find(rows, **wanted):
    (row,) = (row for row in rows if all(getattr(row, k) == v for k, v in wanted.items()))
    return row


# --- the numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("draft", DRAFTS)
def test_bound_is_the_mean_over_positions(small, draft):
    row = find(studies.bound(small, num_drafts=[2]), draft=draft)
    values = [
        mdsd.acceptance_bound(p, DRAFTS[draft](q, 2)).value for p, q in zip(P, Q, strict=True)
    ]
    assert row.values == pytest.approx(values, abs=1e-12)
    assert row.bound == pytest.approx(sum(values) / 2, abs=1e-12)
    assert row.bound_stderr == pytest.approx(abs(values[0] - values[1]) / 2, abs=1e-12)
    assert row.q10 == pytest.approx(0.9 * min(values) + 0.1 * max(values), abs=1e-12)
    assert row.q90 == pytest.approx(0.1 * min(values) + 0.9 * max(values), abs=1e-12)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("verifier", mdsd.verifier_names())
def test_acceptance_is_the_mean_over_positions(small, draft, verifier):
    judge = mdsd.get_verifier(verifier)
    rows = [
        row
        for row in studies.compare(small, num_drafts=[2])
        if (row.draft, row.verifier) == (draft, verifier)
    ]
    assert len(rows) == judge.supports(DRAFTS[draft](Q[0], 2))
    values = [
        judge.plan(p, DRAFTS[draft](q, 2)).acceptance_rate
        for p, q in zip(P, Q, strict=True)
        if rows
    ]
    assert [row.acceptance for row in rows] == pytest.approx(
        [sum(values) / 2] * len(rows), abs=1e-12
    )
    assert [row.stderr for row in rows] == pytest.approx(
        [abs(np.subtract(*values)) / 2 for _ in rows], abs=1e-12
    )


def test_share_is_the_ratio_of_the_means(small):
    row = find(studies.compare(small, num_drafts=[2], drafts=["with_replacement"]), verifier="rrs")
    assert row.share_of_bound == pytest.approx(0.815 / 0.9, abs=1e-9)


def test_one_draft_brings_the_single_verifier(small):
    rows = studies.compare(small, num_drafts=[1], drafts=["with_replacement"])
    assert find(rows, verifier="single").acceptance == pytest.approx(0.75, abs=1e-12)


def test_independent_takes_the_first_models(make):
    data = make(
        target_probs=P, draft_probs=np.stack([Q, R, P]), draft_names=np.array(["q", "r", "s"])
    )
    row = find(studies.compare(data, num_drafts=[2], draft_models=["r"]), draft="independent",
               verifier="naive")  # fmt: skip
    met = 1 - (1 - Q) * (1 - R)
    assert row.draft_model == "q+r"
    assert row.acceptance == pytest.approx((P * met).sum(axis=1).mean(), abs=1e-12)


def test_a_draft_model_is_chosen_by_name(make):
    data = make(target_probs=P, draft_probs=np.stack([Q, R]), draft_names=np.array(["q", "r"]))
    rows = studies.compare(
        data, num_drafts=[2], draft_models=["r", "q"], drafts=["top_k"], verifiers=["naive"]
    )
    # The two most likely tokens of each row of r, and of q.
    assert [(row.draft_model, row.acceptance) for row in rows] == [
        ("r", pytest.approx((0.7 + 0.65) / 2)),
        ("q", pytest.approx((0.5 + 0.75) / 2)),
    ]


def test_target_and_draft_may_be_of_different_kinds(make):
    mixed = make(target_probs=P, draft_logits=np.log(Q))
    plain = make(target_probs=P, draft_probs=Q)
    rows, expected = studies.compare(mixed), studies.compare(plain)
    assert [row.acceptance for row in rows] == pytest.approx([row.acceptance for row in expected])


@pytest.mark.parametrize("pad", ["logits", "probs"])
def test_padding_changes_no_number(make, pad):
    padded = np.pad(P, ((0, 0), (1, 2))), np.pad(Q, ((0, 0), (1, 2)))
    if pad == "logits":
        with np.errstate(divide="ignore"):
            target, drafts = np.log(padded[0]), np.log(padded[1])
        data = make(target_logits=target, draft_logits=drafts)
    else:
        data = make(target_probs=padded[0], draft_probs=padded[1])
    expected = studies.compare(make(target_probs=P, draft_probs=Q), seed=3)
    rows = studies.compare(data, seed=3)
    assert [row.acceptance for row in rows] == pytest.approx([row.acceptance for row in expected])
    assert [row.bound for row in rows] == pytest.approx([row.bound for row in expected])


def test_filters_reach_both_sides(small):
    row = find(studies.bound(small, num_drafts=[2], drafts=["with_replacement"], top_k=2,
                             temperatures=[2.0]), num_drafts=2)  # fmt: skip
    target = mdsd.filter_probs(P, temperature=2.0, top_k=2)
    law = mdsd.filter_probs(Q, temperature=2.0, top_k=2)
    values = [
        mdsd.acceptance_bound(p, mdsd.WithReplacement(q, 2)).value
        for p, q in zip(target, law, strict=True)
    ]
    assert row.bound == pytest.approx(np.mean(values), abs=1e-12)


# --- order, independence, randomness -------------------------------------------------------------


def test_rows_are_grouped_and_the_best_comes_first(smollm2):
    rows = studies.compare(smollm2, num_drafts=[3, 2], positions=3, drafts=["with_replacement"])
    assert [row.num_drafts for row in rows] == [3] * 5 + [2] * 5
    acceptance = [row.acceptance for row in rows[:5]]
    assert acceptance == sorted(acceptance, reverse=True)


def test_a_missing_number_comes_last(smollm2):
    rows = studies.compare(smollm2, num_drafts=[2], positions=3, drafts=["without_replacement"])
    missing = [row.acceptance is None for row in rows]
    assert missing == sorted(missing)


@pytest.mark.parametrize(
    "options",
    [
        {"num_drafts": [2, 3]},
        {"num_drafts": [3, 2]},
        {"drafts": ["greedy", "without_replacement"]},
        {"verifiers": ["rrs", "naive"]},
        {"temperatures": [0.5, 1.0]},
        {"draft_models": ["drop3", "drop2"]},
    ],
    ids=lambda options: "-".join(options),
)
def test_estimates_do_not_depend_on_what_else_is_asked(smollm2, options):
    plain = {"num_drafts": [3], "drafts": ["without_replacement"], "positions": 2, "seed": 4}
    wanted = {
        "draft_model": "drop2",
        "draft": "without_replacement",
        "num_drafts": 3,
        "temperature": 1.0,
        "verifier": "rrs",
    }
    alone = find(studies.compare(smollm2, **plain), **wanted)
    among = find(studies.compare(smollm2, **plain | options), **wanted)
    assert among.acceptance == alone.acceptance
    assert among.stderr == alone.stderr


def test_the_seed_moves_estimates_and_nothing_else(smollm2):
    def study(seed):
        rows = studies.compare(
            smollm2,
            num_drafts=[3],
            drafts=["without_replacement"],
            verifiers=["rrs", "naive"],
            positions=2,
            seed=seed,
        )
        return {row.verifier: row.acceptance for row in rows}

    first, second = study(0), study(1)
    assert first["naive"] == second["naive"]
    assert first["rrs"] != second["rrs"]
    assert first["rrs"] == pytest.approx(second["rrs"], abs=1e-2)


def test_positions_do_not_share_a_stream(smollm2):
    settings = study_settings(datasets.open_source(smollm2), CompareRow, verifiers=["rrs"])
    first, second = settings.seeds(range(2))
    assert first != second
    assert settings.seeds([1]) == second
    assert settings.verifier("rrs", 1e-9).monte_carlo_paths == MONTE_CARLO_PATHS


def test_more_positions_do_not_change_the_first_ones(smollm2):
    few = studies.bound(smollm2, num_drafts=[2], positions=2)
    more = studies.bound(smollm2, num_drafts=[2], positions=4)
    assert [row.values for row in few] == [row.values[:2] for row in more]


# --- what is missing -----------------------------------------------------------------------------


def test_one_position_has_no_standard_error(make):
    (row,) = studies.compare(
        make(target_probs=P[:1], draft_probs=Q[:1]),
        num_drafts=[2],
        drafts=["greedy"],
        verifiers=["greedy"],
    )
    assert (row.positions, row.stderr, row.bound_stderr) == (1, None, None)
    assert row.acceptance == pytest.approx(0.9)


def test_positions_with_too_few_tokens_are_left_out(make):
    data = make(target_probs=P, draft_probs=np.array([[0.0, 1.0, 0.0], Q[1]]))
    rows = studies.bound(data, num_drafts=[2])
    assert find(rows, draft="with_replacement").positions == 2
    row = find(rows, draft="without_replacement")
    alone = studies.bound(
        make(target_probs=P[1:], draft_probs=Q[1:]), num_drafts=[2], drafts=["without_replacement"]
    )
    assert (row.positions, row.bound, row.bound_stderr) == (1, alone[0].bound, None)


def test_a_row_without_any_position_is_there_and_empty(small):
    rows = studies.compare(small, num_drafts=[3], temperatures=[0.0], drafts=["greedy"])
    assert {row.verifier for row in rows} == {"naive", "greedy", "optimal"}
    assert [(row.acceptance, row.stderr, row.bound, row.share_of_bound) for row in rows] == [
        (None,) * 4
    ] * 3
    assert [(row.positions, row.missing) for row in rows] == [(0, ())] * 3


def test_bound_zero_has_no_share(make):
    data = make(target_probs=[[1.0, 0.0]], draft_probs=[[0.0, 1.0]])
    row = find(studies.compare(data, num_drafts=[2]), draft="with_replacement", verifier="rrs")
    assert (row.acceptance, row.bound, row.share_of_bound) == (0.0, 0.0, None)


class PickyVerifier(mdsd.NaiveVerifier):
    """Fails at the second position only."""

    name = "picky"

    def _plan(self, target_probs, draft):
        if target_probs[0] == 0.4:
            raise mdsd.UnsupportedError("not this one")
        return super()._plan(target_probs, draft)


def test_a_failure_at_one_position_makes_the_row_missing(small):
    row = find(studies.compare(small, num_drafts=[2], drafts=["greedy"],
                               verifiers=[PickyVerifier()]), verifier="picky")  # fmt: skip
    assert (row.acceptance, row.stderr, row.share_of_bound, row.positions) == (None, None, None, 2)
    assert row.bound == pytest.approx(0.95)
    (missing,) = row.missing
    assert dataclasses.astuple(missing) == ("picky", 1, 3, "not this one")


def test_one_failure_makes_a_mean_missing():
    failed = Missing("odd", 1, 3, "its value is nan")
    mean = Mean([0.5, float("nan"), 0.5], failed)
    assert (mean.mean, mean.stderr, len(mean.values)) == (None, None, 0)
    assert set(mean.quantiles.values()) == {None}


# --- verifiers of one's own ----------------------------------------------------------------------


class DoubtingVerifier(mdsd.NaiveVerifier):
    name = "doubting"


def test_own_verifier_stands_beside_named_ones(small):
    rows = studies.compare(
        small, num_drafts=[2], drafts=["top_k"], verifiers=[DoubtingVerifier(), "optimal"]
    )
    assert {row.verifier: row.acceptance for row in rows} == {
        "doubting": pytest.approx(0.625),
        "optimal": pytest.approx(0.625),
    }


def test_two_verifiers_of_one_name_are_refused(small):
    with pytest.raises(InvalidArgumentError, match="two of the name 'rrs'"):
        studies.compare(small, verifiers=["rrs", mdsd.RRSVerifier(seed=1)])


def test_verifier_named_as_a_bound_is_refused(small):
    verifier = DoubtingVerifier()
    verifier.name = "bound"
    with pytest.raises(InvalidArgumentError, match="'bound, greedy of draft_0'"):
        studies.compare(small, num_drafts=[2], drafts=["greedy"], verifiers=[verifier])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_drafts": []}, "num_drafts is empty"),
        ({"num_drafts": [0]}, "num_drafts is 0"),
        ({"drafts": "greedy"}, "expected a list"),
        ({"drafts": ["gredy"]}, "did you mean 'greedy'"),
        ({"draft_models": ["draft_1"]}, "did you mean 'draft_0'"),
        ({"verifiers": ["optimum"]}, "did you mean 'optimal'"),
        ({"verifiers": [None]}, "verifier is None"),
        ({"temperatures": [1.0, -1.0]}, "temperature is -1.0"),
        ({"top_k": -2}, "top_k is -2"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"positions": 0}, "positions is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": None}, "seed is None"),
        ({"drafts": ["spechub"], "num_drafts": [3]}, "nothing to compute"),
        ({"drafts": ["independent"]}, "nothing to compute"),
        ({"drafts": ["greedy"], "verifiers": ["kseq"]}, "nothing to compute"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_bad_options_are_refused(small, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        studies.compare(small, **options)


def test_progress_counts_every_position_at_every_temperature(small):
    steps = []
    studies.bound(
        small, num_drafts=[2], temperatures=[1.0, 0.5], progress=lambda *step: steps.append(step)
    )
    assert steps == [(2, 4), (4, 4)]


# --- files and figures ---------------------------------------------------------------------------


def test_files_are_written_all_or_none(tmp_path):
    blocked = tmp_path / "gone" / "b.png"
    with pytest.raises(InvalidArgumentError, match=r"b\.png: cannot be written"):
        write_files({tmp_path / "a.csv": b"a", blocked: b"b"})
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    write_files({tmp_path / "link.csv": b"new"})
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"


def test_checking_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "a.csv", [".csv"])
    assert list(tmp_path.iterdir()) == []


def pixels(png: bytes) -> np.ndarray:
    from matplotlib.image import imread

    return imread(io.BytesIO(png), format="png")


@pytest.mark.parametrize(
    "options",
    [{}, {"num_drafts": [2]}, {"num_drafts": [3], "temperatures": [0.0], "drafts": ["greedy"]}],
    ids=["all", "one-number", "nothing-possible"],
)
@pytest.mark.parametrize(
    ("study", "draw"),
    [(studies.compare, compare_figure), (studies.bound, bound_figure)],
    ids=["compare", "bound"],
)
def test_figures_can_be_drawn(small, study, draw, options):
    assert min(pixels(picture(".png", draw(study(small, **options)))).shape[:2]) > 100


def test_compare_figure_shows_means_and_errors(small):
    rows = studies.compare(small, drafts=["greedy"], verifiers=["naive"], num_drafts=[2, 3])
    (axis,) = compare_figure(rows).axes
    naive, bars_of_bound = axis.containers
    (bound,) = (line for line in axis.lines if line.get_label() == "bound")
    assert bound.get_ydata()[::3] == pytest.approx([row.bound for row in rows])
    (bars,) = bars_of_bound.lines[2]
    heights = [top - bottom for (_, bottom), (_, top) in bars.get_segments()]
    assert heights == pytest.approx([2 * row.bound_stderr for row in rows])
    assert naive.lines[0].get_ydata() == pytest.approx([row.acceptance for row in rows])
    (bars,) = naive.lines[2]
    heights = [top - bottom for (_, bottom), (_, top) in bars.get_segments()]
    assert heights == pytest.approx([2 * row.stderr for row in rows])


@pytest.mark.parametrize("draw", [compare_figure, bound_figure])
def test_a_figure_has_a_line_for_each_temperature(smollm2, draw):
    study = studies.compare if draw is compare_figure else studies.bound
    wanted = {"drafts": ["greedy", "independent"], "temperatures": [0.5, 1.0]}
    axes = draw(study(smollm2, num_drafts=[2], positions=2, **wanted)).axes
    lines: dict[int, str] = {}
    for axis in axes:
        words = (
            axis.get_title(),
            axis.get_ylabel(),
            *(t.get_text() for t in axis.get_xticklabels()),
        )
        line = axis.get_subplotspec().rowspan.start
        lines[line] = " ".join([lines.get(line, ""), *words])
    assert len(lines) == 2
    for line, heat in enumerate(("0.5", "1")):
        words = [f"drop2, temperature {heat}", "greedy", "independent", "the first n of"]
        assert [word for word in words if word not in lines[line]] == []


@pytest.mark.parametrize("name", ["small", "x" * 70])
def test_titles_stand_above_narrow_panels_and_beside_the_legend(tmp_path, name):
    np.savez(tmp_path / f"{name}.npz", target_probs=P, draft_probs=Q)
    data = datasets.read_npz(tmp_path / f"{name}.npz")
    figure = compare_figure(studies.compare(data, drafts=["greedy"], num_drafts=[2]))
    figure.draw_without_rendering()
    (title,) = (text for text in figure.texts if text.get_text() == figure.get_suptitle())
    above = title.get_window_extent()
    (axis,), (legend,) = figure.axes, figure.legends
    assert above.y0 >= axis.title.get_window_extent().y1
    assert above.x1 <= legend.get_window_extent().x0
    assert "seed 0" in title.get_text()


def test_bound_figure_shows_quartiles_of_the_positions(make):
    target = [[0.9, 0.1], [0.6, 0.4], [0.5, 0.5], [0.3, 0.7], [0.2, 0.8]]
    data = make(target_probs=target, draft_probs=[[0.5, 0.5]] * 5)
    (row,) = studies.bound(data, num_drafts=[1], drafts=["top_k"])
    (axis,) = bound_figure([row]).axes
    (box,) = axis.patches
    edges = box.get_path().vertices[:, 1]
    assert (edges.min(), edges.max()) == pytest.approx((0.3, 0.6))


def test_drawing_leaves_the_global_state_of_matplotlib_alone(small):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    picture(".png", bound_figure(studies.bound(small, num_drafts=[2])))
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("name", ["block", "layers", "traversal"])
def test_verifiers_of_paths_are_told_from_unknown_ones(smollm2, name):
    with pytest.raises(InvalidArgumentError, match=f"'{name}' decides about the paths"):
        studies.compare(smollm2, verifiers=[name])
