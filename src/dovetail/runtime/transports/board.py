"""Where real boards are, as a user says it, and FPGA parts that are computed on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from dovetail.errors import TransportError, UsageError
from dovetail.fpga.axi.shell import Shell
from dovetail.fpga.part import load_part_shell, loaded_sets
from dovetail.fpga.transport import Transport
from dovetail.ir import Array, Graph
from dovetail.runtime.driver import Accelerator
from dovetail.runtime.transports.serial_line import open_serial
from dovetail.runtime.transports.uio import open_uio
from dovetail.runtime.transports.xdma import open_xdma

FORMS = {"uio": "uio:REGISTERS,DMA[,DMA...],BUFFER", "xdma": "xdma:/dev/xdma0", "serial": "serial:/dev/ttyUSB0[,baud=115200]"}
"""How the place of a board is written, by its kind."""
DEFAULTS = {"timeout": 5.0, "baud": 115_200.0, "offset": 0.0, "retries": 0.0}
"""Seconds without progress after which a board is given up, bits per second of a serial line, bytes from the start of XDMA's
AXI4-Lite window to the shell, and how often a frame that failed on the way is sent again; choices."""


@dataclass(frozen=True, slots=True)
class BoardPlace:
    """How a board is reached: its kind, its device files in order, and options."""

    kind: str
    files: tuple[Path, ...]
    options: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}:{','.join(map(str, self.files))}"

    def open(self, shell: Shell) -> Accelerator:
        """The board, which holds the shell's design and no frame of anybody's."""
        transport = OPEN[self.kind](self, shell)
        try:
            return Accelerator(shell, transport, recover=True)
        except TransportError:
            transport.close()
            raise

    def option(self, name: str) -> float:
        return self.options.get(name, DEFAULTS[name])


OPEN: dict[str, Callable[[BoardPlace, Shell], Transport]] = {
    "uio": lambda at, shell: open_uio(shell, at.files, at.option("timeout")),
    "xdma": lambda at, shell: open_xdma(shell, at.files[0], int(at.option("offset")), at.option("timeout")),
    "serial": lambda at, shell: open_serial(shell, at.files[0], int(at.option("baud")), at.option("timeout"))}


def parse_board(text: str) -> tuple[str | None, BoardPlace]:
    """`[DEVICE=]KIND:FILE[,FILE...][,OPTION=NUMBER...]` as a device's name, where there is one, and a place."""
    head, _, tail = text.partition(":")
    device, _, kind = head.rpartition("=")
    pieces = tail.split(",")
    files = tuple(Path(p) for p in pieces if "=" not in p)
    options = dict[str, float]()
    for name, _, value in (p.partition("=") for p in pieces if "=" in p):
        try:
            options[name] = float(int(value, 16)) if value.startswith("0x") else float(value)
        except ValueError:
            raise UsageError(f"--board {text}: option {name} is {value!r}; a number is needed") from None
        if name not in DEFAULTS or not options[name] >= 0:
            raise UsageError(f"--board {text}: option {name}={value}; options are {', '.join(DEFAULTS)}, with numbers from 0 on")
    wrong = kind not in FORMS or not tail or (len(files) < 3 if kind == "uio" else len(files) != 1)
    if wrong:
        raise UsageError(f"--board {text}: not the place of a board; write {' or '.join(FORMS.values())}, and DEVICE= before it "
                         "where a build has several FPGAs")
    return device or None, BoardPlace(kind, files, options)


class OpensBoard(Protocol):
    """What opens a board that holds the design of a shell."""

    def open(self, shell: Shell) -> Accelerator: ...


class BoardPart:
    """A segment on a real board, which is opened when it first runs, and again after an error."""

    backend = "board"

    def __init__(self, graph: Graph, folder: Path, place: OpensBoard, retries: int = 0) -> None:
        """With `retries` frames go one by one; one that failed on the way is sent so often again, to the board opened anew."""
        self.graph, self.folder, self.place, self.retries = graph, folder, place, retries
        self.board: Accelerator | None = None

    @property
    def note(self) -> str:
        return f"computed by the board at {self.place}"

    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        if not self.retries:
            return self._attempt(inputs, on_frame)
        frames = [self._insist({name: x[n:n + 1] for name, x in inputs.items()}) for n in _told(inputs, on_frame)]
        return {name: np.concatenate([frame[name] for frame in frames]) for name in frames[0]}

    def _insist(self, frame: Mapping[str, Array]) -> dict[str, Array]:
        """A frame, sent again where that failed."""
        for _ in range(self.retries):
            with suppress(TransportError):
                return self._attempt(frame, None)
        return self._attempt(frame, None)

    def _attempt(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None) -> dict[str, Array]:
        try:
            if self.board is None:
                shell = load_part_shell(self.graph, self.folder)
                self.board = self.place.open(shell)
                if shell.core.loads:
                    self.board.load(loaded_sets(self.graph, shell.core))
            found = self.board.run(inputs, on_frame)
        except TransportError:
            self.close()
            raise
        tensors = self.graph.tensors
        return {name: x.reshape(len(x), *tensors[name].shape[1:]).astype(tensors[name].dtype) for name, x in found.items()}

    def close(self) -> None:
        """Let go of the board."""
        if self.board is not None:
            self.board.transport.close()
            self.board = None

    def __del__(self) -> None:
        self.close()


def _told(inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None) -> Iterator[int]:
    """Numbers of frames, one after the other, each told when it is done."""
    for number in range(len(next(iter(inputs.values())))):
        yield number
        if on_frame is not None:
            on_frame(number + 1)
