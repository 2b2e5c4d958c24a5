"""The quick tier: what is marked stays out, and a test that looks for a tool without its marker fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).with_name("conftest.py")
TESTS = """
import pytest
from dovetail.fpga.toolchain.tools import find_compiler, find_verilator, find_yosys

def test_of_nothing():
    pass

@pytest.mark.parametrize("find", [find_verilator, find_compiler, find_yosys])
def test_that_looks_for_a_tool(find):
    find()

@pytest.mark.verilator
def test_that_is_marked():
    raise AssertionError("not in this tier")

@pytest.mark.slow("it says so")
def test_that_is_slow():
    pass

@pytest.mark.deep("it says so")
def test_that_is_deep():
    raise AssertionError("not in this tier")

def test_that_computes():
    sum(range(3_000_000))
"""


def run(folder: Path, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tests in a folder with our conftest."""
    (folder / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "test_some.py").write_text(tests, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments, str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_quick_tier_has_no_marked_test_and_refuses_tools(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS, "--tier", "quick", "--record-durations")
    assert "3 failed, 2 passed, 3 deselected" in done.stdout, done.stdout
    for tool, marker in (("verilator", "verilator"), ("C++ compiler", "verilator"), ("yosys", "yosys")):
        assert re.search(rf"ToolError: {re.escape(tool)}: .*mark-the-test-{marker} is not an executable file", done.stdout)
    recorded = json.loads((tmp_path / "durations.json").read_text(encoding="utf-8"))
    assert list(recorded["quick"]) == ["test_some.py"]
    assert recorded["quick"]["test_some.py"] > 0
    assert recorded["slow"] == {}


def test_a_slow_test_without_a_reason_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "import pytest\n@pytest.mark.slow\ndef test_it(): pass\n")
    assert done.returncode == 4
    assert 'test_some.py::test_it: marked slow without a reason; write @pytest.mark.slow("reason")' in done.stderr


def test_every_file_of_durations_is_there() -> None:
    known = json.loads(CONFTEST.with_name("durations.json").read_text(encoding="utf-8"))
    files = {file for tier in ("quick", "slow", "deep") for file in known[tier]}
    assert {file for file in files if not (CONFTEST.parents[1] / file).is_file()} == set()
