"""A Zynq's block design is run by Tcl with Vivado's commands recorded, its device tree compiled, its overlay asked."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from dovetail.fpga.assemble import build_design
from dovetail.fpga.axi.shell import Shell, build_shell
from dovetail.fpga.export import export_project
from dovetail.fpga.reusable.block import build_block
from dovetail.runtime.transports.board import parse_board
from tests.fpga.random_graphs import Sketch, same_window
from tests.fpga.reusable_blocks import cases
from tests.fpga.test_export import place_files

RECORD = """
proc unknown {args} { puts $args }
proc get_ipdefs {pattern} { return [list [string range $pattern 0 end-1]6.0 [string range $pattern 0 end-1]7.1] }
foreach kind {bd_intf_pins bd_pins bd_cells bd_addr_spaces bd_addr_segs files} { proc get_$kind {names} { return $names } }
proc current_project {} { return project }
proc current_fileset {} { return sources_1 }
proc create_bd_cell {args} { puts "create_bd_cell $args"; return [lindex $args end] }
proc make_wrapper {args} { return wrapper.v }
proc glob {args} { return handoff.hwh }
rename file real_file
proc file {args} { if {[lindex $args 0] eq "copy"} { puts "file $args" } else { return [uplevel 1 real_file $args] } }
source [lindex $argv 0]
"""
PARTS = ["xc7z020clg400-1", "xczu9eg-ffvb1156-2-e", "xck26-sfvc784-2LV-c"]


@cache
def shells() -> dict[str, Shell]:
    """One input and output; two of each; a design that reads memory over two masters."""
    s = Sketch(np.random.default_rng(0))
    plain = s.graph((s.conv(s.input((1, 4, 6, 7)), 5, same_window(3)),))
    two = Sketch(np.random.default_rng(1))
    x, y = two.input((1, 3, 5, 5)), two.input((1, 3, 5, 5))
    double = two.graph((two.add(x, y), two.conv(y, 2, same_window(1))))
    graph, config = cases()["two_masters"]
    block = build_block(graph, [n.name for n in graph.nodes], config, "masters")
    return {"plain": build_shell(build_design(plain, "plain"), plain), "two": build_shell(build_design(double, "two"), double),
            "memory": build_shell(block.design, graph)}


def exported(folder: Path, name: str, part: str) -> Shell:
    shell = shells()[name]
    family = "xcu" if part.startswith("xc7") else "xcup"
    files = export_project(shell.core, "vivado", family, 100e6, part, shell)
    place_files(folder, {file: text for file, text in files.items() if isinstance(text, str)})
    return shell


def asked(folder: Path) -> list[str]:
    """What the block design asks of Vivado."""
    assert shutil.which("tclsh"), "tclsh is missing; install it with: apt-get install tcl"
    (folder / "record.tcl").write_text(RECORD, encoding="utf-8")
    command = ["tclsh", "record.tcl", "zynq/block_design.tcl"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.splitlines()


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["plain", "two", "memory"])
def test_every_pin_is_wired_once_and_every_master_reaches_memory(tmp_path: Path, name: str, part: str) -> None:
    shell = exported(tmp_path, name, part)
    lines = asked(tmp_path)
    cells = {line.split()[-1]: line for line in lines if line.startswith("create_bd_cell")}
    ports = max(len(shell.core.inputs), len(shell.core.outputs))
    assert set(cells) == {"ps", "reset", "shell", "registers", "memory", *(f"dma{n}" for n in range(ports))}
    assert f"-reference {shell.top}" in cells["shell"]
    assert all(cells[kind].split()[-2].endswith(":7.1") for kind in ("ps", "dma0"))
    buses = [line.split()[1:] for line in lines if line.startswith("connect_bd_intf_net")]
    ends = [end for bus in buses for end in bus]
    assert len(ends) == len(set(ends)), "an interface is wired twice"
    wanted = {"s_axi_ctrl", *(f"s_axis_{p.name}" for p in shell.core.inputs), *(f"m_axis_{p.name}" for p in shell.core.outputs)}
    wanted |= {pin.removesuffix("_arvalid") for pin, _, _ in shell.pins if pin.endswith("_arvalid") and pin.startswith("m_axi")}
    assert {end.removeprefix("shell/") for end in ends if end.startswith("shell/")} == wanted
    numbered = {cell: sorted(end for end in ends if re.fullmatch(rf"{cell}/[SM]\d\d_AXI", end))
                for cell in ("registers", "memory")}
    assert numbered["registers"] == sorted([*(f"registers/M{n:02}_AXI" for n in range(ports + 1)), "registers/S00_AXI"])
    masters = len(numbered["memory"]) - 1
    assert numbered["memory"] == sorted([*(f"memory/S{n:02}_AXI" for n in range(masters)), "memory/M00_AXI"])
    assert any(f"CONFIG.NUM_SI {masters} CONFIG.NUM_MI 1" in line for line in lines)
    wires = [line.split()[1:] for line in lines if line.startswith("connect_bd_net")]
    clocked = [to for source, to in wires if source in ("ps/FCLK_CLK0", "ps/pl_clk0")]
    assert len(clocked) == len(set(clocked))
    assert {"shell/clk", "registers/aclk", "memory/aclk", "reset/slowest_sync_clk"} <= set(clocked)
    assert "write_bitstream -force zynq/dovetail.bit" in lines


@pytest.mark.parametrize("part", PARTS)
def test_the_device_tree_says_the_addresses_of_the_block_design(tmp_path: Path, part: str) -> None:
    assert shutil.which("dtc"), "dtc is missing; install it with: apt-get install device-tree-compiler"
    exported(tmp_path, "two", part)
    made = subprocess.run(["dtc", "-@", "-I", "dts", "-O", "dtb", "-o", "dovetail.dtbo", "dovetail.dtso"], cwd=tmp_path / "zynq",
                          capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    back = subprocess.run(["dtc", "-I", "dtb", "-O", "dts", "dovetail.dtbo"], cwd=tmp_path / "zynq", capture_output=True,
                          text=True, check=True).stdout
    nodes = [int(address, 16) for address in re.findall(r"dovetail_\w+@([0-9a-f]+) \{", back)]
    fixed = [int(line.split()[2], 16) for line in asked(tmp_path) if line.startswith("assign_bd_address -offset")]
    assert nodes == fixed
    assert len(nodes) == 3
    assert 'compatible = "ikwzm,u-dma-buf"' in back


def test_the_overlay_says_what_the_driver_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported(tmp_path, "two", PARTS[0])
    opened = list[tuple[str, str]]()
    pynq = ModuleType("pynq")
    monkeypatch.setattr(pynq, "Overlay", type("Overlay", (), {
        "__init__": lambda self, bitfile, dtbo: opened.append((bitfile, dtbo))}), raising=False)
    monkeypatch.setitem(sys.modules, "pynq", pynq)
    names = runpy.run_path(str(tmp_path / "zynq" / "overlay.py"))
    board = names["Dovetail"]()
    assert opened == [("dovetail.bit", "dovetail.dtbo")]
    for number, name in enumerate(("dovetail_dma1", "other", "dovetail_shell", "dovetail_dma0")):
        (tmp_path / "uio" / f"uio{number}").mkdir(parents=True)
        (tmp_path / "uio" / f"uio{number}" / "name").write_text(f"{name}\n")
    where = SimpleNamespace(iterdir=(tmp_path / "uio").iterdir)
    monkeypatch.setitem(names["Dovetail"].board.fget.__globals__, "UIO", where)
    assert board.board == "uio:/dev/uio2,/dev/uio3,/dev/uio0,/dev/udmabuf0"
    assert [str(path) for path in parse_board(board.board)[1].files] == board.board.removeprefix("uio:").split(",")
    shutil.rmtree(tmp_path / "uio" / "uio3")
    with pytest.raises(RuntimeError, match="no UIO device is called dovetail_dma0"):
        _ = board.board


def test_parts_without_processors_get_none_of_it(tmp_path: Path) -> None:
    shell = shells()["plain"]
    files = export_project(shell.core, "vivado", "xcup", 100e6, "xcku040-ffva1156-2-e", shell)
    assert not [name for name in files if name.startswith("zynq/")]
    zynq = export_project(shell.core, "vivado", "xcup", 100e6, PARTS[1], shell)
    assert "None of it has been run on a board" in str(zynq["README.md"])
    assert "## Zynq" not in str(files["README.md"])
