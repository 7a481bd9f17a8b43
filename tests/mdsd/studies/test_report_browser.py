"""The report of a study in a browser without a network: pictures, sorting, filters, narrow windows.

A script is appended to a copy of the page; it uses the page and leaves what it saw in an element,
which the browser prints with the rest of the page.
"""

from __future__ import annotations

import html
import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ...commands import LIMIT

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

WATCH = """<script>
window.problems = [];
const failed = (e) => problems.push(e.message || `${e.target.tagName} not loaded`);
addEventListener("error", failed, true);
addEventListener("unhandledrejection", (e) => problems.push(String(e.reason)));
document.addEventListener("securitypolicyviolation", (e) => problems.push(e.violatedDirective));
console.error = (...said) => problems.push(said.join(" "));
console.warn = console.error;
</script>"""

USE = """<script>
addEventListener("load", () => {
  const table = document.getElementById("acceptance-table");
  const heads = Array.from(table.tHead.rows[0].cells);
  const names = heads.map((head) => head.textContent.trim());
  const column = (name) => {
    const place = names.indexOf(name);
    return Array.from(table.tBodies[0].rows, (row) => row.cells[place].textContent.trim());
  };
  const press = (name) => {
    const button = heads[names.indexOf(name)].querySelector("button");
    button.focus();
    if (document.activeElement !== button) problems.push(`${name} cannot be focused`);
    button.click();
    const sorted = heads.filter((head) => head.getAttribute("aria-sort") !== "none");
    return {
      values: column(name),
      sorted: sorted.map((head) => [head.textContent.trim(), head.getAttribute("aria-sort")]),
    };
  };
  // Browsers make no window this narrow: the page is made so inside of it.
  const tooWide = (width) => {
    document.documentElement.style.width = width;
    dispatchEvent(new Event("resize"));
    const boxes = Array.from(document.querySelectorAll(".scroll"));
    return boxes.map((box) => box.scrollWidth - box.clientWidth);
  };
  const seen = { window: innerWidth, desk: tooWide("1280px") };
  seen.tables = document.querySelectorAll(".cards").length;
  seen.narrow = tooWide("400px");
  seen.cards = document.querySelectorAll(".cards").length;
  seen.width = document.body.scrollWidth;
  seen.images = Array.from(document.images, (image) => image.complete && image.naturalWidth);
  seen.before = column("acceptance");
  seen.up = press("acceptance");
  seen.down = press("acceptance");
  seen.words = press("verifier");
  seen.ties = column("acceptance");
  const filter = document.querySelector('[data-filters="acceptance-table"]');
  filter.value = "  GREEDY with_  ";
  filter.dispatchEvent(new Event("input"));
  const shown = Array.from(table.tBodies[0].rows).filter((row) => !row.hidden);
  seen.filtered = shown.map((row) => row.textContent);
  seen.count = document.querySelector('[data-counts="acceptance-table"]').textContent;
  filter.value = "kseq";
  filter.dispatchEvent(new Event("input"));
  seen.kseq = Array.from(table.tBodies[0].rows).filter((row) => !row.hidden).length;
  filter.value = "";
  filter.dispatchEvent(new Event("input"));
  seen.all = Array.from(table.tBodies[0].rows).filter((row) => !row.hidden).length;
  seen.problems = problems;
  const place = document.createElement("pre");
  place.id = "seen";
  place.textContent = JSON.stringify(seen);
  document.body.append(place);
});
</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None and os.environ.get("CI"):
        pytest.fail(f"none of {', '.join(BROWSERS)} is installed")
    if found is None:
        pytest.skip(f"needs one of {', '.join(BROWSERS)}")
    return found


def open_page(browser: str, page: str, folder: Path) -> dict[str, Any]:
    """Open a page with the network off, use it, and give what was seen."""
    copy = folder / "copy.html"
    copy.write_text(page.replace("<head>", f"<head>{WATCH}", 1).replace("</body>", f"{USE}</body>"))
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'profile'}",
            "--window-size=400,900",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    (seen,) = re.findall(r'<pre id="seen">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    return dict(json.loads(html.unescape(seen)))


@pytest.fixture(scope="module")
def seen(
    browser: str, page_of_pictured: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What is seen in a narrow window."""
    folder = tmp_path_factory.mktemp("browser")
    return open_page(browser, page_of_pictured.read_text(), folder)


def test_nothing_goes_wrong(seen):
    assert seen["problems"] == []


def test_all_pictures_are_shown(seen):
    assert len(seen["images"]) == 7
    assert [width for width in seen["images"] if not width] == []


def test_a_narrow_window_does_not_scroll_sideways(seen):
    assert seen["window"] <= 500
    assert seen["width"] == 400


def test_no_column_and_no_picture_is_cut_off(seen):
    assert len(seen["narrow"]) == 7 + 5
    assert set(seen["desk"]) == set(seen["narrow"]) == {0}
    # There are no tables of blocks where there is room, and blocks where there is not.
    assert (seen["tables"], seen["cards"]) == (0, 5)


def sorted_numbers(texts: list[str], *, down: bool) -> list[str]:
    """Sort as the page should: as numbers, what is missing last."""

    def key(text: str) -> tuple[bool, float]:
        missing = text == "\N{EN DASH}"
        return missing, math.nan if missing else -float(text) if down else float(text)

    known = [text for text in texts if text != "\N{EN DASH}"]
    return sorted(known, key=key) + [text for text in texts if text not in known]


def test_a_click_sorts_numbers_and_another_turns_them_round(seen):
    before = seen["before"]
    assert "\N{EN DASH}" in before
    up, down = sorted_numbers(before, down=False), sorted_numbers(before, down=True)
    assert before not in (up, down)
    assert seen["up"] == {"values": up, "sorted": [["acceptance", "ascending"]]}
    assert seen["down"] == {"values": down, "sorted": [["acceptance", "descending"]]}


def test_words_are_sorted_and_equal_ones_keep_their_order(seen):
    words = seen["words"]
    assert words["sorted"] == [["verifier", "ascending"]]
    assert words["values"] == sorted(words["values"])
    # Sorted by acceptance before: within a verifier that is left.
    pairs = list(zip(words["values"], seen["ties"], strict=True))
    for verifier in set(words["values"]):
        own = [acceptance for name, acceptance in pairs if name == verifier]
        assert own == sorted_numbers(own, down=True)


def test_the_filter_shows_rows_with_all_words(seen):
    assert seen["all"] == len(seen["before"])
    assert seen["count"] == f"{len(seen['filtered'])} of {seen['all']} rows"
    assert all("greedy" in text for text in seen["filtered"])
    assert 0 < seen["kseq"] < seen["all"]


def test_what_is_wrong_with_a_page_would_be_noticed(browser, page_of_pictured, tmp_path):
    page = page_of_pictured.read_text()
    start = page.index("base64,") + len("base64,")
    broken = page[:start] + "AAAA" + page[start + 4 :]
    broken = broken.replace(
        "</main>",
        '<img src="https://example.invalid/x.png"><div style="width: 900px">wide</div></main>'
        "<script>null.x</script>",
    )
    found = open_page(browser, broken, tmp_path)
    assert found["images"].count(0) == 2
    assert found["width"] >= 900
    said = " ".join(found["problems"])
    assert [word for word in ("img-src", "IMG not loaded", "null") if word not in said] == []
