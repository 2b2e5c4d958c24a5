"""Hybrid accelerators of Compact DNNs 2024: the record that comes along, ours beside the papers' claims, as tables.

Inverted residual blocks as one engine (FIRB) stand beside plain pipelining. They are of `bench/engines.py --part firb`: blocks of
MobileNetV2 for a ZCU102 at one pace, each of them built several ways.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from dovetail.cost.power import power_w
from dovetail.errors import UsageError
from dovetail.platform.device import Device, Kind
from dovetail.platform.load import load_platform
from dovetail.terminal import table

CLAIMS = {
    "over SEML": "1.7x of SEML's throughput (thesis abstract: up to 4x)",
    "over SESL": "4.1x of SESL's throughput (thesis abstract: up to 2.5x)",
    "utilisation": "dynamic utilisation of multipliers up to 2x",
    "energy": "energy efficiency up to +28 %",
    "buffers": "buffers for maps up to 75 % smaller than SEML's or a monolithic accelerator's",
    "FIRB": "inverted residual blocks fused: memory -54 %, energy -35 % against plain pipelining"}
"""As the papers print them."""
WHY = (
    "The paper's SESL baseline buffers tiles of every layer twice and is slow; ours buffers lines and packs two products into a "
    "DSP48E2, so on a ZCU102 it holds all of MobileNetV2 and is nearly as fast as the hybrid. Where a SESL does not fit at all "
    "(its reason says of what there is too little) there is no ratio, and the hybrid is forced.",
    "Our reusable engines run depthwise layers behind the convolutions that feed them and prefetch weights, which lifts SEML; "
    "utilisation counts products per multiplier and clock over all multipliers: those in DSP blocks (two in one that makes two "
    "products), those made of look-up tables (a layer mapped directly has one for every weight) and those that rescale sums. "
    "It is at most one. SEML's arrays are those of the most frames/s, some of them with many multipliers in logic that mostly "
    "wait, so ratios above the papers' say as much of them as of the hybrid.",
    "Buffers of maps are compared with what SEML would hold with all its maps on the chip, as the papers do. As built, ours "
    "keeps part of its maps outside on small boards, so its memories are smaller and maps pass off-chip memory. RAM blocks of "
    "everything hardly fall: dedicated engines keep weights on the chip that reusable ones stream.",
    "Energies hold what boards draw without work, so a frame that takes less time takes less energy: the gain over SEML follows "
    "the frame rate, and that over SESL is small or negative where everything fits.",
)

ASSUMED_HZ = 200e6
"""The clock that records are stated at: assumed, as by MCCM, the analytic model of FiBHA's authors."""
SETTINGS = ("command", "clock", "firb", "described")
"""Keys of a record that are no boards."""


def recorded(record: Path | None = None) -> dict[str, Any]:
    """The document of a record of bench/fibha.py, else of the one that comes along.

    Raises:
        UsageError: the file is none.
    """
    where = record or "the record that comes along"
    try:
        source = record or resources.files("dovetail.reproduce") / "records" / "fibha.json"
        known = json.loads(source.read_text(encoding="utf-8"))
        boards = {b: {n: {k: one for k, one in kinds.items() if k != "gpus"} for n, kinds in networks.items()}
                  for b, networks in known.items() if b not in SETTINGS}
        gpus = {n: kinds["gpus"] for b in boards for n, kinds in known[b].items() if "gpus" in kinds}
        for kinds in (kinds for networks in boards.values() for kinds in networks.values()):
            _check_utilisation(kinds)
        found = document(boards, gpus, known.get("firb", {}), known.get("described", {}))
        text(found)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise UsageError(f"{where}: not a record of accelerators; make one with bench/fibha.py --json FILE") from None
    return found


def _check_utilisation(kinds: Mapping[str, Any]) -> None:
    """ValueError where a record's multipliers are not all counted: then they would make more than one product in a clock."""
    for one in kinds.values():
        if "utilisation" in one and not (one["multipliers"] > 0 and 0 < one["utilisation"] <= 1):
            raise ValueError


def document(boards: Mapping[str, Any], gpus: Mapping[str, Any], firb: Mapping[str, Any],
             described: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known of accelerators, by board, network and kind, and of inverted residuals, with the papers' claims."""
    found = ours(boards)
    if firb:
        found["FIRB"] = block_ratios(firb)
    return {"paper": "compact-2024", "part": "fibha", "clock": "200 MHz, assumed", "claims": CLAIMS, "boards": boards,
            "ours": found, "gpus": gpus, "firb": firb, "described": described, "why": list(WHY)}


RATIOS: Mapping[str, tuple[tuple[str, str, str, bool], ...]] = {
    "over SEML": (("frames/s", "fps_200mhz", "seml", True), ("one frame", "batch1_ms", "seml", False)),
    "over SESL": (("frames/s", "fps_200mhz", "sesl", True), ("one frame", "batch1_ms", "sesl", False)),
    "utilisation": (("multiplications per multiplier and clock", "utilisation", "seml", True),),
    "energy": (("frames per joule of the board, against SEML", "frame_mj", "seml", False),
               ("against SESL", "frame_mj", "sesl", False)),
    "buffers": (("bytes of memories of maps, against SEML with all maps on the chip", "map_buffer_bytes_on_chip", "seml", True),
                ("against monolithic with all maps on the chip", "map_buffer_bytes_on_chip", "monolithic", True),
                ("as built, against SEML", "map_buffer_bytes", "seml", True),
                ("RAM blocks of everything, against SEML", "bram36", "seml", True),
                ("against monolithic", "bram36", "monolithic", True))}
"""Of every claim: what is compared, its key, with which kind, and whether ours is put over theirs."""


def ours(boards: Mapping[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """What we find beside every claim: by what is compared, hybrid against another kind, board and network by name."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for claim, ratios in RATIOS.items():
        for what, key, kind, over in ratios:
            for board, networks in boards.items():
                for network, kinds in networks.items():
                    best, other = (kinds.get(k, {}).get(key) for k in ("fibha", kind))
                    if best and other:
                        value = best / other if over else other / best
                        found.setdefault(claim, {}).setdefault(what, {})[f"{board} {network}"] = value
    return found


HEADER = ("board", "network", "architecture", "frames/s", "bound", "one frame", "bound", "fibha ahead", "DSP", "LUT", "BRAM36",
          "mult.", "used", "off-chip", "a frame takes", "")


def text(document: Mapping[str, Any]) -> str:
    """Tables for a terminal."""
    rows = []
    for board, networks in document["boards"].items():
        for network, kinds in networks.items():
            for kind, one in kinds.items():
                rows.append((board, network, kind, *_figures(one, kinds.get("fibha", {}).get("batch1_ms"))))
    gpus = [(network, gpu, f"{one['batch1_ms']:.2f} ms", f"{one['batch1_mj']:.2f} mJ",
             *_against(document["boards"], network, one))
            for network, both in document["gpus"].items() for gpu, one in both.items()]
    claims = [line for what, claim in document["claims"].items()
              for line in (f"  {what}: {claim}", *_beside(document["ours"].get(what, {})))]
    return "\n".join([
        table(HEADER, rows, range(3, 15)), "",
        "GPUs by the models of their boards, batch 1, idle power included, and how many frames of the hybrid one of theirs is:",
        table(("network", "GPU", "one frame", "takes", *document["boards"]), gpus), "",
        *([*map_lines(document["boards"]), ""] if any(_maps(document["boards"])) else []),
        *([*block_lines(document["firb"]), ""] if document["firb"] else []),
        *([*described_lines(document["described"]), ""] if document["described"] else []),
        "The papers, and ours (hybrid against the other kind):", *claims, "", *document["why"], "",
        *([EARLIER, ""] if any(_earlier(one) for networks in document["boards"].values() for kinds in networks.values()
                               for one in kinds.values()) else []),
        f"By the model, at {document['clock']}, unless simulated or counted; 'mult.' is all multipliers, in DSP blocks and "
        "in logic; 'used' is products per multiplier and clock."])


def _maps(boards: Mapping[str, Any]) -> list[tuple[str, str, str, Mapping[str, Any]]]:
    return [(board, network, kind, one) for board, networks in boards.items() for network, kinds in networks.items()
            for kind, one in kinds.items() if "map_buffer_bytes" in one]


def map_lines(boards: Mapping[str, Any]) -> list[str]:
    """Memories of maps and what passes off-chip memory, apart from weights."""
    keys = ("map_buffer_bytes", "map_buffer_bytes_on_chip", "offchip_map_bytes", "offchip_weight_bytes")
    rows = [(board, network, kind, *(f"{one[key] / 1e3:,.0f}" for key in keys)) for board, network, kind, one in _maps(boards)]
    head = ("board", "network", "architecture", "maps on chip, kB", "if all were", "maps off-chip, kB", "weights off-chip, kB")
    return ["Feature maps, apart from weights: memories, and traffic per frame:", table(head, rows, range(3, 7))]


def described_lines(described: Mapping[str, Any]) -> list[str]:
    """The thesis's own kinds, and MEML, with frames per second at 200 MHz."""
    rows = []
    for board, networks in described.items():
        for network, one in networks.items():
            several = one["meml"]
            rows.append((board, network, *(_rate(one[f"{kind}_clocks"]) for kind in ("fibha", "seml", "sesl")),
                         *("-" if one[key] is None else f"{one[key]:.2f}x" for key in ("over_seml", "over_sesl")),
                         str(one["dedicated"]), _rate(several.get("clocks")), f"{several['engines']} x {several['arrays']}"
                         if "engines" in several else "none fits"))
    head = ("board", "network", "hybrid fps", "SEML fps", "SESL fps", "over SEML", "over SESL", "dedicated",
            "MEML fps", "engines")
    return ["As the thesis describes them, by models alone, and MEML (several engines on bands of rows of a layer), modelled "
            "only (bench/fibha.py; the papers: 1.7x over SEML, 4.1x over SESL):", table(head, rows, range(2, 9))]


def _rate(clocks: float | None) -> str:
    return "-" if clocks is None else f"{ASSUMED_HZ / clocks:,.0f}"


EARLIER = ("* One frame, and its bound, by the model before frames were scheduled beat by beat: too short where many windows "
           "follow each other, so their ratios are too high; `python bench/fibha.py --json FILE --resume` searches them anew.")
"""What is to be said of records whose accelerators of single frames are not known."""


def _earlier(one: Mapping[str, Any]) -> bool:
    """Whether one frame of dedicated engines is by the earlier model; arrays alone were played then, too."""
    return bool(one.get("accelerator") and one["dedicated"] and "batch1_accelerator" not in one)


def _figures(one: Mapping[str, Any], best_ms: float | None) -> tuple[str, ...]:
    """A row of the table."""
    if one["batch1_ms"] is None:
        return (*("-",) * 12, one["reason"].split("; ")[1] if "; " in one["reason"] else one["reason"])

    def told(key: str, form: str) -> str:
        return form.format(one[key]) if one.get(key) is not None else ""

    return (f"{one['fps_200mhz']:,.0f}", told("bound_fps", "{:,.0f}"), f"{one['batch1_ms']:.2f} ms{'*' * _earlier(one)}",
            told("batch1_bound_ms", "{:.2f}"), "" if best_ms is None else f"{one['batch1_ms'] / best_ms:.2f}x",
            told("dsp", "{:,.0f}"), told("lut", "{:,.0f}"), told("bram36", "{:,.1f}"), told("multipliers", "{:,.0f}"),
            told("utilisation", "{:.2f}"),
            f"{one['offchip_bytes'] / 1e6:.2f} MB" if "offchip_bytes" in one else "", told("frame_mj", "{:.2f} mJ"), _notes(one))


def _notes(one: Mapping[str, Any]) -> str:
    """What is dedicated, and what was built of it."""
    notes = [f"{one['dedicated']} of {one['nodes']} nodes dedicated" if "nodes" in one else f"{one['dedicated']} nodes dedicated"]
    if one.get("arrays"):
        notes.append(one["arrays"])
    if "bit_exact" in one:
        exact = "bit-exact" if one["bit_exact"] else "wrong"
        notes.append(f"simulated {one['cycles_per_frame']:,} clocks, {one['simulated_fps_200mhz']:,.0f} frames/s, {exact}")
    if "synthesized" in one:
        found = one["synthesized"]
        shell = f", shell {found['shell']['lut']:,} LUT more" if "shell" in found else ""
        notes.append(f"counted {found['dsp']:,} DSP, {found['lut']:,} LUT, {found['bram36']:,} BRAM36{shell}")
    if "note" in one:
        notes.append(one["note"])
    return ", ".join(notes)


def _against(boards: Mapping[str, Any], network: str, gpu: Mapping[str, Any]) -> list[str]:
    """By board, time and energy of the GPU in those of the hybrid for one frame."""
    found = []
    for networks in boards.values():
        own = networks.get(network, {}).get("fibha", {})
        known = own.get("batch1_ms") is not None
        found.append(f"{gpu['batch1_ms'] / own['batch1_ms']:.2f}x time, {gpu['batch1_mj'] / own['batch1_mj']:.1f}x energy"
                     if known else "")
    return found


def _beside(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [f"    ours, {what}: " + ", ".join(f"{where} {value:.2f}x" for where, value in values.items())
            for what, values in found.items()]


WAYS = {"engine": "one engine", "folded": "one engine, projection in passes", "thrifty": "one engine of least energy"}
"""Ways to build a block as one engine, by their keys in the record."""
BLOCK_HEADER = ("block", "buffer bits", "three engines", "papers' rows", "one engine against both", "energy", "least energy",
                "least against rows", "its LUT", "RAM", "clocks", "DSP")
RAM_BITS = 36 * 1024
"""Of a RAM block (UG573 of AMD)."""


@cache
def _device_of_blocks() -> Device:
    """The FPGA for which inverted residuals are recorded."""
    (device,) = load_platform("zcu102").of_kind(Kind.FPGA)
    return device


def block_energy_j(one: Mapping[str, Any]) -> float:
    """Energy above idle of a frame through a block."""
    device = _device_of_blocks()
    assert device.clock_hz is not None, "every FPGA has a clock"
    return power_w(one["estimated"], device) * float(one["interval_cycles"]) / device.clock_hz


def row_energy_j(block: Mapping[str, Any]) -> float:
    """The same of three engines with the papers' buffers, rows in front of every layer, in RAM blocks in place of ours."""
    plain = block["plain"]
    more = max(0.0, block["row_buffer_bits"] - plain["buffer_bits"]) / RAM_BITS
    return block_energy_j({**plain, "estimated": {**plain["estimated"], "bram36": plain["estimated"]["bram36"] + more}})


def block_ratios(firb: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """One engine over plain pipelining, by what is compared and block."""
    found: dict[str, dict[str, float]] = {}
    for name, block in firb.items():
        one, plain, least = block["engine"], block["plain"], block.get("thrifty", block["engine"])
        ratios = {"buffer bits, against three engines": one["buffer_bits"] / plain["buffer_bits"],
                  "clocks of one frame, against three engines": one["latency_cycles"] / plain["latency_cycles"],
                  "buffer bits, against rows in front of every layer": one["buffer_bits"] / block["row_buffer_bits"],
                  "energy above idle, against three engines": block_energy_j(one) / block_energy_j(plain),
                  "least energy, against three engines": block_energy_j(least) / block_energy_j(plain),
                  "least energy, against rows in front of every layer": block_energy_j(least) / row_energy_j(block)}
        for what, value in ratios.items():
            found.setdefault(what, {})[name] = value
    return found


def block_lines(firb: Mapping[str, Any]) -> list[str]:
    """The blocks of a record for a terminal, then why energy rises in late ones."""
    rows = []
    for name, block in firb.items():
        one, plain, least = block["engine"], block["plain"], block.get("thrifty", block["engine"])
        energy, bits = block_energy_j(plain), one["buffer_bits"]
        parts = (least["estimated"][r] / plain["estimated"][r] for r in ("lut", "bram36"))
        rows.append((name.removesuffix(".depthwise.conv"), f"{bits:,}", f"{plain['buffer_bits']:,}",
                     f"{block['row_buffer_bits']:,}",
                     f"{_less(bits / plain['buffer_bits'])}, {_less(bits / block['row_buffer_bits'])}",
                     _less(block_energy_j(one) / energy), _less(block_energy_j(least) / energy),
                     _less(block_energy_j(least) / row_energy_j(block)), *(f"{part:.2f}x" for part in parts),
                     f"{least['interval_cycles'] / plain['interval_cycles']:.2f}x", f"{least['estimated']['dsp']:,.0f}"))
    return ["Inverted residuals of MobileNetV2 for a ZCU102, each by itself, one engine against three (area by the model; energy "
            "of logic and RAM blocks above idle):", table(BLOCK_HEADER, rows, range(1, 12)),
            *(_block_energy(name, block) for name, block in firb.items()), *ENERGY_WHY]


def _less(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.0f} %"


ENERGY_WHY = (
    "The papers print -54 % memory and -35 % energy, both 'up to'. One engine keeps the sums of all projected channels at "
    "the same time, and its depthwise part is as wide as the expander's words, though it then waits; three engines have few "
    "sums and a narrow depthwise part.",
    "Early blocks have large maps and few channels: buffers and clocks saved outweigh that. In late blocks RAM blocks hold "
    "weights, which one engine needs as much, so logic decides and energy rises; our three engines already keep rows, not "
    "tiles twice. DSP blocks have no coefficient in this energy, so engines with more of them look thriftier than they are.")


def _block_energy(name: str, block: Mapping[str, Any]) -> str:
    """What one engine does to a block's energy, with the cause: energy is of logic and RAM blocks at work."""
    plain = block["plain"]
    told = [f"{said} {_less(block_energy_j(block[way]) / block_energy_j(plain))} ({_parts(block[way], plain)})"
            for way, said in WAYS.items() if way in block]
    return f"Energy of {name} against three engines with their own folds (the papers: -35 %): {'; '.join(told)}."


def _parts(one: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    """By what an engine's energy differs: logic, RAM blocks and clocks, each times the other's."""
    area, other = one["estimated"], plain["estimated"]
    return (f"{area['lut'] / other['lut']:.2f} times the LUT and {area['bram36'] / other['bram36']:.2f} times the RAM blocks "
            f"for {one['interval_cycles'] / plain['interval_cycles']:.2f} times the clocks")
