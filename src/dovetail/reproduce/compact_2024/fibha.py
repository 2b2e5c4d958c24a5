"""Compact DNNs 2024, papers I and II: hybrid accelerators on an FPGA against dedicated and reusable engines alone.

Everything is by our model of engines that we build, at an assumed clock of 200 MHz; all four kinds come from one search with
one set of engines, each with a bound on every other of its kind. `bench/fibha.py` adds simulation and synthesis, and its record
of all networks and boards comes along (tables.py).

Energies are of whole boards, as in plans: what is drawn without work, what logic and RAM blocks in use toggle away, and
moving weights; DSP blocks have no coefficient. GPUs beside them by the models of their boards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dovetail.cost.accelerator import multipliers_of, soft_products_of
from dovetail.cost.clocks import accelerator_clocks
from dovetail.cost.power import power_w
from dovetail.errors import DovetailError
from dovetail.ir import Graph
from dovetail.numbers import decide_numbers
from dovetail.numerics.equalize import Equalise
from dovetail.partition.accelerator.architecture import judged, pinned, region_of, search_of
from dovetail.partition.accelerator.blocks import Blocks, cut_points
from dovetail.partition.accelerator.dedicated import multiplications_of
from dovetail.partition.accelerator.search import AcceleratorSearch, FoundAccelerator
from dovetail.partition.accelerator.splitcnn import split_cnn
from dovetail.partition.plan import Goal, whole_on
from dovetail.planning import Options, make_plan
from dovetail.platform.accelerator import AcceleratorDesign, Architecture, to_entries
from dovetail.platform.device import Device, Kind, Platform
from dovetail.platform.load import load_platform
from dovetail.progress import Progress
from dovetail.reproduce.compact_2024.tables import document, recorded
from dovetail.space import cut_out
from dovetail.zoo import build

BOARDS = ("zc706", "kcu105", "zcu102")
NETWORKS = ("mobilenet-v1", "mobilenet-v2", "proxylessnas-mobile", "mnasnet", "xception", "resnet50")
GPUS = ("tx2", "h200")
KINDS = (Architecture.FIBHA, Architecture.SESL, Architecture.SEML, Architecture.MONOLITHIC)
CLOCK_HZ = 200e6
"""Assumed for every board, as by MCCM, the analytic model of FiBHA's authors; no open tool routes these parts."""


def region(network: str, size: int | None, device: Device) -> Graph:
    """The part of a zoo network that the FPGA takes over."""
    graph = _integers(network, size)
    return cut_out(graph, pinned(graph, region_of(graph, device), device.name), "cpu", device.name)


@lru_cache(maxsize=len(NETWORKS))
def _integers(network: str, size: int | None) -> Graph:
    """A zoo network in integers, the same for all boards."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(build(network, size=size))
        return decide_numbers(path, equalise=Equalise.OFF).graph


def board_of(name: str) -> Platform:
    """A board with its FPGA at the assumed clock, its memory delivering the same bytes per second."""
    board = load_platform(name)
    return replace(board, devices=tuple(replace(d, clock_hz=CLOCK_HZ) if d.kind is Kind.FPGA else d for d in board.devices))


def fpga_of(board: Platform) -> Device:
    """A board's one FPGA."""
    (device,) = board.of_kind(Kind.FPGA)
    return device


def figures(graph: Graph, board: Platform, kind: Architecture, blocks: Blocks) -> dict[str, Any]:
    """One architecture on one board by the model, with the accelerator of the highest frame rate; the reason where none fits.

    `blocks` are the arrays of this graph and device, which most kinds choose from, priced once for all.
    """
    search = search_of(graph, fpga_of(board), kind, blocks)
    try:
        steady = judged(search, kind, Goal.THROUGHPUT)
        single = single_frame(search, board, kind)
    except DovetailError as reason:
        return {"fps_200mhz": None, "batch1_ms": None, "reason": str(reason)}
    needs, block = steady.found.needs, steady.found.block
    return {
        "fps_200mhz": CLOCK_HZ / steady.clocks, "bound_fps": CLOCK_HZ / steady.bound, **single,
        "steady_batch1_ms": steady_ms(graph, steady.accelerator), "model_cycles": steady.clocks, "cycles_per_frame": None,
        "dsp": needs.get("dsp"), "lut": needs.get("lut"), "bram36": needs.get("bram36"), "register": needs.get("register"),
        **utilisation_of(graph, steady.accelerator, steady.clocks),
        "frame_mj": energy_j(steady.found, steady.clocks, board) * 1e3,
        "offchip_bytes": block.offchip_bytes if block else 0.0, "dedicated": steady.found.cut, "nodes": len(graph.nodes),
        "arrays": str(block.configuration) if block else None, "accelerator": to_entries(steady.accelerator)}


def single_frame(search: AcceleratorSearch, board: Platform, kind: Architecture) -> dict[str, Any]:
    """One frame by itself on the accelerator that is best at that."""
    single = judged(search, kind, Goal.LATENCY)
    return {"batch1_ms": single.clocks / CLOCK_HZ * 1e3, "batch1_bound_ms": single.bound / CLOCK_HZ * 1e3,
            "batch1_mj": energy_j(single.found, single.clocks, board) * 1e3,
            "batch1_accelerator": to_entries(single.accelerator)}


def steady_ms(graph: Graph, accelerator: AcceleratorDesign) -> float:
    """One frame by itself on the accelerator of the highest frame rate."""
    return accelerator_clocks(graph, accelerator).one_frame / CLOCK_HZ * 1e3


def utilisation_of(graph: Graph, accelerator: AcceleratorDesign, clocks: float) -> dict[str, float]:
    """Multipliers of an accelerator, in blocks and in logic, and multiplications per multiplier and clock: at most 1."""
    multipliers = multipliers_of(graph, accelerator)
    return {"multipliers": multipliers, "soft_products": soft_products_of(graph, accelerator),
            "utilisation": multiplications_of(graph, graph.nodes) / (clocks * multipliers)}


def energy_j(found: FoundAccelerator, clocks: float, board: Platform) -> float:
    """Energy of the whole board in so many clocks, a frame's weights moved once."""
    device = fpga_of(board)
    watts = power_w(found.needs, device) + sum(d.idle_power_w for d in board.devices)
    per_byte = max(link.energy_j_per_byte for link in board.links if device.name in link.ends)
    return watts * clocks / CLOCK_HZ + per_byte * (found.block.offchip_bytes if found.block else 0.0)


def on_gpu(graph: Graph, board: str) -> dict[str, Any]:
    """A frame on a board's GPU alone, by the board's models: seconds and energy of the whole board."""
    plan, _ = make_plan(graph, load_platform(board), Options(time_limit_s=1.0), {n.name: whole_on("gpu") for n in graph.nodes})
    return {"batch1_ms": plan.latency_s * 1e3, "batch1_mj": plan.energy_j * 1e3,
            "source": f"shipped models of {board}'s GPU (docs/method/models.md), batch 1, idle power of the board included"}


def heuristic(graph: Graph, device: Device, blocks: Blocks) -> dict[str, Any]:
    """SplitCNN as the paper describes it, beside the exact search."""
    try:
        split = split_cnn(AcceleratorSearch(graph, device, cut_points(graph), blocks))
    except DovetailError as reason:
        return {"fps_200mhz": None, "batch1_ms": None, "reason": str(reason)}
    return {"batch1_ms": split.found.latency / CLOCK_HZ * 1e3, "fps_200mhz": CLOCK_HZ / split.found.interval,
            "dedicated": split.found.cut, "steps": [[s.cut, s.latency] for s in split.steps]}


def reproduce(networks: Sequence[str], progress: Progress, boards: Sequence[str] = BOARDS) -> dict[str, Any]:
    """All kinds of accelerators for some networks on some boards, and the papers' claims."""
    found: dict[str, Any] = {}
    gpus: dict[str, Any] = {}
    rounds = [(board, network, kind) for board in boards for network in networks for kind in (*KINDS, "splitcnn")]
    for number, (board, network, kind) in enumerate(rounds):
        progress(f"{board} {network} {kind}", number, len(rounds))
        platform = board_of(board)
        device = fpga_of(platform)
        if kind is KINDS[0]:
            graph = region(network, None, device)
            blocks = Blocks(graph, device)
            gpus.setdefault(network, {gpu: on_gpu(graph, gpu) for gpu in GPUS})
        entry = figures(graph, platform, kind, blocks) if isinstance(kind, Architecture) else heuristic(graph, device, blocks)
        found.setdefault(board, {}).setdefault(network, {})[str(kind)] = entry
    progress("accelerators", len(rounds), len(rounds))
    known = recorded()
    return document(found, gpus, known["firb"], known["described"])
