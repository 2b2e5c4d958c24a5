"""Quantizers whose levels are integers times one learned unit: learned step size (LSQ) and additive powers of two (APoT).

Only the integers differ. LSQ's are all of so many bits, APoT's are sums of few powers of two: a layer multiplies with them by
shifts and adds. The unit is learned by gradients: where a value lies within the levels, what rounding moved it by, per unit;
where it was clipped, the level it was clipped to.

Sources: Esser et al., "Learned Step Size Quantization", ICLR 2020 (start, gradients and their scale); Li, Dong, Wang, "Additive
Powers-of-Two Quantization", ICLR 2020 (levels, normalised weights, gradient of the clipping threshold).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import torch
from torch import nn

from dovetail.ir.operators.lq import MOST_BITS
from dovetail.train.quantizers import SMALLEST, channels_last, ranks

ADDED = ((0,), (0, 1), (0, 1, 2, 4), (0, 1, 2, 3, 4, 6, 8, 10))
"""APoT's magnitudes by bits: sums of a value of {0, 1/2, 1/4, 1/16} and one of {0, 1/8}, as its authors' program has them, in
units of the least."""
CLIP_AT = 3.0
"""Deviations where APoT's clipping starts: its authors' for weights; for activations, of the positive ones, chosen."""
Tensor = Any


class Scaled(torch.autograd.Function):
    """The nearest level times the unit; the gradient of the unit is multiplied by `share`.

    Gradients of x pass within the levels, or everywhere where x does not `clip`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, unit: Tensor, levels: Tensor, share: float, clips: bool) -> Tensor:
        unit = unit.clamp(min=SMALLEST)
        z = x.float() / unit
        nearest = levels[ranks(channels_last(z).contiguous(), levels)]
        nearest = nearest.permute(0, 3, 1, 2) if x.ndim == 4 else nearest
        inside = (z > levels[0]) & (z < levels[-1])
        ctx.save_for_backward(torch.where(inside, nearest - z, nearest), inside)
        ctx.share, ctx.clips = share, clips
        return (nearest * unit).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        moved, inside = ctx.saved_tensors
        to_unit = (gradients[0].float() * moved).sum() * ctx.share
        return gradients[0] * inside if ctx.clips else gradients[0], to_unit, None, None, None


def signed_planes(levels: Sequence[int]) -> tuple[list[float], list[int]]:
    """A basis whose signed sums hold some ascending integers, and the code of each.

    Half the powers of two, and one value more so that all of them add up to the largest magnitude: a code is binary up to there.
    LSQ has a level more below zero than above, so that its codes never set the last bit.
    """
    top = max(abs(levels[0]), abs(levels[-1]))
    binary = (2 * top + 1).bit_length() - 1
    last = 2 * top - ((1 << binary) - 1)
    basis = [*(2.0 ** (i - 1) for i in range(binary)), last / 2]
    return basis, [n if n < 1 << binary else n - last | 1 << binary for n in (level + top for level in levels)]


class ScaledLevels(nn.Module):
    """Levels with a unit that begins with the first values seen.

    `seen` has an entry per step between the outer levels, so that a unit taken from a run with other levels is no start.
    """

    def __init__(self, levels: Sequence[int], additive: bool) -> None:
        super().__init__()
        self.integers, self.additive, self.started = tuple(levels), additive, False
        self.unit = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(levels[-1] - levels[0]))
        self.register_buffer("levels", torch.tensor(levels, dtype=torch.float32), persistent=False)

    @property
    def top(self) -> int:
        return self.integers[-1]

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Once: LSQ's start from the mean magnitude; APoT's clipping at three deviations."""
        self.started = True
        if not bool(self.seen[0]):
            deviation = (x.square().sum() / (x != 0).sum().clamp(min=1)).sqrt()
            size = CLIP_AT * deviation / self.top if self.additive else 2 * x.abs().mean() / sqrt(self.top)
            self.unit.copy_(size.clamp(min=SMALLEST))
            self.seen.fill_(1.0)

    def share(self, count: int) -> float:
        """What gradients of the unit are multiplied by: LSQ's scale for so many values; for APoT, as if the clip was learned."""
        return 1 / self.top**2 if self.additive else 1 / sqrt(count * self.top)

    def scale(self) -> float:
        """The unit, in double precision from its float32."""
        return float(self.unit.detach().clamp(min=SMALLEST))


class ScaledActivation(ScaledLevels):
    """ReLU and levels from zero on. Exported codes are the integers themselves, over a basis of powers of two."""

    def __init__(self, bits: int, additive: bool) -> None:
        super().__init__(ADDED[bits] if additive else range(1 << bits), additive)
        self.planes = self.top.bit_length()

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not self.started:
            self.start(x.detach().float().clamp(min=0.0))
        return Scaled.apply(x, self.unit, self.levels, self.share(x[0].numel()), True)

    def boundaries(self) -> list[float]:
        """From which number of units on a code is at least 1, 2, …; codes between levels are passed over."""
        least = [min((k for k in range(1, len(self.integers)) if self.integers[k] >= code), default=None)
                 for code in range(1, 1 << self.planes)]
        return [float("inf") if k is None else (self.integers[k - 1] + self.integers[k]) / 2 for k in least]


class ScaledWeight(ScaledLevels):
    """Levels of both signs with one unit per layer; APoT's are those of weights without their mean, over their deviation."""

    def __init__(self, bits: int, additive: bool) -> None:
        half = 1 << (bits - 1)
        super().__init__((*(-v for v in reversed(ADDED[bits - 1][1:])), *ADDED[bits - 1]) if additive else range(-half, half),
                         additive)
        self.basis, self.codes = signed_planes(self.integers)

    @property
    def bits(self) -> int:
        """Planes of its exported codes; 0 where codes hold no so many, and weights are exported as plain integers."""
        return len(self.basis) if len(self.basis) <= MOST_BITS else 0

    def normalised(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Weights in what their unit counts, and how much one of it is."""
        if not self.additive:
            return w, torch.ones((), device=w.device)
        fixed = w.detach()
        deviation = fixed.std().clamp(min=SMALLEST)
        return (w - fixed.mean()) / deviation, deviation

    def forward(self, w: Tensor) -> Tensor:
        z, size = self.normalised(w)
        if self.training and not self.started:
            self.start(z.detach())
        return Scaled.apply(z, self.unit, self.levels, self.share(w.numel()), not self.additive) * size

    def coded(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Codes (or plain integers) of weights (filters, n), and the values they mean."""
        z, size = self.normalised(w)
        found = ranks(z / self.unit.detach().clamp(min=SMALLEST), self.levels)
        stands = torch.tensor(self.codes if self.bits else self.integers, device=w.device)
        return stands[found], self.levels[found] * self.scale() * size

    def size(self, w: Tensor) -> float:
        """What one unit of a layer's exported integers is."""
        return self.scale() * float(self.normalised(w)[1])
