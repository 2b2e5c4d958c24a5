"""The command line: arguments in, exit code out. Every command is one call of the pipeline."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dovetail import console
from dovetail.errors import DovetailError, InfeasibleError, UsageError
from dovetail.partition.plan import Goal, Mode
from dovetail.partition.solve import SOLVERS

EXAMPLES = """examples:
  dovetail inspect model.onnx                      what is in it, and what each kind of device can take
  dovetail plan model.onnx -p tx2-c10gx            who computes what, how long, why, and how good that is
  dovetail compile model.onnx -p tx2-c10gx --calibration images.npz -o build/model
  dovetail verify build/model                      every device against the reference, bit for bit
  dovetail synth build/model                       resources of the FPGA part
"""

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns 0 done, 1 ran but the answer is no, 2 bad input or missing tool, 130 interrupted."""
    console.prepare()
    options = parser().parse_args(arguments)
    try:
        command: Command = options.command
        code = command(options)
        console.flush()
        return code
    except DovetailError as error:
        print(f"dovetail: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("dovetail: interrupted; nothing half-written was left behind", file=sys.stderr)
        return 130
    except OSError as error:
        return console.abandon(error)
    except MemoryError:
        print("dovetail: out of memory; use a smaller model or fewer frames", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """All commands with their arguments and examples."""
    top = argparse.ArgumentParser(
        prog="dovetail", description="Join CPU, GPU and FPGA into one bit-exact accelerator for convolutional networks.",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str, example: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".",
                                  epilog=f"example:\n  {example}", formatter_class=argparse.RawDescriptionHelpFormatter)
        sub.set_defaults(command=command)
        return sub

    inspect = add("inspect", _inspect, "layers, MACs, parameters, and what each kind of device can take",
                  "dovetail inspect examples/fashion/fashion.onnx")
    _model(inspect)
    _json(inspect)

    platforms = add("platforms", _platforms, "boards and devices with their budgets, every number with its source",
                    "dovetail platforms tx2-c10gx")
    platforms.add_argument("name", nargs="?", help="a board's name or TOML file; without it, all boards in one line each")
    _json(platforms)

    plan = add("plan", _plan, "decide which device computes which slice of which layer, with a proven bound",
               "dovetail plan model.onnx -p tx2-c10gx --objective energy --max-latency-ms 5 --json -")
    _model(plan)
    _planning(plan)
    _numbers(plan)
    plan.add_argument("-o", "--output", type=Path, help="write the plan as JSON to this file")
    _json(plan)

    quantize = add("quantize", _quantize, "turn a float model into a power-of-two QDQ model that plain ONNX Runtime loads",
                   "dovetail quantize model.onnx --bits 8 --calibration images.npz -o int8.onnx")
    _model(quantize)
    _numbers(quantize)
    quantize.add_argument("-o", "--output", type=Path, required=True, help="the QDQ model to write")

    build = add("compile", _compile, "plan, generate RTL and sub-models, verify, and report, into one folder",
                "dovetail compile model.onnx -p tx2-c10gx --calibration images.npz -o build/model")
    _model(build)
    _planning(build)
    _numbers(build)
    build.add_argument("-o", "--output", type=Path, required=True, help="the build folder to write")
    build.add_argument("--frames", type=int, default=64, help="frames to verify: calibration samples, then seeded random ones")
    build.add_argument("--no-verify", action="store_true", help="skip the run against the reference")

    verify = add("verify", _verify, "run a build on its devices and compare every boundary tensor with the reference",
                 "dovetail verify build/model --frames 64 --json -")
    verify.add_argument("build", type=Path, help="a build folder")
    verify.add_argument("--frames", type=int, default=64,
                        help="frames to run: up to 64 stored samples, then seeded random ones (default: %(default)s)")
    _json(verify)

    run = add("run", _run, "inference over the plan's devices", "dovetail run build/model -i x.npy -o y.npy")
    run.add_argument("build", type=Path, help="a build folder")
    run.add_argument("-i", "--input", type=Path, required=True,
                     help=".npy or .npz (key 'x' or the input's name) of float frames")
    run.add_argument("-o", "--output", type=Path, required=True, help=".npy for one output, .npz for several")

    synth = add("synth", _synth, "count the FPGA part's resources with an open synthesizer",
                "dovetail synth build/model --family ecp5")
    synth.add_argument("build", type=Path, help="a build folder")
    synth.add_argument("--family", help="ecp5, xcu, xcup, cyclonev, cyclone10gx (default: the board's)")
    _json(synth)

    zoo = add("zoo", _zoo, "the papers' networks as ONNX with seeded weights; without a name, the table",
              "dovetail zoo mobilenet-v2 --size 96 -o m.onnx")
    zoo.add_argument("name", nargs="?", help="a network; without it, all with parameters, MACs and their sources")
    zoo.add_argument("-o", "--output", type=Path, help="the ONNX file to write")
    zoo.add_argument("--size", type=int, help="side of the image in pixels (default: the network's own)")
    zoo.add_argument("--width", type=float, help="multiplies channel counts (default: the network's own)")
    zoo.add_argument("--no-bn", action="store_true", help="biases in place of BatchNorm")
    zoo.add_argument("--seed", type=int, default=0, help="of the weights (default: %(default)s)")
    _json(zoo)

    evaluate = add("evaluate", _evaluate, "accuracy on labelled data: float model, its integers, and a build's devices",
                   "dovetail evaluate model.onnx --data test.npz --calibration train.npz --build build/model")
    _model(evaluate)
    _numbers(evaluate)
    evaluate.add_argument("--data", type=Path, required=True, metavar="X.npz", help="images under 'x', integer labels under 'y'")
    evaluate.add_argument("--build", type=Path, help="a build folder of the same model, run on its devices as well")
    _json(evaluate)

    report = add("report", _report, "render the build's HTML report again from what is known by now",
                 "dovetail report build/model")
    report.add_argument("build", type=Path, help="a build folder")
    return top


def _model(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("model", type=Path, help="an ONNX file, float or QDQ")
    sub.add_argument("--shape", action="append", default=[], metavar="INPUT=1,3,224,224",
                     help="the shape of an input with symbolic dimensions; repeatable")


def _planning(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("-p", "--platform", default="tx2-c10gx", help="a board's name or TOML file (default: %(default)s)")
    sub.add_argument("--objective", choices=[g.value for g in Goal], default=Goal.LATENCY.value, help="what to minimise")
    sub.add_argument("--mode", choices=[m.value for m in Mode], default=Mode.CONCURRENT.value,
                     help="whether shares of one layer run at once")
    sub.add_argument("--solver", choices=list(SOLVERS), default="exact", help="how to search (default: %(default)s)")
    sub.add_argument("--budget", choices=["shared", "per_layer"], default="shared",
                     help="one FPGA for the whole network, or (as papers assume) one per layer")
    sub.add_argument("--max-latency-ms", type=float, help="refuse plans slower than this")
    sub.add_argument("--max-energy-mj", type=float, help="refuse plans that use more energy per frame than this")
    sub.add_argument("--thrift", type=float, default=0.05, metavar="F",
                     help="give up at most this fraction of the objective to save FPGA area (default: %(default)s)")
    sub.add_argument("--time-limit", type=float, default=10.0, metavar="S", help="seconds to search (default: %(default)s)")


def _numbers(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--calibration", type=Path, metavar="X.npz", help="samples under key 'x', one per row (default: synthetic)")
    sub.add_argument("--bits", type=int, default=8, help="2 to 8 (default: %(default)s)")


def _json(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--json", metavar="FILE", help="write the result as JSON; '-' prints it")


def _shapes(options: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for text in options.shape:
        name, _, sizes = text.rpartition("=")
        parts = sizes.split(",")
        if not name or not all(p.strip().isdigit() and int(p) > 0 for p in parts):
            raise UsageError(f"--shape {text}: not INPUT=SIZES; write for example --shape image=1,3,224,224")
        shapes[name] = tuple(int(p) for p in parts)
    return shapes


def _emit(target: str | None, document: object, text: Callable[[], str]) -> None:
    """JSON where asked for, else words."""
    from dovetail.files import replace_text
    if target is None:
        print(text())
        return
    content = json.dumps(document, indent=1, allow_nan=False) + "\n"
    if target == "-":
        print(content, end="")
    else:
        replace_text(target, content)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on standard error, for people only."""
    if not sys.stderr.isatty():
        last = [""]

        def line(stage: str, done: int, total: int) -> None:
            if stage != last[0]:
                print(f"  {stage}", file=sys.stderr, flush=True)
                last[0] = stage

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(),
                  console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("start", total=None)
        yield lambda stage, done, total: bar.update(task, description=stage, completed=done, total=total)


def _options(options: argparse.Namespace) -> Any:
    from dovetail.pipeline import Options
    for name, limit in (("--max-latency-ms", options.max_latency_ms), ("--max-energy-mj", options.max_energy_mj),
                        ("--time-limit", options.time_limit)):
        if limit is not None and not limit > 0:
            raise UsageError(f"{name} {limit:g}: must be above 0")
    return Options(Goal(options.objective), Mode(options.mode), options.solver, options.budget,
                   None if options.max_latency_ms is None else options.max_latency_ms / 1e3,
                   None if options.max_energy_mj is None else options.max_energy_mj / 1e3, options.time_limit, options.thrift)


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"dovetail: note: {warning}", file=sys.stderr)


def _inspect(options: argparse.Namespace) -> int:
    from dovetail import terminal
    from dovetail.ir.onnx_read import read_onnx
    imported = read_onnx(options.model, _shapes(options))
    _warn(imported.notes)
    document = terminal.inspection(imported.graph)
    _emit(options.json, document, lambda: terminal.inspection_table(document))
    return 0


def _platforms(options: argparse.Namespace) -> int:
    from dovetail.platform.describe import describe
    from dovetail.platform.load import example_of, load_platform, platform_names, platform_to_dict
    if options.name:
        board = load_platform(options.name)
        _emit(options.json, platform_to_dict(board), lambda: describe(board))
        return 0
    boards = {name: load_platform(example_of(name)) for name in platform_names()}
    _emit(options.json, [platform_to_dict(b) for b in boards.values()],
          lambda: "\n".join(f"{name:<14} {', '.join(d.name for d in b.devices):<18} {b.description}"
                            for name, b in boards.items()))
    return 0


def _plan(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    from dovetail.files import replace_text
    from dovetail.partition.plan_json import plan_to_json
    from dovetail.platform.load import load_platform
    board = load_platform(options.platform)
    with _progress() as progress:
        graph, notes = pipeline.graph_to_plan(options.model, options.calibration, options.bits, _shapes(options), progress)
        progress("plan", 0, 1)
        try:
            plan, _ = pipeline.make_plan(graph, board, _options(options))
        except InfeasibleError as error:
            if options.json is not None:
                _emit(options.json, terminal.infeasible_plan(options.objective, options.solver, str(error)), str)
            raise
    _warn(notes)
    document = plan_to_json(plan, board)
    if options.output:
        replace_text(options.output, pipeline.dump(document))
    _emit(options.json, document, lambda: terminal.plan_table(graph, plan))
    return 0


def _quantize(options: argparse.Namespace) -> int:
    from dovetail import pipeline
    from dovetail.files import replace_bytes
    from dovetail.ir.onnx_write import to_onnx
    with _progress() as progress:
        numbers = pipeline.decide_numbers(options.model, options.calibration, options.bits, _shapes(options), progress)
    _warn(numbers.warnings)
    replace_bytes(options.output, to_onnx(numbers.graph))
    print(f"{options.output}: {options.bits}-bit QDQ model, "
          f"scales from {numbers.samples.count} samples ({numbers.samples.source})")
    return 0


def _compile(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    with _progress() as progress:
        build = pipeline.compile(options.model, options.platform, options.output, options=_options(options),
                                 calibration=options.calibration, bits=options.bits, shapes=_shapes(options),
                                 frames=options.frames, verify=not options.no_verify, progress=progress)
    _warn(build.manifest["warnings"])
    print(terminal.plan_table(build.graph, build.plan))
    print(f"\n{build.folder}: report.html, plan.json, model.onnx, trace.json and the parts of "
          f"{', '.join(dict.fromkeys(s.device for s in build.program.segments))}")
    return 0 if options.no_verify else _say_verified(build.folder)


def _say_verified(folder: Path) -> int:
    from dovetail import terminal
    from dovetail.runtime.build import read_json
    outcome = read_json(folder / "verification.json")
    print(terminal.verification_line(outcome), file=sys.stdout if outcome["equal"] else sys.stderr)
    return 0 if outcome["equal"] else 1


def _verify(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    from dovetail.runtime.build import load_build
    build = load_build(options.build)
    with _progress() as progress:
        outcome = pipeline.verification_json(pipeline.verify_build(build, options.frames, progress))
    pipeline.write_report(build)
    if options.json is not None:
        _emit(options.json, outcome, str)
    if not outcome["equal"] or options.json is None:
        print(terminal.verification_line(outcome), file=sys.stdout if outcome["equal"] else sys.stderr)
    return 0 if outcome["equal"] else 1


def _run(options: argparse.Namespace) -> int:
    from io import BytesIO

    import numpy as np

    from dovetail import pipeline
    from dovetail.files import replace_bytes
    from dovetail.numerics.calibration import load_samples
    from dovetail.runtime.build import load_build
    build = load_build(options.build)
    with _progress() as progress:
        results = pipeline.run_build(build, load_samples(options.input, build.graph).values, progress)
    buffer = BytesIO()
    if options.output.suffix == ".npz":
        np.savez_compressed(buffer, allow_pickle=False, **results)
    elif len(results) == 1:
        np.save(buffer, next(iter(results.values())))
    else:
        raise UsageError(f"{options.output}: the network has outputs {', '.join(results)}; give an .npz for several")
    replace_bytes(options.output, buffer.getvalue())
    for name, values in results.items():
        print(f"{options.output}: {name} {'x'.join(map(str, values.shape))}")
    return 0


def _synth(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    from dovetail.runtime.build import load_build
    build = load_build(options.build)
    with _progress() as progress:
        results = pipeline.synthesize_build(build, options.family, progress)
    pipeline.write_report(build)
    _emit(options.json, results, lambda: terminal.synthesis_table(results, build))
    return 0


def _zoo(options: argparse.Namespace) -> int:
    from dovetail import zoo
    from dovetail.files import replace_bytes
    if options.name is None:
        _emit(options.json, zoo.listing_json(), zoo.listing)
        return 0
    name = zoo.entry(options.name).name
    if options.output is None:
        raise UsageError(f"zoo {name}: nowhere to write it; add -o {name}.onnx")
    form = {"size": options.size, "width": options.width, "batch_norm": not options.no_bn}
    replace_bytes(options.output, zoo.build(name, seed=options.seed, **form))
    count = zoo.count(name, **form)
    print(f"{options.output}: {name}, {count.parameters:,} parameters, {count.macs / 1e6:,.1f} M MACs")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    from dovetail.runtime.build import load_build
    build = None if options.build is None else load_build(options.build)
    with _progress() as progress:
        found = pipeline.evaluate_model(options.model, options.data, options.calibration, options.bits, build,
                                        _shapes(options), progress)
    _emit(options.json, found, lambda: terminal.accuracy_line(found))
    return 1 if found["build_equals_int8"] is False else 0


def _report(options: argparse.Namespace) -> int:
    from dovetail import pipeline
    from dovetail.runtime.build import load_build
    print(pipeline.write_report(load_build(options.build)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
