"""Quantizers of a training step in one kernel each way, for tensors on a GPU; elsewhere only in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.train import kernels

Tensor = Any
BLOCK = 1024


def _blocks(count: int) -> int:
    return -(-count // BLOCK)


def _as_dense(x: Tensor) -> Tensor:
    """x itself where its values lie side by side in any order, else a copy: kernels walk through memory, not through indices."""
    held = x.is_contiguous() or (x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last))
    return x if held else x.contiguous()


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, basis: Tensor) -> Tensor:
        x = _as_dense(x)
        out, top = torch.empty_like(x), torch.empty((), device=x.device)
        kernels.activations[(_blocks(x.numel()),)](x, basis, out, top, x.numel(), len(basis), BLOCK)
        ctx.save_for_backward(x, top)
        return out

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor, None]:
        x, top = ctx.saved_tensors
        incoming = given[0] if given[0].stride() == x.stride() else torch.empty_like(x).copy_(given[0])
        out = torch.empty_like(incoming)
        kernels.gradients[(_blocks(x.numel()),)](x, top, incoming, out, x.numel(), BLOCK)
        return out, None


def quantize_activation(x: Tensor, basis: Tensor) -> Tensor:
    """x as its nearest subset sums of a basis of floats; gradients pass where x lies within the levels."""
    return _Activation.apply(x, basis)


def quantize_weight(w: Tensor, basis: Tensor) -> Tensor:
    """Weights (filters, …) as their nearest signed sums of each filter's basis (filters, bits), laid out as w is."""
    w = _as_dense(w.detach())
    out, fan = torch.empty_like(w), w.numel() // len(w)
    kernels.weights[(len(w), _blocks(fan))](w, basis, out, fan, basis.shape[1], BLOCK)
    return out
