"""Pictures of a study show its numbers, and say what they are of."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mdsd.studies.grid import Study
from mdsd.studies.grid.plots import MOST_MODELS, study_figures, study_pictures
from mdsd.studies.grid.plots.slices import FILTERS, TEMPERATURE, model_groups, pinned
from mdsd.studies.output import picture
from mdsd.studies.panels import write_title

from .grids import HOSTILE, NOTHING, made_row, made_study, random_data, run_small

KINDS = [
    "loss_parts",
    "acceptance_by_temperature",
    "acceptance_by_n",
    "acceptance_by_filter",
    "acceptance_heat_map",
    "verifier_loss_heat_map",
    "attained_against_bound",
]


@pytest.fixture(scope="module")
def figures(pictured: Study) -> dict[str, Figure]:
    return study_figures(pictured)


def rows_of(study: Study, **wanted):
    return [row for row in study.rows if all(getattr(row, k) == v for k, v in wanted.items())]


def panels(figure: Figure) -> dict[str, object]:
    return {axis.get_title(): axis for axis in figure.axes if axis.get_title()}


def drawn_of(axis, label):
    """What is drawn under a label in the legend, as it is drawn."""
    handles, labels = axis.get_legend_handles_labels()
    drawn = dict(zip(labels, handles, strict=True))[label]
    line = drawn if label == "bound" else drawn.lines[0]
    return np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)


def line_of(axis, label):
    """Its points: those that stand side by side are at the tick that they stand at."""
    xs, ys = drawn_of(axis, label)
    if label == "bound" and np.isnan(xs).any():  # levels: their two ends, and a gap
        xs, ys = xs.reshape(-1, 3)[:, :2].mean(axis=1), ys[::3]
    ticks = np.asarray(axis.get_xticks())
    return ticks[np.abs(xs[:, np.newaxis] - ticks).argmin(axis=1)], ys


# --- which pictures ------------------------------------------------------------------------------


def test_a_grid_of_several_axes_has_all_kinds(figures):
    assert list(figures) == [f"{kind}.png" for kind in KINDS]


def test_pictures_of_an_axis_with_one_value_are_left_out(tmp_path):
    study = run_small(random_data(["small"]), tmp_path / "one", drafts=["with_replacement"])
    assert list(study_figures(study)) == ["loss_parts.png", "attained_against_bound.png"]


def test_without_numbers_there_is_no_picture():
    rows = [made_row(**NOTHING, temperature=heat, positions=0) for heat in (0.5, 1.0)]
    assert study_figures(made_study(rows)) == {}


def test_an_axis_with_numbers_at_one_value_is_not_drawn():
    known = [made_row(verifier=name) for name in ("rrs", "kseq")]
    rows = [*known, made_row(**NOTHING, temperature=0.5, positions=0)]
    assert "acceptance_by_temperature.png" not in study_figures(made_study(rows))


def test_verifiers_that_attain_their_bounds_leave_no_scatter(tmp_path):
    study = run_small(
        random_data(["small"]), tmp_path / "one", drafts=["greedy"], verifiers=["greedy", "optimal"]
    )
    assert list(study_figures(study)) == ["loss_parts.png"]


def test_file_names_tell_models_apart_whatever_they_are_called():
    names = ["../a b", "..%a\tb", "A-B", "x" * 90, "\N{SNOWMAN}", "a/\N{SNOWMAN}"]
    groups = model_groups(made_row(draft_model=name) for name in names)
    suffixes = [group.suffix for group in groups]
    assert suffixes == [
        "_a-b",
        "_a-b_2",
        "_A-B_3",
        f"_{'x' * 40}",
        "_model",
        "_a",
    ]


def test_many_models_are_drawn_up_to_a_limit():
    rows = [made_row(draft_model=f"m{k}") for k in range(MOST_MODELS + 2)]
    drawn = {picture.of for picture in study_pictures(made_study(rows))}
    assert drawn == {f"draft model m{k}" for k in range(MOST_MODELS)}


def test_independent_drafts_are_one_group():
    rows = [
        made_row(draft="independent", draft_model="a+b", num_drafts=2),
        made_row(draft="independent", draft_model="a+b+c", num_drafts=3),
        made_row(draft_model="a"),
    ]
    groups = model_groups(rows)
    assert [group.title for group in groups] == [
        "independent, the first n of a, b, c",
        "draft model a",
    ]
    assert [group.suffix for group in groups] == ["_independent", "_a"]


# --- what is shown of other axes -----------------------------------------------------------------


def test_other_axes_are_shown_at_the_middle_n_near_temperature_1_without_filter():
    rows = [
        made_row(num_drafts=n, temperature=heat, top_k=top_k)
        for n in (1, 2, 3, 4)
        for heat in (0.0, 0.9, 1.5)
        for top_k in (5, None)
    ]
    kept, words = pinned(rows)
    assert words == ["n = 3", "temperature 0.9", "no filter"]
    assert kept == [made_row(num_drafts=3, temperature=0.9)]


def test_an_axis_that_is_drawn_keeps_its_values():
    rows = [made_row(temperature=heat, top_p=top_p) for heat in (0.0, 1.0) for top_p in (0.9, 0.5)]
    kept, words = pinned(rows, TEMPERATURE)
    assert [row.temperature for row in kept] == [0.0, 1.0]
    assert words == ["n = 2", "top-p 0.9"]
    assert [row.top_p for row in pinned(rows, FILTERS)[0]] == [0.9, 0.5]


def test_values_without_numbers_are_not_chosen():
    rows = [made_row(num_drafts=2), made_row(num_drafts=3, **NOTHING, positions=0)]
    assert pinned(rows)[1][0] == "n = 2"


@pytest.mark.parametrize("kind", KINDS)
def test_titles_say_what_is_shown(figures, kind):
    title = figures[f"{kind}.png"].get_suptitle()
    words = {"made up", "12 positions"}
    words |= set() if kind in ("acceptance_by_n", KINDS[4], KINDS[5]) else {"n = 2"}
    words |= set() if kind in (KINDS[1], KINDS[4], KINDS[5]) else {"temperature 1"}
    words |= set() if kind == "acceptance_by_filter" else {"no filter"}
    flat = " ".join(title.split())
    assert [word for word in words if word not in flat] == []
    # The long name of the model is cut in the middle, and printed as it is.
    assert "draft model org/</td><script>" in flat
    assert HOSTILE[-12:] in flat


# --- what is drawn -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "fixed"),
    [
        ("acceptance_by_temperature", "temperature", {"num_drafts": 2, "top_k": None}),
        ("acceptance_by_n", "num_drafts", {"temperature": 1.0, "top_k": None}),
    ],
)
def test_curves_are_the_rows(pictured, figures, kind, name, fixed):
    drawn = panels(figures[f"{kind}.png"])
    assert [title.split("\n")[0] for title in drawn] == [
        "with_replacement",
        "without_replacement",
        "greedy",
    ]
    for title, axis in drawn.items():
        rows = rows_of(pictured, draft=title.split("\n")[0], **fixed)
        for verifier in {row.verifier for row in rows}:
            own = sorted(
                (row for row in rows if row.verifier == verifier),
                key=lambda row: getattr(row, name),
            )
            xs, ys = line_of(axis, verifier)
            assert list(xs) == [getattr(row, name) for row in own]
            expected = [np.nan if row.acceptance is None else row.acceptance for row in own]
            np.testing.assert_array_equal(ys, expected)
        bounds = {getattr(row, name): row.bound for row in rows if row.bound is not None}
        xs, ys = line_of(axis, "bound")
        assert dict(zip(xs, ys, strict=True)) == bounds


def test_bounds_are_black_and_dashed_where_they_are_joined():
    rows = [made_row(temperature=k / 10) for k in range(1, 7)]
    (axis,) = study_figures(made_study(rows))["acceptance_by_temperature.png"].axes
    (bound,) = (line for line in axis.get_lines() if line.get_label() == "bound")
    assert (to_hex(bound.get_color()), bound.get_linestyle()) == ("#000000", "--")
    for label in ("bound", rows[0].verifier):
        assert list(drawn_of(axis, label)[0]) == [row.temperature for row in rows]


@pytest.mark.parametrize("kind", KINDS[1:4])
def test_what_stands_side_by_side_lies_under_the_level_of_its_bound(figures, kind):
    for axis in panels(figures[f"{kind}.png"]).values():
        ends, levels = (each.reshape(-1, 3)[:, :2] for each in drawn_of(axis, "bound"))
        (errors,) = (each for each in axis.containers if each.get_label()[0] == "_")
        places = [errors.lines[2][0].get_segments()[0][0, 0]]
        for label in set(axis.get_legend_handles_labels()[1]) - {"bound"}:
            xs, ys = drawn_of(axis, label)
            places.append(xs[0])
            for x, y in zip(xs[np.isfinite(ys)], ys[np.isfinite(ys)], strict=True):
                (over,) = np.flatnonzero((ends[:, 0] < x) & (x < ends[:, 1]))
                assert y <= levels[over, 0] + 1e-9
        assert min(np.diff(sorted(places))) > 0.04  # nobody hides another, nor the bound's bars


def test_bars_begin_at_0_or_are_visibly_cut():
    for acceptance, left in ((0.3, 0.0), (0.9, 0.8)):
        row = made_row(acceptance=acceptance, lost_to_verifier=0.0, positions=1)
        (axis,) = study_figures(made_study([row]))["loss_parts.png"].axes
        assert axis.get_xlim() == pytest.approx((left, 1.0))
        cuts = [line for line in axis.get_lines() if len(line.get_xdata()) > 2]
        assert bool(cuts) == ("bars cut below 0.8" in axis.get_xlabel()) == (left > 0.0)


def test_verifiers_differ_in_colour_and_marker(figures):
    (axis, *_) = figures["acceptance_by_temperature.png"].axes
    handles, labels = axis.get_legend_handles_labels()
    lines = [each.lines[0] for each, label in zip(handles, labels, strict=True) if label != "bound"]
    assert len({to_hex(line.get_color()) for line in lines}) == len(lines) == 4
    assert len({line.get_marker() for line in lines}) == 4


def test_a_missing_number_is_a_gap():
    rows = [made_row(temperature=heat, verifier=v) for heat in (0.2, 0.6, 1.0) for v in "ab"]
    rows[2] = dataclasses.replace(rows[2], acceptance=None, stderr=None, lost_to_verifier=None)
    (axis,) = study_figures(made_study(rows))["acceptance_by_temperature.png"].axes
    assert np.isnan(line_of(axis, "a")[1]).tolist() == [False, True, False]
    assert np.isnan(line_of(axis, "b")[1]).tolist() == [False, False, False]


def test_panels_say_over_how_many_positions_they_average():
    rows = [
        made_row(draft="greedy", temperature=0.5, positions=4),
        made_row(draft="greedy", temperature=1.0, positions=9),
        *(made_row(temperature=heat) for heat in (0.5, 1.0)),
    ]
    drawn = panels(study_figures(made_study(rows))["acceptance_by_temperature.png"])
    assert list(drawn) == ["greedy\n(4 to 9 positions)", "with_replacement"]


def test_filters_stand_side_by_side(pictured, figures):
    axis = panels(figures["acceptance_by_filter.png"])["with_replacement"]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["no filter", "top-k 4"]
    fixed = {"draft": "with_replacement", "verifier": "rrs", "num_drafts": 2, "temperature": 1.0}
    by_filter = {row.top_k: row.acceptance for row in rows_of(pictured, **fixed)}
    xs, ys = line_of(axis, "rrs")
    assert dict(zip(xs, ys, strict=True)) == {0.0: by_filter[None], 1.0: by_filter[4]}


def test_bars_are_the_parts_of_the_loss(pictured, figures):
    axis = figures["loss_parts.png"].axes[0]
    labels = {
        round(place): label.get_text()
        for place, label in zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)
    }
    parts: dict[float, dict[str, tuple[float, float]]] = {}
    for container in axis.containers:
        (bar,) = container
        place = round(bar.get_y() + bar.get_height() / 2)
        parts.setdefault(place, {})[container.get_label()] = (
            bar.get_x() + bar.get_width(),
            bar.get_x(),
        )
    rows = rows_of(pictured, num_drafts=2, temperature=1.0, top_k=None)
    assert len(parts) == len(rows)
    draft = ""
    for place in sorted(labels):
        if place not in parts:
            draft = labels[place]
            continue
        (row,) = (r for r in rows if (r.draft, r.verifier) == (draft, labels[place]))
        found = parts[place]
        ends = [1.0]
        for name, lost in (
            ("lost to the draft model", row.lost_to_model),
            ("lost to the construction", row.lost_to_construction),
            ("lost to the verifier", row.lost_to_verifier),
        ):
            low, high = sorted(found[name])
            assert high == pytest.approx(ends[-1], abs=1e-12)
            assert high - low == pytest.approx(max(0.0, lost), abs=1e-12)
            ends.append(low)
        assert ends[-1] == pytest.approx(row.acceptance, abs=1e-12)
        assert max(found["accepted"]) == pytest.approx(row.acceptance, abs=1e-12)


def test_bars_are_sorted_so_that_the_best_is_on_top(pictured, figures):
    axis = figures["loss_parts.png"].axes[0]
    heads = [label for label in axis.get_yticklabels() if label.get_fontweight() == "bold"]
    rows = rows_of(pictured, num_drafts=2, temperature=1.0, top_k=None)
    bounds = {row.draft: row.bound for row in rows}
    assert [head.get_text() for head in heads] == sorted(bounds, key=bounds.get, reverse=True)


def test_points_are_the_positions(pictured, figures):
    drawn = panels(figures["attained_against_bound.png"])
    wanted = {"num_drafts": 2, "temperature": 1.0, "top_k": None}
    losing = [row for row in rows_of(pictured, **wanted) if row.lost_to_verifier > 1e-3]
    assert {tuple(title.split("\n")[:2]) for title in drawn} == {
        (row.draft, row.verifier) for row in losing
    }
    (cell,) = (
        found
        for found in pictured.cells
        if all(getattr(found.cell, name) == value for name, value in wanted.items())
    )
    for title, axis in drawn.items():
        draft, verifier, _ = title.split("\n")
        (drafted,) = (each for each, _ in cell.cell.asked if each.draft == draft)
        (points,) = (each for each in axis.collections if isinstance(each, PathCollection))
        chosen = cell.column(drafted.drawable_column)
        expected = np.column_stack(
            [
                cell.column(drafted.bound_column)[chosen],
                cell.column(drafted.acceptance_column(verifier))[chosen],
            ]
        )
        np.testing.assert_array_equal(points.get_offsets(), expected)
        (diagonal,) = axis.get_lines()
        np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())


def test_of_many_positions_some_are_drawn(tmp_path):
    study = run_small(
        random_data(["small"], positions=2500, tokens=4),
        tmp_path / "many",
        drafts=["with_replacement"],
        verifiers=["naive"],
    )
    (axis,) = study_figures(study)["attained_against_bound.png"].axes
    assert "(2,000 of 2,500 positions drawn)" in axis.get_title()
    (points,) = axis.collections
    assert len(points.get_offsets()) == 2000


@pytest.mark.parametrize(
    ("kind", "scale", "name", "form"),
    [
        ("acceptance_heat_map", 1.0, "acceptance", ".3f"),
        ("verifier_loss_heat_map", 100.0, "lost_to_verifier", ".2f"),
    ],
)
def test_heat_maps_are_the_rows(pictured, figures, kind, scale, name, form):
    drawn = panels(figures[f"{kind}.png"])
    assert len(drawn) > 1
    for title, axis in drawn.items():
        draft, verifier = title.split("\n")
        texts = {text.get_position(): text.get_text() for text in axis.texts}
        for column, heat in enumerate([0.0, 0.6, 1.0]):
            for line, n in enumerate([1, 2, 3]):
                (row,) = rows_of(
                    pictured,
                    draft=draft,
                    verifier=verifier,
                    temperature=heat,
                    num_drafts=n,
                    top_k=None,
                )
                value = getattr(row, name)
                shown = axis.images[0].get_array()[line, column]
                if value is None:
                    assert np.ma.is_masked(shown)
                    assert texts[column, line] == "\N{EN DASH}"
                else:
                    assert shown == pytest.approx(max(0.0, scale * value), abs=1e-12)
                    assert texts[column, line] == format(float(shown), form)


def test_heat_maps_of_acceptance_have_the_best_verifier_of_each_draft(figures):
    assert list(panels(figures["acceptance_heat_map.png"])) == [
        "with_replacement\noptimal",
        "without_replacement\noptimal",
        "greedy\ngreedy",
    ]


def test_of_many_temperatures_a_heat_map_shows_some_and_says_so():
    rows = [made_row(temperature=k / 10, num_drafts=n) for k in range(30) for n in (2, 3)]
    figure = study_figures(made_study(rows))["acceptance_heat_map.png"]
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert (len(ticks), ticks[0], ticks[-1]) == (12, "0", "2.9")
    assert "12 of 30 temperatures" in " ".join(figure.get_suptitle().split())


# --- files ---------------------------------------------------------------------------------------


def test_pictures_are_the_same_bytes_every_time(tmp_path):
    data = random_data(["small"])
    drawn = []
    for name in ("one", "two"):
        study = run_small(data, tmp_path / name, drafts=["with_replacement"])
        drawn.append(
            {file: picture(".png", figure) for file, figure in study_figures(study).items()}
        )
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("width", [3.0, 4.5, 6.0, 12.0])
def test_lines_of_a_title_are_few_and_even_and_end_between_its_parts(width):
    parts = ["smollm2", "draft model drop2", "temperature 1", "no filter", "20 positions", "seed 0"]
    figure = Figure(figsize=(width, 3.0))
    write_title(figure, "Acceptance", parts)
    first, *lines = figure.get_suptitle().splitlines()
    assert (first, " ".join(lines)) == ("Acceptance", ", ".join(parts))
    assert figure.get_size_inches()[1] == pytest.approx(3.0 + 0.16 * (len(lines) - 1))
    assert (len(lines) == 1) == (width == 12.0)
    lengths = [len(line) for line in lines]
    assert max(lengths) - min(lengths) <= max(map(len, parts)) + 2
    assert [line for line in lines if line.rstrip(",").split(", ")[0] not in parts] == []


def test_nothing_drawn_overlaps_in_narrow_figures_with_long_titles(tmp_path):
    """Long names: the title is above the panels and beside the legend, whatever its lines."""
    names = [f"organisation/{letter * 60}" for letter in "ab"]
    study = run_small(
        random_data(names), tmp_path / "long", drafts=["independent"], temperatures=[0.5, 1.0]
    )
    figure = study_figures(study)["acceptance_by_temperature.png"]
    figure.draw_without_rendering()
    (title,) = (text for text in figure.texts if text.get_text() == figure.get_suptitle())
    above = title.get_window_extent()
    (axis,) = figure.axes
    (legend,) = figure.legends
    assert above.y0 >= axis.title.get_window_extent().y1
    assert above.x1 <= legend.get_window_extent().x0
    assert above.x0 >= 0.0
