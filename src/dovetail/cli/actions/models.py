"""What commands on a model alone do: what is in it, its integers and how good they are."""

from __future__ import annotations

import argparse

from dovetail import terminal
from dovetail.api.results import Inspection
from dovetail.cli.options import refuse_unused, shapes
from dovetail.cli.output import emit, progress_bar, warn
from dovetail.errors import UsageError
from dovetail.files import check_file, replace_bytes
from dovetail.ir.onnx.qonnx_write import to_qonnx
from dovetail.ir.onnx.read import read_model
from dovetail.ir.onnx.write import to_onnx
from dovetail.numbers import decide_numbers
from dovetail.numerics import quality
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.quantize import DEFAULT_BITS
from dovetail.numerics.scales import Scales
from dovetail.shown import check_table
from dovetail.words import counted


def inspect_command(options: argparse.Namespace) -> int:
    """Run `dovetail inspect`."""
    check_table(options.table)
    imported = read_model(options.model, shapes(options))
    warn(imported.notes)
    document = terminal.inspection(imported.graph, imported.labels)
    if options.table is not None:
        Inspection(imported.graph, imported.notes, document).save_table(options.table)
    emit(options.json, document, lambda: terminal.inspection_table(document))
    return 0


def quantize_command(options: argparse.Namespace) -> int:
    """Run `dovetail quantize`."""
    if options.output is None and not options.report:
        raise UsageError("quantize: nothing to do; name the model to write with -o FILE, or ask for --report")
    if options.output is None:
        refuse_unused("quantize --report", {"--qonnx": options.qonnx}, "name the model to write with -o FILE")
    else:
        check_file(options.output)
    with progress_bar() as progress:
        numbers = decide_numbers(options.model, options.calibration, options.bits, shapes(options), progress,
                                 Equalise(options.equalise), Scales(options.scales))
        if options.report and numbers.imported.graph.quantized:
            raise UsageError(f"{options.model}: came quantized, so there is no float network to compare with; "
                             "give the float model for --report")
        found = quality.report(numbers.imported.graph, numbers.source, numbers.graph, numbers.samples, progress) \
            if options.report else None
    warn(numbers.warnings)
    if options.output is not None:
        replace_bytes(options.output, (to_qonnx if options.qonnx else to_onnx)(numbers.graph))
    kind = "QONNX" if options.qonnx else "QDQ"
    written = {} if options.output is None else {"output": str(options.output), "format": kind}
    document = {"samples": numbers.samples.count, "calibration": numbers.samples.source, **written, **(found or {}),
                "warnings": list(numbers.warnings)}
    if found is not None or options.json is not None:
        emit(options.json, document, lambda: terminal.quality_table(found or {}))
    if options.output is not None and options.json != "-":
        print(f"{options.output}: {kind} model with the numbers it came with" if numbers.imported.graph.quantized else
              f"{options.output}: {options.bits or DEFAULT_BITS}-bit {kind} model, scales from "
              f"{counted(numbers.samples.count, 'sample')} ({numbers.samples.source})")
    return 0
