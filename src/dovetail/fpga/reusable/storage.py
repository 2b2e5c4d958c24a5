"""Memories of a block: banks of maps with one port each way, and wide words of weights that are filled beat by beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.engines.stream import BLOCK_MEMORY_BITS, LUT_MEMORY_DEPTH
from dovetail.fpga.reusable.array import Table
from dovetail.fpga.reusable.descriptors import Entries, count_up, read_entries
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, add, all_of, any_of, bits, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Memory, Module


@dataclass(frozen=True, slots=True)
class Access:
    """Someone at a port of a bank, while `when`: the address, and for writers the word."""

    when: Expr
    address: Signal
    word: Signal | None = None


def bank(module: Module, name: str, width: int, depth: int, readers: Sequence[Access], writers: Sequence[Access],
         read: Signal) -> None:
    """A memory of maps; of several readers (or writers) never two want it at once, and the last one is not asked."""
    block = depth > LUT_MEMORY_DEPTH and depth * width >= BLOCK_MEMORY_BITS
    enable = module.wire(f"{name}_writes", any_of(*(w.when for w in writers)))
    address = module.wire(f"{name}_write_address", _of(writers, [_cut(w.address, depth) for w in writers]))
    words = [w.word for w in writers if w.word is not None]
    module.memories.append(Memory(name, width, depth, enable, address, _of(writers, words),
                                  module.wire(f"{name}_read_address", _of(readers, [_cut(r.address, depth) for r in readers])),
                                  read, block))


def _cut(address: Signal, depth: int) -> Expr:
    needed = max(1, (depth - 1).bit_length())
    return bits(address, 0, needed) if address.width > needed else address


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
            fields.append((bits(self.pieces[piece], at, here), here))
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
    block = depth > LUT_MEMORY_DEPTH and depth * size >= BLOCK_MEMORY_BITS
    pieces = []
    for k in range(count):
        alone = beat.piece is None or (count == 1 and first is None)
        own = ONE if alone or beat.piece is None else compare("==", beat.piece, const((first or 0) + k))
        read = signal(f"{name}_{k}_read", 0, (1 << size) - 1)
        module.memories.append(Memory(f"{name}_{k}", size, depth, module.wire(f"{name}_{k}_fills", all_of(beat.when, own)),
                                      _cut(beat.address, depth), beat.value, address, read, block))
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
    word_last = count_up(module, f"{name}_word", fields["word_most"], token)
    pixel_last = count_up(module, f"{name}_pixel", fields["pixel_most"], all_of(token, word_last))
    module.assigns.append((last, all_of(token, word_last, pixel_last)))
    first, running = signal(f"{name}_first"), signal(f"{name}_running", 0, (1 << address_bits) - 1)
    module.drive(first, last, token, 1)
    extra = select(all_of(fields.get("from_input", ZERO), parity), const(frame_words), ZERO)
    address = module.wire(f"{name}_address", select(first, add(fields["base"], extra), running), (0, (1 << address_bits) - 1))
    module.drive(running, add(address, select(word_last, fields["jump"], ONE)), token)
    return AddressWalk(address, fields, last, entries)
