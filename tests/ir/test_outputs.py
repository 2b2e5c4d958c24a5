"""Outputs at every kind of place: folded, aliased, of operators that do nothing, of branches; judged by ONNX Runtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_float
from dovetail.numerics.tables import tabulate
from tests.ir.test_foreign import weights
from tests.ir.test_onnx import check_same, save

node = helper.make_node
SEEDS = 160


def test_an_output_listed_before_the_one_it_is_a_name_of_is_read(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["a"], "relu"), node("Reshape", ["a", "s"], ["c"], "flat"), node("Dropout", ["c"], ["b"])]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 3, 4]}, {"b": [1, 24], "c": [1, 24]}, {"s": np.asarray([1, 24])})
    assert check_same(path, weights(1, 2, 3, 4)).outputs == ("b", "c")


def test_a_shuffle_of_nothing_may_be_an_output_beside_what_it_shuffles(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["a"], "relu"), node("Reshape", ["a", "s"], ["g"], "groups"),
             node("Transpose", ["g"], ["t"], "turn", perm=[0, 2, 1, 3, 4]), node("Reshape", ["t", "u"], ["y"], "back")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 4, 3, 3]}, {"y": [1, 4, 3, 3], "a": [1, 4, 3, 3]},
                {"s": np.asarray([1, 1, 4, 3, 3]), "u": np.asarray([1, 4, 3, 3])})
    assert check_same(path, weights(1, 4, 3, 3)).outputs == ("y", "a")


def test_a_sum_of_one_term_is_that_term_and_survives_quantization(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"], "conv"), node("Sum", ["a"], ["y"], "sum")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 4, 4]}, {"y": [1, 3, 2, 2]}, {"w": weights(3, 2, 3, 3)})
    graph = check_same(path, weights(1, 2, 4, 4))
    assert [n.name for n in graph.nodes] == ["conv"]
    (tmp_path / "q.onnx").write_bytes(to_onnx(quantize_graph(graph, synthetic(graph, 2))))


OLD: dict[str, tuple[int, dict[str, Any], list[int]]] = {
    "Pad": (10, {"mode": "reflect", "pads": [0, 0, 1, 1, 0, 0, 1, 1], "value": 0.0}, [1, 2, 7, 7]),
    "Hardmax": (11, {"axis": 2}, [1, 2, 5, 5]),
    "Upsample": (8, {"mode": "linear", "scales": [1.0, 1.0, 2.0, 2.0]}, [1, 2, 10, 10]),
    "MeanVarianceNormalization": (9, {}, [1, 2, 5, 5]),
}


@pytest.mark.parametrize("operator", OLD)
def test_operators_of_old_opsets_keep_their_old_meaning(tmp_path: Path, operator: str) -> None:
    opset, attributes, shape = OLD[operator]
    nodes = [node(operator, ["x"], ["y"], "old", **attributes)]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 5, 5]}, {"y": shape}, {}, opset)
    check_same(path, weights(1, 2, 5, 5))


def test_a_resize_before_coordinates_were_stated_takes_the_pixel_below(tmp_path: Path) -> None:
    for mode in ("nearest", "linear"):
        nodes = [node("Resize", ["x", "s"], ["y"], "larger", mode=mode)]
        path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 4, 4]}, {"y": [1, 2, 6, 6]},
                    {"s": np.asarray([1, 1, 1.5, 1.5], np.float32)}, 10)
        check_same(path, weights(1, 2, 4, 4))


def switched(path: Path, wide: bool) -> Path:
    """An `If` on an input; each branch reshapes by shapes that it computes; the other branch of a `wide` one cannot work."""
    def branch(columns: int) -> Any:
        inner = [node("Shape", ["a"], [f"s{columns}"]), node("Gather", [f"s{columns}", "zero"], [f"n{columns}"]),
                 node("Concat", [f"n{columns}", f"rest{columns}"], [f"t{columns}"], axis=0),
                 node("Reshape", ["a", f"t{columns}"], [f"r{columns}"]),
                 node("MatMul", [f"r{columns}", f"m{columns}"], [f"o{columns}"])]
        return helper.make_graph(inner, "branch", [], [onnx.ValueInfoProto(name=f"o{columns}")],
                                 [numpy_helper.from_array(np.asarray([columns]), f"rest{columns}"),
                                  numpy_helper.from_array(weights(columns, 3), f"m{columns}")])
    nodes = [node("Conv", ["x", "w"], ["a"], "conv"), node("ReduceMax", ["x"], ["m"], "most", keepdims=0),
             node("Greater", ["m", "limit"], ["c"], "loud"),
             node("If", ["c"], ["h"], "choice", then_branch=branch(12), else_branch=branch(7 if wide else 12)),
             node("Relu", ["h"], ["y"], "relu")]
    return save(path, nodes, {"x": [1, 2, 4, 4]}, {"y": [1, 3]},
                {"w": weights(3, 2, 3, 3), "limit": np.asarray(-9, np.float32), "zero": np.asarray([0])})


@pytest.mark.parametrize("wide", [False, True])
def test_an_undecided_branch_of_known_shapes_stays_on_the_cpu(tmp_path: Path, wide: bool) -> None:
    """As silero_vad switches between two sampling rates, of which a given length of input suits one."""
    path = switched(tmp_path / "m.onnx", wide)
    imported = read_onnx(path)
    assert [n.op.kind for n in imported.graph.nodes] == ["Conv", "ReduceMax", "Greater", "If", "Clip"]
    assert any("else_branch cannot be computed on inputs of these shapes" in note for note in imported.notes) == wide
    check_same(path, weights(1, 2, 4, 4))


@dataclass
class Drawn:
    """A random model under construction: mostly operators that move, copy or do nothing."""

    rng: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def constant(self, values: Any) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(values)
        return name

    def add(self, op: str, inputs: list[str], *shapes: tuple[int, ...], **attributes: Any) -> str:
        outputs = [f"v{len(self.shapes) + i}" for i in range(len(shapes))]
        self.nodes.append(node(op, inputs, outputs, f"n{len(self.nodes)}" if self.rng.random() < 0.8 else "", **attributes))
        self.shapes |= dict(zip(outputs, shapes, strict=True))
        return outputs[0]

    def step(self) -> None:
        x = str(self.rng.choice(list(self.shapes)))
        shape = self.shapes[x]
        axis = int(self.rng.integers(0, len(shape)))
        before, size, after = shape[:axis], shape[axis], shape[axis + 1:]
        alike = [name for name, other in self.shapes.items() if other == shape]
        match int(self.rng.integers(0, 14)):
            case 0:
                self.add(str(self.rng.choice(["Relu", "Sigmoid", "Identity", "Dropout", "Sum"])), [x], shape)
            case 1:
                self.add("Cast", [x], shape, to=TensorProto.FLOAT)
            case 2:
                forms = [shape, (shape[0], prod(shape[1:])), (1, *shape), (prod(shape),), (shape[0], prod(shape[1:]), 1, 1)]
                form = forms[int(self.rng.integers(0, len(forms)))]
                self.add("Reshape", [x, self.constant(form)], form)
            case 3:
                self.add("Flatten", [x], (shape[0], prod(shape[1:])))
            case 4 if len(shape) < 5:
                self.add("Unsqueeze", [x, self.constant([axis])], (*before, 1, *shape[axis:]))
            case 5 if size == 1 and len(shape) > 1:
                self.add("Squeeze", [x, self.constant([axis])], (*before, *after))
            case 6:
                perm = [int(i) for i in (self.rng.permutation(len(shape)) if self.rng.random() < 0.7 else range(len(shape)))]
                self.add("Transpose", [x], tuple(shape[i] for i in perm), perm=perm)
            case 7:
                parts = [size] if size == 1 else [int(self.rng.integers(1, size))]
                parts += [size - parts[0]] if size > 1 else []
                self.add("Split", [x, self.constant(parts)], *((*before, p, *after) for p in parts), axis=axis)
            case 8:
                start = int(self.rng.integers(0, size)) if self.rng.random() < 0.5 else 0
                self.add("Slice", [x, *(self.constant([v]) for v in (start, size, axis))], (*before, size - start, *after))
            case 9:
                order = self.rng.permutation(size) if self.rng.random() < 0.5 else np.arange(size)
                self.add("Gather", [x, self.constant(order)], shape, axis=axis)
            case 10:
                joined = [x, *(str(name) for name in self.rng.choice(alike, int(self.rng.integers(0, 2))))]
                self.add("Concat", joined, (*before, size * len(joined), *after), axis=axis)
            case 11:
                self.add("Add", [x, str(self.rng.choice(alike))], shape)
            case 12 if len(shape) == 4:
                self.add("Conv", [x, self.constant(weights(2, shape[1], 1, 1))], (shape[0], 2, *shape[2:]))
            case _:
                self.add("Mul", [x, self.constant(np.float32(1))], shape)


def draw(seed: int) -> tuple[bytes, dict[str, tuple[int, ...]], list[str]]:
    """A model, the shapes of its inputs (some unread) and its outputs, in any order, inputs and constants among them."""
    rng = np.random.default_rng(seed)
    drawn = Drawn(rng)
    forms = [(1, 4, 3, 3), (1, 4, 3, 3), (1, 4, 4, 2), (1, 6), (1, 3, 4)]
    inputs = {f"x{i}": forms[int(rng.integers(0, len(forms)))] for i in range(int(rng.integers(1, 3)))}
    drawn.shapes |= inputs
    fixed = drawn.constant(np.ones(3, np.float32))
    while len(drawn.nodes) < rng.integers(1, 8):
        drawn.step()
    made = [name for name in drawn.shapes if name not in inputs]
    outputs = [str(name) for name in rng.permutation(made)[:int(rng.integers(1, 5))]]
    outputs += ["x0"] * (rng.random() < 0.15) + [fixed] * (rng.random() < 0.1)
    outputs = [str(name) for name in rng.permutation(outputs)]
    shapes = {**drawn.shapes, fixed: (3,)}
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes[n]) for n in names] for names in (inputs, outputs)]
    graph = helper.make_graph(drawn.nodes, "drawn", *ends,
                              [numpy_helper.from_array(v, n) for n, v in drawn.constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), inputs, outputs


def test_random_outputs_equal_onnx_runtime_and_quantized_ones_are_written_and_read_back(tmp_path: Path) -> None:
    for seed in range(SEEDS):
        content, shapes, outputs = draw(seed)
        path = tmp_path / "m.onnx"
        path.write_bytes(content)
        x = {name: np.random.default_rng(seed).standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        expected, imported = run_onnx(content, x), read_onnx(path)
        found = run_float(imported.graph, x)
        left_out = {note.split()[1] for note in imported.notes if note.endswith("left out")}
        assert left_out == {name for name in outputs if name in shapes or name.startswith("k")}, f"seed {seed}"
        for name in set(outputs) - left_out:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}: {name}")
        graph = tabulate(imported.graph)
        integers = quantize_graph(graph, synthetic(graph, 2))
        path.write_bytes(to_onnx(integers))
        assert read_onnx(path).graph == integers, f"seed {seed}"
