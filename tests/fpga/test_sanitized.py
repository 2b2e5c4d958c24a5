"""The C++ that drives simulations under the sanitizers for addresses and undefined behaviour."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dovetail.fpga.toolchain import simulate, tools, verilate
from dovetail.fpga.toolchain.simulate import simulate_many
from tests.fpga.random_bundles import draw, mismatches
from tests.fpga.reusable_blocks import cases
from tests.fpga.test_reusable import check_outputs, run_of

pytestmark = [pytest.mark.verilator, pytest.mark.deep("compiles simulators with sanitizers")]

OURS = "-fno-sanitize=signed-integer-overflow"
"""Verilator's own headers multiply past 32 bits and mean what GCC does then."""


@pytest.fixture
def sanitized(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiler whose programs end where they read or write what is not theirs, or do what C++ does not define."""
    compiler = tmp_path / "g++"
    compiler.write_text(
        f'#!/bin/sh\nexec {shutil.which("g++")} -fsanitize=address,undefined -fno-sanitize-recover=all {OURS} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "cache"))
    for module in (simulate, verilate):
        for name in ("RUN_MEMORY_BYTES", "COMPILE_MEMORY_BYTES"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, None)  # sanitizers reserve terabytes of addresses


@pytest.mark.usefixtures("sanitized")
def test_streams_and_memories_are_driven_within_bounds() -> None:
    assert mismatches([draw(number) for number in range(12)]) == []
    runs = [run_of(name, *cases()[name]) for name in ("two_masters", "gated", "pooled")]
    jobs = [(block.design, {block.program.layers.entry: inputs[graph.inputs[0]]}) for graph, block, inputs in runs]
    for seed in (None, 5):
        check_outputs(runs, simulate_many(jobs, seed))
    assert tools.find_compiler().command[0].endswith("g++")
