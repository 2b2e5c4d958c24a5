"""Figure 1 of Heterogeneity 2021: single layers on both devices."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from dovetail.reproduce.gains import Times
from dovetail.reproduce.heterogeneity_2021.figure_1 import FILTERS, KERNELS, figures, reproduce, text


@pytest.fixture(scope="module")
def figure() -> dict[str, Any]:
    return reproduce()


def test_every_layer_is_there_and_every_gpu_value_is_labelled_extrapolated(figure: dict[str, Any]) -> None:
    assert {(r["filters"], r["kernel"]) for r in figure["layers"]} == {(n, k) for n in FILTERS for k in KERNELS}
    assert all(r["gpu"]["extrapolated"] for r in figure["layers"])
    assert "extrapolated" in text(figure)


def test_the_fpga_spends_less_energy_everywhere_and_less_time_from_eight_filters_on(figure: dict[str, Any]) -> None:
    for r in figure["layers"]:
        assert r["fpga"]["energy_j"] < r["gpu"]["energy_j"]
        if r["filters"] >= 8:
            assert r["fpga"]["latency_s"] < r["gpu"]["latency_s"]


def test_the_authors_published_quartus_report_is_near_the_model_of_their_rows(figure: dict[str, Any]) -> None:
    (row,) = (r for r in figure["layers"] if (r["filters"], r["kernel"]) == (32, 3))
    assert row["authors"]["resources"]["alm"] == pytest.approx(21_147, rel=0.1)  # Quartus, 3 to 32 channels, 3x3, 224x224


def test_ours_holds_the_papers_limit_and_more(figure: dict[str, Any]) -> None:
    assert figure["limit"]["ours"]["5x5"] == 64
    assert figure["limit"]["authors_rows"]["5x5"] == 32
    assert "The paper's limit: 64 filters of 5x5." in text(figure)


def test_a_layer_that_does_not_fit_has_no_gain(figure: dict[str, Any]) -> None:
    assert {r["ours"]["fits"] for r in figure["layers"]} == {True, False}
    for r in figure["layers"]:
        assert r["gpu"]["times"] == r["fpga"]["times"] == Times.LOOP_REMOVED
        for key, gain in r["gain"].items():
            assert gain == (r["gpu"][key] / r["fpga"][key] if r["ours"]["fits"] else None)
    assert "no fit" in text(figure)


def test_the_drawing_marks_what_is_outside_the_measured_range_and_what_does_not_fit(figure: dict[str, Any]) -> None:
    drawn = figures(figure)
    assert len(drawn) == 2 * len(KERNELS)
    for kernel in KERNELS:
        drawing = ElementTree.fromstring(drawn[f"figure_1b_{kernel}x{kernel}.svg"])
        layers = [r for r in figure["layers"] if r["kernel"] == kernel]
        marks = [e.attrib.get("class") for e in drawing.iter()]
        outside = sum(r["gpu"]["extrapolated"] + r["fpga"]["extrapolated"] for r in layers)
        assert marks.count("outside") == outside + 1  # and one in the legend
        assert marks.count("inside") == 2 * len(layers) - outside + 2
        assert marks.count("nofit") == sum(not r["fpga"]["fits"] for r in layers)
