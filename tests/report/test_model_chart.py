"""Charts of device models: one per measured quantity, inside their frame, none where nothing was measured."""

from __future__ import annotations

from xml.etree import ElementTree

from dovetail.platform import load_platform
from dovetail.report import units
from dovetail.report.collect import _device
from dovetail.report.model_chart import HEIGHT, WIDTH, model_chart, model_charts

ENTRY = {"quantity": "latency", "unit": "s", "rows": 4014, "mean": 0.044, "p90": 0.104,
         "bands": [[0.002, 0.9, 1.0, 1.2], [0.03, 0.1, 1.02, 9.0], [0.7, 0.95, 1.0, 1.04]]}


def test_a_chart_stays_inside_its_frame_and_says_its_error() -> None:
    svg = ElementTree.fromstring(model_chart("gpu latency", ENTRY))
    space = "{http://www.w3.org/2000/svg}"
    (band,) = svg.iter(f"{space}polygon")
    points = [tuple(map(float, p.split(","))) for p in band.attrib["points"].split()]
    assert len(points) == 6
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert svg.findtext(f"{space}title") == f"gpu latency: {units.count(4014)} rows, 4.4 % off on average, 10 % for nine of ten"


def test_devices_with_published_rows_have_charts_and_others_none() -> None:
    def charts(board: str) -> int:
        return len(model_charts({"platform": {"devices": [_device(d) for d in load_platform(board).devices]}}))

    assert charts("tx2-c10gx") == 4
    assert charts("ecp5-85") == 0
