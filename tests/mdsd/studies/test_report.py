"""The report of a study: what its page says, and that it needs nothing else."""

from __future__ import annotations

import base64
import io
import re
import shutil
from pathlib import Path

import pytest
from matplotlib.image import imread

import mdsd
from mdsd.studies.grid.report import study_report
from mdsd.studies.grid.report.findings import comparable, findings, remarks
from mdsd.studies.grid.report.sorted_tables import MOST_ROWS, report_tables
from mdsd.studies.study_rows import Missing

from ...commands import assert_refused, printed, run, run_python
from .grids import HOSTILE, NOTHING, made_row, made_study, random_data, run_small
from .pages import Page, read_page

HYPHEN = "\N{NON-BREAKING HYPHEN}"


@pytest.fixture(scope="module")
def html(page_of_pictured: Path) -> str:
    return page_of_pictured.read_text()


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return read_page(html)


def test_a_page_has_all_sections(page):
    assert page.title == page.headings[0] == "Study of made up"
    sections = [
        "Findings",
        "What was asked",
        "Pictures",
        "Tables",
        "Data and versions",
        "What the numbers mean",
    ]
    assert [heading for heading in page.headings if heading in sections] == sections


def number(value, form=".4f", scale=1.0):
    if value is None:
        return "\N{EN DASH}"
    return format(scale * value, form).replace("-0.00", "0.00")


def test_tables_have_the_numbers_of_every_row(pictured, page):
    acceptance, losses = page.tables["acceptance-table"], page.tables["losses-table"]
    for row, one, other in zip(pictured.rows, acceptance.rows, losses.rows, strict=True):
        point = [
            str(row.num_drafts),
            f"{row.temperature:g}",
            "all" if row.top_k is None else str(row.top_k),
            f"{row.top_p:g}",
            f"{row.min_p:g}",
        ]
        assert one == [
            HOSTILE,
            row.draft,
            row.verifier,
            *point,
            *map(number, (row.acceptance, row.stderr, row.q10, row.q50, row.q90)),
            *map(number, (row.bound, row.bound_stderr)),
            number(row.share_of_bound, ".2f", 100.0),
            str(row.positions),
        ]
        assert other == [
            HOSTILE,
            row.draft,
            row.verifier,
            row.best_draft or "\N{EN DASH}",
            *point,
            number(row.acceptance),
            number(row.lost_to_model, ".2f", 100.0),
            number(row.lost_to_construction, ".2f", 100.0),
            number(row.lost_to_verifier, ".2f", 100.0),
        ]


def test_heads_name_the_columns(page):
    assert page.tables["acceptance-table"].heads == [
        "draft model",
        "draft distribution",
        "verifier",
        "n",
        "temperature",
        f"top{HYPHEN}k",
        f"top{HYPHEN}p",
        f"min{HYPHEN}p",
        "acceptance",
        "s.e.",
        "10%",
        "median",
        "90%",
        "bound",
        "bound s.e.",
        "share of bound (%)",
        "positions",
    ]


def test_rows_without_numbers_are_there(pictured, page):
    none = sum(row.acceptance is None for row in pictured.rows)
    assert none > 0
    assert page.tables["acceptance-table"].column("acceptance").count("\N{EN DASH}") == none


def test_settings_data_and_versions_are_told(pictured, page):
    terms = dict(page.terms)
    assert terms["draft models"] == HOSTILE
    assert terms["n (draft tokens per step)"] == "1, 2, 3"
    assert terms["temperatures"] == "0, 0.6, 1"
    assert terms["top-k"] == "all, 4"
    assert terms["seed"] == "0"
    assert terms["SHA-256 of the data"] == pictured.plan["data"]["fingerprint"]
    assert terms["mdsd"] == mdsd.__version__
    assert terms["numpy"] == pictured.plan["libraries"]["numpy"]
    assert (terms["from"], terms["nested"]) == ("a seed", '{"deep": [1, 2]}')


def test_a_hostile_name_stays_text(html, page):
    assert "<script>alert" not in html
    assert page.elements.count("script") == 1
    assert "49" not in dict(page.terms)["draft models"]
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]


def test_a_page_refers_to_nothing_outside(html, page):
    allowed = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]+=*")
    sources = [value for _, name, value in page.attributes if name == "src"]
    assert len(sources) > 5
    assert [value[:50] for value in sources if not allowed.fullmatch(value)] == []
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    links = [value for _, name, value in page.attributes if name == "href"]
    assert [link for link in links if link.removeprefix("#") not in ids] == []
    assert not {"link", "base", "iframe", "object", "embed", "form"} & set(page.elements)
    assert re.findall(r"https?:|url\(|@import|import\(|fetch\(|XMLHttpRequest", html) == []
    (policy,) = (value for _, name, value in page.attributes if value.startswith("default-src"))
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_pictures_are_inlined_with_words_for_those_who_do_not_see_them(page):
    sources = [value for _, name, value in page.attributes if name == "src"]
    words = [value for _, name, value in page.attributes if name == "alt"]
    assert len(words) == len(sources) == 7
    for source in sources:
        picture = imread(io.BytesIO(base64.b64decode(source.partition(",")[2])))
        assert picture.shape[2] in (3, 4)
        assert picture[0, 0, :3].tolist() == [1.0, 1.0, 1.0]  # few colours, but white is white
    assert words[0].startswith("Where the lost acceptance goes: made up, draft model org/")


def test_a_study_without_numbers_has_a_page():
    page = read_page(study_report(made_study([made_row(**NOTHING, positions=0)])))
    assert "No row has a number." in page.paragraphs
    assert "There is nothing to draw." in page.paragraphs
    assert "The data do not say where they come from." in page.paragraphs
    assert page.tables["acceptance-table"].column("acceptance") == ["\N{EN DASH}"]


def test_tables_are_cut_and_say_so():
    rows = [made_row(num_drafts=n) for n in range(1, MOST_ROWS + 3)]
    best, _, acceptance, losses = report_tables(rows)
    for table in (best, acceptance, losses):
        assert len(table.rows) == MOST_ROWS
        assert "The first 10,000 of 10,002 rows; all are in the files study.csv" in table.note
    assert "10,000" not in report_tables(rows[:MOST_ROWS])[0].note


def test_rounding_below_zero_is_no_loss():
    (*_, losses) = report_tables([made_row(lost_to_verifier=-1e-16, lost_to_model=-1e-9)])
    assert losses.rows[0][-3:] == ("0.00", "10.00", "0.00")


# --- findings ------------------------------------------------------------------------------------


def pairs_of(values, **changes):
    """Rows of one cell: draft distributions with verifiers, and their acceptances."""
    return [
        made_row(draft=draft, verifier=verifier, acceptance=value, bound=value, **changes)
        for (draft, verifier), value in values.items()
    ]


def test_the_best_pair_of_a_cell_is_named():
    rows = pairs_of({("greedy", "greedy"): 0.8, ("top_k", "naive"): 0.9, ("spechub", "rrs"): 0.1})
    (said, *_) = findings(made_study(rows))
    assert said == (
        "With draft model small at n = 2, temperature 1, no filter, top_k with naive accepts most, "
        "0.9000 ± 0.0100, of a bound of 0.9000; greedy with greedy 0.8000 and spechub with rrs "
        "0.1000 follow."
    )


def test_differences_to_the_reference_are_said():
    shared = {"reference": "rrs", "texts": 3, "difference_stderr": 0.01}
    rows = [
        made_row(verifier="kseq", difference=0.025, difference_stderr_by_text=0.02, **shared),
        made_row(verifier="naive", difference=-0.1, **shared),
        made_row(verifier="rrs", difference=0.0, **shared),
        made_row(verifier="greedy", draft="greedy"),
    ]
    (said,) = (each for each in findings(made_study(rows)) if "same positions" in each)
    assert said == (
        "At the same positions with with_replacement drafts, draft model small, n = 2, temperature "
        "1, no filter, kseq accepts 2.50 ± 2.00 points more and naive accepts 10.00 ± 1.00 points "
        "less than rrs, with standard errors by 3 texts."
    )
    (table,) = (table for table in report_tables(rows) if table.key == "differences")
    assert table.title == "Differences to rrs"
    assert [row[9:13] for row in table.rows] == [
        ("+2.50", "1.00", "2.00", "3"),
        ("-10.00", "1.00", "\N{EN DASH}", "3"),
        ("0.00", "1.00", "\N{EN DASH}", "3"),
    ]


def test_rows_over_fewer_positions_are_not_compared():
    few = made_row(draft="greedy", acceptance=0.99, positions=3)
    many = made_row(acceptance=0.5, positions=10)
    unknown = made_row(**NOTHING)
    assert comparable([few, many, unknown]) == [many]
    assert comparable([unknown]) == []


def test_cells_won_are_counted_with_ties():
    rows = [
        *pairs_of({("greedy", "a"): 0.5, ("top_k", "b"): 0.5 + 1e-12}, temperature=0.5),
        *pairs_of({("greedy", "a"): 0.5, ("top_k", "b"): 0.6}, temperature=1.0),
    ]
    (said,) = (each for each in findings(made_study(rows)) if "as good as" in each)
    assert said == (
        "Of the 2 cells (draft models, n, temperature and filters) the best, or as good as the "
        "best, is top_k with b in 2 and greedy with a in 1."
    )


def test_the_largest_bound_is_named_by_temperature():
    rows = [
        made_row(draft=draft, temperature=heat, bound=bound, acceptance=bound)
        for heat, bounds in ((0.0, (0.9, 0.8)), (0.5, (0.9, 0.8)), (1.0, (0.7, 0.7)))
        for draft, bound in zip(("greedy", "top_k"), bounds, strict=True)
    ]
    (said,) = (each for each in findings(made_study(rows)) if "by temperature" in each)
    assert said == (
        "The largest bound by temperature, with draft model small at n = 2, no filter, is that of "
        "greedy at 0 to 0.5 and of greedy and top_k at 1."
    )


def test_replacement_is_compared_over_the_same_positions():
    rows = [
        made_row(draft="without_replacement", bound=0.85),
        made_row(bound=0.75),
        made_row(draft="without_replacement", bound=0.1, temperature=0.5, positions=4),
        made_row(bound=0.7, temperature=0.5),
        made_row(draft="without_replacement", bound=0.6, num_drafts=1),
        made_row(bound=0.6, num_drafts=1),
    ]
    (said,) = (each for each in findings(made_study(rows)) if "without replacement" in each)
    assert "in 1 of 1 cell with n > 1" in said
    assert said.endswith("between 10.00 and 10.00 points.")


def test_verifiers_that_attain_their_bounds_everywhere_are_named():
    rows = [
        made_row(verifier="near", acceptance=0.7495),
        made_row(verifier="far", acceptance=0.7495),
        made_row(verifier="far", acceptance=0.74, temperature=0.5),
    ]
    (said,) = (each for each in findings(made_study(rows)) if "within 0.1" in each)
    assert said == (
        "Of 2 pairs, 1 stays within 0.1 points of the bound in all cells: with_replacement with "
        "near."
    )


def test_largest_parts_are_counted():
    parts = [(0.2, 0.1, 0.0), (0.1, 0.2, 0.1), (0.1, 0.0, 0.3), (0.0, 0.0, 0.3)]
    rows = [
        made_row(
            acceptance=1.0 - sum(each),
            lost_to_model=each[0],
            lost_to_construction=each[1],
            lost_to_verifier=each[2],
            verifier=f"v{k}",
        )
        for k, each in enumerate(parts)
    ]
    (said,) = (each for each in findings(made_study(rows)) if "largest part" in each)
    assert said == (
        "The largest part of what 4 rows lose goes to the draft model in 1, the construction in 1 "
        "and the verifier in 2."
    )


def test_missing_numbers_and_positions_are_remarked():
    missing = Missing("optimal", 3, 1234, "no method for so many")
    rows = [
        made_row(positions=4),
        made_row(**NOTHING, positions=0),
        made_row(**NOTHING, positions=10, missing=(missing,)),
        made_row(**NOTHING, positions=10, missing=(missing,), temperature=0.5),
    ]
    fewer, none, why = remarks(made_study(rows))
    assert fewer.startswith("1 row of 4 average over fewer than 10 positions")
    assert none.startswith("1 row of 4 have no numbers")
    assert why == (
        "optimal of with_replacement was not computed for 2 rows; at position 3, with 1,234 "
        "tokens: no method for so many."
    )
    assert remarks(made_study([made_row()])) == []


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "small"
    run_small(random_data(["small"]), folder, drafts=["greedy"], verifiers=["greedy", "optimal"])
    return folder


def test_the_command_writes_the_page_and_the_same_one_again(folder, small):
    assert printed(run(f"report {small}")) == "report.html: 2 rows\n"
    first = (folder / "report.html").read_bytes()
    assert read_page(first.decode()).title == "Study of made up"
    assert [path.name for path in folder.iterdir()] == ["report.html"]
    printed(run(f"report {small} --output again.html"))
    assert (folder / "again.html").read_bytes() == first
    printed(run(f"report {small}"))
    assert (folder / "report.html").read_bytes() == first


def test_what_is_no_study_is_refused(folder, small):
    (folder / "empty").mkdir()
    assert_refused(run("report empty"), "empty: holds no study", "study.json")
    assert_refused(run("report nowhere"), "nowhere: holds no study")
    assert_refused(run(f"report {small} --output page.pdf"), "page.pdf", ".html")
    assert_refused(run(f"report {small} --output no/page.html"), "no/page.html")
    assert [path.name for path in folder.iterdir()] == ["empty"]


def test_an_unfinished_study_is_refused(folder, small):
    shutil.copytree(small, folder / "part")
    (folder / "part" / "cells" / "0000.parquet").unlink()
    assert_refused(run("report part"), "part: the study is not finished", "0 of 1 cells")
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("damage", ["cut", "other bytes"])
def test_a_corrupt_file_is_named(folder, small, damage):
    shutil.copytree(small, folder / "bad")
    file = folder / "bad" / "cells" / "0000.parquet"
    content = bytearray(file.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    else:
        content[20:60] = bytes(40)
    file.write_bytes(content)
    assert_refused(run("report bad"), "bad/cells/0000.parquet: cannot be read")
    assert not (folder / "report.html").exists()


def test_importing_the_library_imports_neither_pages_nor_pictures():
    code = (
        "import sys, mdsd, mdsd.studies.grid.report, mdsd.studies.grid.plots\n"
        "print(sorted({'jinja2', 'matplotlib', 'PIL', 'pyarrow'} & set(sys.modules)))"
    )
    assert run_python(code).stdout == "[]\n"
