"""Sliding-window geometry, shared by convolution and pooling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir.tensor import Real

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
"""Rows above, columns left, rows below, columns right."""


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel, stride, dilation and padding of a two-dimensional sliding window."""

    kernel: Pair
    stride: Pair = (1, 1)
    pads: Pads = (0, 0, 0, 0)
    dilation: Pair = (1, 1)

    def __post_init__(self) -> None:
        if min(*self.kernel, *self.stride, *self.dilation) < 1 or min(self.pads) < 0:
            raise ModelError(f"window {self}: kernel, stride and dilation must be at least 1, padding at least 0")

    @property
    def reach(self) -> Pair:
        """Rows and columns the dilated kernel covers."""
        return ((self.kernel[0] - 1) * self.dilation[0] + 1, (self.kernel[1] - 1) * self.dilation[1] + 1)

    def output_size(self, height: int, width: int) -> Pair:
        top, left, bottom, right = self.pads
        rows = (height + top + bottom - self.reach[0]) // self.stride[0] + 1
        columns = (width + left + right - self.reach[1]) // self.stride[1] + 1
        if height + top + bottom < self.reach[0] or width + left + right < self.reach[1]:
            raise ModelError(f"window {self}: larger than the padded input {height}x{width}; "
                             f"the input must cover at least {self.reach[0]}x{self.reach[1]}")
        return rows, columns

    def pad(self, x: Real, value: float) -> Real:
        """Input with its padding materialised."""
        top, left, bottom, right = self.pads
        if not any(self.pads):
            return x
        return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)

    def taps(self, padded: Real) -> Iterator[tuple[int, int, Real]]:
        """For every kernel position, the padded input values it sees, as an output-sized view."""
        height, width = padded.shape[2:]
        rows = (height - self.reach[0]) // self.stride[0] + 1
        columns = (width - self.reach[1]) // self.stride[1] + 1
        for i in range(self.kernel[0]):
            for j in range(self.kernel[1]):
                r, c = i * self.dilation[0], j * self.dilation[1]
                yield i, j, padded[:, :, r:r + (rows - 1) * self.stride[0] + 1:self.stride[0],
                                   c:c + (columns - 1) * self.stride[1] + 1:self.stride[1]]

    def divides_rows(self) -> bool:
        """Whether every output row sees at least one real input row, so that any row share has an input."""
        return max(self.pads[0], self.pads[2]) < self.reach[0]

    def rows(self, start: int, stop: int, height: int) -> tuple[Window, Pair]:
        """Window and input row interval that compute output rows [start, stop)."""
        top, left, _, right = self.pads
        first = start * self.stride[0] - top
        last = (stop - 1) * self.stride[0] - top + self.reach[0]
        pads = (max(0, -first), left, max(0, last - height), right)
        return Window(self.kernel, self.stride, pads, self.dilation), (max(0, first), min(height, last))

    def __str__(self) -> str:
        text = f"{self.kernel[0]}x{self.kernel[1]}"
        if self.stride != (1, 1):
            text += f" stride {self.stride[0]}x{self.stride[1]}"
        if any(self.pads):
            text += f" pads {','.join(map(str, self.pads))}"
        if self.dilation != (1, 1):
            text += f" dilation {self.dilation[0]}x{self.dilation[1]}"
        return text
