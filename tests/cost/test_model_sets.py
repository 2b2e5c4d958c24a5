"""Model sets: rows as measured keep their loop, plans lose it, the authors' models are theirs; hardware alike."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.cli import main
from dovetail.cost import ShareCosts, costs_of
from dovetail.cost.fitting.authors import factor_text, fit_factors
from dovetail.cost.predict import SquareLayers, predict
from dovetail.hardware.work import whole_units
from dovetail.ir import RELU, Axis, Conv, Graph, Window
from dovetail.platform.device import ModelSet
from dovetail.platform.load import load_platform, platform_from_dict, platform_to_dict
from dovetail.platform.quantity import factor_model, quantity_model
from tests.strategies import Net

BOARDS = {models: load_platform("tx2-c10gx").with_models(models) for models in ModelSet}


def layer(channels: int, filters: int, kernel: int, side: int, groups: int = 1) -> Graph:
    net = Net(1)
    x = net.input((1, channels, side, side))
    return net.graph(net.add(Conv(filters, Window((kernel, kernel)), groups, RELU), x))


def cost(graph: Graph, device: str, models: ModelSet) -> ShareCosts:
    found = costs_of(graph, graph.nodes[0], None, *whole_units(), BOARDS[models].device(device))
    assert found is not None
    return found


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_measured_layer_is_its_row_and_a_planned_one_has_lost_the_loop(device: str) -> None:
    graph = layer(59, 57, 3, 20)
    row = predict(quantity_model("measured", f"tx2-{device}-latency"),
                  SquareLayers(*(np.array([v]) for v in (20.0, 59.0, 3.0, 57.0))))
    measured = cost(graph, device, ModelSet.MEASURED)
    assert measured.alone_s[0] == pytest.approx(row.value[0])
    assert (measured.low_s[0], measured.high_s[0]) == (pytest.approx(row.low[0]), pytest.approx(row.high[0]))
    assert not measured.extrapolated[0]
    assert cost(graph, device, ModelSet.PLANNING).alone_s[0] < measured.alone_s[0] - 0.5e-3


def test_published_processors_are_the_product_of_the_authors_polynomials() -> None:
    model = factor_model("tx2-gpu-latency")
    point = tuple(np.array([v]) for v in (50.0, 229.0, 3.0, 228.0))
    assert cost(layer(229, 228, 3, 50), "gpu", ModelSet.PUBLISHED).alone_s == pytest.approx(model.values(point))


def test_measured_hardware_has_the_area_of_the_rows_and_streams() -> None:
    graph = layer(5, 6, 3, 10)
    ours, rows, theirs = (cost(graph, "fpga", m) for m in ModelSet)
    layers = SquareLayers(*(np.array([v]) for v in (10.0, 5.0, 3.0, 6.0)))
    assert rows.resources["alm"] == pytest.approx(predict(quantity_model("measured", "c10gx-alm"), layers).value)
    assert ours.resources["alm"][0] < 0.6 * rows.resources["alm"][0]
    assert rows.alone_s[0] == pytest.approx(ours.alone_s[0], rel=0.3)
    assert theirs.alone_s[0] > 10 * rows.alone_s[0]  # serial over channels and filters
    assert set(rows.resources) == set(ours.resources)


def test_groups_are_so_many_engines_of_their_own_and_extrapolated() -> None:
    whole, grouped = (cost(g, "fpga", ModelSet.MEASURED) for g in (layer(2, 2, 3, 10), layer(8, 8, 3, 10, groups=4)))
    assert grouped.resources["alm"] == pytest.approx(4 * whole.resources["alm"])
    assert grouped.extrapolated[0]
    assert not whole.extrapolated[0]


@pytest.mark.parametrize("models", [ModelSet.MEASURED, ModelSet.PUBLISHED])
def test_shares_are_priced_for_every_axis(models: ModelSet) -> None:
    graph = layer(16, 32, 3, 30)
    (node,) = graph.nodes
    for device in BOARDS[models].devices:
        for axis in (Axis.OUTPUT_CHANNELS, Axis.INPUT_CHANNELS, Axis.ROWS):
            stops = np.arange(1, node.op.extent(axis, graph.input_shapes(node)) + 1)
            found = costs_of(graph, node, axis, np.zeros_like(stops), stops, device)
            assert found is not None
            for values in (found.alone_s, found.low_s, found.high_s, found.energy_j, *found.resources.values()):
                assert values.shape == stops.shape
                assert (np.isfinite(values) & (values >= 0)).all()


def test_the_set_travels_with_the_platform() -> None:
    board = BOARDS[ModelSet.MEASURED]
    assert platform_from_dict(json.loads(json.dumps(platform_to_dict(board)))) == board
    assert "models" not in platform_to_dict(BOARDS[ModelSet.PLANNING])["device"][0]


def test_products_of_polynomials_are_recovered() -> None:
    random = np.random.default_rng(0)
    columns = {c: random.integers(1, 12, 400).astype(float) for c in ("hw", "c", "k", "n")}
    truth = 3 * columns["hw"] ** 2 * (1 + 0.5 * columns["c"]) * (1 + columns["k"] ** 2) * (2 + columns["n"])
    model = fit_factors("tx2-cpu-latency", "s", columns, truth)
    assert model.mape < 1e-3
    assert "mape = 0.000" in factor_text(model)


def test_the_authors_errors_are_those_their_fits_have() -> None:
    published = {"tx2-gpu-latency": 0.318, "tx2-cpu-latency": 0.204, "c10gx-alm": 0.172, "c10gx-alut": 0.048, "c10gx-lab": 0.103,
                 "c10gx-m20k": 1.13, "c10gx-latency": 0.072}
    for name, error in published.items():
        assert factor_model(name).mape == pytest.approx(error, rel=0.04)


def test_the_command_takes_a_set_and_keeps_the_authors_models_to_their_method(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo", "squeezenet1.1", "--size", "64", "-o", str(tmp_path / "m.onnx")]) == 0
    plans = {}
    for models in ("planning", "measured"):
        capsys.readouterr()
        assert main(["plan", str(tmp_path / "m.onnx"), "--models", models, "--solver", "greedy", "--json", "-"]) == 0
        plans[models] = json.loads(capsys.readouterr().out)
    assert plans["measured"]["platform"]["device"][0]["models"] == "measured"
    assert main(["plan", str(tmp_path / "m.onnx"), "--models", "published", "--solver", "exact"]) == 2
    assert "--models published: the authors' models" in capsys.readouterr().err


def test_every_model_is_listed_with_its_error_and_box(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["platforms", "--models", "--json", "-"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert {e["set"] for e in entries} == {"planning", "measured", "published", "link"}
    assert all(e["errors"] and e["source"] for e in entries)
    gpu = next(e for e in entries if (e["set"], e["name"]) == ("measured", "tx2-gpu-latency"))
    assert gpu["box"]["filters"] == [1, 512]
    assert main(["platforms", "--models"]) == 0
    said = capsys.readouterr().out
    assert "measured  tx2-gpu-latency   4,014  evaluation 4.4%, posynomial 9.3%; side 11-100" in said
