"""Charts of device models: every row inside the frame, captions that say the error, none where nothing was measured."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from dovetail.platform.load import load_platform
from dovetail.platform.quantity import Form, quantity_model, quantity_names
from dovetail.report import units
from dovetail.report.collect import _device
from dovetail.report.model_chart import HEIGHT, LEFT, SIDE, TOP, WIDTH, chart_entry, model_chart, model_charts

SPACE = "{http://www.w3.org/2000/svg}"


def drawn(name: str) -> ElementTree.Element:
    model = quantity_model("measured", name)
    return ElementTree.fromstring(model_chart(name, chart_entry(model, model.errors[Form.EVALUATION])))


@pytest.mark.parametrize("name", quantity_names("measured"))
def test_every_row_lies_inside_the_axes_and_every_word_inside_the_frame(name: str) -> None:
    svg = drawn(name)
    cells = [r for r in svg.iter(f"{SPACE}rect") if r.attrib["class"] == "mc-c"][:-1]
    scatter = quantity_model("measured", name).errors[Form.EVALUATION].scatter
    assert scatter is not None
    assert (len(cells), sum(rows for _, _, rows in scatter.cells)) == (len(scatter.cells), quantity_model("measured", name).rows)
    for cell in cells:
        x, y, size = (float(cell.attrib[key]) for key in ("x", "y", "width"))
        assert LEFT <= x <= x + size <= LEFT + SIDE + 1
        assert TOP - 1 <= y <= y + size <= TOP + SIDE + 1
    assert all(0 <= float(t.attrib["x"]) < WIDTH and 0 < float(t.attrib["y"]) < HEIGHT for t in svg.iter(f"{SPACE}text"))
    assert 2 <= len({t.text for t in svg.iter(f"{SPACE}text") if t.attrib.get("text-anchor") == "end"}) <= 8


def test_a_chart_says_how_far_its_rows_are_off() -> None:
    title = drawn("tx2-gpu-latency").findtext(f"{SPACE}title")
    assert title is not None
    assert title.startswith(f"tx2-gpu-latency: {units.count(4014)} rows, each left out of its fit: 4.4 % off on average; "
                            "half within 2.3 %, nine of ten within 10 %; 90 % interval: prediction × 0.90")


def test_devices_with_published_rows_have_charts_and_others_none() -> None:
    def charts(board: str) -> int:
        return len(model_charts({"platform": {"devices": [_device(d) for d in load_platform(board).devices]}}))

    assert charts("tx2-c10gx") == 4
    assert charts("ecp5-85") == 0
