"""GP partitioning 2023: the figures that can be checked by hand, and the method beside the best division."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from dovetail.platform.load import load_platform
from dovetail.platform.quantity import factor_model
from dovetail.reproduce.gp_2023 import layers as gp_layers
from dovetail.reproduce.gp_2023 import peers as gp_peers
from dovetail.reproduce.gp_2023 import results as gp_2023
from dovetail.reproduce.gp_2023.figures import figures
from dovetail.reproduce.gp_2023.layers import NETWORKS, Convolution, FpgaTime, at, by_filters, paper_layer


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return gp_2023.reproduce(networks=("AlexNet",), peers={"networks": ("resnet18", "lenet"), "depths": (2, 4), "size": 32})


def test_figures_3_and_4_stop_where_the_paper_does(found: dict[str, Any]) -> None:
    example = found["figure_3_and_4"]
    assert (example["channels"], example["iteration"], example["alpha"]) == ([14, 2], 17, 170.0)
    assert example["us"] == pytest.approx(257, abs=0.5)
    assert (example["best_channels"], round(example["best_us"])) == ([16, 0], 147)


def test_a_third_device_takes_the_least_in_figure_5(found: dict[str, Any]) -> None:
    fpga, gpu, cpu = found["figure_5"]["channels"]
    assert fpga > gpu >= cpu >= 1
    assert fpga + gpu + cpu == 16


def test_on_the_published_models_the_gpu_gets_the_layer(found: dict[str, Any]) -> None:
    fpga, gpu = found["figure_3_on_published_models"]["channels"]
    assert gpu > fpga


def test_the_norm_of_figure_8_is_that_of_the_function(found: dict[str, Any]) -> None:
    x = np.linspace(0, 1, 200_001)
    for kappa, norm in found["figure_8"].items():
        assert norm == pytest.approx(float(np.sqrt(np.trapezoid(x ** (4 * int(kappa)), x))), rel=1e-3)


def test_nothing_beats_the_best_division(found: dict[str, Any]) -> None:
    assert len(found["figure_9"]) == 6
    for network in found["figure_9"]:
        for row in network["layers"]:
            seconds = row["seconds"]
            assert sum(row["filters"].values()) == sum(row["best_filters"].values())
            others = ("cpu", "gpu") if network["area_limited"] else ("cpu", "gpu", "paid", "balanced")
            assert seconds["best"] <= min(seconds[k] for k in others) * (1 + 1e-9)
            assert seconds["as_counted"] <= seconds["paid"] * (1 + 1e-12)


def test_shares_of_a_layer_add_up_to_its_latency_and_speed_up(found: dict[str, Any]) -> None:
    for row in (row for network in found["figure_9"] for row in network["layers"]):
        assert sum(row["device_seconds"].values()) == pytest.approx(row["seconds"]["paid"])
        assert row["speed_up"] == pytest.approx(row["seconds"]["cpu"] / row["seconds"]["paid"])


@pytest.mark.parametrize("reading", FpgaTime)
def test_one_fpga_for_all_layers_holds_every_resource(reading: FpgaTime) -> None:
    board, layers = load_platform("tx2-c10gx"), NETWORKS["AlexNet"]
    shared = gp_2023._network("AlexNet", reading, "shared", board)
    used = dict.fromkeys(gp_layers.RESOURCES, 0.0)
    for convolution, row in zip(layers, shared["layers"], strict=True):
        layer, filters = paper_layer("", convolution, reading, True, board), row["filters"].get("fpga", 0)
        for (_, resource), terms in layer.resources.items():
            used[resource] += float(at(terms, np.array([filters / layer.channels]))[0]) if filters else 0.0
    assert max(used.values()) <= 1


def test_every_link_of_equation_9_costs_its_device_filters(found: dict[str, Any]) -> None:
    rows = found["equation_9"]
    assert [r["added"] for r in rows] == [None, "fpga-cpu", "gpu-cpu", "fpga-gpu"]
    assert rows[0]["filters"]["fpga"] > rows[1]["filters"]["fpga"] > rows[3]["filters"]["fpga"]
    assert [r["us"] for r in rows] == sorted(r["us"] for r in rows)


def test_every_method_of_table_1_stands_beside_the_proven_optimum(found: dict[str, Any]) -> None:
    peers = found["peers"]
    solvers = {r["solver"] for r in peers["methods"]}
    assert {w.solver for w in gp_peers.TABLE_1} < solvers
    assert {"balanced", "exact"} < solvers
    for row in (*peers["methods"], *peers["growth"]):
        assert row["solve_s"] > 0
        if row["solver"] in ("ilp", "lp", "dp", "balanced", "greedy"):
            assert row["gap"] >= -1e-9, "all their ways are candidates"
    assert {r["layers"] for r in peers["growth"]} == {2, 4}
    ours = {(r["work"], r["network"]): r["ours"] for r in peers["table_1"]}
    assert ours["This", "resnet18"] > 0
    assert ours["de Oliveira and Borin [2]", "lenet"] > 0
    assert ours["Zhao et al. [5]", "yolov2"] is None, "not asked for"


def test_terms_by_filters_are_the_model_itself() -> None:
    layer = NETWORKS["ResNet18"][4]
    terms = by_filters("tx2-gpu-latency", layer)
    side, channels, kernel = (np.array([v]) for v in layer.point)
    for filters in (1, 17, 64):
        expected = factor_model("tx2-gpu-latency").values((side, channels, kernel, np.array([float(filters)])))
        assert at(terms, np.array([filters / layer.filters])) == pytest.approx(expected)


def test_a_layer_too_large_for_one_filter_leaves_the_fpga_out() -> None:
    board = load_platform("tx2-c10gx")
    assert "fpga" not in paper_layer("deep", Convolution(7, 512, 3, 512), FpgaTime.SERIAL, True, board).devices
    assert "fpga" in paper_layer("deep", Convolution(7, 512, 3, 512), FpgaTime.SERIAL, False, board).devices


def test_constant_power_is_told_apart_from_measured_power(found: dict[str, Any]) -> None:
    constant, rows = found["energy"]
    assert (constant["power"], rows["power"]) == ("constant", "rows")
    assert constant["gain_over_cpu"] != rows["gain_over_cpu"]


def test_the_printed_filters_lie_between_readings_and_none_gives_both(found: dict[str, Any]) -> None:
    rows = found["readings_of_printed_filters"]
    assert len(rows) == 8
    first, last = [r["first_on_fpga"] for r in rows], [r["last_on_gpu"] for r in rows]
    assert max(first) > 61 > min(first)
    assert max(last) > 352 > min(last)
    assert not any((r["first_on_fpga"], r["last_on_gpu"]) == (61, 352) for r in rows)


def test_the_factor_that_would_give_a_printed_point_gives_it(found: dict[str, Any]) -> None:
    board = load_platform("tx2-c10gx")
    for name, need in found["needed_for_printed_filters"].items():
        _, reading, limited, changed = gp_layers.SOUGHT[name]
        layer = gp_layers._layer(name, reading, limited, board, tuple(need["devices"]))
        met = gp_layers._filters(gp_layers._slower(layer, changed, need["factor"]))[need["device"]]
        assert met == pytest.approx(need["printed"], abs=1)
        assert need["ours"] != need["printed"]


def test_on_the_fitted_models_the_exact_division_is_no_slower_than_the_papers(found: dict[str, Any]) -> None:
    fits = found["figure_3_on_fitted_models"]
    assert fits["exact_at_once"]["us"] <= fits["exact"]["us"] <= fits["gp_paper"]["us"]


def test_every_figure_is_drawn(found: dict[str, Any]) -> None:
    drawn = figures(found)
    assert {"figure_3.svg", "figure_4.svg", "figure_5.svg", "figure_7.svg", "figure_8.svg"} < set(drawn)
    assert sum(name.startswith("figure_9_alexnet_") for name in drawn) == 18
    assert {"convergence.svg", "solve_time.svg"} < set(drawn)
    assert "stroke-dasharray" in drawn["figure_9_alexnet_streaming_free_latency.svg"], "the CPU alone is no plan"
    for text in drawn.values():
        assert ElementTree.fromstring(text).tag.endswith("svg")
    bars = [e for e in ElementTree.fromstring(drawn["figure_3.svg"]).iter() if e.tag.endswith("rect")]
    assert len(bars) >= 2 * 17, "two devices in seventeen iterations"


def test_text_names_the_printed_points(found: dict[str, Any]) -> None:
    text = gp_2023.text(found)
    assert "stops at FPGA 14, GPU 2 in iteration 17, alpha 170, 257 us; best FPGA 16, GPU 0, 147 us" in text
    assert "61/64" in text
    assert "352/512" in text
    assert all(reason in text for reason in gp_2023.WHY)
