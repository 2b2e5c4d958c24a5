"""Tables of a layer program in ROM, read ahead through a small FIFO: a unit takes a job's entry when it comes to that job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.engines.stream import BLOCK_MEMORY_BITS, LUT_MEMORY_DEPTH, fifo_module
from dovetail.fpga.rtl.expressions import (
    ONE,
    Bits,
    Const,
    Expr,
    Signal,
    add,
    bit_width,
    choose,
    compare,
    const,
    select,
    signal,
    subtract,
)
from dovetail.fpga.rtl.modules import Instance, Module, Rom

READ_AHEAD = 4
"""Entries that wait for their unit."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The entry at hand: whether there is one, and its fields by name; fields that never change are constants."""

    valid: Signal
    fields: Mapping[str, Expr]
    fifo: Module


def read_entries(module: Module, name: str, table: Mapping[str, Sequence[int]], taken: Signal) -> Entries:
    """Entries in order, again and again; `taken` ends the one at hand."""
    fields: dict[str, Expr] = {}
    changing = [(key, values, min(values), max(values)) for key, values in table.items() if len(set(values)) > 1]
    width = sum(bit_width(lo, hi) for _, _, lo, hi in changing) or 1
    count = len(next(iter(table.values())))
    words = [0] * count
    head = module.net(f"{name}_entry", width)
    at = 0
    for key, values, lo, hi in changing:
        bits = bit_width(lo, hi)
        for index, value in enumerate(values):
            words[index] |= (value & ((1 << bits) - 1)) << at
        fields[key] = module.wire(f"{name}_next_{key}", Bits(lo, hi, head, at, bits))
        at += bits
    fields.update({key: const(values[0]) for key, values in table.items() if len(set(values)) == 1})
    spare = signal(f"{name}_spare", 0, READ_AHEAD)
    fetch = module.wire(f"{name}_fetch", compare("!=", spare, const(0)))
    module.drive(spare, subtract(add(spare, taken), fetch), reset=READ_AHEAD)
    place = module.counter(f"{name}_place", count, fetch) if count > 1 else None
    read = signal(f"{name}_read", 0, (1 << width) - 1)
    block = count > LUT_MEMORY_DEPTH and count * width >= BLOCK_MEMORY_BITS
    module.roms.append(Rom(f"{name}_table", width, tuple(words), const(0) if place is None else place, read, block))
    arriving = module.register(f"{name}_arriving", fetch, reset=0)
    arrived = module.register(f"{name}_arrived", arriving, reset=0)
    entry = module.register(f"{name}_held", read)
    fifo = fifo_module(f"{module.name}_{name}_fifo", width, READ_AHEAD, reserved=True)
    valid = module.net(f"{name}_valid")
    module.instances.append(Instance(fifo.name, f"{name}_fifo", (
        ("in_valid", arrived), ("in_data", entry), ("out_valid", valid), ("out_ready", taken), ("out_data", head))))
    return Entries(valid, fields, fifo)


def kept_entry(module: Module, name: str, entries: Entries, load: Expr) -> dict[str, Expr]:
    """The fields of the job that was begun last, in registers; constants stay constants."""
    return {key: value if isinstance(value, Const) else module.register(f"{name}_now_{key}", value, load)
            for key, value in entries.fields.items()}


def count_up(module: Module, name: str, most: Expr, step: Expr) -> Expr:
    """The bit "at the last value" of a counter from 0 to `most` that starts again behind it; `most` may change between rounds."""
    if isinstance(most, Const) and most.lo == 0:
        return ONE
    value = signal(f"{name}_at", 0, most.hi)
    last = module.wire(f"{name}_last", compare("==", value, most))
    module.drive(value, select(last, const(0), add(value, const(1))), step, 0)
    return last


def chosen(module: Module, name: str, index: Expr, options: Sequence[Expr]) -> Expr:
    """options[index] where the index may be constant."""
    if isinstance(index, Const):
        return options[index.lo]
    return choose(index if isinstance(index, Signal) else module.wire(name, index), options)
