"""How a stream travels in cells: wide pixels cut into words of channels, narrow ones several to a cell."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.fpga.engines.stream import Format
from dovetail.fpga.rtl.expressions import Expr, Signal, all_of, any_of, choose, compare, pack, select, successor
from dovetail.fpga.rtl.modules import Module


@dataclass(frozen=True, slots=True)
class Carriage:
    """A stream's beats as they travel, `group` of them in a cell; the last cell of a frame may have fewer."""

    form: Format
    group: int = 1

    @property
    def bits(self) -> int:
        """Of a cell's payload that are used."""
        return self.form.data_bits * self.group

    @property
    def cells(self) -> int:
        """Per frame."""
        return -(-self.form.beats // self.group)


def carried(form: Format, payload_bits: int) -> Carriage:
    """As many pixels per cell as fit, or as many channels of a pixel."""
    whole = form.channels * form.bits
    if whole > payload_bits:
        return Carriage(form.in_words(payload_bits // form.bits))
    return Carriage(form, min(payload_bits // whole, form.beats))


def _place(m: Module, carriage: Carriage, step: Signal) -> tuple[Signal, Expr]:
    """The place of a beat in its cell, and whether it is the cell's last: the group is complete, or the frame ends."""
    place = Signal(0, carriage.group - 1, "place")
    _, frame_ends = m.rounds("beat", carriage.form.beats, step)
    last = m.wire("last", any_of(compare("==", place, carriage.group - 1), frame_ends))
    m.drive(place, select(last, 0, successor(place)), step, 0)
    return place, last


def gather_module(name: str, carriage: Carriage) -> Module:
    """Beats in, cells out: a cell leaves with its last beat."""
    width, group = carriage.form.data_bits, carriage.group
    m = Module(name, (f"{group} beats of {width} bits to a cell.",))
    valid, data, ready = m.input("in_valid"), m.input("in_data", width), m.input("out_ready")
    step = Signal(0, 1, "step")
    place, last = _place(m, carriage, step)
    takes = m.wire("takes", any_of(~last, ready))
    m.wires.append((step, all_of(valid, takes)))
    held = [m.register(f"held_{i}", data, all_of(step, compare("==", place, i))) for i in range(group - 1)]
    fields = [(select(compare("==", place, i), data, held[i]), width) for i in range(group - 1)]
    m.output("in_ready", takes)
    m.output("out_valid", all_of(valid, last))
    m.output("out_data", pack([*fields, (data, width)]))
    return m


def scatter_module(name: str, carriage: Carriage) -> Module:
    """Cells in, beats out: a cell is taken with its last beat."""
    width, group = carriage.form.data_bits, carriage.group
    m = Module(name, (f"Cells to {group} beats of {width} bits.",))
    valid, data, ready = m.input("in_valid"), m.input("in_data", width * group), m.input("out_ready")
    step = Signal(0, 1, "step")
    place, last = _place(m, carriage, step)
    m.wires.append((step, all_of(valid, ready)))
    m.output("in_ready", all_of(ready, last))
    m.output("out_valid", valid)
    m.output("out_data", choose(place, [data.bits(i * width, width) for i in range(group)]))
    return m
