"""What starting a part takes: one that does next to nothing, through the runtime's own queue and worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dovetail.cpu.executor import CpuPart
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.write import to_onnx
from dovetail.measure.layers import MeasuredLayer, graph_of
from dovetail.partition.plan import whole_on
from dovetail.runtime.record import RunRecord
from dovetail.runtime.stages import RunnablePart, Stage
from dovetail.runtime.stream import FrameStream
from dovetail.runtime.workers import StreamOptions
from dovetail.schedule.program import lower

WARM = 20
"""Frames before the first that counts. Chosen."""
RUNS = 300
"""Frames that count. Chosen: a tenth of a second."""
FAST = 10.0
"""Percentile of the runs that counts, since other programs only ever slow one down."""


@dataclass(frozen=True, slots=True)
class CalledPart:
    """A part that calls a function and gives zeros."""

    graph: Graph
    call: Callable[[], None]
    backend = "called"
    note = ""

    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        self.call()
        return {name: np.zeros(self.graph.shape(name), self.graph.tensors[name].dtype) for name in self.graph.outputs}


def smallest() -> Graph:
    """A convolution of one pixel."""
    return graph_of(MeasuredLayer("conv", 1, 1, 1))


def session_start_s() -> float:
    """Seconds of a part in ONNX Runtime: queue, worker, the session's own start, and the result."""
    return part_s(smallest(), CpuPart(smallest(), to_onnx(smallest())))


def call_s(call: Callable[[], None]) -> float:
    """Seconds of a part that calls a function."""
    return part_s(smallest(), CalledPart(smallest(), call))


def part_s(graph: Graph, part: RunnablePart) -> float:
    """Seconds from submitting a frame to its result, through a stream of this part alone."""
    program = lower(graph, {node.name: whole_on("cpu") for node in graph.nodes})
    (segment,) = program.segments
    stage = Stage(segment.name, "cpu", ("cpu",), (segment,), part, segment.reads, segment.writes)
    frame = {name: np.zeros(graph.shape(name), graph.tensors[name].dtype) for name in graph.inputs}
    times = []
    with FrameStream([stage], program, RunRecord(), StreamOptions(1)) as stream:
        for _ in range(WARM + RUNS):
            start = time.perf_counter()
            stream.submit(frame).result()
            times.append(time.perf_counter() - start)
    return float(np.percentile(times[WARM:], FAST))
