"""Every network of the zoo and every light model of the onnx wheel: import and planning time, gap, single devices beside.

`python bench/zoo.py --json FILE [--board NAME ...] [--network NAME ...]`; times are seconds, gaps fractions. What thrift gave
up for area is stated beside the gap.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import onnx

from dovetail import zoo
from dovetail.files import replace_text
from dovetail.pipeline import Options, graph_to_plan, make_plan
from dovetail.platform.load import load_platform

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
"""Models with constant weights that the onnx package tests its backends with."""


def measure(name: str, board: str, path: Path) -> dict[str, Any]:
    start = time.perf_counter()
    graph, _ = graph_to_plan(path)
    imported = time.perf_counter()
    plan, _ = make_plan(graph, load_platform(board), Options())
    return {"nodes": len(graph.nodes), "import_s": imported - start, "plan_s": time.perf_counter() - imported,
            "objective_s": plan.objective, "lower_bound_s": plan.lower_bound, "gap": plan.gap,
            "given_up": plan.given_up, "status": plan.status.value,
            "makespan_s": plan.makespan_s, "baselines_s": dict(plan.baselines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--board", action="append")
    parser.add_argument("--network", action="append")
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    light = {path.stem: path for path in sorted(LIGHT.glob("light_*.onnx"))}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.network or (*zoo.names(), *light):
            path = light.get(name, Path(folder) / "m.onnx")
            if name not in light:
                path.write_bytes(zoo.build(name))
            found[name] = {}
            for board in options.board or ("tx2-c10gx", "ecp5-85"):
                result = found[name][board] = measure(name, board, path)
                singles = [v for kind in ("cpu", "gpu", "fpga") if (v := result["baselines_s"][kind]) is not None]
                print(f"{name:20} {board:10} {result['nodes']:4} nodes  import {result['import_s']:5.1f} s  "
                      f"plan {result['plan_s']:5.1f} s  gap {result['gap']:.4f}  "
                      f"given up {result['given_up']:.4f}  {result['objective_s'] * 1e3:9.3f} ms  "
                      f"{min(singles) / result['objective_s']:.2f}x the best single device", flush=True)
    if options.json:
        replace_text(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
