"""Memories of a block: tables of its layer program in ROM, banks of maps with one port each way, wide words of weights.

Tables are read ahead through a small FIFO: a unit takes a job's entry when it comes to that job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.engines.stream import in_blocks, reserved_fifo
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, bit_width, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Memory, Module, Rom

Table = dict[str, list[int]]
"""Fields of entries by name, job after job."""
READ_AHEAD = 4
"""Entries that wait for their unit."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The entry at hand: whether there is one, and its fields by name; fields that never change are constants."""

    valid: Signal
    fields: Mapping[str, Expr]
    fifo: Module


def read_entries(module: Module, name: str, table: Table, taken: Signal) -> Entries:
    """Entries in order, again and again; `taken` ends the one at hand."""
    fields: dict[str, Expr] = {}
    changing = [(key, values, min(values), max(values)) for key, values in table.items() if len(set(values)) > 1]
    width = sum(bit_width(lo, hi) for _, _, lo, hi in changing) or 1
    count = len(next(iter(table.values())))
    words = [0] * count
    head = module.net(f"{name}_entry", width)
    at = 0
    for key, values, lo, hi in changing:
        size = bit_width(lo, hi)
        for index, value in enumerate(values):
            words[index] |= (value & ((1 << size) - 1)) << at
        fields[key] = module.wire(f"{name}_next_{key}", head.field(at, lo, hi))
        at += size
    fields.update({key: const(values[0]) for key, values in table.items() if len(set(values)) == 1})
    spare = signal(f"{name}_spare", 0, READ_AHEAD)
    fetch = module.wire(f"{name}_fetch", compare("!=", spare, 0))
    module.drive(spare, spare + taken - fetch, reset=READ_AHEAD)
    place = module.counter(f"{name}_place", count, fetch) if count > 1 else ZERO
    read = signal(f"{name}_read", 0, (1 << width) - 1)
    module.roms.append(Rom(f"{name}_table", width, tuple(words), place, read, in_blocks(count, width)))
    arriving = module.register(f"{name}_arriving", fetch, reset=0)
    arrived = module.register(f"{name}_arrived", arriving, reset=0)
    entry = module.register(f"{name}_held", read)
    valid = module.net(f"{name}_valid")
    return Entries(valid, fields, reserved_fifo(module, f"{name}_fifo", READ_AHEAD, (arrived, entry), (valid, taken, head)))


def kept_entry(module: Module, name: str, entries: Entries, load: Expr) -> dict[str, Expr]:
    """The fields of the job that was begun last, in registers; constants stay constants."""
    return {key: module.register(f"{name}_now_{key}", value, load) if isinstance(value, Signal) else value
            for key, value in entries.fields.items()}


def count_up(module: Module, name: str, most: Expr, step: Expr) -> tuple[Expr, Expr]:
    """A counter from 0 to `most` that starts again behind it, and whether it is there; `most` may change between rounds."""
    if most == ZERO:
        return ZERO, ONE
    value = signal(f"{name}_at", 0, most.hi)
    last = module.wire(f"{name}_last", compare("==", value, most))
    module.drive(value, select(last, 0, value + 1), step, 0)
    return value, last


@dataclass(frozen=True, slots=True)
class Access:
    """Someone at a port of a bank, while `when`: the address, and for writers the word."""

    when: Expr
    address: Signal
    word: Signal | None = None


def bank(module: Module, name: str, width: int, depth: int, readers: Sequence[Access], writers: Sequence[Access],
         read: Signal) -> None:
    """A memory of maps; of several readers (or writers) never two want it at once, and the last one is not asked."""
    enable = module.wire(f"{name}_writes", any_of(*(w.when for w in writers)))
    address = module.wire(f"{name}_write_address", _of(writers, [_cut(w.address, depth) for w in writers]))
    words = [w.word for w in writers if w.word is not None]
    module.memories.append(Memory(name, width, depth, enable, address, _of(writers, words),
                                  module.wire(f"{name}_read_address", _of(readers, [_cut(r.address, depth) for r in readers])),
                                  read, in_blocks(depth, width)))


def _cut(address: Signal, depth: int) -> Expr:
    needed = max(1, (depth - 1).bit_length())
    return address.bits(0, needed) if address.width > needed else address


def _of(accesses: Sequence[Access], values: Sequence[Expr]) -> Expr:
    chosen = values[-1]
    for access, value in list(zip(accesses, values, strict=True))[-2::-1]:
        chosen = select(access.when, value, chosen)
    return chosen


@dataclass(frozen=True, slots=True)
class WideMemory:
    """A memory of wide words, filled beat by beat: what is read, two clocks after its address, in pieces of a beat."""

    pieces: tuple[Signal, ...]

    def slice(self, module: Module, name: str, start: int, count: int) -> Signal:
        """Bits of the word under a name of their own."""
        beat = self.pieces[0].width
        fields = []
        while count:
            piece, at = divmod(start, beat)
            here = min(count, beat - at)
            fields.append((self.pieces[piece].bits(at, here), here))
            start, count = start + here, count - here
        return module.wire(name, pack(fields))


@dataclass(frozen=True, slots=True)
class Beat:
    """A beat on its way into a memory: whether it is meant for it, which piece of which word it is."""

    when: Expr
    piece: Signal | None
    address: Signal
    value: Signal


def filled_memory(module: Module, name: str, width: int, depth: int, beat: Beat, address: Expr,
                  first: int | None = None) -> WideMemory:
    """Words of `width` bits in pieces of a beat: of all that arrive for a word, or from number `first` of them on."""
    size = beat.value.width
    count = -(-width // size)
    pieces = []
    for k in range(count):
        alone = beat.piece is None or (count == 1 and first is None)
        own = ONE if alone or beat.piece is None else compare("==", beat.piece, (first or 0) + k)
        read = signal(f"{name}_{k}_read", 0, (1 << size) - 1)
        module.memories.append(Memory(f"{name}_{k}", size, depth, module.wire(f"{name}_{k}_fills", all_of(beat.when, own)),
                                      _cut(beat.address, depth), beat.value, address, read, in_blocks(depth, size)))
        pieces.append(module.register(f"{name}_{k}_held", read))
    return WideMemory(tuple(pieces))


@dataclass(frozen=True, slots=True)
class AddressWalk:
    """Addresses of a job's words in the order in which they are written (or read again for an addition)."""

    address: Signal
    fields: Mapping[str, Expr]
    last: Signal
    """Whether this is the job's last word."""
    entries: Entries


def walk(module: Module, name: str, table: Table, token: Expr, address_bits: int, parity: Expr = ZERO,
         frame_words: int = 0) -> AddressWalk:
    """One address per `token`; the table has base, word_most, pixel_most, jump and whatever else a job's words need.

    Where it has `from_input`, those jobs' addresses follow the half of the input buffer that `parity` names.
    """
    last = module.net(f"{name}_last")
    entries = read_entries(module, name, table, last)
    fields = entries.fields
    _, word_last = count_up(module, f"{name}_word", fields["word_most"], token)
    _, pixel_last = count_up(module, f"{name}_pixel", fields["pixel_most"], all_of(token, word_last))
    module.assigns.append((last, all_of(token, word_last, pixel_last)))
    first, running = signal(f"{name}_first"), signal(f"{name}_running", 0, (1 << address_bits) - 1)
    module.drive(first, last, token, 1)
    extra = select(all_of(fields.get("from_input", ZERO), parity), frame_words, 0)
    address = module.wire(f"{name}_address", select(first, fields["base"] + extra, running), (0, (1 << address_bits) - 1))
    module.drive(running, address + select(word_last, fields["jump"], 1), token)
    return AddressWalk(address, fields, last, entries)
