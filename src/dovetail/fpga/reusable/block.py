"""A block of reusable engines as a design: entry points and ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.cost.array import frame_ends
from dovetail.fpga.design import Design, MemoryPort, StreamPort
from dovetail.fpga.reusable.assembly import Assembly
from dovetail.fpga.reusable.image import Octets, image_text, weight_image
from dovetail.fpga.reusable.numbers import BlockNumbers, block_numbers
from dovetail.fpga.rtl.modules import Module
from dovetail.fpga.rtl.verilog import images, print_module
from dovetail.hardware.arrays.jobs import ArrayProgram
from dovetail.hardware.arrays.layers import Config, layers_of
from dovetail.hardware.arrays.program import program_of
from dovetail.ir import Graph


@dataclass(frozen=True, slots=True)
class ArrayBlock:
    """A built block: its design, the layer program it runs, its integers, and the image of its weights."""

    design: Design
    program: ArrayProgram
    numbers: BlockNumbers
    image: Octets
    top: Module


def build_block(graph: Graph, nodes: Sequence[str], config: Config, name: str) -> ArrayBlock:
    """The block that these nodes of a quantized graph are, as a design of its own.

    Streams `in0` and `out` carry `config.inputs` channels of a pixel per beat, the words of a pixel in order, pixels in raster
    order. Weights, and maps in external memory, pass a port of their own (`MemoryPort`).
    """
    program = program_of(layers_of(graph, nodes, config.counts), config)
    numbers = block_numbers(graph, program)
    image = weight_image(program, numbers)
    modules = Assembly(name, program, numbers).build()
    files = {f"{m.name}.v": print_module(m) for m in modules}
    for m in modules:
        files.update(images(m))
    picture = f"{name}_weights_image.hex"
    files[picture] = image_text(image)
    ends = frame_ends(program)
    source = _stream_port(graph, program, "in0", program.layers.entry)
    target = _stream_port(graph, program, "out", program.layers.exit)
    memory = MemoryPort("memory", config.port_bytes, picture, config.bandwidth_bytes, config.latency_clocks,
                        program.memory_beats, bool(program.outside))
    design = Design(name, files, (source,), (target,), latency_cycles=ends[0], interval_cycles=ends[-1] - ends[-2], memory=memory)
    return ArrayBlock(design, program, numbers, image, modules[0])


def _stream_port(graph: Graph, program: ArrayProgram, name: str, tensor: str) -> StreamPort:
    """A stream of the block, in words of `config.inputs` channels."""
    shape, scheme = program.layers.maps[tensor], graph.tensors[tensor].scheme
    size, signed = (8, True) if scheme is None else (scheme.bits, scheme.signed)
    return StreamPort(name, tensor, shape.channels, size, signed, shape.height, shape.width, program.config.inputs)
