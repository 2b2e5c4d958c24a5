"""Processes that end together: what stops a command, and what ends its children however it ends.

Tools run in process groups of their own, so that a tool is ended with everything it started. A process that is killed can end
nothing any more: a guard, a small shell that waits for the end of its input, then ends the groups it was told of.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from errno import ENOENT
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

STOPPING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a command as Ctrl-C does."""
PR_SET_PDEATHSIG = 1
"""Of prctl(2): which signal a process is sent when its parent ends."""
GUARD = """
while read -r sign group; do
    rest=
    for known in $groups; do [ "$known" = "$group" ] || rest="$rest $known"; done
    groups=$rest
    [ "$sign" = + ] && groups="$groups $group"
done
for group in $groups; do kill -s KILL -- "-$group"; done
"""
"""Groups are told by `+ GROUP` and `- GROUP`; what is left when nobody can tell any more is killed."""
GUARDED = 'echo "+ $$" >&0; exec </dev/null; {limit}exec "$@"'
"""Told by the tool's own process before it becomes the tool: there is no moment at which the guard does not know it."""


class Stopped(KeyboardInterrupt):
    """A signal asked this process to end; it does so on the way of Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise Stopped where SIGTERM or SIGHUP would end the process at once; a signal that is ignored stays so (`nohup`).

    While what was begun is taken back, further ones are ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOPPING}
    taken = [number for number, handler in before.items() if handler is signal.SIG_DFL]

    def stop(number: int, frame: FrameType | None) -> None:
        for other in taken:
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(number)

    for number in taken:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, before[number])


def end_with_parent() -> None:
    """Begin a worker of a pool: Ctrl-C is its parent's, SIGTERM ends it, and where it can (Linux) the system kills it when its
    parent ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def worker_pool(pool: ProcessPoolExecutor) -> Iterator[ProcessPoolExecutor]:
    """A pool whose processes are told to end when the block is left by an exception, instead of finishing their work."""
    import multiprocessing  # here, since few commands have workers
    before = set(multiprocessing.active_children())
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    pool.shutdown()


class Guard:
    """The process that ends groups when this one has ended; started with the first group."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.of_parent: subprocess.Popen[bytes] | None = None
        self.lock = threading.Lock()
        atexit.register(self.end)
        os.register_at_fork(before=self.lock.acquire, after_in_parent=self.lock.release, after_in_child=self._forget)

    @property
    def input(self) -> IO[bytes]:
        """What it is told through, by us and by tools that start."""
        with self.lock:
            if self.process is None or self.process.poll() is not None:
                self.process = subprocess.Popen(["/bin/sh", "-c", GUARD], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                                stderr=subprocess.DEVNULL, start_new_session=True, cwd="/")
            assert self.process.stdin is not None, "asked for"
            return self.process.stdin

    def ended(self, group: int) -> None:
        """Forget a group that has ended."""
        with contextlib.suppress(OSError):
            os.write(self.input.fileno(), b"- %d\n" % group)

    def end(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()

    def _forget(self) -> None:
        """A forked process has a guard of its own, and does not keep ours waiting."""
        self.lock.release()
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        self.process, self.of_parent = None, self.process  # kept, or its end would be asked for


_GUARD = Guard()


def start(arguments: Sequence[str], cwd: Path | None, output: IO[bytes] | int, environment: Mapping[str, str],
          memory_bytes: int | None = None, errors: int = subprocess.STDOUT) -> subprocess.Popen[bytes]:
    """Start a tool in a process group of its own that ends with this process.

    The shell sets the limit on address space, since a fork hook is unsafe beside threads.
    """
    if shutil.which(arguments[0]) is None:
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), arguments[0])
    limit = "" if memory_bytes is None else f"ulimit -v {memory_bytes // 1024} 2>/dev/null; "
    return subprocess.Popen(["/bin/sh", "-c", GUARDED.format(limit=limit), "sh", *arguments], cwd=cwd, stdin=_GUARD.input,
                            stdout=output, stderr=errors, env={**os.environ, **environment}, start_new_session=True)


def answer(arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> str:
    """What a short query prints; OSError or SubprocessError where it fails or takes too long."""
    process = start(arguments, None, subprocess.PIPE, environment, errors=subprocess.DEVNULL)
    try:
        printed, _ = process.communicate(timeout=timeout_s)
    except BaseException:
        kill(process)
        raise
    forget(process)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, arguments)
    return printed.decode(errors="replace").strip()


def forget(process: subprocess.Popen[bytes]) -> None:
    """Let the guard forget a tool that ended by itself; its exit code is known."""
    _GUARD.ended(process.pid)


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a tool with everything it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _GUARD.ended(process.pid)
