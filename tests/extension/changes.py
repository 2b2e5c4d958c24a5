"""Changes to the package, each a folder here, made in a copy of the sources.

A change holds new files under `src/`, `check.py`, which is run in the copy, and `change.json`: the edits of files.
An edit names a file, a literal table in it, the table's new entry, and the import that the entry needs; or what is appended.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

HERE = Path(__file__).parent
PACKAGE = Path("src") / "dovetail"
SOURCES = HERE.parents[1] / PACKAGE
BEFORE = {"engine": "operator"}
"""Changes that another one comes before: a new engine needs an operator that has none."""
DOCUMENT = HERE.parents[1] / "docs" / "architecture.md"


@dataclass(frozen=True, slots=True)
class Change:
    """One change, by the name of its folder."""

    name: str

    @property
    def folder(self) -> Path:
        return HERE / self.name

    def make(self, copy: Path) -> set[str]:
        """Copy the package to `copy`/src, change it there, and return the files that changed, below the package."""
        shutil.copytree(SOURCES, copy / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
        if self.name in BEFORE:
            Change(BEFORE[self.name])._apply(copy)
        before = _contents(copy)
        self._apply(copy)
        return {file for file, content in _contents(copy).items() if before.get(file) != content}

    def _apply(self, copy: Path) -> None:
        """Add the change's files, and edit others."""
        shutil.copytree(self.folder / "src", copy / "src", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in json.loads((self.folder / "change.json").read_text(encoding="utf-8")):
            file = copy / PACKAGE / edit["file"]
            file.write_text(edited(file.read_text(encoding="utf-8"), edit), encoding="utf-8")

    def check(self, copy: Path) -> None:
        """Run the change's check against the copy, with a small model; it fails as its process does."""
        onnx.save(small_model(), copy / "small.onnx")
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1", "TRITON_INTERPRET": "1"}
        done = subprocess.run([sys.executable, str(self.folder / "check.py"), "small.onnx"], cwd=copy, env=environment,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def small_model() -> onnx.ModelProto:
    """Two convolutions of one image, the larger of their values, and a third convolution of those."""
    weights = {name: np.random.default_rng(len(name)).normal(size=shape).astype(np.float32)
               for name, shape in (("left", (4, 3, 3, 3)), ("right", (4, 3, 3, 3)), ("last", (2, 4, 1, 1)))}
    nodes = [helper.make_node("Conv", ["x", "left"], ["a"], "conv1"), helper.make_node("Conv", ["x", "right"], ["b"], "conv2"),
             helper.make_node("Max", ["a", "b"], ["c"], "larger"), helper.make_node("Conv", ["c", "last"], ["y"], "conv3")]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in (
        ("x", (1, 3, 8, 8)), ("y", (1, 2, 6, 6)))]
    graph = helper.make_graph(nodes, "small", values[:1], values[1:], [numpy_helper.from_array(v, k) for k, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _contents(copy: Path) -> dict[str, bytes]:
    """The package's files."""
    return {path.relative_to(copy / PACKAGE).as_posix(): path.read_bytes() for path in (copy / PACKAGE).rglob("*")
            if path.is_file()}


def edited(text: str, edit: Mapping[str, str]) -> str:
    """A file's text with an entry more in the literal that is assigned to a name, and the import that the entry needs."""
    if "append" in edit:
        return text + edit["append"]
    values = [node.value for node in ast.parse(text).body if isinstance(node, ast.Assign | ast.AnnAssign)
              and node.value is not None and any(isinstance(t, ast.Name) and t.id == edit["table"] for t in _targets(node))]
    assert len(values) == 1, f"{len(values)} tables {edit['table']}"
    lines = text.split("\n")
    row, column = (values[0].end_lineno or 0) - 1, values[0].end_col_offset or 0
    last = lines[row].encode()
    closing = last[column - 1:column].decode()
    assert closing in "])}", f"{edit['table']} ends with {closing}, which no literal table does"
    before = "\n".join([*lines[:row], last[:column - 1].decode()]).rstrip()
    entry = ("" if before[-1] in ",[({" else ",") + " " + edit["entry"]
    lines[:row + 1] = (before + entry + closing + last[column:].decode()).split("\n")
    if "import" in edit:
        lines.insert(next(i for i, line in enumerate(lines) if re.match(r"(from|import) (?!__future__)", line)), edit["import"])
    return "\n".join(lines)


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def listed(title: str, document: Path = DOCUMENT) -> list[str]:
    """Files that a section of the document lists: what stands in backquotes at the beginning of each bullet."""
    lines = document.read_text(encoding="utf-8").split("\n")
    starts = [i for i, line in enumerate(lines) if re.fullmatch(rf"#+ {re.escape(title)}", line)]
    assert len(starts) == 1, f"{document}: {len(starts)} headings '{title}'"
    rest = lines[starts[0] + 1:]
    end = next((i for i, line in enumerate(rest) if line.startswith("#")), len(rest))
    return [match[1].removeprefix(f"{PACKAGE.as_posix()}/") for line in rest[:end] if (match := re.match(r"- `([^`]+)`", line))]


def stands_for(pattern: str, file: str) -> bool:
    """Whether a listed file is a file; NAME stands for the name of what is added."""
    return re.fullmatch(re.escape(pattern).replace("NAME", r"[a-z0-9_-]+"), file) is not None
