"""Mutants are the changes they say, tests that execute them are found, and what no test notices is told."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib.mutants import mutants

ROOT = Path(__file__).parents[2]
SOURCE = '''
"""A text."""
MOST = 3

def inside(x: int | None, of: list[int] = [1]) -> bool:
    """Says 1 < 2."""
    if x is None:
        return False
    return x < MOST and not f"{x + 1}" in of
'''


def written(root: Path, text: str) -> str:
    (root / "source.py").write_text(text, encoding="utf-8")
    return "source.py"


def test_mutants_change_what_is_computed_and_nothing_that_is_said(tmp_path: Path) -> None:
    found = mutants(tmp_path, written(tmp_path, SOURCE))
    assert [m.name.removeprefix("source.py: ") for m in found] == [
        "module: MOST = 3 -> pass", "module: 3 -> (4)", "module: 3 -> (3 - 1)", "inside: 1 -> (2)", "inside: 1 -> (1 - 1)",
        "inside: x is None -> (x is not None)", "inside: return False -> return None", "inside: False -> (True)",
        'inside: return x < MOST and not f"{x + 1}" in of -> return None',
        'inside: x < MOST and not f"{x + 1}" in of -> (x < MOST or not f\'{x + 1}\' in of)',
        "inside: x < MOST -> (x <= MOST)", "inside: not f\"{x + 1}\" in of -> (f'{x + 1}' in of)",
        "inside: f\"{x + 1}\" in of -> (f'{x + 1}' not in of)"]


@pytest.mark.parametrize("path", ["src/dovetail/partition/evaluate.py", "src/dovetail/numerics/requantize.py"])
def test_mutants_of_our_sources_can_be_compiled_and_are_different(path: str) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    found = mutants(ROOT, path)
    assert len({m.name for m in found}) == len(found) > 100
    for mutant in found[::9]:
        assert ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source)), mutant.name


def test_a_name_is_kept_where_another_place_is_edited(tmp_path: Path) -> None:
    before = [m.name for m in mutants(tmp_path, written(tmp_path, SOURCE))]
    assert [m.name for m in mutants(tmp_path, written(tmp_path, "import os\n\n" + SOURCE))] == before


@pytest.mark.slow("runs pytest in copies of a small repository")
def test_killed_and_surviving_mutants_are_told_apart_and_not_tried_twice(tmp_path: Path) -> None:
    """A repository with two functions: a test looks at one of them and calls the other."""
    for name in ("scripts/mutate", "bench/lib/mutants.py", "bench/lib/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    package, tests = tmp_path / "src" / "dovetail" / "numerics", tmp_path / "tests" / "numerics"
    package.mkdir(parents=True)
    tests.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "sums.py").write_text("def less(a, b):\n    return a < b\n\n\ndef ready(a):\n    return a > 7\n")
    (tests / "test_sums.py").write_text("from dovetail.numerics.sums import less, ready\n\n\ndef test_less():\n    ready(7)\n"
                                        "    assert less(1, 2) and not less(2, 2)\n")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["src"]\nfilterwarnings = ["error"]\n')
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    command = [sys.executable, str(tmp_path / "scripts" / "mutate"), "numerics", "--jobs", "1"]
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert first.returncode == 0, first.stdout + first.stderr
    record = json.loads((tmp_path / "build" / "mutate.json").read_text())
    by = {name.removeprefix("src/dovetail/numerics/sums.py: "): row["status"] for name, row in record["mutants"].items()}
    assert by == {"less: return a < b -> return None": "killed", "less: a < b -> (a <= b)": "killed",
                  "ready: return a > 7 -> return None": "survived", "ready: a > 7 -> (a >= 7)": "survived",
                  "ready: 7 -> (8)": "survived", "ready: 7 -> (7 - 1)": "survived"}
    assert record["counts"] == {"killed": 2, "survived": 4, "equivalent": 0}
    assert "should have failed: tests/numerics/test_sums.py" in first.stdout
    (tests / "test_sums.py").write_text((tests / "test_sums.py").read_text() + "    assert ready(8) and ready(7) is False\n")
    again = subprocess.run([*command, "--survivors"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert "6 killed, 0 equivalent" in again.stdout, again.stdout + again.stderr
    (tests / "test_more.py").write_text("from dovetail.numerics.sums import less\n\n\ndef test_more():\n    assert less(3, 4)\n")
    more = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert "numerics: 1 tests of 1 files measured" in more.stdout, "what did not change is not measured again"
    (package / "sums.py").write_text((package / "sums.py").read_text() + "\n\ndef more(a):\n    return a + 2 + 3 + 4 + 5\n")
    edited = subprocess.run([*command, "--count", "5"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert "5 killed, 0 equivalent" in edited.stdout, "what was tried once is among what is drawn after an edit"
