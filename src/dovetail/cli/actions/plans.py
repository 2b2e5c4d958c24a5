"""What commands that decide do: who computes what on a board."""

from __future__ import annotations

import argparse
import shlex
from contextlib import redirect_stderr
from dataclasses import asdict, replace
from io import StringIO

from dovetail import pipeline, terminal
from dovetail.api.results import ParetoFront, plan_rows
from dovetail.certificate.check import check
from dovetail.certificate.file import RefusedError, read
from dovetail.certify import certify, divided
from dovetail.cli.actions.requested import board as board_of
from dovetail.cli.actions.requested import board_and_planning, named_board, planning
from dovetail.cli.options import above_zero, shapes
from dovetail.cli.output import emit, progress_bar, warn
from dovetail.cli.program import parser
from dovetail.comparison import PlanComparison, read_side
from dovetail.errors import InfeasibleError, UsageError
from dovetail.files import check_file, check_folder, replace_bytes, replace_folder, replace_text
from dovetail.ir.onnx.write import to_onnx
from dovetail.numbers import graph_to_plan
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.scales import Scales
from dovetail.partition.pareto import front
from dovetail.partition.plan_json import front_to_json, plan_from_json, plan_to_json
from dovetail.planning import weighed
from dovetail.report.fronts import bits_page, front_svg
from dovetail.runtime.build import read_json
from dovetail.shown import check_table, write_table
from dovetail.widths import front_of_bits

BITS = "bits.json"
"""The file that tells a folder of `bits` from anything else."""


def plan_command(options: argparse.Namespace) -> int:
    """Run `dovetail plan`."""
    for file in filter(None, (options.output, options.certificate)):
        check_file(file)
    check_table(options.table)
    board, wanted = board_and_planning(options)
    with progress_bar() as progress:
        graph, notes = graph_to_plan(options.model, options.calibration, options.bits, shapes(options), progress,
                                     Equalise(options.equalise), Scales(options.scales))
        try:
            plan, _, space = weighed(graph, board, wanted, progress=progress)
        except InfeasibleError as error:
            if options.json is not None:
                emit(options.json, terminal.infeasible_plan(wanted.goal.value, options.solver, str(error)), str)
            raise
        plan = replace(plan, notes=(*plan.notes, *notes))
        proof = ""
        if options.certificate is not None:
            plan, proof = certify(graph, board, wanted, plan, space, shlex.join(options.arguments), progress)
    if options.json is not None:
        warn(notes)
    document = plan_to_json(plan, space.forms[space.best].platform)
    if options.output:
        replace_text(options.output, pipeline.dump(document))
    if options.certificate is not None:
        replace_text(options.certificate, proof)
    if options.table is not None:
        write_table(options.table, plan_rows(plan))
    emit(options.json, document, lambda: terminal.plan_table(plan))
    return 0


def check_command(options: argparse.Namespace) -> int:
    """Run `dovetail check`."""
    document = read_json(options.plan, "write one with `dovetail plan MODEL -o PLAN --certificate CERTIFICATE`")
    plan_from_json(document, str(options.plan))
    try:
        certificate = read(options.certificate.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{options.certificate}: cannot be read as a certificate ({error}); write one with `dovetail plan MODEL "
                         "-o PLAN --certificate CERTIFICATE`") from None
    asked = _asked(certificate.command)
    board, wanted = board_and_planning(asked)
    with progress_bar() as progress:
        graph, _ = graph_to_plan(options.model or asked.model, asked.calibration, asked.bits, shapes(asked), progress,
                                 Equalise(asked.equalise), Scales(asked.scales))
        platform = board.with_fill(wanted.fill).with_link_logic()
        verdict = check(document, certificate, graph, platform, divided(wanted.pinned(graph)), progress)
    emit(options.json, asdict(verdict) | {"gap": verdict.gap, "accepted": True}, lambda: terminal.checked(verdict))
    return 0


def _asked(command: str) -> argparse.Namespace:
    """The arguments of the command that made a plan, which is only read."""
    with redirect_stderr(StringIO()) as wrong:
        try:
            asked = parser().parse_args(shlex.split(command))
        except (SystemExit, ValueError):
            raise RefusedError(f"certificate, line 2: {wrong.getvalue().strip() or 'not a command'}") from None
    if asked.command != "plan":
        raise RefusedError(f"certificate, line 2: `dovetail {asked.command}` makes no plan")
    return asked


def compare_command(options: argparse.Namespace) -> int:
    """Run `dovetail compare`."""
    both = PlanComparison(read_side(options.first), read_side(options.second))
    emit(options.json, both.document(), lambda: str(both))
    return 0


def pareto_command(options: argparse.Namespace) -> int:
    """Run `dovetail pareto`."""
    if options.output:
        check_file(options.output)
    check_table(options.table)
    board, limit_s = named_board(options), above_zero("--time-limit", options.time_limit)
    with progress_bar() as progress:
        graph, notes = graph_to_plan(options.model, shapes=shapes(options), progress=progress)
        found = front(graph, board, options.points, point_limit_s=limit_s, progress=progress, areas=options.areas)
    if options.json is not None:
        warn(notes)
    found = replace(found, notes=(*found.notes, *notes))
    if options.output:
        replace_text(options.output, front_svg(found))
    if options.table is not None:
        write_table(options.table, ParetoFront(found).rows())
    emit(options.json, front_to_json(found), lambda: terminal.front_table(found))
    return 0


def bits_command(options: argparse.Namespace) -> int:
    """Run `dovetail bits`."""
    if options.output is not None:
        check_folder(options.output, BITS)
    with progress_bar() as progress:
        front, graph, notes = front_of_bits(
            options.model, options.data, board_of(options), planning(options), options.calibration, options.kinds.split(","),
            options.points, options.max_loss, options.also, shapes(options), progress)
    warn(notes)
    document = {**front.document(), "warnings": list(notes)}
    if options.output is not None:
        with replace_folder(options.output, BITS) as folder:
            replace_bytes(folder / "model.onnx", to_onnx(graph))
            replace_text(folder / "bits.html", bits_page(document))
            replace_text(folder / BITS, pipeline.dump(document))
    emit(options.json, document, lambda: terminal.bits_table(document))
    return 0
