"""Commands on a model alone: what is in it, the papers' networks, its integers and how good they are."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.opened import add_trust, open_build
from dovetail.cli.options import Commands, add_json, add_model, add_numbers, refuse_unused, shapes
from dovetail.cli.output import emit, progress_bar, warn
from dovetail.errors import UsageError
from dovetail.numerics.equalize import Equalise
from dovetail.words import counted


def add_commands(commands: Commands) -> None:
    """`inspect`, `zoo`, `quantize`, `evaluate`."""
    inspect = commands.add("inspect", _inspect, "layers, MACs, parameters, and what each kind of device can take",
                           "dovetail inspect examples/fashion/fashion.onnx")
    add_model(inspect)
    add_json(inspect)

    zoo = commands.add("zoo", _zoo, "the papers' networks as ONNX with seeded weights; without a name, the table",
                       "dovetail zoo mobilenet-v2 --size 96 -o m.onnx")
    zoo.add_argument("name", nargs="?", help="a network; without it, all with parameters, MACs and their sources")
    zoo.add_argument("-o", "--output", type=Path, help="the ONNX file to write")
    zoo.add_argument("--size", type=int, help="side of the image in pixels (default: the network's own)")
    zoo.add_argument("--width", type=float, help="multiplies channel counts (default: the network's own)")
    zoo.add_argument("--no-bn", action="store_true", help="biases in place of BatchNorm")
    zoo.add_argument("--seed", type=int, help="of the weights (default: 0)")
    add_json(zoo)

    quantize = commands.add("quantize", _quantize,
                            "turn a float model into a power-of-two QDQ model that plain ONNX Runtime loads",
                            "dovetail quantize model.onnx --bits 8 --calibration images.npz -o int8.onnx")
    add_model(quantize)
    add_numbers(quantize)
    quantize.add_argument("-o", "--output", type=Path, help="the QDQ model to write")
    quantize.add_argument("--qonnx", action="store_true",
                          help="write QONNX (Quant, BipolarQuant, MultiThreshold), for FINN and its kin, in place of QDQ")
    quantize.add_argument("--report", action="store_true",
                          help="the noise integers add to every tensor, and the answers beside ONNX Runtime's static int8")
    add_json(quantize)

    evaluate = commands.add("evaluate", _evaluate, "accuracy on labelled data: float model, its integers, and a build's devices",
                            "dovetail evaluate model.onnx --data test.npz --calibration train.npz --build build/model")
    add_model(evaluate)
    add_numbers(evaluate)
    evaluate.add_argument("--data", type=Path, required=True, metavar="X.npz", help="images under 'x', integer labels under 'y'")
    evaluate.add_argument("--build", type=Path, help="a build folder of the same model, run on its devices as well")
    add_trust(evaluate)
    add_json(evaluate)


def _inspect(options: argparse.Namespace) -> int:
    from dovetail import terminal
    from dovetail.ir.onnx.read import read_onnx
    imported = read_onnx(options.model, shapes(options))
    warn(imported.notes)
    document = terminal.inspection(imported.graph)
    emit(options.json, document, lambda: terminal.inspection_table(document))
    return 0


def _zoo(options: argparse.Namespace) -> int:
    from dovetail import zoo
    from dovetail.files import replace_bytes
    if options.name is None:
        refuse_unused("zoo", {"-o": options.output, "--size": options.size, "--width": options.width, "--no-bn": options.no_bn,
                              "--seed": options.seed}, "name a network to write")
        emit(options.json, zoo.listing_json(), zoo.listing)
        return 0
    name = zoo.entry(options.name).name
    if options.output is None:
        raise UsageError(f"zoo {name}: nowhere to write it; add -o {name}.onnx")
    form = {"size": options.size, "width": options.width, "batch_norm": not options.no_bn}
    replace_bytes(options.output, zoo.build(name, seed=options.seed or 0, **form))
    count = zoo.count(name, **form)
    document = {"file": str(options.output), "name": name, "parameters": count.parameters, "macs": count.macs}
    emit(options.json, document, lambda: f"{options.output}: {name}, {counted(count.parameters, 'parameter')}, "
                                         f"{count.macs / 1e6:,.1f} M MACs")
    return 0


def _quantize(options: argparse.Namespace) -> int:
    from dovetail import terminal
    from dovetail.files import check_file, replace_bytes
    from dovetail.ir.onnx.qonnx_write import to_qonnx
    from dovetail.ir.onnx.write import to_onnx
    from dovetail.numbers import decide_numbers
    from dovetail.numerics import quality
    from dovetail.numerics.quantize import DEFAULT_BITS
    if options.output is None and not options.report:
        raise UsageError("quantize: nothing to do; name the model to write with -o FILE, or ask for --report")
    if options.json is not None and not options.report:
        raise UsageError("quantize: --json holds the report; add --report")
    if options.output is None:
        refuse_unused("quantize --report", {"--qonnx": options.qonnx}, "name the model to write with -o FILE")
    else:
        check_file(options.output)
    with progress_bar() as progress:
        numbers = decide_numbers(options.model, options.calibration, options.bits, shapes(options), progress,
                                 Equalise(options.equalise))
        if options.report and numbers.imported.graph.quantized:
            raise UsageError(f"{options.model}: came quantized, so there is no float network to compare with; "
                             "give the float model for --report")
        found = quality.report(numbers.imported.graph, numbers.source, numbers.graph, numbers.samples, progress) \
            if options.report else None
    warn(numbers.warnings)
    if options.output is not None:
        replace_bytes(options.output, (to_qonnx if options.qonnx else to_onnx)(numbers.graph))
    if found is not None:
        emit(options.json, {**found, "warnings": list(numbers.warnings)}, lambda: terminal.quality_table(found))
    if options.output is not None and options.json != "-":
        kind = "QONNX" if options.qonnx else "QDQ"
        print(f"{options.output}: {kind} model with the numbers it came with" if numbers.imported.graph.quantized else
              f"{options.output}: {options.bits or DEFAULT_BITS}-bit {kind} model, scales from "
              f"{counted(numbers.samples.count, 'sample')} ({numbers.samples.source})")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    build = None if options.build is None else open_build(options)
    with progress_bar() as progress:
        found = pipeline.evaluate_model(options.model, options.data, options.calibration, options.bits, build,
                                        shapes(options), progress, Equalise(options.equalise))
    warn(found["warnings"])
    emit(options.json, found, lambda: terminal.accuracy_table(found))
    return 1 if found["build_equals_int8"] is False else 0
