"""Compact DNNs 2024, papers I and II: hybrid accelerators on an FPGA against dedicated and reusable engines alone.

Everything is by our model of engines that we build, at an assumed clock of 200 MHz; all four kinds come from one search with
one set of engines, each with a bound on every other of its kind. `bench/fibha.py` adds simulation and synthesis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dovetail.errors import DovetailError
from dovetail.ir import Graph
from dovetail.numerics.equalize import Equalise
from dovetail.partition.hybrid.architecture import Judged, judged, pinned, region_of, search_of
from dovetail.partition.hybrid.blocks import Blocks, multiplications_of
from dovetail.partition.hybrid.cuts import cut_points
from dovetail.partition.hybrid.search import Search
from dovetail.partition.hybrid.splitcnn import split_cnn
from dovetail.partition.plan import Goal
from dovetail.pipeline import decide_numbers
from dovetail.planning import cut_out
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import Device, Kind
from dovetail.platform.load import load_platform
from dovetail.terminal import table
from dovetail.zoo import build

BOARDS = ("zc706", "kcu105", "zcu102")
NETWORKS = ("mobilenet-v1", "mobilenet-v2", "proxylessnas", "mnasnet", "xception", "resnet50")
KINDS = (Architecture.FIBHA, Architecture.SESL, Architecture.SEML, Architecture.MONOLITHIC)
CLOCK_HZ = 200e6
"""Assumed for every board, as by MCCM, the analytic model of FiBHA's authors; no open tool routes these parts."""
CLAIMS = {
    "over SEML": "1.7x of SEML's throughput (thesis abstract: up to 4x)",
    "over SESL": "4.1x of SESL's throughput (thesis abstract: up to 2.5x)",
    "utilisation": "dynamic utilisation of multipliers up to 2x",
    "energy": "energy efficiency up to +28 %",
    "buffers": "buffers for maps up to 75 % smaller than SEML's or a monolithic accelerator's",
    "FIRB": "inverted residual blocks fused: memory -54 %, energy -35 % against plain pipelining (bench/firb.py has ours)"}
"""As the papers print them."""
WHY = (
    "The paper's SESL baseline buffers tiles of every layer twice and does not fit; ours buffers lines and packs two products "
    "into a DSP48E2, so on a ZCU102 it holds all of MobileNetV2 and is itself the best accelerator. On a ZC706 it does not fit "
    "and the hybrid is forced.",
    "Our reusable engines run depthwise layers behind the convolutions that feed them and prefetch weights, which lifts SEML; "
    "maps that exceed the board's RAM are not moved to external memory, which limits it on early layers.",
)

Progress = Callable[[str, int, int], None]


def region(network: str, size: int | None, device: Device) -> Graph:
    """The part of a zoo network that the FPGA takes over."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(build(network, size=size))
        graph = decide_numbers(path, equalise=Equalise.OFF).graph
    return cut_out(graph, pinned(graph, region_of(graph, device), device.name), "cpu", device.name)


def fpga_of(board: str) -> Device:
    """A board's FPGA at the assumed clock, its memory delivering the same bytes per second."""
    (device,) = load_platform(board).of_kind(Kind.FPGA)
    return replace(device, clock_hz=CLOCK_HZ)


def figures(graph: Graph, device: Device, kind: Architecture, blocks: Blocks) -> tuple[dict[str, Any], Judged | None]:
    """One architecture on one board by the model, and the accelerator of the highest frame rate; None where none fits.

    `blocks` are the arrays of this graph and device, which most kinds choose from, priced once for all.
    """
    search = search_of(graph, device, kind, blocks)
    try:
        steady, single = (judged(search, kind, goal) for goal in (Goal.THROUGHPUT, Goal.LATENCY))
    except DovetailError as reason:
        return {"fps_200mhz": None, "batch1_ms": None, "reason": str(reason)}, None
    needs, block = steady.found.needs, steady.found.block
    work = multiplications_of(graph, graph.nodes)
    return {
        "fps_200mhz": CLOCK_HZ / steady.clocks, "bound_fps": CLOCK_HZ / steady.bound,
        "batch1_ms": single.clocks / CLOCK_HZ * 1e3, "batch1_bound_ms": single.bound / CLOCK_HZ * 1e3,
        "steady_batch1_ms": steady.found.latency / CLOCK_HZ * 1e3, "model_cycles": steady.clocks, "cycles_per_frame": None,
        "dsp": needs.get("dsp"), "lut": needs.get("lut"), "bram36": needs.get("bram36"), "register": needs.get("register"),
        "utilisation": work / (steady.clocks * max(1.0, needs.get("dsp", 0.0))),
        "offchip_bytes": block.offchip_bytes if block else 0.0, "dedicated": steady.found.cut, "nodes": len(graph.nodes),
        "arrays": str(block.configuration) if block else None}, steady


def heuristic(graph: Graph, device: Device, blocks: Blocks) -> dict[str, Any]:
    """SplitCNN as the paper describes it, beside the exact search."""
    try:
        split = split_cnn(Search(graph, device, cut_points(graph), blocks))
    except DovetailError as reason:
        return {"fps_200mhz": None, "batch1_ms": None, "reason": str(reason)}
    return {"batch1_ms": split.found.latency / CLOCK_HZ * 1e3, "fps_200mhz": CLOCK_HZ / split.found.interval,
            "dedicated": split.found.cut, "steps": [[s.cut, s.latency] for s in split.steps]}


def reproduce(networks: Sequence[str], progress: Progress, boards: Sequence[str] = BOARDS,
              size: int | None = None) -> dict[str, Any]:
    """All kinds of accelerators for some networks on some boards, and the papers' claims."""
    found: dict[str, Any] = {}
    rounds = [(board, network, kind) for board in boards for network in networks for kind in (*KINDS, "splitcnn")]
    for number, (board, network, kind) in enumerate(rounds):
        progress(f"{board} {network} {kind}", number, len(rounds))
        device = fpga_of(board)
        if kind is KINDS[0]:
            graph = region(network, size, device)
            blocks = Blocks(graph, device)
        entry = figures(graph, device, kind, blocks)[0] if isinstance(kind, Architecture) else heuristic(graph, device, blocks)
        found.setdefault(board, {}).setdefault(network, {})[str(kind)] = entry
    progress("accelerators", len(rounds), len(rounds))
    return {"paper": "compact-2024", "part": "fibha", "clock": "200 MHz, assumed", "claims": CLAIMS, "boards": found,
            "why": list(WHY)}


def text(document: Mapping[str, Any]) -> str:
    """Tables for a terminal."""
    rows = []
    for board, networks in document["boards"].items():
        for network, kinds in networks.items():
            best = kinds["fibha"]
            for kind, one in kinds.items():
                if one["batch1_ms"] is None:
                    rows.append((board, network, kind, "-", "-", "-", one["reason"].split(";")[0]))
                    continue
                ratio = "" if best["batch1_ms"] is None else f"{one['batch1_ms'] / best['batch1_ms']:.2f}x"
                rows.append((board, network, kind, f"{one['fps_200mhz']:,.0f}", f"{one['batch1_ms']:.2f} ms", ratio,
                             f"{one['dedicated']} layers dedicated" + (f", {one['arrays']}" if one.get("arrays") else "")))
    header = ("board", "network", "architecture", "frames/s", "one frame", "fibha ahead", "")
    claims = [f"  {what}: {claim}" for what, claim in document["claims"].items()]
    return "\n".join([table(header, rows), "", "The papers:", *claims, "", *document["why"], "",
                      f"By the model, at {document['clock']}; bounds in the JSON."])
