"""Arguments that several commands share, and what is wrong with some."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail import plugins
from dovetail.errors import UsageError
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.scales import Scales
from dovetail.partition.plan import SOLVER_NAMES, Goal, Mode
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import ModelSet
from dovetail.platform.topology import CHOICES

BOARD = "tx2-c10gx"
MOST = 1e30
"""Of a limit, and its inverse the least."""


@dataclass(frozen=True, slots=True)
class Commands:
    """The program's commands; every group adds its own here."""

    parsers: argparse._SubParsersAction[argparse.ArgumentParser]

    def add(self, name: str, text: str, example: str) -> argparse.ArgumentParser:
        """The sub-parser of `dovetail name`; `text` starts in lower case and has no full stop."""
        sub = self.parsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".",
                                      epilog=f"example:\n  {example}", formatter_class=argparse.RawDescriptionHelpFormatter)
        sub.set_defaults(command=name)
        return sub

    def on_build(self, name: str, text: str, example: str) -> argparse.ArgumentParser:
        """The same for a command on a build folder."""
        sub = self.add(name, text, example)
        sub.add_argument("build", type=Path, help="a build folder")
        add_trust(sub)
        return sub


def add_model(sub: argparse.ArgumentParser) -> None:
    """The model file and the shapes of its inputs."""
    sub.add_argument("model", type=Path, help="an ONNX file, float or QDQ, or a folder with model.onnx and config.json")
    sub.add_argument("--shape", action="append", default=[], metavar="INPUT=1,3,224,224",
                     help="the shape of an input with symbolic dimensions; repeatable")


def add_board(sub: argparse.ArgumentParser) -> None:
    """The board alone."""
    sub.add_argument("-p", "--platform", help=f"a board's name or TOML file (default: {BOARD})")
    sub.add_argument("--devices", metavar="FPGA:N", help="so many of the board's FPGA (fpga:3), each with its own links; or "
                     "the shipped board of so many of a part (xcku095:4)")


def add_saved_plan(sub: argparse.ArgumentParser) -> None:
    """A plan made before."""
    sub.add_argument("--plan", type=Path, metavar="FILE",
                     help="the board and the place of every node as this file of `dovetail plan -o` has them")


def add_planning(sub: argparse.ArgumentParser) -> None:
    """The board, the goal and the limits of a plan."""
    add_board(sub)
    sub.add_argument("--pin", action="append", default=[], metavar="NODE=DEVICE",
                     help="force a node onto a device; * stands for anything, as in 'layer1.*=gpu'; repeatable")
    sub.add_argument("--topology", choices=CHOICES, help="join the board's FPGAs so (default: as it says); with 'switch' they "
                     "pass circuits on by time slots, as FiC's do")
    sub.add_argument("--models", choices=[m.value for m in ModelSet],
                     help=f"which models of the papers' board to use (default: {ModelSet.PLANNING.value}; docs/method/models.md)")
    sub.add_argument("--objective", choices=[g.value for g in Goal], help=f"what to minimise (default: {Goal.LATENCY.value})")
    sub.add_argument("--mode", choices=[m.value for m in Mode],
                     help=f"whether shares of one layer run at once (default: {Mode.CONCURRENT.value})")
    sub.add_argument("--solver", choices=(*SOLVER_NAMES, *plugins.names("solvers")), default="exact",
                     help="how to search (default: %(default)s)")
    sub.add_argument("--budget", choices=["shared", "per_layer"], default="shared",
                     help="one FPGA for the whole network, or (as papers assume) one per layer")
    sub.add_argument("--max-latency-ms", type=float, help="refuse plans slower than this")
    sub.add_argument("--max-energy-mj", type=float, help="refuse plans that use more energy per frame than this")
    sub.add_argument("--min-fps", type=float, help="refuse plans that cannot take so many pipelined frames per second")
    sub.add_argument("--thrift", type=float, metavar="F",
                     help="give up at most this fraction of the objective to save FPGA area (default: 0)")
    sub.add_argument("--fold", metavar="CLOCKS", help="weigh only layers that share multipliers, each taking up to so many "
                     "clocks per frame; 'auto' tries several, 'none' maps every layer directly (default: all that FPGAs can be)")
    sub.add_argument("--architecture", choices=[a.value for a in Architecture],
                     help="weigh only accelerators for the whole network on the board's FPGA: dedicated engines, then "
                          "reusable ones (fibha), one engine per layer (sesl), reusable ones alone "
                          "(seml), one array (monolithic), every multiplier in logic (dhm), or the best of them (auto)")
    sub.add_argument("--fill", type=float, metavar="F", help="fill FPGAs to this part of every resource at most; 1: fully "
                     "(default: as far as the design fits with 95 %% confidence by the area model's own error)")
    sub.add_argument("--max-parts", type=int, metavar="N", help="plan at most so many parts; every change of device begins "
                     "one (default: as many as pay)")
    sub.add_argument("--gap", type=float, default=0.0, metavar="F",
                     help="end the search once proven within this fraction of the best "
                          "(default: %(default)s, as near as the time allows)")
    sub.add_argument("--time", type=float, default=10.0, metavar="S",
                     help="seconds to search all that FPGAs can become, counted in work: every machine finds the same "
                          "plan; accelerators get up to three times as much (default: %(default)s)")
    sub.add_argument("--time-limit", type=float, default=4.0, metavar="S",
                     help="the same for each form of an FPGA by itself (default: %(default)s)")


def add_numbers(sub: argparse.ArgumentParser) -> None:
    """How the model's integers are chosen."""
    sub.add_argument("--calibration", type=Path, metavar="X.npz", help="samples under key 'x', one per row (default: synthetic)")
    sub.add_argument("--bits", type=int, help="2 to 8, of a float model (default: 8)")
    sub.add_argument("--equalise", choices=[e.value for e in Equalise], default=Equalise.AUTO.value,
                     help="scale channels towards each other first: where it helps, always, never (default: %(default)s)")
    sub.add_argument("--scales", choices=[s.value for s in Scales], default=Scales.POW2.value,
                     help="powers of two, any scales, or any where those answer worse (default: %(default)s)")


def add_trust(sub: argparse.ArgumentParser) -> None:
    """Whether files that nobody has checked may run."""
    sub.add_argument("--trust", action="store_true",
                     help="use the build's generated files as they are, without checking that they are what its model and plan "
                          "give; they can run any command (SECURITY.md)")


def refuse_unused(where: str, given: Mapping[str, object], remedy: str) -> None:
    """Refuse arguments that would be read by nobody here, rather than ignore them; None, False and [] are not given.

    Raises:
        UsageError: some are given.
    """
    if named := [name for name, value in given.items() if value is not None and value is not False and value != []]:
        raise UsageError(f"{where}: {' and '.join(named)} would have no effect; {remedy}")


def add_table(sub: argparse.ArgumentParser) -> None:
    """The option that writes a command's table for other programs."""
    sub.add_argument("--table", type=Path, metavar="FILE", help="write the table, in SI units, as .csv or .parquet")


def shapes(options: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """The shapes that `--shape` states, per input.

    Raises:
        UsageError: one is not INPUT=SIZES.
    """
    found = {}
    for text in options.shape:
        name, _, sizes = text.rpartition("=")
        parts = sizes.split(",")
        if not name or not all(p.strip().isdigit() and int(p) > 0 for p in parts):
            raise UsageError(f"--shape {text}: not INPUT=SIZES; write for example --shape image=1,3,224,224")
        found[name] = tuple(int(p) for p in parts)
    return found


def above_zero(name: str, limit: float, most: float = MOST) -> float:
    """The value of an argument that must be above 0; UsageError where it is not, or beyond what numbers can carry."""
    if not limit > 0:
        raise UsageError(f"{name} {limit:g}: must be above 0")
    if not 1 / MOST <= limit <= most:
        raise UsageError(f"{name} {limit:g}: must be from {1 / MOST:g} to {most:g}")
    return limit
