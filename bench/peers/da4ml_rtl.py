"""da4ml's hardware for a constant matrix: generated, counted, and run against NumPy.

da4ml (Sun et al., "da4ml: Distributed Arithmetic for Real-time Neural Networks on FPGAs", https://github.com/calad0i/da4ml) makes
adder graphs and pipelines them; windows, streams and memories around them are not part of it. It registers after every adder
here (`latency_cutoff=1`), as ours does.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import io
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dovetail.cost.adder_graph import IntMatrix
from dovetail.fpga.design import Design
from peers.core import right, streamed
from peers.measured import Measured, count, missing

TOP = "peer_wrapper"


def available() -> bool:
    return importlib.util.find_spec("da4ml") is not None


def adder_count(matrix: IntMatrix) -> int:
    """Adders da4ml needs for `matrix @ taps` without a limit on depth."""
    if not available():
        raise missing("da4ml")
    from da4ml.cmvm import solve
    from da4ml.cmvm.types import QInterval

    ranges = [QInterval(-128.0, 127.0, 1.0)] * matrix.shape[1]
    return round(solve(np.ascontiguousarray(matrix.T, dtype=np.float32), qintervals=ranges).cost)


def measure(matrix: IntMatrix) -> Measured:
    if not available():
        raise missing("da4ml")
    files, clocks, adders = generate(matrix)
    width = re.search(r"output \[(\d+):0\] model_out", files[f"{TOP}.v"])
    assert width is not None
    design = Design(TOP, files, (), (), (), adders, clocks, 1)
    stream = streamed(design, matrix.shape[1], len(matrix), clocks,
                      f"{TOP} core (.clk(clk), .model_inp(in0_data), .model_out(y));", (int(width[1]) + 1) // len(matrix))
    note = f"da4ml {importlib.metadata.version('da4ml')}, {adders} adders, a register behind each"
    return Measured(**count(design), cycles_per_frame=1, latency_cycles=clocks, bit_exact=right(stream, matrix), note=note)


def generate(matrix: IntMatrix) -> tuple[dict[str, str], int, int]:
    """Verilog files, clocks from taps to sums, and adders."""
    from da4ml.codegen.rtl.rtl_model import RTLModel
    from da4ml.trace import FixedVariableArrayInput, HWConfig, comb_trace

    taps = matrix.shape[1]
    inputs = FixedVariableArrayInput(taps, hwconf=HWConfig(1, -1, -1))
    inputs = inputs.quantize(np.ones(taps, int), np.full(taps, 7), np.zeros(taps, int))
    solution = comb_trace(inputs, inputs @ matrix.T.astype(np.float64))
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        model = RTLModel(solution, "peer", folder, latency_cutoff=1)
        model.write()
        files = {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(folder).glob("*.v"))}
    assert model._pipe is not None
    return files, len(model._pipe.solutions) + 1, sum(1 for op in solution.ops if op.opcode in (0, 1))
