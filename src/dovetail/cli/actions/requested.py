"""What arguments ask for, as values: a board, a plan's options, a build."""

from __future__ import annotations

import argparse
from math import inf

from dovetail.cli.options import BOARD, above_zero
from dovetail.cli.output import progress_bar, warn
from dovetail.errors import UsageError
from dovetail.partition.options import FOLDS
from dovetail.partition.plan import Goal, Mode, Split, whole_on
from dovetail.planning import Options
from dovetail.platform.device import ModelSet, Platform
from dovetail.platform.load import load_platform, platform_of_devices
from dovetail.platform.topology import joined_as
from dovetail.runtime.build import Build, load_build, read_json
from dovetail.runtime.trust import what_runs

PAPER_SOLVER = "gp-paper"


def named_board(options: argparse.Namespace) -> Platform:
    """The board that `add_board`'s arguments name."""
    name = options.platform or BOARD
    return platform_of_devices(options.devices, name) if options.devices else load_platform(name)


def board(options: argparse.Namespace) -> Platform:
    """The board that is planned for, with the models that are to be believed.

    Raises:
        UsageError: the authors' models are asked for, but not the method they belong to.
    """
    models = ModelSet(options.models or ModelSet.PLANNING.value)
    if models is ModelSet.PUBLISHED and not options.solver.startswith(PAPER_SOLVER):
        raise UsageError(f"--models published: the authors' models, with FPGA latency serial over channels, are there to "
                         f"reproduce their figures; add --solver {PAPER_SOLVER}, or take --models planning or measured")
    found = named_board(options)
    return (joined_as(found, options.topology) if options.topology else found).with_models(models)


def planning(options: argparse.Namespace) -> Options:
    """What the planning arguments ask for.

    Raises:
        UsageError: a limit is not above 0.
    """
    for name, limit in (("--max-latency-ms", options.max_latency_ms), ("--max-energy-mj", options.max_energy_mj),
                        ("--min-fps", options.min_fps)):
        if limit is not None:
            above_zero(name, limit)
    for name, limit in (("--time", options.time), ("--time-limit", options.time_limit)):
        above_zero(name, limit, inf)
    fold = options.fold
    if fold not in (None, *FOLDS):
        if not fold.isdigit() or int(fold) < 1:
            raise UsageError(f"--fold {fold}: a number of clocks per frame above 0, auto or none is needed")
        fold = int(fold)
    if fold is not None and options.architecture is not None:
        raise UsageError("--architecture chooses the folds of all layers; leave out --fold")
    goal, mode = Goal(options.objective or Goal.LATENCY.value), Mode(options.mode or Mode.CONCURRENT.value)
    return Options(goal=goal, mode=mode, solver=options.solver, budget=options.budget,
                   max_latency_s=None if options.max_latency_ms is None else options.max_latency_ms / 1e3,
                   max_energy_j=None if options.max_energy_mj is None else options.max_energy_mj / 1e3,
                   max_interval_s=None if options.min_fps is None else 1 / options.min_fps,
                   time_limit_s=min(options.time_limit, options.time), total_s=options.time, gap=options.gap,
                   thrift=options.thrift or 0.0, fold=fold, architecture=options.architecture, fill=options.fill,
                   max_parts=options.max_parts, pins=pins(options))


def pins(options: argparse.Namespace) -> dict[str, Split]:
    """Where `--pin` leaves nodes.

    Raises:
        UsageError: one is not NODE=DEVICE.
    """
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
    decided = {"-p": options.platform, "--devices": options.devices, "--topology": options.topology, "--pin": options.pin,
               "--fold": options.fold, "--architecture": options.architecture, "--models": options.models,
               "--objective": options.objective, "--mode": options.mode, "--thrift": options.thrift}
    if given := [name for name, value in decided.items() if value is not None and value != []]:
        raise UsageError(f"--plan {options.plan}: it holds the board and the place of every node; leave out {', '.join(given)}")
    return planning(options).like(read_json(options.plan, f"write one with `dovetail plan MODEL -o {options.plan}`"))


def open_build(options: argparse.Namespace) -> Build:
    """The build that a command names; what trust lets run is said first."""
    with progress_bar() as progress:
        build = load_build(options.build, options.trust, lambda stage, done, total: progress(f"check: {stage}", done, total))
    if options.trust:
        warn(what_runs(build.folder, build.program, build.platform))
    return build
