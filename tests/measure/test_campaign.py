"""Measuring: layers are what they say, records survive interruption, and layers between others are found again."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from dovetail.errors import UsageError
from dovetail.ir import Graph
from dovetail.measure.campaign import Timing, load_record, measure, save_record
from dovetail.measure.dispatch import RUNS, WARM, call_s, session_start_s
from dovetail.measure.layers import MeasuredLayer, designed_layers, graph_of, operator_macs
from dovetail.measure.processor import ProcessorDevice

LAYERS = (MeasuredLayer("conv", 8, 14, 16, 3, activation="relu"), MeasuredLayer("gemm", 64, 1, 10),
          MeasuredLayer("add", 8, 7, 8, inputs=2))


class Toy:
    """A device that takes a nanosecond per multiply-add, and stops after some layers."""

    name, software = "toy", "toy 1"

    def __init__(self, patience: int = 1000) -> None:
        self.patience, self.asked = patience, [""]

    def idle_power_w(self) -> float | None:
        return 2.0

    def layer(self, layer: MeasuredLayer, energy: bool = False) -> Timing:
        if self.patience == 0:
            raise KeyboardInterrupt
        self.patience -= 1
        self.asked.append(str(layer))
        return Timing(1e-6 + operator_macs(layer) * 1e-9, 0.1 if energy else None)

    def network(self, graph: Graph, energy: bool = False) -> Timing:
        return Timing(1e-6 + graph.macs * 1e-9, 0.5)

    def transfers(self) -> list[tuple[str, int, float]]:
        return [("to", 1024, 1e-5)]

    def dispatch_s(self) -> float:
        return 3e-5


def quiet(stage: str, done: int, total: int) -> None:
    assert 0 <= done <= total


def test_the_designed_set_covers_every_kind_once_each() -> None:
    layers = designed_layers()
    assert len(set(layers)) == len(layers) > 200
    assert {layer.op for layer in layers} == {"conv", "gemm", "max_pool", "average_pool", "global_average", "add", "concat"}
    kinds = {(1 < layer.groups < layer.channels, layer.groups == layer.channels, layer.kernel == 1) for layer in layers
             if layer.op == "conv"}
    assert {(False, False, True), (False, False, False), (False, True, False), (True, False, False)} <= kinds
    for layer in layers:
        graph = graph_of(layer)
        assert graph.macs == operator_macs(layer)


def test_an_interrupted_campaign_goes_on_where_it_ended(tmp_path: Path) -> None:
    path, networks = tmp_path / "record.json", {"net": graph_of(LAYERS[0])}
    with pytest.raises(KeyboardInterrupt):
        measure(Toy(patience=2), "cpu", LAYERS, networks, path, quiet)
    assert list(load_record(path).layers) == list(LAYERS[:2])
    again = Toy()
    record = measure(again, "cpu", LAYERS, networks, path, quiet)
    assert again.asked[1:] == [str(LAYERS[2])]
    assert load_record(path) == record
    assert record.networks["net"].seconds == pytest.approx(1e-6 + graph_of(LAYERS[0]).macs * 1e-9)
    assert record.idle_power_w == 2.0


def test_a_record_keeps_its_date_and_command_and_older_ones_have_neither(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    measure(Toy(), "cpu", LAYERS[:1], {}, path, quiet, command="measure it")
    record = measure(Toy(), "cpu", LAYERS, {}, path, quiet, command="another")
    assert record.command == "measure it"
    assert date.fromisoformat(record.date) <= date.today()
    document = json.loads(path.read_text())
    for entry in (*document["layers"], *document["networks"]):
        del entry["rounds"]
    assert record.dispatch_s == 3e-5
    del document["date"], document["command"], document["dispatch_s"]
    path.write_text(json.dumps(document))
    assert load_record(path) == replace(record, date="", command="", dispatch_s=None)


def test_a_part_that_does_nothing_takes_its_call_and_more() -> None:
    calls: list[float] = []

    def call() -> None:
        calls.append(time.perf_counter())
        time.sleep(1e-3)

    assert call_s(call) > 1e-3
    assert len(calls) == WARM + RUNS
    assert session_start_s() > 0


def test_a_second_round_keeps_the_faster_visit(tmp_path: Path) -> None:
    path, slow = tmp_path / "record.json", Toy()
    slow.layer = lambda layer, energy=False: Timing(1.0, 0.3 if energy else None)  # type: ignore[method-assign]
    measure(slow, "cpu", LAYERS, {}, path, quiet)
    record = measure(Toy(), "cpu", LAYERS, {}, path, quiet, rounds=2)
    assert [t.rounds for t in record.layers.values()] == [2, 2, 2]
    assert record.layers[LAYERS[0]] == Timing(pytest.approx(1e-6 + operator_macs(LAYERS[0]) * 1e-9), 0.3, 2)
    assert load_record(path) == record


def test_measurements_of_another_device_are_not_continued(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    save_record(path, replace(measure(Toy(), "cpu", LAYERS[:1], {}, path, quiet), device="other"))
    with pytest.raises(UsageError, match=r"record\.json: holds measurements of other \(cpu\), this is toy \(cpu\); give another"):
        measure(Toy(), "cpu", LAYERS, {}, path, quiet)


@pytest.mark.parametrize(("content", "message"), [
    ("{", "not a file of measurements, JSONDecodeError"),
    ('{"schema": "old"}', "schema is 'old'; 'dovetail measurements 1' is needed"),
    ('{"schema": "dovetail measurements 1"}', "not a file of measurements, KeyError 'device'"),
])
def test_a_file_that_is_no_record_is_named(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "r.json").write_text(content)
    with pytest.raises(UsageError, match=message):
        load_record(tmp_path / "r.json")


def test_an_unknown_operator_or_activation_is_named() -> None:
    with pytest.raises(UsageError, match="operator 'softmax' is unknown; known are conv, gemm"):
        graph_of(MeasuredLayer("softmax", 4))
    with pytest.raises(UsageError, match="activation 'tanh' is unknown; known are none, relu, relu6"):
        graph_of(MeasuredLayer("conv", 4, 4, 4, activation="tanh"))


@pytest.mark.parametrize("layer",
                         [*LAYERS, MeasuredLayer("global_average", 16, 7, 16),
                          MeasuredLayer("conv", 3, 16, 8, 3, 2, activation="relu"),
                                   MeasuredLayer("concat", 16, 7, 32, inputs=2), MeasuredLayer("conv", 16, 7, 16, 3, groups=16)],
                                   ids=str)
def test_a_layer_between_others_has_kernels_of_its_own(layer: MeasuredLayer) -> None:
    found = ProcessorDevice(threads=1).layer(layer)
    assert 0 < found.seconds < float("inf")
    assert found.energy_j is None
