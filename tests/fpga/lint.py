"""Verilog that three front ends read without a word: Verilator, slang and Icarus."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pyslang.driver import Driver

from dovetail.fpga.design import is_verilog
from dovetail.fpga.toolchain.tools import find_verilator


def check_clean(folder: Path, top: str, files: Mapping[str, str]) -> None:
    """No warning of any of them about the module `top`, but unused bits: lower bits of what is rounded have no reader."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    sources = [name for name in files if is_verilog(name)]
    tool, icarus = find_verilator(), shutil.which("iverilog")
    assert icarus is not None, "no Icarus Verilog: apt-get install iverilog"
    for command, environment in (
            ([*tool.command, "--lint-only", "-Wall", "-Wno-UNUSEDSIGNAL", "--top-module", top, *sources], tool.environment),
            ([icarus, "-g2005", "-Wall", "-tnull", "-s", top, *sources], {})):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder,
                              env={**environment, "PATH": "/usr/bin:/bin"})
        assert (done.returncode, done.stderr) == (0, ""), (top, command[0])
    assert slang(folder, top, sources) == (0, 0), top


def slang(folder: Path, top: str, sources: list[str]) -> tuple[int, int]:
    """How many errors and warnings slang prints."""
    driver = Driver()
    driver.addStandardArgs()
    assert driver.parseCommandLine(" ".join(["slang", "-Wextra", "--top", top, *(f'"{folder / name}"' for name in sources)]))
    assert driver.processOptions()
    driver.parseAllSources()
    driver.reportCompilation(driver.createCompilation(), True)
    return driver.diagEngine.numErrors, driver.diagEngine.numWarnings
