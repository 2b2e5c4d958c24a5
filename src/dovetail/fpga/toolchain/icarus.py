"""Simulate a design with Icarus Verilog: a second simulator, whose registers and memories begin unknown, or at random.

The bench is Verilog written here, so nothing but the design is shared with the Verilated harness. An unknown bit of a handshake,
of a request to memory or of a value that is taken ends the run; a design may be reset in the middle of a frame. Unknown is
more than hardware can be: nothing times unknown is unknown, so what multiplies by zero where no pixel is begins at random.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dovetail.errors import MismatchError
from dovetail.fpga.design import Design, StreamPort, is_verilog
from dovetail.fpga.packing import Integers, Octets, beat_bytes, count_frames, pack, unpack
from dovetail.fpga.toolchain.icarus_bench import write_bench
from dovetail.fpga.toolchain.simulate import RUN_MEMORY_BYTES, RUN_TIMEOUT_S, Simulation, scratch_folder
from dovetail.fpga.toolchain.tools import Command, find_icarus, run_tool

REGISTER = re.compile(r"^(?:\(\*[^\n]*?\*\) )?reg (?:\[(?P<top>\d+):0\] )?(?P<name>\w+)(?: \[0:(?P<deep>\d+)\])?;", re.MULTILINE)
"""A register or memory as generated Verilog declares it."""


def simulate_in_icarus(design: Design, inputs: Mapping[str, Integers], stall_seed: int | None = None, reset_at: int | None = None,
                       start_seed: int | None = None) -> Simulation:
    """What `simulate.simulate` returns, from Icarus; registers begin at random with a `start_seed`, else unknown.

    With `reset_at` the design is reset after so many clocks, wherever its frames are then, and all of them are sent again; the
    result counts from the last reset.
    """
    began = time.monotonic()
    frames = count_frames(design, inputs, f"simulation of {design.top}")
    icarus = find_icarus()
    with scratch_folder() as folder:
        rng = None if start_seed is None else random.Random(start_seed)
        for name, text in design.files.items():
            text = text if rng is None or not is_verilog(name) else _started(text, rng)
            (folder / name).write_text(text, encoding="utf-8")
        for number, port in enumerate(design.inputs):
            beats = pack(port, inputs[port.tensor], len(inputs[port.tensor]))
            _write_beats(folder / f"in{number}.hex", beats, -(-port.data_bits // 4))
        sets = {port.tensor: len(inputs[port.tensor]) for port in design.inputs}
        (folder / "bench.v").write_text(write_bench(design, sets, frames, stall_seed, reset_at, rng is None), encoding="ascii")
        sources = [name for name in design.files if is_verilog(name)]
        run_tool(Command("icarus", (*icarus.command, "-g2005-sv", "-s", "bench", "-o", "bench.vvp", "bench.v", *sources), folder,
                         folder / "iverilog.log", RUN_TIMEOUT_S, RUN_MEMORY_BYTES))
        said: list[str] = []
        run_began = time.monotonic()
        run_tool(Command("icarus", (str(icarus.root / "vvp"), "-n", "bench.vvp"), folder, folder / "vvp.log", RUN_TIMEOUT_S,
                         RUN_MEMORY_BYTES, on_line=said.append))
        ended = time.monotonic()
        for line in said:
            if line.startswith("failed "):
                raise MismatchError(f"simulation of {design.top} in Icarus: {line.removeprefix('failed ')}")
        outputs = {port.tensor: unpack(port, _read_beats(folder / f"out{number}.bits", port, design.top), frames)
                   for number, port in enumerate(design.outputs)}
    last = said[said.index("reset") + 1:] if "reset" in said else said
    clocks = [int(line.split()[1]) for line in last if line.startswith("frame ")]
    cycles, first = next((int(a), int(b)) for a, b in re.findall(r"^done (\d+) (\d+)$", "\n".join(said), re.MULTILINE))
    return Simulation(outputs, cycles, first, tuple(clocks), wall_s=ended - began, run_s=ended - run_began)


def _started(text: str, rng: random.Random) -> str:
    """Verilog whose registers and memories begin at random, but those that files fill."""
    filled = set(re.findall(r"\$readmem[hb]\([^,]*,\s*(\w+)", text))

    def value(found: re.Match[str]) -> str:
        width, name, deep = int(found["top"] or 0) + 1, found["name"], found["deep"]
        if name in filled:
            return found[0]
        number = f"{width}'h{rng.getrandbits(width):x}"
        if deep is None:
            return f"{found[0]} initial {name} = {number};"
        words, i = ", ".join(["$random"] * (-(-width // 32))), f"{name}_start"
        return (f"{found[0]} integer {i}; initial for ({i} = 0; {i} <= {deep}; {i} = {i} + 1) "
                f"{name}[{i}] = {number} ^ {{{words}}};")

    return REGISTER.sub(value, text)


def _write_beats(path: Path, beats: Octets, digits: int) -> None:
    """Beats as $readmemh reads them, one a line."""
    path.write_text("".join(row[::-1].tobytes().hex()[-digits:] + "\n" for row in beats), encoding="ascii")


def _read_beats(path: Path, port: StreamPort, top: str) -> Octets:
    """Beats that left a port, in the byte layout of the Verilated one; bits of channels' values must be known."""
    lines = path.read_text(encoding="ascii").split()
    rows = np.zeros((len(lines), beat_bytes(port.data_bits)), dtype=np.uint8)
    for beat, line in enumerate(lines):
        last = port.words > 1 and beat % port.words == port.words - 1
        used = (port.channels - (port.words - 1) * port.fields if last else port.fields) * port.bits
        if re.search("[xz]", line[len(line) - used:]):
            raise MismatchError(f"simulation of {top} in Icarus: output {port.name} sends unknown bits in beat {beat} "
                                "after reset; give the registers they come from a reset, or a value before they are read")
        number = int(line[len(line) - used:], 2)
        rows[beat] = np.frombuffer(number.to_bytes(rows.shape[1], "little"), dtype=np.uint8)
    return rows
