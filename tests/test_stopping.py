"""Commands that are stopped: nothing they started runs on, nothing half-written stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.files import SCRATCH, replace_folder, replace_text, scratch_folder
from dovetail.processes import Stopped, stopped_by_signals

pytestmark = pytest.mark.slow("starts commands and stops them")

FASHION = Path(__file__).parents[1] / "examples" / "fashion"
MODEL, CALIBRATION = str(FASHION / "fashion.onnx"), str(FASHION / "calibration.npz")
COMPILER = """#!/bin/sh
case "$*" in *--version*) echo "g++ 12.2.0"; exit;; *" -E "*) exit;; esac
sleep 600 &
echo started > "$STARTED"
wait
"""
"""A compiler that starts another process, as compilers do, and does not end."""


def until(true: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for a state; a test fails if it does not come."""
    for _ in range(30_000):
        if true():
            return
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)
    pytest.fail("the state did not come")


def running(mark: str) -> list[str]:
    """Command lines of living processes that have something in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            ended = (process / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            if not ended and mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.fixture
def compiling(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """`dovetail compile`, while the compiler of its simulation runs."""
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    environment = {**os.environ, "DOVETAIL_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path), "CXX": str(compiler),
                   "STARTED": str(tmp_path / "started")}
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail", "compile", MODEL, "--calibration", CALIBRATION, "--fold", "none", "-o",
         str(tmp_path / "build")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True,
        preexec_fn=lambda: [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGTERM, signal.SIGHUP)])
    try:
        until((tmp_path / "started").exists, process)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def half_made(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.name.endswith((".part", ".old")) or p.name.startswith(".making")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_command_that_is_told_to_end_leaves_no_child_and_nothing_half_made(
        number: signal.Signals, code: int, compiling: subprocess.Popen[str], tmp_path: Path) -> None:
    mark = f"STARTED={tmp_path}"
    assert any("sleep 600" in line for line in running(mark))
    assert half_made(tmp_path)
    compiling.send_signal(number)
    _, err = compiling.communicate(timeout=120)
    assert compiling.returncode == code
    assert f"dovetail: stopped by {number.name}; nothing half-written was left behind\n" in err
    assert "Traceback" not in err
    until(lambda: not running(mark))
    assert half_made(tmp_path) == []
    assert not (tmp_path / "build").exists()


def test_children_of_a_killed_command_end_and_the_next_one_sweeps_up(compiling: subprocess.Popen[str], tmp_path: Path) -> None:
    compiling.kill()
    compiling.communicate(timeout=120)
    until(lambda: not running(f"STARTED={tmp_path}"))
    left = half_made(tmp_path)
    assert len([p for p in left if p.parent == tmp_path]) >= 1
    assert main(["inspect", MODEL, "--json", str(tmp_path / "model.json")]) == 0
    assert [p for p in half_made(tmp_path) if p.parent == tmp_path] == []
    for folder in {p.parent for p in half_made(tmp_path)}:  # of the cache, swept when the next result is made there
        with scratch_folder(folder, "next"):
            pass
    assert half_made(tmp_path) == []


def test_scratch_of_a_living_process_and_of_others_stays(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True)
    number = int(ended.stdout)
    foreign = [tmp_path / ".backup.part", tmp_path / "notes.part", tmp_path / f"x.dovetail-{number}-abcdefgh.part"]
    stale = [tmp_path / f".build.dovetail-{number}-abcdefgh.part", tmp_path / f".q.onnx.dovetail-{number}-hgfedcba.part"]
    for folder in (*foreign, stale[0]):
        folder.mkdir()
    (stale[0] / "half").write_text("")
    stale[1].write_text("half")
    with replace_folder(tmp_path / "build", "marker") as living:
        os.utime(living, (0, 0))
        assert SCRATCH.fullmatch(living.name)
        replace_text(tmp_path / "other", "")
        with scratch_folder(tmp_path, "another"):
            assert living.is_dir()
        (living / "marker").write_text("")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["build", "other", *(p.name for p in foreign)])


def test_a_stopped_command_is_not_stopped_again_while_it_cleans_up() -> None:
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    cleaned = []

    def work() -> None:
        with stopped_by_signals():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                cleaned.append(True)

    try:
        with pytest.raises(Stopped, match="SIGTERM"):
            work()
        assert cleaned
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopped_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_workers_of_a_killed_process_end(tmp_path: Path) -> None:
    code = ("import os, sys, time\n"
            "from concurrent.futures import ProcessPoolExecutor\n"
            "from dovetail.processes import end_with_parent, worker_pool\n"
            "with worker_pool(ProcessPoolExecutor(2, initializer=end_with_parent)) as pool:\n"
            "    pool.submit(time.sleep, 600)\n"
            "    print(pool.submit(os.getpid).result(), flush=True)\n"
            "    time.sleep(600)\n")
    for number in (signal.SIGKILL, signal.SIGINT):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                   env={**os.environ, "MARK": str(tmp_path)}, start_new_session=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        assert process.stdout is not None
        assert int(process.stdout.readline())
        process.send_signal(number)
        process.communicate(timeout=120)
        until(lambda: not running(f"MARK={tmp_path}"))
