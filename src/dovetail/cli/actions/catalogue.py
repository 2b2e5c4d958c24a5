"""What `dovetail platforms` and `dovetail zoo` do: list the boards and networks that come along, show or write one."""

from __future__ import annotations

import argparse

from dovetail import zoo
from dovetail.cli.options import refuse_unused
from dovetail.cli.output import emit
from dovetail.errors import UsageError
from dovetail.files import replace_bytes
from dovetail.platform.describe import describe, model_list, model_list_table
from dovetail.platform.load import example_of, load_platform, platform_names, platform_to_dict
from dovetail.words import counted


def platforms_command(options: argparse.Namespace) -> int:
    """Run `dovetail platforms`."""
    if options.models:
        refuse_unused("platforms --models", {options.name: options.name}, "leave it out, or leave out --models")
        emit(options.json, model_list(), lambda: model_list_table(model_list()))
        return 0
    if options.name:
        board = load_platform(options.name)
        emit(options.json, platform_to_dict(board), lambda: describe(board))
        return 0
    boards = {name: load_platform(example_of(name)) for name in platform_names()}
    emit(options.json, [platform_to_dict(b) for b in boards.values()],
          lambda: "\n".join(f"{name:<14} {', '.join(d.name for d in b.devices):<18} {b.description}"
                            for name, b in boards.items()))
    return 0


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
