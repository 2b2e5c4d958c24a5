"""Activations in every spelling become one operator, and mean what ONNX Runtime says they mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from dovetail.ir import Add, Clip, Conv, Function, Graph, Lookup, Mul, Opaque
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import Samples
from dovetail.numerics.oracle import run_onnx, run_oracle
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_float, run_integer
from tests.formulas import CHANNELS, PATTERNS, Formula, build, function, model

SHAPE = (1, CHANNELS, 4, 5)


def loaded(content: bytes, folder: Path) -> Graph:
    path = folder / "m.onnx"
    path.write_bytes(content)
    return read_onnx(path).graph


def frames(count: int = 3, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((count, *shape[1:])) * 3).astype(np.float32)


def by_frame(content: bytes, x: np.ndarray, name: str = "x") -> dict[str, np.ndarray]:
    parts = [run_onnx(content, {name: f[None]}) for f in x]
    return {key: np.concatenate([p[key] for p in parts]) for key in parts[0]}


def quantized(graph: Graph, x: np.ndarray) -> Graph:
    return quantize_graph(graph, Samples({graph.inputs[0]: x}, "test"))


@pytest.mark.parametrize("name", PATTERNS)
def test_every_spelling_becomes_one_function_of_the_same_values(name: str, tmp_path: Path) -> None:
    graph = loaded(model(name), tmp_path)
    (node,) = graph.nodes
    assert isinstance(node.op, Function)
    wanted = name.split(" ")[0].split(",")[0].lower()
    assert node.op.name.lower().startswith(wanted)
    assert len(node.params) == ("per channel" in name or name == "PReLU")
    x = frames()
    np.testing.assert_array_equal(run_float(graph, {"x": x})["y"].astype(np.float32), by_frame(model(name), x)["y"])
    again = loaded(to_onnx(graph), tmp_path)
    assert again == graph


@pytest.mark.parametrize("name", PATTERNS)
def test_the_table_holds_the_rounded_function_of_every_code(name: str, tmp_path: Path) -> None:
    convolved = Formula()
    PATTERNS[name](convolved)
    nodes = [helper.make_node("Conv", ["image", "w"], ["x"], "before"), *convolved.nodes,
             helper.make_node("Conv", ["y", "w"], ["z"], "after")]
    constants = {**convolved.constants, "w": np.diag([1.0, 0.5, 1.5]).astype(np.float32).reshape(3, 3, 1, 1)}
    graph = quantized(loaded(build(nodes, constants, {"image": SHAPE}, {"z": SHAPE}), tmp_path), frames(8))
    lookup = next(n for n in graph.nodes if isinstance(n.op, Lookup))
    table = graph.params(lookup)[0].array
    source, target = graph.tensors[lookup.inputs[0]].scheme, graph.tensors[lookup.output].scheme
    assert source is not None
    assert target is not None
    assert table.dtype == target.dtype
    codes = np.arange(source.lo, source.hi + 1)
    reals = np.broadcast_to((codes * 2.0**source.exponent).astype(np.float32)[:, None, None, None], (256, *SHAPE[1:]))
    outside = by_frame(model(name), reals.copy())["y"][:, :, 0, 0].astype(np.float64)
    expected = np.clip(np.rint(outside / 2.0**target.exponent), target.lo, target.hi)
    np.testing.assert_array_equal(np.broadcast_to(table, (CHANNELS, 256)).T, expected)


@pytest.mark.parametrize("name", ["SiLU", "PReLU", "HardSwish", "pointwise per channel"])
def test_tables_survive_export_and_plain_onnx_runtime_reads_them(name: str, tmp_path: Path) -> None:
    graph = quantized(loaded(conv_then(name), tmp_path), frames(8))
    assert [type(n.op) for n in graph.nodes] == [Conv, Lookup]
    content = to_onnx(graph)
    assert loaded(content, tmp_path) == graph
    kinds = {n.op_type for n in onnx.load_model_from_string(content).graph.node}
    assert kinds == {"QuantizeLinear", "DequantizeLinear", "Conv", "Cast", "Add", "Gather"}
    stored = {"image": np.random.default_rng(5).integers(-128, 128, (4, *SHAPE[1:])).astype(graph.tensors["image"].dtype)}
    inside = run_integer(graph, stored, keep=True)
    for tensor, values in run_oracle(graph, stored).items():
        np.testing.assert_array_equal(values, inside[tensor])


def conv_then(name: str) -> bytes:
    formula = Formula()
    PATTERNS[name](formula)
    weight = (np.random.default_rng(3).standard_normal((3, 3, 1, 1)) / 2).astype(np.float32)
    return build([helper.make_node("Conv", ["image", "w"], ["x"], "conv"), *formula.nodes], {**formula.constants, "w": weight},
                 {"image": SHAPE}, {"y": SHAPE})


def test_typed_nodes_before_a_function_fold_into_the_convolution(tmp_path: Path) -> None:
    f = Formula()
    scaled = f.apply("Add", f.apply("Mul", "c", np.full((3, 1, 1), 1.5)), np.full((3, 1, 1), 0.25))
    clipped = f.apply("Clip", f.apply("Sub", f.apply("Div", scaled, 2.0), 0.125), -1.0, 2.0)
    f.apply("Mul", clipped, f.apply("Sigmoid", clipped), output="y")
    f.constants["w"] = np.eye(3, dtype=np.float32).reshape(3, 3, 1, 1)
    content = build([helper.make_node("Conv", ["x", "w"], ["c"], "conv"), *f.nodes], f.constants, {"x": SHAPE}, {"y": SHAPE})
    graph = loaded(content, tmp_path)
    assert [(type(n.op), n.op.kind) for n in graph.nodes] == [(Conv, "Conv"), (Function, "SiLU")]
    assert graph.nodes[0].op.bounds is not None
    np.testing.assert_allclose(run_float(graph, {"x": frames()})["y"], by_frame(content, frames())["y"], atol=1e-5)


def test_a_value_somebody_else_reads_ends_the_function(tmp_path: Path) -> None:
    f = Formula()
    gate = f.apply("Sigmoid", "x", output="gate")
    f.apply("Mul", "x", gate, output="z")
    f.apply("Tanh", "z", output="y")
    content = build(f.nodes, f.constants, {"x": SHAPE}, {"y": SHAPE, "gate": SHAPE})
    graph = loaded(content, tmp_path)
    assert [n.op.kind for n in graph.nodes] == ["Sigmoid", "Mul", "Tanh"]
    assert isinstance(graph.nodes[1].op, Mul)
    found, expected = run_float(graph, {"x": frames()}), by_frame(content, frames())
    for name in ("y", "gate"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6, atol=1e-6)


def test_our_own_operators_stay_what_they_are(tmp_path: Path) -> None:
    f = Formula()
    doubled = f.apply("Add", "x", "x")
    f.apply("Relu", f.apply("Mul", f.apply("Relu", doubled), 0.5), output="y")
    graph = loaded(build(f.nodes, f.constants, {"x": SHAPE}, {"y": SHAPE}), tmp_path)
    assert not any(isinstance(n.op, Function | Opaque) for n in graph.nodes)
    assert isinstance(graph.nodes[0].op, Add)


def test_other_types_and_ranks_are_left_alone(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["d"], "cast", to=onnx.TensorProto.INT32),
             helper.make_node("Abs", ["d"], ["s"], "size"),
             helper.make_node("Cast", ["s"], ["f"], "back", to=onnx.TensorProto.FLOAT),
             helper.make_node("Reshape", ["f", "three"], ["r"], "reshape"), helper.make_node("Sigmoid", ["r"], ["y"], "gate")]
    content = build(nodes, {}, {"x": SHAPE}, {"y": (1, 3, 20)})
    proto = onnx.load_model_from_string(content)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 3, 20]), "three"))
    graph = loaded(proto.SerializeToString(), tmp_path)
    assert {n.name for n in graph.nodes if isinstance(n.op, Opaque)} >= {"size", "gate"}
    assert not any(isinstance(n.op, Function) for n in graph.nodes)


def test_constants_along_other_axes_are_no_function(tmp_path: Path) -> None:
    f = Formula()
    f.apply("Sigmoid", f.apply("Add", "x", np.arange(5.0)), output="y")  # one value per column
    content = build(f.nodes, f.constants, {"x": SHAPE}, {"y": SHAPE})
    graph = loaded(content, tmp_path)
    assert isinstance(graph.nodes[0].op, Opaque)
    np.testing.assert_allclose(run_float(graph, {"x": frames()})["y"], by_frame(content, frames())["y"], atol=1e-6)


def test_a_matrix_can_have_a_function_per_feature(tmp_path: Path) -> None:
    f = Formula()
    f.apply("PRelu", "x", np.array([0.5, -1.0, 0.0, 2.0]), output="y")
    content = build(f.nodes, f.constants, {"x": (1, 4)}, {"y": (1, 4)})
    graph = loaded(content, tmp_path)
    (node,) = graph.nodes
    assert isinstance(node.op, Function)
    assert node.op.per_channel
    x = frames(6, shape=(1, 4))
    np.testing.assert_array_equal(run_float(graph, {"x": x})["y"].astype(np.float32), by_frame(content, x)["y"])


UNARIES = ["Sigmoid", "Tanh", "Relu", "Neg", "Abs", "Softplus", "Elu", "HardSigmoid", "Erf", "Sin"]


@st.composite
def formulas(draw: st.DrawFn) -> Formula:
    """Random element-wise graphs over one tensor and constants; some inner values are outputs too, some constants per channel."""
    f, values = Formula(), ["x"]
    for _ in range(draw(st.integers(1, 7))):
        pick = st.sampled_from(values)
        kind = draw(st.sampled_from(["unary", "unary", "constant", "join", "clip"]))
        if kind == "unary":
            values.append(f.apply(draw(st.sampled_from(UNARIES)), draw(pick)))
        elif kind == "clip":
            values.append(f.apply("Clip", draw(pick), -1.0, draw(st.floats(0.5, 3.0, width=32))))
        elif kind == "join":
            values.append(f.apply(draw(st.sampled_from(["Add", "Mul", "Sub", "Max", "Min"])), draw(pick), draw(pick)))
        else:
            number = draw(st.sampled_from([0.5, -1.5, 3.0, SLOPED]))
            operands = draw(st.permutations([draw(pick), number]))
            values.append(f.apply(draw(st.sampled_from(["Add", "Mul", "Sub", "Div"])), *operands)
                          if not isinstance(operands[0], float | np.ndarray) else f.apply("Add", *operands))
    return f


SLOPED = np.array([0.5, 2.0, -0.25], dtype=np.float32).reshape(3, 1, 1)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(formula=formulas(), data=st.data())
def test_random_element_wise_graphs_keep_their_meaning(formula: Formula, data: st.DataObject, tmp_path: Path) -> None:
    values = [n.output[0] for n in formula.nodes]
    outputs = {values[-1]: SHAPE, **{v: SHAPE for v in values[:-1] if data.draw(st.integers(0, 5)) == 0}}
    content = build(formula.nodes, formula.constants, {"x": SHAPE}, outputs)
    graph = loaded(content, tmp_path)
    x = frames(2)
    found, expected = run_float(graph, {"x": x}), by_frame(content, x)
    for name in outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-4, atol=2e-4)
    again = loaded(to_onnx(graph), tmp_path)
    for name, y in run_float(again, {"x": x}).items():
        np.testing.assert_allclose(y, expected[name], rtol=2e-4, atol=2e-4)
    integers = quantized(graph, x)
    assert loaded(to_onnx(integers), tmp_path) == integers


def test_a_function_can_be_cut_like_any_channel_wise_operator() -> None:
    op = function("PReLU")
    share = op.share(op.axes((SHAPE,))[0], 1, 3, (SHAPE,))
    assert share.params == (((1, 3),),)
    assert share.output == ((0, 1), (1, 3), (0, 4), (0, 5))


def test_clip_is_not_a_function(tmp_path: Path) -> None:
    f = Formula()
    f.apply("Clip", f.apply("Relu", "x"), 0.0, 1.0, output="y")
    (node,) = loaded(build(f.nodes, f.constants, {"x": SHAPE}, {"y": SHAPE}), tmp_path).nodes
    assert isinstance(node.op, Clip)
