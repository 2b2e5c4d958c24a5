"""Mutants of Python sources: one small change each, as the syntax tree offers them, for `scripts/mutate`.

A mutant's name holds no line number: an edit elsewhere in its file leaves it known.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
"""What an operator becomes."""
SILENT = {"strict", "repr", "compare", "slots", "frozen", "encoding"}
"""Keywords that change no result of a correct program; annotations, decorators and f-strings are left alone too."""

UNCOMPUTED = {"annotation", "returns", "decorator_list", "bases"}
"""Fields of the syntax tree that say what something is."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file: `text` takes the place of characters `start` to `stop`."""

    path: str
    name: str
    line: int
    begins: int
    """Line of the statement that `line` is part of."""
    start: int
    stop: int
    text: str
    source: str

    def apply(self, source: str) -> str:
        """The file's text with the change."""
        return source[:self.start] + self.text + source[self.stop:]


def mutants(root: Path, path: str) -> list[Mutant]:
    """All mutants of a file, in its order."""
    source = (root / path).read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))

    def at(line: int, column: int) -> int:
        return offsets[line - 1] + len(lines[line - 1].encode()[:column].decode())

    found, names, digest = list[Mutant](), Counter[str](), hashlib.sha256(source.encode()).hexdigest()[:16]
    for where, begins, node, text in _changes(ast.parse(source), "module", 1):
        start, stop = at(node.lineno, node.col_offset), at(node.end_lineno or node.lineno, node.end_col_offset or 0)
        name = f"{path}: {where}: {' '.join(source[start:stop].split())} -> {text}"
        names[name] += 1
        name += f" #{names[name]}" if names[name] > 1 else ""
        found.append(Mutant(path, name, node.lineno, begins, start, stop, text, digest))
    return found


def _changes(node: ast.AST, where: str, begins: int) -> Iterator[tuple[str, int, ast.expr | ast.stmt, str]]:
    """Every function, where its statements begin, with a part of it and what this may become."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            where = node.name if where == "module" else f"{where}.{node.name}"
        case ast.stmt():
            begins = node.lineno
            yield from ((where, begins, node, text) for text in _statements(node))
        case ast.expr():
            yield from ((where, begins, node, f"({ast.unparse(changed)})") for changed in _expressions(node))
        case _:
            pass
    for child in _children(node):
        yield from _changes(child, where, begins)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that are computed."""
    typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    if typing or isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    for name, value in ast.iter_fields(node):
        if name in UNCOMPUTED or (name == "keywords" and isinstance(node, ast.ClassDef)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not (isinstance(child, ast.keyword) and child.arg in SILENT):
                yield child


def _statements(node: ast.stmt) -> Iterator[str]:
    """A statement is left out, an answer is None."""
    match node:
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return None"
        case ast.Expr(value=ast.Constant()):
            pass
        case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            yield "pass"
        case _:
            pass


def _expressions(node: ast.expr) -> Iterator[ast.expr]:
    """An operator becomes its neighbour, a number one more or less, a condition its opposite."""
    match node:
        case ast.Compare(left=left, ops=[op, *ops], comparators=comparators):
            yield ast.Compare(left, [_become(op), *ops], comparators)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield ast.BinOp(left, _become(op), right)
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(_become(op), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.UnaryOp(op=ast.USub(), operand=operand) if not isinstance(operand, ast.Constant):
            yield operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
            yield ast.BinOp(ast.Constant(value), ast.Sub(), ast.Constant(1))
        case ast.Constant(value=float(value)):
            yield ast.Constant(value + 1)
        case _:
            pass


def _become(op: ast.AST) -> Any:
    """The operator that takes this one's place."""
    return OPERATORS[type(op)]()
