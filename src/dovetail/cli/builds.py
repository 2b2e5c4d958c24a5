"""Commands that make a build folder, and commands on one."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.cli.opened import add_trust, open_build
from dovetail.cli.options import (
    Commands,
    add_json,
    add_model,
    add_numbers,
    add_planning,
    add_saved_plan,
    board_and_planning,
    refuse_unused,
    shapes,
)
from dovetail.cli.output import emit, progress_bar, warn
from dovetail.errors import RangeWarning, UnverifiedError, UsageError
from dovetail.numerics.equalize import Equalise

if TYPE_CHECKING:
    from dovetail.runtime.build import Build


def add_commands(commands: Commands) -> None:
    """`compile`, `verify`, `run`, `selftest`, `power`, `synth`, `export`, `report`."""
    build = commands.add("compile", _compile, "plan, generate RTL and sub-models, verify, and report, into one folder",
                         "dovetail compile model.onnx -p tx2-c10gx --calibration images.npz -o build/model")
    add_model(build)
    add_planning(build)
    add_numbers(build)
    add_saved_plan(build)
    build.add_argument("-o", "--output", type=Path, required=True, help="the build folder to write")
    build.add_argument("--frames", type=int, help="frames to verify: calibration samples, then seeded random ones (default: 64)")
    build.add_argument("--bus-bits", type=int, choices=(32, 64, 128, 256, 512), default=64,
                       help="width of the hardware's AXI4-Stream ports (default: %(default)s)")
    build.add_argument("--memory-bits", type=int, metavar="BITS",
                       help="width of the AXI4 port to memory, where reusable engines have one: 128, 64 or 32 "
                            "(default: that of their beats, 128)")
    build.add_argument("--host-pins", type=int, choices=(1, 2, 4, 8, 16, 32), metavar="PINS",
                       help="write the hardware also behind a port of so many pins each way, as FiC's host has 4 "
                            "(fpga/PART/pins; 1, 2, 4, 8, 16 or 32)")
    build.add_argument("--loaded", action="append", default=[], metavar="LAYER",
                       help="give a folded layer of codes memories that the host fills, so that `run --weights` changes its "
                            "weights without building again; repeatable, 'all' for every layer that can (default: ROM)")
    build.add_argument("--no-verify", action="store_true", help="skip the run against the reference")
    add_json(build)

    verify = commands.add("verify", _verify, "run a build on its devices and compare every boundary tensor with the reference",
                          "dovetail verify build/model --frames 64 --json -")
    verify.add_argument("build", type=Path, help="a build folder")
    add_trust(verify)
    verify.add_argument("--frames", type=int, default=64,
                        help="frames to run: up to 64 stored samples, then seeded random ones (default: %(default)s)")
    add_weights(verify)
    add_json(verify)

    run = commands.add("run", _run, "inference over the plan's devices", "dovetail run build/model -i x.npy -o y.npy")
    run.add_argument("build", type=Path, help="a build folder")
    add_trust(run)
    run.add_argument("-i", "--input", type=Path, required=True,
                     help=".npy or .npz (key 'x' or the input's name) of float frames")
    run.add_argument("-o", "--output", type=Path, required=True, help=".npy for one output, .npz for several")
    add_weights(run)
    add_json(run)

    synth = commands.add("synth", _synth, "count the FPGA part's resources with an open synthesizer",
                         "dovetail synth build/model --family ecp5")
    synth.add_argument("build", type=Path, help="a build folder")
    add_trust(synth)
    synth.add_argument("--family", help="ecp5, xcu, xcup, cyclonev, cyclone10gx (default: the board's)")
    add_json(synth)

    export = commands.add("export", _export, "write the FPGA parts as projects for a vendor's tool, or the open one",
                          "dovetail export build/model --vendor quartus -o projects/model")
    export.add_argument("build", type=Path, help="a build folder")
    add_trust(export)
    export.add_argument("--vendor", required=True, choices=("quartus", "vivado", "oss"),
                        help="quartus (Cyclone), vivado (UltraScale, UltraScale+), oss (ECP5: Yosys, nextpnr, Project Trellis)")
    export.add_argument("--part", help="the device's order code (default: the board's)")
    export.add_argument("-o", "--output", type=Path, required=True, help="the folder to write, a project per hardware part")
    add_json(export)

    trial = commands.add("selftest", _selftest, "drive the FPGA parts behind their AXI ports, in simulation, as a board would be",
                         "dovetail selftest build/model --stall-seed 1")
    trial.add_argument("build", type=Path, help="a build folder")
    add_trust(trial)
    trial.add_argument("--frames", type=int, default=8, help="random frames to compute (default: %(default)s)")
    trial.add_argument("--stall-seed", type=int, metavar="N", help="let both ends of every stream pause at random")
    trial.add_argument("--trace", type=Path, metavar="FILE.fst", help="draw every signal into a waveform file; slow and large")
    add_json(trial)

    power = commands.add("power", _power, "count how often the FPGA parts toggle on the build's own images, and what that costs",
                         "dovetail power build/model --frames 16")
    power.add_argument("build", type=Path, help="a build folder")
    add_trust(power)
    power.add_argument("--frames", type=int, default=16, help="stored samples to simulate (default: %(default)s)")
    add_json(power)

    report = commands.add("report", _report, "render the build's HTML report again from what is known by now",
                          "dovetail report build/model")
    report.add_argument("build", type=Path, help="a build folder")
    add_json(report)
    add_trust(report)


def add_weights(sub: argparse.ArgumentParser) -> None:
    """Another model's weights for a build that loads them."""
    sub.add_argument("--weights", type=Path, metavar="MODEL.onnx",
                     help="load the weights of this model, of the same shapes and bits, in the place of the build's own (layers "
                          "named by `compile --loaded`)")


def _opened(options: argparse.Namespace) -> Build:
    """The build that a command is about, with the weights it was given."""
    from dovetail.runtime.weights import with_weights
    build = open_build(options)
    return build if options.weights is None else with_weights(build, options.weights)


def _compile(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    from dovetail.runtime.build import load_build, read_json
    from dovetail.runtime.verification import DEFAULT_FRAMES
    board, wanted = board_and_planning(options)
    if options.no_verify:
        refuse_unused("compile --no-verify", {"--frames": options.frames}, "nothing is verified; leave it out")
    missing: UnverifiedError | None = None
    try:
        with progress_bar() as progress:
            build = pipeline.compile(options.model, board, options.output, options=wanted,
                                     calibration=options.calibration, bits=options.bits, shapes=shapes(options),
                                     frames=DEFAULT_FRAMES if options.frames is None else options.frames,
                                     verify=not options.no_verify, progress=progress, equalise=Equalise(options.equalise),
                                     bus_bits=options.bus_bits, memory_bits=options.memory_bits, loaded=options.loaded,
                                     host_pins=options.host_pins)
    except UnverifiedError as error:  # the build is there: say what is in it before saying what is missing
        missing, build = error, load_build(options.output)
    warn(build.manifest["warnings"])
    verified = build.folder / "verification.json"
    outcome = read_json(verified) if verified.is_file() else None
    emit(options.json, _compiled_json(build, outcome), lambda: f"{terminal.plan_table(build.graph, build.plan)}\n\n"
         f"{build.folder}: report.html, plan.json, model.onnx, trace.json and the parts of {', '.join(_devices(build))}")
    if missing is not None:
        raise missing
    return 0 if outcome is None else _say_verified(outcome, options.json)


def _devices(build: Build) -> list[str]:
    """Devices that have something to do, in the order of their parts."""
    return list(dict.fromkeys(s.device for s in build.program.segments))


def _compiled_json(build: Build, outcome: dict[str, Any] | None) -> dict[str, Any]:
    """The contract of `dovetail compile --json`; `verification` is null where nothing was verified."""
    from dovetail.partition.plan_json import plan_to_json
    return {"schema": 1, "build": str(build.folder), "devices": _devices(build), "warnings": build.manifest["warnings"],
            "plan": plan_to_json(build.plan, build.platform), "verification": outcome}


def _verify(options: argparse.Namespace) -> int:
    from dovetail import pipeline
    build = _opened(options)
    with progress_bar() as progress:
        outcome = pipeline.verification_json(pipeline.verify_build(build, options.frames, progress, options.weights is None))
    if options.weights is None:
        pipeline.write_report(build)
    if options.json is not None:
        emit(options.json, outcome, str)
    return _say_verified(outcome, options.json)


def _run(options: argparse.Namespace) -> int:
    from io import BytesIO

    import numpy as np

    from dovetail import pipeline
    from dovetail.files import check_file, replace_bytes
    from dovetail.numerics.calibration import clipped_notes, load_samples
    check_file(options.output)
    build = _opened(options)
    single = options.output.suffix != ".npz"
    if options.output.suffix not in (".npy", ".npz", ""):
        raise UsageError(f"{options.output}: results are written as .npy, or .npz for several outputs; end the name so")
    if single and len(build.graph.outputs) > 1:
        raise UsageError(f"{options.output}: the network has outputs {', '.join(build.graph.outputs)}; give an .npz for several")
    frames = load_samples(options.input, build.graph)
    notes = clipped_notes(build.graph, frames.values, str(options.input))
    warn(notes)
    with warnings.catch_warnings(), progress_bar() as progress:
        warnings.simplefilter("ignore", RangeWarning)  # said above, in the name of the file
        results = pipeline.run_build(build, frames.values, progress)
    buffer = BytesIO()
    if single:
        np.save(buffer, next(iter(results.values())))
    else:
        np.savez_compressed(buffer, allow_pickle=False, **results)
    replace_bytes(options.output, buffer.getvalue())
    document = {"schema": 1, "output": str(options.output), "frames": frames.count, "warnings": list(notes),
                "outputs": {name: {"shape": list(x.shape), "type": x.dtype.name} for name, x in results.items()}}
    emit(options.json, document, lambda: "\n".join(f"{options.output}: {name} {'x'.join(map(str, x.shape))}"
                                                   for name, x in results.items()))
    return 0


def _synth(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    build = open_build(options)
    with progress_bar() as progress:
        results = pipeline.synthesize_build(build, options.family, progress)
    pipeline.write_report(build)
    emit(options.json, results, lambda: terminal.synthesis_table(results, build))
    return 0


def _export(options: argparse.Namespace) -> int:
    from dovetail import pipeline
    from dovetail.fpga.export import VENDORS
    folders = pipeline.export_build(open_build(options), options.vendor, options.output, options.part)
    command = VENDORS[options.vendor].command
    document = {"schema": 1, "vendor": options.vendor, "command": command, "projects": [str(folder) for folder in folders]}
    emit(options.json, document, lambda: "\n".join(f"{folder}: build it there with `{command}`" for folder in folders))
    return 0


def _selftest(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    build = open_build(options)
    with progress_bar() as progress:
        trials = pipeline.try_boards(build, options.frames, options.stall_seed, options.trace, progress)
    emit(options.json, trials, lambda: terminal.trial_text(trials))
    return 0 if all(t["equal"] for t in trials) else 1


def _power(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    from dovetail.runtime.power import measure_power, power_json
    build = open_build(options)
    with progress_bar() as progress:
        results = power_json(build, measure_power(build, options.frames, progress))
    pipeline.write_report(build)
    emit(options.json, results, lambda: terminal.power_text(results))
    return 0


def _report(options: argparse.Namespace) -> int:
    from dovetail import pipeline
    path = pipeline.write_report(open_build(options))
    emit(options.json, {"schema": 1, "report": str(path)}, lambda: str(path))
    return 0


def _say_verified(outcome: Mapping[str, Any], json: str | None) -> int:
    """Say how verification went, a good end only where JSON does not; returns the exit code."""
    from dovetail import terminal
    if json is not None:
        warn(terminal.clocks_warnings(outcome))
    if not outcome["equal"] or json is None:
        print(terminal.verification_line(outcome), file=sys.stdout if outcome["equal"] else sys.stderr)
    return 0 if outcome["equal"] else 1
