"""Parts of a tensor from several boards become the stream a layer reads: channels side by side, rows one after another.

A map that is flattened on one board and read on another travels as pixels and is put into its order where it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.fpga.design import StreamPort
from dovetail.fpga.engines.stream import Format
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, compare, pack, select
from dovetail.fpga.rtl.modules import Module

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Area:
    """Channels and rows of a tensor; columns are never divided."""

    channels: Span
    rows: Span

    @property
    def fields(self) -> int:
        return self.channels[1] - self.channels[0]


def overlap(one: Span, other: Span) -> Span | None:
    """What two spans share; None where that is nothing."""
    start, stop = max(one[0], other[0]), min(one[1], other[1])
    return (start, stop) if start < stop else None


def joint_module(name: str, pieces: Sequence[Area], wanted: Area, width: int, field_bits: int) -> Module:
    """Streams `in0_…` of the pieces, whole pixels in raster order, to the stream `out_…` of the wanted area.

    Pieces of the same rows move together, pixel by pixel; bands of rows follow each other; rows nobody wants are taken and
    forgotten.
    """
    m = Module(name, (f"{len(pieces)} parts of a tensor to channels {wanted.channels}, rows {wanted.rows}.",))
    valid = [m.input(f"in{i}_valid") for i in range(len(pieces))]
    data = [m.input(f"in{i}_data", p.fields * field_bits) for i, p in enumerate(pieces)]
    out_ready = m.input("out_ready")
    rows = sorted({p.rows for p in pieces})
    bands = [[i for i in sorted(range(len(pieces)), key=lambda i: pieces[i].channels) if pieces[i].rows == r] for r in rows]
    active, passes, step = _turns(m, rows, wanted.rows, width)
    there = [m.wire(f"band{b}_there", all_of(*(valid[i] for i in band))) for b, band in enumerate(bands)]
    goes = m.wire("goes", any_of(out_ready, ~passes))
    present = any_of(*(all_of(on, t) for on, t in zip(active, there, strict=True)))
    m.wires.append((step, all_of(present, goes)))
    for b, band in enumerate(bands):
        for i in band:
            m.output(f"in{i}_ready", all_of(active[b], goes, *(valid[k] for k in band if k != i)))
    value: Expr = ZERO
    for on, band in zip(active, bands, strict=True):
        fields = pack([_cut(data[i], pieces[i], wanted, field_bits) for i in band])
        assert fields.width == wanted.fields * field_bits, "pieces cover what is wanted"
        value = fields if value == ZERO else select(on, fields, value)
    m.drive_outputs(out_valid=all_of(present, passes), out_data=value)
    return m


def _cut(data: Signal, piece: Area, wanted: Area, field_bits: int) -> tuple[Expr, int]:
    """The wanted channels of a piece's pixel, with their bits."""
    found = overlap(piece.channels, wanted.channels)
    assert found is not None
    count = (found[1] - found[0]) * field_bits
    return data.bits((found[0] - piece.channels[0]) * field_bits, count), count


def _turns(m: Module, rows: Sequence[Span], wanted: Span, width: int) -> tuple[list[Expr], Expr, Signal]:
    """Which band has its turn, whether its pixel is wanted, and the signal of a pixel taken, which the caller drives."""
    step = Signal(0, 1, "step")
    if len(rows) == 1 and rows[0] == wanted:
        return [ONE], ONE, step
    starts, total = [], 0
    for start, stop in rows:
        starts.append(total)
        total += (stop - start) * width
    at, _ = m.rounds("pixel", total, step)
    active: list[Expr] = []
    passes: list[Expr] = []
    for b, (start, stop) in enumerate(rows):
        end = starts[b] + (stop - start) * width
        active.append(m.wire(f"band{b}_active", all_of(compare(">=", at, starts[b]), compare("<", at, end))))
        found = overlap((start, stop), wanted)
        assert found is not None
        first, last = (starts[b] + (row - start) * width for row in found)
        passes.append(all_of(compare(">=", at, first), compare("<", at, last)))
    return active, m.wire("wanted", any_of(*passes)), step


def is_flattened(form: Format, port: StreamPort) -> bool:
    """Whether an input reads as one pixel what arrives as a map of the same values."""
    pixels = form.height * form.width
    return (pixels > 1 and (port.height, port.width) == (1, 1) and port.channels == form.channels * pixels
            and (port.bits, port.signed) == (form.bits, form.signed))


def flatten_module(name: str, form: Format) -> Module:
    """Whole pixels in raster order in, one beat out: all pixels of the first channel, then of the next, as tensors are."""
    pixels, width = form.height * form.width, form.channels * form.bits
    m = Module(name, (f"{form.channels}x{form.height}x{form.width} of {form.bits} bits, flattened: one beat per frame.",))
    valid, data, ready = m.input("in_valid"), m.input("in_data", width), m.input("out_ready")
    step = Signal(0, 1, "step")
    at, last = m.rounds("pixel", pixels, step)
    takes = m.wire("takes", any_of(~last, ready))
    m.wires.append((step, all_of(valid, takes)))
    held = [m.register(f"held_{p}", data, all_of(step, compare("==", at, p))) for p in range(pixels - 1)]
    m.drive_outputs(in_ready=takes, out_valid=all_of(valid, last),
                    out_data=pack([(pixel.bits(c * form.bits, form.bits), form.bits)
                                   for c in range(form.channels) for pixel in (*held, data)]))
    return m
