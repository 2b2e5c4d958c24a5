"""Random ONNX models from a grammar, random plans of them, and damaged files, by the thousands: no wrong number, no traceback.

`python bench/random_models.py [--part integers|plans|damaged] [--cases N] [--workers 2] [--cluster ADDRESS] --json FILE`.
`integers`: floats equal those of ONNX Runtime within 0.1 % of the largest; integers equal ONNX Runtime's on the exported QDQ
model, and those of that model read again. `plans`: every node on any device, split anywhere, on a board drawn too; the build in
its folder is read again and verified over two frames, RTL in Verilator, GPU parts in Triton's interpreter. `damaged`: models,
boards, samples, plans, TFLite files and requests with changed nodes, fields or bytes are read or refused in one line, within
10 s of processor time. Cases are numbered, a number is a seed, and FILE is gone on from, with what was wrong in it; `--first`
and `--cases` choose others.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dovetail.fpga.toolchain.tools import GIBIBYTE
from lib import random_cases
from lib.campaigns import add_arguments, job, run
from lib.random_cases import PARTS, some

DEFAULTS = {"integers": 20_000, "plans": 500, "damaged": 100_000}
"""Cases of a part unless told."""
CHUNK = {"integers": 20, "plans": 1, "damaged": 500}
"""Cases that a process is given at once."""
KEEP_S = 10.0
"""Seconds between two writings of the file."""


def campaign(part: str, first: int, cases: int, options: argparse.Namespace, record: dict[str, Any],
             keep: Callable[[], None]) -> None:
    """Run the cases that the record lacks, after those that were wrong; ends of cases are counted, and what is wrong is named."""
    record.update({"first": first, "outcomes": record.get("outcomes", {}), "wrong": record.get("wrong", []),
                   "mended": record.get("mended", []), "cases": record.get("cases", 0)})
    _try_again(part, record)
    counts, began, kept = Counter(record["outcomes"]), time.monotonic(), time.monotonic()
    before, start, early = record.get("wall_s", 0.0), first + record["cases"], dict[int, Mapping[str, Any]]()

    def take(label: str, result: Mapping[str, Any]) -> None:
        """Count results in the order of their cases, so that a run that is stopped goes on behind the last one."""
        nonlocal kept
        early[int(label)] = result
        while (found := early.pop(first + record["cases"], None)) is not None:
            counts.update(kind for _, kind, _ in found["cases"])
            record["wrong"] += [{"case": number, "ended": kind, "what": what} for number, kind, what in found["cases"]
                                if kind in random_cases.WRONG]
            record.update({"cases": record["cases"] + len(found["cases"]), "outcomes": dict(sorted(counts.items())),
                           "memory_mb": max(found["memory_mb"], record.get("memory_mb", 0)),
                           "wall_s": before + time.monotonic() - began})
        if time.monotonic() - kept > KEEP_S:
            kept = time.monotonic()
            keep()
            print(f"{part}: {record['cases']} of {cases}, {len(record['wrong'])} wrong", flush=True)

    chunks = [(n, min(CHUNK[part], first + cases - n)) for n in range(start, first + cases, CHUNK[part])]
    failed = run([job(some, str(n), 2 * GIBIBYTE, part=part, first=n, count=count) for n, count in chunks], options, take)
    for n, count in chunks:
        if (problem := failed.get(str(n))) is not None:
            take(str(n), {"cases": [(number, "died", problem) for number in range(n, n + count)], "memory_mb": 0})


def _try_again(part: str, record: dict[str, Any]) -> None:
    """Cases that were wrong in an earlier run: what is right now has been mended, and the record says so."""
    counts, wrong = Counter(record["outcomes"]), []
    for old in record["wrong"]:
        ((_, kind, what),) = some({"part": part, "first": old["case"], "count": 1}, {})["cases"]
        counts[old["ended"]] -= 1
        counts[kind] += 1
        if kind in random_cases.WRONG:
            wrong.append({"case": old["case"], "ended": kind, "what": what})
        else:
            record["mended"].append(old)
    record.update({"wrong": wrong, "outcomes": dict(sorted((+counts).items()))})


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--part", choices=PARTS, action="append", help="only this; repeatable")
    usual = ", ".join(f"{count:,} {part}" for part, count in DEFAULTS.items())
    arguments.add_argument("--cases", type=int, help=f"of each part (default: {usual})")
    arguments.add_argument("--first", type=int, default=0, help="number of the first case")
    add_arguments(arguments, 2)
    arguments.add_argument("--json", type=Path, required=True)
    options = arguments.parse_args()
    document = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}

    def keep() -> None:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    for part in options.part or PARTS:
        record = document.setdefault(part, {})
        if record.get("first", options.first) != options.first:
            sys.exit(f"{options.json}: {part} begins at {record['first']}, not {options.first}; name another file")
        campaign(part, options.first, options.cases or DEFAULTS[part], options, record, keep)
        record.update({"date": datetime.now(UTC).date().isoformat(), "versions": f"Python {platform.python_version()}, "
                       f"{platform.machine()}", "command": f"python bench/random_models.py --part {part} --json FILE",
                       "status": "missed" if record["wrong"] else "ok"})
        keep()
        print(f"{part}: {record['cases']} cases, {record['outcomes']}, {len(record['wrong'])} wrong", *record["wrong"], sep="\n",
              flush=True)
    return 1 if any(document[part]["wrong"] for part in options.part or PARTS) else 0


if __name__ == "__main__":
    sys.exit(main())
