"""The script that walks the README finds its commands there; the walk itself takes minutes and is run by hand."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

from dovetail.cli.program import parser

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def newcomer() -> Any:
    loader = SourceFileLoader("newcomer", str(ROOT / "scripts" / "newcomer"))
    module = module_from_spec(spec_from_loader("newcomer", loader) or pytest.fail("no such script"))
    loader.exec_module(module)
    return module


def test_the_readme_states_every_step_in_commands_that_exist() -> None:
    found = newcomer().commands(README, "Your own network")
    assert newcomer().commands(README, "Two commands")[0] == "make demo"
    assert found[0] == ". .venv/bin/activate"
    assert {c.split()[1] for c in found[1:]} >= {"inspect", "studio", "plan", "compile", "verify", "run", "serve"}
    for command in found[1:]:
        parser().parse_args(command.split()[1:])


def test_a_section_without_commands_is_named() -> None:
    with pytest.raises(SystemExit, match=r"README\.md: no block of commands under 'Nowhere'"):
        newcomer().commands(README, "Nowhere")
