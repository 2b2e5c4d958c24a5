"""Which constants of the planner matter: each is halved and doubled, and six plans are made anew.

`python bench/constants.py [--only TEXT] [--json FILE]` prints for every scalar constant of `dovetail.partition` the plans whose
objective or bound changes; boards, accelerators and geometric programs are left aside. Docstrings that name a range of values
quote it. What FILE holds is not tried again.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from dovetail import partition
from dovetail.files import replace_text
from dovetail.ir import Graph
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal
from dovetail.partition.solve import plan
from dovetail.platform.load import load_platform
from lib.parts import held
from lib.zoo_graph import network

CASES = (("resnet18", "tx2-c10gx", Goal.LATENCY, 4.0), ("squeezenet1.1", "tx2-c10gx", Goal.THROUGHPUT, 2.0),
         ("mobilenet-v2", "tx2-c10gx", Goal.LATENCY, 4.0), ("googlenet", "tx2-c10gx", Goal.LATENCY, 1.0),
         ("squeezenet1.1", "zcu102", Goal.ENERGY, 4.0), ("alexnet", "tx2-c10gx", Goal.EDP, 2.0))
"""Network, board, goal, and seconds of work that the search may take."""
ASIDE = ("boards", "accelerator", "geometric")


def constants() -> Iterator[tuple[list[ModuleType], str, float]]:
    """Modules that hold a constant (its own, then those that import it), its name and its value."""
    root = Path(partition.__path__[0])
    trees = {".".join(("dovetail.partition", *p.relative_to(root).with_suffix("").parts)): ast.parse(p.read_text())
             for p in sorted(root.rglob("*.py")) if p.name != "__init__.py" and p.parent.name not in ASIDE}
    for module, tree in trees.items():
        for line in tree.body:
            name = line.targets[0].id if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name) else ""
            value = getattr(importlib.import_module(module), name, None) if name.isupper() else None
            if isinstance(value, int | float) and value:
                users = [m for m, other in trees.items() if any(isinstance(n, ast.ImportFrom) and n.module == module and any(
                    a.name == name for a in n.names) for n in other.body)]
                yield [importlib.import_module(m) for m in (module, *users)], name, value


def plans(graphs: dict[str, Graph]) -> dict[str, tuple[float, float]]:
    """Objective and bound of every case."""
    found = {}
    for name, board, goal, limit_s in CASES:
        made = plan(graphs[name], load_platform(board), replace(PROOF, goal=goal, time_limit_s=limit_s, off_grid=True,
                                                                 explained=False))
        found[f"{name} on {board}, {goal}"] = (made.objective, made.lower_bound)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="constants whose module or name contains this")
    parser.add_argument("--json", type=Path, help="what came out, kept and continued")
    options = parser.parse_args()
    found = held(options.json, resume=True)
    graphs = {name: network(name) for name, *_ in CASES}
    before = plans(graphs)
    for modules, name, value in constants():
        called = f"{modules[0].__name__}.{name}"
        for factor in (0.5, 2.0) if options.only in called else ():
            if f"{called} x {factor:g}" in found:
                continue
            other = max(1, round(value * factor)) if isinstance(value, int) else value * factor
            for module in modules:
                setattr(module, name, other)
            after = plans(graphs)
            for module in modules:
                setattr(module, name, value)
            changed = [case for case, plan_found in after.items() if plan_found != before[case]]
            print(f"{called} {value} -> {other}: {', '.join(changed) or 'no change'}", flush=True)
            found[f"{called} x {factor:g}"] = {"value": value, "tried": other, "changed": changed}
            if options.json:
                replace_text(options.json, json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
