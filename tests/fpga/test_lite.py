"""TensorFlow Lite's rounding in hardware: engines of every kind, mapped directly and folded, against the reference integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.fpga.assemble import build_design
from dovetail.hardware.folds import Fold
from dovetail.ir import Graph, Rounding
from dovetail.ir.onnx.read import read_model
from tests.fpga.random_graphs import random_inputs
from tests.fpga.test_assemble import Job, check_run
from tests.ir.test_tflite import IN, OUT, X, binary, ints, layer, unary


def without_turns(content: bytes) -> Graph:
    """A file's network, whose maps come and leave channels first."""
    graph = read_model(content).graph
    turns = {n.inputs[0]: n.output for n in graph.nodes if n.op.kind == "Transpose"}
    nodes = [n for n in graph.nodes if n.op.kind != "Transpose"]
    inputs = tuple(turns.get(t, t) for t in graph.inputs)
    outputs = tuple(next((a for a, b in turns.items() if b == t), t) for t in graph.outputs)
    kept = {*inputs, *(n.output for n in nodes)}
    return replace(graph, nodes=tuple(nodes), inputs=inputs, outputs=outputs,
                   tensors={name: t for name, t in graph.tensors.items() if name in kept})


def job(name: str, content: bytes, fold: Fold | None = None) -> Job:
    graph = without_turns(content)
    assert any((s := t.scheme) is not None and s.rounding is not Rounding.EVEN for t in graph.tensors.values())
    folds = {} if fold is None else {graph.nodes[0].name: fold}
    return graph, build_design(graph, f"lite_{name}", folds=folds), random_inputs(graph, 3, len(name))


def dead() -> Job:
    """A layer all of whose weights are zero, which leaves no adder behind."""
    graph = without_turns(layer("CONV_2D", True, 0, 1, 1, 1))
    weight = graph.constants[graph.nodes[0].params[0]]
    graph = replace(graph, constants={**graph.constants, weight.name: replace(weight, array=np.zeros_like(weight.array))})
    return graph, build_design(graph, "lite_dead"), random_inputs(graph, 2, 0)


def average(rows: int, columns: int, out: tuple[int, ...]) -> bytes:
    return unary("AVERAGE_POOL_2D", "Pool2DOptions", out, IN, True, filterHeight=rows, filterWidth=columns, strideH=2, strideW=2,
                 padding=1)


@pytest.mark.verilator
def test_every_engine_rounds_as_the_reference_does() -> None:
    check_run([
        job("conv", layer("CONV_2D", True, 0, 2, 1, 0)),
        job("conv_folded", layer("CONV_2D", True, 0, 1, 1, 1), Fold(1, 2, 3)),
        job("depthwise", layer("DEPTHWISE_CONV_2D", True, 0, 1, 1, 1)),
        job("depthwise_folded", layer("DEPTHWISE_CONV_2D", True, 0, 2, 1, 0), Fold(2, 1, 2)),
        job("connected", layer("FULLY_CONNECTED", True, 1, 1, 1, 0)),
        job("add", binary("ADD", "AddOptions", True)),
        job("product", binary("MUL", "MulOptions", True)),
        job("average_even", average(2, 2, (1, 3, 3, 4))),
        job("average_odd", average(3, 3, (1, 3, 2, 4))),
        job("mean", unary("MEAN", "ReducerOptions", (1, 4), OUT, True, constants=[ints(1, 2)])),
        job("requantized", unary("QUANTIZE", None, X, OUT, True)),
        job("bounded", unary("RELU6", None, X, OUT, True)),
        dead(),
    ])
