"""The new board is listed, and a network is planned on it."""

import json
import sys
from pathlib import Path

from dovetail.cli import main

assert main(["plan", sys.argv[1], "-p", "bench-top", "--json", "plan.json"]) == 0
assert json.loads(Path("plan.json").read_text(encoding="utf-8"))["platform"]["name"] == "bench-top"
