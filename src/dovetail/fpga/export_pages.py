"""What people read in a handed-over project: its README, and how a host talks to the shell."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent

from dovetail.fpga import framing
from dovetail.fpga.axi import registers
from dovetail.fpga.axi.memory import ADDRESS_BITS, MASTER
from dovetail.fpga.axi.shell import LITE, MEMORY_FILE, Shell
from dovetail.fpga.design import Design, StreamPort
from dovetail.fpga.packing import packet_bytes


def readme(design: Design, shell: Shell | None, tool: str, command: str, tops: Mapping[str, str], part: str,
           clock_hz: float) -> str:
    """README.md of a project; `tops` are the modules that can be built, with the command for each."""
    rate = clock_hz / design.interval_cycles if design.interval_cycles else 0.0
    lines = [
        f"# {design.top}: a project for {tool}",
        "",
        f"Build it with `{command}` here, for part {part} at {clock_hz / 1e6:g} MHz, the plan's clock.",
        "Change the part where your board has another; the RTL is plain Verilog-2005 without vendor primitives.",
        "",
        *(_shell_lines(shell, tops, design) if shell is not None else []),
        "| port | direction | channels x bits | frame | tensor |",
        "|---|---|---|---|---|",
        *(_port_row(port, "in") for port in design.inputs),
        *(_port_row(port, "out") for port in design.outputs),
        "",
        f"First beat in to last beat out: {design.latency_cycles:,} clocks. A frame every {design.interval_cycles:,} clocks"
        + (f", {rate:,.0f} frames/s at this clock." if rate else "."),
        "",
        "`clk`, and `rst` synchronous and active high for at least one clock. A stream moves a beat when `valid` and `ready` are",
        "both 1; a beat is one pixel in raster order, channel c in bits [bits*c + bits-1 : bits*c]. Frames follow without gaps.",
        "",
        "Area and timing of the vendor's tool replace the plan's estimates: tell them to the board file (`clock_hz`).",
    ]
    return "\n".join(lines) + "\n"


def _shell_lines(shell: Shell, tops: Mapping[str, str], design: Design) -> list[str]:
    """The two tops, and the pins of the one a board wants."""
    streams = [(f"`s_axis_{p.name}_tvalid`, `tready`, `tdata`, `tlast`", "AXI4-Stream in", p) for p in design.inputs]
    streams += [(f"`m_axis_{p.name}_tvalid`, `tready`, `tdata`, `tlast`, `tkeep`, `tuser`", "AXI4-Stream out", p)
                for p in design.outputs]
    core = tops[design.top]
    memory = [f"| `{MASTER}_*` | AXI4 master of {shell.memory_bits} bits, {ADDRESS_BITS} address bits; `host/{MEMORY_FILE}` must "
              "lie at MEMORY_BASE | |"] if design.memory is not None else []
    return [
        f"The top module is `{shell.top}`: the core behind AXI4-Stream ports of {shell.bus_bits} bits, one packet a frame,",
        f"and an AXI4-Lite port for registers; `host/LINK.md` is its contract. `{core}` builds",
        f"the core `{design.top}` alone.",
        f"Its build hash is {shell.hash_text}.",
        "",
        "| pins | what | bytes of a packet |",
        "|---|---|---|",
        f"| `{LITE}_*` | AXI4-Lite, {registers.ADDRESS_BITS} address bits, 32 data bits | |",
        *(f"| {pins} | {kind} | {packet_bytes(port, shell.bus_bits):,} |" for pins, kind, port in streams),
        *memory,
        "",
        "Streams of the core:",
        "",
    ]


def _port_row(port: StreamPort, direction: str) -> str:
    sign = "signed" if port.signed else "unsigned"
    return (f"| `{port.name}_valid/ready/data` | {direction} | {port.channels} x {port.bits} {sign} | "
            f"{port.height} x {port.width} beats | {_cell(port.tensor)} |")


def _cell(name: str) -> str:
    """A name of the network in one cell of a table, as code, whatever its letters are."""
    return f"`{''.join('?' if c in '`|' or not c.isprintable() else c for c in name)}`"


PACKETS = """\
# Talking to {top}

## Frames on the bus

One packet is one frame, `tlast` on its last word; one DMA channel per stream. A pixel takes as many bytes as its channels need,
channel 0 in the lowest bits; pixels follow each other in raster order without gaps, lowest byte first, across the borders of
words. With 8-bit channels a packet is the tensor in NHWC order, pixels filled up to a multiple of `AT_ONCE` channels. Zeros
fill the last word; `tkeep` of outputs marks the bytes that
count. A packet that ends too soon is filled up with zeros (`EARLY` counts it), what one has too much is dropped (`LATE`).
Packets with `tuser` set were cut short by a soft reset: discard them. The CRC registers hold the CRC-32 (zlib, Ethernet) of all
words since CLEAR, padding included.

Write `SELF_TEST` to CONTROL for one frame of pseudo-random pixels made inside: `TEST_PASSED` of STATUS tells whether every
output's checksum was the one the integer reference computed when this design was made.

{memory}## Registers

32 bits each, byte addresses. RO: read only; RW: as written. Anything else is answered with SLVERR.

"""

MEMORY = """\
## Memory

The design reads its weights, and maps that its chip has no room for, through the AXI4 master `{master}`: INCR bursts of at most
256 words that cross no multiple of 4096 bytes, one ID, {bits} bits. Before it can begin, place `{file}` at a multiple of 4096,
with {size:,} bytes in all that nobody else writes, write the address to MEMORY_BASE_LO and MEMORY_BASE_HI, then ENABLE to
MEMORY_CONTROL. Change the address only while a soft reset follows. Error responses set MEMORY_ERROR of STATUS and stay in
MEMORY_STATUS until CLEAR; what was computed with them is not to be trusted.

"""

WEIGHTS = """\
## Weights

{ports} take weights, a packet each: layers behind them compute nothing until they have one. Its first 16 bits say for how many
frames it holds, 0 for all that come; where it ends, the next packet is taken when nothing under way reads the old weights. Resets
(SOFT_RESET, SELF_TEST, `rst`) forget weights: send them again, for the self-test after RESETTING of STATUS is 0. The build keeps
those of its model in `axi/{files}`; the self-test's checksum is made with them. `dovetail.runtime.driver.Accelerator.load` does
all this, and `dovetail.fpga.part.loaded_sets` makes packets' values from any model of the same shapes.

"""

LINK = """
## Link shell

For boards without DMA (UART, USB, Ethernet, a PCIe queue), messages on a byte stream:

```
{table}
```

Payloads: data is a packet as above; fetch asks for the next packet of an output, which comes as data; read and write
hold an address and a value (4 bytes each, the value of a read is 0), and so does value, which answers them and reset; reset
abandons what is queued; provide holds a size (8 bytes) and an image of memory, answered by value with their address (8 bytes);
fault holds a sentence.
`dovetail.fpga.transport.LinkTransport` is the host's end, `serve` there what the board's firmware or logic must do.
"""


def link_page(shell: Shell) -> str:
    """LINK.md: packets, registers, and the messages of the link shell."""
    assert framing.__doc__ is not None
    _, _, rest = framing.__doc__.partition("\n\n")
    table, _, _ = rest.partition("\n\n")
    port, memory = shell.core.memory, ""
    if port is not None:
        memory = MEMORY.format(master=MASTER, bits=shell.memory_bits, file=MEMORY_FILE, size=port.beats * port.bytes)
    if loads := shell.core.loads:
        memory += WEIGHTS.format(ports=", ".join(f"`s_axis_{p.name}`" for p in loads),
                                 files=", axi/".join(f"{p.name}.bin" for p in loads))
    return PACKETS.format(top=shell.top, memory=memory) + registers.markdown() + LINK.format(table=dedent(table))
