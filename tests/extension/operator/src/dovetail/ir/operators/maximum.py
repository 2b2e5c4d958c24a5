"""The larger of two values, position by position: exact on integers of one scale, divisible along channels and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.ir.operators.elementwise import Elementwise
from dovetail.ir.tensor import Real


@dataclass(frozen=True, slots=True)
class Maximum(Elementwise):
    """Of two tensors of one shape, the larger value at every position."""

    def accumulate(self, inputs: Sequence[Real], params: Sequence[Real]) -> Real:
        return np.maximum(*inputs)
