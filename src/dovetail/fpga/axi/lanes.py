"""Ends of links at a board that is joined to others: a shell passes their cells on and counts them."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.fpga.axi.ports import event_counter, output32
from dovetail.fpga.design import StreamPort
from dovetail.fpga.rtl.expressions import all_of, pack
from dovetail.fpga.rtl.modules import Module

CAUSE_BITS = 3
FIRST_BIT = 2
"""Of a board's status where its links begin, behind alarm and all links up."""


@dataclass(frozen=True, slots=True)
class LinkLane:
    """A link's end: the streams of cells that come and that leave."""

    rx: StreamPort
    tx: StreamPort

    @property
    def pins(self) -> list[tuple[str, int, bool]]:
        """As (name, bits, whether it is the shell's input)."""
        return [(f"{port.name}_{part}", port.data_bits if part == "data" else 1, inward == (part != "ready"))
                for port, inward in ((self.rx, True), (self.tx, False)) for part in ("valid", "ready", "data")]


def state_bits(links: int) -> list[tuple[int, int]]:
    """Where a board's status says, of every link, that it is up (the cause of its fault follows), and that a cell was spoilt."""
    return [(FIRST_BIT + n * (1 + CAUSE_BITS), FIRST_BIT + links * (1 + CAUSE_BITS) + n) for n in range(links)]


def watcher_module(name: str) -> Module:
    """Counts of one link since CLEAR, and its state as the register has it. It is not reset with the core."""
    m = Module(name, ("What came over a link, what left, what was spoilt.",))
    clear, up, cause = m.input("clear"), m.input("up"), m.input("cause", CAUSE_BITS)
    came, spoilt = m.input("rx_valid"), m.input("spoilt_now")
    leaves = all_of(m.input("tx_valid"), m.input("tx_ready"))
    output32(m, "status", pack([(up, 1), (cause, CAUSE_BITS)]))
    output32(m, "spoilt", event_counter(m, "spoilt_count", spoilt, clear))
    output32(m, "received", event_counter(m, "received_count", came, clear))
    output32(m, "sent", event_counter(m, "sent_count", leaves, clear))
    return m
