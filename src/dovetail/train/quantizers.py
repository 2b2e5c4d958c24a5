"""Quantizers for training: learned bases (LQ-Nets), uniform levels (DoReFa-Net), and plain bytes for first and last layers.

All of them are sums over bits (± a basis per filter for weights, 0/1 over one basis per layer for activations), so that every
one of them is exported in the same way. Gradients pass straight through; those of activations only within the levels' range.

Sources: Zhang, Yang, Ye, Hua, "LQ-Nets: Learned Quantization for Highly Accurate and Compact Deep Neural Networks", ECCV 2018
(quantization error minimisation, algorithms 1 and 2); Zhou et al., "DoReFa-Net", 2016 (uniform quantizers).
"""

from __future__ import annotations

from abc import abstractmethod
from math import sqrt
from typing import Any

import torch
from torch import nn

QUARTILE = 0.6745
"""Three quarters of a normal distribution lie below so many deviations; LQ-Nets start their bases from it."""
MOVING = 0.9
"""How much of a basis survives one step."""
RIDGE = 1e-4
"""Added to the normal equations, relative to their diagonal: levels that nothing falls on keep their place."""
SAMPLE = 1 << 17
"""Activations that one update of a basis looks at; more change nothing that can be measured."""
SMALLEST = 1e-4
"""Least distance between the values of an activation basis and from zero."""

Tensor = Any


class Straight(torch.autograd.Function):
    """Quantized values forward; backward the gradient as it is where x lies in [0, top], nothing elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, top: Tensor) -> Tensor:
        ctx.save_for_backward(x, top)
        return values.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        x, top = ctx.saved_tensors
        value = x.float()
        return gradients[0] * ((value >= 0) & (value <= top)), None, None


class Passed(torch.autograd.Function):
    """Quantized values forward, the gradient as it is backward."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, values: Tensor) -> Tensor:
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


def bit_table(bits: int) -> Tensor:
    """(2**bits, bits): the bits of every pattern, as floats."""
    return (torch.arange(1 << bits)[:, None] >> torch.arange(bits) & 1).float()


def solve_small(a: Tensor, b: Tensor) -> Tensor:
    """x of a x = b for tiny symmetric positive matrices, batched, in plain tensor operations (a CUDA graph can record them)."""
    size = a.shape[-1]
    work = torch.cat([a, b[..., None]], dim=-1)
    for i in range(size):
        pivot = work[..., i:i + 1, :] / work[..., i:i + 1, i:i + 1]
        keep = torch.arange(size, device=a.device)[:, None] == i
        work = torch.where(keep, pivot, work - work[..., :, i:i + 1] * pivot)
    return work[..., -1]


def fitted(planes: Tensor, values: Tensor, basis: Tensor) -> Tensor:
    """The basis that fits values best: planes (..., bits, n), values (..., n); the second half of a QEM step.

    The ridge pulls towards the present basis, so that bits which nothing uses stay where they are.
    """
    count = planes.shape[-1]
    gram = planes @ planes.transpose(-1, -2) / count + RIDGE * torch.eye(planes.shape[-2], device=planes.device)
    right = (planes @ values[..., None])[..., 0] / count
    return solve_small(gram, right + RIDGE * basis)


def on_gpu(x: Tensor) -> bool:
    """Whether quantizers go through `train/fused.py`: one kernel in the place of many."""
    return bool(x.is_cuda)


def channels_last(x: Tensor) -> Tensor:
    """Maps with their channels innermost, as they lie in memory where layers run fastest; matrices as they are."""
    return x.permute(0, 2, 3, 1) if x.ndim == 4 else x


def ranks(x: Tensor, levels: Tensor) -> Tensor:
    """Which of ascending levels is the nearest."""
    return torch.bucketize(x, (levels[1:] + levels[:-1]) / 2, out_int32=True, right=True)


class LearnedBasis(nn.Module):
    """A basis that starts from the first values it sees: levels that nothing falls on would never move.

    `seen` has an entry per bit, so that weights taken from a run of other bits do not count as a start.
    """

    def __init__(self, basis: Tensor, bits: int) -> None:
        super().__init__()
        self.bits, self.started = bits, False
        self.learns_every = 1
        """Steps from one update of the basis to the next; 0 holds it."""
        self.register_buffer("basis", basis)
        self.register_buffer("seen", torch.zeros(bits))
        self.register_buffer("table", bit_table(bits), persistent=False)

    @property
    def learns(self) -> bool:
        return bool(self.training and self.learns_every)

    def moved(self, best: Tensor) -> Tensor:
        """The moving average of the bases that fitted best; one update stands for all steps since the last."""
        kept = MOVING**self.learns_every
        return kept * self.basis + (1 - kept) * best

    @torch.no_grad()
    def start(self, deviations: Tensor) -> None:
        """Powers of two over the values' deviation, the first time; a resumed basis goes on as it was."""
        self.started = True
        if not bool(self.seen[0]):
            unit = QUARTILE * deviations.clamp(min=1e-8) * self.spread()
            self.basis.copy_(unit * 2.0 ** torch.arange(self.bits, device=self.basis.device))
            self.seen.fill_(1.0)

    @abstractmethod
    def spread(self) -> float:
        """What the least value of the basis starts as, of a quartile of the values."""


class LearnedActivation(LearnedBasis):
    """ReLU and a learned quantizer of `bits` bits: the nearest sum of a subset of the basis."""

    def __init__(self, bits: int) -> None:
        super().__init__(QUARTILE * 2 / ((1 << bits) - 1) * 2.0 ** torch.arange(bits), bits)

    def spread(self) -> float:
        return 2.0 / ((1 << self.bits) - 1)

    def levels(self) -> tuple[Tensor, Tensor]:
        """Levels in ascending order, and the bits of each."""
        ordered, order = torch.sort(self.table @ self.basis, stable=True)
        return ordered, self.table[order]

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not self.started:
            positive = x.detach().float().clamp(min=0.0)
            self.start((positive.square().sum() / (positive > 0).sum().clamp(min=1)).sqrt())
        if self.training and on_gpu(x):
            from dovetail.train.fused import quantize_activation
            values = quantize_activation(x, self.basis)
        else:
            values = self._plain(x)
        if self.learns:
            self._learn(x.detach())
        return values

    def _plain(self, x: Tensor) -> Tensor:
        levels, _ = self.levels()
        values = levels[ranks(channels_last(x.detach().float()).contiguous(), levels)]
        return Straight.apply(x, values.permute(0, 3, 1, 2) if x.ndim == 4 else values, levels[-1])

    @torch.no_grad()
    def _learn(self, x: Tensor) -> None:
        """One QEM step towards the positive activations at hand, as a moving average."""
        levels, table = self.levels()
        stride = x.numel() // SAMPLE | 1  # odd, so that all of a power of two's channels are seen
        seen = channels_last(x).reshape(-1)[::stride].float().clamp(min=0.0)
        best = fitted(table[ranks(seen, levels)].T, seen, self.basis)
        self.basis.copy_(torch.sort(self.moved(best))[0].clamp(min=SMALLEST))


class LearnedWeight(LearnedBasis):
    """A learned quantizer of `bits` bits per filter: the nearest sum of ± the filter's basis."""

    def __init__(self, bits: int, filters: int, fan: int) -> None:
        start = QUARTILE * sqrt(2.0 / fan) / (1 << (bits - 1)) * 2.0 ** torch.arange(bits)
        super().__init__(start.repeat(filters, 1), bits)

    def spread(self) -> float:
        return 2.0 ** (1 - self.bits)

    def coded(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Codes of weights (filters, n) over the basis (bit i is the sign of v_i), and the values they mean."""
        ordered, order = torch.sort(self.basis @ (2 * self.table - 1).T, dim=1, stable=True)
        bounds = (ordered[:, 1:] + ordered[:, :-1]) / 2
        ranks = (w[:, None, :] >= bounds[:, :, None]).sum(dim=1)
        return order.gather(1, ranks), ordered.gather(1, ranks)

    def forward(self, w: Tensor) -> Tensor:
        flat = w.detach().reshape(w.shape[0], -1)
        if self.training and not self.started:
            self.start(flat.square().mean(dim=1, keepdim=True).sqrt())
        if self.training and on_gpu(w):
            from dovetail.train.fused import quantize_weight
            values = quantize_weight(w, self.basis)
        else:
            values = self.coded(flat)[1].reshape(w.shape)
        if self.learns:
            self._learn(flat, self.coded(flat)[0])
        return Passed.apply(w, values)

    @torch.no_grad()
    def _learn(self, w: Tensor, codes: Tensor) -> None:
        best = fitted((2 * self.table - 1)[codes].transpose(1, 2), w, self.basis)
        self.basis.copy_(torch.sort(self.moved(best).abs(), dim=1)[0])


class UniformActivation(nn.Module):
    """ReLU to [0, 1] and equal steps (DoReFa-Net): a basis of powers of two that nothing changes."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("basis", 2.0 ** torch.arange(bits) / ((1 << bits) - 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and on_gpu(x):
            from dovetail.train.fused import quantize_activation
            return quantize_activation(x, self.basis)
        steps = (1 << self.bits) - 1
        stepped = torch.floor(x.detach().float().clamp(0.0, 1.0) * steps + 0.5) / steps
        return Straight.apply(x, stepped, torch.ones((), device=x.device))


class UniformWeight(nn.Module):
    """tanh to [-1, 1] over the whole layer, then equal steps (DoReFa-Net); gradients pass the steps, not the tanh."""

    def __init__(self, bits: int, filters: int) -> None:
        super().__init__()
        self.bits = bits
        self.register_buffer("basis", (2.0 ** torch.arange(bits) / ((1 << bits) - 1)).repeat(filters, 1))

    def coded(self, w: Tensor) -> tuple[Tensor, Tensor]:
        steps = (1 << self.bits) - 1
        squeezed = torch.tanh(w)
        unit = squeezed / (2 * squeezed.abs().max()) + 0.5
        codes = torch.floor(unit * steps + 0.5).clamp(0, steps)
        return codes.long(), 2 * codes / steps - 1

    def forward(self, w: Tensor) -> Tensor:
        squeezed = torch.tanh(w)
        smooth = squeezed / squeezed.detach().abs().max()
        _, values = self.coded(w.detach().reshape(w.shape[0], -1))
        return smooth + (values.reshape(w.shape) - smooth).detach()


class ByteWeight(nn.Module):
    """Eight bits with a power of two per filter, the largest weight within them: for first and last layers."""

    bits = 0

    def scaled(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Integers of weights (filters, n), and the scale of each filter."""
        largest = w.abs().amax(dim=1).clamp(min=1e-12)
        exponent = torch.ceil(torch.log2(largest / 127.0))
        scale = torch.exp2(exponent)
        return torch.round(w / scale[:, None]).clamp(-127, 127), scale

    def forward(self, w: Tensor) -> Tensor:
        integers, scale = self.scaled(w.detach().reshape(w.shape[0], -1))
        return w + ((integers * scale[:, None]).reshape(w.shape) - w).detach()


class ByteActivation(nn.Module):
    """ReLU and eight bits with one power of two that follows the largest activation seen: for layers of plain bytes."""

    bits = 0

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("largest", torch.ones(()))

    def exponent(self) -> Tensor:
        """The power of two one step means."""
        return torch.ceil(torch.log2(self.largest / 255.0))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                top = x.detach().float().amax().clamp(min=1e-6)
                self.largest.copy_(MOVING * self.largest + (1 - MOVING) * top)
        scale = torch.exp2(self.exponent())
        inside = x.float().clamp(min=0.0).minimum(255 * scale)
        return (inside + (torch.round(inside.detach() / scale) * scale - inside).detach()).to(x.dtype)


def learn_every(network: Any, steps: int) -> None:
    """Let every learned basis of a network be updated once in so many steps, or (0) be held."""
    for module in network.modules():
        if isinstance(module, LearnedBasis):
            module.learns_every = steps
