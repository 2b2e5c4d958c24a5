"""What fills the memories of layers whose weights are loaded: the same graph with any weights of its shapes and bits."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dovetail.errors import UsageError
from dovetail.fpga.assemble import load_tensor
from dovetail.fpga.engines.coded_lane import coded_filters
from dovetail.fpga.engines.folded_coded import weight_set
from dovetail.fpga.engines.lq import coded_window
from dovetail.fpga.mapping import coded_rescale, stream_formats
from dovetail.fpga.packing import Integers
from dovetail.hardware.folds import Fold, Loops, channels_of
from dovetail.ir import Coded, Graph


def weight_sets(graph: Graph, folds: Mapping[str, Fold], loaded: Collection[str], frames: int = 0) -> dict[str, Integers]:
    """A set of weights for so many frames (0: for all that come) by the input that takes it, shaped as a frame of it.

    `folds` and `loaded` as the design had them. UsageError where a set does not fit what was built.
    """
    formats, found = stream_formats(graph), dict[str, Integers]()
    for node in graph.nodes:
        if node.name not in loaded:
            continue
        assert isinstance(node.op, Coded)
        form, output = formats[node.inputs[0]], formats[node.output]
        loops = Loops(channels_of(node.op.body, form.channels, output.channels), folds[node.name])
        filters = coded_filters(node.op, graph.params(node), coded_window(node.op, form), coded_rescale(graph, node), form,
                                loaded=True)
        try:
            beats = weight_set(loops, filters, frames)
        except UsageError as error:
            raise UsageError(f"{node.name}: {error}") from None
        found[load_tensor(node.name)] = beats.T.reshape(1, beats.shape[1], 1, len(beats))
    return found
