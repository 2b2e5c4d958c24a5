"""Learned quantization in files: codes, bases and thresholds survive, other runtimes get the same numbers, damage is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import Axis, Coded, Constant, Conv, Gemm, Graph, Node, Scheme, Tensor, Thresholds, Window
from dovetail.ir.onnx.lq import DOMAIN
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.onnx.writer import Boundary
from dovetail.ir.operators.base import RELU
from dovetail.ir.operators.lq import check_constants, holds_codes
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_integer
from tests.numerics.lq_networks import images, network


@pytest.mark.parametrize("bits", [(1, 1), (1, 2), (2, 2), (3, 3), (4, 4)])
@pytest.mark.parametrize("last", ["fixed", "codes"])
def test_a_network_of_codes_comes_back_as_it_was(tmp_path: Path, bits: tuple[int, int], last: str) -> None:
    graph = network(sum(bits), *bits, last=last)
    path = tmp_path / "lq.onnx"
    path.write_bytes(to_onnx(graph))
    back = read_onnx(path).graph
    assert back == graph
    assert to_onnx(back) == path.read_bytes()


def with_thresholds(by_channel: bool, rank: int) -> Graph:
    """Fixed-point numbers of 16 bits to codes, with thresholds below, among and above them."""
    shape = (1, 3, 2, 2) if rank == 4 else (1, 3)
    steps = np.asarray([[-40, 0, 1], [-32768, 5, 32768], [7, 7, 7]], dtype=np.int32)
    constant = Constant("t_steps", steps if by_channel else steps[0])
    tensors = {"x": Tensor("x", shape, Scheme(16, True, (-4,))), "y": Tensor("y", shape, Scheme(2, False, (0,)))}
    return Graph("t", ("x",), ("y",), (Node("t", Thresholds(2, by_channel), ("x",), ("t_steps",), "y"),), tensors,
                 {"t_steps": constant})


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("rank", [2, 4])
def test_thresholds_come_back_and_mean_the_same_elsewhere(tmp_path: Path, by_channel: bool, rank: int) -> None:
    graph = with_thresholds(by_channel, rank)
    path = tmp_path / "t.onnx"
    path.write_bytes(to_onnx(graph))
    assert read_onnx(path).graph == graph
    x = np.random.default_rng(3).choice([-32768, -41, -40, 0, 1, 5, 6, 7, 32767], (4, *graph.shape("x")[1:])).astype(np.int16)
    expected = run_integer(graph, {"x": x})["y"]
    assert len(np.unique(expected)) == 4
    np.testing.assert_array_equal(run_onnx(to_onnx(graph, Boundary.INTEGER), {"x": x})["y"], expected)


def test_thresholds_that_descend_are_refused(tmp_path: Path) -> None:
    graph = with_thresholds(True, 4)
    steps = graph.constants["t_steps"]
    changed = replace(graph, constants={"t_steps": replace(steps, array=steps.array[:, ::-1].copy())})
    path = tmp_path / "t.onnx"
    path.write_bytes(to_onnx(changed))
    with pytest.raises(ModelError, match=r"node t: thresholds of row 0 descend, \[1, 0, -40\]; they must ascend"):
        read_onnx(path)


def test_the_functions_of_a_file_say_what_its_calls_mean() -> None:
    """ONNX's own evaluator, which knows nothing of ours, computes the same codes from the file."""
    graph = network(4, 2, 2)
    model = onnx.load_model_from_string(to_onnx(graph, Boundary.INTEGER))
    assert {f.domain for f in model.functions} == {DOMAIN}
    assert {n.domain for f in model.functions for n in f.node} == {""}
    frames = images(9, 1)
    (found,) = ReferenceEvaluator(model).run(None, frames)
    np.testing.assert_array_equal(found, run_integer(graph, frames)["last_y"])


def test_functions_of_others_are_inlined_beside_ours(tmp_path: Path) -> None:
    graph = network(4, 2, 2)
    model = onnx.load_model_from_string(to_onnx(graph))
    twice = onnx.helper.make_function("other", "Twice", ["a"], ["b"], [onnx.helper.make_node("Add", ["a", "a"], ["b"])],
                                      [onnx.helper.make_opsetid("", 21)])
    model.functions.append(twice)
    model.opset_import.append(onnx.helper.make_opsetid("other", 1))
    model.graph.node.append(onnx.helper.make_node("Twice", ["last_y"], ["doubled"], name="twice", domain="other"))
    model.graph.output[0].name = "doubled"
    path = tmp_path / "both.onnx"
    path.write_bytes(model.SerializeToString())
    kinds = [n.op.kind for n in read_onnx(path).graph.nodes]
    assert kinds[-1] == "Add"
    assert kinds.count("LqConv") == 3


def test_a_call_nobody_knows_is_refused_by_name(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(to_onnx(network(4, 2, 2)))
    for f in (*model.functions, *model.graph.node):
        if getattr(f, "op_type", getattr(f, "name", "")).startswith("LqGemm"):
            setattr(f, "op_type" if hasattr(f, "op_type") else "name", "Mystery")
    path = tmp_path / "mystery.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"node last: operator Mystery of domain dovetail\.lq is unknown"):
        read_onnx(path)


@pytest.mark.parametrize(("role", "change", "message"), [
    ("second_codes", lambda a: a + 3, r"node second: weight code \d; 2 bits hold 0 to 3"),
    ("second_steps", lambda a: a[:, ::-1], "node second: thresholds of row 0 descend"),
    ("second_unit", lambda a: a * np.float32(1.5), "node second: products without a power of two per filter"),
    ("second_planes", lambda a: a[::-1], "code 0 has pattern 3; code 0 is zero, as padding is"),
    ("second_products", lambda a: a[:, :1], r"node second: constant second_products has shape \[8, 1, 2\]; \[8, 2, 2\]"),
])
def test_damaged_constants_are_named(tmp_path: Path, role: str, change, message: str) -> None:  # type: ignore[no-untyped-def]
    model = onnx.load_model_from_string(to_onnx(network(4, 2, 2)))
    proto = next(i for i in model.graph.initializer if i.name == role)
    proto.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(change(onnx.numpy_helper.to_array(proto))), role))
    path = tmp_path / "damaged.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=message):
        read_onnx(path)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Coded(Gemm(3), 5, 2), "LqGemm: weights: codes of 5 bits; 1 to 4 are possible, 0 for plain integers"),
    (lambda: Coded(Gemm(3, RELU), 2, 2), "LqGemm: a partial or clamped body"),
    (lambda: Coded(Gemm(3), 2, 2, 2, (0, 1, 1, 2)), r"LqGemm: patterns \[0, 1, 1, 2\]; a permutation of 4 is needed"),
    (lambda: Thresholds(9), "Thresholds: codes of 9 bits"),
    (lambda: Scheme(1, True, (0,)), "scheme: 1 bits; 2 to 32 are possible"),
])
def test_operators_that_cannot_be_are_refused(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ModelError, match=message):
        make()


@pytest.mark.parametrize("bits", [0, 1, 4])
def test_a_layer_makes_codes_only_where_it_says_so(bits: int) -> None:
    shapes, made = ((1, 6),), Coded(Gemm(3), 2, 1, bits) if bits else Coded(Gemm(3), 2, 1)
    assert made.code_bits == bits
    assert made.param_shapes(shapes)[:3] == ((3, 6), (3, 2, 1), (3, 2**bits - 1) if bits else (3,))


def test_input_channels_are_never_divided() -> None:
    op = Coded(Conv(4, Window((3, 3))), 2, 2, 2)
    assert Axis.INPUT_CHANNELS not in op.axes(((1, 8, 5, 5),))
    with pytest.raises(UnsupportedError, match="cannot be divided along input_channels"):
        op.share(Axis.INPUT_CHANNELS, 0, 4, ((1, 8, 5, 5),))


def test_codes_stay_codes_while_they_only_move() -> None:
    graph = network(1, 2, 2)
    assert [t for t in graph.tensors if holds_codes(graph, t)] == ["first_y", "second_y", "pool_y", "third_y", "flat"]


def test_thresholds_must_ascend_and_products_have_a_unit() -> None:
    graph = network(1, 2, 2)
    node = graph.node("second")
    assert isinstance(node.op, Coded)
    codes, products, steps = graph.params(node)[:3]
    check_constants("second", node.op, codes, products, steps)
    with pytest.raises(ModelError, match="second: products without a power of two per filter"):
        check_constants("second", node.op, codes, replace(products, scheme=None), steps)
