"""The page of a reproduced paper, as a reader meets it."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from report_browser import browse, parse

from dovetail.reproduce import page
from dovetail.reproduce.gp_2023.figures import lines
from dovetail.reproduce.item import ItemVerdict, PaperItem, Value, ValueSource

HOSTILE = "</style><script>console.error('ran')</script>| a"
ITEMS = (
    PaperItem("gp-2023", "Figure 3", "channels", (Value("on the FPGA", 14, 14), Value("on the GPU", 2, 3)), ValueSource.RECORD,
              "r.json", "why"),
    PaperItem("gp-2023", "Figure 4", HOSTILE, (Value("latency", None, 257.0, "us"),), origin="dovetail reproduce gp-2023",
              drawn=True),
    PaperItem("gp-2023", "Eq. 4", "limits", reason="not there", stated=ItemVerdict.MISSING))
DRAWINGS = {"figure_4.svg": lines("Figure 4: latency", {"latency": [(1.0, 3.0), (2.0, 4.0)]}, "iteration")}
TABLES = {"dovetail reproduce gp-2023": HOSTILE}


@pytest.mark.chromium
def test_the_page_opens_without_a_word_on_the_console_and_draws_its_figures(tmp_path: Path) -> None:
    check = '<script>addEventListener("load", () => { document.title = document.images[0].naturalWidth; })</script>'
    made = page.html("GP partitioning 2023", ITEMS, DRAWINGS, TABLES)
    _, console = browse(made, tmp_path)
    assert console == []
    document, _ = browse(re.sub(r'<meta http-equiv[^>]*>', "", made).replace("</body>", check + "</body>"), tmp_path)
    assert parse(document).one("title").text == "720"


def test_the_page_is_well_formed_needs_nothing_from_outside_and_keeps_hostile_words_text() -> None:
    made = page.html("GP partitioning 2023", ITEMS, DRAWINGS, TABLES)
    found = parse(made)
    assert re.findall(r'(?:src|href)="(?!data:)', made) == []
    assert found.all("script") == []
    assert [row.all("th")[0].text for row in found.one("tbody").all("tr")] == ["Figure 3", "", "Figure 4", "Eq. 4"]
    image = found.one("img")
    assert image.attributes["alt"] == "Figure 4: latency"
    assert base64.b64decode(image.attributes["src"].partition(",")[2]).decode() == DRAWINGS["figure_4.svg"]
    assert found.one("pre").text == HOSTILE


def test_every_row_has_both_numbers_their_ratio_and_the_source_of_ours() -> None:
    first, second, drawn, missing = page.rows(ITEMS)
    assert first == ("Figure 3", "channels: on the FPGA", "14", "14", "1.00", "differs", "why", "read from a record: r.json")
    assert second == ("", "on the GPU", "2", "3", "1.50", "", "", "")
    assert drawn[2:6] == ("drawn, not readable", "257 us", "", "reproduced")
    assert missing == ("Eq. 4", "limits", "", "", "", "not built yet", "not there", "")


def test_the_markdown_has_as_many_cells_in_every_row() -> None:
    made = page.markdown("GP partitioning 2023", ITEMS, DRAWINGS, TABLES)
    table = [line for line in made.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {len(page.HEAD) + 1}
    assert "![Figure 4: latency](figure_4.svg)" in made
    assert "3 items: 1 reproduced, 1 differs, 0 not possible, 1 not built yet." in made
