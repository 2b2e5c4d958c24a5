"""Files as exporters and accidents leave them: any node order, functions, decided branches, sparse weights, odd interfaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.errors import ModelError
from dovetail.ir import Conv
from dovetail.ir.onnx import prepare
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_float
from dovetail.pipeline import compile as compile_model
from dovetail.pipeline import verify_build
from tests.ir.test_foreign import weights
from tests.ir.test_onnx import check_same, save

node = helper.make_node


def value(name: str, shape: list[int], kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def write(path: Path, nodes: list[Any], inputs: dict[str, list[int]], outputs: dict[str, list[int]],
          constants: dict[str, np.ndarray] | None = None) -> Path:
    return save(path, nodes, inputs, outputs, constants or {})


def test_nodes_out_of_order_are_sorted(tmp_path: Path) -> None:
    nodes = [node("Relu", ["b"], ["y"], "third"), node("Conv", ["a", "w"], ["b"], "second"), node("Relu", ["x"], ["a"], "first")]
    path = write(tmp_path / "m.onnx", nodes, {"x": [1, 2, 5, 5]}, {"y": [1, 3, 3, 3]}, {"w": weights(3, 2, 3, 3)})
    graph = read_onnx(path).graph
    assert [n.name for n in graph.nodes] == ["first", "second"]
    sorted_ = write(tmp_path / "s.onnx", nodes[::-1], {"x": [1, 2, 5, 5]}, {"y": [1, 3, 3, 3]}, {"w": weights(3, 2, 3, 3)})
    assert read_onnx(sorted_).graph == graph


def test_functions_of_the_file_are_inlined(tmp_path: Path) -> None:
    """As PyTorch's dynamo exporter and onnxscript write them."""
    nodes = [node("Block", ["x", "w"], ["y"], "block", domain="pkg.torch")]
    path = write(tmp_path / "m.onnx", nodes, {"x": [1, 2, 6, 6]}, {"y": [1, 3, 4, 4]}, {"w": weights(3, 2, 3, 3)})
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("pkg.torch", 1))
    body = [node("Conv", ["a", "b"], ["t"], "conv"), node("Relu", ["t"], ["c"], "relu")]
    model.functions.append(helper.make_function("pkg.torch", "Block", ["a", "b"], ["c"], body, [helper.make_opsetid("", 17)]))
    onnx.save(model, path)
    graph = check_same(path, weights(1, 2, 6, 6))
    assert [type(n.op) for n in graph.nodes] == [Conv]


@pytest.mark.parametrize("batch", [1, 2])
def test_an_if_over_shapes_takes_its_branch(tmp_path: Path, batch: int) -> None:
    """As scripted PyTorch modules leave `if x.size(0) == 1`."""
    def branch(op: str) -> Any:
        inner = [node(op, ["a"], ["t"], "act"), node("Mul", ["t", "two"], ["o"], "twice")]
        return helper.make_graph(inner, op, [], [value("o", [batch, 3, 4, 4])],
                                 [numpy_helper.from_array(np.asarray(2, np.float32), "two")])
    nodes = [node("Conv", ["x", "w"], ["a"], "conv"), node("Shape", ["x"], ["s"], "shape"),
             node("Gather", ["s", "zero"], ["n"], "size"), node("Equal", ["n", "one"], ["c"], "equal"),
             node("If", ["c"], ["y"], "choice", then_branch=branch("Relu"), else_branch=branch("Abs"))]
    constants = {"w": weights(3, 2, 3, 3), "zero": np.asarray(0), "one": np.asarray(1)}
    graph = check_same(write(tmp_path / "m.onnx", nodes, {"x": [batch, 2, 6, 6]}, {"y": [batch, 3, 4, 4]}, constants),
                       weights(batch, 2, 6, 6))
    assert ("Abs" in [n.op.kind for n in graph.nodes]) is (batch == 2)


@pytest.mark.verilator
def test_an_if_over_data_stays_whole_and_exact(tmp_path: Path) -> None:
    """Both branches read values from around them; the plan keeps the node on the CPU."""
    def branch(op: str) -> Any:
        inner = [node(op, ["a"], ["x0"], "act"), node("Mul", ["x0", "f"], ["o"], "scale")]
        return helper.make_graph(inner, op, [], [value("o", [1, 3, 4, 4])])
    nodes = [node("Conv", ["x", "w"], ["a"], "conv"), node("ReduceMax", ["x"], ["m"], "top", keepdims=0),
             node("Greater", ["m", "half"], ["c"], "bright"),
             node("If", ["c"], ["i"], "choice", then_branch=branch("Relu"), else_branch=branch("Abs")),
             node("Conv", ["i", "v"], ["y"], "last")]
    constants = {"w": weights(3, 2, 3, 3), "v": weights(2, 3, 1, 1), "f": weights(3, 1, 1), "half": np.asarray(0.5, np.float32)}
    path = write(tmp_path / "m.onnx", nodes, {"x": [1, 2, 6, 6]}, {"y": [1, 2, 4, 4]}, constants)
    for factor in (0.1, 1.0):  # either branch
        graph = check_same(path, np.random.default_rng(1).random((1, 2, 6, 6), dtype=np.float32) * np.float32(factor))
    assert "If" in [n.op.kind for n in graph.nodes]
    build = compile_model(path, "tx2-c10gx", tmp_path / "build", verify=False)
    assert build.plan.assignment["choice"].devices == ("cpu",)
    assert verify_build(build, frames=6).equal


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("where", ["initializer", "constant"])
def test_sparse_weights_become_dense(tmp_path: Path, where: str, flat: bool) -> None:
    dense = np.zeros((3, 2, 1, 1), np.float32)
    dense[0, 1], dense[2, 0] = 1.5, -2.0
    indices = np.asarray([1, 4]) if flat else np.argwhere(dense)
    sparse = helper.make_sparse_tensor(numpy_helper.from_array(dense[dense != 0], "w"), numpy_helper.from_array(indices, "i"),
                                       list(dense.shape))
    constant = [node("Constant", [], ["w"], "w", sparse_value=sparse)] if where == "constant" else []
    nodes = [*constant, node("Conv", ["x", "w"], ["y"], "conv")]
    path = write(tmp_path / "m.onnx", nodes, {"x": [1, 2, 4, 4]}, {"y": [1, 3, 4, 4]})
    if where == "initializer":
        model = onnx.load(path)
        model.graph.sparse_initializer.append(sparse)
        onnx.save(model, path)
    graph = read_onnx(path).graph
    np.testing.assert_array_equal(graph.constants["conv_weight"].array, dense)


def test_a_default_for_an_input_is_its_value(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [node("Conv", ["x", "w"], ["y"], "conv")], {"x": [1, 2, 5, 5], "w": [3, 2, 3, 3]},
                 {"y": [1, 3, 3, 3]}, {"w": weights(3, 2, 3, 3)})
    assert read_onnx(path).graph.inputs == ("x",)


def test_a_file_without_an_opset_says_what_was_assumed(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", [node("Relu", ["x"], ["y"], "relu")], {"x": [1, 2]}, {"y": [1, 2]})
    model = onnx.load(path)
    del model.opset_import[:]
    onnx.save(model, path)
    assert read_onnx(path).notes == ("the file states no opset; its operators are read in their present meaning",)


@pytest.mark.parametrize("opset", range(1, 9))
def test_opsets_from_one_to_eight_are_read(tmp_path: Path, opset: int) -> None:
    norm = {"is_test": 1} if opset < 7 else {}
    nodes = [node("Conv", ["x", "w"], ["a"], "conv"), node("BatchNormalization", ["a", "s", "b", "b", "s"], ["n"], "bn", **norm),
             node("Relu", ["n"], ["y"], "relu")]
    constants = {"w": weights(3, 2, 3, 3), "s": np.ones(3, np.float32), "b": weights(3, 1, seed=1)[:, 0]}
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 6, 6]}, {"y": [1, 3, 4, 4]}, constants, opset)
    graph = read_onnx(path).graph
    assert [n.name for n in graph.nodes] == ["conv"]
    nodes[1] = node("BatchNormalization", ["a", "s", "b", "b", "s"], ["n"], "bn")
    today = save(tmp_path / "t.onnx", nodes, {"x": [1, 2, 6, 6]}, {"y": [1, 3, 4, 4]}, constants)
    x = weights(1, 2, 6, 6)
    np.testing.assert_allclose(run_float(graph, {"x": x})["y"], run_onnx(today.read_bytes(), {"x": x})["y"], rtol=1e-4, atol=1e-5)


def test_broadcasting_of_the_first_opsets_is_refused_by_name(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"], "conv"), node("Add", ["a", "k"], ["y"], "bias", broadcast=1, axis=1)]
    constants = {"w": weights(3, 2, 3, 3), "k": weights(3)}
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 6, 6]}, {"y": [1, 3, 4, 4]}, constants, 6)
    with pytest.raises(ModelError, match="node bias: Add broadcasts along an axis as before opset 7; export the model with"):
        read_onnx(path)


ODD: dict[str, tuple[list[Any], dict[str, list[int]], dict[str, list[int]]]] = {
    "two inputs, two outputs": (
        [node("Conv", ["x", "w"], ["a"], "one"), node("Conv", ["u", "w"], ["b"], "two"), node("Add", ["a", "b"], ["s"], "sum"),
         node("Relu", ["s"], ["y"], "relu")], {"x": [1, 2, 6, 6], "u": [1, 2, 6, 6]}, {"y": [1, 3, 4, 4], "b": [1, 3, 4, 4]}),
    "an output that is read inside": (
        [node("Conv", ["x", "w"], ["a"], "one"), node("Relu", ["a"], ["y"], "relu")], {"x": [1, 2, 6, 6]},
        {"a": [1, 3, 4, 4], "y": [1, 3, 4, 4]}),
    "one value under two names": (
        [node("Conv", ["x", "w"], ["a"], "one"), node("Identity", ["a"], ["y"]), node("Identity", ["a"], ["z"])],
        {"x": [1, 2, 6, 6]}, {"y": [1, 3, 4, 4], "z": [1, 3, 4, 4]}),
    "an input passed on": (
        [node("Conv", ["x", "w"], ["y"], "one"), node("Identity", ["x"], ["z"])], {"x": [1, 2, 6, 6]},
        {"y": [1, 3, 4, 4], "z": [1, 2, 6, 6]}),
    "an unused input": ([node("Conv", ["x", "w"], ["y"], "one")], {"x": [1, 2, 6, 6], "u": [1, 4]}, {"y": [1, 3, 4, 4]}),
    "a batch of three": ([node("Conv", ["x", "w"], ["a"], "one"), node("Sigmoid", ["a"], ["y"], "gate")], {"x": [3, 2, 6, 6]},
                         {"y": [3, 3, 4, 4]}),
    "a wide image": ([node("Conv", ["x", "w"], ["y"], "one", strides=[1, 2])], {"x": [1, 2, 5, 12]}, {"y": [1, 3, 3, 5]}),
    "rank three": ([node("MatMul", ["x", "v"], ["a"], "one"), node("Relu", ["a"], ["y"], "relu")], {"x": [1, 7, 4]},
                   {"y": [1, 7, 5]}),
    "rank five": ([node("Relu", ["x"], ["y"], "relu")], {"x": [1, 2, 3, 3, 3]}, {"y": [1, 2, 3, 3, 3]}),
    "a scalar": ([node("Conv", ["x", "w"], ["a"], "one"), node("Mul", ["a", "u"], ["y"], "gain")], {"x": [1, 2, 6, 6], "u": []},
                 {"y": [1, 3, 4, 4]}),
}


@pytest.mark.verilator
@pytest.mark.parametrize("case", ODD)
def test_odd_interfaces_are_planned_built_and_exact(case: str, tmp_path: Path) -> None:
    nodes, inputs, outputs = ODD[case]
    path = write(tmp_path / "m.onnx", nodes, inputs, outputs, {"w": weights(3, 2, 3, 3), "v": weights(4, 5)})
    graph = read_onnx(path).graph
    assert graph.outputs == tuple(outputs)
    assert graph.inputs == tuple(inputs)
    x = {name: np.asarray(np.random.default_rng(3).random(shape), np.float32) for name, shape in inputs.items()}
    expected = run_onnx(path.read_bytes(), x)
    rows = {name: v if v.ndim else v[None] for name, v in x.items()}
    for name, found in run_float(graph, rows).items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-4, atol=1e-5)
    build = compile_model(path, "tx2-c10gx", tmp_path / "build", verify=False)
    assert verify_build(build, frames=6).equal
    for name, found in build.run(rows).items():
        assert found.shape == expected[name].shape
        assert np.abs(found - expected[name]).max() <= 0.1 * np.abs(expected[name]).max()


def test_outputs_that_nothing_computes_are_left_out_and_said(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], "conv"), node("Relu", ["k"], ["z"], "constant")]
    path = write(tmp_path / "m.onnx", nodes, {"x": [1, 2, 6, 6]}, {"y": [1, 3, 4, 4], "z": [2], "x": [1, 2, 6, 6]},
                 {"w": weights(3, 2, 3, 3), "k": np.ones(2, np.float32)})
    imported = read_onnx(path)
    assert imported.graph.outputs == ("y",)
    assert imported.notes == ("output z does not depend on any input; it is left out",
                              "output x is an input as it came; it is left out")


@pytest.mark.verilator
def test_bytes_as_input_are_cast_where_the_network_says(tmp_path: Path) -> None:
    nodes = [node("Cast", ["x"], ["f"], "cast", to=TensorProto.FLOAT), node("Conv", ["f", "w"], ["y"], "conv")]
    path = write(tmp_path / "m.onnx", nodes, {"x": [1, 2, 6, 6]}, {"y": [1, 3, 4, 4]}, {"w": weights(3, 2, 3, 3)})
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    onnx.save(model, path)
    assert verify_build(compile_model(path, "tx2-c10gx", tmp_path / "build", verify=False), frames=4).equal


@pytest.mark.parametrize("wide", [False, True])
def test_a_thousand_nodes_fold_to_what_they_mean(tmp_path: Path, wide: bool) -> None:
    """A chain of convolution, BatchNorm and Relu, or as many branches from one input; folding is linear in their number."""
    nodes, source = [], "x"
    for i in range(333):
        nodes += [node("Conv", ["x" if wide else source, "w"], [f"c{i}"], f"conv{i}", pads=[1, 1, 1, 1]),
                  node("BatchNormalization", [f"c{i}", "s", "b", "b", "s"], [f"n{i}"], f"bn{i}"),
                  node("Relu", [f"n{i}"], [f"r{i}"], f"relu{i}")]
        source = f"r{i}"
    end = node("Sum", [f"r{i}" for i in range(333)], ["y"], "end") if wide else node("Relu", [source], ["y"], "end")
    constants = {"w": weights(2, 2, 3, 3), "s": np.ones(2, np.float32), "b": np.zeros(2, np.float32)}
    path = write(tmp_path / "m.onnx", [*nodes, end], {"x": [1, 2, 6, 6]}, {"y": [1, 2, 6, 6]}, constants)
    graph = check_same(path, weights(1, 2, 6, 6))
    assert [n.name for n in graph.nodes] == [f"conv{i}" for i in range(333)] + (["end"] if wide else [])


@pytest.mark.parametrize("most", [6, 7])
def test_nodes_inside_nodes_are_counted_too(tmp_path: Path, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice between two branches of three nodes each: seven in all."""
    def branch(op: str) -> Any:
        inner = [node(op, ["x"], ["a"], "first"), node(op, ["a"], ["b"], "second"), node(op, ["b"], ["o"], "third")]
        return helper.make_graph(inner, op, [], [value("o", [1, 2, 3, 3])])
    nodes = [node("If", ["c"], ["y"], "choice", then_branch=branch("Relu"), else_branch=branch("Abs"))]
    path = write(tmp_path / "m.onnx", nodes, {"x": [1, 2, 3, 3]}, {"y": [1, 2, 3, 3]}, {"c": np.asarray(True)})
    monkeypatch.setattr(prepare, "MAX_NODES", most)
    if most == 7:
        assert read_onnx(path).graph.outputs == ("y",)
    else:
        with pytest.raises(ModelError, match=r"m\.onnx: 7 nodes; at most 6 are read, export the network alone"):
            read_onnx(path)
