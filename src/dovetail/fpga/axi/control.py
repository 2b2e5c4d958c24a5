"""The control module: AXI4-Lite registers, soft reset, self-test, and the clock counter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.axi import registers as map_of
from dovetail.fpga.axi.memory import PAGE_BITS, REPORTS
from dovetail.fpga.axi.pattern import ONES
from dovetail.fpga.axi.ports import FIFO_WORDS
from dovetail.fpga.design import StreamPort
from dovetail.fpga.packing import packet_words
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Module

RESET_CYCLES = 4
"""Cycles a soft reset lasts; one would do, more let a tool retime its fan-out."""
NAMED_BITS = 5
"""Address bits below which the registers of a read multiplexer share one named wire."""

INPUT_SOURCES = {"FRAMES": "frames", "STALLS": "stalls", "STARVED": "starved", "EARLY": "early", "LATE": "late",
                 "CRC": "crc_value", "HIGH_WATER": "high_water"}
OUTPUT_SOURCES = {"FRAMES": "frames", "STALLS": "stalls", "ABORTED": "aborted", "CRC": "crc_value", "HIGH_WATER": "high_water"}
"""Registers whose value is an output of a port's module, by that output's name."""
FLAGS = {"IN": ("active", "waiting", "error"), "OUT": ("active", "waiting", "test_done")}
MEMORY_FLAGS = ("waiting", "error")
LINK_SOURCES = {"STATUS": "status", "SPOILT": "spoilt", "RECEIVED": "received", "SENT": "sent"}
"""Registers of a link, by the outputs of the module that watches it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the registers say about a design: constants of one build."""

    inputs: tuple[StreamPort, ...]
    outputs: tuple[StreamPort, ...]
    bus_bits: int
    latency_cycles: int
    interval_cycles: int
    test_crcs: tuple[int, ...]
    build_hash: int
    memory: tuple[int, int, int] | None = None
    """Where the design has a memory port: bytes that it uses, bytes of the image at their beginning, and their CRC-32."""
    links: int = 0
    """Of a board that is joined to others, which has no self-test."""

    @property
    def counts(self) -> tuple[int, int, bool, int]:
        """What a register map depends on."""
        return len(self.inputs), len(self.outputs), self.memory is not None, self.links


@dataclass(frozen=True, slots=True)
class Write:
    """A register write of this cycle."""

    happens: Signal
    places: Mapping[int, Signal]
    value: Signal
    strobes: Signal

    def to(self, address: int) -> Expr:
        return all_of(self.happens, self.places[address])


def control_module(name: str, facts: Facts) -> Module:
    """Everything that is not a stream; `soft_rst` is the reset of the core and of what stands between it and the bus."""
    m = Module(name, ("AXI4-Lite registers, soft reset, self-test.",))
    places = map_of.addresses(*facts.counts)
    write = _write_channel(m, [p.address for p in map_of.placed(*facts.counts) if p.register.access == "RW"])
    flags = {f"{kind}{i}": {f: m.input(f"{kind.lower()}{i}_{f}") for f in FLAGS[kind]}
             for kind, ports in (("IN", facts.inputs), ("OUT", facts.outputs)) for i in range(len(ports))}
    values = _constants(facts)
    for kind, ports, sources in (("IN", facts.inputs, INPUT_SOURCES), ("OUT", facts.outputs, OUTPUT_SOURCES)):
        for i in range(len(ports)):
            values.update({f"{kind}{i}_{r}": m.input(f"{kind.lower()}{i}_{source}", 32) for r, source in sources.items()})
    values |= {f"LINK{i}_{r}": m.input(f"link{i}_{source}", 32) for i in range(facts.links) for r, source in LINK_SOURCES.items()}
    values["SCRATCH"] = _kept(m, "scratch", write, places["SCRATCH"])
    if facts.memory is not None:
        values |= _memory(m, write, places)
        flags["MEMORY"] = {f: m.input(f"memory_{f}") for f in MEMORY_FLAGS}
    enable, status, clear = _sequencer(m, write, places, flags, facts, values)
    values |= {"CONTROL": enable, "STATUS": status}
    cycles = signal("cycles", 0, (1 << 64) - 1)
    m.drive(cycles, select(clear, 0, cycles + 1), reset=0)
    high = m.register("cycles_held", cycles.bits(32, 32), signal("reads_low_cycles"), 0)
    values |= {"CYCLES_LO": cycles.bits(0, 32), "CYCLES_HI": high}
    _read_channel(m, places, values)
    return m


def _kept(m: Module, name: str, write: Write, place: int, lowest: int = 0) -> Signal:
    """A register that keeps what is written, byte by byte; bits below `lowest` stay zero."""
    value = signal(name, 0, ONES)
    octets = [(select(write.strobes.bit(i), write.value.bits(8 * i, 8), value.bits(8 * i, 8)), 8) for i in range(4)]
    mixed = m.wire(f"{name}_mixed", pack(octets))
    kept = pack([(ZERO, lowest), (mixed.bits(lowest, 32 - lowest), 32 - lowest)]) if lowest else mixed
    m.drive(value, kept, write.to(place), 0)
    return value


def _memory(m: Module, write: Write, places: Mapping[str, int]) -> dict[str, Expr]:
    """Where memory lies and whether it is used; returns the registers of the memory port that are not constant."""
    low = _kept(m, "memory_base_lo", write, places["MEMORY_BASE_LO"], PAGE_BITS)
    high = _kept(m, "memory_base_hi", write, places["MEMORY_BASE_HI"])
    enable = signal("memory_enable_bit")
    asked = write.value.bit(map_of.MEMORY_ENABLE.start)
    m.drive(enable, asked, all_of(write.to(places["MEMORY_CONTROL"]), write.strobes.bit(0)), 0)
    m.drive_outputs(memory_enable=enable, memory_base=pack([(low.bits(PAGE_BITS, 32 - PAGE_BITS), 32 - PAGE_BITS), (high, 32)]))
    return {"MEMORY_BASE_LO": low, "MEMORY_BASE_HI": high, "MEMORY_CONTROL": enable,
            **{f"MEMORY_{report.upper()}": m.input(f"memory_{report}", 32) for report in REPORTS}}


def _constants(facts: Facts) -> dict[str, Expr]:
    """Registers that never change."""
    capabilities = (len(facts.inputs), len(facts.outputs), facts.bus_bits // 8, FIFO_WORDS.bit_length() - 1)
    found = {"ID": map_of.IDENTITY, "VERSION": map_of.VERSION, "LATENCY": facts.latency_cycles, "INTERVAL": facts.interval_cycles,
             "CAPABILITIES": sum(value << 8 * i for i, value in enumerate(capabilities))}
    found |= {f"BUILD_HASH{i}": (facts.build_hash >> 32 * i) & ONES for i in range(map_of.HASH_WORDS)}
    for kind, ports in (("IN", facts.inputs), ("OUT", facts.outputs)):
        for i, port in enumerate(ports):
            found[f"{kind}{i}_SIZE"] = port.height << 16 | port.width
            found[f"{kind}{i}_FORMAT"] = port.signed << 24 | port.bits << 16 | port.channels
            found[f"{kind}{i}_WORDS"] = packet_words(port, facts.bus_bits)
            found[f"{kind}{i}_AT_ONCE"] = port.fields
    found |= {f"OUT{i}_TEST_CRC": crc for i, crc in enumerate(facts.test_crcs)}
    if facts.memory is not None:
        found |= dict(zip(("MEMORY_BYTES", "MEMORY_IMAGE_BYTES", "MEMORY_IMAGE_CRC"), facts.memory, strict=True))
    return {name: const(value) for name, value in found.items()}


def _write_channel(m: Module, writable: Sequence[int]) -> Write:
    """Address and data are kept until both are there; AXI wants no combinational path from an input to an output.

    A clock later the register they are for is known, and is written.
    """
    awvalid, awaddr = m.input("awvalid"), m.input("awaddr", map_of.ADDRESS_BITS)
    wvalid, wdata, wstrb, bready = m.input("wvalid"), m.input("wdata", 32), m.input("wstrb", 4), m.input("bready")
    has_address, has_data, answered, happens = (signal(s) for s in ("has_address", "has_data", "answered", "write"))
    m.drive(happens, all_of(has_address, has_data, ~answered, ~happens), reset=0)
    m.drive(has_address, select(happens, 0, any_of(has_address, awvalid)), reset=0)
    m.drive(has_data, select(happens, 0, any_of(has_data, wvalid)), reset=0)
    m.drive(answered, any_of(happens, all_of(answered, ~bready)), reset=0)
    place = m.register("write_word", awaddr.bits(2, map_of.ADDRESS_BITS - 2), ~has_address)
    value = m.register("write_value", wdata, ~has_data)
    strobes = m.register("write_strobes", wstrb, ~has_data)
    target = m.wire("write_address", pack([(ZERO, 2), (place, map_of.ADDRESS_BITS - 2)]))
    places = {known: m.register(f"writes_{known:03x}", compare("==", target, known)) for known in writable}
    answer = m.register("answer", select(any_of(*places.values()), map_of.OKAY, map_of.SLVERR), happens)
    m.drive_outputs(awready=~has_address, wready=~has_data, bvalid=answered, bresp=answer)
    return Write(happens, places, value, strobes)


def _sequencer(m: Module, write: Write, places: Mapping[str, int], flags: Mapping[str, Mapping[str, Signal]], facts: Facts,
               values: Mapping[str, Expr]) -> tuple[Expr, Expr, Signal]:
    """Soft reset and self-test; returns what CONTROL and STATUS read, and the clear pulse."""
    control = m.wire("write_control", all_of(write.to(places["CONTROL"]), write.strobes.bit(0)))
    asked = {f.name: write.value.bit(f.start)
             for f in (map_of.ENABLE, map_of.SOFT_RESET, map_of.ABANDON, map_of.CLEAR, map_of.SELF_TEST, map_of.HOLD)}
    asked |= {map_of.SELF_TEST.name: ZERO} if facts.links else {}
    starts = m.wire("starts", all_of(control, any_of(asked["SOFT_RESET"], asked["SELF_TEST"])))
    # A reset goes everywhere, so what it comes from is kept for a clock, and all that happens with it too.
    start = m.register("start_reset", starts, reset=0)
    test = m.register("start_test", all_of(control, asked["SELF_TEST"]), reset=0)
    clears = m.register("start_clear", all_of(control, any_of(asked["CLEAR"], asked["SELF_TEST"])), reset=0)
    enable = signal("enable_bit")
    m.drive(enable, asked["ENABLE"], control, 1)
    clear = m.register("clear_pulse", clears, reset=0)
    left = signal("reset_left", 0, RESET_CYCLES - 1)
    running = any_of(compare("!=", left, 0), *_held(m, control, asked["HOLD"], facts))
    m.drive(left, select(start, RESET_CYCLES - 1, select(compare("!=", left, 0), left - 1, 0)), reset=RESET_CYCLES - 1)
    soft_rst = m.register("soft_reset", any_of(start, running), reset=1)
    abandon = m.register("abandon_bit", all_of(asked["SOFT_RESET"], asked["ABANDON"]), starts, 1)
    waits, testing, done, passed = (signal(s) for s in ("test_waits", "test_runs", "test_done", "test_passed"))
    begin = m.wire("test_begins", all_of(waits, ~soft_rst))
    ended = m.wire("test_ends", all_of(testing, *(flags[f"OUT{i}"]["test_done"] for i in range(len(facts.outputs)))))
    right = all_of(*(compare("==", values[f"OUT{i}_CRC"], crc) for i, crc in enumerate(facts.test_crcs)))
    m.drive(waits, any_of(test, all_of(waits, ~begin)), reset=0)
    m.drive(testing, all_of(~start, any_of(begin, all_of(testing, ~ended))), reset=0)
    m.drive(done, all_of(~clear, any_of(ended, done)), reset=0)
    m.drive(passed, all_of(~clear, select(ended, right, passed)), reset=0)
    for port, value in (("soft_rst", soft_rst), ("abandon", abandon), ("clear", clear), ("testing", testing), ("enable", enable)):
        m.output(port, value)

    def some(flag: str, *kinds: str) -> Expr:
        return any_of(*(found[flag] for name, found in flags.items() if name.rstrip("0123456789") in kinds))

    fields: tuple[Expr, ...] = (
        any_of(soft_rst, some("waiting", "IN", "OUT", "MEMORY")), any_of(waits, testing), done, passed,
        some("active", "IN"), some("active", "OUT"), some("error", "IN"), some("error", "MEMORY"))
    fields += (m.input("links_up"), m.input("link_alarm")) if facts.links else ()
    kept = pack([(enable, 1), (ZERO, map_of.HOLD.start - 1), (signal("hold_bit"), 1)]) if facts.links else enable
    return kept, pack([(value, 1) for value in fields]), clear


def _held(m: Module, control: Signal, asked: Expr, facts: Facts) -> list[Expr]:
    """Of boards joined by links: whether the host holds the reset."""
    if not facts.links:
        return []
    hold = signal("hold_bit")
    m.drive(hold, asked, control, 0)
    return [hold]


def _read_channel(m: Module, places: Mapping[str, int], values: Mapping[str, Expr]) -> None:
    """An address is taken, one cycle later its register is read, and the answer stays until it is fetched."""
    arvalid, araddr, rready = m.input("arvalid"), m.input("araddr", map_of.ADDRESS_BITS), m.input("rready")
    looking, answered = signal("looking"), signal("read_answered")
    free = m.wire("read_free", ~any_of(looking, answered))
    taken = m.wire("read", all_of(arvalid, free))
    address = m.register("read_address", araddr.bits(2, map_of.ADDRESS_BITS - 2), taken)
    m.drive(looking, taken, reset=0)
    m.drive(answered, any_of(looking, all_of(answered, ~rready)), reset=0)
    entries = {places[name] // 4: m.wire(f"{name.lower()}_register", value, (0, ONES)) for name, value in values.items()}
    assert set(entries) == {place // 4 for place in places.values()}
    word = m.register("read_word", chosen(m, address, entries, address.width - 1), looking)
    known = m.wire("known", chosen(m, address, dict.fromkeys(entries, ONE), address.width - 1, complete=True))
    answer = m.register("read_answer", select(known, map_of.OKAY, map_of.SLVERR), looking)
    m.wire("reads_low_cycles", all_of(looking, compare("==", address, places["CYCLES_LO"] // 4)))
    m.drive_outputs(arready=free, rvalid=answered, rdata=word, rresp=answer)


def chosen(m: Module, address: Signal, entries: Mapping[int, Expr], bit: int, complete: bool = False) -> Expr:
    """The entry at an address as a tree of choices; elsewhere zero if `complete`, anything if not."""
    if not entries:
        return ZERO
    if bit < 0:
        return next(iter(entries.values()))
    upper = {place: value for place, value in entries.items() if place >> bit & 1}
    lower = {place: value for place, value in entries.items() if not place >> bit & 1}
    if not complete and not (upper and lower):
        return chosen(m, address, upper or lower, bit - 1)
    then, otherwise = (chosen(m, address, half, bit - 1, complete) for half in (upper, lower))
    made = select(address.bit(bit), then, otherwise)
    if not complete and bit == NAMED_BITS - 2:
        return m.wire(f"block_{min(entries) * 4:03x}", made)
    return made

