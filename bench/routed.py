"""Clocks of whole designs on an ECP5-85: placed and routed by nextpnr, from several beginnings each.

`python bench/routed.py --json FILE [--only NAME ...] [--seeds 4] [--minutes 25]` routes

- `layer`: 3 to 8 filters of 3x3 at 224x224, mapped directly, the engine alone;
- `soft`: 16 to 8 filters of 1x1 with two products in logic at a time, the engine alone;
- `depthwise`: a folded depthwise layer of 16 channels, the engine alone;
- `demo`: the network of `make demo` with its AXI shell, mapped directly;
- `folded`: the same network, whose layers share multipliers, with its shell;
- `hybrid`: MobileNetV2 0.25 at 32x32, dedicated engines and arrays, with its shell;
- `kws`: MLPerf Tiny's keyword spotter, folded, with its shell.

For each it writes the clock of every seed with its critical path in words, the median, what the design occupies, and the target
where one is set. A seed that FILE has for the same Verilog and tools is not routed again, so another run goes on where the last
one ended. The record is `bench/records/routed.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import dovetail as dt
from dovetail import zoo
from dovetail.files import replace_text
from dovetail.fpga.assemble import build_design
from dovetail.fpga.design import Design
from dovetail.fpga.toolchain.ecp5 import ECP5
from dovetail.fpga.toolchain.place import ASKED_MHZ, Pin, core_pins, netlist_of, place_design
from dovetail.fpga.toolchain.synthesize import find_synthesizer
from dovetail.fpga.toolchain.tools import content_key
from dovetail.hardware.folds import Fold
from dovetail.ir import Conv, Window
from dovetail.partition.plan import Goal
from dovetail.pipeline import hardware_of
from dovetail.platform.accelerator import Architecture
from lib.parts import held
from lib.peers.layers import SAME, integer_network

FASHION = Path(__file__).parents[1] / "examples" / "fashion"
TINY = Path(__file__).parent / "mlperf_tiny"
DEVICE = "85k"
WHOLE_MHZ, ENGINE_MHZ = 150.0, 180.0
"""Clocks aimed at in the median: of a whole design with its shell, and of an engine alone."""


@dataclass(frozen=True, slots=True)
class Routable:
    """Verilog with the pins of its top, and the clock aimed at."""

    design: Design
    pins: Sequence[Pin]
    target_mhz: float

    @property
    def digest(self) -> str:
        """Of the Verilog, of how it is mapped, and of the tools that do it."""
        return content_key([ECP5.find_nextpnr().version, netlist_of(self.design, self.pins).key])[:16]


def engine(conv: Conv, shape: tuple[int, int, int], fold: Fold | None = None) -> Routable:
    """One layer of Gaussian weights without a shell."""
    graph = integer_network((conv,), shape)
    folds = {} if fold is None else {node.name: fold for node in graph.nodes if node.op.layer}
    design = build_design(graph, "layer", folds=folds)
    return Routable(design, core_pins(design), ENGINE_MHZ)


def whole(model: str | Path | bytes, board: str, options: dt.Options, calibration: Path | None = None) -> Routable:
    """A network's part on the FPGA as `dovetail compile` makes it, with its AXI shell."""
    with TemporaryDirectory() as folder:
        path = model
        if isinstance(model, bytes):
            path = Path(folder) / "model.onnx"
            path.write_bytes(model)
        build = dt.compile(path, board, Path(folder) / "build", options=options, calibration=calibration, verify=False)
        ((_, _, core, shell),) = hardware_of(build)
        return Routable(core, core_pins(core), WHOLE_MHZ) if shell is None else Routable(shell.design, shell.pins, WHOLE_MHZ)


SESL, FIBHA = (dt.Options(goal=Goal.THROUGHPUT, architecture=kind) for kind in (Architecture.SESL, Architecture.FIBHA))
DESIGNS: dict[str, Callable[[], Routable]] = {
    "layer": lambda: engine(Conv(8, Window((3, 3), pads=SAME)), (3, 224, 224)),
    "soft": lambda: engine(Conv(8, Window((1, 1))), (16, 28, 28), Fold(1, 2, 1, 0)),
    "depthwise": lambda: engine(Conv(16, Window((3, 3), pads=SAME), groups=16), (16, 28, 28), Fold(2, 1, 1)),
    "demo": lambda: whole(FASHION / "fashion.onnx", "tx2-c10gx", dt.Options(thrift=0.05, fold="none"),
                          FASHION / "calibration.npz"),
    "folded": lambda: whole(FASHION / "fashion.onnx", "ecp5-85", SESL, FASHION / "calibration.npz"),
    "hybrid": lambda: whole(zoo.build("mobilenet-v2", size=32, width=0.25), "ecp5-85", FIBHA),
    "kws": lambda: whole(TINY / "kws.onnx", "ecp5-85", SESL),
}


def routed(found: Routable, seed: int) -> dict[str, Any]:
    """One seed: its clock, its critical path, and what is occupied."""
    began = time.monotonic()
    placed = place_design(found.design, ECP5, DEVICE, seed, ASKED_MHZ, found.pins)
    return {"fmax_mhz": placed.fmax_mhz, "critical_path": placed.critical_path, "used": dict(placed.used),
            "seconds": round(time.monotonic() - began)}


def told(found: Routable, seeds: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What is known of a design from its seeds."""
    middle = median(one["fmax_mhz"] for one in seeds.values())
    return {"design": found.digest, "top": found.design.top, "fmax_mhz": middle, "target_mhz": found.target_mhz,
            "status": "ok" if middle >= found.target_mhz else "missed", "seeds": dict(seeds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", action="append", choices=DESIGNS, help="repeatable (default: all)")
    parser.add_argument("--seeds", type=int, default=4, help="beginnings of every design")
    parser.add_argument("--minutes", type=float, default=25.0, help="no route is begun after that; run again to go on")
    options = parser.parse_args()
    began, record = time.monotonic(), held(options.json, True)
    rows = record.get("designs", {})
    for name in options.only or DESIGNS:
        found = DESIGNS[name]()
        seeds = dict(rows.get(name, {}).get("seeds", {})) if rows.get(name, {}).get("design") == found.digest else {}
        for seed in (str(n) for n in range(1, options.seeds + 1)):
            if seed in seeds:
                continue
            if time.monotonic() - began > 60 * options.minutes:
                print("time is over; run the same command again to go on", flush=True)
                return
            seeds[seed] = routed(found, int(seed))
            print(f"{name} seed {seed}: {seeds[seed]['fmax_mhz']:.1f} MHz, {seeds[seed]['critical_path']}", flush=True)
            rows[name] = told(found, seeds)
            replace_text(options.json, json.dumps({
                "command": "python bench/routed.py --json FILE", "date": date.today().isoformat(), "device": "LFE5U-85F",
                "asked_mhz": ASKED_MHZ, "tools": [find_synthesizer("ecp5").version, ECP5.find_nextpnr().version],
                "designs": rows}, indent=1) + "\n")
        if name in rows:
            print(f"{name}: {rows[name]['fmax_mhz']:.1f} MHz in the median of {len(rows[name]['seeds'])}, "
                  f"target {rows[name]['target_mhz']:g}, {rows[name]['status']}", flush=True)


if __name__ == "__main__":
    main()
