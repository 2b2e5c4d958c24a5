"""The engine of the larger of two streams: both brought to one scale, compared, rounded once."""

from __future__ import annotations

from dovetail.fpga.engines.arithmetic import maximum
from dovetail.fpga.engines.layers import Compute, MappedLayer, Rescale, lowered, rescale_output
from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.engines.window import Taps
from dovetail.ir import Graph, Node
from dovetail.numerics.requantize import requantizer


def larger(layer: MappedLayer, graph: Graph, node: Node, rescale: Rescale) -> Compute:
    """Of two streams less their zero points and at one scale, the larger value, channel by channel."""
    how = requantizer(graph, node)

    def compute(pipeline: Pipeline, taps: Taps) -> tuple[list[Staged], int]:
        columns, values = [taps[key] for key in sorted(taps)], []
        for channel in range(layer.output.fields):
            name = f"{layer.label}_larger_{channel}"
            both = []
            for i, column in enumerate(columns[channel::layer.output.fields]):
                centred = lowered(pipeline, f"{name}_in{i}", column, how.zeros[i])
                factor = how.factors[i][channel % len(how.factors[i])]
                both.append(pipeline.register(f"{name}_scaled_{i}", centred.value * int(factor), centred.stage))
            stage = max(value.stage for value in both)
            best = maximum(pipeline, name, [Staged(pipeline.at(value, stage), stage) for value in both])
            values.append(rescale_output(pipeline, name, best, 0, rescale, channel))
        return values, len(values)

    return compute
