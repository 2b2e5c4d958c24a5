"""Trained networks as integers: the same answers as torch up to the fixed-point step, through a file and back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dovetail.errors import UsageError
from dovetail.ir import Coded, Graph, Thresholds
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_float, run_integer
from dovetail.train.export import to_graph
from dovetail.train.networks import build, precision_of

SHAPES = {"small": (1, 12, 12), "resnet8": (3, 16, 16), "vgg-small": (3, 16, 16), "alexnet": (3, 75, 75)}
FORMS = [("w2a2", "lq", 8), ("w2a2", "uniform", 8), ("w3a3", "lq", 8), ("w1a2", "lq", 0), ("w1a8", "lq", 8), ("w4a4", "lq", 8),
         ("w8a8", "lq", 8)]
SCALED = [("w2a2", "lsq", 8), ("w3a3", "lsq", 0), ("w4a4", "lsq", 8), ("w2a2", "apot", 0), ("w3a3", "apot", 8),
          ("w4a3", "apot", 8)]
"""Bits of levels that are integers times a unit."""


def settled(name: str, bits: str, method: str = "lq", ends: int = 8):  # type: ignore[no-untyped-def]
    """A network with drawn weights whose quantizers and norms have seen some images, and its answers."""
    torch.manual_seed(5)
    shape = SHAPES[name]
    network = build(name, precision_of(bits, method, ends), shape, 5, 6)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            torch.nn.init.normal_(module.weight, 0.6, 0.5)  # some gains are negative
            torch.nn.init.normal_(module.bias, 0.2, 0.2)
    images = np.random.default_rng(1).integers(0, 256, (24, *shape)).astype(np.uint8)
    x = torch.as_tensor(images).float() / 256
    network.train()
    for _ in range(4):
        network(x)
    network.eval()
    with torch.no_grad():
        return network, images, network(x).numpy()


def answers(graph: Graph, images: np.ndarray) -> np.ndarray:
    scheme = graph.tensors[graph.outputs[0]].scheme
    assert scheme is not None
    return run_integer(graph, {"image": images})[graph.outputs[0]] * scheme.scale


@pytest.mark.parametrize(("name", "bits", "method", "ends"), [
    *((name, *form) for name in ("small", "resnet8", "vgg-small") for form in FORMS),
    *((name, *form) for name in ("small", "resnet8") for form in SCALED)])
def test_the_integers_of_a_network_are_its_numbers(tmp_path: Path, name: str, bits: str, method: str, ends: int) -> None:
    """With fine products hardly any code differs; with few bits of product more do, which is the step that is documented."""
    network, images, expected = settled(name, bits, method, ends)
    scale = np.abs(expected).mean()
    fine, coarse = (np.abs(answers(to_graph(network, images, product_bits=b), images) - expected).mean() for b in (20, 5))
    assert fine < 0.03 * scale
    assert fine <= coarse
    path = tmp_path / "m.onnx"
    graph = to_graph(network, images)
    path.write_bytes(to_onnx(graph))
    back = read_onnx(path).graph
    np.testing.assert_array_equal(answers(back, images), answers(graph, images))


def test_every_layer_of_codes_is_one_node() -> None:
    network, images, _ = settled("resnet8", "w2a2")
    graph = to_graph(network, images)
    coded = {n.name: n.op for n in graph.nodes if isinstance(n.op, Coded)}
    assert {n for n, op in coded.items() if op.weight_bits == 0} == {"first", "last"}
    assert all(coded[f"block{i}_first"].output_bits == 2 for i in (1, 2, 3))
    assert sum(isinstance(n.op, Thresholds) for n in graph.nodes) == 3


def test_a_float_network_is_exported_in_floats() -> None:
    for name in ("small", "resnet8"):
        network, images, expected = settled(name, "float")
        graph = to_graph(network, images)
        real = images.astype(np.float32) / 256
        np.testing.assert_allclose(run_float(graph, {"image": real})[graph.outputs[0]], expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(run_onnx(to_onnx(graph), {"image": real})[graph.outputs[0]], expected, rtol=1e-3, atol=1e-4)


def test_the_alexnet_of_the_paper_has_its_bits() -> None:
    """149.5 Mbit with 8-bit first and last layers and 2 bits elsewhere, at 227x227 and 1,000 classes."""
    with torch.device("meta"):
        network = build("alexnet", precision_of("w2a2"), (3, 227, 227), 1000)
    sizes = [layer.weight.numel() for layer in network.layers]
    assert sizes[5] == 9216 * 4096
    assert round((8 * (sizes[0] + sizes[-1]) + 2 * sum(sizes[1:-1])) / 1e6, 1) == 149.5


def test_a_small_alexnet_is_exported() -> None:
    network, images, expected = settled("alexnet", "w2a2")
    found = answers(to_graph(network, images, product_bits=18), images)
    assert np.abs(found - expected).mean() < 0.05 * np.abs(expected).mean()


@pytest.mark.parametrize(("call", "message"), [
    (lambda: precision_of("w5a2"), "bits 'w5a2': unknown; write float, w1 to w4 with a1 to a4 or a8, such as w2a2, or w8a8"),
    (lambda: precision_of("w1a2", "lsq"), "bits 'w1a2': lsq has weights of 2 to 4 bits; method lq has them of one"),
    (lambda: precision_of("w4a4", "apot"), "bits 'w4a4': apot's activations of 4 bits need codes of 6, and hardware takes 4"),
    (lambda: precision_of("w2a2", "magic"), "method 'magic': unknown"),
    (lambda: build("lenet", precision_of("w2a2"), (1, 12, 12), 4), "network 'lenet': unknown; resnet20, resnet8"),
])
def test_what_does_not_exist_is_named(call, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=message):
        call()
