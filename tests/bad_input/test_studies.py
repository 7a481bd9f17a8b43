"""Bad input of studies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import mdsd
from mdsd.errors import InvalidArgumentError

from .calls import DATA
from .rows import Row, Values, rows
from .values import COUNTS, INF, MATRIX, MIN_PS, NAN, TOP_KS, TOP_PS, WHOLE_SEEDS, P, Q, written

LOG = mdsd.datasets.TopLogprobs(
    "log", ("drop2",), (mdsd.datasets.LoggedPosition(1, {"a": -0.5}, {"drop2": {"a": -0.7}}),)
)


def study_rows() -> Iterator[list[Row]]:
    nested: Values = {"nested": ([["greedy"]], "greedy")}
    one_name: Values = {"one_name": ("greedy", "'greedy'", "list")}
    not_lists: Values = {"number": (3, "3"), "empty": ([], "empty")}
    temperatures: Values = {
        **not_lists,
        "bare": (0.7, "0.7"),
        "none": (None, "None"),
        "nested": ([[1.0]],),
        "negative": ([1.0, -1.0], "-1.0"),
        "nan": ([NAN], "nan"),
        "inf": ([INF], "inf"),
        "strings": (["1"], "'1'"),
        "bool": ([True], "True"),
        "string": ("0.7", "'0"),
    }
    counts: Values = {
        **not_lists,
        "none": (None, "None"),
        "string": ("23", "'23'"),
        **{f"of_{kind}": ([value], *words) for kind, (value, *words) in COUNTS.items()},
    }
    options: tuple[tuple[str, Values, str], ...] = (
        ("num_drafts", counts, "num_drafts"),
        ("temperatures", temperatures, "temperature"),
        ("top_k", TOP_KS, "top_k"),
        ("top_p", TOP_PS, "top_p"),
        ("min_p", MIN_PS, "min_p"),
        ("positions", {**MATRIX, **written(0, -1, 1.5, True, "5")}, "positions"),
        (
            "drafts",
            {
                **not_lists,
                **nested,
                **one_name,
                "unknown": (["greddy"], "'greddy'", "'greedy'"),
                "none_applies": (["spechub"], "spechub"),
            },
            "draft",
        ),
        (
            "draft_models",
            {
                **not_lists,
                **nested,
                **one_name,
                "unknown": (["drop22"], "'drop22'", "'drop2'"),
            },
            "draft",
        ),
        ("progress", {"number": (5, "int"), "string": ("yes", "str")}, "progress"),
    )
    verifiers: Values = {
        **not_lists,
        **nested,
        **one_name,
        "unknown": (["optmal"], "'optmal'", "'optimal'"),
        "none_entry": ([None], "None"),
        "class": ([mdsd.NaiveVerifier], "NaiveVerifier"),
        "none_applies": (["spechub"], "spechub", "greedy"),
        "same_name_twice": (
            [mdsd.OptimalVerifier(), mdsd.OptimalVerifier(tolerance=1e-3)],
            "'optimal'",
        ),
    }
    against: Values = {
        "unknown": ("kesq", "'kesq'", "'kseq'"),
        "number": (3, "3"),
        "list": (["rrs"], "['rrs']"),
        "verifier": (mdsd.RRSVerifier(), "RRSVerifier"),
    }
    extra = (
        ("verifiers", verifiers, "verifier"),
        ("against", against, "against"),
        ("seed", WHOLE_SEEDS, "seed"),
    )
    of_rules: list[tuple[str, Values, str]] = [
        ("drafts", {k: v for k, v in options[6][1].items() if k != "none_applies"}, "draft"),
        (
            "rules",
            {
                **not_lists,
                "nested": ([["naive"]], "naive"),
                "one_name": ("naive", "'naive'", "list"),
                "unknown": (["cactuss"], "'cactuss'", "'cactus'"),
                "bad_parameter": (["cactus:0.1:2"], "'cactus:0.1:2'", "delta"),
                "none_applies": (["mixture"], "mixture:0.9", "greedy"),
                "same_name_twice": (
                    [mdsd.OptimalVerifier(effort=effort) for effort in ("fast", "exact")],
                    "'optimal'",
                ),
            },
            "rule",
        ),
    ]
    datasets: Values = {
        "none": (None, "NoneType"),
        "arrays": ({"target_probs": [P], "draft_probs": [Q]}, "dict"),
    }
    for call, study, data, argument, table in (
        ("studies.compare", mdsd.studies.compare, DATA, "dataset", options + extra),
        ("studies.bound", mdsd.studies.bound, DATA, "dataset", options),
        (
            "studies.bias",
            mdsd.studies.bias,
            DATA,
            "dataset",
            [*(row for row in options if row[0] != "drafts"), *of_rules],
        ),
        (
            "studies.interval",
            mdsd.studies.interval,
            LOG,
            "log",
            [row for row in options if not row[0].startswith(("temp", "top", "min"))],
        ),
    ):
        yield rows(call, argument, study, InvalidArgumentError, datasets)
        near: Values = {
            "name": ("smolm2", "smolm2"),
            "missing": ("no/such.npz", "there is no folder no"),
        }
        yield rows(call, argument, study, InvalidArgumentError, near, named="")
        for option, values, named in table:
            usual = {"num_drafts": [3], "drafts": ["greedy"], "positions": 1}
            yield rows(
                call,
                option,
                lambda v, s=study, d=data, o=option, u=usual: s(d, **{**u, o: v}),
                InvalidArgumentError,
                values,
                named=named,
            )
    found = mdsd.studies.compare("smollm2", num_drafts=[2], drafts=["greedy"], positions=1)
    libraries: Values = {"typo": ("panda", "'panda'", "'pandas'"), "module": (np, "module")}
    yield rows("studies.Rows.to_frame", "library", found.to_frame, InvalidArgumentError, libraries)
    unknown: Values = {"typo": ("topp", "'topp'", "'top_p'"), "other": ("typical_p", "'typical_p'")}
    for call, run in (
        ("studies.compare", lambda **options: mdsd.studies.compare(DATA, **options)),
        ("studies.bound", lambda **options: mdsd.studies.bound(DATA, **options)),
        ("studies.bias", lambda **options: mdsd.studies.bias(DATA, **options)),
        ("studies.study", lambda **options: mdsd.studies.study(DATA, **options)),
    ):
        yield rows(
            call,
            "filters",
            lambda name, f=run: f(**{name: 0.9}),
            InvalidArgumentError,
            unknown,
            named="filter",
        )
    filters = {"top_k": TOP_KS, "top_p": TOP_PS, "min_p": MIN_PS}
    of_a_grid = [
        (option, listed(filters[option]) if option in filters else values, named)
        for option, values, named in options + extra
    ]
    of_a_run: list[tuple[str, Values, str]] = [
        (
            "data",
            {"none": (None, "None"), "number": (5, "5"), "unknown": ("smolm", "smollm2")},
            "data",
        ),
        (
            "output",
            {"number": (5, "5"), "bytes": (b"study", "bytes"), "file": ("no.csv", "no.csv")},
            "output",
        ),
        ("workers", written(0, -1, 1.5, True, "2"), "workers"),
        ("scheduler", {"number": (5, "5"), "bytes": (b"tcp://a:1", "b'tcp")}, "scheduler"),
    ]
    for option, values, named in (*of_a_grid, *of_a_run):
        usual = {"data": DATA, "num_drafts": [3], "drafts": ["greedy"], "positions": 1}
        yield rows(
            "studies.study",
            option,
            lambda v, o=option, u=usual: mdsd.studies.study(**{**u, o: v}),
            InvalidArgumentError,
            values,
            named=named,
        )


def listed(values: Values) -> Values:
    """What is bad in a list of values that are bad by themselves, and what is no list."""
    return {
        "number": (3, "3"),
        "string": ("all", "'all'"),
        "empty": ([], "empty"),
        **{f"of_{kind}": ([value], *words) for kind, (value, *words) in values.items()},
    }


ROWS = [row for made in study_rows() for row in made]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_bad_input_is_refused(row):
    row.check()
