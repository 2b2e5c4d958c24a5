"""Other people's adder graphs for a constant matrix: da4ml and its successor Alkaid, generated, counted, and run against NumPy.

da4ml (Sun et al., "da4ml: Distributed Arithmetic for Real-time Neural Networks on FPGAs", arXiv 2507.04535) goes on as Alkaid
(https://github.com/calad0i/alkaid) since 2026. Both make adder graphs and pipeline them; windows, streams and memories around
them are not part of it. They register after every adder here (`latency_cutoff=1`), as ours does; Alkaid's fusion of three
operands into one adder is left off, so that every adder has two.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dovetail.fpga.design import Design
from dovetail.hardware.adders.graph import IntMatrix
from lib.peers.core import right, streamed
from lib.peers.measured import Measured, count, missing

TOP = "peer_wrapper"
PIXEL = (-128.0, 127.0, 1.0)
ADDITIONS = (0, 1)
"""Opcodes of addition and subtraction in both packages."""
LINT = re.compile(r"/\*\s*verilator lint_\w+ \w+\s*\*/|//\s*verilator lint_\w+ \w+")
"""Comments to Verilator's linter, some of which version 5.006 does not know and refuses."""


@dataclass(frozen=True, slots=True)
class Generator:
    """A package that makes hardware of a matrix: how its solver is asked, and how its pipelined Verilog is written."""

    package: str
    solve: Callable[[IntMatrix], int]
    write: Callable[[IntMatrix, str], tuple[int, int]]
    """Writes Verilog into a folder; gives clocks from taps to sums, and adders."""

    @property
    def version(self) -> str:
        return importlib.metadata.version(self.package)

    def available(self) -> bool:
        return importlib.util.find_spec(self.package) is not None

    def demand(self) -> None:
        if not self.available():
            raise missing(self.package)

    def adder_count(self, matrix: IntMatrix) -> int:
        """Adders for `matrix @ taps` without a limit on depth."""
        self.demand()
        return self.solve(matrix)

    def measure(self, matrix: IntMatrix) -> Measured:
        self.demand()
        with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            clocks, adders = self.write(matrix, folder)
            files = {path.name: LINT.sub("", path.read_text(encoding="utf-8")) for path in sorted(Path(folder).rglob("*.v"))}
        width = re.search(r"output\s+\[(\d+):0\] model_out", files[f"{TOP}.v"])
        assert width is not None
        design = Design(TOP, files, (), (), (), adders, clocks, 1)
        stream = streamed(design, matrix.shape[1], len(matrix), clocks,
                          f"{TOP} core (.clk(clk), .model_inp(in0_data), .model_out(y));", (int(width[1]) + 1) // len(matrix))
        return Measured(**count(design), cycles_per_frame=1, latency_cycles=clocks, bit_exact=right(stream, matrix),
                        note=f"{self.package} {self.version}, {adders} adders, a register behind each")


def additions(logic: Any) -> int:
    return sum(1 for op in logic.ops if op.opcode in ADDITIONS)


def solve_da4ml(matrix: IntMatrix) -> int:
    from da4ml.cmvm import solve

    found = solve(np.ascontiguousarray(matrix.T, dtype=np.float32), qintervals=[PIXEL] * matrix.shape[1])
    return sum(additions(stage) for stage in found.solutions)


def solve_alkaid(matrix: IntMatrix) -> int:
    from alkaid.cmvm import cmvm_solve

    found = cmvm_solve(np.ascontiguousarray(matrix.T, dtype=np.float32), qintervals=[PIXEL] * matrix.shape[1])
    return sum(additions(stage) for stage in found)


def write_da4ml(matrix: IntMatrix, folder: str) -> tuple[int, int]:
    from da4ml.codegen.rtl.rtl_model import RTLModel
    from da4ml.trace import FixedVariableArrayInput, HWConfig, comb_trace

    inputs = bytes_of(FixedVariableArrayInput(matrix.shape[1], hwconf=HWConfig(1, -1, -1)))
    solution = comb_trace(inputs, inputs @ matrix.T.astype(np.float64))
    model = RTLModel(solution, "peer", folder, latency_cutoff=1)
    model.write()
    assert model._pipe is not None
    return len(model._pipe.solutions) + 1, additions(solution)


def write_alkaid(matrix: IntMatrix, folder: str) -> tuple[int, int]:
    from alkaid.codegen.rtl import RTLModel
    from alkaid.trace import FVArrayInput, HWConfig, trace

    inputs = bytes_of(FVArrayInput(matrix.shape[1], hwconf=HWConfig(1, -1, -1)))
    solution = trace(inputs, inputs @ matrix.T.astype(np.float64))
    model = RTLModel(solution, folder, "peer", latency_cutoff=1, ternary_fuse=False)
    model.write()
    assert model.latency is not None
    return int(model.latency) + 1, additions(solution)


def bytes_of(inputs: Any) -> Any:
    """Symbolic inputs as signed integers of 8 bits."""
    taps = len(inputs)
    return inputs.quantize(np.ones(taps, int), np.full(taps, 7), np.zeros(taps, int))


GENERATORS: Mapping[str, Generator] = {
    "da4ml": Generator("da4ml", solve_da4ml, write_da4ml),
    "alkaid": Generator("alkaid", solve_alkaid, write_alkaid),
}
