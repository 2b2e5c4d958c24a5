"""What `dovetail platforms` does."""

from __future__ import annotations

import argparse

from dovetail.cli.options import refuse_unused
from dovetail.cli.output import emit
from dovetail.platform.describe import describe
from dovetail.platform.load import example_of, load_platform, platform_names, platform_to_dict
from dovetail.platform.model_list import model_list, model_list_table


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
