"""Open tools of an FPGA family: how Yosys maps to it, how nextpnr places and routes it, and what packs the bitstream."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dovetail.errors import MissingToolError
from dovetail.fpga.toolchain.tools import Tool, ask, override

NETLIST, CHIP = "netlist.json", "chip"
"""The netlist of Yosys; a whole chip's files by their stem."""
INSTALL = "install it with pip install 'dovetail-accel[pnr]', or name a native {} in {}"


@dataclass(frozen=True, slots=True)
class PinSite:
    """A pin of a top module at its place on the package."""

    pin: str
    site: str
    pull: str | None = None
    """`UP` or `NONE`; None leaves it to the tools."""


@dataclass(frozen=True, slots=True)
class Program:
    """A tool as a native program, and as a function of a Python package."""

    name: str
    variable: str
    package: str
    call: str
    """Python that runs it with the arguments `sys.argv[1:]`."""

    def find(self) -> tuple[str, ...]:
        """The command from the environment variable, else from PATH, else from the package."""
        native = override(self.variable, self.name) or shutil.which(self.name)
        if native is not None:
            return (native,)
        if importlib.util.find_spec(self.package) is None:
            raise MissingToolError(f"{self.name}: not found; {self.install}")
        return sys.executable, "-c", f"import sys; {self.call}"

    @property
    def install(self) -> str:
        """Where to get it."""
        return INSTALL.format(self.name, self.variable)


class OpenFlow(ABC):
    """What is particular to a family; one object of a subclass each."""

    family: ClassVar[str]
    router: ClassVar[Program]
    packer: ClassVar[Program]
    largest: ClassVar[str]
    """The device where a board has none of the family."""
    bitstream: ClassVar[str]
    """File that the packer leaves."""
    rewriting: ClassVar[str]
    """What `rewrite` does; a netlist is kept under it."""

    def find_nextpnr(self) -> Tool:
        """The router with its release."""
        command = self.router.find()
        if len(command) > 1:
            package = self.router.package.replace("_", "-")
            return Tool(self.router.name, command, f"{self.router.name} {importlib.metadata.version(package)} (yowasp)")
        # The version goes to stderr, which `ask` leaves alone; size and date of the program tell releases apart as well.
        ask(self.router.name, [*command, "--version"], {}, self.router.install)
        status = Path(shutil.which(command[0]) or command[0]).stat()
        return Tool(self.router.name, command, f"{self.router.name} {command[0]} {status.st_size} {int(status.st_mtime)}")

    @abstractmethod
    def synthesis(self, top: str) -> str:
        """The command of Yosys that leaves `NETLIST`."""

    @abstractmethod
    def rewrite(self, netlist: Path, top: str) -> None:
        """Make a mapped netlist faster, in its file."""

    @abstractmethod
    def device_of(self, part: str) -> str:
        """The device of an order code, as `place_design` takes it; UsageError where open tools do not know it."""

    @abstractmethod
    def check_device(self, device: str, what: str) -> None:
        """UsageError where a device is none of the family."""

    @abstractmethod
    def title(self, device: str) -> str:
        """A device as people name it, with its article."""

    @abstractmethod
    def trial_files(self, clock: str, others: Sequence[str]) -> Mapping[str, str]:
        """Constraints of a design that is no whole chip, with the pins of its wrapper."""

    @abstractmethod
    def trial_options(self, device: str) -> tuple[str, ...]:
        """Options of the router for such a design."""

    @abstractmethod
    def chip_files(self, sites: Sequence[PinSite], io_standard: str, clock_hz: float) -> Mapping[str, str]:
        """Constraints of a whole chip: sites and levels of its pins, and its clock's frequency."""

    @abstractmethod
    def chip_options(self, part: str, design_hz: float) -> tuple[str, ...]:
        """Options of the router for a whole chip."""

    @abstractmethod
    def pack_options(self) -> tuple[str, ...]:
        """Options of the packer, whose file is `bitstream`."""
