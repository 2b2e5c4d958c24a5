"""Reading generated Verilog as text: its modules by name, free of comments."""

from __future__ import annotations

import re

from dovetail.fpga.design import Design

COMMENT_OR_STRING = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
MODULE = re.compile(r"\bmodule\s+([A-Za-z_][A-Za-z0-9_$]*)\b.*?\bendmodule\b", re.DOTALL)


def is_verilog(file_name: str) -> bool:
    """Whether a file of a design is source text; the others are memory images it reads."""
    return file_name.endswith((".v", ".sv"))


def without_comments(text: str, keep_strings: bool = True) -> str:
    """Verilog with blanks for comments, and for strings where they are not to be mistaken for code."""
    return COMMENT_OR_STRING.sub(lambda match: match[0] if keep_strings and match[0].startswith('"') else " ", text)


def module_texts(design: Design) -> dict[str, str]:
    """Verilog of every module of a design by module name."""
    texts: dict[str, str] = {}
    for name, text in design.files.items():
        if is_verilog(name):
            texts.update({match[1]: match[0] for match in MODULE.finditer(without_comments(text))})
    return texts
