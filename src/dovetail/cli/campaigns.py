"""The command that counts many layers, and judges the area model by them."""

from __future__ import annotations

from pathlib import Path

from dovetail.cli.options import Commands, add_json


def add_commands(commands: Commands) -> None:
    """`campaign`."""
    sub = commands.add("campaign",
                       "synthesize many single layers, and judge the area model by those it was not fitted to",
                       "dovetail campaign area --family ecp5 --family ultrascale --json area.json")
    sub.add_argument("what", choices=("area",), help="what is counted: the FPGA area of layers")
    sub.add_argument("--family", action="append", default=[], metavar="NAME",
                     help="ecp5, ultrascale (xcu), ultrascale+ (xcup), cyclonev, cyclone10gx; repeatable (default: first two)")
    sub.add_argument("--layers", type=int, default=64, metavar="N", help="how many layers (default: %(default)s)")
    sub.add_argument("--store", type=Path, metavar="DIR",
                     help="folder of results; a second run counts again only what changed (default: in the cache)")
    sub.add_argument("--jobs", type=int, default=1, metavar="N",
                     help="processes, each with a synthesizer of its own (default: %(default)s)")
    sub.add_argument("--fit", action="store_true", help="fit the coefficients anew, and judge those in place of the shipped ones")
    sub.add_argument("-o", "--output", type=Path, metavar="DIR",
                     help="with --fit: write the models (dhm-FAMILY.toml) to this folder")
    add_json(sub)
