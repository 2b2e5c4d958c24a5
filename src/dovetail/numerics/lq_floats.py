"""A layer of codes in single precision, as *LQ multi-FPGA 2020* computes it: products of floats, added in floats.

These are the numbers of two baselines, a multiply-add in FP32 and a table of float products; both round the same products once
and add them in the same order, so their sums agree bit for bit. They are not the integers of `Coded`: those are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import UnsupportedError
from dovetail.ir import Coded, Constant
from dovetail.numerics.lq import levels_of, weight_values

Floats = NDArray[np.float32]
LEAST_PRODUCT = 2.0**-100
MOST_SUM = 2.0**126
"""Between these neither products nor their sums are subnormal or overflow: all are multiples of the least product's last bit."""


@dataclass(frozen=True, slots=True)
class FloatLayer:
    """Weights as `Coded` shapes them, levels by input code, thresholds (filters, steps): all float32."""

    weights: Floats
    levels: Floats
    steps: Floats

    def product(self, filter_: int, place: int) -> Floats:
        """What every input code contributes at a place of a filter, rounded once."""
        found: Floats = self.weights.reshape(len(self.weights), -1)[filter_, place] * self.levels
        return found


def float_layer(name: str, op: Coded, params: Sequence[Constant]) -> FloatLayer:
    """A layer's numbers from its bases and thresholds; UnsupportedError where it has none or they leave single precision."""
    if not (op.weight_bits and op.input_bits and op.output_bits):
        raise UnsupportedError(f"{name}: plain integers on one side; the float baselines take layers from codes to codes")
    codes, products, steps, basis, input_basis = (c.array for c in params)
    scheme = params[1].scheme
    assert scheme is not None
    own = np.broadcast_to(np.asarray(scheme.exponents), (len(products),))
    weights = weight_values(codes, basis.astype(np.float64)).astype(np.float32)
    order = list(op.patterns or range(1 << op.input_bits))
    levels = levels_of(input_basis.astype(np.float64))[order].astype(np.float32)
    sizes = np.abs(weights)[..., None].astype(np.float64) * levels
    if (sizes[sizes > 0] < LEAST_PRODUCT).any() or sizes.max(axis=-1).reshape(len(weights), -1).sum(axis=1).max() > MOST_SUM:
        raise UnsupportedError(f"{name}: products from {sizes[sizes > 0].min():.3g} up to {sizes.max():.3g}; single precision "
                               f"without subnormal numbers needs {LEAST_PRODUCT:.3g} to {MOST_SUM:.3g} of a sum")
    return FloatLayer(weights, levels, np.ldexp(steps.astype(np.float64), own[:, None]).astype(np.float32))
