"""The new solver is offered, and its plan judged like everybody's."""

import json
import sys
from pathlib import Path

from dovetail.cli import main

assert main(["plan", sys.argv[1], "-p", "tx2", "--solver", "host-alone", "--json", "plan.json"]) == 0
plan = json.loads(Path("plan.json").read_text(encoding="utf-8"))
assert plan["solver"] == "host-alone"
assert plan["objective"] > plan["lower_bound"], "judged by the evaluator, not by the solver"
