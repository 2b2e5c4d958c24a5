"""What `dovetail zoo` does."""

from __future__ import annotations

import argparse

from dovetail import zoo
from dovetail.cli.options import refuse_unused
from dovetail.cli.output import emit
from dovetail.errors import UsageError
from dovetail.files import replace_bytes
from dovetail.words import counted


def zoo_command(options: argparse.Namespace) -> int:
    """Run `dovetail zoo`."""
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
