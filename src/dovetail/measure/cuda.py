"""Layers and networks on a CUDA GPU through PyTorch: CUDA graphs timed by events, energy by the driver's counter.

Tensors are float32 in channels_last, convolutions may use TF32 and the algorithm that cuDNN recommends, which is PyTorch's
default. An operator is its library kernel, then its activation; nothing is fused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from math import isfinite
from typing import Any

import numpy as np

from dovetail.errors import ToolError, UnsupportedError
from dovetail.ir import Add, AvgPool, Clip, Concat, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Node, Reshape, Select
from dovetail.measure.campaign import Timing
from dovetail.measure.dispatch import call_s
from dovetail.measure.energy import EnergyCounter
from dovetail.measure.layers import MeasuredLayer, graph_of

COPIES = 24
"""Runs of a layer in one CUDA graph, so that launching the graph does not count."""
WEIGHT_BYTES = 48e6
"""Copies have weights of their own up to this much in all, so that large layers fetch them as they would in a network."""
BLOCKS = 5
BLOCK_S = 0.03
"""Timed blocks of graph replays; the middle one counts."""
ENERGY_S = 2.2
"""The energy counter moves every 20 to 100 ms: over two seconds that is a small error."""
TRANSFER_BYTES = tuple(4096 * 4**i for i in range(7))


class CudaDevice:
    """One GPU, ready to measure."""

    def __init__(self, counter: EnergyCounter | None = None) -> None:
        try:
            import torch
        except ImportError:
            raise ToolError("calibrate --device gpu: PyTorch is not installed; pip install 'dovetail-accel[gpu]'") from None
        if not torch.cuda.is_available():
            raise ToolError("calibrate --device gpu: PyTorch sees no CUDA device; check the driver, or measure elsewhere and "
                            "use --from")
        self._torch = torch
        self._counter = counter
        torch.backends.cudnn.benchmark = False  # one trial of a 4 us kernel chooses by chance: now fast, now twice as slow
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cuda.matmul.allow_tf32 = True
        self.name = str(torch.cuda.get_device_name())
        self.software = (f"torch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
                         "float32 in TF32 kernels")

    def idle_power_w(self) -> float | None:
        """Power with nothing to do, context alive."""
        if self._counter is None:
            return None
        self._torch.cuda.synchronize()
        time.sleep(0.5)
        before, start = self._counter.joules(), time.perf_counter()
        time.sleep(ENERGY_S)
        return (self._counter.joules() - before) / (time.perf_counter() - start)

    def layer(self, layer: MeasuredLayer, energy: bool = False) -> Timing:
        """Time of one run of a layer, and its energy if asked for and readable."""
        graph = graph_of(layer)
        sets = max(1, min(COPIES, int(WEIGHT_BYTES / max(4 * graph.parameters, 1))))
        return self._timed([graph] * sets, COPIES, energy)

    def network(self, graph: Graph, energy: bool = False) -> Timing:
        """Time of one frame of a network in one CUDA graph, and its energy."""
        return self._timed([graph], 1, energy)

    def transfers(self) -> list[tuple[str, int, float]]:
        """Copies between pinned memory and the GPU, both directions, one at a time."""
        torch, found = self._torch, []
        for size in TRANSFER_BYTES:
            host = torch.empty(size, dtype=torch.uint8).pin_memory()
            device = torch.empty(size, dtype=torch.uint8, device="cuda")
            for direction, target, source in (("to", device, host), ("from", host, device)):
                times = []
                for _ in range(30):
                    torch.cuda.synchronize()
                    start = time.perf_counter()
                    target.copy_(source, non_blocking=True)
                    torch.cuda.synchronize()
                    times.append(time.perf_counter() - start)
                found.append((direction, size, float(np.median(times[5:]))))
        return found

    def dispatch_s(self) -> float:
        """What a part takes besides its kernels: a CUDA graph of one small kernel started by a worker, and its end noticed."""
        torch = self._torch
        one = torch.zeros(1, device="cuda")
        captured = self._captured(lambda: one.add_(1))

        def call() -> None:
            captured.replay()
            torch.cuda.synchronize()
        return max(0.0, call_s(call) - self._replay_s(captured))

    def _timed(self, graphs: list[Graph], copies: int, energy: bool) -> Timing:
        torch = self._torch
        with torch.inference_mode():
            programs = [TorchProgram(torch, graph) for graph in graphs]
            replay = self._captured(lambda: [programs[i % len(programs)].run() for i in range(copies)])
            seconds = self._replay_s(replay) / copies
            joules = self._replay_j(replay, seconds * copies) if energy and self._counter is not None else None
        return Timing(seconds, None if joules is None else joules / copies)

    def _captured(self, run: Callable[[], Any]) -> Any:
        """A CUDA graph of the run, after the warm-up that capturing needs; outputs stay alive inside it."""
        torch = self._torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            run()
        return captured

    def _replay_s(self, captured: Any) -> float:
        """Median over blocks of the time of one replay."""
        repeats = 1
        self._block_s(captured, 3)
        while (block := self._block_s(captured, repeats)) < BLOCK_S:
            repeats = max(repeats + 1, min(4 * repeats, int(1.2 * repeats * BLOCK_S / block)))
        return float(np.median([self._block_s(captured, repeats) / repeats for _ in range(BLOCKS)]))

    def _block_s(self, captured: Any, repeats: int) -> float:
        torch = self._torch
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        for _ in range(repeats):
            captured.replay()
        stop.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(stop)) * 1e-3

    def _replay_j(self, captured: Any, replay_s: float) -> float:
        """Energy of one replay, over at least two seconds of them."""
        assert self._counter is not None
        batch = max(1, int(0.05 / replay_s))
        self._block_s(captured, max(1, int(0.4 / replay_s)))  # clocks and temperature settle
        before, start, replays = self._counter.joules(), time.perf_counter(), 0
        while time.perf_counter() - start < ENERGY_S:
            self._block_s(captured, batch)
            replays += batch
        return (self._counter.joules() - before) / replays


class TorchProgram:
    """A float graph as PyTorch calls, with its inputs and weights on a device of PyTorch's."""

    def __init__(self, torch: Any, graph: Graph, device: str = "cuda") -> None:
        self._torch, self._graph, self._device = torch, graph, device
        self._inputs = {name: self._tensor(np.random.default_rng(0).standard_normal(graph.shape(name))) for name in graph.inputs}
        self._weights = {name: self._tensor(constant.array) for name, constant in graph.constants.items()}

    def run(self) -> list[Any]:
        values = dict(self._inputs)
        for node in self._graph.nodes:
            weights = [self._weights[c] for c in node.params]
            values[node.output] = apply_node(self._torch, node, [values[t] for t in node.inputs], weights)
        return [values[name] for name in self._graph.outputs]

    def _tensor(self, array: Any) -> Any:
        tensor = self._torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)).to(self._device)
        return tensor.contiguous(memory_format=self._torch.channels_last) if tensor.dim() == 4 else tensor


@cache
def _on_device(torch: Any, indices: tuple[int, ...], device: Any) -> Any:
    """Indices as a tensor, made once: while a CUDA graph is captured nothing may be copied to the device."""
    return torch.tensor(indices, device=device)


def apply_node(torch: Any, node: Node, inputs: list[Any], weights: list[Any]) -> Any:
    """One node as PyTorch calls, on any number of frames; activations are applied in place."""
    functional = torch.nn.functional
    match node.op:
        case Conv(_, window, groups, _, _):
            x, pads = _padded(functional, inputs[0], window.pads, 0.0)
            result = functional.conv2d(x, *weights, stride=window.stride, padding=pads, dilation=window.dilation,
                                       groups=groups)
        case Gemm():
            result = functional.linear(inputs[0], *weights)
        case MaxPool(window):
            x, pads = _padded(functional, inputs[0], window.pads, -np.inf)
            result = functional.max_pool2d(x, window.kernel, window.stride, pads, window.dilation)
        case AvgPool(window, count_pads):
            x, pads = _padded(functional, inputs[0], window.pads, 0.0)
            result = functional.avg_pool2d(x, window.kernel, window.stride, pads, count_include_pad=count_pads)
        case GlobalAvgPool():
            result = functional.adaptive_avg_pool2d(inputs[0], 1)
        case Add():
            result = inputs[0] + inputs[1]
            for x in inputs[2:]:
                result = result + x
        case Clip():
            result = inputs[0].clone() if node.op.bounds is None else inputs[0]
        case Concat(axis):
            result = torch.cat(inputs, axis)
        case Reshape(shape):
            result = inputs[0].reshape(inputs[0].shape[0], *shape[1:])
        case Select(indices):
            result = inputs[0].index_select(1, _on_device(torch, indices, inputs[0].device))
        case _:
            raise UnsupportedError(f"node {node.name}: {node.op.kind} is not measured on a GPU; known are convolution, Gemm, "
                                   "pooling, Add, Clip, Concat, Select and Reshape")
    bounds = node.op.bounds
    if bounds is None:
        return result
    if isinstance(node.op, Clip):  # the operator is its activation, and its input may be wanted elsewhere
        return result.clamp(bounds.lo, bounds.hi if isfinite(bounds.hi) else None)
    return result.relu_() if not isfinite(bounds.hi) and bounds.lo == 0.0 else result.clamp_(bounds.lo, bounds.hi)


def _padded(functional: Any, x: Any, pads: tuple[int, int, int, int], value: float) -> tuple[Any, tuple[int, int]]:
    """Uneven padding made explicit; even padding is left to the kernel."""
    top, left, bottom, right = pads
    if top == bottom and left == right:
        return x, (top, left)
    return functional.pad(x, (left, right, top, bottom), value=value), (0, 0)
