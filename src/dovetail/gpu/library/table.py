"""PyTorch's functions by the ONNX operators they stand for, and nodes of a graph as such functions."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.gpu.library import movement, pointwise, products, reductions, resizing
from dovetail.gpu.library.pointwise import Compute

OPERATORS: Mapping[tuple[str, str], Compute] = {
    **{("", name): compute for table in (pointwise.POINTWISE, movement.MOVEMENT, reductions.REDUCTIONS, products.PRODUCTS,
                                         resizing.RESIZING) for name, compute in table.items()},
    **{("com.microsoft", name): compute for table in (pointwise.CONTRIBUTED, reductions.CONTRIBUTED, products.CONTRIBUTED)
       for name, compute in table.items()}}
"""By domain and name."""
