"""The H200 that is shipped: its board is what its record fits, and networks the fit has not seen come out right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail import zoo
from dovetail.cost import costs_of
from dovetail.hardware.work import whole_units
from dovetail.ir import Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.measure.board import Calibration, calibrate
from dovetail.measure.campaign import Record, load_record
from dovetail.measure.layers import MeasuredLayer, shape_of
from dovetail.platform.device import Device
from dovetail.platform.load import load_platform

RECORD = Path(__file__).parents[2] / "bench" / "records" / "h200.json"


@pytest.fixture(scope="module")
def record() -> Record:
    return load_record(RECORD)


@pytest.fixture(scope="module")
def found(record: Record) -> Calibration:
    return calibrate(record, "again")


@pytest.fixture(scope="module")
def shipped() -> Device:
    """The GPU with the library's kernels that were measured, not ours."""
    return replace(load_platform("h200").device("gpu"), kernels=None)


def spent(graph: Graph, device: Device) -> tuple[float, float]:
    """Seconds, and joules with idle power."""
    costs = [costs_of(graph, node, None, *whole_units(), device) for node in graph.nodes]
    seconds, joules = (float(sum(getattr(c, key)[0] for c in costs)) for key in ("alone_s", "energy_j"))
    return seconds, joules + seconds * device.idle_power_w


def test_the_record_says_when_and_how_it_was_measured(record: Record) -> None:
    assert (record.date, record.command) == ("2026-11-15", "PYTHONPATH=src python bench/gpu_layers.py --record h200.json")
    assert (len(record.layers), len(record.transfers), len(record.networks)) == (356, 14, 3)


def test_the_shipped_board_is_what_its_record_fits(record: Record, found: Calibration, shipped: Device, tmp_path: Path) -> None:
    (tmp_path / "again.toml").write_text(found.text)
    board = load_platform(str(tmp_path / "again.toml"))
    for layer in record.layers:
        assert spent(shape_of(layer), shipped) == pytest.approx(spent(shape_of(layer), board.device("gpu")), rel=0.01), layer
    (link,), (fitted,) = load_platform("h200").links, board.links
    assert link.latency_s == pytest.approx(fitted.latency_s, rel=0.01)
    assert link.bandwidth_bytes_per_s == pytest.approx(fitted.bandwidth_bytes_per_s, rel=0.01)
    assert shipped.idle_power_w == pytest.approx(record.idle_power_w, rel=1e-3)


def test_layers_left_out_are_predicted_as_the_documentation_says(found: Calibration) -> None:
    assert found.fit.total.mean < 0.15
    assert found.fit.total.p90 < 0.38
    most = {"dense": 0.08, "pointwise": 0.08, "depthwise": 0.05, "stem": 0.12, "grouped": 0.15, "gemm": 0.19, "max_pool": 0.30}
    assert {group: errors.mean < most[group] for group, errors in found.fit.errors.items() if group in most} == dict.fromkeys(
        sorted(most, key=list(found.fit.errors).index), True)


@pytest.mark.parametrize("name", ["mobilenet-v2", "resnet18", "squeezenet1.1"])
def test_networks_the_fit_has_not_seen_come_within_a_tenth(name: str, record: Record, shipped: Device, tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    path.write_bytes(zoo.build(name))
    measured = record.networks[name]
    seconds, joules = spent(read_onnx(path).graph, shipped)
    assert seconds == pytest.approx(measured.seconds, rel=0.10)
    assert joules == pytest.approx(measured.energy_j, rel=0.10)


def test_groups_of_odd_width_have_costs_of_their_own(shipped: Device) -> None:
    even, odd = (spent(shape_of(MeasuredLayer("conv", c, 28, c, 3, 1, 8)), shipped)[0] for c in (256, 240))
    assert odd > 2 * even


def test_the_two_poolings_have_costs_of_their_own(record: Record, shipped: Device) -> None:
    for layer, timing in record.layers.items():
        if layer.op == "max_pool" and layer.kernel == 3:
            assert timing.seconds / 2.5 < spent(shape_of(layer), shipped)[0] < 2.5 * timing.seconds, layer
    largest, average = (spent(shape_of(MeasuredLayer(op, 128, 28, 128, 3, 2)), shipped)[0] for op in ("max_pool", "average_pool"))
    assert largest > 3 * average
