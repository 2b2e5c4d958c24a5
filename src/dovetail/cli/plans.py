"""Commands that decide: which boards there are, and who computes what on one of them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from dovetail.cli.options import (
    Commands,
    above_zero,
    add_board,
    add_json,
    add_model,
    add_numbers,
    add_planning,
    add_saved_plan,
    board_and_planning,
    named_board,
    planning,
    refuse_unused,
    shapes,
)
from dovetail.cli.options import board as board_of
from dovetail.cli.output import emit, progress_bar, warn
from dovetail.errors import InfeasibleError
from dovetail.numerics.equalize import Equalise

BITS = "bits.json"
"""The file that tells a folder of `bits` from anything else."""


def add_commands(commands: Commands) -> None:
    """`platforms`, `plan`, `pareto`, `bits`."""
    platforms = commands.add("platforms", _platforms, "boards and devices with their budgets, every number with its source",
                             "dovetail platforms tx2-c10gx")
    platforms.add_argument("name", nargs="?", help="a board's name or TOML file; without it, all boards in one line each")
    platforms.add_argument("--models", action="store_true", help="the fitted models in place of boards: source, rows, error, box")
    add_json(platforms)

    plan = commands.add("plan", _plan, "decide which device computes which slice of which layer, with a proven bound",
                        "dovetail plan model.onnx -p tx2-c10gx --objective energy --max-latency-ms 5 --json -")
    add_model(plan)
    add_planning(plan)
    add_numbers(plan)
    add_saved_plan(plan)
    plan.add_argument("-o", "--output", type=Path, help="write the plan as JSON to this file")
    add_json(plan)

    pareto = commands.add("pareto", _pareto, "the fastest plan for every of several limits on energy, each with its proof",
                          "dovetail pareto model.onnx -p tx2-c10gx --points 20 -o front.svg")
    add_model(pareto)
    add_board(pareto)
    pareto.add_argument("--points", type=int, default=20, help="limits, evenly spread (default: %(default)s)")
    pareto.add_argument("--areas", type=int, default=1,
                        help="a front for each of so many parts of the FPGAs' area, such as 4 for quarters (default: all of it)")
    pareto.add_argument("--time-limit", type=float, default=12.0, metavar="S",
                        help="seconds to search for each point that is not proven sooner, counted in work, so that every machine "
                             "finds the same points (default: %(default)s)")
    pareto.add_argument("-o", "--output", type=Path, help="draw the front as SVG to this file")
    add_json(pareto)

    bits = commands.add("bits", _bits, "int8, int4 or codes, layer by layer: the measured front of accuracy, latency and area",
                        "dovetail bits model.onnx --data test.npz --calibration train.npz -p tx2-c10gx -o bits/model")
    add_model(bits)
    add_planning(bits)
    bits.add_argument("--calibration", type=Path, metavar="X.npz", help="samples under key 'x', one per row (default: synthetic)")
    bits.add_argument("--data", type=Path, required=True, metavar="X.npz", help="images under 'x', integer labels under 'y'")
    bits.add_argument("--kinds", default="int8,int4,lq2", metavar="LIST",
                      help="what layers may be: int2 to int8, and lq1 to lq4 for codes over fitted bases (default: %(default)s)")
    bits.add_argument("--points", type=int, default=12, help="joint choices to measure (default: %(default)s)")
    bits.add_argument("--max-loss", type=float, default=0.01, metavar="F",
                      help="right answers that the chosen model may lose against int8, as a fraction (default: %(default)s)")
    bits.add_argument("--also", action="append", default=[], type=Path, metavar="MODEL",
                      help="a quantized model of the same task, such as a trained one, measured beside; repeatable")
    bits.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder for the chosen model.onnx, bits.html, bits.json")
    add_json(bits)


def _platforms(options: argparse.Namespace) -> int:
    from dovetail.platform.describe import describe
    from dovetail.platform.load import example_of, load_platform, platform_names, platform_to_dict
    if options.models:
        refuse_unused("platforms --models", {options.name: options.name}, "leave it out, or leave out --models")
        from dovetail.platform.model_list import model_list, model_list_table
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


def _plan(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    from dovetail.files import check_file, replace_text
    from dovetail.numbers import graph_to_plan
    from dovetail.partition.plan_json import plan_to_json
    from dovetail.planning import decide
    if options.output:
        check_file(options.output)
    board, wanted = board_and_planning(options)
    with progress_bar() as progress:
        graph, notes = graph_to_plan(options.model, options.calibration, options.bits, shapes(options), progress,
                                     Equalise(options.equalise))
        try:
            plan, _, board = decide(graph, board, wanted, progress=progress)
        except InfeasibleError as error:
            if options.json is not None:
                emit(options.json, terminal.infeasible_plan(wanted.goal.value, options.solver, str(error)), str)
            raise
    if options.json is not None:
        warn(notes)
    plan = replace(plan, notes=(*plan.notes, *notes))
    document = plan_to_json(plan, board)
    if options.output:
        replace_text(options.output, pipeline.dump(document))
    emit(options.json, document, lambda: terminal.plan_table(graph, plan))
    return 0


def _pareto(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    from dovetail.files import check_file, replace_text
    from dovetail.numbers import graph_to_plan
    from dovetail.partition.plan_json import front_to_json
    from dovetail.planning import Options
    from dovetail.report.front import front_svg
    if options.output:
        check_file(options.output)
    board, limits = named_board(options), Options(time_limit_s=above_zero("--time-limit", options.time_limit))
    with progress_bar() as progress:
        graph, notes = graph_to_plan(options.model, shapes=shapes(options), progress=progress)
        front = pipeline.make_front(graph, board, options.points, limits, progress, options.areas)
    if options.json is not None:
        warn(notes)
    front = replace(front, notes=(*front.notes, *notes))
    if options.output:
        replace_text(options.output, front_svg(front))
    emit(options.json, front_to_json(front), lambda: terminal.front_table(front))
    return 0


def _bits(options: argparse.Namespace) -> int:
    from dovetail import pipeline, terminal
    from dovetail.files import check_folder, replace_bytes, replace_folder, replace_text
    from dovetail.ir.onnx.write import to_onnx
    from dovetail.report.bits import bits_page
    from dovetail.widths import front_of_bits
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
