"""Whether multiplier blocks pay in direct mapping: adders of a layer whose dearest products come from multipliers instead.

`python bench/dhm.py --part multipliers --json FILE` takes the weights with the most digits out of the adder graph and brings
their products back as inputs of their own, which the graph still has to add. Weights are Gaussian int8, seed 0.
"""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np

from dovetail.fpga.rtl.expressions import bit_width
from dovetail.hardware.adders.graph import AdderGraph, IntMatrix, digit_counts
from dovetail.hardware.adders.subexpressions import minimize
from lib.peers.layers import gaussian

SHAPES = {"3 to 8, 3x3": (8, 3, 3, 3), "3 to 64, 3x3": (64, 3, 3, 3)}
BLOCKS = (0, 48, 192)
"""Multipliers lent to the layer; a 10CX220 has 192 blocks."""
PIXEL = (-128, 127)


def with_multipliers(matrix: IntMatrix, count: int) -> AdderGraph:
    """The graph that is left when `count` of the products with the most digits are made elsewhere."""
    rest, ranges, columns = matrix.copy(), [PIXEL] * matrix.shape[1], []
    dearest = np.argsort(-digit_counts(np.abs(matrix)).reshape(-1).astype(np.int64), kind="stable")[:count]
    for at in dearest:
        row, column = divmod(int(at), matrix.shape[1])
        weight, rest[row, column] = int(matrix[row, column]), 0
        lo, hi = sorted(weight * end for end in PIXEL)
        ranges.append((lo, hi))
        columns.append(np.eye(len(matrix), dtype=np.int64)[:, row])
    return minimize(np.column_stack([rest, *columns]) if columns else rest, ranges)


def multipliers() -> dict[str, Any]:
    """Adders and their bits, layer by layer, with more and more multipliers."""
    found: dict[str, Any] = {}
    for name, shape in SHAPES.items():
        matrix = gaussian(shape, 0).astype(np.int64).reshape(shape[0], -1)
        for count in BLOCKS:
            graph = with_multipliers(matrix, count)
            row = {"multipliers": count, "adders": graph.count, "adder_bits": sum(bit_width(a.lo, a.hi) for a in graph.adders)}
            found.setdefault(name, []).append(row)
            print(f"{name}: {count:3d} multipliers, {row['adders']:5d} adders of {row['adder_bits']:6d} bits", flush=True)
    return {"multipliers": {**found, "date": date.today().isoformat(),
                            "command": "python bench/dhm.py --part multipliers --json FILE"}}
