"""Arguments that several commands share, and what they mean."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from dovetail.errors import UsageError
from dovetail.numerics.equalize import Equalise
from dovetail.partition.plan import SOLVER_NAMES, Goal, Mode
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import ModelSet
from dovetail.platform.topology import CHOICES

if TYPE_CHECKING:
    from dovetail.partition.plan import Split
    from dovetail.planning import Options
    from dovetail.platform.device import Platform

BOARD = "tx2-c10gx"
PAPER_SOLVER = "gp-paper"
THRIFT = 0.05
"""As `planning.Options` has it."""
MOST = 1e30
"""Of a limit, and its inverse the least."""

Command = Callable[[argparse.Namespace], int]


@dataclass(frozen=True, slots=True)
class Commands:
    """The program's commands; every group adds its own here."""

    parsers: argparse._SubParsersAction[argparse.ArgumentParser]

    def add(self, name: str, command: Command, text: str, example: str) -> argparse.ArgumentParser:
        """The sub-parser of `dovetail name`, which runs `command`; `text` starts in lower case and has no full stop."""
        sub = self.parsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".",
                                      epilog=f"example:\n  {example}", formatter_class=argparse.RawDescriptionHelpFormatter)
        sub.set_defaults(command=command)
        return sub


def add_model(sub: argparse.ArgumentParser) -> None:
    """The model file and the shapes of its inputs."""
    sub.add_argument("model", type=Path, help="an ONNX file, float or QDQ")
    sub.add_argument("--shape", action="append", default=[], metavar="INPUT=1,3,224,224",
                     help="the shape of an input with symbolic dimensions; repeatable")


def add_board(sub: argparse.ArgumentParser) -> None:
    """The board alone."""
    sub.add_argument("-p", "--platform", help=f"a board's name or TOML file (default: {BOARD})")
    sub.add_argument("--devices", metavar="FPGA:N", help="so many of the board's FPGA, such as fpga:3, each with links of its "
                     "own; or a part, such as xcku095:4, for the board of so many in place of another")


def add_saved_plan(sub: argparse.ArgumentParser) -> None:
    """A plan made before."""
    sub.add_argument("--plan", type=Path, metavar="FILE",
                     help="the board and the place of every node as this file of `dovetail plan -o` has them")


def add_planning(sub: argparse.ArgumentParser) -> None:
    """The board, the goal and the limits of a plan."""
    add_board(sub)
    sub.add_argument("--pin", action="append", default=[], metavar="NODE=DEVICE",
                     help="leave a node to a device; * stands for anything, as in 'layer1.*=gpu'; repeatable")
    sub.add_argument("--topology", choices=CHOICES, help="join the board's FPGAs so (default: as it says); with 'switch' they "
                     "pass circuits on by time slots, as FiC's do")
    sub.add_argument("--models", choices=[m.value for m in ModelSet],
                     help=f"which models of the papers' board to believe (default: {ModelSet.PLANNING.value}; docs/models.md)")
    sub.add_argument("--objective", choices=[g.value for g in Goal], help=f"what to minimise (default: {Goal.LATENCY.value})")
    sub.add_argument("--mode", choices=[m.value for m in Mode],
                     help=f"whether shares of one layer run at once (default: {Mode.CONCURRENT.value})")
    sub.add_argument("--solver", choices=SOLVER_NAMES, default="exact", help="how to search (default: %(default)s)")
    sub.add_argument("--budget", choices=["shared", "per_layer"], default="shared",
                     help="one FPGA for the whole network, or (as papers assume) one per layer")
    sub.add_argument("--max-latency-ms", type=float, help="refuse plans slower than this")
    sub.add_argument("--max-energy-mj", type=float, help="refuse plans that use more energy per frame than this")
    sub.add_argument("--min-fps", type=float, help="refuse plans that cannot take so many pipelined frames per second")
    sub.add_argument("--thrift", type=float, metavar="F",
                     help=f"give up at most this fraction of the objective to save FPGA area (default: {THRIFT})")
    sub.add_argument("--fold", metavar="CLOCKS", help="let FPGA layers share multipliers, each taking up to so many clocks per "
                     "frame; 'auto' tries several (default: every layer mapped directly)")
    sub.add_argument("--architecture", choices=[a.value for a in Architecture],
                     help="make the board's FPGA one accelerator for the whole network: dedicated engines for the first layers "
                          "and reusable ones for the rest (fibha), one engine per layer (sesl), reusable ones alone (seml), one "
                          "array (monolithic), every multiplier in logic (dhm), or the best of them (auto)")
    sub.add_argument("--gap", type=float, default=0.0, metavar="F",
                     help="end the search once the plan is proven to be within this fraction of the best, such as 0.005 "
                          "(default: %(default)s, as near as the time allows)")
    sub.add_argument("--time-limit", type=float, default=4.0, metavar="S",
                     help="seconds to search, counted in work, so that every machine finds the same plan (default: %(default)s)")


def add_numbers(sub: argparse.ArgumentParser) -> None:
    """How the model's integers are chosen."""
    sub.add_argument("--calibration", type=Path, metavar="X.npz", help="samples under key 'x', one per row (default: synthetic)")
    sub.add_argument("--bits", type=int, help="2 to 8, of a float model (default: 8)")
    sub.add_argument("--equalise", choices=[e.value for e in Equalise], default=Equalise.AUTO.value,
                     help="scale channels towards each other first: where it helps, always, never (default: %(default)s)")


def add_json(sub: argparse.ArgumentParser) -> None:
    """The result as JSON."""
    sub.add_argument("--json", metavar="FILE", help="write the result as JSON; '-' prints it")


def refuse_unused(where: str, given: Mapping[str, object], remedy: str) -> None:
    """Refuse arguments that would be read by nobody here, rather than ignore them; None, False and [] are not given.

    Raises:
        UsageError: some are given.
    """
    if named := [name for name, value in given.items() if value is not None and value is not False and value != []]:
        raise UsageError(f"{where}: {' and '.join(named)} would have no effect; {remedy}")


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


def named_board(options: argparse.Namespace) -> Platform:
    """The board that `add_board`'s arguments name."""
    from dovetail.platform.load import load_platform, platform_of_devices
    name = options.platform or BOARD
    return platform_of_devices(options.devices, name) if options.devices else load_platform(name)


def board(options: argparse.Namespace) -> Platform:
    """The board that is planned for, with the models that are to be believed.

    Raises:
        UsageError: the authors' models are asked for, but not the method they belong to.
    """
    from dovetail.platform.topology import joined_as
    models = ModelSet(options.models or ModelSet.PLANNING.value)
    if models is ModelSet.PUBLISHED and not options.solver.startswith(PAPER_SOLVER):
        raise UsageError(f"--models published: the authors' models, with FPGA latency serial over channels, are there to "
                         f"reproduce their figures; add --solver {PAPER_SOLVER}, or take --models planning or measured")
    found = named_board(options)
    return (joined_as(found, options.topology) if options.topology else found).with_models(models)


def above_zero(name: str, limit: float, most: float = MOST) -> float:
    """The value of an argument that must be above 0; UsageError where it is not, or beyond what numbers can carry."""
    if not limit > 0:
        raise UsageError(f"{name} {limit:g}: must be above 0")
    if not 1 / MOST <= limit <= most:
        raise UsageError(f"{name} {limit:g}: must be from {1 / MOST:g} to {most:g}")
    return limit


def planning(options: argparse.Namespace) -> Options:
    """What the planning arguments ask for.

    Raises:
        UsageError: a limit is not above 0.
    """
    from dovetail.planning import Options
    for name, limit in (("--max-latency-ms", options.max_latency_ms), ("--max-energy-mj", options.max_energy_mj),
                        ("--min-fps", options.min_fps)):
        if limit is not None:
            above_zero(name, limit)
    above_zero("--time-limit", options.time_limit, inf)
    fold = options.fold
    if fold is not None and fold != "auto":
        if not fold.isdigit() or int(fold) < 1:
            raise UsageError(f"--fold {fold}: a number of clocks per frame above 0, or auto, is needed")
        fold = int(fold)
    if fold is not None and options.architecture is not None:
        raise UsageError("--architecture chooses the folds of all layers; leave out --fold")
    goal, mode = Goal(options.objective or Goal.LATENCY.value), Mode(options.mode or Mode.CONCURRENT.value)
    return Options(goal=goal, mode=mode, solver=options.solver, budget=options.budget,
                   max_latency_s=None if options.max_latency_ms is None else options.max_latency_ms / 1e3,
                   max_energy_j=None if options.max_energy_mj is None else options.max_energy_mj / 1e3,
                   max_interval_s=None if options.min_fps is None else 1 / options.min_fps,
                   time_limit_s=options.time_limit, gap=options.gap, thrift=THRIFT if options.thrift is None else options.thrift,
                   fold=fold, architecture=options.architecture, pins=pins(options))


def pins(options: argparse.Namespace) -> dict[str, Split]:
    """Where `--pin` leaves nodes.

    Raises:
        UsageError: one is not NODE=DEVICE.
    """
    from dovetail.partition.plan import whole_on
    found = {}
    for text in options.pin:
        node, _, device = text.rpartition("=")
        if not node or not device:
            raise UsageError(f"--pin {text}: not NODE=DEVICE; write for example --pin conv1=fpga")
        found[node] = whole_on(device)
    return found


def board_and_planning(options: argparse.Namespace) -> tuple[Platform, Options]:
    """The board and what is asked of the plan; both as a saved plan has them where one is given.

    Raises:
        UsageError: a saved plan is given beside what it decides.
    """
    if options.plan is None:
        return board(options), planning(options)
    from dovetail.runtime.build import read_json
    decided = {"-p": options.platform, "--devices": options.devices, "--topology": options.topology, "--pin": options.pin,
               "--fold": options.fold, "--architecture": options.architecture, "--models": options.models,
               "--objective": options.objective, "--mode": options.mode, "--thrift": options.thrift}
    if given := [name for name, value in decided.items() if value is not None and value != []]:
        raise UsageError(f"--plan {options.plan}: it holds the board and the place of every node; leave out {', '.join(given)}")
    return planning(options).like(read_json(options.plan, f"write one with `dovetail plan MODEL -o {options.plan}`"))
