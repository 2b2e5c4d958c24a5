"""What jobs on designs compute: a plan, accuracy, a simulated build, a synthesized one; plain data in and out."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import MismatchError
from dovetail.explore.job import Arguments, Work
from dovetail.fpga.toolchain.synthesize import SYNTHESIS_MEMORY_BYTES
from dovetail.fpga.toolchain.tools import GIBIBYTE
from dovetail.numbers import graph_to_plan
from dovetail.partition.plan import Goal
from dovetail.pipeline import compile as compile_build
from dovetail.pipeline import evaluate_model, synthesize_build
from dovetail.planning import Options, decide
from dovetail.platform.accelerator import Architecture
from dovetail.platform.load import platform_from_dict
from dovetail.runtime.build import Build, read_json

Files = Mapping[str, Path]
ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    "all": {}, "direct": {"fold": "none"}, "folded": {"fold": "auto"},
    **{a.value: {"architecture": a.value} for a in Architecture}}
"""What FPGAs may become, as options of a plan; `all` weighs everything."""
MEMORY_BYTES: Mapping[str, int] = {"planning": GIBIBYTE, "accuracy": 2 * GIBIBYTE, "simulation": 3 * GIBIBYTE,
                                   "synthesis": SYNTHESIS_MEMORY_BYTES}
"""What a job of each kind may need. Synthesis: its limit; the others: chosen above what networks of the zoo were seen to take."""


def options_of(arguments: Arguments) -> Options:
    """What a plan is asked for."""
    return Options(goal=Goal(arguments["objective"]), bits=arguments["bits"], total_s=arguments["time_s"],
                   time_limit_s=min(Options().time_limit_s, arguments["time_s"]), **ARCHITECTURES[arguments["architecture"]])


def planning(arguments: Arguments, files: Files) -> dict[str, Any]:
    """Who computes what: figures of the plan, its bound, and the fullest resource of its FPGAs."""
    options = options_of(arguments)
    graph, _ = graph_to_plan(files["model"], files.get("calibration"), options.bits)
    plan, _, _ = decide(graph, platform_from_dict(arguments["board"]), options)
    area = max((used / limit for found in plan.resources.values() for used, limit in found.values() if limit), default=0.0)
    return {"latency_s": plan.latency_s, "interval_s": plan.interval_s, "energy_j": plan.energy_j, "objective": plan.objective,
            "gap": plan.gap, "proven": plan.proven, "area": area,
            "devices": " ".join(sorted({d for split in plan.assignment.values() for d in split.devices}))}


def accuracy(arguments: Arguments, files: Files) -> dict[str, Any]:
    """Fractions right on labelled images, of the float network and of integers."""
    found = evaluate_model(files["model"], files["data"], files.get("calibration"), arguments["bits"])
    return {"accuracy": found["int8"], "float_accuracy": found["float"], "agreement": (found["agreement"] or {}).get("int8"),
            "images": found["images"]}


def simulation(arguments: Arguments, files: Files) -> dict[str, Any]:
    """A build, its hardware run clock by clock and compared with the reference on every bit.

    Raises:
        MismatchError: the build computes something else.
    """
    with tempfile.TemporaryDirectory(prefix="dovetail-simulation-") as folder:
        build = _built(arguments, files, folder, frames=arguments["frames"])
        found = read_json(build.folder / "verification.json", "simulate again")
    if not found["equal"]:
        raise MismatchError(f"{build.graph.name} on {build.platform.name}: {found['first_mismatch']['text']}")
    return {"frames": found["frames"], "tensors_compared": found["tensors_compared"], "clocks": {
        name: int(run["first_frame"]) for name, run in found["cycles"].items() if "first_frame" in run}}


def synthesis(arguments: Arguments, files: Files) -> dict[str, Any]:
    """A build whose FPGA parts are counted by Yosys: resources, added up over the parts of a device."""
    with tempfile.TemporaryDirectory(prefix="dovetail-synthesis-") as folder:
        build = _built(arguments, files, folder)
        counted, own = dict[str, float](), build.platform
        for part in synthesize_build(build):
            limits = own.device(part["device"]).resources
            for name, amount in part["resources"].items():
                counted[name] = counted.get(name, 0.0) + amount
            tool = part["tool"]
    fullest = max((counted[n] / limits[n] for n in counted if limits.get(n)), default=0.0)
    return {"resources": counted, "synthesized_area": fullest, "tool": tool}


def _built(arguments: Arguments, files: Files, folder: str, frames: int | None = None) -> Build:
    return compile_build(files["model"], platform_from_dict(arguments["board"]), Path(folder) / "build",
                         options=options_of(arguments), calibration=files.get("calibration"), frames=frames,
                         verify=frames is not None)


KINDS: Mapping[str, Work] = {"planning": planning, "accuracy": accuracy, "simulation": simulation, "synthesis": synthesis}
"""Kinds of jobs by the name that a space has for them."""
