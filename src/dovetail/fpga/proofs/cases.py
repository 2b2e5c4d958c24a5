"""Small designs on which a family is proven, and proven anew for any other Verilog in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.proofs.netlist import Netlist, read_netlist
from dovetail.fpga.proofs.verdicts import Method, Proof, Ruling, timed
from dovetail.fpga.rtl.modules import Module
from dovetail.fpga.rtl.verilog import images, print_module

Files = Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """A small design of a family: its Verilog, its top module, and the proofs of any Verilog in its place."""

    name: str
    family: str
    files: Files
    top: str
    prove: Callable[[Files, Sequence[str]], Iterator[Proof]]
    covers: str = ""
    """Which lines the statements speak of, as an expression; all of them where it is empty."""


def texts(*modules: Module) -> dict[str, str]:
    """Files of modules."""
    found: dict[str, str] = {}
    for module in modules:
        found |= {f"{module.name}.v": print_module(module), **images(module)}
    return found


def one(make: Callable[[Netlist], Proof], family: str, top: str) -> Callable[[Files, Sequence[str]], Iterator[Proof]]:
    """The single proof of a module."""
    def prove(files: Files, yosys: Sequence[str]) -> Iterator[Proof]:
        otherwise = Proof(top, family, "its outputs are the reference's", Method.NONE, Ruling.SIMULATED)
        yield timed(lambda: make(read_netlist(files, top, yosys)), otherwise)
    return prove
