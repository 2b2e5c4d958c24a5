"""The bench's own functions; peers are not needed here."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import dhm
from dovetail.errors import ToolError
from dovetail.fpga.design import Design
from dovetail.fpga.rtl.verilog import print_module
from dovetail.ir import RELU, Conv, Window
from dovetail.numerics.reference import run_integer
from lib.peers import nngen_rtl
from lib.peers.adder_graph_rtl import GENERATORS, Generator
from lib.peers.core import our_core, right, streamed
from lib.peers.layers import CASES, GAIN, SAME, WEIGHT_EXPONENT, dense_weights, frames_for, gaussian, integer_network, matrix_of
from lib.peers.measured import DEVICE, Measured


def test_filters_reach_the_largest_int8_and_the_seed_decides_them() -> None:
    weights = gaussian((5, 3, 3, 3))
    assert weights.dtype == np.int8
    assert np.abs(weights.astype(int)).max(axis=(1, 2, 3)).tolist() == [127] * 5
    assert np.array_equal(weights, gaussian((5, 3, 3, 3)))
    assert not np.array_equal(weights, gaussian((5, 3, 3, 3), 1))


def test_a_layer_is_its_matrix_times_the_window_rounded_half_to_even() -> None:
    graph = integer_network((Conv(4, Window((3, 3), pads=SAME)),), (3, 5, 6))
    frames = frames_for(graph, 1)
    window = frames[0, :, 1:4, 2:5].reshape(-1).astype(np.int64)
    sums = matrix_of(graph, graph.nodes[0]) @ window
    expected = np.clip(np.rint(sums / 2.0 ** (GAIN - WEIGHT_EXPONENT)), -128, 127)
    assert run_integer(graph, {"x": frames})["y0"][0, :, 2, 3].tolist() == expected.tolist()


def test_groups_become_zeros_of_a_dense_layer_with_the_same_results() -> None:
    window = Window((3, 3), pads=SAME)
    grouped = integer_network((Conv(6, window, 3, RELU),), (6, 4, 4))
    dense = integer_network((Conv(6, window, 1, RELU),), (6, 4, 4))
    dense = dhm.with_weights(dense, dense_weights(grouped, grouped.nodes[0]))
    frames = frames_for(grouped, 2)
    assert np.array_equal(run_integer(grouped, {"x": frames})["y0"], run_integer(dense, {"x": frames})["y0"])


def test_every_case_is_a_network_that_runs() -> None:
    for case in CASES:
        graph = integer_network(case.ops, case.shape)
        out = run_integer(graph, {"x": frames_for(graph, 1)})[graph.outputs[0]]
        assert np.unique(out).size > 10, case.name


@pytest.mark.verilator
def test_our_core_multiplies_in_simulation_and_a_wrong_matrix_is_noticed() -> None:
    matrix = gaussian((3, 4)).astype(np.int64)
    module, clocks, adders = our_core(matrix)
    core = Design("ours", {"ours.v": print_module(module)}, (), (), (), adders, clocks, 1)
    stream = streamed(core, 4, 3, clocks, "ours core (.clk(clk), .rst(rst), .taps(in0_data), .sums(y));")
    assert right(stream, matrix)
    assert not right(stream, matrix + 1)


def test_blocks_and_multipliers_count_as_their_share_of_the_device() -> None:
    measured = Measured(100, 5, 2, 3, 10, 20, True, "")
    assert measured.area_lut == pytest.approx(100 + 2 * DEVICE["lut"] / DEVICE["bram36"] + 3 * DEVICE["lut"] / DEVICE["dsp"])
    assert measured.area_cycles == pytest.approx(10 * measured.area_lut)


@pytest.mark.parametrize(("peer", "name"), [(nngen_rtl, "nngen"), *((Generator, name) for name in GENERATORS)])
def test_a_missing_peer_is_said_with_how_to_install_it(peer: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "available", lambda *_: False)
    case = CASES[0]
    calls = {"nngen": lambda: nngen_rtl.measure(case, np.zeros(case.shape, dtype=np.int8)),
             **{name: partial(generator.measure, np.ones((1, 1), dtype=np.int64)) for name, generator in GENERATORS.items()}}
    advice = r"install them with pip install 'dovetail-accel\[fpga,peers\]'"
    with pytest.raises(ToolError, match=f"^peers: {name} is not installed; {advice}$"):
        calls[name]()


def test_a_part_that_fails_leaves_the_others_and_ends_with_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                              capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> dict[str, object]:
        raise ToolError("yosys: not found; install it")

    monkeypatch.setattr(dhm, "PARTS", {"broken": broken, "whole": lambda: {"key": dhm.at_most(2.0, 1.0)}})
    monkeypatch.setattr(sys, "argv", ["dhm.py", "--json", str(tmp_path / "found.json")])
    assert dhm.main() == 2
    assert capsys.readouterr().err == "broken: yosys: not found; install it\n"
    assert json.loads((tmp_path / "found.json").read_text()) == {"key": {"value": 2.0, "target": 1.0, "status": "missed"}}


def test_targets_are_met_at_their_very_value() -> None:
    assert dhm.at_most(1.0, 1.0)["status"] == dhm.at_least(1.0, 1.0)["status"] == "ok"
    assert dhm.at_least(0.9, 1.0)["status"] == "missed"


def test_the_area_model_is_as_good_as_its_worst_family() -> None:
    found = dhm.judged_model({"ecp5": {"median": 0.02, "p90": 0.11}, "xcu": {"median": 0.03, "p90": 0.08}})
    assert (found["median"], found["p90"], found["status"]) == (0.03, 0.11, "missed")
    assert dhm.judged_model({"ecp5": {"median": 0.05, "p90": 0.10}})["status"] == "ok"
