"""Arithmetic alone: a constant matrix times the taps of one window, one window per clock, without the windows around it.

This is what da4ml and Alkaid generate, so ours is cut down to the same. For simulation each core gets a stream on both sides;
counts are of the core without them.
"""

from __future__ import annotations

import numpy as np

from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.engines.arithmetic import biased, print_graph
from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.rtl.expressions import pack
from dovetail.fpga.rtl.modules import Module
from dovetail.fpga.rtl.verilog import print_module
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.hardware.adders.subexpressions import minimize
from lib.peers.measured import Measured, count

TAP_BITS, SUM_BITS, WINDOWS = 8, 32, 256


def our_core(matrix: IntMatrix) -> tuple[Module, int, int]:
    """Our adder graph with a register behind every adder: the module, its clocks from taps to sums, and its adders."""
    module = Module("ours", (f"{matrix.shape[1]} taps to {len(matrix)} sums.",))
    taps, pipeline = module.input("taps", TAP_BITS * matrix.shape[1]), Pipeline(module)
    most = (1 << (TAP_BITS - 1)) - 1
    columns = [Staged(module.wire(f"x{i}", taps.field(TAP_BITS * i, -most - 1, most)), 0) for i in range(matrix.shape[1])]
    graph = minimize(matrix, [(-128, 127)] * len(columns))
    nodes = print_graph(pipeline, graph, columns, "core")
    sums = [biased(pipeline, f"y{i}", term, nodes, 0) for i, term in enumerate(graph.outputs)]
    clocks = max([1, *(value.stage for value, _ in sums)])
    module.output("sums", pack([(pipeline.at(value, clocks) << shift, SUM_BITS) for value, shift in sums]))
    return module, clocks, graph.count


def streamed(core: Design, taps: int, sums: int, clocks: int, instance: str, sum_bits: int = SUM_BITS) -> Design:
    """A core between two streams that never wait, with every sum extended to `SUM_BITS`; for simulation alone."""
    extended = ", ".join(f"{{{{{SUM_BITS - sum_bits}{{y[{sum_bits * (i + 1) - 1}]}}}}, y[{sum_bits * i} +: {sum_bits}]}}"
                         if sum_bits < SUM_BITS else f"y[{sum_bits * i} +: {sum_bits}]" for i in reversed(range(sums)))
    text = f"""module streamed (input clk, input rst, input in0_valid, output in0_ready, input [{taps * TAP_BITS - 1}:0] in0_data,
  output out0_valid, input out0_ready, output [{sums * SUM_BITS - 1}:0] out0_data);
reg [{clocks - 1}:0] valid;
wire [{sums * sum_bits - 1}:0] y;
always @(posedge clk) valid <= rst ? {clocks}'d0 : {{valid, in0_valid}};
assign in0_ready = 1'b1;
assign out0_valid = valid[{clocks - 1}];
assign out0_data = {{{extended}}};
{instance}
endmodule
"""
    source = StreamPort("in0", "x", taps, TAP_BITS, True, 1, WINDOWS)
    sink = StreamPort("out0", "y", sums, SUM_BITS, True, 1, WINDOWS)
    return Design("streamed", {**core.files, "streamed.v": text}, (source,), (sink,), (), 0, WINDOWS + clocks, WINDOWS)


def right(design: Design, matrix: IntMatrix) -> bool:
    """Whether simulation gives the product of the matrix with random windows."""
    windows = np.random.default_rng(2).integers(-128, 128, (1, matrix.shape[1], 1, WINDOWS)).astype(np.int8)
    found = simulate(design, {"x": windows}).outputs["y"]
    return bool(np.array_equal(found[0, :, 0], matrix @ windows[0, :, 0].astype(np.int64)))


def measure_ours(matrix: IntMatrix) -> Measured:
    module, clocks, adders = our_core(matrix)
    design = Design("ours", {"ours.v": print_module(module)}, (), (), (), adders, clocks, 1)
    stream = streamed(design, matrix.shape[1], len(matrix), clocks,
                      "ours core (.clk(clk), .rst(rst), .taps(in0_data), .sums(y));")
    return Measured(**count(design), cycles_per_frame=1, latency_cycles=clocks, bit_exact=right(stream, matrix),
                    note=f"{adders} adders, a register behind each")
