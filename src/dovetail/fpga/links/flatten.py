"""A map that is flattened on one board and read on another: it travels as pixels and is put into its order where it is read."""

from __future__ import annotations

from dovetail.fpga.design import StreamPort
from dovetail.fpga.engines.stream import Format
from dovetail.fpga.rtl.expressions import Signal, all_of, any_of, bits, compare, const, negate, pack
from dovetail.fpga.rtl.modules import Module


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
    takes = m.wire("takes", any_of(negate(last), ready))
    m.wires.append((step, all_of(valid, takes)))
    held = [m.register(f"held_{p}", data, all_of(step, compare("==", at, const(p)))) for p in range(pixels - 1)]
    m.output("in_ready", takes)
    m.output("out_valid", all_of(valid, last))
    m.output("out_data", pack([(bits(pixel, c * form.bits, form.bits), form.bits)
                               for c in range(form.channels) for pixel in (*held, data)]))
    return m
