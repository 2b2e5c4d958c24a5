"""A whole chip in Verilator, from pin to pin, with a UART at its serial line that a terminal device leads to."""

from __future__ import annotations

import os
import pty
import subprocess
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dovetail.fpga.boards.top import ChipTop
from dovetail.fpga.toolchain.verilate import PROGRAM, BuildTarget, build_target

WRAPPER = """module dovetail_bundle (input wire clock, input wire reset_n, input wire from_host, output wire to_host);
{top} chip (.clock(clock), .from_host(from_host), .to_host(to_host){rest});
endmodule
"""
LEAVES_WITHIN_S = 20.0


@dataclass(slots=True)
class ChipRun:
    """A simulation that goes on; at its end it has counted."""

    terminal: Path
    """What a driver opens."""
    clocks: int = 0
    spoilt: tuple[int, int] = (0, 0)
    """Bytes that were damaged on their way to the chip and from it."""


@contextmanager
def simulated_chip(chip: ChipTop, seed: int = 0, spoil_every: int = 0) -> Iterator[ChipRun]:
    """The chip as a board on a serial line; one byte in `spoil_every` is damaged, by a seed."""
    rest = (", .reset_n(reset_n)" if chip.board.reset_n else "") + "".join(
        f", .{kind}()" for kind, sites in (("led", chip.board.leds), ("high", chip.board.high)) if sites)
    here = Path(__file__).parent
    wrapper = {"dovetail_bundle.v": WRAPPER.format(top=chip.name, rest=rest),
               "bench.cpp": (here / "bench.cpp").read_text(encoding="utf-8")}
    folder = build_target(BuildTarget({**chip.files, **chip.clock_model, **wrapper}, None, PROGRAM))
    far, near = pty.openpty()
    tty.setraw(near)
    run = ChipRun(Path(os.ttyname(near)))
    command = [str(folder / PROGRAM), str(far), repr(chip.generator.hz / chip.baud), str(seed), str(spoil_every)]
    process = subprocess.Popen(command, cwd=folder, pass_fds=[far], stdout=subprocess.PIPE, text=True)
    os.close(far)
    try:
        yield run
    finally:
        os.close(near)
        try:
            told = process.communicate(timeout=LEAVES_WITHIN_S)[0].splitlines()[-1].split()
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        run.clocks, run.spoilt = int(told[1]), (int(told[3]), int(told[4]))
