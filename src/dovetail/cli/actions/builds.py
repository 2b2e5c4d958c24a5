"""What `dovetail compile` does, and commands on a build folder."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from dovetail import pipeline, terminal
from dovetail.cli.actions.requested import board_and_planning, open_build
from dovetail.cli.options import above_zero, refuse_unused, shapes
from dovetail.cli.output import emit, progress_bar, warn
from dovetail.errors import RangeWarning, UnverifiedError, UsageError
from dovetail.files import check_file, replace_bytes
from dovetail.fpga.boards.bitstream import load_bitstream
from dovetail.fpga.export import VENDORS
from dovetail.fpga.toolchain.simulate import RUN_TIMEOUT_S
from dovetail.numerics.calibration import clipped_notes, load_samples
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.scales import Scales
from dovetail.partition.plan_json import plan_to_json
from dovetail.report.perfetto import write_trace
from dovetail.report.verdict import measured_sentence
from dovetail.runtime.build import Build, load_build, read_json, run
from dovetail.runtime.measured import run_stream, summary, trace_timeline
from dovetail.runtime.pieces import PIECES, export_pieces
from dovetail.runtime.power import measure_power, power_json
from dovetail.runtime.record import RunRecord
from dovetail.runtime.transports.attach import with_boards
from dovetail.runtime.weights import with_weights
from dovetail.runtime.workers import OnFailure, StreamOptions
from dovetail.words import counted


def evaluate_command(options: argparse.Namespace) -> int:
    """Run `dovetail evaluate`."""
    build = None if options.build is None else open_build(options)
    with progress_bar() as progress:
        found = pipeline.evaluate_model(options.model, options.data, options.calibration, options.bits, build,
                                        shapes(options), progress, Equalise(options.equalise), Scales(options.scales))
    warn(found["warnings"])
    emit(options.json, found, lambda: terminal.accuracy_table(found))
    return 1 if found["build_equals_int8"] is False else 0


def _opened(options: argparse.Namespace) -> Build:
    """The build that a command is about, with the weights it was given."""
    build = open_build(options)
    return build if options.weights is None else with_weights(build, options.weights)


def _on_boards(build: Build, options: argparse.Namespace) -> Build:
    """The build with the real boards that a command was given."""
    return with_boards(build, options.board) if options.board else build


def compile_command(options: argparse.Namespace) -> int:
    """Run `dovetail compile`."""
    board, wanted = board_and_planning(options)
    wanted = replace(wanted, bits=options.bits, equalise=Equalise(options.equalise),
                     scales=Scales(options.scales), bus_bits=options.bus_bits,
                     memory_bits=options.memory_bits, host_pins=options.host_pins, loaded=tuple(options.loaded))
    if options.no_verify:
        refuse_unused("compile --no-verify", {"--frames": options.frames}, "nothing is verified; leave it out")
    missing: UnverifiedError | None = None
    try:
        with progress_bar() as progress:
            build = pipeline.compile(options.model, board, options.output, options=wanted, calibration=options.calibration,
                                     shapes=shapes(options), frames=options.frames, verify=not options.no_verify,
                                     progress=progress)
    except UnverifiedError as error:  # the build is there: say what is in it before saying what is missing
        missing, build = error, load_build(options.output)
    warn(build.manifest["warnings"])
    verified = build.folder / "verification.json"
    outcome = read_json(verified) if verified.is_file() else None
    emit(options.json, _compiled_json(build, outcome), lambda: f"{terminal.plan_table(build.plan)}\n\n"
         f"{build.folder}: report.html, plan.json, model.onnx, trace.json and the parts of {', '.join(_devices(build))}")
    if missing is not None:
        raise missing
    return 0 if outcome is None else _say_verified(outcome, options.json)


def _devices(build: Build) -> list[str]:
    """Devices that have something to do, in the order of their parts."""
    return list(dict.fromkeys(s.device for s in build.program.segments))


def _compiled_json(build: Build, outcome: dict[str, Any] | None) -> dict[str, Any]:
    """The contract of `dovetail compile --json`; `verification` is null where nothing was verified."""
    return {"schema": 1, "build": str(build.folder), "devices": _devices(build), "warnings": build.manifest["warnings"],
            "plan": plan_to_json(build.plan, build.platform), "verification": outcome}


def verify_command(options: argparse.Namespace) -> int:
    """Run `dovetail verify`."""
    build = _opened(options)
    with progress_bar() as progress:
        outcome = pipeline.verification_json(pipeline.verify_build(build, options.frames, progress, options.weights is None,
                                                                   options.icarus))
    if options.weights is None:
        pipeline.write_report(build)
    if options.json is not None:
        emit(options.json, outcome, str)
    return _say_verified(outcome, options.json)


def run_command(options: argparse.Namespace) -> int:
    """Run `dovetail run`."""
    check_file(options.output)
    if options.trace is not None:
        check_file(options.trace)
    build = _on_boards(_opened(options), options)
    single = options.output.suffix != ".npz"
    if options.output.suffix not in (".npy", ".npz", ""):
        raise UsageError(f"{options.output}: results are written as .npy, or .npz for several outputs; end the name so")
    if single and len(build.graph.outputs) > 1:
        raise UsageError(f"{options.output}: the network has outputs {', '.join(build.graph.outputs)}; give an .npz for several")
    frames = load_samples(options.input, build.graph)
    notes = clipped_notes(build.graph, frames.values, str(options.input))
    warn(notes)
    settings, record = _stream_options(options, build), RunRecord()
    in_flight = 1 if settings is None else settings.in_flight
    with warnings.catch_warnings(), progress_bar() as progress:
        warnings.simplefilter("ignore", RangeWarning)  # said above, in the name of the file
        results = run(build, frames.values, progress, record) if settings is None \
            else run_stream(build, frames.values, settings, record, not options.pipeline, progress)
    warn([str(failure) for failure in record.failures])
    measured = summary(build, record, in_flight)
    if options.trace is not None:
        write_trace(options.trace, trace_timeline(build, record, in_flight))
    if options.weights is None and (options.pipeline or options.trace is not None):
        pipeline.remember_run(build, measured)
    buffer = BytesIO()
    if single:
        np.save(buffer, next(iter(results.values())))
    else:
        np.savez_compressed(buffer, allow_pickle=False, **results)
    replace_bytes(options.output, buffer.getvalue())
    document = {"schema": 1, "output": str(options.output), "frames": frames.count, "warnings": list(notes), "measured": measured,
                "outputs": {name: {"shape": list(x.shape), "type": x.dtype.name} for name, x in results.items()}}
    told = [measured_sentence(measured)] if options.pipeline or options.trace is not None else []
    emit(options.json, document, lambda: "\n".join([*(f"{options.output}: {name} {'x'.join(map(str, x.shape))}"
                                                      for name, x in results.items()), *told]))
    return 0


def _stream_options(options: argparse.Namespace, build: Build) -> StreamOptions | None:
    """How `dovetail run` streams; None where it runs one stage after another."""
    if not options.pipeline:
        refuse_unused("run", {"--in-flight": options.in_flight}, "give --pipeline with it")
        if options.on_failure == OnFailure.STOP.value:
            refuse_unused("run", {"--timeout": options.timeout}, "give --pipeline or --on-failure fallback with it")
            return None
    usual = build.in_flight if options.pipeline else 1
    return StreamOptions(usual if options.in_flight is None else options.in_flight, OnFailure(options.on_failure),
                         RUN_TIMEOUT_S if options.timeout is None else options.timeout)


def synth_command(options: argparse.Namespace) -> int:
    """Run `dovetail synth`."""
    build = open_build(options)
    if not options.route:
        refuse_unused("synth", {"--seeds": options.seeds}, "give --route with it")
    if options.seeds is not None and options.seeds < 1:
        raise UsageError(f"--seeds {options.seeds}: not a number of beginnings; 1 or more are possible")
    with progress_bar() as progress:
        results = pipeline.synthesize_build(build, options.family, progress, (options.seeds or 1) if options.route else 0)
    pipeline.write_report(build)
    emit(options.json, results, lambda: terminal.synthesis_table(results, build))
    return 0


def export_command(options: argparse.Namespace) -> int:
    """Run `dovetail export`."""
    if options.vendor == "onnx":
        refuse_unused("export --vendor onnx", {"--part": options.part}, "leave it out, no device is built for")
        files = export_pieces(open_build(options), options.output)
        emit(options.json, {"schema": 1, "vendor": "onnx", "files": [str(f) for f in files]},
             lambda: f"{options.output}: {counted(len(files), 'part')} for ONNX Runtime, joined as {PIECES} says")
        return 0
    folders = pipeline.export_build(open_build(options), options.vendor, options.output, options.part)
    command = VENDORS[options.vendor].command
    document = {"schema": 1, "vendor": options.vendor, "command": command, "projects": [str(folder) for folder in folders]}
    emit(options.json, document, lambda: "\n".join(f"{folder}: build it there with `{command}`" for folder in folders))
    return 0


def _chips(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The chips that a command asks for."""
    for name, value in (("--mhz", options.mhz), ("--baud", options.baud)):
        if value is not None:
            above_zero(name, value)
    if options.seed < 1:
        raise UsageError(f"--seed {options.seed}: not the number of a beginning; 1 or more are possible")
    build = open_build(options)
    with progress_bar() as progress:
        return pipeline.make_bitstreams(build, options.mhz and options.mhz * 1e6, options.baud, options.seed, progress)


def bitstream_command(options: argparse.Namespace) -> int:
    """Run `dovetail bitstream`."""
    chips = _chips(options)
    folder = options.output or options.build / "bitstream"
    folder.mkdir(parents=True, exist_ok=True)
    for chip in chips:
        content = Path(chip["file"]).read_bytes()
        chip["file"] = str(folder / f"{chip['segment']}{Path(chip['file']).suffix}")
        replace_bytes(Path(chip["file"]), content)
    emit(options.json, {"schema": 1, "chips": chips}, lambda: "\n".join(map(chip_line, chips)))
    return 0


def flash_command(options: argparse.Namespace) -> int:
    """Run `dovetail flash`."""
    chips = _chips(options)
    if len(chips) != 1 or chips[0]["programmer"] is None:
        raise UsageError(f"flash: {counted(len(chips), 'chip')}, and the board's name for openFPGALoader is "
                         f"{chips[0]['programmer'] or 'not in its file'}; put files of `dovetail bitstream` there yourself")
    load_bitstream(Path(chips[0]["file"]), chips[0]["programmer"], options.keep)
    emit(options.json, {"schema": 1, "chips": chips}, lambda: f"on the board: {chip_line(chips[0])}")
    return 0


def chip_line(chip: Mapping[str, Any]) -> str:
    """A chip in a sentence: its file, its clock, and how it is reached."""
    return (f"{chip['file']}: {chip['clock_hz'] / 1e6:g} MHz, routed at {chip['fmax_hz'] / 1e6:.1f}, room for "
            f"{counted(chip['room_frames'], 'frame')}; reach it by --board serial:/dev/ttyUSB0,baud={chip['baud']:.0f}")


def selftest_command(options: argparse.Namespace) -> int:
    """Run `dovetail selftest`."""
    build = _on_boards(open_build(options), options)
    with progress_bar() as progress:
        trials = pipeline.try_boards(build, options.frames, options.stall_seed, options.trace, progress)
    emit(options.json, trials, lambda: terminal.trial_text(trials))
    return 0 if all(t["equal"] for t in trials) else 1


def power_command(options: argparse.Namespace) -> int:
    """Run `dovetail power`."""
    build = open_build(options)
    with progress_bar() as progress:
        results = power_json(build, measure_power(build, options.frames, progress))
    pipeline.write_report(build)
    emit(options.json, results, lambda: terminal.power_text(results))
    return 0


def report_command(options: argparse.Namespace) -> int:
    """Run `dovetail report`."""
    path = pipeline.write_report(open_build(options))
    emit(options.json, {"schema": 1, "report": str(path)}, lambda: str(path))
    return 0


def _say_verified(outcome: Mapping[str, Any], json: str | None) -> int:
    """Say how verification went, a good end only where JSON does not; returns the exit code."""
    if json is not None:
        warn(terminal.clocks_warnings(outcome))
    if not outcome["equal"] or json is None:
        print(terminal.verification_line(outcome), file=sys.stdout if outcome["equal"] else sys.stderr)
    return 0 if outcome["equal"] else 1
