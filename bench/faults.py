#!/usr/bin/env python3
"""Let the n-th write, fsync, rename, mkdir, fork or file that is made fail, for every n of a compile, and kill it at some.

After each: the exit code says so in one sentence, the output is absent, the former one or whole, and a further compile is whole.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import hashlib
import io
import json
import os
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
from pathlib import Path
from random import Random
from typing import Any

from dovetail import pipeline, planning, terminal
from dovetail.cli import main as command_line
from dovetail.files import replace_text

LIBRARY = Path(__file__).parent / "lib" / "failing_calls.c"
ARMED = "DOVETAIL_FAULTS_LIBRARY"
"""Names the library to a process that was started with it."""
LOADED = (pipeline, planning, terminal)
"""Imported before anything fails, so that every fork does its work alone."""
ERRORS = (errno.ENOSPC, errno.EIO)
"""What calls fail with, in turn."""


@dataclass(frozen=True)
class Trial:
    """What became of one compile: its exit code (negative: a signal), what it said, and how many calls it made."""

    code: int
    said: str
    calls: int


def build_library(folder: Path) -> Path:
    """The library that lets calls fail."""
    made = folder / "failing_calls.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(made), str(LIBRARY), "-ldl"], check=True)
    return made


def in_child(arguments: Sequence[str], fail: int = 0, kill: int = 0, number: int = errno.ENOSPC) -> Trial:
    """Run a command in a fork of this process, whose `fail`-th call fails or which is killed at its `kill`-th."""
    library = ctypes.CDLL(os.environ[ARMED])
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            _command(library, said.fileno(), arguments, fail, kill, number)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        text = said.read().decode(errors="replace")
    calls = text.rpartition("calls ")[2].strip()
    return Trial(os.waitstatus_to_exitcode(status), text.rpartition("calls ")[0] if calls.isdigit() else text,
                 int(calls) if calls.isdigit() else 0)


def _command(library: ctypes.CDLL, said: int, arguments: Sequence[str], fail: int, kill: int, number: int) -> None:
    """Run the command and end this process."""
    text, code = io.StringIO(), 70
    with redirect_stderr(text), redirect_stdout(io.StringIO()):
        try:
            library.fault_arm(ctypes.c_long(fail), ctypes.c_long(kill), number)
            code = command_line(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException as error:
            print(f"TRACEBACK {type(error).__name__}: {error}", file=text)
        finally:
            calls = library.fault_count()
            library.fault_arm(ctypes.c_long(0), ctypes.c_long(0), number)
    os.write(said, f"{text.getvalue()}calls {calls}\n".encode())
    os._exit(code)


def tree(folder: Path) -> dict[str, str]:
    """Every file of a folder by its digest."""
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file()} if folder.exists() else {}


def leftovers(folder: Path) -> list[str]:
    """Scratch that a compile left."""
    return [str(p.relative_to(folder)) for p in folder.rglob(".*.part")]


class Faults:
    """A compile of one model, with all that it should come to."""

    def __init__(self, folder: Path, command: Callable[[Path], list[str]]) -> None:
        self.folder, self.command = folder, command
        os.environ["DOVETAIL_CACHE"] = str(folder / "cache")
        self.output, self.spoilt = folder / "out" / "build", False
        self.output.parent.mkdir(parents=True)
        first = in_child(command(self.output))
        if first.code != 0:
            raise SystemExit(f"the compile without faults ends with {first.code}: {first.said}")
        shutil.rmtree(folder / "cache", ignore_errors=True)
        self.whole = tree(self.output)
        shutil.rmtree(self.output)
        again = in_child(command(self.output))
        self.calls = again.calls
        if tree(self.output) != self.whole:
            raise SystemExit("two compiles differ")

    def trouble(self, n: int, kill: bool, former: bool, rerun: bool) -> tuple[Trial, list[str]]:
        """One compile with its n-th call failing, or killed there, over a former build or over nothing; what is wrong."""
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        if not former:
            shutil.rmtree(self.output, ignore_errors=True)
        had = former and tree(self.output) == self.whole
        found = in_child(self.command(self.output), 0 if kill else n, n if kill else 0, ERRORS[n % len(ERRORS)])
        wrong, now = list[str](), tree(self.output)
        if "TRACEBACK" in found.said or "Traceback" in found.said:
            wrong.append(f"traceback: {found.said[-300:]}")
        if not kill and found.code not in (0, 2):
            wrong.append(f"exit code {found.code}: {found.said[-300:]}")
        if now not in ({}, self.whole):
            differ = sorted(k for k in {*now, *self.whole} if now.get(k) != self.whole.get(k))
            wrong.append(f"the output is neither absent nor whole: {differ[:4]}")
        if found.code == 0 and now != self.whole:
            wrong.append("exit code 0 without the whole output")
        if had and now != self.whole:
            wrong.append("the former build is gone")
        if rerun:
            again = in_child(self.command(self.output))
            if again.code != 0 or tree(self.output) != self.whole:
                wrong.append(f"a further compile ends with {again.code}: {again.said[-300:]}")
            if left := leftovers(self.folder):
                wrong.append(f"left behind: {left}")
        return found, wrong


def compile_command(folder: Path) -> Callable[[Path], list[str]]:
    """A compile of the example that verifies nothing, so that no simulator is built each time."""
    example = Path(__file__).parents[1] / "examples" / "fashion"
    options = ["-p", "tx2-c10gx", "--calibration", str(example / "calibration.npz"), "--fold", "none", "--no-verify"]
    return lambda output: ["compile", str(example / "fashion.onnx"), *options, "-o", str(output)]


def campaign(faults: Faults, every: int, kills: int) -> dict[str, Any]:
    """All calls one after the other, over nothing and over a former build in turn; then kills at random calls."""
    wrong, codes, random = dict[str, list[str]](), Counter[int](), Random(7)
    places = [(n, False) for n in range(1, faults.calls + 1, every)]
    places += [(random.randint(1, faults.calls), True) for _ in range(kills)]
    for number, (n, kill) in enumerate(places):
        trial, found = faults.trouble(n, kill, former=number % 2 == 1, rerun=kill or number % RERUN == 0 or faults.spoilt)
        codes[trial.code] += 1
        if found:
            wrong[f"{'killed at' if kill else 'failed'} call {n}"] = found
            print(f"call {n}{' (killed)' if kill else ''}: {found}", flush=True)
        if number % 50 == 0:
            print(f"{number + 1} of {len(places)}", file=sys.stderr, flush=True)
    return {"calls": faults.calls, "failed": len(places) - kills, "killed": kills, "wrong": wrong,
            "exit_codes": {str(code): count for code, count in sorted(codes.items())}}


RERUN = 5
"""Of so many failed compiles one is followed by a further compile; of killed ones, every one is."""


def restarted() -> None:
    """Start this script anew with the library in front of all others."""
    library = build_library(Path(tempfile.mkdtemp(prefix="dovetail-faults-")))
    os.environ.update({ARMED: str(library), "LD_PRELOAD": str(library), "PYTHONDONTWRITEBYTECODE": "1"})
    os.execv(sys.executable, [sys.executable, *sys.argv])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="take every so many of the calls (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=40, help="compiles that are killed (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the record")
    options = parser.parse_args()
    if ARMED not in os.environ:
        restarted()
    library = Path(os.environ[ARMED])
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="dovetail-faults-") as made:
            found = campaign(Faults(Path(made), compile_command(Path(made))), options.every, options.kills)
    finally:
        shutil.rmtree(library.parent, ignore_errors=True)
    command = f"python bench/faults.py --every {options.every} --kills {options.kills}"
    record = {"command": command, "date": date.today().isoformat(),
              "seconds": round(time.monotonic() - began, 1), **found}
    print(json.dumps(record, indent=1))
    if options.json:
        replace_text(options.json, json.dumps(record, indent=1) + "\n")
    return 1 if record["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
