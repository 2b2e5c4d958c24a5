"""Calibration: a known device is found again, its board loads and plans, tables are read or refused by row and column."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail.cli import main
from dovetail.cost import costs_of
from dovetail.cost.fitting.layers import layer_features
from dovetail.errors import UsageError
from dovetail.hardware.work import whole_units
from dovetail.measure.board import calibrate, read_measurements
from dovetail.measure.campaign import Record, Timing, save_record
from dovetail.measure.layers import COLUMNS, MeasuredLayer, designed_layers, shape_of
from dovetail.platform.calibrated import TERMS
from dovetail.platform.load import load_platform

TRUTH = {"launch_s": 4e-6, "s_per_mac": 2e-11, "s_per_read": 1e-10, "s_per_write": 2e-10, "s_per_weight": 3e-10}


def seconds_of(layer: MeasuredLayer) -> float:
    _, amounts = layer_features(shape_of(layer))
    return float(sum(TRUTH.get(term, 0.0) * amount for term, amount in zip(TERMS, amounts, strict=True)))


@pytest.fixture(scope="module")
def record() -> Record:
    layers = {layer: Timing(seconds_of(layer), 30.0 * seconds_of(layer) if i % 9 == 0 else None)
              for i, layer in enumerate(designed_layers())}
    return Record("A \"fast\" part", "gpu", "toy 1", 5.0, 0.0, layers, {},
                  tuple(("to", size, 1e-5 + size / 2e10) for size in (4096, 65536, 1 << 20, 1 << 24)))


def test_a_known_device_is_found_again_and_its_board_plans(record: Record, tmp_path: Path) -> None:
    found = calibrate(record, "mine")
    assert found.fit.total.mean < 0.01
    (tmp_path / "mine.toml").write_text(found.text)
    board = load_platform(str(tmp_path / "mine.toml"))
    gpu, (link,) = board.device("gpu"), board.links
    assert (gpu.dispatch_s, board.device("cpu").dispatch_s) == (None, None), "not measured"
    (tmp_path / "started.toml").write_text(calibrate(replace(record, dispatch_s=4.5e-5), "started").text)
    started = load_platform(str(tmp_path / "started.toml")).device("gpu")
    assert started.dispatch_s == 4.5e-5
    assert started.sources["dispatch_s"] == "measured: a part of one small kernel through the runtime"
    assert (gpu.idle_power_w, gpu.busy_power_w) == (5.0, pytest.approx(30.0))
    assert (link.latency_s, link.bandwidth_bytes_per_s) == (pytest.approx(1e-5), pytest.approx(2e10))
    others = (MeasuredLayer("conv", 40, 20, 72, 3, activation="relu"), MeasuredLayer("conv", 72, 20, 72, 5, groups=72),
              MeasuredLayer("gemm", 300, 1, 50))
    for layer in others:
        graph = shape_of(layer)
        costs = costs_of(graph, graph.nodes[0], None, *whole_units(), gpu)
        assert costs is not None
        assert costs.alone_s[0] == pytest.approx(seconds_of(layer), rel=0.02)
        assert costs.energy_j[0] == pytest.approx(25.0 * costs.alone_s[0])
        assert not costs.extrapolated[0]
        assert costs.low_s[0] <= costs.alone_s[0] <= costs.high_s[0]


def test_energy_is_told_apart_into_running_computing_and_moving(record: Record, tmp_path: Path) -> None:
    layers = {}
    for i, (layer, timing) in enumerate(record.layers.items()):
        _, amounts = layer_features(shape_of(layer))
        done = dict(zip(TERMS, amounts, strict=True))
        joules = 12.0 * timing.seconds + 3e-11 * done["s_per_mac"] + 2e-9 * (done["s_per_read"] + done["s_per_write"])
        layers[layer] = Timing(timing.seconds, joules if i % 9 == 0 else None)
    (tmp_path / "mine.toml").write_text(calibrate(replace(record, layers=layers), "mine").text)
    gpu = load_platform(str(tmp_path / "mine.toml")).device("gpu")
    assert gpu.busy_power_w == pytest.approx(12.0, rel=1e-3)
    assert (gpu.parameters["j_per_mac"], gpu.parameters["j_per_element"]) == pytest.approx((3e-11, 2e-9), rel=1e-3)
    graph = shape_of(MeasuredLayer("conv", 40, 20, 72, 3))
    costs = costs_of(graph, graph.nodes[0], None, *whole_units(), gpu)
    assert costs is not None
    expected = 7.0 * costs.alone_s[0] + 3e-11 * 400 * 40 * 72 * 9 + 2e-9 * 400 * (40 + 72)
    assert costs.energy_j[0] == pytest.approx(expected, rel=1e-3)


def test_few_layers_with_energy_give_one_power(record: Record) -> None:
    few = {layer: replace(timing, energy_j=None if i > 30 else timing.energy_j)
           for i, (layer, timing) in enumerate(record.layers.items())}
    text = calibrate(replace(record, layers=few), "x").text
    assert "busy_power_w = { value = 30, source = \"measured: energy of 4 layers" in text
    assert "j_per_mac = { value = 0," in text


@pytest.mark.parametrize(("asked", "source"), [
    (MeasuredLayer("average_pool", 16, 28, 16, 3), "of another kind"), (MeasuredLayer("gemm", 64, 1, 10), "of another kind"),
    (MeasuredLayer("add", 16, 28, 16, inputs=2), "bytes moved"),
])
def test_a_class_that_was_not_measured_borrows_or_moves_bytes_and_says_so(record: Record, tmp_path: Path, asked: MeasuredLayer,
                                                                          source: str) -> None:
    known = {layer: timing for layer, timing in record.layers.items()
             if layer.op == "max_pool" or (layer.op == "conv" and layer.groups == 1 and layer.channels > 4)}
    (tmp_path / "mine.toml").write_text(calibrate(replace(record, layers=known), "mine").text)
    graph = shape_of(asked)
    costs = costs_of(graph, graph.nodes[0], None, *whole_units(), load_platform(str(tmp_path / "mine.toml")).device("gpu"))
    assert costs is not None
    assert costs.alone_s[0] >= TRUTH["launch_s"] * 0.9
    assert costs.extrapolated[0]
    assert source in costs.source


def test_without_a_counter_power_is_assumed_and_says_so(record: Record) -> None:
    text = calibrate(replace(record, idle_power_w=None), "x").text
    assert 'idle_power_w = { value = 30, source = "assumed: no energy counter' in text


def test_nothing_measured_is_refused(record: Record) -> None:
    with pytest.raises(UsageError, match="no layers were measured; nothing can be fitted"):
        calibrate(replace(record, layers={}), "x")


def table(path: Path, *rows: str) -> Path:
    path.write_text("\n".join((",".join(COLUMNS), *rows)) + "\n")
    return path


def test_a_table_is_read_as_it_is_documented(tmp_path: Path) -> None:
    path = table(tmp_path / "rows.csv", "conv,8,14,16,3,1,1,1,relu,0.001,0.02", "gemm,64,1,10,1,1,1,1,none,0.0001,")
    record = read_measurements(path, "cpu")
    assert record.layers == {MeasuredLayer("conv", 8, 14, 16, 3, activation="relu"): Timing(0.001, 0.02),
                             MeasuredLayer("gemm", 64, 1, 10): Timing(1e-4)}


@pytest.mark.parametrize(("row", "message"), [
    ("conv,8,14,16,3,1,1,1,relu,fast,", r"rows\.csv: row 2, column seconds: 'fast' is not a number"),
    ("conv,8,14,16,3,1,1,1,relu,0,", r"rows\.csv: row 2, column seconds: 0 is not possible; a time above 0 is needed"),
    ("conv,8.5,14,16,3,1,1,1,relu,1e-3,", r"rows\.csv: row 2, column channels: 8\.5 is not possible; a whole number from 1"),
    ("kolv,8,14,16,3,1,1,1,relu,1e-3,", r"rows\.csv: row 2, column op: kolv .* operator 'kolv' is unknown"),
    ("conv,8,14,16,3,1,1,1,relu,1e-3,much", r"rows\.csv: row 2, column energy_j: 'much' is not a number; give joules"),
    ("conv,8,14,16,3,1,1,1,relu,1e-3,-3", r"rows\.csv: row 2, column energy_j: -3 is not possible; give joules above 0"),
    ("conv,8,14,16,3,1,3,1,relu,1e-3,", r"rows\.csv: row 2, column groups: 3 groups do not divide 8 channels and 16 filters"),
    ("conv,8,14,16,3,1,1,1,tanh,1e-3,", r"rows\.csv: row 2, column activation: .* activation 'tanh' is unknown"),
])
def test_wrong_cells_are_named(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_measurements(table(tmp_path / "rows.csv", row), "cpu")


def test_a_table_must_say_what_was_measured(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not say what was measured; add --device cpu or --device gpu"):
        read_measurements(tmp_path / "rows.csv", None)


def test_the_command_fits_a_record_into_a_board(record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_record(tmp_path / "r.json", record)
    assert main(["calibrate", "--from", str(tmp_path / "r.json"), "-o", str(tmp_path / "b.toml")]) == 0
    said = capsys.readouterr().out
    assert "depthwise" in said
    assert "plan for it with -p" in said
    assert main(["platforms", str(tmp_path / "b.toml")]) == 0
    assert "measured layer by layer" in capsys.readouterr().out
    assert main(["calibrate", "--from", str(tmp_path / "r.json"), "-o", str(tmp_path / "b.toml"), "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["board"], found["device"]) == (str(tmp_path / "b.toml"), record.device)
    assert found["groups"]["depthwise"]["layers"] > 0
    assert main(["calibrate", "-o", str(tmp_path / "b.toml")]) == 2
    assert "nothing to measure; add --device cpu" in capsys.readouterr().err
    assert main(["calibrate", "--device", "cpu", "-o", str(tmp_path / "b.txt")]) == 2
    assert "a board file ends in .toml" in capsys.readouterr().err


def test_shares_of_a_calibrated_device_grow_with_the_share(record: Record, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(calibrate(record, "mine").text)
    gpu = load_platform(str(tmp_path / "mine.toml")).device("gpu")
    graph = shape_of(MeasuredLayer("conv", 32, 28, 64, 3, activation="relu"))
    (node,) = graph.nodes
    for axis in node.op.axes(graph.input_shapes(node)):
        extent = node.op.extent(axis, graph.input_shapes(node))
        stops = np.arange(1, extent + 1)
        costs = costs_of(graph, node, axis, np.zeros_like(stops), stops, gpu)
        assert costs is not None
        assert (np.diff(costs.alone_s) >= 0).all()


def test_a_lone_layer_tells_nothing_of_others(tmp_path: Path) -> None:
    record = read_measurements(table(tmp_path / "rows.csv", "conv,8,14,16,3,1,1,1,relu,1e-3,"), "cpu")
    assert calibrate(record, "lone").fit.errors["dense"].mean == pytest.approx(1.0)
