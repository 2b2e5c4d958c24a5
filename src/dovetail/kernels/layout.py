"""Where tensors lie in a GPU's memory."""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT = {"float16": 2, "float32": 4, "tf32": 4, "int8": 1}
"""Bytes of an activation by arithmetic: float16 with float32 sums, float32, its 19-bit products, 8-bit integers."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Where a tensor lies: channels [offset, offset + channels) of a buffer of images x rows x columns x pitch.

    `planar`: images x channels x rows x columns instead, as inputs arrive that dense layers alone read.
    """

    buffer: str
    images: int
    height: int
    width: int
    channels: int
    pitch: int
    offset: int = 0
    planar: bool = False

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Of images, rows, columns, channels."""
        if self.planar:
            return (self.channels * self.height * self.width, self.width, 1, self.height * self.width)
        return (self.height * self.width * self.pitch, self.width * self.pitch, self.pitch, 1)

    @property
    def pixels(self) -> int:
        return self.images * self.height * self.width
