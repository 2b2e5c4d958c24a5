"""A thousand false plans and certificates are checked: none may be accepted, none may crash the checker.

`python bench/false_certificates.py [--cases N] --json FILE`: the bundled example, in turn on each of four boards, on one of
them as an accelerator for each objective, changed as `proofs/false_certificates.py` says. Finished cases are kept in FILE.cases,
from which an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import platform
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from dovetail.cli.program import main as command_line
from lib.proofs.false_certificates import falsified

MODEL = Path(__file__).parents[1] / "examples" / "fashion" / "fashion.onnx"
PLANS = (("tx2", "latency", "--fold", "none"), ("tx2-c10gx", "energy", "--fold", "none"),
         ("ecp5-85", "throughput", "--fold", "none"),
         *(("zcu102", goal, "--architecture", "fibha", "--fill", "0.02") for goal in ("throughput", "latency", "energy")))
"""Board, objective, and what narrows the space."""


def command(*arguments: str) -> tuple[int, str]:
    """The exit code of a command, and the last line it says."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = command_line(arguments)
    return code, said.getvalue().strip().rsplit("\n", 1)[-1]


def main() -> int:
    """Check all cases and write the record."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", type=int, default=1000)
    arguments.add_argument("--json", type=Path, required=True)
    options = arguments.parse_args()
    kept = options.json.with_suffix(".cases")
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    with tempfile.TemporaryDirectory() as name:
        work, made = Path(name), []
        for board, goal, *narrowed in PLANS:
            plan, proof = work / f"{board}.json", work / f"{board}.cert"
            assert command("plan", str(MODEL), "-p", board, "--objective", goal, *narrowed, "-o", str(plan),
                           "--certificate", str(proof))[0] == 0, board
            code, said = command("check", str(plan), str(proof))
            assert code == 0, said
            made.append((plan.read_text(), proof.read_text()))
        for case in range(len(done), options.cases):
            what, plan_text, proof_text = falsified(*made[case % len(made)], case)
            (work / "plan.json").write_text(plan_text)
            (work / "plan.cert").write_text(proof_text)
            try:
                code, said = command("check", str(work / "plan.json"), str(work / "plan.cert"))
            except Exception as error:
                code, said = -1, repr(error)
            done.append({"case": case, "what": what, "code": code, "said": said[:200]})
            with kept.open("a") as out:
                out.write(json.dumps(done[-1]) + "\n")
            if case % 50 == 49:
                print(f"{case + 1} of {options.cases}", flush=True)
    codes = Counter(entry["code"] for entry in done)
    wrong = [e for e in done if e["code"] not in (1, 2)]
    record = {"cases": len(done), "accepted": codes[0], "crashed": codes[-1] + codes[3], "refused": codes[1] + codes[2],
              "by_claim": dict(Counter(e["what"] for e in done)), "wrong": wrong[:20],
              "date": datetime.now(UTC).date().isoformat(),
              "versions": f"Python {platform.python_version()}, {platform.machine()}",
              "command": f"python bench/false_certificates.py --cases {options.cases}"}
    options.json.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({k: v for k, v in record.items() if k != "by_claim"}))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
