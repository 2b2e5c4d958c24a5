"""Quantizers in training: nearest levels, error that only falls, gradients that pass, and what export will read from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dovetail.numerics.lq import boundaries_of, ranked, weight_values
from dovetail.train import quantizers
from dovetail.train.networks import build, precision_of
from dovetail.train.quantizers import (
    ByteActivation,
    ByteWeight,
    LearnedActivation,
    LearnedWeight,
    UniformActivation,
    UniformWeight,
    fitted,
    learn_every,
    solve_small,
)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_small_systems_are_solved(size: int) -> None:
    torch.manual_seed(size)
    a = torch.randn(5, size, size)
    a = a @ a.transpose(1, 2) + torch.eye(size)
    b = torch.randn(5, size)
    torch.testing.assert_close(solve_small(a, b), torch.linalg.solve(a, b[..., None])[..., 0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_a_fit_never_has_a_larger_error_than_the_basis_before(bits: int) -> None:
    """The least-squares half of a QEM step, on codes of the nearest-level half."""
    torch.manual_seed(bits)
    quantizer = LearnedWeight(bits, 6, 100)
    w = torch.randn(6, 400) * 0.1
    codes, values = quantizer.coded(w)
    planes = ((codes[..., None] >> torch.arange(bits)) & 1).float().transpose(1, 2) * 2 - 1
    better = (fitted(planes, w, quantizer.basis)[:, :, None] * planes).sum(dim=1)
    assert torch.all(((better - w) ** 2).sum(dim=1) <= ((values - w) ** 2).sum(dim=1) * (1 + 1e-4))


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_learning_brings_the_weight_error_near_that_of_the_best_levels(bits: int) -> None:
    torch.manual_seed(0)
    quantizer, w = LearnedWeight(bits, 4, 100), torch.randn(4, 8, 5, 5) * torch.tensor([0.02, 0.1, 0.5, 2.0])[:, None, None, None]
    for _ in range(300):
        quantizer(w)
    last = ((quantizer.eval()(w) - w) ** 2).flatten(1).mean(dim=1) / (w**2).flatten(1).mean(dim=1)
    free = {1: 0.3634, 2: 0.1175, 3: 0.03454, 4: 0.009497}  # levels without a basis, for a normal distribution (Max 1960)
    assert torch.all(last < free[bits] * {1: 1.1, 2: 1.35, 3: 2.2, 4: 3.0}[bits])


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_learned_activations_are_the_nearest_levels_of_half_a_normal_distribution(bits: int) -> None:
    torch.manual_seed(0)
    quantizer, x = LearnedActivation(bits), torch.randn(8, 16, 10, 10) * 3
    for _ in range(200):
        quantizer(x)
    y = quantizer.eval()(x)
    levels, _ = quantizer.levels()
    positive = x.clamp(min=0.0)
    nearest = levels[(positive[..., None] - levels).abs().argmin(dim=-1)]
    assert torch.mean((y == nearest).float()) > 0.999  # ties aside
    assert torch.all(torch.diff(quantizer.basis) >= 0)
    error = float(((y - positive) ** 2).mean() / (positive**2).mean())
    assert error < {1: 0.33, 2: 0.1, 3: 0.03, 4: 0.009}[bits]


@pytest.mark.parametrize("kind", [LearnedActivation, UniformActivation])
def test_export_reads_the_boundaries_that_training_used(kind) -> None:  # type: ignore[no-untyped-def]
    quantizer = kind(3).eval()
    basis = quantizer.basis.double().numpy()
    levels, _ = ranked(basis)
    x = torch.linspace(-1, 3, 4001)[None]
    codes = (x.numpy()[..., None] >= boundaries_of(levels)).sum(axis=-1)
    np.testing.assert_allclose(quantizer(x).numpy(), levels[codes], atol=0.4 * float(np.diff(levels).max()))
    assert np.mean(np.abs(quantizer(x).numpy() - levels[codes]) < 1e-6) > 0.999


@pytest.mark.parametrize("quantizer", [LearnedWeight(2, 3, 50), UniformWeight(3, 3)])
def test_codes_and_basis_mean_the_values_that_are_multiplied(quantizer) -> None:  # type: ignore[no-untyped-def]
    torch.manual_seed(1)
    w = torch.randn(3, 20) * 0.1
    codes, values = quantizer.coded(w)
    np.testing.assert_allclose(weight_values(codes.numpy(), quantizer.basis.double().numpy()), values.numpy(), atol=1e-6)


def test_uniform_weights_are_those_of_dorefa() -> None:
    torch.manual_seed(1)
    w = torch.randn(4, 3, 3, 3)
    squeezed = torch.tanh(w)
    unit = squeezed / (2 * squeezed.abs().max()) + 0.5
    torch.testing.assert_close(UniformWeight(2, 4)(w), 2 * torch.floor(unit * 3 + 0.5) / 3 - 1, rtol=0, atol=1e-6)


def test_gradients_pass_within_the_levels_alone() -> None:
    quantizer = LearnedActivation(2).eval()
    top = float(quantizer.levels()[0][-1])
    x = torch.tensor([[-0.5, 0.3 * top, 0.9 * top, top + 0.5]], requires_grad=True)
    quantizer(x).sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 1.0, 0.0]]
    w = torch.randn(3, 10, requires_grad=True)
    LearnedWeight(2, 3, 10)(w).sum().backward()
    assert torch.all(w.grad == 1)


def test_bytes_have_powers_of_two_as_scales() -> None:
    torch.manual_seed(0)
    integers, scale = ByteWeight().scaled(torch.randn(5, 30))
    assert torch.all(torch.log2(scale) == torch.round(torch.log2(scale)))
    assert 63 < float(integers.abs().max()) <= 127
    quantizer = ByteActivation()
    for _ in range(100):
        quantizer(torch.rand(4, 100) * 7)
    assert int(quantizer.exponent()) == -5  # 7 of 255 steps of 1/32
    y = quantizer.eval()(torch.tensor([[-1.0, 0.1, 100.0]]))
    assert y.tolist() == [[0.0, 0.09375, 255 / 32]]


def test_bits_that_nothing_uses_keep_their_place() -> None:
    quantizer = LearnedActivation(2)
    quantizer(torch.rand(2, 1, 4, 4))
    before = quantizer.basis.clone()
    for _ in range(50):
        quantizer(torch.zeros(2, 1, 4, 4))
    torch.testing.assert_close(quantizer.basis, before)


def in_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantizers as on a GPU, in Triton's interpreter."""
    monkeypatch.setattr(quantizers, "on_gpu", lambda _: True)


@pytest.mark.parametrize("shape", [(5, 7, 3, 3), (3, 400), (2, 130, 5, 1)])
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_a_kernel_gives_weights_the_same_levels(bits: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(bits)
    quantizer, w = LearnedWeight(bits, shape[0], 100).train(), torch.randn(shape, requires_grad=True)
    learn_every(quantizer, 0)
    held = w.detach().contiguous(memory_format=torch.channels_last) if len(shape) == 4 else w.detach()
    plain = quantizer(w)
    in_kernels(monkeypatch)
    fused = quantizer(held.requires_grad_())
    torch.testing.assert_close(fused, plain, rtol=1e-6, atol=1e-7)
    fused.backward(torch.full(shape, 3.0))
    assert torch.all(held.grad == 3.0)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 5, 7, 6), (33, 70)])
@pytest.mark.parametrize("quantizer", [*(LearnedActivation(b) for b in (1, 2, 3, 4)), UniformActivation(2)], ids=str)
def test_a_kernel_gives_activations_the_same_levels_and_gradients(
        quantizer: torch.nn.Module, shape: tuple[int, ...], kind: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """For maps as they lie in memory either way, and for gradients that lie otherwise."""
    torch.manual_seed(0)
    quantizer.train()(torch.randn(shape))
    learn_every(quantizer, 0)
    x = (torch.randn(shape) * 2).to(kind)
    x = torch.where(x == 0.5, 0.75, x)  # as near to one third as to two
    incoming = torch.randn(shape).to(kind)

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.detach().requires_grad_()
        y = quantizer(x)
        y.backward(incoming)
        return y.detach(), x.grad

    plain, passed = both(x)
    in_kernels(monkeypatch)
    for laid in (x, x.transpose(0, 1).contiguous().transpose(0, 1),
                 *([x.contiguous(memory_format=torch.channels_last)] if x.ndim == 4 else [])):
        y, gradient = both(laid)
        assert y.dtype == gradient.dtype == kind
        torch.testing.assert_close(y, plain, rtol=1e-2 if kind is torch.bfloat16 else 1e-6, atol=1e-6)
        assert torch.equal(gradient, passed)


@pytest.mark.parametrize("method", ["lq", "uniform"])
def test_networks_train_in_kernels_as_in_plain_operations(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of six steps, bases learned in two of them."""
    def losses() -> list[float]:
        torch.manual_seed(1)
        network = build("small", precision_of("w2a2", method), (1, 12, 12), 4, 4).train()
        found = []
        for step in range(6):
            learn_every(network, 4 if step % 4 == 0 else 0)
            x, y = torch.rand(8, 1, 12, 12), torch.arange(8) % 4
            loss = torch.nn.functional.cross_entropy(network(x), y)
            network.zero_grad()
            loss.backward()
            with torch.no_grad():
                for weight in network.parameters():
                    weight -= 0.05 * weight.grad
            found.append(loss.item())
        return found

    plain = losses()
    in_kernels(monkeypatch)
    assert losses() == pytest.approx(plain, rel=1e-4)
    assert len(set(plain)) == 6


def test_what_a_block_reads_is_normalised_without_changing_what_floats_had_learned() -> None:
    """At the first step a block's first layer computes, without quantizers, what it computed before the norm was there."""
    torch.manual_seed(0)
    block = build("resnet8", precision_of("w2a2"), (3, 8, 8), 4).blocks[0].train()
    u = torch.rand(16, 16, 8, 8) * torch.rand(16)[None, :, None, None] * 9
    before = torch.nn.functional.conv2d(u, block.first.weight.detach().clone(), padding=1)
    block(u)
    assert bool(block.entry.begun)
    after = torch.nn.functional.conv2d(block.entry.norm(u), block.first.weight, padding=1)
    torch.testing.assert_close(after, before, rtol=1e-2, atol=1e-2)
    with torch.no_grad():
        block.entry.norm.weight.neg_()
    torch.testing.assert_close(block.entry.norm(u), block.entry.norm(u).clamp(min=0.0), rtol=0, atol=1e-2)
    kept = block.first.weight.detach().clone()
    again = build("resnet8", precision_of("w2a2"), (3, 8, 8), 4).blocks[0]
    again.load_state_dict(block.state_dict())
    again.train()(u)
    assert torch.equal(again.first.weight, kept)
