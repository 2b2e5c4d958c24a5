"""The whole flow, read from top to bottom: model → numbers → plan → schedule → parts → proof → report."""

from __future__ import annotations

import importlib.metadata
import json
import platform as machine
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from shlex import quote
from statistics import median
from typing import Any

import numpy as np

from dovetail import __version__
from dovetail.cost.budget import check_budget
from dovetail.errors import BuildError, ToolError, UnsupportedError, UnverifiedError, UsageError
from dovetail.files import check_folder, replace_bytes, replace_folder, replace_text
from dovetail.fpga import part as fpga_part
from dovetail.fpga.axi.shell import DEFAULT_BUS_BITS, Shell
from dovetail.fpga.boards.bitstream import make_bitstream
from dovetail.fpga.boards.top import chip_top
from dovetail.fpga.design import Design
from dovetail.fpga.export import export_project
from dovetail.fpga.links.stored import load_shells
from dovetail.fpga.toolchain.flow import OpenFlow
from dovetail.fpga.toolchain.place import ASKED_MHZ, FLOWS, place_design
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.ir.onnx.read import Source, read_model
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.tensor import Shape
from dovetail.numbers import Numbers, decide_numbers
from dovetail.numbers import graph_to_plan as graph_to_plan  # for those who only plan
from dovetail.numerics.calibration import Calibration, clipped_notes
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.scales import Scales
from dovetail.partition.plan import Assignment, Plan
from dovetail.partition.plan_json import plan_to_json
from dovetail.planning import Options, decide
from dovetail.platform.device import Device, Kind, Platform
from dovetail.platform.load import load_platform, platform_to_dict
from dovetail.progress import Progress, silent
from dovetail.report.collect import collect, describe_design
from dovetail.report.html import write_report as write_page
from dovetail.report.perfetto import write_trace
from dovetail.runtime import accuracy, board_trial, verification
from dovetail.runtime.build import COUNTED_POWER, SAMPLES, SCHEMA, SYNTHESIS, VERIFICATION, Build, load_build, read_json, store
from dovetail.runtime.generate import Hardware, write_parts
from dovetail.runtime.joined import try_joined
from dovetail.runtime.measured import MEASURED, MEASURED_FILE
from dovetail.runtime.power import POWER
from dovetail.runtime.trust import remember
from dovetail.runtime.verification import Verification
from dovetail.schedule.list_schedule import schedule
from dovetail.schedule.program import Program, lower
from dovetail.words import counted

MANIFEST = "manifest.json"
"""The file that tells a build folder from anything else."""
COMMANDS = {"verification.json": "verify", "synthesis.json": "synth", POWER: "power", MEASURED_FILE: "run --pipeline"}
"""What a build remembers, and the command that finds it out."""
EXPORT_MARKER = "export.json"
"""The file that tells an export folder from anything else."""


def compile(model: Source, platform: str | Platform = "tx2-c10gx", out: str | Path | None = None, *,
            options: Options | None = None, assignment: Assignment | None = None, calibration: Calibration | None = None,
            shapes: Mapping[str, Shape] | None = None, frames: int | None = None, verify: bool = True,
            progress: Progress = silent) -> Build:
    """Everything at once: quantize, plan, generate, verify, report. Returns the loaded build, in `build/MODEL` unless told.

    `assignment` pins nodes to splits of your own. Layers of codes in `options.loaded` have memories for weights, which
    `runtime.weights.with_weights` changes; `options.host_pins` writes every hardware part a second time (`fpga.host_port`).
    `frames` are verified, or as many as simulation is fast enough for: stored samples, then seeded ones; a failed
    verification does not raise, it stands in `verification.json` and in the report.

    Raises:
        UnverifiedError: a tool that verifies is missing or failed; the build folder is written nevertheless.
    """
    imported = read_model(model, shapes)
    target = Path("build") / imported.graph.name if out is None else Path(out)
    check_folder(target, MANIFEST)
    if verify and frames is not None:
        verification.check_frames(frames)
    board = load_platform(platform) if isinstance(platform, str) else platform
    options = options or Options()
    numbers = decide_numbers(imported, calibration, options.bits, None, progress, options.equalise, options.scales)
    plan, timeline, board = decide(numbers.graph, board, options, assignment, progress)
    program = lower(numbers.graph, plan.assignment)
    numbers = replace(numbers, warnings=(*numbers.warnings, *check_budgets(program, board)))
    hardware = Hardware(options.bus_bits or DEFAULT_BUS_BITS, options.memory_bits, options.host_pins, tuple(options.loaded))
    with replace_folder(target, MANIFEST) as folder:
        unlinked = write_parts(folder, program, board, hardware, progress)
        numbers = replace(numbers, warnings=(*numbers.warnings, *unlinked))
        _write_documents(folder, numbers, plan, board, program, hardware)
        remember(folder)
        write_trace(folder / "trace.json", timeline)
        build = load_build(folder)
        missing = None
        try:
            if verify:
                verify_build(build, frames, progress)
        except ToolError as error:
            missing = error
        write_report(build)
    if missing is not None:
        raise UnverifiedError(f"{missing}. The build is complete and kept in {target}, but not verified; then run "
                              f"`dovetail verify {target}`")
    return replace(build, folder=target)


def check_budgets(program: Program, platform: Platform) -> tuple[str, ...]:
    """Notes on FPGAs whose parts may not fit, by the estimate; all parts of a device share it.

    Raises:
        InfeasibleError: the parts of an FPGA cannot fit it; names resource and excess. No tool was started.
    """
    notes: list[str] = []
    for device in platform.of_kind(Kind.FPGA):
        segments = [s for s in program.segments if s.device == device.name]
        if segments:
            notes += check_budget([s.graph for s in segments], device, " and ".join(s.name for s in segments))
    return tuple(notes)


def _write_documents(folder: Path, numbers: Numbers, plan: Plan, platform: Platform, program: Program,
                     hardware: Hardware) -> None:
    """The model with its numbers, the plan, the samples, and a manifest that ties them together."""
    replace_bytes(folder / "model.onnx", to_onnx(numbers.graph))
    replace_text(folder / "plan.json", dump(plan_to_json(plan, platform)))
    buffer = BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **store(numbers.graph, numbers.samples.kept, "calibration"))
    replace_bytes(folder / SAMPLES, buffer.getvalue())
    manifest = {
        "schema": SCHEMA,
        "model": {"name": numbers.graph.name, "file": numbers.imported.file, "sha256": numbers.imported.sha256},
        "platform": platform_to_dict(platform),
        "quantization": {"calibration": numbers.samples.source, "samples": numbers.samples.count},
        "hardware": {**asdict(hardware), "loaded": list(hardware.loaded)},
        "warnings": list(numbers.warnings),
        "versions": versions(),
        "segments": [{"name": s.name, "device": s.device, "nodes": list(s.nodes),
                      "reads": [b.name for b in s.reads], "writes": [b.name for b in s.writes]} for s in program.segments],
    }
    replace_text(folder / MANIFEST, dump(manifest))


def dump(document: object) -> str:
    """JSON as it is stored: readable, stable, shortest floats."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def versions() -> dict[str, str]:
    """What a build was made with; no dates, no machine names."""
    found = {"python": machine.python_version(), "dovetail": __version__}
    for package in ("numpy", "onnx", "onnxruntime", "scipy"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "source tree"
    return found


def verify_build(build: Build, frames: int | None = None, progress: Progress = silent,
                 remember: bool = True, icarus: bool = False) -> Verification:
    """Run a build against the reference and remember the outcome in `verification.json`, unless it has other weights.

    With `icarus` a second simulator, Icarus Verilog, runs the simulated FPGA parts, too.

    Raises:
        UsageError: less than one frame.
        ToolError: a simulator is missing or failed.
    """
    outcome = verification.verify(build, frames, lambda stage, done, total: progress(f"verify {stage}", done, total), icarus)
    if remember:
        replace_text(build.folder / "verification.json", dump({"schema": SCHEMA, **verification_json(outcome)}))
    return outcome


def verification_json(outcome: Verification) -> dict[str, Any]:
    """The contract of `dovetail verify --json`."""
    found = {key: value for key, value in asdict(outcome).items() if key != "wall_s"}
    first = outcome.first_mismatch
    return found if first is None else {**found, "first_mismatch": {**found["first_mismatch"], "text": str(first)}}


def try_boards(build: Build, frames: int = board_trial.FRAMES, stall_seed: int | None = None, trace: Path | None = None,
               progress: Progress = silent) -> list[dict[str, Any]]:
    """Every FPGA part behind its AXI ports, in simulation or on the build's boards, through the driver of boards.

    In simulation, boards that are joined by links are driven together, too.

    `trace` draws all signals into an FST file, one per part where there are several.
    """
    found = []
    segments = [s for s in build.program.segments if build.platform.device(s.device).kind is Kind.FPGA]
    for segment in segments:
        part = fpga_part.load_part(segment.graph, build.folder / "fpga")
        shell = fpga_part.load_part_shell(segment.graph, build.folder / "fpga")
        drawn = trace.with_stem(f"{trace.stem}-{segment.name}") if trace and len(segments) > 1 else trace
        trial = board_trial.try_board(part, shell, frames, stall_seed, drawn, partial(progress, f"{segment.name} behind AXI"),
                                      build.boards.get(segment.device))
        found.append({"device": segment.device, "segment": segment.name, **asdict(trial)})
    if not found:
        raise _idle(build, "no board to try")
    for boards in build.systems().values() if not build.boards else ():
        shells = [s for s in load_shells(boards.system.name, build.folder / "fpga", boards.system) if s is not None]
        if len(shells) == len(boards.system.boards):
            drawn = trace and trace.with_stem(f"{trace.stem}-{boards.system.name}")
            joined = try_joined(boards, shells, build.graph, build.program, frames, stall_seed, drawn, progress)
            found.append({"device": boards.device, "segment": boards.system.name, **asdict(joined)})
    return found


def synthesize_build(build: Build, family: str | None = None, progress: Progress = silent,
                     seeds: int = 0) -> list[dict[str, Any]]:
    """Count what every FPGA part needs, into `synthesis.json`; what cannot fit its board is refused, unless a family is named.

    With `seeds` parts are placed and routed too, with their shells, from so many beginnings: that tells the clock, in the median.
    Open tools do that for ECP5 and GW2A alone.

    Raises:
        InfeasibleError: a part cannot fit its board.
        BuildError: the build has no FPGA part, or its device names no family.
        UsageError: seeds are given for a family without an open router.
        ToolError: a synthesizer is missing or failed.
    """
    found: list[dict[str, Any]] = []
    parts = hardware_of(build, "nothing to synthesize")
    if family is None:
        check_budgets(build.program, build.platform)
    for name, device, design, shell in parts:
        chosen = family or build.platform.device(device).family
        if chosen is None:
            raise BuildError(f"{build.folder}: device {device} names no FPGA family; pass --family")
        if seeds and chosen not in FLOWS:
            raise UsageError(f"--route: {name} for {chosen}; open tools route {' and '.join(FLOWS)} alone, pass --family ecp5")
        clock = _routed(design, shell, FLOWS[chosen], build.platform.device(device), seeds,
                        partial(progress, f"route {name}")) if seeds else {}
        result = synthesize(design, chosen, partial(progress, f"synthesize {name} for {chosen}"))
        found.append({"device": device, "segment": name, "family": chosen,
                      "tool": f"{result.tool} {result.version}", "resources": dict(result.resources),
                      "notes": list(result.notes), **clock})
    replace_text(build.folder / "synthesis.json", dump({"schema": SCHEMA, "results": found}))
    return found


def _routed(core: Design, shell: Shell | None, flow: OpenFlow, board: Device, seeds: int,
            progress: Callable[[int, int], None]) -> dict[str, Any]:
    """The clocks that a design reaches on the board's FPGA, or on the family's largest where the board has another family."""
    size = flow.device_of(board.part) if board.family == flow.family and board.part else flow.largest
    design, pins = core if shell is None else shell.design, None if shell is None else shell.pins
    routes, clocks = list[dict[str, Any]](), list[float]()
    for seed in range(1, seeds + 1):
        progress(seed - 1, seeds)
        found = place_design(design, flow, size, seed, ASKED_MHZ, pins)
        clocks.append(found.fmax_mhz * 1e6)
        routes.append({"seed": seed, "fmax_hz": clocks[-1], "critical_path": found.critical_path})
    progress(seeds, seeds)
    source = (f"routed: {design.top} on {flow.title(size)}, the slowest of {counted(seeds, 'seed')}, "
              f"{min(clocks) / 1e6:.1f} to {max(clocks) / 1e6:.1f} MHz")
    return {"fmax_hz": median(clocks), "routed": design.top, "routes": routes,
            "board_line": f'clock_hz = {{ value = {min(clocks) // 1e5 * 1e5:g}, source = "{source}" }}'}


def make_bitstreams(build: Build, design_hz: float | None = None, baud: float | None = None, seed: int = 1,
                    progress: Progress = silent) -> list[dict[str, Any]]:
    """Every FPGA part as a whole chip for its board, pins included, placed and routed; kept by content in the cache.

    Clock and rate of the serial line are the board's unless told.

    Raises:
        BuildError: the build has no FPGA part.
        UnsupportedError: the board file has no table `top`, or the part needs what a chip has not.
        InfeasibleError: a chip's slowest path is too slow for its clock.
        ToolError: a tool is missing or failed.
    """
    found = list[dict[str, Any]]()
    for name, on, _, shell in hardware_of(build, "nothing to put on a board"):
        device = build.platform.device(on)
        if device.top is None or device.part is None or device.family is None or shell is None:
            raise UnsupportedError(f"bitstream of {name}: device {on} of board {build.platform.name} states no part and table "
                                   "top (docs/reference/board-toml.md); hand the part over with `dovetail export`")
        chip = chip_top(shell, device.top, device.family, design_hz, baud)
        progress(f"bitstream {name}", 0, 1)
        made = make_bitstream(chip, device.family, device.part, seed)
        progress(f"bitstream {name}", 1, 1)
        found.append({"device": on, "segment": name, "file": str(made.file), "programmer": device.top.programmer,
                      "clock_hz": chip.generator.hz, "fmax_hz": made.fmax_hz, "critical_path": made.critical_path,
                      "baud": chip.baud, "room_frames": chip.room, "used": dict(made.used)})
    return found


def export_build(build: Build, vendor: str, folder: Path, part: str | None = None) -> list[Path]:
    """Write every FPGA part as a project for a vendor's tool into `folder/SEGMENT`; returns the project folders."""
    parts = hardware_of(build, "nothing to hand over")
    with replace_folder(folder, EXPORT_MARKER) as temporary:
        for name, on, design, shell in parts:
            device = build.platform.device(on)
            assert device.family is not None, "every FPGA has a family"
            assert device.clock_hz is not None, "every FPGA has a clock"
            files = export_project(design, vendor, device.family, device.clock_hz, part or device.part, shell)
            for file, content in files.items():
                path = temporary / name / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())
        (temporary / EXPORT_MARKER).write_text(dump({"schema": SCHEMA, "vendor": vendor, "model": build.graph.name,
                                                     "projects": [name for name, *_ in parts]}), encoding="utf-8")
    return [folder / name for name, *_ in parts]


def hardware_of(build: Build, otherwise: str = "no hardware") -> list[tuple[str, str, Design, Shell | None]]:
    """What FPGAs are programmed with: name, device, design, and its shell where it has one.

    Boards that are joined by links have one around all of their segments; else it is around a segment's core. BuildError says
    what there is `otherwise`.
    """
    systems = build.systems()
    joined = {s.name for boards in systems.values() for s in boards.segments}
    found: list[tuple[str, str, Design, Shell | None]] = [
        (s.name, s.device, *fpga_part.load_handover(s.graph, build.folder / "fpga")) for s in build.program.segments
        if build.platform.device(s.device).kind is Kind.FPGA and s.name not in joined]
    for boards in systems.values():
        shells = load_shells(boards.system.name, build.folder / "fpga", boards.system)
        found += [(board.top, device, board, shell)
                  for device, board, shell in zip(boards.system.devices, boards.system.boards, shells, strict=True)]
    if not found:
        raise _idle(build, otherwise)
    return found


def _idle(build: Build, otherwise: str) -> BuildError:
    return BuildError(f"{build.folder}: the plan gives the FPGA nothing to do, so there is {otherwise}; see the plan's reasons "
                      "with `dovetail report`")


def _remembered(folder: Path, name: str, shape: Mapping[str, Any]) -> dict[str, Any] | None:
    again = f"remove it, or run `dovetail {COMMANDS[name]}` again"
    return read_json(folder / name, again, shape) if (folder / name).exists() else None


def remember_run(build: Build, measured: Mapping[str, Any]) -> None:
    """Keep a measured run in the build folder, where it can be written, and show it in the report."""
    with suppress(UsageError):  # a build that cannot be written runs as well
        replace_text(build.folder / MEASURED_FILE, dump(measured))
        write_report(build)


def write_report(build: Build) -> Path:
    """Render `report.html` from what the build folder knows by now.

    Raises:
        BuildError: what the folder remembers is not readable.
    """
    verification = _remembered(build.folder, "verification.json", VERIFICATION)
    synthesis, power, measured = (_remembered(build.folder, name, shape) for name, shape in (
        ("synthesis.json", SYNTHESIS), (POWER, COUNTED_POWER), (MEASURED_FILE, MEASURED)))
    timeline = schedule(build.graph, build.platform, build.plan.assignment)
    parts = {s.name: build.part(s) for s in build.program.segments}
    marks = (verification or {}).get("high_water", {})
    designs = [describe_design(part.design, device=s.device, segment=s.name,
                               clock_hz=build.platform.device(s.device).clock_hz, high_water=marks.get(s.name, {}))
               for s in build.program.segments if isinstance(part := parts[s.name], fpga_part.FpgaPart)]
    extras: dict[str, object] = {
        "quantization": {"calibration": f"{build.manifest['quantization']['calibration']}, "
                                        f"{counted(build.manifest['quantization']['samples'], 'sample')}"},
        "segments": [{"name": s.name, "device": s.device, "backend": parts[s.name].backend, "nodes": s.nodes,
                      "note": parts[s.name].note} for s in build.program.segments],
        "designs": designs,
        "circuits": [{"system": name, "circuits": list(b.system.circuits), "slots": list(b.system.slots)}
                     for name, b in build.systems().items()],
        "synthesis": None if synthesis is None else synthesis["results"],
        "power": None if power is None else power["results"],
        "verification": None if verification is None else _shown(verification),
        "measured": measured,
        "provenance": {"model_file": build.manifest["model"]["file"], "model_sha256": build.manifest["model"]["sha256"],
                       "versions": build.manifest["versions"], "warnings": build.manifest["warnings"],
                       "commands": [f"dovetail compile {quote(build.manifest['model']['file'])} -p {quote(build.platform.name)} "
                                    "-o build/", "dovetail verify build/", "dovetail synth build/"]},
    }
    path = build.folder / "report.html"
    write_page(path, collect(build.graph, build.plan, build.platform, timeline, extras))
    return path


def _shown(verification: Mapping[str, Any]) -> dict[str, Any]:
    first = verification["first_mismatch"]
    return {"equal": verification["equal"], "frames": verification["frames"],
            "tensors_compared": verification["tensors_compared"], "first_mismatch": first["text"] if first else None,
            "clocks": verification.get("clocks", {})}


def evaluate_model(model: Source, data: accuracy.LabelledData, calibration: Calibration | None = None, bits: int | None = None,
                   build: Build | None = None, shapes: Mapping[str, Shape] | None = None,
                   progress: Progress = silent, equalise: Equalise = Equalise.AUTO,
                   scales: Scales = Scales.POW2) -> dict[str, Any]:
    """Accuracy on labelled data, agreement with the float network and output noise: integers, ONNX Runtime's int8, a build.

    One calibration for all: that of the build where there is one, whose numbers the options do not change. None
    where there is nothing to compare: no float network in a model that came quantized, no classes among the outputs.
    """
    if build is None:
        numbers = decide_numbers(model, calibration, bits, shapes, progress, equalise, scales)
        imported, graph, calibrated = numbers.imported, numbers.graph, accuracy.Calibrated.by(numbers.samples)
    else:
        imported, graph = read_model(model, shapes), build.graph
        calibrated = accuracy.calibration_of(build, imported, calibration)
    inputs, labels = accuracy.load_data(data, graph)
    outputs, missing = accuracy.outputs(imported.graph, graph, calibrated.samples, inputs, progress)
    if build is not None:
        outputs["build"] = accuracy.build_outputs(build, inputs, progress)
    warnings = numbers.warnings if build is None else build.manifest["warnings"]
    return {"images": len(next(iter(inputs.values()))), "calibration": calibrated.source, "calibration_samples": calibrated.count,
            **accuracy.judged(graph, outputs, labels), "peer_note": missing,
            "warnings": [*warnings, *clipped_notes(graph, inputs, accuracy.named(data))]}
