"""The hardware of an accelerator for a whole network: dedicated engines in a row, a block of reusable ones behind them, one top.

The stream between the two carries words of as many channels as the block works on; frames follow each other through both, so
while the block computes one, the dedicated engines are at the next.
"""

from __future__ import annotations

from dataclasses import replace

from dovetail.cost.accelerator import config_of
from dovetail.cost.clocks import before, leaving_words
from dovetail.fpga.assemble import Construction, build_design, stream_port, stream_ports
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.mapping import stream_formats
from dovetail.fpga.reusable.block import ArrayBlock, build_block
from dovetail.fpga.rtl.expressions import Signal
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.fpga.rtl.verilog import print_module
from dovetail.hardware.folds import Fold
from dovetail.ir import Graph
from dovetail.platform.accelerator import AcceleratorDesign


def build_accelerator(graph: Graph, name: str, accelerator: AcceleratorDesign) -> Design:
    """The design of a graph whose nodes are all part of the accelerator; its top module is `name`.

    Ports are those of any design: `in0` takes whole pixels where dedicated engines come first, else words; `out0` leaves words
    where the block or a folded layer comes last. Latency and interval are exact for dedicated engines, the model's for the block.
    """
    folds = {n: Fold(*sizes) for n, sizes in accelerator.dedicated.items() if sizes is not None}
    config = config_of(accelerator)
    reusable = tuple(n.name for n in graph.nodes if n.name in accelerator.reusable)
    if config is None or not reusable:
        return build_design(graph, name, folds=folds, fused=accelerator.fused, leaving=leaving_words(graph, folds))
    block = build_block(graph, reusable, config, f"{name}_reusable")
    first = before(graph, reusable)
    dedicated = None
    if first is not None:
        dedicated = build_design(first, f"{name}_dedicated", folds=folds, leaving=config.inputs, fused=accelerator.fused)
    return _joined(graph, name, dedicated, block)


def _port(block: ArrayBlock, graph: Graph, tensor: str, name: str) -> StreamPort:
    """A stream of the block as a port of the top: words of a pixel."""
    form = stream_formats(graph)[tensor].in_words(block.program.config.inputs)
    return stream_port(name, tensor, form)


def _joined(graph: Graph, name: str, dedicated: Design | None, block: ArrayBlock) -> Design:
    out = _port(block, graph, graph.outputs[0], "out0")
    entry = dedicated.inputs[0] if dedicated is not None else _port(block, graph, graph.inputs[0], "in0")
    first = [] if dedicated is None else [f"{dedicated.top}: {len(dedicated.folds)} folded layers, a frame every "
                                          f"{dedicated.interval_cycles} clocks."]
    second = f"{block.design.top}: {block.program.config}, a frame every {block.design.interval_cycles} clocks."
    made = Construction(name, (*first, second))
    top = made.module
    source, target = stream_ports(top, "in0", entry.data_bits, True), stream_ports(top, "out0", out.data_bits, False)
    between = source
    if dedicated is not None:
        between = made.wires("words", dedicated.outputs[0].data_bits)
        top.instances.append(Instance(dedicated.top, "dedicated", (*source.pins("in0"), *between.pins("out0"))))
    pins = (*between.pins("in0"), *target.pins("out"), *_passed(top, block))
    top.instances.append(Instance(block.design.top, "reusable", pins))
    files = {**(dedicated.files if dedicated is not None else {}), **block.design.files, f"{name}.v": print_module(top)}
    known, after = dedicated or Design(name, {}, (), ()), block.design
    return replace(known, top=name, files=files, inputs=(entry,), outputs=(out,), memory=after.memory,
                   latency_cycles=known.latency_cycles + after.latency_cycles,
                   interval_cycles=max(known.interval_cycles, after.interval_cycles))


def _passed(top: Module, block: ArrayBlock) -> tuple[tuple[str, Signal], ...]:
    """The block's memory port, handed through."""
    assert block.design.memory is not None
    found = []
    for inside, outside in ((block.top.inputs, top.inputs), (block.top.outputs, top.outputs)):
        for port in inside:
            if port.name.startswith(f"{block.design.memory.name}_"):
                outside.append(port)
                found.append((port.name, port))
    return tuple(found)
