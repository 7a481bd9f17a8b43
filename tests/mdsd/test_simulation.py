"""The study behind `mdsd simulate`: its numbers, figures and table."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mdsd.analysis import batch_improvement, chain_pareto_front, expected_rejections, pareto_front
from mdsd.errors import InvalidArgumentError
from mdsd.studies.fitting import print_report
from mdsd.studies.output import picture
from mdsd.studies.simulation.chains import random_chains
from mdsd.studies.simulation.plots import simulation_figures
from mdsd.studies.simulation.runs import Simulation, run_simulation
from mdsd.studies.simulation.simulation_rows import compared
from mdsd.studies.simulation.simulation_settings import SimulationSettings
from mdsd.studies.simulation.simulation_table import simulation_report

SMALL: dict[str, Any] = {
    "vocab_size": 4,
    "horizon": 6,
    "batch_sizes": (2, 5),
    "epsilons": (0.0, 0.15),
    "runs": 4000,
}


@pytest.fixture(scope="module")
def settings() -> SimulationSettings:
    return SimulationSettings(**SMALL)


@pytest.fixture(scope="module")
def found(settings: SimulationSettings) -> Simulation:
    return run_simulation(settings)


def scores(found: Simulation) -> list[float]:
    return [row.z for rows in found.tables.values() for row in rows if row.z is not None]


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 5])
def test_rejections_are_those_of_the_analysis(settings, found, size):
    chains = settings.chains()
    rows = [row for row in found.rejections if row.batch_size == size]
    assert [row.horizon for row in rows] == list(range(1, 7))
    for row in rows:
        cut = chains.target[: row.horizon], chains.draft[: row.horizon], row.horizon
        expected = expected_rejections(*cut, chains.initial, batch_size=size)
        assert row.theory == pytest.approx(expected, abs=1e-12)


def test_what_a_batch_saves_is_that_of_the_analysis(settings, found):
    rows = found.batch_improvement
    sizes = [row.batch_size for row in rows]
    theory = batch_improvement(*settings.chains().setting, batch_sizes=sizes)
    assert sizes == [1, 2, 3, 4, 5]  # a line through the sizes between
    np.testing.assert_allclose([row.theory for row in rows], theory.saved, rtol=0, atol=1e-12)
    limits = [row.limit for row in rows]
    np.testing.assert_allclose(limits, theory.single - theory.limit, rtol=0, atol=1e-12)
    assert all(row.theory < row.limit for row in rows)


def test_what_a_batch_saved_is_a_difference_of_counts(found):
    last = {row.batch_size: row for row in found.rejections if row.horizon == 6}
    saved = {row.batch_size: row for row in found.batch_improvement}
    for size in (2, 5):
        single, batch, row = last[1], last[size], saved[size]
        assert row.simulation == pytest.approx(single.simulation - batch.simulation, abs=1e-12)
        assert row.stderr == pytest.approx(math.hypot(single.stderr, batch.stderr), abs=1e-12)
    assert [saved[size].simulation for size in (1, 3, 4)] == [None] * 3


@pytest.mark.parametrize("scope", ["position", "chain"])
@pytest.mark.parametrize("redraw", ["optimal", "target"])
@pytest.mark.parametrize("quantity", ["rejections", "total_variation"])
def test_fronts_are_those_of_the_analysis(settings, found, scope, redraw, quantity):
    rows = [
        row
        for row in found.pareto_front
        if (row.scope, row.redraw, row.quantity) == (scope, redraw, quantity)
    ]
    epsilons, chains = [row.epsilon for row in rows], settings.chains()
    if scope == "position":
        front = pareto_front(*chains.one_position, epsilons)
    else:
        front = chain_pareto_front(*chains.setting, epsilons)
    expected = getattr(front, quantity if redraw == "optimal" else f"uno_{quantity}")
    np.testing.assert_allclose([row.theory for row in rows], expected, rtol=0, atol=1e-12)
    assert [row.epsilon for row in rows if row.simulation is not None] == [0.0, 0.15]
    assert min(epsilons) == 0.0
    assert max(epsilons) == 0.15


def test_simulation_agrees_with_theory(found):
    """About 50 scores: that one exceeds 4.9 in size has a probability below 5e-5."""
    assert len(scores(found)) > 30
    assert max(map(abs, scores(found))) < 4.9


def test_simulation_disagrees_with_the_theory_of_another_chain(settings, found):
    other = run_simulation(replace(settings, seed=1))
    mixed = [
        compared(theirs.theory, ours.simulation, ours.stderr)["z"]
        for ours, theirs in zip(found.rejections, other.rejections, strict=True)
    ]
    assert max(map(abs, mixed)) > 4.9


def test_same_settings_same_numbers(settings, found):
    assert run_simulation(settings) == found


def test_a_number_does_not_depend_on_what_else_is_simulated(found):
    alone = run_simulation(SimulationSettings(**{**SMALL, "batch_sizes": [5], "epsilons": [0.0]}))
    assert [row for row in alone.rejections if row.batch_size == 5] == [
        row for row in found.rejections if row.batch_size == 5
    ]
    first = {
        (row.scope, row.redraw, row.quantity): row.simulation
        for row in found.pareto_front
        if row.epsilon == 0.0
    }
    assert first == {
        (row.scope, row.redraw, row.quantity): row.simulation for row in alone.pareto_front
    }


def test_progress_counts_simulations(settings):
    seen: list[tuple[int, int]] = []
    run_simulation(replace(settings, runs=2), lambda *step: seen.append(step))
    total = 3 + 2 * 2 * 2
    assert seen == [(done, total) for done in range(1, total + 1)]


@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1), (1, 5), (2, 1)])
def test_smallest_chains(sizes, stationary):
    vocab_size, horizon = sizes
    least = SimulationSettings(
        vocab_size=vocab_size, horizon=horizon, stationary=stationary, batch_sizes=[1], runs=2
    )
    found = run_simulation(least)
    assert len(found.rejections) == horizon
    if vocab_size == 1:
        assert {row.theory for rows in found.tables.values() for row in rows} == {0.0}
        assert scores(found) == []


# --- chains and settings -------------------------------------------------------------------------


def test_chains():
    chains = random_chains(3, 5, stationary=False, rng=np.random.default_rng(1))
    for array in (chains.target, chains.draft):
        assert array.shape == (5, 3, 3)
        np.testing.assert_allclose(array.sum(axis=-1), 1.0, rtol=0, atol=1e-15)
        assert not array.flags.writeable
    apart = np.abs(chains.target[0] - chains.draft[0]).sum(axis=1)
    target, draft = chains.one_position
    assert np.abs(target - draft).sum() == apart.max()


def test_stationary_chain_has_one_matrix():
    chains = random_chains(3, 5, stationary=True, rng=np.random.default_rng(1))
    assert chains.target.shape == chains.draft.shape == (3, 3)
    assert chains.one_position[0].shape == (3,)


def test_default_chain_is_rejected_in_a_third_of_its_positions():
    """In kind that of the published figure: 16.41 rejections in 50 positions."""
    rejections = [
        expected_rejections(*SimulationSettings(seed=seed).chains().setting) for seed in range(5)
    ]
    assert 15.0 < min(rejections) <= max(rejections) < 18.0


def test_sizes_are_sorted_and_a_single_sequence_is_one_of_them():
    assert SimulationSettings(batch_sizes=[8, 2, 8]).batch_sizes == (1, 2, 8)
    assert SimulationSettings(epsilons=[0.2, 0, 0.2]).epsilons == (0.0, 0.2)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("vocab_size", 0, "vocab_size is 0"),
        ("vocab_size", 2000, "200,000,000 entries"),
        ("horizon", -1, "horizon is -1"),
        ("batch_sizes", [], "batch_sizes is empty"),
        ("batch_sizes", [2, 0], r"batch_sizes\[1\] is 0"),
        ("batch_sizes", [5000], r"batch_sizes\[0\] is 5000.*4096"),
        ("epsilons", [], "epsilons is empty"),
        ("epsilons", [math.nan], r"epsilons\[0\] is nan"),
        ("epsilons", [0.1, -0.1], r"epsilons\[1\] is -0.1"),
        ("epsilons", [math.inf], r"epsilons\[0\] is inf"),
        ("runs", 1, "runs is 1"),
        ("seed", -1, "seed is -1"),
    ],
)
def test_bad_settings(option, value, words):
    with pytest.raises(InvalidArgumentError, match=words):
        SimulationSettings(**{option: value})


def test_scores():
    assert compared(1.0, 2.0, 0.5)["z"] == 2.0
    assert compared(1.0, 2.0, 0.0)["z"] is None
    assert compared(1.0)["z"] is compared(1.0)["simulation"] is None


# --- figures and table ---------------------------------------------------------------------------


def texts(figure: Any) -> str:
    axes = [text for axis in figure.axes for text in (axis.get_xlabel(), axis.get_ylabel())]
    return " ".join([figure.get_suptitle(), *axes])


def drawn_points(axis: Any) -> list[tuple[list[float], list[float]]]:
    """Places of the points of each series: those with error bars."""
    return [
        (container.lines[0].get_xdata().tolist(), container.lines[0].get_ydata().tolist())
        for container in axis.containers
    ]


def test_rejections_figure_shows_points_over_lines(settings, found):
    upper, lower = simulation_figures(found, settings)["rejections"].axes
    lines = [line.get_ydata() for line in upper.lines if line.get_linestyle() == "-"]
    for line, points, size in zip(lines, drawn_points(upper), [1, 2, 5], strict=True):
        rows = [row for row in found.rejections if row.batch_size == size]
        assert list(line) == [row.theory for row in rows]
        assert points == (list(range(1, 7)), [row.simulation for row in rows])
    for points, size in zip(drawn_points(lower), [1, 2, 5], strict=True):
        rows = [row for row in found.rejections if row.batch_size == size]
        assert points[1] == [row.simulation - row.theory for row in rows]
    labels = [text.get_text() for text in upper.get_legend().get_texts()]
    assert labels == ["1 sequence", "batch of 2", "batch of 5"]


def test_many_batch_sizes_leave_a_few_curves(settings):
    many = replace(settings, batch_sizes=tuple(range(1, 12)), runs=2, horizon=30)
    (upper, lower) = simulation_figures(run_simulation(many), many)["rejections"].axes
    labels = [text.get_text() for text in upper.get_legend().get_texts()]
    assert labels == ["1 sequence", "batch of 4", "batch of 8", "batch of 11"]
    assert drawn_points(upper)[0][0] == [3, 6, 9, 12, 15, 18, 21, 24, 27, 30]
    shown = [x for xs, _ in drawn_points(lower) for x in xs]
    assert len(set(shown)) == len(shown)  # side by side


def test_batch_figure_shows_the_limit(settings, found):
    (axis,) = simulation_figures(found, settings)["batch_improvement"].axes
    (points,) = drawn_points(axis)
    rows = [row for row in found.batch_improvement if row.simulation is not None]
    assert points == ([2, 5], [row.simulation for row in rows])
    levels = [set(line.get_ydata()) for line in axis.lines]
    assert {rows[0].limit} in levels


def test_front_figure_pairs_rejections_with_distances(settings, found):
    axes = simulation_figures(found, settings)["pareto_front"].axes
    for axis, scope in zip(axes, ["position", "chain"], strict=True):
        for points, redraw in zip(drawn_points(axis), ["optimal", "target"], strict=True):
            pair = [
                [
                    row.simulation
                    for row in found.pareto_front
                    if (row.scope, row.redraw, row.quantity) == (scope, redraw, quantity)
                    and row.simulation is not None
                ]
                for quantity in ("total_variation", "rejections")
            ]
            assert list(points) == pair


@pytest.mark.parametrize("name", ["rejections", "batch_improvement", "pareto_front"])
def test_figures_say_what_they_show(settings, found, name):
    figure = simulation_figures(found, settings)[name]
    words = ["non-stationary chain of 4 tokens, seed 0", "4,000 runs ± 3 s.e."]
    assert [word for word in words if word not in texts(figure)] == []
    assert all(
        axis.get_ylabel() and (axis.get_xlabel() or axis is figure.axes[0]) for axis in figure.axes
    )
    assert picture(".png", figure).startswith(b"\x89PNG")


def test_table_has_theory_simulation_and_scores(settings, found, capsys):
    print_report(simulation_report(found, settings))
    shown = capsys.readouterr().out
    for row in found.rejections:
        if row.horizon == 6:
            numbers = f"{row.theory:.4f}", f"{row.simulation:.4f}", f"{row.stderr:.4f}"
            (line,) = [line for line in shown.splitlines() if all(n in line for n in numbers)]
            assert line.endswith(f"{row.z:.2f}")
    words = [
        "batch of 5",
        "epsilon 0.15",
        f"acceleration, positions over rejections: {6 / found.single:.2f}",
        f"saves {found.batch_improvement[0].limit:.4f}",
        f"{len(scores(found))} comparisons in all, |z| at most {max(map(abs, scores(found))):.2f}",
        "4,000 runs",
    ]
    assert [word for word in words if word not in shown] == []


def test_chance_of_the_largest_score(capsys):
    """Two scores of which the larger is 1.96: chance takes either as far in 1 - 0.95**2."""
    least = SimulationSettings(vocab_size=1, horizon=1, batch_sizes=[1], epsilons=[0.0], runs=2)
    found = run_simulation(least)
    scored = [replace(found.rejections[0], z=score) for score in (-1.959963984540054, 0.3)]
    print_report(simulation_report(replace(found, rejections=tuple(scored)), least))
    assert "as large by chance in at most 10%" in " ".join(capsys.readouterr().out.split())
