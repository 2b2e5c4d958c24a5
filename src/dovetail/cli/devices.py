"""Commands on device models: measure a device, and how good the models are."""

from __future__ import annotations

from pathlib import Path

from dovetail.cli.options import Commands, add_json


def add_commands(commands: Commands) -> None:
    """`calibrate`, `validate-models`."""
    calibrate = commands.add("calibrate", "measure this machine's CPU or GPU, or fit a table, into a board",
                             "dovetail calibrate --device cpu -o my-board.toml && dovetail plan model.onnx -p ./my-board.toml")
    calibrate.add_argument("--device", choices=["cpu", "gpu"], help="what to measure, or what a table was measured on")
    calibrate.add_argument("--from", dest="source", type=Path, metavar="FILE",
                           help="fit this record (.json) or table (.csv, docs/method/energy.md) in place of measuring")
    calibrate.add_argument("-o", "--output", type=Path, required=True, help="the board file (.toml) to write")
    calibrate.add_argument("--threads", type=int, help="threads of ONNX Runtime on a CPU (default: 1)")
    calibrate.add_argument("--record", type=Path,
                           help="where measurements are kept, to continue after an interruption (default: beside the board)")
    add_json(calibrate)

    validate = commands.add("validate-models", "every device model's error on measured rows, reprinted",
                            "dovetail validate-models --data measurements --json -")
    validate.add_argument("--data", type=Path, required=True, metavar="DIR",
                          help="folder with measured CSV files (docs/method/models.md)")
    validate.add_argument("--refit", action="store_true",
                          help="cross-validate the rows among themselves, in seconds, in place of scoring the shipped models")
    add_json(validate)
