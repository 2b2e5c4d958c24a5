"""Singular and plural: one helper, and no sentence of ours that counts without it."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

import dovetail
from dovetail.partition.pareto import Front
from dovetail.terminal import front_table, verification_line
from dovetail.words import counted, plural

SOURCE = Path(dovetail.__file__).parent
READ = ("cli", "cost", "gpu", "kernels", "measure", "numbers.py", "numerics", "partition", "pipeline.py", "planning.py",
        "platform", "report", "runtime", "schedule", "terminal.py", "train", "widths.py", "zoo")
"""Packages and modules that speak to people."""
NOUNS = ("answer", "board", "choice", "clock", "core", "device", "element", "epoch", "fork", "frame", "image", "integer", "label",
         "layer", "line", "link", "node", "output", "package", "pair", "parameter", "plan", "point", "program", "row", "sample",
         "score", "tensor", "thread", "unit")
PLURAL = re.compile(rf" (?:(?!has |for |between )[a-z]+ )?(?:{'|'.join(NOUNS)})s\b(?!/)")
NEVER_ONE = {"part", "config.kernel", "most"}
"""A word, the side of a window that is too small, and a limit."""


def uncounted(text: str) -> list[str]:
    """Plurals behind a number that may be 1: fields of f-strings that are neither constants nor words."""
    found = []
    for node in ast.walk(ast.parse(text)):
        for field, after in pairwise(node.values) if isinstance(node, ast.JoinedStr) else ():
            if isinstance(field, ast.FormattedValue) and isinstance(after, ast.Constant) and PLURAL.match(str(after.value)):
                said = ast.unparse(field.value)
                if not said.isupper() and said not in NEVER_ONE:
                    found.append(f"{{{said}}}{str(after.value)[:30]}")
    return found


def test_no_sentence_counts_in_the_plural_alone() -> None:
    paths = [p for p in sorted(SOURCE.rglob("*.py")) if p.relative_to(SOURCE).parts[0] in READ]
    assert len(paths) > 100
    assert {str(p.relative_to(SOURCE)): found for p in paths if (found := uncounted(p.read_text(encoding="utf-8")))} == {}


def test_the_sweep_finds_what_it_is_for() -> None:
    assert uncounted('f"{len(rows)} plans, from"') == ["{len(rows)} plans, from"]
    assert uncounted('f"{n:,} boundary tensors"') == ["{n} boundary tensors"]
    assert uncounted('f"{counted(n, \'plan\')} from {rate} frames/s of {FRAMES} frames"') == []


@pytest.mark.parametrize(("number", "expected"), [(0, "0 plans"), (1, "1 plan"), (2, "2 plans"), (1000, "1,000 plans")])
def test_numbers_carry_their_noun(number: int, expected: str) -> None:
    assert counted(number, "plan") == expected


def test_irregular_nouns() -> None:
    assert (plural(1, "class", "classes"), plural(2, "class", "classes")) == ("class", "classes")


def test_one_plan_and_one_frame_are_singular() -> None:
    front = Front("m", "b", (), ())
    assert "0 plans, from" in front_table(front)
    outcome = {"equal": True, "tensors_compared": 1, "elements_compared": 1, "frames": 1, "segments": []}
    assert verification_line(outcome).startswith("bit-exact: 1 boundary tensor, 1 integer over 1 frame; ")
