"""NNgen's hardware for a network: generated, counted, and run against its own reference.

NNgen (Takamaeda-Yamazaki, https://github.com/NNgen/nngen) makes a processor of streams that reads frames and weights from memory
over AXI4 and writes results back: control, DMA and buffers are part of it and cannot be left out. It has no grouped
convolution, so a depthwise layer runs as a dense one with zeros. It rounds half away from zero and never uses -128.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import MismatchError
from dovetail.fpga.design import Design
from dovetail.fpga.toolchain.simulate import scratch_folder
from dovetail.fpga.toolchain.tools import GIBIBYTE, Command, run_tool
from dovetail.fpga.toolchain.verilate import BuildTarget, build_target
from dovetail.ir import RELU, Array, Conv, Graph, MaxPool, Node
from lib.peers.layers import GAIN, WEIGHT_EXPONENT, Case, dense_weights, integer_network
from lib.peers.measured import Measured, count, missing

TOP, PROGRAM, CHUNK_BYTES = "dovetail_bundle", "simulation", 64
SHIFT = GAIN - WEIGHT_EXPONENT
"""From sums of products to outputs, in bits."""
RUN_TIMEOUT_S = 1800.0


def available() -> bool:
    return importlib.util.find_spec("nngen") is not None


@dataclass(frozen=True, slots=True)
class Generated:
    """An accelerator, the memory it starts from, where its result lies there and what it should be."""

    verilog: str
    registers: str
    image: Array
    start: int
    shape: tuple[int, ...]
    """Of the result in memory, with the channels that align pixels to words."""
    expected: Array


def measure(case: Case, frame: Array, par_ich: int = 1, par_och: int = 1) -> Measured:
    """Generate with so many input and output channels at once (kernel taps always are), count, run one frame.

    A process of its own generates: names hold counters, and the same network must give the same text for the cache.
    """
    if not available():
        raise missing("nngen")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        made = pool.submit(generate, case, frame, par_ich, par_och).result()
    cycles, after = run(made)
    size = int(np.prod(made.shape))
    found = after[made.start:made.start + size].view(np.int8).reshape(made.shape)[..., :made.expected.shape[-1]]
    counts = count(Design(TOP, {f"{TOP}.v": made.verilog}, (), (), (), 0, cycles, cycles))
    note = f"nngen {importlib.metadata.version('nngen')}, {par_ich} x {par_och} channels at once, 32-bit AXI and DMA included"
    return Measured(**counts, cycles_per_frame=cycles, latency_cycles=cycles,
                    bit_exact=bool(np.array_equal(found, made.expected)), note=note)


def generate(case: Case, frame: Array, par_ich: int, par_och: int) -> Generated:
    import nngen as ng
    import veriloggen

    veriloggen.reset()
    source, output = network(ng, integer_network(case.ops, case.shape), par_ich, par_och)
    with contextlib.redirect_stdout(io.StringIO()):
        verilog = ng.to_verilog([output], TOP, silent=True)
    registers = f"constexpr unsigned kStart = {ng.control_reg_start}, kInterruptEnable = {ng.control_reg_interrupt_ier};\n"
    expected = ng.eval([output], x=np.moveaxis(frame[None], 1, -1).astype(np.int64))[0]
    return Generated(verilog, registers, memory_image(ng, source, output, frame), output.addr,
                     tuple(output.get_aligned_shape()), expected)


def network(ng: Any, graph: Graph, par_ich: int, par_och: int) -> tuple[Any, Any]:
    """The graph in NNgen's operators: its input and its output."""
    channels, height, width = graph.shape("x")[1:]
    source = at = ng.placeholder(ng.int8, shape=(1, height, width, channels), name="x")
    for node in graph.nodes:
        at = operator(ng, graph, node, at, par_ich, par_och)
    return source, at


def operator(ng: Any, graph: Graph, node: Node, at: Any, par_ich: int, par_och: int) -> Any:
    match node.op:
        case Conv(window=window):
            weights = np.moveaxis(dense_weights(graph, node), 1, -1)
            stored = ng.variable(ng.int8, shape=weights.shape, name=f"{node.name}_weights")
            stored.set_value(weights.astype(np.int64))
            top, left, bottom, right = window.pads
            act = ng.relu if node.op.clamp == RELU else None
            return ng.conv2d(at, stored, (1, *window.stride, 1), rshift_out=SHIFT, act_func=act,
                             padding=(top, bottom, left, right), dtype=ng.int8, sum_dtype=ng.int32, name=node.name,
                             par_ich=par_ich, par_och=par_och)
        case MaxPool(window=window):
            return ng.max_pool(at, (1, *window.kernel, 1), (1, *window.stride, 1), padding="VALID", name=node.name)
        case other:
            raise AssertionError(f"no NNgen operator for {other.kind}")


def memory_image(ng: Any, source: Any, output: Any, frame: Array) -> Array:
    """Memory before the run: the frame and the weights where the accelerator looks for them."""
    weights = ng.export_ndarray([output], CHUNK_BYTES)
    variables = [v for v in output._collect_numerics() if isinstance(v, ng.variable)]
    start = min(v.addr for v in variables)
    pixels = np.zeros(source.get_aligned_shape(), np.int8)
    pixels[..., :frame.shape[0]] = np.moveaxis(frame, 0, -1)
    image = np.zeros(max(start + weights.size, source.addr + pixels.size, output.addr + output.memory_size), np.uint8)
    image[start:start + weights.size] = weights
    image[source.addr:source.addr + pixels.size] = pixels.reshape(-1).view(np.uint8)
    return image


def run(made: Generated) -> tuple[int, Array]:
    """Run one frame in Verilator; returns the clocks it took and the memory afterwards."""
    files = {f"{TOP}.v": made.verilog, "registers.h": made.registers,
             "memory.cpp": Path(__file__).with_name("memory.cpp").read_text(encoding="utf-8")}
    program = build_target(BuildTarget(files, None, PROGRAM))
    lines: list[str] = []
    with scratch_folder() as folder:
        made.image.tofile(folder / "memory.bin")
        code = run_tool(Command("simulation", (str(program / PROGRAM), str(folder)), program, folder / "simulation.log",
                                RUN_TIMEOUT_S, 4 * GIBIBYTE, on_line=lines.append, accept=(0, 1)))
        if code:
            raise MismatchError("peers: NNgen's accelerator does not end; no clocks can be stated")
        return int(lines[-1].removeprefix("cycles ")), np.fromfile(folder / "after.bin", np.uint8)
