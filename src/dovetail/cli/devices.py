"""Commands on device models: how good they are."""

from __future__ import annotations

import argparse
from pathlib import Path

from dovetail.cli.options import Commands, add_json
from dovetail.cli.output import emit


def add_commands(commands: Commands) -> None:
    """`validate-models`."""
    validate = commands.add("validate-models", _validate, "every device model's error on measured rows, reprinted",
                            "dovetail validate-models --data measurements --json -")
    validate.add_argument("--data", type=Path, required=True, metavar="DIR",
                          help="folder with measured CSV files (docs/models.md)")
    add_json(validate)


def _validate(options: argparse.Namespace) -> int:
    from dovetail.cost.validation import score_json, score_table, validate
    scores = validate(options.data)
    emit(options.json, {"models": [score_json(s) for s in scores]}, lambda: score_table(scores))
    return 0
