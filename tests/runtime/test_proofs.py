"""What is proven of a build is told proof by proof, without a solver here: tests/fpga/test_proofs.py has those."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dovetail.fpga.part import SHELL
from dovetail.fpga.proofs.verdicts import Method, Proof, Ruling
from dovetail.runtime import proofs
from dovetail.runtime.build import Build, load_build


def proof(name: str) -> Proof:
    return Proof(name, "family", "statement", Method.NONE, Ruling.SIMULATED)


def test_every_proof_of_engines_and_register_ports_is_told_once(streamed: Build, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    def of_design(graph: Any, design: Any, yosys: tuple[str, ...], on_proof: Callable[[Proof], None],
                  limit_s: float) -> list[Proof]:
        assert (yosys, limit_s) == (("yosys",), 7.0)
        on_proof(proof("engine"))
        return [proof("engine")]

    def of_registers(stem: str, files: Mapping[str, str], yosys: tuple[str, ...]) -> Proof:
        assert list(files) == [f"{stem}.v"]
        return proof(stem)

    copy = tmp_path / "build"
    shutil.copytree(streamed.folder, copy)
    (shell,) = copy.glob(f"fpga/*/{SHELL}")
    (port,) = shell.glob("*_control.v")
    shutil.copy(port, shell / "zz_control.v")
    monkeypatch.setattr(proofs, "yosys_command", lambda: ("yosys",))
    monkeypatch.setattr(proofs, "prove_design", of_design)
    monkeypatch.setattr(proofs, "prove_registers", of_registers)
    told = list[Proof]()
    found = proofs.prove_build(load_build(copy, trust=True), told.append, 7.0)
    assert [p.part for p in told] == [p.part for p in found] == ["engine", port.stem, "zz_control"]
