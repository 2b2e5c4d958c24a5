"""Depthwise layers of bytes as they are compiled for a GPU, against the reference; run as a module by test_bytewise.py."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dovetail.ir import RELU, Array, Conv, Graph, Window
from dovetail.kernels.calls import Call
from dovetail.kernels.lower import lower
from dovetail.numerics.reference import run_integer
from dovetail.platform.gpu_specification import specification
from tests.gpu.compile_all import compiled
from tests.gpu.ptx import Kernel
from tests.strategies import Net, quantized

LAYERS = ((7, 1, 7), (5, 2, 8), (3, 1, 6))
"""Taps each way, strides and widths: edges of their maps fall between columns that are computed side by side."""
ROUND = 256
"""Bytes that operands begin at a multiple of."""


def layer(kernel: int, stride: int, width: int) -> Graph:
    """A depthwise layer of bytes behind a pointwise one."""
    net = Net(kernel + 10 * stride)
    x = net.add(Conv(24, Window((1, 1)), clamp=RELU), net.input((1, 3, 7, width)))
    window = Window((kernel,) * 2, (stride,) * 2, (kernel // 2,) * 4)
    return quantized(net.graph(net.add(Conv(24, window, groups=24, clamp=RELU), x)))


def stored(graph: Graph, tensor: str, values: Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A tensor as a GPU has it: pixel by pixel, bytes with a sign."""
    scheme = graph.tensors[tensor].scheme
    assert scheme is not None
    own = values.astype(np.int16) - (0 if scheme.signed else 128)
    return np.ascontiguousarray(own.transpose(0, 2, 3, 1).astype(np.int8)).reshape(-1).view(np.uint8)


def differing(graph: Graph, capability: int) -> int:
    """Results of the depthwise layer with some of its tiles that are not the reference's."""
    scheme = graph.tensors["x"].scheme
    assert scheme is not None
    frames = np.random.default_rng(0).integers(scheme.lo, scheme.hi + 1, graph.shape("x")).astype(scheme.dtype)
    known = run_integer(graph, {"x": frames}, keep=True)
    lowered = lower(graph, "int8", specification("h200"))
    (run,) = lowered.runs
    assert not isinstance(run, Call)
    call = next(call for *_, call in lowered.options(run) if call.kernel == "bytewise")
    node = graph.nodes[-1]
    wanted, different = stored(graph, graph.outputs[0], known[graph.outputs[0]]), 0
    constants = [o if o.dtype.kind == "i" else o.astype(np.float32) for o in call.operands if isinstance(o, np.ndarray)]
    operands = [stored(graph, node.inputs[0], known[node.inputs[0]]),
                *(np.ascontiguousarray(o).reshape(-1).view(np.uint8) for o in constants), np.full(len(wanted), 7, np.uint8)]
    for tile in {(t["R"], t["EARLY"], t["TW"] * t["BC"] // t["num_warps"]): t for t in reversed(call.configs)}.values():
        begins = np.cumsum([ROUND, *((len(o) + ROUND - 1) // ROUND * ROUND for o in operands)])
        memory = np.zeros(int(begins[-1]), np.uint8)
        for at, operand in zip(begins, operands, strict=False):
            memory[at:at + len(operand)] = operand
        grid = [int(n) for n in call.grid(tile)]
        Kernel(memory, [*map(int, begins[:-1]), 0, 0], grid, 32 * tile["num_warps"]).run(compiled(call, tile, "int8", capability))
        different += int((memory[begins[-2]:begins[-2] + len(wanted)] != wanted).sum())
    return different


def main(capability: int) -> None:
    for kernel, stride, width in LAYERS:
        print(kernel, stride, width, differing(layer(kernel, stride, width), capability), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
