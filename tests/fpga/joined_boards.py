"""Small networks and narrow links, so that several boards are compiled quickly."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import numpy as np

from dovetail.fpga.links.cells import CIRCUIT_BITS, CREDIT_BITS, FLAGS, OVERHEAD_BITS, SEQUENCE_BITS, CellFormat
from dovetail.ir import Conv, Graph, Node, Scheme, Tensor, Window
from dovetail.numerics.lq import coded_node
from dovetail.platform.device import Platform
from tests.numerics.lq_networks import learned

CODES = Scheme(2, False, (0,))


def chain(layers: int = 3, channels: int = 4, size: int = 4) -> Graph:
    """Convolutions of two-bit codes, one after another."""
    rng = np.random.default_rng(3)
    shape = (1, channels, size, size)
    tensors, nodes, constants = [Tensor("x", shape, CODES)], list[Node](), []
    for n in range(layers):
        body = Conv(channels, Window((3, 3), pads=(1, 1, 1, 1)))
        layer = learned(rng, body, (channels, channels, 3, 3), 1, 2)
        node, own = coded_node(f"n{n}", layer, tensors[-1].name, f"y{n}", [0.1, 0.5, 0.9], 3, 6)
        nodes.append(node)
        constants += own
        tensors.append(Tensor(f"y{n}", shape, CODES))
    return Graph("chain", ("x",), (f"y{layers - 1}",), tuple(nodes), {t.name: t for t in tensors}, {c.name: c for c in constants})


def narrow(platform: Platform) -> Platform:
    """The board with links of one small cell per clock, a few clocks long: quick to compile, and pixels take several cells."""
    bytes_per_s = (OVERHEAD_BITS + 32) / 8 * 100e6
    return replace(platform, links=tuple(replace(x, bandwidth_bytes_per_s=bytes_per_s, latency_s=4e-8)
                                         if x.name.startswith("serial") else x for x in platform.links))


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as both ends understand it."""

    sequence: int
    payload: int
    circuit: int = 0
    credit_circuit: int = 0
    credit: int = 0
    data: bool = False
    greeting: bool = False
    heard: bool = True
    alarm: bool = False


def encode_cell(cell: Cell, form: CellFormat) -> int:
    """The bits of a cell, its first field lowest, written from the table of fields alone."""
    body, at = 0, 0
    for value, width in ((cell.sequence, SEQUENCE_BITS), (cell.circuit, CIRCUIT_BITS), (cell.credit_circuit, CIRCUIT_BITS),
                         (cell.credit, CREDIT_BITS), *((int(getattr(cell, flag)), 1) for flag in FLAGS),
                         (cell.payload, form.payload_bits)):
        assert 0 <= value < 1 << width
        body |= value << at
        at += width
    return body | zlib.crc32(body.to_bytes(form.body_bits // 8, "little")) << form.body_bits
