"""Block memories of LQ AlexNet on three boards of FiC by synthesis, beside the model that plans go by.

`python bench/lq.py --part memories --json FILE`: the network is planned for `fic:3`, and every memory of every folded layer
(codes, constants, window, lines) is synthesized alone in its own words and width, so that the blocks of a board are counted and
not computed. They are written memories: a ROM of the same geometry takes the same blocks (`rom_equal` says so of one), and 150
Mbit of contents would take Yosys hours. Of the layer that is mapped directly, conv1, blocks are its lines', by the model.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.cost.folded import coded_shape, folds_of
from dovetail.cost.lq_folds import coded_cost, is_block, memories_of
from dovetail.fpga.design import Design
from dovetail.fpga.rtl.expressions import signal
from dovetail.fpga.rtl.modules import Memory, Module, Rom
from dovetail.fpga.rtl.verilog import images, print_module
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.ir import Coded
from dovetail.numerics.lq_alexnet import lq_alexnet
from dovetail.platform.fitted import dhm_model
from dovetail.platform.load import load_platform
from dovetail.reproduce.lq_2020.results import boards_alone, plan_at
from dovetail.schedule.program import lower

FAMILY = "xcu"
BOARD = "fic:3"
PACE = 51_529
ROM = (8192, 72)
"""Words and width of the memory that is also synthesized as a ROM with contents."""


def memory_design(words: int, width: int, rom: bool = False) -> Design:
    """A memory alone, with a register behind it as in engines."""
    m = Module("memory")
    address = m.input("address", max(1, (words - 1).bit_length()))
    read = signal("read_value", 0, (1 << width) - 1)
    if rom:
        drawn = np.random.default_rng(0).integers(0, 256, (words, -(-width // 8))).astype(np.uint8)
        contents = tuple(int.from_bytes(row.tobytes(), "little") & (1 << width) - 1 for row in drawn)
        m.roms.append(Rom("store", width, contents, address, read, True))
    else:
        writes = m.input("write"), m.input("write_address", address.width), m.input("value", width)
        m.memories.append(Memory("store", width, words, *writes, address, read, True))
    m.output("y", m.register("word", read))
    return Design(m.name, {f"{m.name}.v": print_module(m), **images(m)}, (), ())


def counted(words: int, width: int, rom: bool = False) -> dict[str, float]:
    """Blocks, and look-up tables that choose among them."""
    found = synthesize(memory_design(words, width, rom), FAMILY).resources
    return {"bram36": found.get("bram36", 0.0), "lut": found.get("lut", 0.0)}


def memories() -> dict[str, Any]:
    """Blocks of every board of the plan, by Yosys and by the model."""
    graph, board = lq_alexnet(), load_platform(BOARD)
    plan = plan_at(graph, board, PACE)
    assert plan is not None, "three boards hold the network"
    alone, boards = boards_alone(board).with_pace(PACE), dict[str, Any]()
    for segment in lower(graph, plan.assignment).segments:
        folds = folds_of(segment.graph, alone.device(segment.device))
        own = boards.setdefault(segment.device, {"layers": {}})
        for node in segment.graph.nodes:
            if isinstance(node.op, Coded) and node.name in folds:
                shape = coded_shape(segment.graph, node)
                blocks = [(w, b) for w, b, least in memories_of(shape, folds[node.name]) if is_block(w, b, least)]
                rows = [{"words": w, "width": b, **counted(w, b)} for w, b in blocks]
                planned = dict(coded_cost(shape, folds[node.name], dhm_model(alone.device(segment.device).model))[3])
                own["layers"][node.name] = {"fold": str(folds[node.name]), "memories": rows, "model": planned["bram36"],
                                            "bram36": sum(r["bram36"] for r in rows), "lut": sum(r["lut"] for r in rows)}
                print(f"{segment.device} {node.name}: {own['layers'][node.name]}", flush=True)
    rom = ROM, counted(*ROM), counted(*ROM, rom=True)
    for name, own in boards.items():
        own |= _total(own["layers"], plan.resources[name], board.link_logic(name), board.device(name).resources["bram36"])
        print(f"{name}: {own['bram36']:.1f} BRAM36 by Yosys, {own['bram36_model']:.1f} by the model, {own['part']:.1%}",
              flush=True)
    return {"memories": {"boards": boards, "pace_clocks": PACE, "rom_equal": rom[1]["bram36"] == rom[2]["bram36"],
                         "rom": {"geometry": rom[0], "written": rom[1], "rom": rom[2]}}}


def _total(layers: dict[str, Any], planned: Any, links: Any, limit: float) -> dict[str, float]:
    """A board's blocks: folded layers as synthesized, the rest (conv1's lines, pools, FIFOs) and ends of links by the model."""
    model = sum(layer["model"] for layer in layers.values())
    ends, every = float(links.get("bram36", 0.0)), float(planned["bram36"][0])
    found = sum(layer["bram36"] for layer in layers.values()) + every - model + ends
    return {"bram36": found, "bram36_model": every + ends, "part": found / limit, "limit": limit}
