"""Shells around the boards of a system: each has the host's packets, registers with the state of its links, and the links' cells.

Boards that the host is not linked to have registers alone. There is no self-test on the board: a frame passes several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dovetail.errors import UnsupportedError
from dovetail.fpga.axi import registers
from dovetail.fpga.axi.control import Facts
from dovetail.fpga.axi.lanes import LinkLane
from dovetail.fpga.axi.model import Cable
from dovetail.fpga.axi.shell import DEFAULT_BUS_BITS, Shell, finished_shell, has_room, load_shell
from dovetail.fpga.design import Design
from dovetail.fpga.links.system import System


def host_side(board: Design) -> tuple[Design, tuple[LinkLane, ...]]:
    """A board with the host's streams for ports, and the ends of its links."""
    inputs = tuple(p for p in board.inputs if not p.name.startswith("link"))
    outputs = tuple(p for p in board.outputs if p.name != "status" and not p.name.startswith("link"))
    lanes = zip(board.inputs[len(inputs):], board.outputs[len(outputs):-1], strict=True)
    return replace(board, inputs=inputs, outputs=outputs), tuple(LinkLane(rx, tx) for rx, tx in lanes)


def why_no_shell(board: Design) -> str | None:
    """Why a board of a system cannot have a shell; None where it can."""
    core, lanes = host_side(board)
    if len(lanes) > registers.MOST_LINKS:
        return f"{board.top}: {len(lanes)} links; the register map has room for {registers.MOST_LINKS}"
    return None if has_room(core) else f"{board.top}: more or larger streams of the host than the register map has room for"


def board_shell(board: Design, bus_bits: int = DEFAULT_BUS_BITS) -> Shell:
    """The shell of one board of a system.

    Raises:
        UnsupportedError: it has more links or streams than the register map has room for.
    """
    if why := why_no_shell(board):
        raise UnsupportedError(f"shell of {why}")
    core, lanes = host_side(board)
    facts = Facts(core.inputs, core.outputs, bus_bits, core.latency_cycles, core.interval_cycles, (0,) * len(core.outputs), 0,
                  links=len(lanes))
    return finished_shell(core, facts, {}, lanes=lanes)


def load_board_shell(board: Design, folder: Path) -> Shell:
    """A stored shell around a stored board."""
    core, lanes = host_side(board)
    return load_shell(core, folder, lanes)


def cables_of(system: System, shells: Sequence[Shell]) -> tuple[Cable, ...]:
    """The wires of a system between lanes of its shells."""
    return tuple(Cable(w.source, w.output - len(shells[w.source].core.outputs), w.target,
                       w.input - len(shells[w.target].core.inputs), w.latency_clocks, w.cells_per_clock) for w in system.wires)
