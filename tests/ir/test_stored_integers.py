"""Random networks that quantize, move, join, cast and clip: what is read of stored integers is what ONNX Runtime reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.ir import Array
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.fixed import quantize
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_float, run_integer

SIDE = 6


@dataclass
class Draft:
    """A network under way; `tail` is its last value, with the quantizer it was stored by while it is integers."""

    draw: random.Random
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    tail: str = "x"
    stored: tuple[str, str] | None = None

    def constant(self, value: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def add(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> None:
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        self.tail = names[-1]

    def quantized(self) -> None:
        zero = self.draw.choice([np.uint8(0), np.uint8(128), np.uint8(101), np.int8(0), np.int8(7), np.int8(-9)])
        self.stored = self.constant(np.float32(2.0 ** -self.draw.randint(3, 5))), self.constant(zero)
        self.add("QuantizeLinear", [self.tail, *self.stored])

    def dequantized(self) -> None:
        assert self.stored is not None
        scale = self.stored[0] if self.draw.random() < 0.7 else self.constant(np.float32(2.0 ** -self.draw.randint(3, 5)))
        self.add("DequantizeLinear", [self.tail, scale, self.stored[1]])
        self.stored = None

    def cast(self) -> None:
        whole = self.draw.random() < 0.5
        self.add("Cast", [self.tail], to=TensorProto.INT32 if whole else TensorProto.FLOAT)
        if whole:
            self.add("Add", [self.tail, self.constant(np.int32(3))])
            self.add("Cast", [self.tail], to=TensorProto.FLOAT)
        self.stored = None

    def padded(self) -> None:
        assert self.stored is not None
        given = [self.tail, self.constant(np.asarray([0, 0, 1, 0, 0, 0, 0, 1])), *self.stored[1:]]
        self.add("Pad", given if self.draw.random() < 0.5 else given[:2])

    def clipped(self) -> None:
        assert self.stored is not None
        kind = self.constants[self.stored[1]].dtype.type
        self.add("Clip", [self.tail, self.constant(kind(10)), self.constant(kind(90))])

    def rectified(self) -> None:
        signed = self.stored is None or self.constants[self.stored[1]].dtype == np.int8
        self.add("Relu" if signed else "Identity", [self.tail])


ON_INTEGERS: tuple[Callable[[Draft], None], ...] = (
    Draft.dequantized, Draft.cast, Draft.padded, Draft.clipped, Draft.rectified,
    lambda d: d.add("Transpose", [d.tail], perm=[0, 1, 3, 2]),
    lambda d: d.add("MaxPool", [d.tail], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    lambda d: d.add("Concat", [d.tail, d.tail], axis=1),
    lambda d: d.add("Split", [d.tail], 2, axis=1, num_outputs=2),
    lambda d: d.add("ReduceMax", [d.tail, d.constant(np.asarray([1]))]),
    lambda d: d.add("Resize", [d.tail, "", d.constant(np.asarray([1, 1, 2, 1], np.float32))], mode="nearest",
                    coordinate_transformation_mode="asymmetric", nearest_mode="floor"))
ON_REALS: tuple[Callable[[Draft], None], ...] = (
    Draft.quantized, Draft.quantized, Draft.rectified, lambda d: d.add("Mul", [d.tail, d.constant(np.float32(1.5))]))


@pytest.mark.parametrize("block", range(4))
def test_stored_integers_are_what_onnx_runtime_reads(block: int) -> None:
    for seed in range(30 * block, 30 * block + 30):
        draft = Draft(random.Random(seed))
        draft.add("MaxPool", ["x"], kernel_shape=[1, 1])
        for _ in range(draft.draw.randint(3, 8)):
            draft.draw.choice(ON_REALS if draft.stored is None else ON_INTEGERS)(draft)
            if draft.nodes[-1].op_type == "Split":  # one channel is split no more
                draft.add("Concat", [draft.tail, draft.tail], axis=1)
            elif draft.nodes[-1].op_type == "ReduceMax":
                draft.add("Concat", [draft.tail, draft.tail, draft.tail, draft.tail], axis=1)
        if draft.stored is not None:
            draft.dequantized()
        draft.add("Identity", [draft.tail])
        model = helper.make_model(
            helper.make_graph(draft.nodes, "case", [helper.make_tensor_value_info("x", 1, [1, 4, SIDE, SIDE])],
                              [helper.make_tensor_value_info(draft.tail, 1, None)],
                              [numpy_helper.from_array(value, name) for name, value in draft.constants.items()]),
            opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        x = np.random.default_rng(seed).integers(-60, 60, (1, 4, SIDE, SIDE)).astype(np.float32) / 16
        wanted = run_onnx(model.SerializeToString(), {"x": x})[draft.tail]
        graph = read_onnx(onnx.load_from_string(model.SerializeToString())).graph
        own, out = (graph.tensors[name].scheme for name in (graph.inputs[0], graph.outputs[0]))
        given = x if own is None else quantize(x.astype(np.float64), own).astype(own.dtype)
        found = (run_integer if graph.quantized else run_float)(graph, {graph.inputs[0]: given})[graph.outputs[0]]
        real = found if out is None else (found.astype(np.float64) - out.zero) * out.scale
        np.testing.assert_allclose(real, wanted, atol=1e-6, err_msg=f"seed {seed}: {[n.op_type for n in draft.nodes]}")
