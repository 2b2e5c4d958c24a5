"""Clocks of the hardware that a segment of a plan becomes, with the error they are stated with.

`verify` compares them with the simulated ones (`ClockEstimate.one_frame_holds`, `interval_holds`); `bench/clocks.py` is where
the errors come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.cost.accelerator import config_of
from dovetail.cost.array import block_interval, joined_latency
from dovetail.cost.folded import folds_of, shape_of
from dovetail.cost.passage import frame_passage
from dovetail.hardware.folds import Fold, Loops
from dovetail.ir import Graph
from dovetail.platform.accelerator import AcceleratorDesign
from dovetail.platform.device import Device

DEDICATED_ERROR, ARRAYS_ERROR, OUTSIDE_ERROR = 0.02, 0.03, 0.05
"""Relative errors of rows of dedicated engines, of reusable arrays (alone or behind such a row), and of arrays with maps in
external memory."""
FEWEST_CLOCKS = 16
"""Clocks by which short frames may be off whatever the relative error says: pipeline stages are estimates."""
ARRAYS_OVER, OUTSIDE_OVER = 4, 0.03
"""What playing a program on arrays may say more than the hardware takes: clocks where all maps are on the chip, and the part of
them where some are in external memory. Bounds are lower by that.

In external memory it is about a clock per transfer (bench/clocks.py, --part plans): 3.4 % where memories have 128 bytes and a
transfer takes 21 clocks. Searches offer 128 KiB and more, whose transfers are longer.
"""
SOURCE = "bench/clocks.py: random networks, MLPerf Tiny's and the zoo's, random plans, simulated on every architecture"


@dataclass(frozen=True, slots=True)
class ClockEstimate:
    """Clocks of one frame by itself, first beat in to last beat out, and between frames that follow each other.

    Simulated clocks differ from either by at most `error` of the simulated ones, or by `FEWEST_CLOCKS` if that is more.
    """

    one_frame: float
    interval: float
    error: float
    source: str

    def one_frame_holds(self, simulated: float) -> bool:
        """Whether the simulated clocks of one frame lie in the stated interval."""
        return _holds(self.one_frame, simulated, self.error)

    def interval_holds(self, simulated: float) -> bool:
        """Whether the simulated clocks between frames lie in the stated interval."""
        return _holds(self.interval, simulated, self.error)


def _holds(modelled: float, simulated: float, error: float) -> bool:
    return abs(modelled - simulated) <= max(FEWEST_CLOCKS, error * simulated)


def from_entries(entries: Any) -> ClockEstimate:
    """The estimate that JSON values (`dataclasses.asdict`) state."""
    return ClockEstimate(float(entries["one_frame"]), float(entries["interval"]), float(entries["error"]),
                         str(entries["source"]))


def segment_clocks(graph: Graph, device: Device) -> ClockEstimate:
    """Clocks of a segment's graph on an FPGA, as its folds or its accelerator have it built."""
    if device.accelerator is not None:
        return accelerator_clocks(graph, device.accelerator)
    found = frame_passage(graph, folds_of(graph, device))
    return ClockEstimate(float(found.last), float(found.slowest), DEDICATED_ERROR, SOURCE)


def accelerator_clocks(graph: Graph, accelerator: AcceleratorDesign) -> ClockEstimate:
    """Clocks of an accelerator for all nodes of a graph."""
    folds = {name: Fold(*sizes) for name, sizes in accelerator.dedicated.items() if sizes is not None}
    reusable = tuple(n.name for n in graph.nodes if n.name in accelerator.reusable)
    config = config_of(accelerator)
    if config is None or not reusable:
        found = frame_passage(graph, folds, accelerator.fused, leaving_words(graph, folds))
        return ClockEstimate(float(found.last), float(found.slowest), DEDICATED_ERROR, SOURCE)
    first = before(graph, reusable)
    row = None if first is None else frame_passage(first, folds, accelerator.fused, config.inputs)
    one = joined_latency(graph, reusable, config, 0 if row is None else row.last)
    between = max(block_interval(graph, reusable, config), 0 if row is None else row.slowest)
    return ClockEstimate(float(one), float(between), OUTSIDE_ERROR if config.map_bytes else ARRAYS_ERROR, SOURCE)


def leaving_words(graph: Graph, folds: dict[str, Fold]) -> int | None:
    """Channels of a beat that the last layer leaves: collecting a whole vector of scores would take registers for all of them."""
    last = graph.producer(graph.outputs[0])
    if last is None or last.name not in folds or not last.op.product:
        return None
    return Loops(shape_of(graph, last).channels, folds[last.name]).output_width


def before(graph: Graph, reusable: Sequence[str]) -> Graph | None:
    """The graph of the nodes that have engines of their own; None where there are none."""
    nodes = tuple(n for n in graph.nodes if n.name not in reusable)
    if len(nodes) in (0, len(graph.nodes)):
        return graph if nodes else None
    made = {n.output for n in nodes}
    (leaving,) = {t for n in graph.nodes if n.name in reusable for t in n.inputs if t in made}
    tensors = {t: graph.tensors[t] for n in nodes for t in (*n.inputs, n.output)}
    constants = {c: graph.constants[c] for n in nodes for c in n.params}
    return Graph(graph.name, graph.inputs, (leaving,), nodes, tensors, constants)
