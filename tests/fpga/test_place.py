"""Place and route of a small design on ECP5 and GW2A with the real nextpnr."""

from __future__ import annotations

import importlib.util
import re

import pytest

from dovetail.errors import ToolError, UsageError
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.toolchain.ecp5 import ECP5
from dovetail.fpga.toolchain.flow import OpenFlow
from dovetail.fpga.toolchain.gowin import GW2A
from dovetail.fpga.toolchain.place import FLOWS, core_pins, pin_wrapper, place_design

STREAM = {"channels": 3, "bits": 8, "signed": True, "height": 1, "width": 1}
TEXT = """module accumulate (input wire clk, input wire rst, input wire x_valid, output wire x_ready, input wire [23:0] x_data,
  output wire y_valid, input wire y_ready, output wire [23:0] y_data);
reg v; reg [23:0] total; reg [23:0] recent [0:15]; reg [3:0] at;
assign x_ready = ~v | y_ready;
assign y_valid = v;
assign y_data = total;
always @(posedge clk) begin
  v <= rst ? 1'b0 : x_ready ? x_valid : v;
  at <= rst ? 4'd0 : at + 4'd1;
  if (x_ready) recent[at] <= x_data;
  if (rst) total <= 24'd0; else if (x_ready & x_valid) total <= total + recent[at];
end
endmodule
"""
DESIGN = Design("accumulate", {"accumulate.v": TEXT}, (StreamPort("x", "x", **STREAM),), (StreamPort("y", "y", **STREAM),))


@pytest.mark.yosys
def test_a_design_is_routed_once_and_then_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    first, second = place_design(DESIGN, ECP5, "25k"), place_design(DESIGN, ECP5, "25k")
    assert (first.cached, second.cached) == (False, True)
    assert first.fmax_mhz == second.fmax_mhz
    assert re.fullmatch(r"from at to total: \d\.\d ns in \d+ cells, \d\.\d ns in wires", first.critical_path)
    assert 50 < first.fmax_mhz < 1000
    assert first.used["TRELLIS_RAMW"] == 6
    assert first.used["TRELLIS_IO"] == 4
    assert first.available["TRELLIS_FF"] == 24288
    assert not place_design(DESIGN, ECP5, "25k", seed=2).cached
    assert len([kept for kept in (tmp_path / "mapped").iterdir() if not kept.name.startswith(".")]) == 1  # synthesized once


def test_the_wrapper_has_four_pins_whatever_the_streams():
    text = pin_wrapper(DESIGN.top, core_pins(DESIGN))
    assert text.startswith("module dovetail_pins (input wire clk, input wire rst, input wire serial, output wire parity);")
    assert ".x_data(feed[24:1])" in text
    assert ".y_ready(feed[25:25])" in text
    assert ".x_ready(watch[25:25])" in text


def test_an_unknown_device_lists_the_known_ones():
    message = ("placement of accumulate: device is 5k; known are 12k, 25k, 45k, 85k, um-25k, um-45k, um-85k, "
               "um5g-25k, um5g-45k, um5g-85k")
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        place_design(DESIGN, ECP5, "5k")


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
def test_missing_tools_name_the_extra(flow: OpenFlow, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for program in (flow.router, flow.packer):
        monkeypatch.delenv(program.variable, raising=False)
        message = (f"{program.name}: not found; install it with pip install 'dovetail-accel[pnr]', "
                   f"or name a native {program.name} in {program.variable}")
        with pytest.raises(ToolError, match=f"^{re.escape(message)}$"):
            program.find()


@pytest.mark.yosys
def test_a_design_is_routed_for_a_gw2a(tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path))
    found = place_design(DESIGN, GW2A, GW2A.largest)
    assert re.fullmatch(r"from at to total: \d\.\d ns in \d+ cells, \d\.\d ns in wires", found.critical_path)
    assert 50 < found.fmax_mhz < 1000
    assert found.used["RAM16SDP4"] == 6
    assert found.used["IOB"] == 4
    assert found.available["DFF"] == 15552
    with pytest.raises(UsageError, match=r"^placement of accumulate: device is 85k; known are GW2A-LV18PG256C8/I7 and GW2A-LV18"):
        place_design(DESIGN, GW2A, "85k")
