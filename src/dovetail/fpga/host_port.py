"""A port of a few pins between host and board, as the Raspberry Pi of FiC has it: 4 bits at a time, made words of 32 (`rx32`).

A frame, or a set of weights, is the packet of `packing.py`; its words cross the port in beats, the lowest bits first. Widths from
1 bit to a whole word are the same hardware with more pins. Ports of a bus (`axi/`) are 32 bits and wider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dovetail.errors import UsageError
from dovetail.fpga.assemble import Construction, StreamWires, stream_ports
from dovetail.fpga.axi.gearbox import frame_in_module, frame_out_module
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.packing import Integers, as_pixels, from_packets, packet_words, to_packets
from dovetail.fpga.rtl.expressions import ONE, Expr, all_of, any_of, pack, select, signal
from dovetail.fpga.rtl.modules import Instance, Module

WORD_BITS = 32
PAPER_BITS = 4
"""Pins of FiC's host."""
WIDTHS = (1, 2, 4, 8, 16, 32)


def receiver_module(name: str, width: int) -> Module:
    """Beats of `width` bits in, words out: the paper's rx32. A beat may come in every clock."""
    m = Module(name, (f"Beats of {width} bits to words of {WORD_BITS}, the lowest first.",))
    valid, data, ready = m.input("in_valid"), m.input("in_data", width), m.input("out_ready")
    full, word = signal("full"), signal("word", 0, (1 << WORD_BITS) - 1)
    takes_one = m.wire("room", any_of(~full, ready))
    takes = m.wire("takes", all_of(valid, takes_one))
    _, last = m.counted("beat", WORD_BITS // width, takes)
    kept: list[tuple[Expr, int]] = [(word.bits(width, WORD_BITS - width), WORD_BITS - width)] if width < WORD_BITS else []
    m.drive(word, pack([*kept, (data, width)]), takes)
    m.drive(full, select(all_of(takes, last), 1, select(ready, 0, full)), reset=0)
    m.drive_outputs(in_ready=takes_one, out_valid=full, out_data=word)
    return m


def sender_module(name: str, width: int) -> Module:
    """Words in, beats of `width` bits out."""
    m = Module(name, (f"Words of {WORD_BITS} bits to beats of {width}, the lowest first.",))
    valid, data, ready = m.input("in_valid"), m.input("in_data", WORD_BITS), m.input("out_ready")
    busy, word = signal("busy"), signal("word", 0, (1 << WORD_BITS) - 1)
    leaves = m.wire("leaves", all_of(busy, ready))
    _, last = m.counted("beat", WORD_BITS // width, leaves)
    empties = m.wire("empties", all_of(leaves, last))
    room = m.wire("room", any_of(~busy, empties))
    takes = m.wire("takes", all_of(valid, room))
    rest = word >> width if width < WORD_BITS else word
    m.drive(word, select(takes, data, select(leaves, rest, word)))
    m.drive(busy, select(takes, 1, select(empties, 0, busy)), reset=0)
    m.drive_outputs(in_ready=room, out_valid=busy, out_data=word.bits(0, width))
    return m


class _Board(Construction):
    """The board's module."""

    def inward(self, port: StreamPort, width: int) -> StreamWires:
        """Pins of an input; returns the core's stream."""
        m, name = self.module, port.name
        outer = stream_ports(m, name, width, True)
        words, made = self.wires(f"{name}_words", WORD_BITS), self.wires(f"{name}_core", port.data_bits)
        self.instantiate(receiver_module(f"{m.name}_{name}_rx", width), f"rx_{name}", *outer.pins("in"), *words.pins("out"))
        step = m.wire(f"{name}_word_moves", all_of(words.valid, words.ready))
        _, last = m.counted(f"{name}_word", packet_words(port, WORD_BITS), step)
        ends = m.wire(f"{name}_ends", last)
        told = [(pin, m.net(f"{name}_{pin}")) for pin in ("active", "starved", "taken", "done", "early", "late")]
        self.instantiate(frame_in_module(f"{m.name}_{name}_frame", port, WORD_BITS), f"frame_{name}", *words.pins("in"),
                         ("in_last", ends), ("may_start", m.wire(f"{name}_may_start", ONE)), *made.pins("out"), *told)
        return made

    def outward(self, port: StreamPort, width: int) -> StreamWires:
        """Pins of an output; returns the core's stream."""
        m, name = self.module, port.name
        outer = stream_ports(m, name, width, False)
        words, made = self.wires(f"{name}_words", WORD_BITS), self.wires(f"{name}_core", port.data_bits)
        self.instantiate(frame_out_module(f"{m.name}_{name}_frame", port, WORD_BITS), f"frame_{name}", *made.pins("in"),
                         *words.pins("out"), ("out_last", m.net(f"{name}_last")))
        self.instantiate(sender_module(f"{m.name}_{name}_tx", width), f"tx_{name}", *words.pins("in"), *outer.pins("out"))
        return made


def with_host_port(design: Design, width: int = PAPER_BITS) -> Design:
    """The design behind pins of `width` bits per stream; frames are `to_beats`, results `from_beats`.

    A frame takes as many clocks as its longest stream has beats, where the core is faster.
    """
    if width not in WIDTHS:
        possible = ", ".join(map(str, WIDTHS))
        raise UsageError(f"{design.top}: a host port of {width} bits; {possible} are possible, wider ones are a bus")
    b = _Board(f"{design.top}_host{width}", (f"{design.top} behind a host port of {width} bits.",))
    pins = [pin for port in design.inputs for pin in b.inward(port, width).pins(port.name)]
    pins += [pin for port in design.outputs for pin in b.outward(port, width).pins(port.name)]
    b.module.instances.append(Instance(design.top, "core", tuple(pins)))
    inputs, outputs = (tuple(StreamPort(p.name, p.tensor, 1, width, False, 1, packet_words(p, WORD_BITS) * WORD_BITS // width,
                                        loads=p.loads) for p in ports) for ports in (design.inputs, design.outputs))
    longest = max(p.width for p in (*inputs, *outputs) if not p.loads)
    return replace(design, top=b.module.name, inputs=inputs, outputs=outputs, files={**design.files, **b.files()},
                   latency_cycles=design.latency_cycles + inputs[0].width + outputs[0].width,
                   interval_cycles=max(design.interval_cycles, longest))


def to_beats(design: Design, tensors: Mapping[str, Integers], width: int = PAPER_BITS) -> dict[str, Integers]:
    """Frames and weights of a design as what crosses its host port."""
    found: dict[str, Integers] = {}
    for port in design.inputs:
        packets = to_packets(port, as_pixels(port, np.asarray(tensors[port.tensor])), WORD_BITS)
        planes = np.unpackbits(packets, axis=1, bitorder="little").reshape(len(packets), 1, 1, -1, width)
        found[port.tensor] = (planes.astype(np.int64) << np.arange(width)).sum(axis=-1)
    return found


def from_beats(design: Design, beats: Mapping[str, Integers], width: int = PAPER_BITS) -> dict[str, Integers]:
    """Results of a design from what came over its host port."""
    found: dict[str, Integers] = {}
    for port in design.outputs:
        values = np.asarray(beats[port.tensor]).reshape(len(beats[port.tensor]), -1, 1)
        planes = (values >> np.arange(width) & 1).astype(np.uint8).reshape(len(values), -1)
        found[port.tensor] = from_packets(port, np.packbits(planes, axis=1, bitorder="little"), WORD_BITS)
    return found
