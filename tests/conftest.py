"""Tiers of tests, their durations, golden files, and laws that are checked without a clock.

The quick tier (`--tier quick`) has no test of Verilator, Yosys, Chromium or of more than a few seconds; the slow tier has the
others, each marked with its reason. Without `--tier` both run. Tests marked `deep` take a minute or more; `make deep` runs them
alone (`--deep FILE`), and continues where it was stopped. Tables are as wide as where no terminal is asked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# A busy machine must not fail a law, and a commit has one verdict: every run draws the same examples. `make fuzz` draws new ones,
# says how to draw them again, and what it finds is kept as an @example.
settings.register_profile("dovetail", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, derandomize=False, database=None, print_blob=True)
settings.load_profile("dovetail")

BYTECODE = Path(__file__).parents[1] / "build" / "bytecode"
"""Compiled modules of the tests and of the commands they start, where the environment keeps Python from writing any."""
if sys.dont_write_bytecode:
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(BYTECODE)
    del os.environ["PYTHONDONTWRITEBYTECODE"]
    os.environ["PYTHONPYCACHEPREFIX"] = str(BYTECODE)

SLOW = {
    "verilator": "compiles or runs a simulator",
    "yosys": "synthesizes",
    "chromium": "opens a page in a browser",
    "slow(reason)": "takes more than a few seconds",
}
"""Markers of the slow tier."""
SLOW_NAMES = {marker.partition("(")[0] for marker in SLOW}
"""Their names."""
SLOW_FOLDERS = {
    "gpu": "kernels run in Triton's interpreter, or are compiled",
    "partition": "networks are planned, and plans compared with enumeration",
    "reproduce": "the papers' networks are planned",
    "runtime": "builds are compiled, simulated and run",
    "train": "networks are trained with PyTorch",
}
"""Folders in the slow tier, with the reason; of them, what is marked `quick` is in the quick tier."""
REFUSED = {"verilator": ("DOVETAIL_VERILATOR", "CXX"), "yosys": ("DOVETAIL_YOSYS",), "chromium": ("DOVETAIL_CHROMIUM",)}
"""Variables that name a tool; in the quick tier they name no file, so that whoever looks for the tool fails."""
CORES = 2
"""Cores that durations are told for: those of the machine that checks commits."""
DURATIONS = Path(__file__).with_name("durations.json")
"""Processor seconds by tier and file; written by `--record-durations`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what the code prints now")
    parser.addoption("--deep", type=Path, metavar="FILE", help="run the long tests alone, less those that FILE says passed")
    parser.addoption("--tier", choices=("quick", "slow"), help="run the tests of one tier; both unless told")
    parser.addoption("--record-durations", action="store_true", help=f"write processor times of files to {DURATIONS.name}")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.update(COLUMNS="160", LINES="24")
    config.addinivalue_line("markers", "deep(reason): takes a minute or more; run by make deep")
    for marker, meaning in SLOW.items():
        config.addinivalue_line("markers", f"{marker}: {meaning}; not in make quick")
    config.addinivalue_line("markers", f"quick: in make quick, though in one of the folders {', '.join(SLOW_FOLDERS)}")
    if config.getoption("--tier") == "quick":
        for marker, variables in REFUSED.items():
            os.environ.update(dict.fromkeys(variables, f"none-in-the-quick-tier:-mark-the-test-{marker}"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the tests of the tier, and begin with the files that take longest; one that was not measured may be such a file."""
    record, tier = config.getoption("--deep"), config.getoption("--tier")
    done = set() if record is None else set(_deep_record(record)["passed"])
    if hidden := [i.nodeid for i in items if not _may_hold(i.path, _tier(i))]:
        raise pytest.UsageError(f"{hidden[0]}: its tier is marked in another file; write the marker beside the test")
    wanted = [i for i in items if (_tier(i) == "deep") == (record is not None) and i.nodeid not in done
              and tier in (None, _tier(i))]
    kept = set(wanted)
    config.hook.pytest_deselected(items=[i for i in items if i not in kept])
    known = _durations()
    measured = set[str]().union(*known.values())
    lasting = {file: sum(files.get(file, 0.0) for files in known.values()) if file in measured else inf
               for file in {_file(i.nodeid) for i in wanted}}
    items[:] = sorted(wanted, key=lambda item: -lasting[_file(item.nodeid)])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file that has no test of the tier: PyTorch alone takes seconds."""
    tier = config.getoption("--tier")
    return True if tier and collection_path.name.startswith("test_") and not _may_hold(collection_path, tier) else None


@cache
def _may_hold(path: Path, tier: str) -> bool:
    """Whether a file's text can have tests of a tier."""
    marked, slow = set(re.findall(r"\bmark\.(\w+)", path.read_text(encoding="utf-8"))), path.parent.name in SLOW_FOLDERS
    return {"quick": not slow or "quick" in marked, "slow": slow or bool(marked & SLOW_NAMES), "deep": "deep" in marked}[tier]


def _tier(item: pytest.Item) -> str:
    """Tier of a test by its markers; a slow or deep test says why."""
    for name in ("deep", "slow"):
        marker = item.get_closest_marker(name)
        if marker is not None and not (len(marker.args) == 1 and isinstance(marker.args[0], str)):
            raise pytest.UsageError(f'{item.nodeid}: marked {name} without a reason; write @pytest.mark.{name}("reason")')
    names = {marker.name for marker in item.iter_markers()}
    if "deep" in names or names & SLOW_NAMES:
        return "deep" if "deep" in names else "slow"
    return "slow" if item.path.parent.name in SLOW_FOLDERS and "quick" not in names else "quick"


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _durations() -> dict[str, dict[str, float]]:
    """Processor seconds by tier and file, as recorded."""
    known = json.loads(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}
    return {tier: known.get(tier, {}) for tier in ("quick", "slow", "deep")}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin to measure a test's processor time."""
    item.stash[BEGAN] = _processor_s()


BEGAN = pytest.StashKey[float]()
"""Processor time at which a test began."""


def _processor_s() -> float:
    """Processor time of this process and its ended children."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Tell the process that gathers results the tier and the processor time of a test."""
    if call.when == "teardown":
        item.user_properties += [("tier", _tier(item)), ("processor_s", _processor_s() - item.stash[BEGAN])]


SPENT: dict[str, Counter[str]] = {}
"""Processor seconds of this run by tier and file, in the process that gathers results."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        told = dict(report.user_properties)
        SPENT.setdefault(str(told["tier"]), Counter())[_file(report.nodeid)] += float(str(told["processor_s"]))
    if DEEP and report.when == "call" and report.passed:
        record = _deep_record(DEEP[0])
        record["passed"] = sorted({*record["passed"], report.nodeid})
        DEEP[0].parent.mkdir(parents=True, exist_ok=True)
        DEEP[0].write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


DEEP: list[Path] = []
"""The record of long tests, in the process that gathers results."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say how long the tests will take."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    record, terminal = config.getoption("--deep"), config.pluginmanager.get_plugin("terminalreporter")
    if record is not None:
        DEEP.append(record.absolute())
    if terminal is not None and config.args == config.getini("testpaths"):
        durations = _durations()
        tiers = ("deep",) if record is not None else ("quick", "slow")
        told = ", ".join(f"{sum(durations[tier].values()) / CORES / 60:.1f} min of {tier} tests" for tier in tiers)
        there = {path.relative_to(config.rootpath).as_posix() for path in DURATIONS.parent.rglob("test_*.py")}
        unknown = len(there.difference(*durations.values()))
        also = f"; {unknown} of {len(there)} files are not measured" if unknown else ""
        now = f"; now those of the {config.getoption('--tier')} tier" if config.getoption("--tier") else ""
        terminal.write_line(f"about {told} on {CORES} idle cores (tests/{DURATIONS.name}{also}){now}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Record the durations of the files that ran; of a whole tier only these, as others have no test of it any more."""
    config = session.config
    if hasattr(config, "workerinput") or not config.getoption("--record-durations"):
        return
    known = _durations()
    whole = config.args == config.getini("testpaths") and not (exitstatus or config.option.keyword or config.getoption("--deep"))
    for tier, files in SPENT.items():
        known[tier] = ({} if whole else known[tier]) | {file: round(spent, 1) for file, spent in files.items()}
    kept = {tier: {file: spent for file, spent in sorted(files.items()) if (config.rootpath / file).exists()}
            for tier, files in known.items()}
    record = {"command": "pytest --record-durations", "unit": "processor seconds", **kept}
    DURATIONS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _deep_record(path: Path) -> dict[str, Any]:
    """Long tests that passed on this commit; none where the record is of another one."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    fresh = {"command": "make deep", "commit": commit.stdout.strip(), "date": date.today().isoformat(), "passed": []}
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else fresh
    return known if known["commit"] == fresh["commit"] else fresh


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with `golden/NAME` beside the test's file, or rewrite it."""

    def check(name: str, text: str) -> None:
        path = Path(str(request.path)).parent / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} is missing; run pytest --update-golden and review what it wrote"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; if intended, run pytest --update-golden"

    return check
