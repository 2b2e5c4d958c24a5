"""Compact DNNs 2024, paper II: memory of feature maps apart from weights, on the chip and off it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from dovetail.cost.accelerator import config_of
from dovetail.cost.array import block_cost
from dovetail.cost.clocks import before
from dovetail.fpga.assemble import design_modules
from dovetail.hardware.folds import Fold
from dovetail.ir import Graph
from dovetail.platform.accelerator import AcceleratorDesign
from dovetail.platform.device import Device


def buffer_bits(graph: Graph, folds: Mapping[str, Fold], fused: Collection[str]) -> int:
    """Bits of all memories that generated hardware writes, and of what pixels cut anew hold; its ports' own are left out."""
    total = 0
    for module in design_modules(graph, "block", folds, fused):
        if any(f"_words_{end}" in module.name for end in ("x", "y")):
            continue
        total += sum(m.width * m.depth for m in module.memories)
        total += sum(r.target.width for r in module.registers if r.target.name.startswith(("held_", "line", "row")))
    return total


def map_figures(graph: Graph, accelerator: AcceleratorDesign, device: Device) -> dict[str, Any]:
    """Bytes of an accelerator's memories of maps, the same with all maps on the chip, and bytes that pass off-chip memory.

    Of dedicated engines they are counted in the hardware that is generated: rows, windows, words, FIFOs. Of arrays they are the
    memories of the layer program. The network's own input and output are not counted as traffic.
    """
    folds = {name: Fold(*sizes) for name, sizes in accelerator.dedicated.items() if sizes is not None}
    reusable = tuple(n.name for n in graph.nodes if n.name in accelerator.reusable)
    front, config = before(graph, reusable), config_of(accelerator)
    own = buffer_bits(front, folds, accelerator.fused) if front is not None else 0
    if config is None:
        return {"map_buffer_bytes": own // 8, "map_buffer_bytes_on_chip": own // 8, "offchip_map_bytes": 0,
                "offchip_weight_bytes": 0}
    cost = block_cost(graph, reusable, config, device)
    whole = block_cost(graph, reusable, replace(config, map_bytes=0, input_buffers=2), device)
    return {"map_buffer_bytes": (own + cost.buffer_bits) // 8, "map_buffer_bytes_on_chip": (own + whole.buffer_bits) // 8,
            "offchip_map_bytes": cost.map_bytes, "offchip_weight_bytes": cost.offchip_bytes - cost.map_bytes}
