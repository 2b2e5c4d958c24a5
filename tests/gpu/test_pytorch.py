"""Modules of PyTorch on kernels, in Triton's interpreter: compiled for an example, and by torch.compile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed

import dovetail.gpu
from dovetail.errors import UsageError
from dovetail.gpu.pytorch import backend, compile_module
from tests.gpu.vision import NETWORKS, network, results

TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-2}


class Block(nn.Module):
    """Layers that have kernels (normalized, gated, shuffled, changed in place) around attention, results by name."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.BatchNorm2d(8), nn.ReLU6(inplace=True))
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.SiLU(), nn.Conv2d(4, 8, 1), nn.Sigmoid())
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5)
        for part in (self.stem[1], self.depthwise[1]):
            nn.init.uniform_(part.running_var, 0.5, 2.0)
            nn.init.uniform_(part.running_mean, -0.3, 0.3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.stem(x)
        own = self.depthwise(x)
        x = x + own * self.gate(own)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        first, second = x.chunk(2, 1)
        x = torch.cat([first, torch.relu(second)], 1)
        tokens = x.flatten(2).transpose(1, 2)
        tokens = self.norm(tokens + self.attention(tokens, tokens, tokens)[0])
        return {"scores": self.head(tokens.mean(1)), "map": x}


@pytest.fixture
def block() -> Iterator[nn.Module]:
    torch.manual_seed(0)
    yield Block().eval()
    torch._dynamo.reset()


def distance(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
def test_a_module_computes_what_it_did(block: nn.Module, kind: torch.dtype) -> None:
    frames = torch.randn(2, 3, 10, 8)
    with torch.no_grad():
        wanted = block(frames)
        compiled = compile_module(block.to(kind), frames.to(kind))
        found = compiled(frames.to(kind))
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert found[name].dtype == kind
        assert distance(found[name], wanted[name]) < TOLERANCE[kind]
    kernels = [call.kernel for call, _ in compiled.network.calls]
    assert len(kernels) >= 5
    assert "layer_norm" in compiled.summary()


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_vision_compute_what_they_did(name: str) -> None:
    made, shape = network(name)
    frames = torch.randn(2, *shape)
    with torch.no_grad():
        found, wanted = results(dovetail.gpu.compile(made, frames)(frames)), results(made(frames))
    for f, w in zip(found, wanted, strict=True):
        assert f.shape == w.shape
        assert f.dtype == w.dtype
        assert distance(f, w) < TOLERANCE[torch.float32]


def test_torch_compile_gives_graphs_to_kernels(block: nn.Module) -> None:
    frames = torch.randn(2, 3, 10, 8)
    with torch.no_grad():
        wanted, found = block(frames), torch.compile(block, backend=backend)(frames)
        again = torch.compile(block, backend=backend)(frames + 1)
    for name in wanted:
        assert distance(found[name], wanted[name]) < TOLERANCE[torch.float32]
    assert distance(again["map"], wanted["map"]) > 0.1


def test_the_backend_has_a_name_where_dovetail_is_imported() -> None:
    assert "dovetail" in torch._dynamo.list_backends(exclude_tags=())


def test_who_asks_for_gradients_is_told_to_infer(block: nn.Module) -> None:
    with pytest.raises(BackendCompilerFailed, match=r"backend dovetail only infers: call the model in torch\.no_grad\(\)"):
        torch.compile(block, backend=backend)(torch.randn(1, 3, 8, 8))
    with pytest.raises(UsageError, match=r"the module is in training mode; call \.eval\(\) first"):
        compile_module(block.train(), torch.randn(1, 3, 8, 8))


def test_other_shapes_than_the_examples_are_refused(block: nn.Module) -> None:
    compiled = compile_module(block, torch.randn(1, 3, 8, 8))
    with pytest.raises(UsageError, match=r"inputs \[2, 3, 8, 8\] float32; the network was compiled for \[1, 3, 8, 8\] float32"):
        compiled(torch.randn(2, 3, 8, 8))


def test_an_unknown_option_is_refused(block: nn.Module) -> None:
    with torch.no_grad(), pytest.raises(BackendCompilerFailed, match="option speed; backend dovetail has tune and compare"):
        torch.compile(block, backend=backend, options={"speed": 1})(torch.randn(1, 3, 8, 8))


class Changing(nn.Module):
    """Changes in place what a view shows."""

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        z = y[:, :1]
        z.add_(1)
        return y


def test_what_changes_under_a_view_is_left_to_pytorch() -> None:
    frames = torch.randn(1, 2, 3, 3)
    with torch.no_grad():
        assert torch.equal(torch.compile(Changing().eval(), backend=backend)(frames), Changing()(frames))
    torch._dynamo.reset()


class Masked(nn.Module):
    """A mask that is filled piece by piece, and a bias looked up by place: both are the same for every frame."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 2))
        self.register_buffer("places", torch.arange(16).reshape(4, 4) % 9)

    def forward(self, x: Tensor) -> Tensor:
        mask = x.new_zeros((4, 4))
        mask[:2, :2] = 1.0
        mask[2:, 1:] += 2.0
        bias = self.table[self.places.flatten()].view(4, 4, 2).permute(2, 0, 1)
        return torch.relu(x * 2) @ (mask.masked_fill(mask == 0, -1.0) + bias.sum(0))


def test_what_no_frame_changes_is_computed_once() -> None:
    module, frames = Masked().eval(), torch.randn(2, 3, 5, 4)
    with torch.no_grad():
        compiled = compile_module(module, frames)
        assert distance(compiled(frames), module(frames)) < TOLERANCE[torch.float32]
        assert distance(compiled(frames + 1), module(frames + 1)) < TOLERANCE[torch.float32]
    assert {"index", "masked_fill", "slice", "fill_", "new_zeros"}.isdisjoint(
        name.split(": ")[-1] for name in compiled.network.library)


class Counting(nn.Module):
    """Changes a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x * self.count


def test_a_buffer_that_changes_with_every_call_is_left_to_pytorch() -> None:
    module, frames = Counting().eval(), torch.ones(1, 2, 3, 3)
    with torch.no_grad():
        compiled = torch.compile(module, backend=backend)
        assert [float(compiled(frames)[0, 0, 0, 0]) for _ in range(3)] == [1.0, 2.0, 3.0]
    torch._dynamo.reset()


class Averaged(nn.Module):
    """A mean without its map, as ShuffleNet has, and an average to the size that is there, as AlexNet has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.same = nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d((4, 3))
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.same(torch.relu(self.layer(x))).mean([2, 3]))


def test_means_are_kernels_however_they_are_written() -> None:
    module, frames = Averaged().eval(), torch.randn(2, 3, 6, 5)
    with torch.no_grad():
        compiled = compile_module(module, frames)
        assert distance(compiled(frames), module(frames)) < TOLERANCE[torch.float32]
    assert not compiled.network.library
