"""One AXI4-Stream port each: a small FIFO, frames checked and converted, everything counted that tells where time goes.

`soft_rst` empties a port. What a partner on the bus has begun is ended first: an input swallows the rest of a packet that is
coming in, an output closes a packet that is going out with one word marked by `tuser`. With `abandon` neither happens.
"""

from __future__ import annotations

from dovetail.fpga.axi.gearbox import frame_in_module, frame_out_module
from dovetail.fpga.axi.pattern import ONES, pattern_module, updated
from dovetail.fpga.design import StreamPort
from dovetail.fpga.engines.stream import fifo_module
from dovetail.fpga.packing import packet_words, pixel_bytes
from dovetail.fpga.rtl.expressions import ONE, Expr, Signal, all_of, any_of, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Instance, Module

FIFO_WORDS = 32
"""Words of each stream FIFO; a board with a bursty bus puts deeper ones outside."""


def event_counter(m: Module, name: str, event: Expr, clear: Signal) -> Signal:
    """Events since `clear`, modulo 2**32, each counted a clock later."""
    value, happened = signal(name, 0, ONES), m.register(f"{name}_event", all_of(event, ~clear), reset=0)
    m.drive(value, select(clear, 0, value + happened), reset=0)
    return value


def checksum(m: Module, word: Signal, step: Expr, clear: Signal) -> Expr:
    """CRC-32 of the words of all steps since `clear`, each two clocks after its step."""
    state, stepped = signal("crc", 0, ONES), m.register("crc_step", all_of(step, ~clear), reset=0)
    m.drive(state, select(clear, ONES, updated(m, state, word)), any_of(clear, stepped), ONES)
    return const(ONES) - state


def high_water(m: Module, level: Signal, clear: Signal) -> Signal:
    """The most a FIFO held since `clear`."""
    mark = signal("mark", 0, level.hi)
    m.drive(mark, select(clear, 0, select(compare(">", level, mark), level, mark)), reset=0)
    return mark


def output32(m: Module, name: str, value: Expr) -> None:
    """An output port of 32 bits."""
    m.output(name, m.wire(f"{name}_word", value, (0, ONES)))


def controls(m: Module) -> tuple[Signal, Signal, Signal, Signal]:
    """What the control module tells every port."""
    return m.input("soft_rst"), m.input("abandon"), m.input("clear"), m.input("testing")


def input_port(name: str, port: StreamPort, number: int, bus_bits: int, bounds: tuple[int, int] | None) -> list[Module]:
    """An input: packets of an AXI4-Stream to pixels of the core, or the test pattern; the port's module comes first.

    Without `bounds` it has no pattern: weights are loaded through it, in the self-test too.
    """
    m = Module(name, (f"AXI4-Stream input of {port.channels}x{port.height}x{port.width}, {port.bits} bits per channel.",))
    soft_rst, abandon, clear, testing = controls(m)
    enable = m.input("enable")
    out_ready = m.input("out_ready")
    word_valid, word_ready, word, fifo = _receive(m, bus_bits, (soft_rst, abandon, clear))
    word_data, word_last = m.wire("word_data", word.bits(0, bus_bits)), m.wire("word_last", word.bit(bus_bits))
    own = ONE if bounds is None else ~testing
    may_start = m.wire("may_start", all_of(enable, own))
    parts = {p: m.net(f"frame_{p}") for p in ("valid", "active", "starved", "taken", "done", "early", "late")}
    frame_data, core_ready = m.net("frame_data", port.data_bits), m.wire("core_ready", all_of(out_ready, own))
    frame = frame_in_module(f"{name}_frame", port, bus_bits)
    m.instances.append(Instance(frame.name, "frame", (
        ("in_valid", word_valid), ("in_ready", word_ready), ("in_data", word_data), ("in_last", word_last),
        ("may_start", may_start), ("out_valid", parts["valid"]), ("out_ready", core_ready), ("out_data", frame_data),
        *((p, parts[p]) for p in ("active", "starved", "taken", "done", "early", "late"))), soft_rst))
    valid: Expr = parts["valid"]
    data: Expr = frame_data
    test: list[Module] = []
    if bounds is not None:
        test.append(pattern_module(f"{name}_pattern", port, number, *bounds))
        test_valid, test_data = m.net("test_valid"), m.net("test_data", port.data_bits)
        m.instances.append(Instance(test[0].name, "pattern", (
            ("run", testing), ("out_valid", test_valid), ("out_ready", out_ready), ("out_data", test_data)), soft_rst))
        valid, data = select(testing, test_valid, valid), select(testing, test_data, data)
    m.drive_outputs(out_valid=valid, out_data=data, active=parts["active"])
    output32(m, "frames", event_counter(m, "frame_count", parts["done"], clear))
    output32(m, "starved", event_counter(m, "starved_count", parts["starved"], clear))
    output32(m, "early", event_counter(m, "early_count", parts["early"], clear))
    output32(m, "late", event_counter(m, "late_count", parts["late"], clear))
    error = signal("length_error")
    m.drive(error, select(clear, 0, any_of(error, parts["early"], parts["late"])), reset=0)
    m.output("error", error)
    output32(m, "crc_value", checksum(m, word_data, parts["taken"], clear))
    return [m, fifo, frame, *test]


def _receive(m: Module, bus_bits: int, control: tuple[Signal, Signal, Signal]) -> tuple[Signal, Signal, Signal, Module]:
    """The bus side of an input; returns the FIFO's valid, ready and word, and its module.

    Whether a packet is under way outlives a soft reset, so that its rest is not taken for a packet of its own.
    """
    soft_rst, abandon, clear = control
    tvalid, tdata, tlast = m.input("tvalid"), m.input("tdata", bus_bits), m.input("tlast")
    room, level = m.net("room"), m.net("fifo_level", FIFO_WORDS.bit_length())
    inside, draining = signal("in_packet"), signal("draining")
    tready = m.wire("takes", all_of(~soft_rst, any_of(draining, room)))
    accepted = m.wire("accepted", all_of(tvalid, tready))
    gone = all_of(soft_rst, abandon)
    m.drive(inside, select(gone, 0, select(accepted, ~tlast, inside)), reset=0)
    ended = all_of(accepted, tlast)
    m.drive(draining, select(soft_rst, all_of(inside, ~abandon), all_of(draining, ~ended)), reset=0)
    written = m.wire("written", all_of(accepted, ~draining))
    word_in = m.wire("word_in", pack([(tdata, bus_bits), (tlast, 1)]))
    word_valid, word_ready, word = m.net("word_valid"), m.net("word_ready"), m.net("word", bus_bits + 1)
    fifo = fifo_module(f"{m.name}_fifo", bus_bits + 1, FIFO_WORDS, level=True)
    m.instances.append(Instance(fifo.name, "fifo", (
        ("in_valid", written), ("in_ready", room), ("in_data", word_in),
        ("out_valid", word_valid), ("out_ready", word_ready), ("out_data", word), ("level", level)), soft_rst))
    m.drive_outputs(tready=tready, waiting=draining)
    output32(m, "stalls", event_counter(m, "stall_count", all_of(tvalid, ~tready), clear))
    output32(m, "high_water", high_water(m, level, clear))
    return word_valid, word_ready, word, fifo


def output_port(name: str, port: StreamPort, bus_bits: int) -> list[Module]:
    """An output: pixels of the core to packets of an AXI4-Stream; in the self-test only their checksum is made."""
    m = Module(name, (f"AXI4-Stream output of {port.channels}x{port.height}x{port.width}, {port.bits} bits per channel.",))
    soft_rst, abandon, clear, testing = controls(m)
    in_valid, tready = m.input("in_valid"), m.input("tready")
    in_data = _without_rest(m, port, m.input("in_data", port.data_bits), in_valid)
    in_ready, made, last, room = m.net("in_ready_wire"), m.net("made"), m.net("made_last"), m.net("room")
    data = m.net("made_data", bus_bits)
    frame = frame_out_module(f"{name}_frame", port, bus_bits)
    wanted = m.wire("wanted", any_of(testing, room))
    m.instances.append(Instance(frame.name, "frame", (
        ("in_valid", in_valid), ("in_ready", in_ready), ("in_data", in_data),
        ("out_valid", made), ("out_ready", wanted), ("out_data", data), ("out_last", last)), soft_rst))
    counts = m.wire("counts", all_of(made, wanted))
    test_ended = signal("test_ended")
    summed = m.register("test_summed", all_of(counts, last, testing, ~soft_rst), reset=0)  # the checksum is a clock behind
    m.drive(test_ended, select(soft_rst, 0, any_of(test_ended, summed)), reset=0)
    written, word_in = m.wire("written", all_of(made, ~testing)), m.wire("word_in", pack([(data, bus_bits), (last, 1)]))
    word_valid, word, level = m.net("word_valid"), m.net("word", bus_bits + 1), m.net("fifo_level", FIFO_WORDS.bit_length())
    fifo = fifo_module(f"{name}_fifo", bus_bits + 1, FIFO_WORDS, level=True)
    word_ready = _send(m, port, bus_bits, (soft_rst, abandon, clear), tready, word_valid, word)
    m.instances.append(Instance(fifo.name, "fifo", (
        ("in_valid", written), ("in_ready", room), ("in_data", word_in),
        ("out_valid", word_valid), ("out_ready", word_ready), ("out_data", word), ("level", level)), soft_rst))
    m.drive_outputs(in_ready=in_ready, test_done=test_ended)
    output32(m, "crc_value", checksum(m, data, counts, clear))
    output32(m, "high_water", high_water(m, level, clear))
    return [m, fifo, frame]


def _without_rest(m: Module, port: StreamPort, data: Signal, valid: Signal) -> Signal:
    """A beat with zeros for channels beyond the last, which the core leaves open where a pixel's last word is not full."""
    used = port.channels - (port.words - 1) * port.fields
    if used == port.fields:
        return data
    taken = m.wire("word_taken", all_of(valid, signal("in_ready_wire")))
    _, last = m.counted("word_of_pixel", port.words, taken)
    return m.wire("in_channels", select(last, data.bits(0, used * port.bits), data), (0, data.hi))


def _send(m: Module, port: StreamPort, bus_bits: int, control: tuple[Signal, Signal, Signal], tready: Signal,
          word_valid: Signal, word: Signal) -> Signal:
    """The register at the bus, which outlives a soft reset because a word once shown must stay; returns the FIFO's ready."""
    soft_rst, abandon, clear = control
    valid, last, cut, inside, closing = (signal(s) for s in ("send_valid", "send_last", "send_cut", "in_packet", "closing"))
    shown = signal("send_data", 0, (1 << bus_bits) - 1)
    free = m.wire("free", any_of(~valid, tready))
    load = m.wire("load", all_of(free, ~soft_rst, any_of(closing, word_valid)))
    gone = m.wire("gone", all_of(soft_rst, abandon))
    load_last = m.wire("load_last", any_of(closing, word.bit(bus_bits)))
    m.drive(valid, select(gone, 0, select(free, load, valid)), reset=0)
    m.drive(inside, select(gone, 0, select(load, ~load_last, inside)), reset=0)
    m.drive(closing, select(soft_rst, all_of(any_of(closing, inside), ~abandon), all_of(closing, ~load)), reset=0)
    m.drive(last, load_last, load)
    m.drive(cut, closing, load)
    m.drive(shown, select(closing, 0, word.bits(0, bus_bits)), load)
    used = port.beats * pixel_bytes(port) - (packet_words(port, bus_bits) - 1) * bus_bits // 8
    every, some = (1 << bus_bits // 8) - 1, (1 << used) - 1
    whole = any_of(~last, cut) if used < bus_bits // 8 else ONE
    sent = m.wire("sent", all_of(valid, tready, last))
    m.drive_outputs(tvalid=valid, tdata=shown)
    m.drive_outputs(tkeep=m.wire("keep", select(whole, every, some), (0, every)), tlast=last, tuser=cut, active=inside,
                    waiting=any_of(closing, all_of(valid, cut)))
    output32(m, "frames", event_counter(m, "frame_count", all_of(sent, ~cut), clear))
    output32(m, "aborted", event_counter(m, "aborted_count", all_of(sent, cut), clear))
    output32(m, "stalls", event_counter(m, "stall_count", all_of(valid, ~tready), clear))
    return m.wire("word_ready", all_of(free, ~soft_rst, ~closing))
