"""Arguments: every one that a command takes is read by it, and one that would have no effect is refused."""

from __future__ import annotations

import argparse
import ast
from pathlib import Path

import pytest

from dovetail import cli
from dovetail.cli import main
from dovetail.cli.program import ACTIONS, action_of, parser

SOURCE = Path(cli.__file__).parent
MODEL = str(Path(__file__).parents[1] / "examples" / "fashion" / "fashion.onnx")


def functions() -> dict[tuple[str, str], ast.FunctionDef]:
    """Functions of the command line by module and name."""
    found = {}
    for path in [SOURCE / "options.py", *(SOURCE / "actions").glob("*.py")]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                found[path.stem, node.name] = node
    return found


def reads(module: str, name: str, known: dict[tuple[str, str], ast.FunctionDef], seen: set[str]) -> set[str]:
    """Attributes of `options` that a function reads, itself or through functions it hands `options` to."""
    homes = (module, "options", "requested")
    home, node = next(((home, known[home, own]) for home in homes for own in (name, name.removesuffix("_of"))
                       if (home, own) in known), (module, None))
    if node is None or node.name in seen:
        return set()
    seen.add(node.name)
    found = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
             and n.value.id == "options"}
    for call in (n for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)):
        if any(isinstance(a, ast.Name) and a.id == "options" for a in call.args):
            found |= reads(home, call.func.id, known, seen)
    return found


def commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = (a.choices for a in parser()._actions if isinstance(a.choices, dict))
    return found


@pytest.mark.parametrize("name", commands())
def test_every_argument_of_a_command_is_read_by_it(name: str) -> None:
    sub, known = commands()[name], functions()
    found = reads(ACTIONS[name], action_of(name).__name__, known, set())
    taken = {a.dest for a in sub._actions if a.choices is None or len(a.choices) > 1} - {"help", "wide"}  # read by the program
    assert taken - found == set()


UNUSED = [
    ("zoo --size 64", "zoo: --size would have no effect; name a network to write"),
    ("zoo --seed 0 --no-bn", "zoo: --no-bn and --seed would have no effect"),
    ("platforms tx2-c10gx --models", "platforms --models: tx2-c10gx would have no effect"),
    (f"quantize {MODEL} --report --qonnx", "quantize --report: --qonnx would have no effect; name the model to write"),
    (f"compile {MODEL} -o build --no-verify --frames 3", "compile --no-verify: --frames would have no effect"),
    (f"plan {MODEL} --plan p.json --objective latency --thrift 0", "leave out --objective, --thrift"),
    ("calibrate --from r.json -o b.toml --threads 2 --record s.json", "calibrate --from: --threads and --record would have no"),
    ("calibrate --device gpu -o b.toml --threads 2", "calibrate --device gpu: --threads would have no effect"),
    ("reproduce gp-2023 --figure 4 --boards 3", "reproduce gp-2023 --figure 4: --figure and --boards would have no effect"),
    ("reproduce heterogeneity-2021 --figure 1 --models measured", "--models would have no effect"),
    ("reproduce compact-2024 --network mobilenet-v2", "reproduce compact-2024: --network would have no effect"),
    ("reproduce compact-2024 --part fibha --network mobilenet-v2 --record r.json", "--record would have no effect"),
    ("train small --data d -o o --bits float --method uniform", "train --bits float: --method would have no effect"),
    ("train small --data d -o o --temperature 4", "train: --temperature would have no effect; it is a teacher's"),
    ("train small --data d -o o --mean 0.5", "train small: --mean would have no effect"),
    ("train m.onnx --data d -o o --width 4", "train m.onnx: --width would have no effect; a network from a file has its own"),
]


@pytest.mark.parametrize(("arguments", "message"), UNUSED)
def test_an_argument_that_would_have_no_effect_is_refused(arguments: str, message: str, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
