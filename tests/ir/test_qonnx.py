"""QONNX in both directions: what has evenly spaced levels is written, computed by others and read back the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dovetail.cli import main
from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import Array, Coded, Constant, Conv, Gemm, Graph, MaxPool, Node, Reshape, Scheme, Tensor, Thresholds, Window
from dovetail.ir.onnx.qonnx_write import to_qonnx
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.calibration import load_samples
from dovetail.numerics.fixed import dequantize
from dovetail.numerics.lq import LearnedLayer, boundaries_of, coded_node, ranked, threshold_node
from dovetail.numerics.mixed import BitChoices
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_integer
from tests.numerics.lq_networks import IMAGE, conv_of, network

FASHION = Path(__file__).parents[2] / "examples" / "fashion"


def even(seed: int, body: Conv | Gemm, shape: tuple[int, ...], bits: tuple[int, int], step: float) -> LearnedLayer:
    """A layer of evenly spaced levels: v_i = 2**i·v_0 of every filter, a_j = 2**j·a_0; plain integers where bits are 0."""
    rng, (weight_bits, input_bits) = np.random.default_rng(seed), bits
    basis = rng.uniform(0.2, 1.0, (shape[0], 1)) / np.sqrt(np.prod(shape[1:])) * 2.0 ** np.arange(max(1, weight_bits))
    weights = rng.integers(0, 1 << weight_bits, shape).astype(np.uint8) if weight_bits else \
        rng.integers(-127, 128, shape).astype(np.int8)
    inputs = step * 2.0 ** np.arange(max(1, input_bits))
    return LearnedLayer(body, weights, weight_bits, basis if weight_bits else basis / 64, input_bits, inputs,
                        rng.normal(0, 1, shape[0]) * 4, rng.normal(0.2, 0.2, shape[0]))


def uniform_network(weight_bits: int, input_bits: int) -> Graph:
    """Image → bytes to codes → codes → maximum → codes → thresholds of fixed point → fully connected to fixed point."""
    step = 0.3
    codes = Scheme(input_bits, False, (0,))
    boundaries = boundaries_of(ranked(step * 2.0 ** np.arange(input_bits))[0]).tolist()
    tensors, nodes, constants = [Tensor("x", (1, 3, 8, 8), IMAGE)], list[Node](), list[Constant]()

    def add(name: str, layer: LearnedLayer, source: str, fixed: Scheme | None) -> None:
        node, own = coded_node(name, layer, source, f"{name}_y", None if fixed else boundaries, 255, 8)
        nodes.append(node)
        constants.extend(own)
        given = next(t.shape for t in tensors if t.name == source)
        tensors.append(Tensor(f"{name}_y", node.op.infer((given,)), fixed or codes))

    add("first", even(1, conv_of((6, 3, 3, 3)), (6, 3, 3, 3), (0, 0), IMAGE.scale), "x", None)
    add("second", even(2, conv_of((6, 6, 3, 3)), (6, 6, 3, 3), (weight_bits, input_bits), step), "first_y", None)
    nodes.append(Node("pool", MaxPool(Window((2, 2), (2, 2))), ("second_y",), (), "pool_y"))
    tensors.append(Tensor("pool_y", (1, 6, 4, 4), codes))
    wide = Scheme(16, True, (-8,))
    add("third", even(3, conv_of((6, 3, 3, 3), 2), (6, 3, 3, 3), (weight_bits, input_bits), step), "pool_y", wide)
    entry, steps = threshold_node("entry", "third_y", "entry_y", wide, boundaries)
    nodes.append(entry)
    constants.append(steps)
    tensors.append(Tensor("entry_y", (1, 6, 4, 4), codes))
    nodes.append(Node("flatten", Reshape((1, 96)), ("entry_y",), (), "flat"))
    tensors.append(Tensor("flat", (1, 96), codes))
    add("last", even(4, Gemm(5), (5, 96), (weight_bits, input_bits), step), "flat", Scheme(16, True, (-6,)))
    return Graph("even", ("x",), ("last_y",), tuple(nodes), {t.name: t for t in tensors}, {c.name: c for c in constants})


def images(count: int) -> dict[str, Array]:
    rng = np.random.default_rng(9)
    patches = rng.integers(0, 2, (count, 1, 2, 2)).repeat(4, 2).repeat(4, 3)
    return {"x": (rng.integers(0, 256, (count, 3, 8, 8)) * patches).astype(np.uint8)}


@pytest.mark.parametrize("bits", [(1, 1), (1, 2), (2, 2), (3, 2), (2, 4)])
def test_evenly_spaced_levels_are_written_computed_by_onnx_runtime_and_read_back(bits: tuple[int, int], tmp_path: Path) -> None:
    graph, x = uniform_network(*bits), images(6)
    expected = run_integer(graph, x)["last_y"]
    assert len(np.unique(expected)) > 10
    content = to_qonnx(graph)
    scheme = graph.tensors["last_y"].scheme
    assert scheme is not None
    real = run_onnx(content, {"x": dequantize(x["x"], IMAGE).astype(np.float32)})["last_y"]
    np.testing.assert_array_equal(real, dequantize(expected, scheme).astype(np.float32), err_msg="by the file's functions")
    (tmp_path / "q.onnx").write_bytes(content)
    back = read_onnx(tmp_path / "q.onnx").graph
    np.testing.assert_array_equal(run_integer(back, x)[back.outputs[0]], expected)
    kinds = {n.name: n.op for n in back.nodes}
    second, entry = kinds["second"], next(n.op for n in back.nodes if isinstance(n.op, Thresholds))
    assert isinstance(second, Coded)
    assert (second.weight_bits, second.input_bits, second.output_bits) == (*bits, bits[1])
    assert entry.bits == bits[1]


def test_integers_of_quantized_networks_are_written_and_read_back(tmp_path: Path) -> None:
    network = read_onnx(FASHION / "fashion.onnx").graph
    graph = BitChoices(network, load_samples(FASHION / "calibration.npz", network), lambda *_: None).graph({"dw1": "int4"})
    with np.load(FASHION / "test_images.npz") as data:
        frames = data["x"][:8]
    scheme = graph.tensors["image"].scheme
    assert scheme is not None
    stored = {"image": np.clip(np.rint(frames / scheme.scale), scheme.lo, scheme.hi).astype(scheme.dtype)}
    expected = run_integer(graph, stored)["logits"]
    content = to_qonnx(graph)
    logits = graph.tensors["logits"].scheme
    assert logits is not None
    np.testing.assert_array_equal(run_onnx(content, {"image": frames})["logits"], dequantize(expected, logits).astype(np.float32))
    (tmp_path / "q.onnx").write_bytes(content)
    back = read_onnx(tmp_path / "q.onnx").graph
    assert back.quantized
    np.testing.assert_array_equal(run_integer(back, stored)[back.outputs[0]], expected)


def test_quantize_writes_qonnx_where_it_is_asked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "q.onnx"
    assert main(["quantize", str(FASHION / "fashion.onnx"), "--bits", "4", "--calibration", str(FASHION / "calibration.npz"),
                 "--qonnx", "-o", str(path)]) == 0
    assert "4-bit QONNX model" in capsys.readouterr().out
    assert b"qonnx.custom_op.general" in path.read_bytes()
    assert read_onnx(path).graph.quantized


def test_other_levels_and_floats_are_refused_with_a_way_out() -> None:
    with pytest.raises(UnsupportedError, match=r"second: levels of filter 0 are not evenly spaced, products \[\[.*write the "
                                               "network with to_onnx, whose functions any runtime computes"):
        to_qonnx(network(1, 2, 2))
    with pytest.raises(ModelError, match="fashion: holds floats; quantize it before it is written as QONNX"):
        to_qonnx(read_onnx(FASHION / "fashion.onnx").graph)
