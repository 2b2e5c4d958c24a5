"""Parts of networks over boards by synthesis: ends of links and switches, ports of the host, slices of conv1, a share of fc6.

`python bench/lq.py --part links --part port --part rom --json FILE` runs them. Areas are Yosys counts for UltraScale before
place and route; slices, small layers with plain integers on one side, and the share, with its ROM, stand beside what the model
of plans says of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail import cost
from dovetail.cost.folded import folds_of
from dovetail.fpga.assemble import build_design
from dovetail.fpga.design import Design
from dovetail.fpga.host_port import with_host_port
from dovetail.fpga.links.cells import CellFormat
from dovetail.fpga.links.receive import ArrivingSlots, receiver_module
from dovetail.fpga.links.slots import follow, spread
from dovetail.fpga.links.switch import LeavingSlots, passage_module, switch_transmitter
from dovetail.fpga.links.transmit import Outgoing, transmitter_module
from dovetail.fpga.rtl.modules import Module
from dovetail.fpga.rtl.verilog import print_module
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.hardware.folds import Fold
from dovetail.ir import Conv, Graph, Scheme, Tensor, Window
from dovetail.numerics.lq import LearnedLayer, boundaries_of, coded_node, fit_weights, ranked
from dovetail.platform.load import load_platform

FAMILY = "xcu"
PAYLOAD_BITS, DEPTH = 256, 224
"""A clock of FiC's link, and a round trip of it in words."""
CIRCUITS = (1, 2, 4)
SLOTS = 16
"""Of a frame of the switch."""
PACE = 51_529
"""Clocks per frame: one for every pixel of the image."""
BASIS = np.asarray([0.52, 1.05])
NAMES = {"lut": "lut", "register": "register", "bram36": "bram36", "dsp": "dsp"}


def link_ends() -> dict[str, Any]:
    """Both ways of a link's end by the number of its circuits each way."""
    form, found = CellFormat(PAYLOAD_BITS), dict[str, Any]()
    for count in CIRCUITS:
        circuits = [Outgoing(PAYLOAD_BITS, DEPTH)] * count
        sender = transmitter_module("sender", form, circuits, tuple(range(count)), count, 1)
        receiver, parts = receiver_module("receiver", form, circuits, 1)
        for name, modules in (("sends", (sender,)), ("receives", (receiver, *parts))):
            found.setdefault(str(count), {})[name] = counted_modules(f"link end, {count} circuits, {name}", modules)
    return {"link_ends": found, "switch_ends": switch_ends()}


def counted_modules(what: str, modules: Sequence[Module]) -> dict[str, float]:
    """Yosys' counts of the first module with all the others in it."""
    design = Design(modules[0].name, {f"{m.name}.v": print_module(m) for m in modules}, (), ())
    counted = synthesize(design, FAMILY).resources
    row = {k: float(counted.get(v, 0)) for k, v in NAMES.items()}
    print(f"{what}: {row}", flush=True)
    return row


def switch_ends() -> dict[str, Any]:
    """A link's end at a switch, by how many circuits begin, end, and pass in each direction: all slots of a frame are shared out.

    A passage leads from the link to another one; what comes back over its like is the other link's.
    """
    form, found = CellFormat(PAYLOAD_BITS), dict[str, Any]()
    for count in CIRCUITS:
        share = SLOTS // (2 * count)
        circuits = [Outgoing(PAYLOAD_BITS, DEPTH * share // SLOTS + share + 1)] * (2 * count)
        owners = tuple(2 * count if o is None else o for o in spread([(k, share) for k in range(2 * count)], SLOTS))
        through = dict.fromkeys(range(count, 2 * count), 0)
        places = {0: {leaves: n for n, (_, leaves) in enumerate(follow(owners, owners, list(through)))}}
        relayed = [k in through for k in range(2 * count)]
        sender = switch_transmitter("sender", form, circuits, LeavingSlots(owners, through, places), relayed, 1)
        receiver, parts = receiver_module("receiver", form, circuits, 1, ArrivingSlots(owners, through))
        passage = passage_module("passage", PAYLOAD_BITS, len(places[0]))
        for name, modules in (("sends", (sender,)), ("receives", (receiver, *parts)), ("passes", (passage,))):
            found.setdefault(str(count), {})[name] = counted_modules(f"switch end, {count} circuits, {name}", modules)
    return found


def host_ports(core: Design) -> dict[str, Any]:
    """A layer behind ports of the host by their width: clocks that a frame takes, and look-up tables beside the layer's own."""
    found, alone = dict[str, Any](), synthesize(core, FAMILY).resources
    for width in (4, 8, 16, 32):
        behind = with_host_port(core, width)
        counted = synthesize(behind, FAMILY).resources
        found[str(width)] = {"clocks_per_frame": behind.interval_cycles, "core_clocks": core.interval_cycles,
                             **{k: counted.get(v, 0) - alone.get(v, 0) for k, v in NAMES.items()}}
        print(f"host port of {width} bits: {found[str(width)]}", flush=True)
    return {"host_ports": found}


def slice_of_conv1(filters: int = 2) -> Graph:
    """Some filters of AlexNet's first layer: bytes, plain weights, to codes."""
    rng, op, shape = np.random.default_rng(0), Conv(filters, Window((11, 11), (4, 4))), (1, 3, 227, 227)
    weights = np.clip(np.rint(rng.normal(0, 32, (filters, 3, 11, 11))), -127, 127).astype(np.int8)
    layer = LearnedLayer(op, weights, 0, np.full((filters, 1), 2.0**-6), 0, np.asarray([2.0**-8]),
                         rng.normal(1, 0.2, filters) / 3, rng.normal(0.4, 0.3, filters))
    return _graph(layer, shape, Scheme(8, False, (-8,)))


def share_of_fc6(filters: int = 64) -> Graph:
    """Some units of AlexNet's first fully connected layer, as the convolution over 6x6 that it is."""
    rng, shape = np.random.default_rng(0), (1, 256, 6, 6)
    codes = rng.integers(0, 4, (filters, 256, 6, 6)).astype(np.uint8)
    basis = np.outer(rng.uniform(0.8, 1.2, filters), [0.5, 1.1])
    layer = LearnedLayer(Conv(filters, Window((6, 6))), codes, 2, basis, 2, BASIS, rng.normal(1, 0.2, filters) / 80,
                         rng.normal(0.4, 0.3, filters))
    return _graph(layer, shape, Scheme(2, False, (0,)))


def small_layer(weight_bits: int, input_bits: int) -> Graph:
    """3x3, 8 to 4 channels, with plain integers on one side or both."""
    rng, op, shape = np.random.default_rng(0), Conv(4, Window((3, 3))), (1, 8, 16, 16)
    weights = rng.normal(size=(4, 8, 3, 3))
    codes, basis = fit_weights(weights, weight_bits) if weight_bits else (
        np.clip(np.rint(weights * 32), -127, 127).astype(np.int8), rng.uniform(0.8, 1.2, (4, 1)) / 32)
    levels = BASIS[:input_bits] if input_bits else np.asarray([2.0**-8])
    layer = LearnedLayer(op, codes, weight_bits, basis, input_bits, levels, rng.normal(1, 0.2, 4) / 3, rng.normal(0.4, 0.3, 4))
    return _graph(layer, shape, Scheme(input_bits, False, (0,)) if input_bits else Scheme(8, False, (-8,)))


def _graph(layer: LearnedLayer, shape: tuple[int, ...], scheme: Scheme) -> Graph:
    node, constants = coded_node("layer", layer, "x", "y", boundaries_of(ranked(BASIS)[0]).tolist())
    tensors = {"x": Tensor("x", shape, scheme), "y": Tensor("y", layer.body.infer((shape,)), Scheme(2, False, (0,)))}
    return Graph("part", ("x",), ("y",), (node,), tensors, {c.name: c for c in constants})


def judged(name: str, graph: Graph, pace: int | None) -> dict[str, Any]:
    """A layer's engine by Yosys and by the model."""
    device = load_platform("fic:1").device("fpga0")
    device = device if pace is None else device.at_pace(pace)
    folds: dict[str, Fold] = {} if pace is None else folds_of(graph, device)
    counted = synthesize(build_design(graph, "part", folds=folds), FAMILY).resources
    share = cost.costs_of(graph, graph.nodes[0], None, np.asarray([0]), np.asarray([1]), device)
    assert share is not None
    row = {key: {"yosys": float(counted.get(key, 0)), "model": float(share.resources[key][0])} for key in NAMES
           if key in share.resources}
    print(f"{name}, fold {next(iter(folds.values()), 'none')}: {row}", flush=True)
    return {"fold": str(next(iter(folds.values()), "none")), **row}


def roms() -> dict[str, Any]:
    """conv1 as it is mapped, directly, layers with plain integers on one side, and a share of fc6 in ROM."""
    asked: list[tuple[str, Graph, int | None]] = [
        *((f"conv1, {n} of 96 filters", slice_of_conv1(n), None) for n in (2, 8)),
        *((f"w{w or 'int'}a{a or 8}, 3x3, 8 to 4", small_layer(w, a), None) for w, a in ((1, 0), (2, 0), (0, 2))),
        ("fc6, 64 of 4,096 units", share_of_fc6(), PACE)]
    return {"parts": {name: judged(name, graph, pace) for name, graph, pace in asked}}
