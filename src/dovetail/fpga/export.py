"""Vendor hand-over: a hardware part as a project that a vendor's tool, or the open one, builds with one command.

The top module is the part behind its AXI ports (`fpga/axi`) where it has some, ready for a board design; the core alone is built
by naming it. Its streams are wider than any package has pins, and a board has its own: Quartus gets virtual pins, Vivado an
out-of-context run, so that both report area and timing of what is handed over; the open flow for ECP5 needs real pins and puts
it between shift registers (`place.pin_wrapper`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from dovetail.document import IDENTIFIER, PLAIN_FILE, FieldPath, check
from dovetail.errors import UsageError
from dovetail.fpga.axi.shell import LITE, MEMORY_FILE, Shell
from dovetail.fpga.axi.striped import master_names
from dovetail.fpga.design import Design, is_verilog
from dovetail.fpga.export_pages import filled, link_page, readme
from dovetail.fpga.toolchain.ecp5 import ECP5
from dovetail.fpga.toolchain.place import core_pins, pin_wrapper
from dovetail.fpga.zynq import zynq_files
from dovetail.platform.load import is_part

TOP_VARIABLE = "DOVETAIL_TOP"
"""Environment variable that names another top module than the default."""


STYLES: Mapping[str, Mapping[str, str]] = {
    "cyclonev": {'"M20K': '"M10K'},
    **{family: {'rom_style = "logic"': 'rom_style = "distributed"'} for family in ("xcu", "xcup")},
}
"""Attributes of memories that a family's tool writes in another way than Yosys and Quartus for a Cyclone 10 GX: a Cyclone V has
blocks of 10 kbit, and Vivado knows no ROM in `logic`."""


@dataclass(frozen=True, slots=True)
class Project:
    """What is handed over, a core and its shell where it has one, and what for."""

    core: Design
    shell: Shell | None
    family: str
    part: str
    clock_hz: float

    def __post_init__(self) -> None:
        """Names stand in scripts of tools as they are, so that none may be more than a name."""
        if not is_part(self.part):
            raise UsageError(f"part {self.part!r}: not an order code; letters, digits, - . and _ are possible, such as "
                             "10CX220YF780E5G")
        place = FieldPath(f"project of {self.core.top!r}", "compile the model again")
        check([self.core.top, self.top], [IDENTIFIER], place.below("tops"))
        check([p.name for p in (*self.core.inputs, *self.core.outputs)], [IDENTIFIER], place.below("ports"))
        check(list(self.files), [PLAIN_FILE], place.below("files"))

    @property
    def top(self) -> str:
        return self.core.top if self.shell is None else self.shell.top

    @property
    def files(self) -> Mapping[str, str]:
        """Of the design, with memories' attributes as the family's tool reads them."""
        found = dict((self.core if self.shell is None else self.shell.design).files)
        for ours, theirs in STYLES.get(self.family, {}).items():
            found |= {name: text.replace(ours, theirs) for name, text in found.items() if is_verilog(name)}
        return found

    @property
    def tops(self) -> dict[str, list[tuple[str, int, bool]]]:
        """Modules that can be built, the default first, with all pins but clock and reset."""
        core = {self.core.top: core_pins(self.core)}
        return core if self.shell is None else {self.shell.top: self.shell.pins, **core}

    @property
    def verilog(self) -> list[str]:
        return sorted(f"rtl/{name}" for name in self.files if is_verilog(name))

    @property
    def images(self) -> list[str]:
        """Memory images, which weights in ROM are read from; that of external memory is no part of the design."""
        outside = None if self.core.memory is None else self.core.memory.image
        return sorted(f"rtl/{name}" for name in self.files if not is_verilog(name) and name != outside)

    @property
    def bus_interfaces(self) -> list[str]:
        """The shell's AXI interfaces, as tools find them by the names of their pins."""
        core = self.core if self.shell is None else self.shell.core
        memory = [] if core.memory is None else master_names(core.memory)
        return [LITE, *(f"s_axis_{p.name}" for p in core.inputs), *(f"m_axis_{p.name}" for p in core.outputs), *memory]


@dataclass(frozen=True, slots=True)
class Vendor:
    """A tool, the families it builds for, the part taken where a board names none, and what it writes."""

    tool: str
    parts: Mapping[str, str]
    write: Callable[[Project], dict[str, str]]
    command: str


def export_project(design: Design, vendor: str, family: str, clock_hz: float, part: str | None = None,
                   shell: Shell | None = None) -> dict[str, str | bytes]:
    """Files of a project by relative path: `rtl/`, constraints, scripts, README.md; with a shell also `host/`.

    `host/` holds what a program on the other side needs: the register map for people, programs and C, the link shell, and the
    image of memory where the design uses some.
    UsageError where the vendor's tool does not build for the family.
    """
    if vendor not in VENDORS:
        raise UsageError(f"vendor {vendor}: unknown; possible: {', '.join(VENDORS)}")
    tool = VENDORS[vendor]
    if family not in tool.parts:
        fitting = [name for name, other in VENDORS.items() if family in other.parts]
        raise UsageError(f"vendor {vendor}: {tool.tool} cannot build for family {family} of {design.top}; "
                         f"use --vendor {' or '.join(fitting) or 'another board'}")
    project = Project(design, shell, family, part or tool.parts[family], clock_hz)
    outside = None if design.memory is None else design.memory.image
    found: dict[str, str | bytes] = {f"rtl/{name}": text for name, text in project.files.items() if name != outside}
    found |= tool.write(project)
    if shell is not None:
        found |= {f"host/{name}": text for name, text in {**shell.documents(), "LINK.md": link_page(shell)}.items()}
        found |= {f"host/{MEMORY_FILE}": shell.memory_image} if outside is not None else {}
    tops = {name: f"{TOP_VARIABLE}={name} {tool.command}" for name in project.tops}
    page = readme(design, shell, tool.tool, tool.command, tops, project.part, clock_hz) + str(found.get("README.md", ""))
    return {**found, "README.md": page}


def _quartus(project: Project) -> dict[str, str]:
    title = "Cyclone 10 GX" if project.family == "cyclone10gx" else "Cyclone V"
    sources = [f"set_global_assignment -name VERILOG_FILE {name}" for name in project.verilog]
    sources += ["set_global_assignment -name SEARCH_PATH rtl"] if project.images else []
    pins = [f"  {top} {{rst {' '.join(f'{pin}[*]' if bits > 1 else pin for pin, bits, _ in pins)}}}"
            for top, pins in project.tops.items()]
    return {"build.tcl": _script(project, "quartus.tcl", family=title, sources="\n".join(sources), pins="\n".join(pins)),
            "clock.sdc": _script(project, "clock.sdc") + "derive_clock_uncertainty\n"}


def _vivado(project: Project) -> dict[str, str]:
    sources = "\n".join(f"add_files -norecurse {name}" for name in (*project.verilog, *project.images))
    found = {"build.tcl": _script(project, "vivado.tcl", sources=sources), "clock.xdc": _script(project, "clock.sdc")}
    if project.shell is None:
        return found
    buses = "\n".join(f"ipx::associate_bus_interfaces -busif {name} -clock clk [ipx::current_core]"
                      for name in project.bus_interfaces)
    return {**found, "package_ip.tcl": _script(project, "vivado_ip.tcl", sources=sources, buses=buses),
            **zynq_files(project.shell, project.part, project.clock_hz, [*project.verilog, *project.images])}


def _oss(project: Project) -> dict[str, str]:
    wrappers = {f"rtl/pins_{top}.v": pin_wrapper(top, pins, f"pins_{top}") for top, pins in project.tops.items()}
    sources = [*project.verilog, *wrappers]
    inside = " ".join(name.removeprefix("rtl/") for name in sources)  # memory images are found beside the sources
    make = _script(project, "oss.mk", device=ECP5.device_of(project.part), sources=" ".join(sources), inside=inside)
    step = files("dovetail.fpga.toolchain").joinpath("mapped_netlist.py").read_text(encoding="utf-8")
    return {"Makefile": make, "clock.lpf": _script(project, "clock.lpf"), "mapped_netlist.py": step, **wrappers}


def _script(project: Project, file: str, /, **values: str) -> str:
    """A script or constraint, with what most of them name."""
    return filled(file, top=project.top, variable=TOP_VARIABLE, part=project.part, mhz=f"{project.clock_hz / 1e6:g}",
                  period_ns=f"{1e9 / project.clock_hz:.3f}", **values)


VENDORS: Mapping[str, Vendor] = {
    "quartus": Vendor("Quartus Prime", {"cyclone10gx": "10CX220YF780E5G", "cyclonev": "5CSEMA5F31C6"}, _quartus,
                      "quartus_sh -t build.tcl"),
    "vivado": Vendor("Vivado", {"xcu": "xcku040-ffva1156-2-e", "xcup": "xczu9eg-ffvb1156-2-e"}, _vivado,
                     "vivado -mode batch -source build.tcl"),
    "oss": Vendor("Yosys, nextpnr and Project Trellis", {"ecp5": "LFE5U-85F"}, _oss, "make"),
}
