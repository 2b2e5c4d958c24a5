"""The generated files of a build: every segment as Verilog or as an ONNX sub-model; layers of codes whose weights are loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.cost.folded import coded_shape, folds_of, pace_of
from dovetail.cost.lq_folds import best_coded_fold
from dovetail.document import Maybe, OneOf, Whole
from dovetail.errors import UnsupportedError, UsageError
from dovetail.fpga import part as fpga_part
from dovetail.fpga.axi.shell import DEFAULT_BUS_BITS
from dovetail.fpga.design import Design
from dovetail.fpga.engines.coded_lane import LOADED_SHIFT, shifts_alone
from dovetail.fpga.engines.lq import datapath_of
from dovetail.fpga.links.stored import write_system
from dovetail.fpga.links.system import systems_of
from dovetail.fpga.mapping import coded_rescale
from dovetail.fpga.packing import BUS_BITS
from dovetail.hardware.folds import Fold
from dovetail.ir import Graph, Node
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.onnx.writer import Boundary
from dovetail.platform.device import Device, Kind, Platform
from dovetail.progress import Progress
from dovetail.schedule.program import Program

ALL = "all"
"""In the place of names: every layer that can be."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the generated hardware depends on beside model, plan and board."""

    bus_bits: int = DEFAULT_BUS_BITS
    """Of the AXI4-Stream ports."""
    memory_bits: int | None = None
    """Of the port to memory, where reusable engines have one; None: that of their beats."""
    host_pins: int | None = None
    """Of a port of pins, behind which the hardware is written a second time."""
    loaded: tuple[str, ...] = ()
    """Layers of codes whose weights are loaded."""


HARDWARE = {"bus_bits": OneOf(BUS_BITS), "memory_bits": Maybe(Whole(8, 4096)), "host_pins": Maybe(OneOf((1, 2, 4, 8, 16, 32))),
            "loaded": [str]}
"""`Hardware` as it stands in a manifest."""


def hardware_from_json(entries: Mapping[str, Any]) -> Hardware:
    return Hardware(entries["bus_bits"], entries["memory_bits"], entries["host_pins"], tuple(entries["loaded"]))


def write_parts(folder: Path, program: Program, platform: Platform, hardware: Hardware, progress: Progress) -> list[str]:
    """One folder per kind of device that has something to do; returns what is to be said about boards that are not joined, and
    about weights that are loaded."""
    designs: dict[str, Design] = {}
    loads = loaded_folds(program, platform, hardware.loaded)
    for number, segment in enumerate(program.segments):
        device = platform.device(segment.device)
        progress(f"generate {segment.name}", number, len(program.segments))
        target = folder / device.kind.value
        target.mkdir(exist_ok=True)
        if device.kind is Kind.FPGA:
            own = loads.get(segment.name, {})
            folds = {**folds_of(segment.graph, device), **own}
            designs[segment.name] = fpga_part.write_part(
                segment.graph, target, hardware.bus_bits, folds, device.accelerator, tuple(own), datapath_of(device.family),
                hardware.memory_bits, hardware.host_pins)
        else:
            (target / f"{segment.graph.name}.onnx").write_bytes(to_onnx(segment.graph, Boundary.INTEGER))
    names = [name for own in loads.values() for name in own]
    notes = [f"weights of {', '.join(names)} are loaded: memories that are written take more logic and registers than the plan "
             "counts (docs/method/lq-hardware.md)"] if names else []
    for name, segments in systems_of(program, platform).items():
        try:
            notes += write_system(name, segments, designs, program, platform, folder / Kind.FPGA.value,
                                  hardware.bus_bits).warnings
        except UnsupportedError as reason:
            notes.append(f"{reason}; the host carries what passes between these boards")
    progress("generate", len(program.segments), len(program.segments))
    return notes


def loadable(graph: Graph, node: Node) -> bool:
    """Whether a layer's weights can be loaded where it is folded: its sums become codes, or are shifted and rounded."""
    if not node.op.coded:
        return False
    how = coded_rescale(graph, node)
    return how is None or shifts_alone(graph.params(node)[2].array.tolist(), how)


def loaded_folds(program: Program, platform: Platform, wanted: Sequence[str]) -> dict[str, dict[str, Fold]]:
    """The layers whose weights are to be loaded, or shares of them, by the segment they are in, with the folds they get.

    `wanted` names layers, or is `ALL`. UsageError where one cannot be.
    """
    possible = _possible(program, platform)
    names = list(possible) if list(wanted) == [ALL] else list(dict.fromkeys(wanted))
    if wanted and not names:
        raise UsageError(f"--loaded {ALL}: no layer of codes is folded on an FPGA; give --fold CLOCKS, or leave "
                         "--loaded out")
    found: dict[str, dict[str, Fold]] = {}
    for name in names:
        if name not in possible:
            raise UsageError(f"--loaded {name}: {_why_not(program.graph, name)}; "
                             f"{', '.join(possible) or 'none of this plan'} can be loaded")
        for segment, share, fold in possible[name]:
            found.setdefault(segment, {})[share] = fold
    return found


def _possible(program: Program, platform: Platform) -> dict[str, list[tuple[str, str, Fold]]]:
    """Layers all of whose shares can be loaded: segment, node there, and fold of every share."""
    found, whole = dict[str, list[tuple[str, str, Fold]]](), dict[str, bool]()
    for segment in program.segments:
        device = platform.device(segment.device)
        folded = device.kind is Kind.FPGA and device.accelerator is None and pace_of(device) is not None
        folds = _folds(segment.graph, device) if folded else {}
        for node, origin in zip(segment.graph.nodes, segment.origins, strict=True):
            whole[origin] = whole.get(origin, True) and node.name in folds
            if node.name in folds:
                found.setdefault(origin, []).append((segment.name, node.name, folds[node.name]))
    return {origin: shares for origin, shares in found.items() if whole[origin]}


def _folds(graph: Graph, device: Device) -> dict[str, Fold]:
    """Folds of all loadable layers: those they have, or the best where they would be mapped directly."""
    known, pace, limits = folds_of(graph, device), pace_of(device), tuple(sorted(device.resources.items()))
    assert pace is not None
    found: dict[str, Fold] = {}
    for node in (n for n in graph.nodes if loadable(graph, n)):
        best = None if node.name in known else best_coded_fold(coded_shape(graph, node), device.model, limits, pace)
        if node.name in known or best is not None:
            found[node.name] = known[node.name] if best is None else best[0]
    return found


def _why_not(graph: Graph, name: str) -> str:
    node = next((n for n in graph.nodes if n.name == name), None)
    if node is None:
        return "no such layer"
    if not node.op.coded:
        return f"a {node.op.kind} whose weights are constants of the design; only layers of codes have memories"
    if not loadable(graph, node):
        return f"its sums are not shifted down by 1 to {LOADED_SHIFT} places alone"
    return "not on FPGAs whose layers are folded (--fold CLOCKS), or only in part"
