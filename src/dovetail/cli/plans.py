"""Commands that decide: which boards there are, and who computes what on one of them."""

from __future__ import annotations

from pathlib import Path

from dovetail.cli import options


def add_commands(commands: options.Commands) -> None:
    """`platforms`, `plan`, `check`, `compare`, `pareto`, `explore`, `bits`, `studio`."""
    platforms = commands.add("platforms", "boards and devices with their budgets, every number with its source",
                             "dovetail platforms tx2-c10gx")
    platforms.add_argument("name", nargs="?", help="a board's name or TOML file; without it, all boards in one line each")
    platforms.add_argument("--models", action="store_true", help="the fitted models in place of boards: source, rows, error, box")

    plan = commands.add("plan", "decide which device computes which slice of which layer, with a proven bound",
                        "dovetail plan model.onnx -p tx2-c10gx --objective energy --max-latency-ms 5 --json -")
    options.add_model(plan)
    options.add_planning(plan)
    options.add_numbers(plan)
    options.add_saved_plan(plan)
    plan.add_argument("-o", "--output", type=Path, help="write the plan as JSON to this file")
    options.add_table(plan)
    plan.add_argument("--certificate", type=Path, metavar="FILE",
                      help="write a proof of the bound to this file, which `dovetail check` verifies without "
                           "the planner; the plan then states the bound that is proven in it")

    check = commands.add("check", "verify a plan and the certificate of its bound, without the planner",
                         "dovetail check plan.json plan.cert")
    check.add_argument("plan", type=Path, help="a file of `dovetail plan -o`")
    check.add_argument("certificate", type=Path, help="the file of its --certificate")
    check.add_argument("--model", type=Path, help="where the model is now (default: where it was planned from)")

    compare = commands.add("compare", "what differs between two plans or builds: figures, layers that moved, resources",
                           "dovetail compare plan.json build/model --json -")
    compare.add_argument("first", type=Path, help="a file of `dovetail plan -o`, or a build folder")
    compare.add_argument("second", type=Path, help="another one")

    pareto = commands.add("pareto", "the fastest plan for every of several limits on energy, each with its proof",
                          "dovetail pareto model.onnx -p tx2-c10gx --points 20 -o front.svg")
    options.add_model(pareto)
    options.add_board(pareto)
    pareto.add_argument("--points", type=int, default=20, help="limits, evenly spread (default: %(default)s)")
    pareto.add_argument("--areas", type=int, default=1,
                        help="a front for each of so many parts of the FPGAs' area, such as 4 for quarters (default: all of it)")
    pareto.add_argument("--time-limit", type=float, default=12.0, metavar="S",
                        help="seconds to search for each point that is not proven sooner, counted in work, so that every machine "
                             "finds the same points (default: %(default)s)")
    pareto.add_argument("-o", "--output", type=Path, help="draw the front as SVG to this file")
    options.add_table(pareto)

    explore = commands.add("explore", "networks × boards × bits × objectives, on one machine or many",
                           "dovetail explore space.toml --workers 4 -o space.html --table space.csv")
    explore.add_argument("space", type=Path, metavar="SPACE.toml", help="what is explored (docs/guide/exploring.md)")
    explore.add_argument("--workers", type=int, default=1, metavar="N",
                         help="processes, as far as memory has room for their jobs; with --cluster, workers to wait for "
                              "(default: %(default)s)")
    explore.add_argument("--cluster", metavar="ADDRESS", help="compute on the workers of this Dask scheduler, such as "
                         "tcp://10.0.0.1:8786; 'local' starts N of them here")
    explore.add_argument("--store", type=Path, metavar="FILE",
                         help="results, each kept as soon as it is known; another run computes what is missing (default: in "
                              "the cache)")
    explore.add_argument("-o", "--output", type=Path, metavar="FILE", help="draw fronts, and what choices change, as HTML")
    options.add_table(explore)

    bits = commands.add("bits", "int8, int4 or LQ codes, layer by layer: the measured front of accuracy, latency and area",
                        "dovetail bits model.onnx --data test.npz --calibration train.npz -p tx2-c10gx -o bits/model")
    options.add_model(bits)
    options.add_planning(bits)
    bits.add_argument("--calibration", type=Path, metavar="X.npz", help="samples under key 'x', one per row (default: synthetic)")
    bits.add_argument("--data", type=Path, required=True, metavar="X.npz", help="images under 'x', integer labels under 'y'")
    bits.add_argument("--kinds", default="int8,int4,lq2", metavar="LIST",
                      help="what layers may be: int2 to int8, and lq1 to lq4 for LQ codes (default: %(default)s)")
    bits.add_argument("--points", type=int, default=12, help="joint choices to measure (default: %(default)s)")
    bits.add_argument("--max-loss", type=float, default=0.01, metavar="F",
                      help="right answers that the chosen model may lose against int8, as a fraction (default: %(default)s)")
    bits.add_argument("--also", action="append", default=[], type=Path, metavar="MODEL",
                      help="a quantized model of the same task, such as a trained one, measured beside; repeatable")
    bits.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder for the chosen model.onnx, bits.html, bits.json")

    studio = commands.add("studio", "a page on this machine that plans while you change the question",
                          "dovetail studio model.onnx")
    studio.add_argument("model", nargs="?", type=Path, help="an ONNX file to begin with; others can be dropped onto the page")
    studio.add_argument("--port", type=int, default=8090, help="0 takes a free one (default: %(default)s)")
    studio.add_argument("--open", action="store_true", help="open the page in the browser")
