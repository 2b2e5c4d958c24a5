"""Commands on device models: measure a device, how good the models are, and the area of many layers counted."""

from __future__ import annotations

from pathlib import Path

from dovetail.cli.options import Commands


def add_commands(commands: Commands) -> None:
    """`calibrate`, `validate-models`, `campaign`."""
    calibrate = commands.add("calibrate", "measure this machine's CPU or GPU, or fit a table, into a board",
                             "dovetail calibrate --device cpu -o my-board.toml && dovetail plan model.onnx -p ./my-board.toml")
    calibrate.add_argument("--device", choices=["cpu", "gpu"], help="what to measure, or what a table was measured on")
    calibrate.add_argument("--from", dest="source", type=Path, metavar="FILE",
                           help="fit this record (.json) or table (.csv, docs/method/energy.md) in place of measuring")
    calibrate.add_argument("-o", "--output", type=Path, required=True, help="the board file (.toml) to write")
    calibrate.add_argument("--threads", type=int, help="threads of ONNX Runtime on a CPU (default: 1)")
    calibrate.add_argument("--record", type=Path,
                           help="where measurements are kept, to continue after an interruption (default: beside the board)")

    validate = commands.add("validate-models", "every device model's error on measured rows, reprinted",
                            "dovetail validate-models --data measurements --json -")
    validate.add_argument("--data", type=Path, required=True, metavar="DIR",
                          help="folder with measured CSV files (docs/method/models.md)")
    validate.add_argument("--refit", action="store_true",
                          help="cross-validate the rows among themselves, in seconds, in place of scoring the shipped models")

    area = commands.add("campaign",
                        "synthesize single layers, and judge the area model by those not fitted",
                        "dovetail campaign area --family ecp5 --family ultrascale --json area.json")
    area.add_argument("what", choices=("area",), help="what is counted: the FPGA area of layers")
    area.add_argument("--family", action="append", default=[], metavar="NAME",
                      help="ecp5, gw2a, ultrascale (xcu), ultrascale+ (xcup), cyclonev, cyclone10gx; repeatable "
                           "(default: ecp5 and ultrascale)")
    area.add_argument("--layers", type=int, default=64, metavar="N", help="how many layers (default: %(default)s)")
    area.add_argument("--store", type=Path, metavar="FILE",
                      help="file of results; a second run counts again only what changed (default: in the cache)")
    area.add_argument("--jobs", type=int, default=1, metavar="N",
                      help="processes, each with a synthesizer of its own (default: %(default)s)")
    area.add_argument("--fit", action="store_true",
                      help="fit the coefficients anew, and judge those in place of the shipped ones")
    area.add_argument("-o", "--output", type=Path, metavar="DIR",
                      help="with --fit: write the models (dhm-FAMILY.toml) to this folder")
