"""Place and route of a small design on ECP5 with the real nextpnr."""

from __future__ import annotations

import re

import pytest

from dovetail.errors import ToolError, UsageError
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.toolchain import place
from dovetail.fpga.toolchain.place import core_pins, find_nextpnr, pin_wrapper, place_ecp5

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
    first, second = place_ecp5(DESIGN, "25k"), place_ecp5(DESIGN, "25k")
    assert (first.cached, second.cached) == (False, True)
    assert first.fmax_mhz == second.fmax_mhz
    assert re.fullmatch(r"from at to total: \d\.\d ns in \d+ cells, \d\.\d ns in wires", first.critical_path)
    assert 50 < first.fmax_mhz < 1000
    assert first.used["TRELLIS_RAMW"] == 6
    assert first.used["TRELLIS_IO"] == 4
    assert first.available["TRELLIS_FF"] == 24288
    assert not place_ecp5(DESIGN, "25k", seed=2).cached
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
        place_ecp5(DESIGN, "5k")


def test_a_missing_router_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.delenv("DOVETAIL_NEXTPNR", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(place.importlib.util, "find_spec", lambda name: None)
    message = ("nextpnr-ecp5: not found; install it with pip install 'dovetail-accel[pnr]', "
               "or name a native nextpnr-ecp5 in DOVETAIL_NEXTPNR")
    with pytest.raises(ToolError, match=f"^{re.escape(message)}$"):
        find_nextpnr()
