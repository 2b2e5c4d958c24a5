"""An array that counts bits, as the page on arrays states it for the ResNet-20 that was trained here."""

from __future__ import annotations

import re
from pathlib import Path

from dovetail.cost.array import Config, block_area, block_latency
from dovetail.ir.onnx.read import read_onnx
from dovetail.platform.load import load_platform

ROOT = Path(__file__).parents[2]
ARRAY = Config(inputs=16, outputs=32, weight_planes=2, input_planes=2, value_bits=16, thresholds=3)


def test_resources_and_clocks_are_those_that_were_compared_with_synthesis_and_simulation() -> None:
    """Of each pair on the page the first number is the model's, the second what Yosys counted or the simulation took."""
    page = (ROOT / "docs" / "method" / "arrays.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| ResNet-20, 16 × 32 of 2 × 2 planes"))
    pairs = [tuple(float(n.replace(",", "")) for n in re.findall(r"[\d,]*\d(?:\.\d+)?", cell)) for cell in row.split("|")[2:6]]
    graph = read_onnx(ROOT / "bench" / "records" / "lq_runs" / "resnet20-w2a2-2" / "model.onnx").graph
    names = [n.name for n in graph.nodes]
    found, _ = block_area(graph, names, ARRAY, load_platform("zcu102").device("fpga"))
    own = (round(found["lut"]), round(found["register"]), found["bram36"], found["dsp"])
    assert own == tuple(modelled for modelled, _ in pairs)
    for (modelled, counted), limit in zip(pairs, (0.1, 0.05, 0.04, 0.0), strict=True):
        assert abs(modelled / counted - 1) <= limit
    assert f"**{block_latency(graph, names, ARRAY):,} clocks**" in page
