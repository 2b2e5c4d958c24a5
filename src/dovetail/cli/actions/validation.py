"""What `dovetail validate-models` does."""

from __future__ import annotations

import argparse

from dovetail.cli.output import emit, progress_bar, warn
from dovetail.cost.validation import validate, validation_json, validation_table


def validate_models_command(options: argparse.Namespace) -> int:
    """Run `dovetail validate-models`."""
    with progress_bar() as progress:
        found = validate(options.data, (lambda stage: progress(stage, 0, 1)) if options.refit else None)
    if options.json is not None:
        warn(found.notes)
    emit(options.json, validation_json(found), lambda: validation_table(found))
    return 0
