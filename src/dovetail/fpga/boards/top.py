"""The whole chip: a design's shell behind the link shell, in Verilog, on a board's serial line.

    clock -> generator -> clk            from_host -> UART -> link -> registers and frames of NAME_axi -> link -> UART -> to_host

Frames wait in block memory, so that neither a damaged frame reaches the design nor a slow one blocks the line. The host keeps no
more frames under way than there is room for (`ROOM_ADDRESS` of the link).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from dovetail.errors import UnsupportedError, UsageError
from dovetail.fpga.axi.shell import LITE, LITE_IN, LITE_OUT, Shell
from dovetail.fpga.boards.clocks import ClockGenerator, clock_generator
from dovetail.fpga.design import StreamPort
from dovetail.fpga.framing import DESIGN_MASK
from dovetail.fpga.packing import packet_bytes, packet_words
from dovetail.platform.top import BoardTop

MOST_ROOM = 8
"""Frames that a link has room for at the most: as many as a host keeps under way."""
LEAST_CLOCKS = 8
"""Clocks of a bit at the least, so that sampling it in its middle is off by less than an eighth."""
SILENCE_BITS = 18
"""A message is given up after 2 to the power of so many bits of the line without a byte: 87 ms at 3 Mbaud, which is longer than a
host that writes a message at once pauses."""
TEXT_BYTES, TEXTS = 128, 16
FAULTS = (
    "", "link: a message does not begin as it should, bytes were lost", "link: a message's header was damaged on the way, its "
    "checksum differs; check the link", "link: a message of an unknown version or kind; update the older end",
    "link: a message was damaged on the way, its checksum differs; check the link",
    "link: messages were lost or repeated", "link: a frame for another design than the board holds; load the matching bitstream",
    "link: no request of this board: unknown kind or port, or a wrong length",
    "link: no room for another frame; fetch results first",
    "register: refused; the register map has nothing to read or write there", "link: a message stopped half-way; check the link")
"""What the board says, by the numbers in link.v."""


LINK_FILES = ("uart_rx.v", "uart_tx.v", "frames_in.v", "frames_out.v", "link.v")
LITE_PINS = {**dict(LITE_IN), **dict(LITE_OUT)}
LINK_PINS = ("rx_valid", "rx_octet", "tx_valid", "tx_octet", "tx_ready", "put", "put_octet", "commit", "drop", "full",
             "available", "octet_valid", "octets", "take", "forget", "busy", "faulty", *LITE_PINS)


@dataclass(frozen=True, slots=True)
class ChipTop:
    """A whole chip: Verilog of what surrounds a shell's design, the top module last."""

    shell: Shell
    board: BoardTop
    generator: ClockGenerator
    baud: float
    room: int
    """Frames that may be under way."""
    silence_bits: int = SILENCE_BITS

    @property
    def name(self) -> str:
        return f"{self.shell.core.top}_top"

    @property
    def files(self) -> Mapping[str, str]:
        """Verilog and memory images of the chip, the design's own included; all but the model of the clock generator."""
        return {**self.shell.design.files, **{f"dovetail_{name}": _source(name) for name in LINK_FILES},
                "fault_texts.hex": _fault_texts(), f"{self.name}.v": self._verilog()}

    @property
    def clock_model(self) -> Mapping[str, str]:
        """What a simulator takes for the clock generator."""
        name = f"{self.generator.primitive}.v"
        return {name: _source(name)}

    @property
    def pins(self) -> list[tuple[str, str, bool]]:
        """Pins as (name, site, whether it is an input)."""
        board = self.board
        found = [("clock", board.clock, True), ("from_host", board.from_host, True), ("to_host", board.to_host, False)]
        found += [("reset_n", board.reset_n, True)] if board.reset_n else []
        for kind, sites in (("led", board.leds), ("high", board.high)):
            found += [(f"{kind}[{n}]" if len(sites) > 1 else kind, site, False) for n, site in enumerate(sites)]
        return found

    def _verilog(self) -> str:
        """The top module: clock, reset, line, link, frames, design, lights."""
        board, core = self.board, self.shell.core
        ports = ["input wire clock", "input wire from_host", "output wire to_host"]
        ports += ["input wire reset_n"] if board.reset_n else []
        lights = {kind: len(sites) for kind, sites in (("led", board.leds), ("high", board.high)) if sites}
        ports += [f"output wire {_span(count)}{kind}" for kind, count in lights.items()]
        into, out = _streams(core.inputs, True, self), _streams(core.outputs, False, self)
        shell = [*(f".{pin}({wire})" for pin, wire in (*into[1], *out[1])), *(f".{LITE}_{pin}({pin})" for pin in LITE_PINS)]
        return "\n".join([
            f"// {core.top} on a board with a serial line of {self.baud:g} bits/s: {self.generator.hz / 1e6:g} MHz from "
            f"{board.oscillator_hz / 1e6:g} MHz, room for {self.room} frames.",
            "`default_nettype none", f"module {self.name} (", *_listed(ports), ");",
            "wire clk;", self.generator.verilog, *_reset(bool(board.reset_n)), *self._link(), *into[0], *out[0],
            f"{self.shell.top} whole (", *_listed([".clk(clk)", ".rst(rst)", *shell]), ");", *_lights(lights, board.leds_low),
            "endmodule", "`default_nettype wire", ""])

    def _link(self) -> list[str]:
        """UART and link, and the wires between all parts."""
        core, bits = self.shell.core, self.shell.bus_bits
        step = round(self.baud / self.generator.hz * (1 << 16))
        silence = (round(self.generator.hz / self.baud) << self.silence_bits).bit_length()
        inputs, outputs = len(core.inputs), len(core.outputs)
        return [
            "wire rx_valid, tx_valid, tx_ready, forget, busy, faulty;", "wire [7:0] rx_octet, tx_octet, put_octet;",
            f"wire {_span(inputs)}put, commit, drop, full;", f"wire {_span(outputs)}available, octet_valid, take;",
            f"wire {_span(8 * outputs)}octets;", *(f"wire {_span(width)}{pin};" for pin, width in LITE_PINS.items()),
            f"dovetail_uart_rx #(.STEP(16'd{step})) rx (.clk(clk), .rst(rst), .line(from_host), .valid(rx_valid), "
            ".octet(rx_octet));",
            f"dovetail_uart_tx #(.STEP(16'd{step})) tx (.clk(clk), .rst(rst), .valid(tx_valid), .octet(tx_octet), "
            ".ready(tx_ready), .line(to_host));",
            f"dovetail_link #(.INPUTS({inputs}), .OUTPUTS({outputs}), .DESIGN(64'h{self.shell.build_hash & DESIGN_MASK:x}), "
            f".ROOM(32'd{self.room}),",
            f"  .IN_BYTES({_sizes(core.inputs, bits)}), .OUT_BYTES({_sizes(core.outputs, bits)}), .SILENCE_BITS({silence})",
            ") link (", *_listed([".clk(clk)", ".rst(rst)", *(f".{pin}({pin})" for pin in LINK_PINS)]), ");"]


def _streams(ports: Sequence[StreamPort], inward: bool, chip: ChipTop) -> tuple[list[str], list[tuple[str, str]]]:
    """Frames' memories of a direction, and the design's pins with their wires."""
    bits, octets, count = chip.shell.bus_bits, chip.shell.bus_bytes, len(ports)
    module, stem = ("dovetail_frames_in", "s_axis") if inward else ("dovetail_frames_out", "m_axis")
    lines, pins = list[str](), list[tuple[str, str]]()
    for n, port in enumerate(ports):
        name = f"{'in' if inward else 'out'}{n}"
        at, octet = ("" if count == 1 else f"[{n}]"), "" if count == 1 else f"[{8 * n + 7}:{8 * n}]"
        link = [("octet", "put_octet" if inward else f"octets{octet}")]
        of_port = ("put", "commit", "drop", "full") if inward else ("available", "octet_valid", "take")
        link += [(pin, pin + at) for pin in of_port]
        wires = {"tvalid": 1, "tready": 1, "tdata": bits, "tlast": 1, **({} if inward else {"tuser": 1, "tkeep": octets})}
        bus = [(wire, f"{name}_{wire}") for wire in wires]
        inner = [(pin, wire) for pin, wire in bus if pin != "tkeep"]
        own = [("clk", "clk"), ("rst", "rst"), ("forget", "forget"), *link, *inner]
        lines += [f"wire {_span(width)}{name}_{wire};" for wire, width in wires.items()]
        lines += [f"{module} #(.WORD_BYTES({octets}), .WORDS({packet_words(port, bits)}), .FRAMES({chip.room})) frames_{name} (",
                  *_listed([f".{pin}({wire})" for pin, wire in own]), ");"]
        pins += [(f"{stem}_{port.name}_{pin}", wire) for pin, wire in bus]
    return lines, pins


def _reset(button: bool) -> list[str]:
    """The reset begins at once, and ends with a clock."""
    return [f"wire may_run = locked{' && reset_n' if button else ''};", "reg [3:0] waits;",
            "always @(posedge clk or negedge may_run)", "  if (!may_run) waits <= 4'hF;", "  else waits <= {waits[2:0], 1'b0};",
            "wire rst = waits[3];"]


def _lights(counts: Mapping[str, int], low: bool) -> list[str]:
    """Lit: the clock is there, messages move, something was wrong. Other pins are held at one."""
    lines = []
    if leds := counts.get("led", 0):
        states = ["1'b1", "busy", "faulty"][:leds]
        rest = [f"{leds - len(states)}'d0"] if leds > len(states) else []
        lines.append(f"assign led = {'~' if low else ''}{{{', '.join([*rest, *reversed(states)])}}};")
    if "high" in counts:
        lines.append(f"assign high = {{{counts['high']}{{1'b1}}}};")
    return lines


def chip_top(shell: Shell, board: BoardTop, family: str, design_hz: float | None = None, baud: float | None = None) -> ChipTop:
    """The chip of a shell on a board, with as many frames of room as the board's memory for it has, up to `MOST_ROOM`.

    Clock and rate of the line are the board's unless told.
    """
    core, bits = shell.core, shell.bus_bits
    if core.memory is not None:
        raise UnsupportedError(f"top of {shell.top}: the design reads external memory, and a link shell in logic has none to "
                               "give; plan without --architecture, or choose a board with memory and a DMA")
    if shell.lanes:
        raise UnsupportedError(f"top of {shell.top}: the design is joined to other FPGAs by links; such boards "
                               "are only simulated")
    generator = clock_generator(family, board.oscillator_hz, design_hz or board.design_hz)
    rate = baud or board.baud
    if generator.hz / rate < LEAST_CLOCKS:
        raise UsageError(f"top of {shell.top}: {rate:g} baud at {generator.hz / 1e6:g} MHz are {generator.hz / rate:.1f} clocks "
                         f"a bit; {LEAST_CLOCKS} are needed, choose a faster clock or a slower line")
    each = sum(packet_bytes(port, bits) for port in (*core.inputs, *core.outputs))
    room = int(board.buffer_bytes // each)
    if not room:
        raise UnsupportedError(f"top of {shell.top}: a frame in and its result take {each:,} bytes, and the board gives "
                               f"{board.buffer_bytes:,.0f} to the link; give a smaller network, or more of the memory "
                               "(buffer_bytes of the board file)")
    return ChipTop(shell, board, generator, rate, min(room, MOST_ROOM))


def _source(name: str) -> str:
    return files("dovetail.fpga.boards").joinpath(name).read_text(encoding="utf-8")


def _fault_texts() -> str:
    """Sentences of `FAULTS` as the link's memory holds them: each in a place of its own, its length first."""
    image = bytearray(TEXT_BYTES * TEXTS)
    for number, text in enumerate(FAULTS):
        octets = text.encode()
        assert len(octets) < TEXT_BYTES
        image[number * TEXT_BYTES:number * TEXT_BYTES + len(octets) + 1] = bytes([len(octets)]) + octets
    return "".join(f"{octet:02x}\n" for octet in image)


def _span(width: int) -> str:
    return "" if width == 1 else f"[{width - 1}:0] "


def _sizes(ports: Sequence[StreamPort], bus_bits: int) -> str:
    return f"{{{', '.join(f'''32'd{packet_bytes(port, bus_bits)}''' for port in reversed(ports))}}}"


def _listed(items: Sequence[str]) -> list[str]:
    """A list of Verilog, one item a line."""
    return [f"  {item}," for item in items[:-1]] + [f"  {items[-1]}"]
