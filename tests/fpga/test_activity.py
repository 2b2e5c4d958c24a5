"""Toggles counted in simulation: exact for a design whose every change is known, and unseen by the streams."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.fpga.activity import Toggles, count_toggles, watched
from dovetail.fpga.assemble import build_design, design_modules
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.toolchain.simulate import simulate
from tests.fpga.random_graphs import Sketch, random_inputs, same_window

SLICE = """module slice (input wire clk, input wire rst, input wire x_valid, output wire x_ready, input wire [7:0] x_data,
  output wire y_valid, input wire y_ready, output wire [7:0] y_data);
reg full;
reg [7:0] kept;  // 0..255
reg [7:0] unused [0:3];
assign x_ready = ~full | y_ready;
assign y_valid = full;
assign y_data = kept;
always @(posedge clk) begin
  if (rst) full <= 1'b0; else if (x_ready) full <= x_valid;
  if (rst) kept <= 8'd0; else if (x_ready & x_valid) kept <= x_data;
end
endmodule
"""
TOP = """module top (input wire clk, input wire rst, input wire x_valid, output wire x_ready, input wire [7:0] x_data,
  output wire y_valid, input wire y_ready, output wire [7:0] y_data);
slice u_slice (.clk(clk), .rst(rst), .x_valid(x_valid), .x_ready(x_ready), .x_data(x_data),
  .y_valid(y_valid), .y_ready(y_ready), .y_data(y_data));
endmodule
"""


def port(name: str) -> StreamPort:
    return StreamPort(name, name, 1, 8, False, 1, 6)


@pytest.mark.verilator
def test_every_change_of_every_register_bit_is_counted_and_no_other() -> None:
    design = Design("top", {"slice.v": SLICE, "top.v": TOP}, (port("x"),), (port("y"),))
    pixels = np.array([0, 255, 15, 15, 14, 0]).reshape(1, 1, 1, 6)
    (found,) = count_toggles(design, {"x": pixels}).items()
    assert found[0] == "u_slice"
    assert (found[1].bits, found[1].frames) == (9, 1)
    assert found[1].toggles == 2 + 0 + 8 + 4 + 0 + 1 + 3  # full rises and falls; then the pixels one after the other
    assert found[1].per_frame == 18 / 9


@pytest.mark.verilator
def test_a_watched_design_computes_the_same_in_the_same_clocks() -> None:
    s = Sketch(np.random.default_rng(3))
    x = s.input((1, 2, 6, 7))
    graph = s.graph((s.add(s.conv(x, 2, same_window(3)), x),))
    design, inputs = build_design(graph, "net"), random_inputs(graph, 2, 0)
    plain, counted = simulate(design, inputs), simulate(watched(design), inputs)
    for name, values in plain.outputs.items():
        np.testing.assert_array_equal(counted.outputs[name], values)
    assert counted.frame_cycles == plain.frame_cycles
    assert plain.toggles == {}
    found = count_toggles(design, inputs)
    assert {name.partition("_")[0] for name in found} == {"u", "fork", "fifo"}
    modules = design_modules(graph, "net")  # every module is instantiated once here
    assert sum(t.bits for t in found.values()) == sum(
        sum(r.target.width for r in m.registers) + sum(memory.read_value.width for memory in m.memories) for m in modules)
    flat = count_toggles(design, {name: np.zeros_like(values) for name, values in inputs.items()})
    assert all(flat[name].toggles < found[name].toggles for name in found if name.startswith("u_"))


def test_rates_are_per_bit_and_clock_or_frame() -> None:
    both = Toggles(10, 40, 2, 100) + Toggles(30, 120, 2, 100)
    assert (both.bits, both.per_clock, both.per_frame) == (40, pytest.approx(160 / 4000), pytest.approx(2.0))
    assert Toggles(0, 0, 1, 10).per_clock == 0.0
