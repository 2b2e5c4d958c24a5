"""AXI4 master of a design's memory port: bursts of the core as INCR bursts on `m_axi_*`, many of them under way at once.

Contract with AMBA AXI4 (ARM IHI 0022): one ID, so answers come in order; a burst has at most 256 words and lies in one page of
4096 bytes, because the core's do not cross a multiple of 32 beats and the base is a multiple of a page; nothing is withdrawn
before it is taken. The core has room for every beat that it asked for, so `rready` and `bready` are always set. A soft reset
forgets no burst: addresses are kept until they are taken, what is read is dropped, what was to be written is sent without
strobes, and until memory has answered everything no new burst begins.
"""

from __future__ import annotations

from dovetail.fpga.axi.ports import event_counter, output32
from dovetail.fpga.design import MemoryPort
from dovetail.fpga.engines.stream import fifo_module
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, choose, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.hardware.arrays.jobs import BURST_BEATS

MASTER = "m_axi"
ADDRESS_BITS = 64
PAGE_BYTES = 4096
"""A burst stays inside a page of so many bytes, and BASE is a multiple of them."""
PAGE_BITS = PAGE_BYTES.bit_length() - 1
MOST_WORDS = 256
MOST_BURSTS = 32
"""Bursts of either direction under way at once."""
INCREMENTING, CACHE, PROTECTION = 1, 0b0011, 0b000
"""AxBURST; AxCACHE: normal, bufferable, not allocated; AxPROT: secure data access without privileges."""
REPORTS = ("status", "reads", "writes", "waits", "faults")
"""What the control module's registers show, 32 bits each."""


def possible_bits(port: MemoryPort) -> tuple[int, ...]:
    """Bus widths that a memory port can have: its own, or a fraction of it; none where its beats are no power of two."""
    beat = port.bytes
    if beat & (beat - 1) or beat * BURST_BEATS > PAGE_BYTES:
        return ()
    return tuple(8 * beat // k for k in (1, 2, 4, 8) if k <= beat // 4 and BURST_BEATS * k <= MOST_WORDS)


def master_pins(port: MemoryPort, bus_bits: int) -> list[tuple[str, int, bool]]:
    """The pins of the master as (name, bits, whether it is the master's input)."""
    address = [("addr", ADDRESS_BITS), ("len", 8), ("size", 3), ("burst", 2), ("cache", 4), ("prot", 3), ("valid", 1)]
    pins = [(f"ar{pin}", width, False) for pin, width in address]
    pins += [("arready", 1, True), ("rvalid", 1, True), ("rdata", bus_bits, True), ("rresp", 2, True), ("rlast", 1, True),
             ("rready", 1, False)]
    if port.writes:
        pins += [(f"aw{pin}", width, False) for pin, width in address]
        pins += [("awready", 1, True), ("wvalid", 1, False), ("wdata", bus_bits, False), ("wstrb", bus_bits // 8, False),
                 ("wlast", 1, False), ("wready", 1, True), ("bvalid", 1, True), ("bresp", 2, True), ("bready", 1, False)]
    return pins


class Master:
    """The module of a memory port's master while it is being made; `bus_bits` is one of `possible_bits`."""

    def __init__(self, name: str, port: MemoryPort, bus_bits: int) -> None:
        assert bus_bits in possible_bits(port)
        self.port, self.bus_bits, self.pieces = port, bus_bits, port.bytes * 8 // bus_bits
        self.m = m = Module(name, (f"AXI4 master: beats of {port.bytes} bytes on a bus of {bus_bits} bits, "
                                   f"{'reads and writes' if port.writes else 'reads'}.",))
        self.soft_rst, self.clear, self.enable = m.input("soft_rst"), m.input("clear"), m.input("enable")
        self.base = m.input("base", ADDRESS_BITS - PAGE_BITS)
        self.draining = signal("draining")
        self.modules: list[Module] = []
        self.busy: list[Expr] = []
        self.faults: list[tuple[Expr, Signal]] = []

    def build(self) -> list[Module]:
        """The master's modules, its own first."""
        m = self.m
        wants, writes = self._requests()
        reads = self._reads(all_of(wants, ~writes))
        written = self._writes(all_of(wants, writes)) if self.port.writes else None
        busy = m.wire("busy", any_of(*self.busy))
        m.drive(self.draining, any_of(self.soft_rst, all_of(self.draining, busy)), reset=0)
        m.output("waiting", self.draining)
        self._report(busy, reads, written or ZERO)
        return [m, *self.modules]

    def _requests(self) -> tuple[Signal, Expr]:
        """Take a request whenever none waits for its address to be taken; returns when, and whether it is one to write."""
        m, port = self.m, self.port
        valid, address, beats = m.input("request_valid"), m.input("request_address", 32), m.input("request_beats", 8)
        writes: Expr = m.input("request_write") if port.writes else ZERO
        ready = m.wire("ready", all_of(self.enable, ~self.soft_rst, ~self.draining, ~signal("ar_waits"),
                                       ~signal("aw_waits") if port.writes else ONE, ~m.net("reads_full"),
                                       all_of(~m.net("writes_full"), m.net("length_room")) if port.writes else ONE))
        m.output("request_ready", ready)
        accepted = m.wire("accepted", all_of(valid, ready))
        scale = port.bytes.bit_length() - 1
        at = m.register("at", (self.base << PAGE_BITS) + (address << scale), accepted,
                        bounds=(0, (1 << ADDRESS_BITS) - 1))
        words = beats.bits(0, BURST_BEATS.bit_length()) << self.pieces.bit_length() - 1
        length = m.register("length", words - 1, accepted, bounds=(0, MOST_WORDS - 1))
        self.most = m.wire("beats_behind", beats.bits(0, BURST_BEATS.bit_length()) - 1, (0, BURST_BEATS - 1))
        for channel in ("ar", "aw") if port.writes else ("ar",):
            size = (self.bus_bits // 8).bit_length() - 1
            fields = (("addr", at, at.hi), ("len", length, length.hi), ("size", const(size), 7),
                      ("burst", const(INCREMENTING), 3), ("cache", const(CACHE), 15), ("prot", const(PROTECTION), 7))
            for pin, value, most in fields:
                m.output(f"{channel}{pin}", m.wire(f"{channel}_{pin}", value, (0, most)))
        return accepted, writes

    def _under_way(self, name: str, channel: str, begins: Expr, ends: Expr) -> None:
        """The address of a burst until it is taken, and how many bursts have not been answered."""
        m, waits, count = self.m, signal(f"{channel}_waits"), signal(f"{name}_bursts", 0, MOST_BURSTS)
        taken = m.input(f"{channel}ready")
        m.drive(waits, any_of(begins, all_of(waits, ~taken)), reset=0)
        m.drive(count, count + begins - ends, reset=0)
        m.assigns.append((signal(f"{name}_full"), compare("==", count, MOST_BURSTS)))
        m.wire(f"{name}_waits", all_of(waits, ~taken))
        m.output(f"{channel}valid", waits)
        self.busy.append(compare("!=", count, 0))

    def _reads(self, begins: Expr) -> Signal:
        """Words that arrive, as beats for the core; returns when one does."""
        m = self.m
        begins = m.wire("read_begins", begins)
        arrived = m.register("arrived", m.input("rvalid"), reset=0)
        word, last = m.register("word", m.input("rdata", self.bus_bits)), m.register("word_last", m.input("rlast"))
        answer = m.register("word_answer", m.input("rresp", 2))
        m.output("rready", ONE)
        self._under_way("reads", "ar", begins, m.wire("read_ends", all_of(arrived, last)))
        self.faults.append((m.wire("read_fails", all_of(arrived, answer.bit(1))), answer))
        kept = all_of(arrived, ~self.draining)
        piece, whole = m.counted("piece", self.pieces, arrived)
        parts = [m.register(f"part_{k}", word, all_of(arrived, compare("==", piece, k))) for k in range(self.pieces - 1)]
        m.drive_outputs(valid=all_of(kept, whole), data=pack([(part, self.bus_bits) for part in (*parts, word)]))
        return arrived

    def _writes(self, begins: Expr) -> Signal:
        """Beats of the core as words, each burst's last marked; returns when a word is sent."""
        m = self.m
        begins = m.wire("write_begins", begins)
        most = self._lengths(begins)
        ready, beat, beat_valid = m.input("wready"), m.input("write_data", self.port.bytes * 8), m.input("write_valid")
        shown, last, marked = signal("w_valid"), signal("w_last"), signal("w_marked")
        free = m.wire("w_free", any_of(~shown, ready))
        some = signal("length_there")
        step = m.wire("w_step", all_of(free, some, any_of(beat_valid, self.draining)))
        piece, whole = m.counted("w_piece", self.pieces, step)
        place = signal("w_beat", 0, BURST_BEATS - 1)
        ends = m.wire("w_ends", all_of(whole, compare("==", place, most)))
        m.drive(place, select(ends, 0, place + 1), all_of(step, whole), 0)
        m.wire("length_done", all_of(step, ends))
        m.drive(shown, any_of(step, all_of(shown, ~ready)), reset=0)
        m.drive(last, ends, step)
        m.drive(marked, ~self.draining, step)
        m.drive_outputs(write_ready=all_of(free, some, whole, ~self.draining), wvalid=shown)
        words = [beat.bits(k * self.bus_bits, self.bus_bits) for k in range(self.pieces)]
        m.output("wdata", m.register("w_word", choose(piece, words), step))
        strobes = (1 << self.bus_bits // 8) - 1
        m.drive_outputs(wstrb=m.wire("w_strobes", select(marked, strobes, 0), (0, strobes)), wlast=last)
        answered, answer = m.register("answered", m.input("bvalid"), reset=0), m.register("answer", m.input("bresp", 2))
        m.drive_outputs(bready=ONE, written=all_of(answered, ~self.draining))
        self._under_way("writes", "aw", begins, answered)
        self.faults.append((m.wire("write_fails", all_of(answered, answer.bit(1))), answer))
        return step

    def _lengths(self, begins: Signal) -> Signal:
        """Beats, less one, of the bursts whose words have not all been sent; the first of them."""
        m, width = self.m, self.most.width
        fifo = fifo_module(f"{m.name}_lengths", width, MOST_BURSTS)
        first, there, done = m.net("length_first", width), m.net("length_there"), signal("length_done")
        m.instances.append(Instance(fifo.name, "lengths", (
            ("in_valid", begins), ("in_ready", signal("length_room")), ("in_data", self.most),
            ("out_valid", there), ("out_ready", done), ("out_data", first))))
        self.modules.append(fifo)
        return first

    def _report(self, busy: Signal, reads: Signal, writes: Expr) -> None:
        """Errors until CLEAR, and counters."""
        m = self.m
        seen: list[Expr] = []
        first: list[Expr] = []
        for name, (fails, answer) in zip(("read", "write"), self.faults, strict=False):
            error, kind = signal(f"{name}_error"), signal(f"{name}_response", 0, 3)
            m.drive(error, all_of(~self.clear, any_of(error, fails)), reset=0)
            m.drive(kind, select(self.clear, 0, answer), any_of(self.clear, all_of(fails, ~error)), 0)
            seen.append(error)
            first.append(kind)
        absent = [ZERO] * (2 - len(seen))
        fields = [(busy, 1), *((e, 1) for e in (*seen, *absent)), (ZERO, 1), *((k, 2) for k in (*first, *absent))]
        m.output("error", any_of(*seen))
        output32(m, "status", pack(fields))
        output32(m, "reads", event_counter(m, "read_count", reads, self.clear))
        output32(m, "writes", event_counter(m, "write_count", writes, self.clear))
        waits = any_of(signal("reads_waits"), signal("writes_waits") if self.port.writes else ZERO)
        output32(m, "waits", event_counter(m, "wait_count", waits, self.clear))
        failing = [fails for fails, _ in self.faults]
        count = sum(failing[1:], failing[0])
        output32(m, "faults", event_counter(m, "fault_count", count, self.clear))
