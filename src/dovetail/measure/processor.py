"""Layers and networks on this machine's CPU through ONNX Runtime.

A layer is timed where it lives: between two 1x1 convolutions, so that it finds its input in the layout that ONNX
Runtime keeps between convolutions. Its time is that of all kernels between the two. Before every run the caches are
filled with something else, as the rest of a network would: the layer's input is warm, its weights are not. Other
programs only ever slow a run down, so the fast runs are the ones that tell: the tenth percentile counts.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir import RELU, Constant, Conv, Graph, Node, Op, Tensor, Window
from dovetail.ir.onnx.write import to_onnx
from dovetail.measure.campaign import Timing
from dovetail.measure.dispatch import session_start_s
from dovetail.measure.energy import EnergyCounter
from dovetail.measure.layers import MeasuredLayer, operator_of
from dovetail.numerics.timing import VERSION, kernel_seconds, run_seconds, seeded_inputs, timed_session
from dovetail.words import counted

FAST = 10.0
"""Percentile of the runs that counts."""
RUNS = 40
BLOCK_S = 0.25
"""Runs are repeated for at least this long."""
CACHE_BYTES = 1 << 24
"""More than the caches that one core has to itself, and what a small network moves in a frame."""
ENERGY_S = 2.2
COPIES = tuple(4096 * 4**i for i in range(7))


class ProcessorDevice:
    """This machine's CPU, ready to measure with so many threads."""

    def __init__(self, threads: int | None = None, counter: EnergyCounter | None = None) -> None:
        self.threads = threads or os.cpu_count() or 1
        self._counter = counter
        self._elsewhere = np.ones(CACHE_BYTES // 8)
        self.name = f"{processor_name()}, {counted(self.threads, 'thread')}"
        self.software = f"ONNX Runtime {VERSION}, float32"

    def idle_power_w(self) -> float | None:
        if self._counter is None:
            return None
        before, start = self._counter.joules(), time.perf_counter()
        time.sleep(ENERGY_S)
        return (self._counter.joules() - before) / (time.perf_counter() - start)

    def layer(self, layer: MeasuredLayer, energy: bool = False) -> Timing:
        content = to_onnx(_between(layer))
        inputs = seeded_inputs(timed_session(content, self.threads))
        kernels = kernel_seconds(content, inputs, self.threads, RUNS, self._forget)
        names = [name for name, _ in kernels]
        last = max((i for i, n in enumerate(names) if n.startswith("before")), default=-1)
        first = min((i for i, n in enumerate(names) if n.startswith("after")), default=len(names))
        inner = [times for _, times in kernels[last + 1:first]]
        if not inner:
            raise ModelError(f"{layer}: ONNX Runtime ran {', '.join(names)}, no kernel of the layer among them; "
                             "measure it in another context")
        seconds = float(sum(np.percentile(times, FAST) for times in inner))
        share = seconds / max(float(sum(np.percentile(times, FAST) for _, times in kernels)), 1e-9)
        return Timing(seconds, self._energy(content, share) if energy else None)

    def network(self, graph: Graph, energy: bool = False) -> Timing:
        content = to_onnx(graph)
        runner = timed_session(content, self.threads)
        inputs = seeded_inputs(runner)
        # One thread's own time is its latency where it runs alone, and still tells it where other programs interrupt.
        clock = time.thread_time if self.threads == 1 else time.perf_counter
        run_seconds(runner, inputs, 3)
        times: list[float] = []
        while sum(times) < 4 * BLOCK_S or len(times) < RUNS:
            times += run_seconds(runner, inputs, 5, clock=clock)
        return Timing(float(np.percentile(times, FAST)), self._energy(content, 1.0) if energy else None)

    def _forget(self) -> None:
        """Read and write more than the processor's own caches hold."""
        self._elsewhere += 1.0

    def transfers(self) -> list[tuple[str, int, float]]:
        """Copies within memory: what handing a tensor on costs where nothing is shared."""
        found = []
        for size in COPIES:
            source, target, times = np.ones(size, dtype=np.uint8), np.zeros(size, dtype=np.uint8), []
            for _ in range(50):
                start = time.perf_counter()
                np.copyto(target, source)
                times.append(time.perf_counter() - start)
            found.append(("copy", size, float(np.percentile(times, FAST))))
        return found

    def dispatch_s(self) -> float:
        """What a part takes in ONNX Runtime besides its kernels, in the runtime's hands."""
        return session_start_s()

    def _energy(self, content: bytes, share: float) -> float | None:
        """Energy of one run over two seconds of them, times the part of the run that is the layer's."""
        if self._counter is None:
            return None
        runner = timed_session(content, self.threads)
        inputs = seeded_inputs(runner)
        before, start, runs = self._counter.joules(), time.perf_counter(), 0
        while time.perf_counter() - start < ENERGY_S:
            runs += len(run_seconds(runner, inputs, 5))
        return (self._counter.joules() - before) / runs * share


def processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        return platform.processor() or platform.machine() or "unknown processor"


def _between(layer: MeasuredLayer) -> Graph:
    """The layer behind a 1x1 convolution per input and before another, where it has maps at both ends."""
    op = operator_of(layer)
    nodes: list[Node] = []
    tensors: dict[str, Tensor] = {}
    constants: dict[str, Constant] = {}
    random = np.random.default_rng(0)

    def add(name: str, step: Op, inputs: tuple[str, ...]) -> str:
        shapes = tuple(tensors[t].shape for t in inputs)
        params = []
        for role, shape in zip(("weight", "bias"), step.param_shapes(shapes), strict=False):
            constants[f"{name}_{role}"] = Constant(f"{name}_{role}", (random.standard_normal(shape) * 0.05).astype(np.float32))
            params.append(f"{name}_{role}")
        tensors[f"{name}_out"] = Tensor(f"{name}_out", step.infer(shapes))
        nodes.append(Node(name, step, inputs, tuple(params), f"{name}_out"))
        return f"{name}_out"

    maps = layer.op != "gemm"
    stem = layer.op == "conv" and layer.channels <= 4
    shape = (1, layer.channels, layer.side, layer.side) if maps else (1, layer.channels)
    reads = []
    for i in range(layer.inputs):
        tensors[f"x{i}"] = Tensor(f"x{i}", shape)
        first = Conv(layer.channels, Window((1, 1)), 1, RELU)
        reads.append(f"x{i}" if stem or not maps else add(f"before{i}", first, (f"x{i}",)))
    output = add("layer", op, tuple(reads))
    if maps and layer.op != "global_average":
        output = add("after", Conv(16, Window((1, 1)), 1, RELU), (output,))
    return Graph("between", tuple(f"x{i}" for i in range(layer.inputs)), (output,), tuple(nodes), tensors, constants)
