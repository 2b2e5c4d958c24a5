"""A commit has one verdict: no test draws anew, looks at a clock to decide, or depends on the order of sets."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("*.py"))
CLOCKS = {"time", "perf_counter", "monotonic", "process_time", "thread_time", "time_ns", "perf_counter_ns", "monotonic_ns"}
SEEDED = {"default_rng", "Random", "RandomState", "SeedSequence", "PCG64"}
LEGACY = {"rand", "randn", "randint", "random", "normal", "uniform", "choice", "shuffle", "permutation", "standard_normal",
          "sample", "randrange", "gauss", "choices"}


def dotted(node: ast.AST) -> str:
    """A name with the names it is found under: `np.random.rand`."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def reads_clock(tree: ast.AST) -> bool:
    return any(dotted(c.func) in {f"time.{name}" for name in CLOCKS} for c in calls(tree))


def unseeded(tree: ast.AST) -> Iterator[str]:
    """Generators without a seed, and draws from those that all modules share."""
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    shared = [["np", "random"], ["numpy", "random"], *([["random"]] if "random" in imported else [])]
    for call in calls(tree):
        name = dotted(call.func)
        *owner, last = name.split(".")
        if last in SEEDED and not call.args and not call.keywords:
            yield f"line {call.lineno}: {name}() without a seed"
        if (owner in shared and last in LEGACY) or name in ("os.urandom", "uuid.uuid4", "random.SystemRandom"):
            yield f"line {call.lineno}: {name} draws anew every time"


def timed(tree: ast.AST) -> Iterator[str]:
    """Assertions about what a clock said."""
    for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
        clocked = {name.id for node in ast.walk(function) if isinstance(node, ast.Assign) and reads_clock(node.value)
                   for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        for check in (n for n in ast.walk(function) if isinstance(n, ast.Assert)):
            names = {n.id for n in ast.walk(check.test) if isinstance(n, ast.Name)}
            compared = any(isinstance(n, ast.Compare) for n in ast.walk(check.test))
            if (compared and reads_clock(check.test)) or names & clocked:
                yield f"line {check.lineno}: asserts what a clock said"


def own_draws(tree: ast.AST) -> Iterator[str]:
    """Settings of a test that only profiles may decide: `make fuzz` could not draw anew."""
    for call in calls(tree):
        for keyword in call.keywords:
            if keyword.arg in ("derandomize", "database") and dotted(call.func).split(".")[-1] == "settings":
                yield f"line {call.lineno}: {keyword.arg} is the profile's to decide"


DRAWS = (rf"\b({'|'.join(sorted(SEEDED))})\(\)|^import random|(np|numpy)\.random\.(?!default_rng|Generator)"
         r"|uuid4|os\.urandom|SystemRandom")
LOOKS = ((unseeded, re.compile(DRAWS, re.MULTILINE)), (timed, re.compile(rf"\btime\.({'|'.join(sorted(CLOCKS))})\(")),
         (own_draws, re.compile("derandomize|database")))
"""What is looked for, and the words without which nothing is found: few files need to be parsed."""


def test_no_verdict_depends_on_luck_or_on_a_clock() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    found = [f"{path.relative_to(TESTS)}, {what}" for path, text in texts.items() for look, words in LOOKS if words.search(text)
             for what in look(ast.parse(text))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("look", "text"), [
    (unseeded, "rng = np.random.default_rng()"),
    (unseeded, "x = np.random.rand(3)"),
    (unseeded, "import random\nx = random.choice([1, 2])"),
    (timed, "def f():\n    start = time.monotonic()\n    taken = time.monotonic() - start\n    assert taken < 3"),
    (timed, "def f():\n    start = 0\n    assert time.perf_counter() - start < 3"),
    (own_draws, "@settings(max_examples=3, derandomize=True)\ndef f(): pass"),
])
def test_luck_and_clocks_are_found_where_they_are(look: Callable[[ast.AST], Iterator[str]], text: str) -> None:
    assert dict(LOOKS)[look].search(text)
    assert list(look(ast.parse(text)))


def test_every_run_draws_the_same_cases_and_fuzzing_new_ones() -> None:
    assert settings.default.derandomize
    fuzz = settings.get_profile("fuzz")
    assert not fuzz.derandomize
    assert fuzz.print_blob
    assert fuzz.database is None
    wanted = tomllib.loads((TESTS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert [r for r in wanted["dev"] if r.startswith("hypothesis==")], "another release of hypothesis draws other cases"


PLANNED = """
import hashlib
from tests.strategies import Net, quantized
from dovetail.fpga.assemble import build_design
from dovetail.ir import RELU, Add, Concat, Conv, Window
from dovetail.partition.plan_json import plan_to_json
from dovetail.partition.solve import plan
from dovetail.platform.load import load_platform
net, same = Net(3), Window((3, 3), pads=(1, 1, 1, 1))
x = net.input((1, 4, 9, 9))
a, b = (net.add(Conv(4, same, 1, RELU), x, name=name) for name in ("left", "right"))
graph = quantized(net.graph(net.add(Conv(3, same), net.add(Add(RELU), net.add(Concat(1), a, b), net.add(Conv(8, same), x)))))
design = build_design(graph, "net")
text = str(plan_to_json(plan(graph, load_platform("tx2-c10gx")))) + str(sorted(design.files.items()))
print(hashlib.sha256(text.encode()).hexdigest())
"""


@pytest.mark.slow("plans in several processes")
def test_plans_and_hardware_do_not_depend_on_the_order_of_sets() -> None:
    def digest(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run([sys.executable, "-c", PLANNED], cwd=TESTS.parent, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert digest("1") == digest("2")
