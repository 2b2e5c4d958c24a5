"""A thousand damaged or hostile build folders are opened: no traceback, no file outside, no command run.

`python bench/mutated_builds.py [--cases N] [--seed S] [--work FOLDER] [--jobs N] --json FILE`.

Every case is a copy of the smallest build with one seeded change (`proofs/mutations.py`), opened by `run`, `report`, `export`
and `verify`; where hardware is described, also by `report --trust` and `export --trust`, which run nothing. Commands are forked
from one process that has loaded everything. Finished cases are kept in FILE.cases, from which an interrupted run goes on, and a
failed one tries again what went wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from dovetail import pipeline, terminal
from dovetail.cli import main as command_line
from dovetail.fpga.part import FpgaPart
from dovetail.fpga.toolchain.verilate import build as build_simulator
from dovetail.partition.plan import whole_on
from dovetail.runtime.build import load_build
from lib.proofs.mutations import mutate

CASES, SEED = 1000, 29
COMMAND_S = 120.0
MEMORY_BYTES = 12 << 30
RAISED = 99
HUNG = -int(signal.SIGALRM)
SECRET = "a secret that no command may read\n"


def smallest_model(path: Path) -> None:
    """A convolution of 3x3 over 4x4 pixels and a classifier, float, seeded."""
    rng = np.random.default_rng(SEED)
    weights = {"w": rng.normal(size=(2, 1, 3, 3)), "b": rng.normal(size=2),
               "v": rng.normal(size=(32, 2)), "c": rng.normal(size=2)}
    make = onnx.helper
    nodes = [make.make_node("Conv", ["x", "w", "b"], ["y"], name="conv", pads=[1, 1, 1, 1]), make.make_node("Relu", ["y"], ["r"]),
             make.make_node("Flatten", ["r"], ["f"], name="flat"), make.make_node("Gemm", ["f", "v", "c"], ["z"], name="fc")]
    graph = make.make_graph(
        nodes, "smallest", [make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1, 4, 4])],
        [make.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [1, 2])],
        [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()])
    path.write_bytes(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8).SerializeToString())


def prepare(work: Path) -> None:
    """The build that is copied, with every record a command leaves, and an input."""
    model, frames = work / "smallest.onnx", work / "x.npz"
    smallest_model(model)
    np.savez_compressed(frames, x=np.random.default_rng(1).random((1, 1, 4, 4), dtype=np.float32))
    nodes = {n.name: whole_on("fpga" if n.name == "conv" else "cpu") for n in pipeline.decide_numbers(model).graph.nodes}
    build = pipeline.compile(model, "tx2-c10gx", work / "base", assignment=nodes, calibration=frames, frames=1)
    assert {s.device for s in build.program.segments} == {"cpu", "fpga"}, terminal.plan_table(build.plan)
    (work / "base" / "synthesis.json").write_text(json.dumps({"schema": 1, "results": [{
        "device": "fpga", "segment": "fpga0", "family": "cyclone10gx", "tool": "Yosys 0.23", "resources": {"alm": 10.0},
        "notes": ["a note"]}]}), encoding="utf-8")
    (work / "base" / "power.json").write_text(json.dumps({"schema": 1, "results": [{
        "segment": "fpga0", "toggles_per_clock": 0.1, "activity": 0.1, "planned_activity": 0.1, "energy_low_j": 1e-6,
        "energy_high_j": 2e-6, "planned_energy_j": 1e-6, "source": "a source"}]}), encoding="utf-8")


def warm(work: Path) -> None:
    """Let this process load what every command would load again: modules, tools, tables of models."""
    target = work / "tmp" / "warm"
    shutil.copytree(work / "base", target, dirs_exist_ok=True)
    assert command_line(["report", str(target)]) == 0
    assert command_line(["export", str(target), "--vendor", "quartus", "-o", str(work / "tmp" / "project")]) == 0
    build = load_build(target)
    build_simulator([part.design for part in map(build.part, build.program.segments) if isinstance(part, FpgaPart)])
    for name in ("warm", "project"):
        shutil.rmtree(work / "tmp" / name)


def commands(case: Path, frames: Path, kind: str, index: int) -> dict[str, list[str]]:
    """What is run on a case."""
    build, vendor = str(case / "build"), ("quartus", "quartus", "vivado", "oss")[index % 4]
    found = {"run": ["run", build, "-i", str(frames), "-o", str(case / "out" / "y.npy")],
             "report": ["report", build],
             "export": ["export", build, "--vendor", vendor, "-o", str(case / "out" / "project")],
             "verify": ["verify", build, "--frames", "1"]}
    if kind in ("description", "path", "field"):
        found |= {"report --trust": ["report", build, "--trust"],
                  "export --trust": ["export", build, "--trust", "--vendor", vendor, "-o", str(case / "out" / "trusted")]}
    return found


def forked(arguments: list[str], cwd: Path, log: Path) -> int:
    """Exit code of a command in a child; RAISED where it raised, negative where a signal ended it."""
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        code = RAISED
        try:
            os.setsid()
            os.chdir(cwd)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            with log.open("w", encoding="utf-8", errors="replace") as output:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                try:
                    code = command_line(arguments)
                except SystemExit as end:
                    code = int(end.code or 0)
                except BaseException:
                    traceback.print_exc()
                sys.stdout.flush()
                sys.stderr.flush()
        finally:
            os._exit(code)
    while time.monotonic() - began < COMMAND_S:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return HUNG


def strays(area: Path, cache: Path, kinds: tuple[str, ...]) -> list[str]:
    """Files where none may be: beside build and output, outside, at home, and in the cache but for its `kinds` of results.

    A result is named by a digest of 64 digits.
    """
    found = [p for p in area.iterdir() if p.name not in AREA]
    found += [p for p in (area / "case").iterdir() if p.name not in ("build", "out", "cwd", "log", "moved")]
    found += [*(area / "case" / "cwd").iterdir(), *(area / "home").iterdir(), *(area / "tmp").iterdir()]
    found += [p for p in (area / "outside").iterdir() if p.name != "secret.txt"]
    found += [p for p in cache.iterdir() if p.name not in kinds and not p.match(".*.makers")]  # those are locks
    found += [p for kind in kinds for p in (cache / kind).glob("[!.]*") if len(p.name) != 64]
    said = [str(p) for p in found]
    if (area / "outside" / "secret.txt").read_text(encoding="utf-8") != SECRET:
        said.append("outside/secret.txt changed")
    copies = [p for p in (area / "case" / "out").rglob("*") if p.is_file() and SECRET.encode() in p.read_bytes()]
    return said + [f"{p} holds the secret" for p in copies]


AREA = {"case", "outside", "home", "tmp"}
"""What a worker's folder holds."""


def try_case(work: Path, area: Path, kinds: tuple[str, ...], index: int, seed: int) -> dict[str, Any]:
    """One mutated build through all commands."""
    case, canary = area / "case", area / "canary"
    shutil.rmtree(case, ignore_errors=True)
    for name in ("out", "cwd", "log"):
        (case / name).mkdir(parents=True)
    shutil.copytree(work / "base", case / "build")
    kind, change = mutate(case / "build", index, seed, canary, area / "outside")
    if (area / "moved").exists():
        shutil.move(area / "moved", case / "moved")
    record: dict[str, Any] = {"index": index, "kind": kind, "change": change, "codes": {}, "wrong": []}
    for name, arguments in commands(case, work / "x.npz", kind, index).items():
        log = case / "log" / name.replace(" ", "")
        code = forked(arguments, case / "cwd", log)
        said = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        record["codes"][name] = code
        if code == RAISED or "Traceback (most recent call last)" in said:
            record["wrong"].append(["traceback", name, said[-1500:]])
        elif code < 0:
            record["wrong"].append(["hang" if code == HUNG else "crash", name, said[-1500:]])
        elif code and not said.strip():
            record["wrong"].append(["silent", name, ""])
        if canary.exists():
            record["wrong"].append(["command", name, change])
            canary.unlink()
        record["wrong"] += [["outside", name, stray] for stray in strays(area, work / "cache", kinds)]
    return record


def work_on(indices: list[int], number: int, options: argparse.Namespace, journal: Path) -> None:
    """Go through some cases in a folder of this worker's own, with a line in the journal for each."""
    area = options.work / f"worker{number}"
    shutil.rmtree(area, ignore_errors=True)
    for name in AREA:
        (area / name).mkdir(parents=True)
    (area / "outside" / "secret.txt").write_text(SECRET, encoding="utf-8")
    os.environ |= {"HOME": str(area / "home"), "TMPDIR": str(area / "tmp")}
    tempfile.tempdir = None
    kinds = tuple(p.name for p in (options.work / "cache").iterdir())
    for index in indices:
        record = try_case(options.work, area, kinds, index, options.seed)
        with journal.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(record) + "\n")
        if record["wrong"]:
            print(f"{index}: {record['change']}: {[w[:2] for w in record['wrong']]}", file=sys.stderr, flush=True)


def summary(records: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    wrong = Counter(w[0] for r in records for w in r["wrong"])
    codes = Counter((name, "accepted" if code == 0 else "refused") for r in records for name, code in r["codes"].items())
    return {
        "command": "python bench/mutated_builds.py --json FILE", "date": time.strftime("%Y-%m-%d"),
        "cases": len(records), "seed": seed, "commands": sum(len(r["codes"]) for r in records),
        "tracebacks": wrong["traceback"], "crashes": wrong["crash"], "hangs": wrong["hang"], "silent_refusals": wrong["silent"],
        "files_outside": wrong["outside"], "commands_run": wrong["command"],
        "refused": sum(n for (_, how), n in codes.items() if how == "refused"),
        "accepted": sum(n for (_, how), n in codes.items() if how == "accepted"),
        "by_command": {name: {how: codes[name, how] for how in ("accepted", "refused")}
                       for name in sorted({n for n, _ in codes})},
        "by_kind": dict(sorted(Counter(r["kind"] for r in records).items())),
        "wrong": [{"index": r["index"], "kind": r["kind"], "change": r["change"], "wrong": r["wrong"]}
                  for r in records if r["wrong"]][:50],
        "versions": pipeline.versions() | {"onnxruntime": onnxruntime.__version__},
    }


def finished(journal: Path) -> list[dict[str, Any]]:
    """The last record of every case that was finished, by this run or one before it."""
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.is_file() else []
    return list({record["index"]: record for record in map(json.loads, lines)}.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="open mutated build folders")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "dovetail-mutated-builds")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1, help="cases at once")
    options = parser.parse_args()
    options.work = work = options.work.absolute()
    journal = options.json.with_name(options.json.name + ".cases")
    (work / "tmp").mkdir(parents=True, exist_ok=True)
    os.environ["DOVETAIL_CACHE"] = str(work / "cache")
    if not (work / "base" / "power.json").is_file():
        shutil.rmtree(work / "base", ignore_errors=True)
        prepare(work)
    warm(work)
    done = {r["index"] for r in finished(journal) if not r["wrong"]}
    left = [i for i in range(options.cases) if i not in done]
    workers = []
    for number in range(options.jobs):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work_on(left[number::options.jobs], number, options, journal)
                code = 0
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(code)
        workers.append(child)
    if any([os.waitpid(child, 0)[1] for child in workers]):
        return 2
    records = sorted(finished(journal), key=lambda r: int(r["index"]))
    found = summary(records, options.seed)
    options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: v for k, v in found.items() if isinstance(v, int)}, indent=1))
    bad = sum(found[k] for k in ("tracebacks", "crashes", "hangs", "silent_refusals", "files_outside", "commands_run"))
    if not bad:
        journal.unlink()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
