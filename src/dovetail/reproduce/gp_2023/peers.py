"""Table 1 of GP partitioning 2023: the works it compares itself with, their methods run on the same networks and board.

The works' own gains were measured on clusters of small processors. Here every method plans the same networks for the paper's
board, and one evaluator judges all of them. Times are those of the processor, prices of layers included, on the machine at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np

from dovetail import zoo
from dovetail.ir import AvgPool, Constant, Conv, Gemm, Graph, Node, Op, Reshape, Tensor, Window
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.effort import counted
from dovetail.partition.evaluate import evaluate
from dovetail.partition.explain.baselines import balanced, greedy, single
from dovetail.partition.geometric.paper import solve_paper
from dovetail.partition.geometric.solver import gp
from dovetail.partition.options import PROOF
from dovetail.partition.peers.dynamic import dp
from dovetail.partition.peers.linear import ilp, lp
from dovetail.partition.peers.min_cut import min_cut
from dovetail.partition.peers.work_stealing import work_stealing
from dovetail.partition.plan import Assignment, Goal
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.pipeline import graph_to_plan
from dovetail.platform.device import Kind, Platform
from dovetail.progress import Progress
from dovetail.terminal import table

PRINTED_SOLVE_S = 0.2
"""Caption of Figure 3: "less than a couple of hundred of milliseconds" for the single layer."""
DEPTHS = (5, 10, 20, 40)
"""Layers of the chains that show growth."""
COMPARED = ("alexnet", "vgg16", "resnet18", "googlenet", "mobilenet-v1", "yolov2", "lenet")
"""Networks of Table 1."""


@dataclass(frozen=True, slots=True)
class ComparedWork:
    """A row of Table 1: the solver that stands for its method, and per network the gain as printed; `of` says of what."""

    work: str
    solver: str
    printed: Mapping[str, str]
    of: str = "latency"


TABLE_1 = (
    ComparedWork("Zhao et al. [5]", "work-stealing", {"yolov2": "1.7–3.5"}),
    ComparedWork("de Oliveira and Borin [2]", "min-cut", {"lenet": "1.8"}),
    ComparedWork("Stahl et al. [6]", "ilp", {"yolov2": "1.15"}),
    ComparedWork("Zhou et al. [25]", "dp", {"yolov2": "1.5–3.4", "vgg16": "1.1–2.3"}),
    ComparedWork("Stahl et al. [8]", "ilp", {"yolov2": "up to 2.8", "alexnet": "up to 1.2", "vgg16": "up to 2.4",
                                             "googlenet": "up to 1.7"}),
    ComparedWork("Zeng et al. [26]", "lp", {"alexnet": "0.66", "vgg16": "0.64", "googlenet": "0.46", "mobilenet-v1": "0.25"},
                 of="energy"),
    ComparedWork("This", "gp-paper", {"alexnet": "3.1–5.7", "vgg16": "2.8–6.4", "resnet18": "2.8–6.3"}),
)
"""The text gives [5] 1.7 to 2.5, and VGG16 for [25]. [26] prints what is left of the energy."""

Method = Callable[[Problem], Assignment | None]
METHODS: dict[str, Method] = {
    "ilp": ilp, "lp": lp, "dp": dp, "min-cut": min_cut, "work-stealing": work_stealing, "balanced": balanced, "greedy": greedy,
    "gp-paper": lambda problem: solve_paper(problem)[1], "gp": lambda problem: _searched(problem)}
"""Solver name to what it does before a bound is sought. `balanced` is the even split."""
NO_GROWTH = ("gp",)
"""Methods that take as long as they are given."""


def _searched(problem: Problem) -> Assignment | None:
    with counted(PROOF.time_limit_s):
        found, _ = gp(problem, PROOF.time_limit_s)
    return found[0] if found else None


def chain(layers: int) -> Graph:
    """3x3 convolutions of 32 channels on 28x28 pixels: more than the FPGA holds, so a budget binds."""
    return _in_a_row("chain", (1, 32, 28, 28), [Conv(32, Window((3, 3), pads=(1, 1, 1, 1)))] * layers)


def lenet() -> Graph:
    """LeNet-5 (LeCun et al. 1998) at 32x32 pixels, its third layer fully connected over maps, without activations."""
    pool = AvgPool(Window((2, 2), (2, 2)))
    return _in_a_row("lenet", (1, 1, 32, 32), [Conv(6, Window((5, 5))), pool, Conv(16, Window((5, 5))), pool,
                                               Conv(120, Window((5, 5))), Reshape((1, 120)), Gemm(84), Gemm(10)])


def _in_a_row(name: str, shape: tuple[int, ...], ops: Sequence[Op]) -> Graph:
    """Operators one after another, with seeded weights and biases of zero."""
    rng, at = np.random.default_rng(0), Tensor("x", shape)
    tensors, nodes, constants = {"x": at}, list[Node](), dict[str, Constant]()
    for i, op in enumerate(ops):
        params = [Constant(f"{role}{i}", (rng.normal(0, 1, size) if len(size) > 1 else np.zeros(size)).astype(np.float32))
                  for role, size in zip("wb", op.param_shapes((at.shape,)), strict=False)]
        made = Tensor(f"t{i}", op.infer((at.shape,)))
        nodes.append(Node(f"layer{i}", op, (at.name,), tuple(c.name for c in params), made.name))
        at, tensors[made.name] = made, made
        constants |= {c.name: c for c in params}
    return Graph(name, ("x",), (at.name,), tuple(nodes), tensors, constants)


def _network(name: str, size: int | None) -> Graph:
    if name == "lenet":
        return lenet()
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(zoo.build(name, size=size))
        return graph_to_plan(path)[0]


def compared(graph: Graph, board: Platform, methods: Sequence[str] = tuple(METHODS)) -> list[dict[str, Any]]:
    """Every method on one network: its time, its plan's latency, distance to the proven optimum and gain over the CPU alone.

    The first row is the exact search itself, baselines and proof included.
    """
    start = process_time()
    best = plan(graph, board, replace(PROOF, explained=False))
    rows: list[dict[str, Any]] = [{"solver": "exact", "solve_s": process_time() - start, "latency_s": best.objective,
                                   "gap": 0.0, "proven_gap": best.gap}]
    for name in methods:
        problem = Problem(graph, board, DeviceCosts())
        start = process_time()
        found = METHODS[name](problem)
        seconds = process_time() - start
        judged = evaluate(problem, found) if found is not None else None
        latency = judged.objective if judged is not None and judged.feasible else None
        rows.append({"solver": name, "solve_s": seconds, "latency_s": latency,
                     "gap": None if latency is None else latency / best.objective - 1})
    problem = Problem(graph, board, DeviceCosts())
    alone = single(problem, Kind.CPU)
    cpu_s = evaluate(problem, alone).latency_s if alone is not None else float("inf")
    gains = [cpu_s / row["latency_s"] if row["latency_s"] and isfinite(cpu_s) else None for row in rows]
    return [{**row, "gain_over_cpu": gain} for row, gain in zip(rows, gains, strict=True)]


def _energy_ratio(graph: Graph, board: Platform, solver: str) -> float | None:
    """Energy of a method's plan over that of the CPU alone."""
    problem = Problem(graph, board, DeviceCosts(), Goal.ENERGY)
    found, alone = METHODS[solver](problem), single(problem, Kind.CPU)
    return None if found is None or alone is None else evaluate(problem, found).energy_j / evaluate(problem, alone).energy_j


def reproduce(board: Platform, progress: Progress = lambda *_: None, networks: Sequence[str] = COMPARED,
              depths: Sequence[int] = DEPTHS, size: int | None = None) -> dict[str, Any]:
    """Methods by network, growth with depth, and Table 1 with our column; `size` of images is the network's own by default."""
    METHODS["lp"](Problem(chain(2), board, DeviceCosts()))  # loads what all of them need
    methods, energy = list[dict[str, Any]](), dict[str, float | None]()
    saving = next(w for w in TABLE_1 if w.of == "energy")
    for i, name in enumerate(networks):
        progress(f"gp-2023: Table 1's methods, {name}", i, len(networks))
        graph = _network(name, size)
        methods += [{"network": name, "nodes": len(graph.nodes), **row} for row in compared(graph, board)]
        if name in saving.printed:
            energy[name] = _energy_ratio(graph, board, saving.solver)
    growth = []
    for i, depth in enumerate(depths):
        progress(f"gp-2023: chains, {depth} layers", i, len(depths))
        growth += [{"layers": depth, **row} for row in compared(chain(depth), board, [m for m in METHODS if m not in NO_GROWTH])]
    ours = {(row["network"], row["solver"]): row for row in methods}
    rows = [{"work": w.work, "solver": w.solver, "network": name, "printed": printed, "of": w.of,
             "ours": energy.get(name) if w is saving else ours.get((name, w.solver), {}).get("gain_over_cpu")}
            for w in TABLE_1 for name, printed in w.printed.items()]
    return {"methods": methods, "growth": growth, "table_1": rows, "printed_solve_s": PRINTED_SOLVE_S}


def text(found: Mapping[str, Any]) -> list[str]:
    """The three tables as lines."""
    def ms(value: float) -> str:
        return f"{value * 1e3:,.0f}"

    def part(value: float | None) -> str:
        return "no plan" if value is None else f"{value:.1%}"

    def times(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    depths = list(dict.fromkeys(row["layers"] for row in found["growth"]))
    solvers = list(dict.fromkeys(row["solver"] for row in found["growth"]))
    cell = {(row["solver"], row["layers"]): row for row in found["growth"]}
    return [
        "Table 1's methods on the same networks: milliseconds of computing, and how far the plan is above the exact one "
        f"(the paper's single layer: less than {found['printed_solve_s'] * 1e3:.0f} ms); gp may cut where the optimum's proof "
        "has no candidate",
        table(["network", "nodes", "solver", "ms", "above optimum", "gain over CPU"],
              [[r["network"], str(r["nodes"]), r["solver"], ms(r["solve_s"]), part(r["gap"]), times(r["gain_over_cpu"])]
               for r in found["methods"]], (1, 3, 4, 5)), "",
        "The same on chains of equal convolutions: milliseconds (above the optimum)",
        table(["solver", *(f"{d} layers" for d in depths)],
              [[s, *(f"{ms(cell[s, d]['solve_s'])} ({part(cell[s, d]['gap'])})" for d in depths)] for s in solvers],
              range(1, len(depths) + 1)), "",
        "Table 1, gains as printed on the works' own platforms, and of the same method on this board over its CPU alone; "
        "energy is what is left of it",
        table(["work", "solver", "network", "of", "printed", "ours"],
              [[r["work"], r["solver"], r["network"], r["of"], r["printed"], times(r["ours"])] for r in found["table_1"]],
              (4, 5)), ""]
