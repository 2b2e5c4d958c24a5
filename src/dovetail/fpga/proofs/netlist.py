"""Verilog as a flat netlist of word-level cells, read by Yosys: what is proven is the text, not what it was printed from."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dovetail.errors import ToolError
from dovetail.fpga.design import is_verilog
from dovetail.fpga.toolchain.tools import Command, run_tool

Bit = int | str
"""A wire of the netlist, or a constant 0, 1 or x."""
READ_S = 300.0
"""Time Yosys has to read a module."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A word-level cell of Yosys: its kind, integers of its parameters, and the bits of its ports."""

    kind: str
    parameters: Mapping[str, int]
    ports: Mapping[str, tuple[Bit, ...]]
    memory: str = ""
    words: tuple[str, ...] = ()
    """Of a memory: its initial words in binary, none where nothing is written into it beforehand."""

    @property
    def output(self) -> tuple[Bit, ...]:
        """What a combinational cell drives."""
        return self.ports["Y"]


@dataclass(frozen=True)
class Netlist:
    """A flat module; `names` are its wires, those of instances behind `INSTANCE.`."""

    top: str
    inputs: Mapping[str, tuple[Bit, ...]]
    outputs: Mapping[str, tuple[Bit, ...]]
    names: Mapping[str, tuple[Bit, ...]]
    cells: tuple[Cell, ...]

    def bits(self, name: str) -> tuple[Bit, ...]:
        """The bits of a wire, or one of them (`NAME[2]`); ToolError where there is none of that name."""
        if name.endswith("]"):
            base, place = name[:-1].rsplit("[", 1)
            return (self.bits(base)[int(place)],)
        if name not in self.names:
            raise ToolError(f"netlist {self.top}: no wire {name}; the generator changed, state the proof anew")
        return self.names[name]

    @cached_property
    def registers(self) -> tuple[Cell, ...]:
        return tuple(c for c in self.cells if c.kind == "$dff")

    @cached_property
    def memories(self) -> tuple[Cell, ...]:
        return tuple(c for c in self.cells if c.kind == "$mem_v2")

    @cached_property
    def drivers(self) -> dict[Bit, tuple[Cell, int]]:
        """The cell that drives a bit, and which bit of its output it is; memories drive by their read data."""
        found: dict[Bit, tuple[Cell, int]] = {}
        for cell in self.cells:
            port = {"$dff": "Q", "$mem_v2": "RD_DATA"}.get(cell.kind, "Y")
            found.update((bit, (cell, place)) for place, bit in enumerate(cell.ports[port]) if not isinstance(bit, str))
        return found

    def cone(self, names: Sequence[str], cut: Sequence[str] = ()) -> Netlist:
        """The part of the netlist that these wires depend on, where wires of `cut` depend on nothing."""
        ends, wanted = {bit for name in cut for bit in self.bits(name)}, dict[int, Cell]()
        waiting = [bit for name in names for bit in self.bits(name)]
        reached = set[Bit]()
        while waiting:
            bit = waiting.pop()
            if bit in reached or bit in ends or bit not in self.drivers:
                continue
            reached.add(bit)
            cell = self.drivers[bit][0]
            if id(cell) not in wanted:
                wanted[id(cell)] = cell
                waiting += [b for port in cell.ports.values() for b in port if not isinstance(b, str)]
        return replace(self, cells=tuple(c for c in self.cells if id(c) in wanted))

    def order(self, known: Sequence[Bit]) -> list[Cell]:
        """Combinational cells and memory reads such that each follows what drives it; bits of `known` are given."""
        given, done, found = set(known), set[int](), list[Cell]()
        for start in self.cells:
            stack = [start]
            while stack:
                cell = stack[-1]
                if id(cell) in done or cell.kind == "$dff":
                    stack.pop()
                    continue
                names = ("RD_ADDR", "WR_ADDR", "WR_EN") if cell.kind == "$mem_v2" else tuple(p for p in cell.ports if p != "Y")
                needed = [self.drivers[b][0] for name in names for b in cell.ports[name]
                          if not isinstance(b, str) and b not in given and b in self.drivers]
                waiting = [c for c in needed if id(c) not in done and c.kind != "$dff"]
                if waiting:
                    stack.append(waiting[0])
                    continue
                done.add(id(cell))
                found.append(stack.pop())
        return found


def read_netlist(files: Mapping[str, str], top: str, yosys: Sequence[str]) -> Netlist:
    """The flat netlist of a module of some Verilog files, whose memory images stand beside them.

    Only processes are rewritten and names resolved: nothing is optimised that a proof would then not see.
    """
    with tempfile.TemporaryDirectory(prefix="dovetail-proof-") as made:
        folder = Path(made)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        sources = " ".join(sorted(name for name in files if is_verilog(name)))
        (folder / "read.ys").write_text(f"read_verilog -nomem2reg {sources}\nhierarchy -top {top}\nproc -noopt\nflatten\n"
                                        "memory_collect\nwrite_json netlist.json\n", encoding="utf-8")
        run_tool(Command("yosys (reading for a proof)", (*yosys, "read.ys"), folder, folder / "yosys.log", READ_S))
        document = json.loads((folder / "netlist.json").read_text(encoding="utf-8"))
    return _netlist(top, document["modules"][top])


def _netlist(top: str, module: Mapping[str, Any]) -> Netlist:
    ports = {direction: {name: tuple(p["bits"]) for name, p in module["ports"].items() if p["direction"] == direction}
             for direction in ("input", "output")}
    cells = tuple(_cell(c) for c in module["cells"].values() if c["type"] not in ("$print", "$scopeinfo"))
    names = {name: tuple(n["bits"]) for name, n in module["netnames"].items()}
    return Netlist(top, ports["input"], ports["output"], names, cells)


def _cell(cell: Mapping[str, Any]) -> Cell:
    texts = cell["parameters"]
    ports = {name: tuple(bits) for name, bits in cell["connections"].items()}
    numbers = {name: int(text, 2) for name, text in texts.items() if text and set(text) <= {"0", "1"}}
    if cell["type"] != "$mem_v2":
        return Cell(cell["type"], numbers, ports)
    width, size, image = numbers["WIDTH"], numbers["SIZE"], texts["INIT"]
    if set(image) <= {"x"}:
        return Cell("$mem_v2", numbers, ports, texts["MEMID"])
    image = image.rjust(width * size, "x")
    words = tuple(image[len(image) - (i + 1) * width:len(image) - i * width] for i in range(size))
    return Cell("$mem_v2", numbers, ports, texts["MEMID"], words)
