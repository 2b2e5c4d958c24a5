#!/usr/bin/env python3
"""Let a compile meet faults at every place: calls that fail, a full disk, no memory, signals, company, a spoilt cache.

| part | what happens |
|---|---|
| `calls` | the n-th write, fsync, rename, mkdir, fork or new file fails, for every n; at random ones the compile is killed |
| `full` | from the n-th such call on all fail, as on a full disk, for every n |
| `allocations` | one allocation of memory is refused, at seeded places |
| `together` | two compiles make one output with one empty cache at the same time |
| `cache` | a file of the cache is cut, changed, emptied or removed |

After each: the exit code says so in one sentence, the output is absent, the former one or whole, and a further compile is whole.
A refused allocation may end the process by a signal where a library of C++ asked; that is counted. FILE is gone on from.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from dovetail import pipeline, planning, terminal
from dovetail.cli import main as command_line
from dovetail.cli.actions import builds
from dovetail.files import replace_text
from dovetail.ir.onnx.write import to_onnx
from lib.parts import held
from lib.peers.layers import CASES, integer_network

LIBRARY = Path(__file__).parent / "lib" / "failing_calls.c"
ARMED = "DOVETAIL_FAULTS_LIBRARY"
"""Names the library to a process that was started with it."""
LOADED = (pipeline, planning, terminal, builds)
"""Imported before anything fails, so that every fork does its work alone."""
ERRORS = (errno.ENOSPC, errno.EIO)
"""What calls fail with, in turn."""
COUNTS = re.compile(r"calls (\d+) (\d+)\n\Z")
"""What a child writes last."""
TIMED = "verification.json"
"""The file of a build that holds the simulator's speed."""
SEED = 7
OWN_FAULT = 70
"""Exit code of a compile that ended in a traceback."""
RERUN = 5
"""Of so many failed compiles one is followed by a further compile; of those that a signal ended, every one is."""
SPOILT = {"cut": lambda b: b[: len(b) // 2], "changed": lambda b: b[:-1] + bytes([b[-1] ^ 1]), "emptied": lambda b: b"",
          "removed": None}
"""What becomes of a file's bytes; None: there is no file any more."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a compile: the calls of a kind are counted, and the `n`-th is met."""

    kind: str = ""
    n: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.n}"

    def arm(self, library: ctypes.CDLL) -> None:
        """Let the calls of this process meet it."""
        fails, killed, refused = (ctypes.c_long(self.n if self.kind in kinds else 0)
                                  for kinds in (("fail", "full"), ("kill",), ("allocation",)))
        full = self.kind == "full"
        library.fault_arm_allocation(refused)
        library.fault_arm(fails, killed, errno.ENOSPC if full else ERRORS[self.n % len(ERRORS)], int(full))


NONE = Fault()


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one compile: its exit code (negative: a signal), what it said, and how many calls it made."""

    code: int
    said: str
    calls: int = 0
    allocations: int = 0


def build_library(folder: Path) -> Path:
    """The library that lets calls fail."""
    made = folder / "failing_calls.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(made), str(LIBRARY), "-ldl"], check=True)
    return made


def in_child(arguments: Sequence[str], fault: Fault = NONE, others: int = 0) -> list[Trial]:
    """Run a command in forks of this process, one that meets the fault and so many `others` beside it."""
    library, children = ctypes.CDLL(os.environ[ARMED]), []
    for one in (fault, *[NONE] * others):
        said = os.memfd_create("said")
        child = os.fork()
        if child == 0:
            _command(library, said, arguments, one)
        children.append((child, said))
    return [_ended(child, said) for child, said in children]


def _ended(child: int, said: int) -> Trial:
    """Wait for a child, and read what it wrote."""
    _, status = os.waitpid(child, 0)
    with os.fdopen(said, "rb") as stream:
        stream.seek(0)
        text = stream.read().decode(errors="replace")
    code, counts = os.waitstatus_to_exitcode(status), COUNTS.search(text)
    return Trial(code, text) if counts is None else Trial(code, text[: counts.start()], int(counts[1]), int(counts[2]))


def _command(library: ctypes.CDLL, said: int, arguments: Sequence[str], fault: Fault) -> None:
    """Run the command and end this process."""
    text, code = io.StringIO(), OWN_FAULT
    os.dup2(said, 2)  # what libraries and the interpreter say when they give up
    with redirect_stderr(text), redirect_stdout(io.StringIO()):
        try:
            fault.arm(library)
            code = command_line(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException as error:
            print(f"TRACEBACK {type(error).__name__}: {error}", file=text)
        finally:
            calls, allocations = library.fault_count(), library.fault_allocations()
            NONE.arm(library)
    os.write(said, f"{text.getvalue()}calls {calls} {allocations}\n".encode())
    os._exit(code)


def tree(folder: Path) -> dict[str, str]:
    """Every file of a folder by its digest; where it holds measured times, by its being there."""
    return {str(p.relative_to(folder)): "" if p.name == TIMED else hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file()} if folder.exists() else {}


class Compile:
    """A compile of one model, with all that it should come to."""

    def __init__(self, folder: Path, command: Callable[[Path], list[str]]) -> None:
        self.folder, self.command, self.output = folder, command, folder / "out" / "build"
        self.cache = folder / "cache"
        os.environ["DOVETAIL_CACHE"] = str(self.cache)
        self.output.parent.mkdir(parents=True)
        self.run()
        self.whole = tree(self.output)
        self.forget()
        self.first = self.run()
        if tree(self.output) != self.whole:
            raise SystemExit("two compiles differ")

    def run(self) -> Trial:
        """A compile without a fault."""
        (trial,) = in_child(self.command(self.output))
        if trial.code != 0:
            raise SystemExit(f"the compile without faults ends with {trial.code}: {trial.said}")
        return trial

    def forget(self) -> None:
        """Remove output and cache."""
        for made in (self.output, self.cache):
            shutil.rmtree(made, ignore_errors=True)

    def trouble(self, fault: Fault, former: bool, rerun: bool) -> tuple[Trial, list[str]]:
        """One compile that meets a fault, over a former build or over nothing; what is wrong."""
        shutil.rmtree(self.cache, ignore_errors=True)
        if not former:
            shutil.rmtree(self.output, ignore_errors=True)
        had = former and tree(self.output) == self.whole
        (found,) = in_child(self.command(self.output), fault)
        wrong = self.wrong(found, by_signal=fault.kind in ("kill", "allocation"))
        if had and tree(self.output) != self.whole:
            wrong.append("the former build is gone")
        return found, wrong + (self.wrong_again() if rerun or found.code < 0 else [])

    def wrong(self, found: Trial, by_signal: bool) -> list[str]:
        """What is wrong with the end of a compile, and with what it left."""
        wrong, now = list[str](), tree(self.output)
        if "TRACEBACK" in found.said or "Traceback" in found.said:
            wrong.append(f"traceback: {found.said[-300:]}")
        if found.code not in (0, 2) and not (by_signal and found.code < 0):
            wrong.append(f"exit code {found.code}: {found.said[-300:]}")
        if now not in ({}, self.whole):
            differ = sorted(k for k in {*now, *self.whole} if now.get(k) != self.whole.get(k))
            wrong.append(f"the output is neither absent nor whole: {differ[:4]}")
        if found.code == 0 and now != self.whole:
            wrong.append("exit code 0 without the whole output")
        return wrong

    def missed(self, found: Trial) -> list[str]:
        """What is wrong with the end of a compile that nothing may stop."""
        return [*self.wrong(found, by_signal=False), *([f"exit code {found.code}"] if found.code else [])]

    def wrong_again(self) -> list[str]:
        """What is wrong with a further compile, and with what is left behind it."""
        (again,) = in_child(self.command(self.output))
        wrong = []
        if again.code != 0 or tree(self.output) != self.whole:
            wrong.append(f"a further compile ends with {again.code}: {again.said[-300:]}")
        if left := [str(p.relative_to(self.folder)) for p in self.folder.rglob(".*.part")]:
            wrong.append(f"left behind: {left}")
        return wrong


def example(*options: str) -> Callable[[Path], Callable[[Path], list[str]]]:
    """A compile of the bundled example."""
    at = Path(__file__).parents[1] / "examples" / "fashion"
    words = ["-p", "tx2-c10gx", "--calibration", str(at / "calibration.npz"), "--fold", "none", *options]
    return lambda folder: lambda output: ["compile", str(at / "fashion.onnx"), *words, "-o", str(output)]


def small(*options: str) -> Callable[[Path], Callable[[Path], list[str]]]:
    """A compile of a quantized network of three layers."""
    def command(folder: Path) -> Callable[[Path], list[str]]:
        case = next(case for case in CASES if case.name == "network")
        (folder / "model.onnx").write_bytes(to_onnx(integer_network(case.ops, case.shape)))
        words = ["-p", "ecp5-85", "--fold", "none", "--pin", "*=fpga", *options]
        return lambda output: ["compile", str(folder / "model.onnx"), *words, "-o", str(output)]
    return command


Keep = Callable[[dict[str, Any]], None]


def series(faults: Callable[[Compile], list[Fault]], compiled: Compile, record: dict[str, Any], keep: Keep) -> None:
    """Faults one after the other, over nothing and over a former build in turn; those that the record has are not met again."""
    listed = faults(compiled)
    wrong, mended, codes = record.get("wrong", {}), record.get("mended", {}), Counter(record.get("exit_codes", {}))
    numbers = [*range(record.get("met", 0), len(listed))]
    numbers = [n for n, fault in enumerate(listed) if str(fault) in wrong] + numbers  # what was wrong is tried again
    for number in numbers:
        fault = listed[number]
        trial, found = compiled.trouble(fault, number % 2 == 1, number % RERUN == 0)
        codes[str(trial.code)] += 1
        if before := wrong.pop(str(fault), None):
            codes[str(OWN_FAULT)] -= 1
            mended[str(fault)] = before
        if found:
            mended.pop(str(fault), None)
            wrong[str(fault)] = found
            print(f"{fault}: {found}", flush=True)
        keep({"calls": compiled.first.calls, "allocations": compiled.first.allocations, "of": len(listed),
              "met": max(number + 1, record.get("met", 0)), "wrong": wrong, "mended": mended,
              "exit_codes": dict(sorted((+codes).items()))})


def calls(every: int, kills: int, compiled: Compile) -> list[Fault]:
    """Every so many of the calls, then kills."""
    random = Random(SEED)
    return [*(Fault("fail", n) for n in range(1, compiled.first.calls + 1, every)),
            *(Fault("kill", random.randint(1, compiled.first.calls)) for _ in range(kills))]


def full(every: int, compiled: Compile) -> list[Fault]:
    return [Fault("full", n) for n in range(1, compiled.first.calls + 1, every)]


def allocations(count: int, compiled: Compile) -> list[Fault]:
    random = Random(SEED)
    return [Fault("allocation", random.randint(1, compiled.first.allocations)) for _ in range(count)]


def together(rounds: int, compiled: Compile, record: dict[str, Any], keep: Keep) -> None:
    """Two compiles of one output with one empty cache."""
    wrong = record.get("wrong", {})
    for number in range(record.get("met", 0), rounds):
        compiled.forget()
        found = [what for trial in in_child(compiled.command(compiled.output), others=1)
                 for what in compiled.missed(trial)]
        found += compiled.wrong_again()
        wrong |= {str(number): found} if found else {}
        keep({"of": rounds, "met": number + 1, "wrong": wrong})


def cache(most: int, compiled: Compile, record: dict[str, Any], keep: Keep) -> None:
    """Every kind of spoilt file, of files of the cache in a seeded order."""
    files = sorted(str(p.relative_to(compiled.cache)) for p in compiled.cache.rglob("*") if p.is_file())
    cases = [(file, how) for file in files for how in SPOILT]
    Random(SEED).shuffle(cases)
    wrong = record.get("wrong", {})
    for number, (file, how) in enumerate(cases[:most]):
        path, change = compiled.cache / file, SPOILT[how]
        if number < record.get("met", 0):
            continue
        if not path.is_file():
            compiled.run()  # a damaged result is removed and made again under the same name, or in another file
        before = path.read_bytes() if path.is_file() else b""
        if change is None or not before:
            path.unlink(missing_ok=True)
        else:
            path.chmod(0o600)
            path.write_bytes(change(before))
        shutil.rmtree(compiled.output, ignore_errors=True)
        (trial,) = in_child(compiled.command(compiled.output))
        if found := compiled.missed(trial):
            wrong[f"{how} {file}"] = found
        keep({"files": len(files), "of": min(most, len(cases)), "met": number + 1, "wrong": wrong})


def restarted() -> None:
    """Start this script anew with the library in front of all others."""
    library = build_library(Path(tempfile.mkdtemp(prefix="dovetail-faults-")))
    os.environ.update({ARMED: str(library), "LD_PRELOAD": str(library), "PYTHONDONTWRITEBYTECODE": "1"})
    os.execv(sys.executable, [sys.executable, *sys.argv])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=("calls", "full", "allocations", "together", "cache"),
                        help="only this; repeatable")
    parser.add_argument("--every", type=int, default=1, help="take every so many of the calls (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=40, help="compiles that are killed (default: %(default)s)")
    parser.add_argument("--allocations", type=int, default=1000, help="allocations that fail (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of compiles at once (default: %(default)s)")
    parser.add_argument("--spoilt", type=int, default=40, help="files of the cache that are spoilt (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="the record, which a further run goes on from")
    options = parser.parse_args()
    if ARMED not in os.environ:
        restarted()
    parts = {
        "calls": (example("--no-verify"), partial(series, partial(calls, options.every, options.kills))),
        "full": (example("--no-verify"), partial(series, partial(full, options.every))),
        "allocations": (small("--no-verify"), partial(series, partial(allocations, options.allocations))),
        "together": (small(), partial(together, options.rounds)),
        "cache": (small(), partial(cache, options.spoilt)),
    }
    document = held(options.json, True)
    try:
        for name in options.part or parts:
            command, work = parts[name]
            with tempfile.TemporaryDirectory(prefix="dovetail-faults-") as made:
                run_part(name, partial(work, Compile(Path(made), command(Path(made)))), document, options.json)
    finally:
        shutil.rmtree(Path(os.environ[ARMED]).parent, ignore_errors=True)
    return 1 if any(part["wrong"] for part in document.values()) else 0


SHOWN_S = 10.0
"""Seconds between two lines of progress."""


def run_part(name: str, work: Callable[[dict[str, Any], Keep], None], document: dict[str, Any], path: Path | None) -> None:
    """Go on with one part, and keep what it found so far."""
    began, before, shown = time.monotonic(), document.get(name, {}).get("seconds", 0.0), time.monotonic()

    def keep(found: dict[str, Any]) -> None:
        nonlocal shown
        document[name] = {"command": f"python bench/faults.py --part {name} --json FILE", "date": date.today().isoformat(),
                          "versions": f"Python {platform.python_version()}, {platform.machine()}",
                          "seconds": round(before + time.monotonic() - began, 1), **found}
        if path:
            replace_text(path, json.dumps(document, indent=1) + "\n")
        if time.monotonic() - shown > SHOWN_S:
            shown = time.monotonic()
            print(f"{name}: {found['met']} of {found['of']}, {len(found['wrong'])} wrong", flush=True)

    work(document.get(name, {}), keep)
    print(f"{name}: {document[name]['met']} of {document[name]['of']}, {len(document[name]['wrong'])} wrong", flush=True)


if __name__ == "__main__":
    sys.exit(main())
