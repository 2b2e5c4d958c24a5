"""The trained examples: each is planned, and its integers are ONNX Runtime's on seeded frames."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dovetail as dt
from dovetail.ir.onnx.read import read_model
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.fixed import dequantize
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_integer
from dovetail.runtime.build import store

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
INTEGERS = [*sorted(EXAMPLES.glob("*/*-int8.onnx")), EXAMPLES / "few-bits" / "few-bits.onnx"]


@pytest.mark.parametrize("path", INTEGERS, ids=lambda path: path.parent.name)
def test_an_example_is_planned_and_its_integers_are_those_of_onnx_runtime(path: Path) -> None:
    graph = read_model(path).graph
    (name,), (output,) = graph.inputs, graph.outputs
    plan = dt.plan(graph, "tx2-c10gx", options=dt.Options(fold="none", rivals=False, explained=False)).plan
    assert {d for split in plan.assignment.values() for d in split.devices} <= {"cpu", "gpu", "fpga"}
    x = (np.random.default_rng(3).integers(0, 256, (3, *graph.shape(name)[1:])) / 256).astype(np.float32)
    integers = run_integer(graph, store(graph, {name: x}, "frames"))[output]
    scheme, content = graph.tensors[output].scheme, to_onnx(graph)
    answers = integers if scheme is None else dequantize(integers, scheme)
    np.testing.assert_array_equal(answers, np.concatenate([run_onnx(content, {name: frame[None]})[output] for frame in x]))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.onnx")), ids=lambda path: path.stem)
def test_an_example_is_small_and_its_readme_says_how_large(path: Path) -> None:
    assert path.stat().st_size < 300_000
    readme = (path.parent / "README.md").read_text(encoding="utf-8")
    graph = read_model(path).graph
    assert path.name in readme
    if path.parent.name != "fashion" and not graph.quantized:
        assert f"{graph.parameters:,} parameters" in readme
        assert f"{graph.macs:,} multiply-accumulates" in readme


def test_the_table_lists_every_example() -> None:
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    folders = [f.parent.name for f in EXAMPLES.glob("*/*.onnx")]
    assert [f for f in folders if f"({f}/README.md)" not in table] == []
