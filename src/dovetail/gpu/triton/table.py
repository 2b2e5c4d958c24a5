"""All Triton kernels by their names in records, and what launching and compiling each of them asks for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dovetail.gpu.triton import banded, bridged, conv, deep, depthwise, depthwise_bytes, fused, inverted_residual, moves, vector

SHARED_PERCENT = 25
"""Percentage of the first-level cache that kernels prefer as shared memory; one that needs more gets more.

Chosen alike for all: where the next kernel divides the cache otherwise, a multiprocessor runs empty first."""


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """A kernel's code; Triton compiles the slowest of those that take it seconds first, so that none is left at the end."""

    function: Any
    slow: int = 0
    shared_percent: int | None = SHARED_PERCENT
    """None lets the driver divide the cache: of kernels that last long enough several programs fit only then."""


KERNELS: Mapping[str, TritonKernel] = {
    "conv": TritonKernel(conv.conv),
    "deep": TritonKernel(deep.deep),
    "vector": TritonKernel(vector.vector),
    "depthwise": TritonKernel(depthwise.depthwise, slow=1),
    "bytewise": TritonKernel(depthwise_bytes.depthwise_bytes),
    "fused": TritonKernel(fused.fused, slow=2),
    "banded": TritonKernel(banded.banded, slow=5),
    "walked": TritonKernel(inverted_residual.inverted_residual, slow=4, shared_percent=None),
    "walked_bytes": TritonKernel(inverted_residual.inverted_residual_bytes, slow=3, shared_percent=None),
    # its weights lie in shared memory, and those of the next such kernel have to find room beside them
    "bridged": TritonKernel(bridged.bridged, slow=6, shared_percent=100),
    "pool": TritonKernel(moves.pool),
    "mean": TritonKernel(moves.mean),
    "add": TritonKernel(moves.add),
    "chosen": TritonKernel(moves.chosen),
    "looked_up": TritonKernel(moves.looked_up),
    "multiplied": TritonKernel(moves.multiplied),
}
for _kernel in KERNELS.values():  # Triton's keys depend on which were asked for before: in one order, all processes have the same
    getattr(_kernel.function, "cache_key", None)
