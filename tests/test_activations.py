"""Blocks of MobileNetV3 and EfficientNet, spelled as exporters do: every operator typed, quantized, built and verified."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from dovetail.ir import Graph, Lookup, Mul, Opaque
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_float, run_integer
from dovetail.partition.plan import whole_on
from dovetail.pipeline import compile as compile_model
from dovetail.pipeline import decide_numbers, verify_build
from dovetail.runtime.build import store
from tests.formulas import Formula, build, hard_swish

SHAPE = (1, 3, 8, 8)


def conv(f: Formula, x: str, shape: tuple[int, int, int, int], pads: int = 0, groups: int = 1, stride: int = 1) -> str:
    rng = np.random.default_rng(len(f.nodes))
    weight = f.number(rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:])))
    bias = f.number(rng.standard_normal(shape[0]) / 10)
    return f.apply("Conv", x, weight, bias, pads=[pads] * 4, group=groups, strides=[stride] * 2, kernel_shape=list(shape[2:]))


def renamed(f: Formula, write: object, x: str) -> str:
    """A formula over x..y put into a larger one."""
    inner = Formula()
    write(inner)  # type: ignore[operator]
    names = {"x": x}
    for node in inner.nodes:
        inputs = [names[i] if i in names else f.number(inner.constants[i]) for i in node.input]
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        names[node.output[0]] = f.apply(node.op_type, *inputs, **attributes)
    return names["y"]


def silu(f: Formula) -> None:
    f.apply("Mul", "x", f.apply("Sigmoid", "x"), output="y")


def block(kind: str) -> bytes:
    """Expand, depthwise, squeeze-excite, project, add."""
    f = Formula()
    act = (lambda i: hard_swish(i, 0)) if kind == "mobilenet-v3" else silu
    stem = conv(f, "image", (4, 3, 3, 3), pads=1)
    wide = renamed(f, act, conv(f, stem, (8, 4, 1, 1)))
    deep = conv(f, wide, (8, 1, 3, 3), pads=1, groups=8)
    deep = renamed(f, act, deep)
    small = f.apply("GlobalAveragePool", deep)
    inner = conv(f, small, (4, 8, 1, 1))
    inner = f.apply("Relu", inner) if kind == "mobilenet-v3" else renamed(f, silu, inner)
    outer = conv(f, inner, (8, 4, 1, 1))
    gate = f.apply("HardSigmoid", outer, alpha=1 / 6, beta=0.5) if kind == "mobilenet-v3" else f.apply("Sigmoid", outer)
    scaled = f.apply("Mul", *((deep, gate) if kind == "mobilenet-v3" else (gate, deep)))
    f.apply("Add", conv(f, scaled, (4, 8, 1, 1)), stem, output="y")
    return build(f.nodes, f.constants, {"image": SHAPE}, {"y": (1, 4, 8, 8)})


@pytest.fixture(params=["mobilenet-v3", "efficientnet"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "block.onnx"
    path.write_bytes(block(request.param))
    return path


def integers(path: Path) -> Graph:
    graph = read_onnx(path).graph
    return quantize_graph(graph, synthetic(graph, 8))


def test_nothing_is_foreign_and_the_float_meaning_is_kept(model: Path) -> None:
    graph = read_onnx(model).graph
    kinds = [n.op.kind for n in graph.nodes]
    assert not any(isinstance(n.op, Opaque) for n in graph.nodes)
    if "HardSwish" in kinds:
        assert kinds == ["Conv", "Conv", "HardSwish", "Conv", "HardSwish", "GlobalAvgPool", "Conv", "Conv", "HardSigmoid", "Mul",
                         "Conv", "Add"]
    else:
        assert kinds == ["Conv", "Conv", "SiLU", "Conv", "SiLU", "GlobalAvgPool", "Conv", "SiLU", "Conv", "Sigmoid", "Mul",
                         "Conv", "Add"]
    x = np.random.default_rng(2).random((3, *SHAPE[1:]), dtype=np.float32)
    expected = np.concatenate([run_onnx(model.read_bytes(), {"image": f[None]})["y"] for f in x])
    np.testing.assert_allclose(run_float(graph, {"image": x})["y"], expected, rtol=1e-4, atol=1e-5)


def test_the_quantized_block_is_tables_and_products_and_round_trips(model: Path, tmp_path: Path) -> None:
    graph = integers(model)
    assert sum(isinstance(n.op, Lookup) for n in graph.nodes) in (3, 4)
    assert all(t.scheme is not None for t in graph.tensors.values())
    path = tmp_path / "int8.onnx"
    path.write_bytes(to_onnx(graph))
    assert read_onnx(path).graph == graph


@pytest.mark.verilator
def test_a_build_is_exact_wherever_it_runs(model: Path, tmp_path: Path) -> None:
    build = compile_model(model, "tx2-c10gx", tmp_path / "free", verify=False)
    assert verify_build(build, frames=4).equal
    assert any(isinstance(n.op, Mul) for n in build.graph.nodes)
    pinned = {n.name: whole_on("gpu" if i % 2 else "cpu") for i, n in enumerate(build.graph.nodes)}
    build = compile_model(model, "tx2-c10gx", tmp_path / "pinned", verify=False, assignment=pinned)
    assert verify_build(build, frames=4).equal


def qdq(scale: float, zero: int) -> bytes:
    """SiLU and a gate between quantizers, as static quantization of another tool leaves them."""
    f = Formula()
    for name, step in (("s1", scale), ("s2", scale * 0.7), ("s3", scale * 0.3)):
        f.constants[name] = np.asarray(step, dtype=np.float32)
    f.constants["z"] = np.asarray(zero, dtype=np.int8)

    def stored(x: str, step: str, output: str | None = None) -> str:
        return f.apply("DequantizeLinear", f.apply("QuantizeLinear", x, step, "z"), step, "z", output=output)

    x = stored("image", "s1")
    act = stored(f.apply("Mul", x, f.apply("Sigmoid", x)), "s2")
    gate = stored(f.apply("Sigmoid", act), "s3")
    stored(f.apply("Mul", act, gate), "s1", "y")
    return build(f.nodes, f.constants, {"image": SHAPE}, {"y": SHAPE})


@pytest.mark.parametrize(("scale", "zero"), [(2.0**-5, 0), (0.031, 7)])
def test_functions_between_quantizers_become_tables_too(scale: float, zero: int, tmp_path: Path) -> None:
    path = tmp_path / "qdq.onnx"
    path.write_bytes(qdq(scale, zero))
    graph = decide_numbers(path).graph
    assert [type(n.op) for n in graph.nodes] == [Lookup, Lookup, Mul]
    x = (np.random.default_rng(1).standard_normal((6, *SHAPE[1:])) * 2).astype(np.float32)
    stored = run_integer(graph, store(graph, {"image": x}, "test"))["y"].astype(np.float64)
    outside = np.concatenate([run_onnx(path.read_bytes(), {"image": f[None]})["y"] for f in x])
    steps = np.abs((stored - zero) * scale - outside) / scale
    assert steps.max() < (0.01 if zero == 0 else 1.01)  # between arbitrary scales a product may fall on the other side of a half
    assert (steps > 0.01).mean() < 0.01
    again = tmp_path / "again.onnx"
    again.write_bytes(to_onnx(graph))
    assert read_onnx(again).graph == graph
