"""What a function that stands for an ONNX node is given: tensors, constants, attributes, and the type of floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dovetail.errors import UnsupportedError
from dovetail.ir import Array

NARROW = (torch.float16, torch.bfloat16)
"""Floats whose sums, powers and roots are computed in float32."""


@dataclass(slots=True, eq=False)
class Given:
    """One node at work. Values are tensors on the device, arrays where they are constant, None where they are absent."""

    where: str
    values: Sequence[Any]
    attributes: Mapping[str, Any]
    real: Any
    """PyTorch's type of the network's floats."""
    device: Any
    constants: dict[Any, tuple[Array, Any]]
    """Constants on the device: of the model by the identity of their arrays, others by what they hold."""
    opset: int
    shapes: Sequence[tuple[int, ...] | None] = ()
    """Of results, as the model states them."""

    @property
    def count(self) -> int:
        return len(self.values)

    def has(self, index: int) -> bool:
        return index < len(self.values) and self.values[index] is not None

    def x(self, index: int = 0) -> Any:
        """A tensor: as it comes, or a constant in the network's floats, single numbers in float32."""
        value = self.values[index]
        return self.on_device(value) if isinstance(value, np.ndarray) else value

    def wide(self, index: int = 0) -> Any:
        """A tensor, of narrow floats in float32."""
        value = self.x(index)
        return value.float() if value.dtype in NARROW else value

    def typed(self, index: int) -> Any:
        """A tensor of floats in the network's own type, as products want them."""
        value = self.x(index)
        return value.to(self.real) if value.is_floating_point() else value

    def optional(self, index: int) -> Any:
        return self.x(index) if self.has(index) else None

    def on_device(self, array: Array, as_is: bool = False) -> Any:
        """An array on the device; floats in the network's type, unless they are to stay `as_is`. Copied once."""
        key: Any = id(array) if any(v is array for v in self.values) else (array.dtype.str, array.shape, array.tobytes())
        key = (key, as_is)
        known = self.constants.get(key)
        if known is None:
            tensor = torch.from_numpy(np.array(array, order="C"))
            if tensor.is_floating_point() and not as_is:
                tensor = tensor.to(self.real if tensor.numel() > 1 else torch.float32)
                if tensor.numel() == 1 and self.others_have(tensor.ndim):
                    tensor = tensor.reshape(())  # numbers change no types
            known = self.constants[key] = (array, tensor.to(self.device))
        return known[1]

    def others_have(self, rank: int) -> bool:
        """Whether a tensor has at least so many dimensions, so that a number needs none of its own."""
        return any(isinstance(v, torch.Tensor) and v.ndim >= max(rank, 1) for v in self.values)

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def ints(self, index: int, name: str = "", default: Any = None) -> Any:
        """A list of integers: a constant input, or the attribute that older operators have in its place."""
        if self.has(index):
            return [int(v) for v in np.asarray(self.array(index)).reshape(-1)]
        found = self.attributes.get(name, default) if name else default
        return found if found is None or isinstance(found, int) else [int(v) for v in found]

    def array(self, index: int) -> Array:
        """A constant input; UnsupportedError where it is computed."""
        value = self.values[index]
        if not isinstance(value, np.ndarray):
            raise UnsupportedError(f"{self.where}: input {index} is computed; only a constant is known here")
        return value

    def unsupported(self, why: str) -> UnsupportedError:
        return UnsupportedError(f"{self.where}: {why}")
