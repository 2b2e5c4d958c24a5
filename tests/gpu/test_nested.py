"""Concatenations that hold earlier ones share memory: dense blocks, new maps behind or before, odd widths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dovetail.gpu.executor import compile_graph
from dovetail.ir import Concat
from dovetail.ir.onnx.write import to_onnx
from dovetail.kernels.calls import Call
from dovetail.numbers import decide_numbers
from dovetail.numerics.reference import run_integer
from tests.gpu.vision import through_onnx


class Dense(nn.Module):
    """Huang et al. 2017: every layer reads all maps before it."""

    def __init__(self, first: bool, growth: int = 5, layers: int = 4, width: int = 7) -> None:
        super().__init__()
        self.first, self.stem = first, nn.Conv2d(3, width, 3, padding=1)
        self.layers = nn.ModuleList(nn.Sequential(
            nn.BatchNorm2d(width + i * growth), nn.ReLU(), nn.Conv2d(width + i * growth, 8, 1), nn.ReLU(),
            nn.Conv2d(8, growth, 3, padding=1)) for i in range(layers))
        self.last = nn.Conv2d(width + layers * growth, 6, 1)
        for part in self.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.uniform_(part.running_var, 0.5, 2.0)
                nn.init.uniform_(part.running_mean, -0.3, 0.3)

    def forward(self, x: Tensor) -> Tensor:
        made = [self.stem(x)]
        for layer in self.layers:
            new = layer(torch.cat(made, 1) if len(made) > 1 else made[0])
            made = [new, *made] if self.first else [*made, new]
        return self.last(torch.cat(made, 1))


def dense(first: bool) -> nn.Module:
    torch.manual_seed(0)
    return Dense(first).eval()


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("first", [False, True], ids=["behind", "before"])
def test_dense_blocks_copy_nothing(first: bool, images: int) -> None:
    graph = through_onnx(dense(first), (3, 9, 7))
    assert sum(isinstance(node.op, Concat) for node in graph.nodes) == 4
    made = compile_graph(graph, "float32", images)
    assert not [call.kernel for call, _ in made.calls if call.kernel == "chosen"]
    frames = torch.randn(images, 3, 9, 7)
    with torch.no_grad():
        wanted = dense(first)(frames).numpy()
    (found,) = made.run({graph.inputs[0]: frames.numpy()}).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("first", [False, True], ids=["behind", "before"])
def test_integers_of_dense_blocks_equal_the_references(first: bool, tmp_path: Path) -> None:
    path = tmp_path / "dense.onnx"
    path.write_bytes(to_onnx(through_onnx(dense(first), (3, 9, 7))))
    graph = decide_numbers(path).graph
    scheme = graph.tensors[graph.inputs[0]].scheme
    assert scheme is not None
    frames = np.random.default_rng(0).integers(scheme.lo, scheme.hi + 1, (2, 3, 9, 7)).astype(scheme.dtype)
    made = compile_graph(graph, "int8", 2)
    assert all(isinstance(call, Call) for call, _ in made.calls)
    found = made.run({graph.inputs[0]: frames})
    for frame in range(2):
        for name, wanted in run_integer(graph, {graph.inputs[0]: frames[frame:frame + 1]}).items():
            np.testing.assert_array_equal(found[name][frame:frame + 1], wanted)


class Both(nn.Module):
    """One concatenation begins two others, and a result is one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Conv2d(3, 4, 3, padding=1) for _ in range(3))
        self.ends = nn.ModuleList(nn.Conv2d(12, 3, 1) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b, c = (part(x) for part in self.parts)
        pair, more, turned = torch.cat([a, b], 1), torch.cat([a, b, c], 1), torch.cat([a, b, torch.relu(c)], 1)
        return self.ends[0](more), self.ends[1](turned), torch.relu(pair)


def test_a_concatenation_lies_in_one_other_at_most() -> None:
    torch.manual_seed(0)
    module = Both().eval()
    graph, frames = through_onnx(module, (3, 5, 6)), torch.randn(1, 3, 5, 6)
    with torch.no_grad():
        wanted = module(frames)
    found = compile_graph(graph, "float32").run({graph.inputs[0]: frames.numpy()})
    for own, other in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(own, other.numpy(), rtol=0, atol=1e-5)
