"""Every command and Python block of README and docs runs on small stand-ins, or is read by the real parser; the tables say which.

A command runs unless a table names it. Inline code that begins with `dovetail` may leave values out; its options must exist.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.strategies import Net

from dovetail.cli import main
from dovetail.cli.program import parser
from dovetail.ir import RELU, Conv, Gemm, Reshape, Window
from dovetail.ir.onnx.write import to_onnx

ROOT = Path(__file__).parents[2]
LANGUAGES = {"sh", "python", "text", "toml", "json"}
"""Of blocks of code: commands are `sh`, what they print is `text`."""
STAND_INS = {
    "dovetail zoo mobilenet-v2 -o model.onnx": "dovetail zoo mobilenet-v2 -o zoo.onnx",  # model.onnx stays small
    "dovetail compile model.onnx -p tx2-c10gx --calibration x.npz -o build/model":
        "dovetail compile model.onnx -p tx2-c10gx --calibration x.npz -o build/model --pin '*=fpga'",
}
"""Commands that run in another form. The network is small, and left to itself stays on the CPU."""
LONG = (
    "dovetail compile model.onnx -p zcu102 --architecture auto --objective throughput -o build/model",
    "dovetail selftest build/model --stall-seed 1",
    "dovetail synth build/model",
    "dovetail synth build/model --family ecp5",
    "dovetail synth build/model --family ecp5 --route",
)
"""Commands of half a minute of processor time and more: `make deep` runs them."""
TUTORIAL = "docs/guide/tutorial.md"
"""A page of which everything runs in its order, in `make deep`."""
PARSED = {
    "dovetail serve": "answers until it is stopped; tests/serve asks it",
    "dovetail studio": "answers until it is stopped; tests/studio drives it",
    "dovetail calibrate --device cpu -o": "measures for minutes; tests/measure/test_board.py fits",
    "dovetail calibrate --device gpu": "needs a GPU",
    "dovetail campaign": "synthesizes for an hour; tests/explore/test_area_campaign.py runs a small one",
    "dovetail explore": "starts processes or a cluster; tests/explore runs small ones",
    "dovetail train": "trains for minutes to days; tests/train runs small ones",
    "dovetail compile runs/": "compiles what was trained; tests/runtime/test_lq.py does",
    "dovetail selftest build/model --board": "needs a board; tests/runtime/test_transports.py has simulated ones",
    "dovetail run build/model -i x.npy -o y.npy --board": "needs a board; tests/runtime/test_transports.py has simulated ones",
    "dovetail bitstream ": "places and routes for minutes; tests/runtime/test_bitstreams.py makes one",
    "dovetail flash ": "needs a board; tests/runtime/test_bitstreams.py has a loader that writes down what it is asked for",
    "dovetail compile model.onnx -p zcu102 --fold 40000": "needs a network of codes; tests/runtime/test_loaded.py has one",
    "dovetail run build/net": "the same",
    "dovetail verify build/net": "the same",
    "dovetail validate-models": "needs rows that a user brings; tests/cost/test_fitting.py judges some",
}
"""Beginnings of commands that are read by the parser alone, and why."""
ELSEWHERE = {
    ". .venv/bin/activate": "the shell's own",
    "make ": "read by make -n below",
    "pip install ": "extras are compared with pyproject.toml below",
    "python stripes.py": "the tutorial's block, which make deep runs",
    "python bench/": "tests/bench/test_commands.py asks every script for its options",
    "python scripts/reference": "tests/test_docs.py runs it",
    "python -m dovetail.cost.fitting": "needs rows that a user brings; tests/cost/test_fitting.py fits",
}
"""Beginnings of commands of other programs, and what stands for running them."""
NOT_RUN = {
    ("docs/guide/gpu.md", "dovetail.gpu.compile"): "needs a GPU; tests/gpu runs kernels",
    ("docs/guide/gpu.md", "network.save"): "the same",
    ("docs/reference/python.md", "dovetail.gpu.compile"): "needs a GPU; tests/gpu runs kernels",
    ("docs/guide/serving.md", "tritonclient"): "needs a server; tests/serve talks to one with this client",
    ("docs/guide/own-operator.md", "OperatorPlugin"): "tests/extension/test_plugin.py runs it, and it is compared below",
    ("docs/guide/own-operator.md", "class Maximum"): "the same",
    ("docs/guide/own-solver.md", "host_alone"): "the same",
    (TUTORIAL, "import torch"): "make deep runs the tutorial",
    ("docs/reference/board-port.md", "open_simulated"): "compiles a simulator; tests/runtime/test_driver.py drives it so",
}
"""Python blocks that are compiled alone: page and what they hold, and why."""


def pages() -> list[Path]:
    """README, then docs in the order of reading."""
    order = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs" / p for p in order if (ROOT / "docs" / p).is_file())]


@cache
def blocks() -> list[tuple[str, str, str]]:
    """Page, language and text of every block of code."""
    return [(str(page.relative_to(ROOT)), found[1], found[2]) for page in pages()
            for found in re.finditer(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)]


def commands(of: str = "") -> list[str]:
    """Every line of blocks of commands, without comments, once; of one page, or of all."""
    texts = [text.replace("\\\n", " ") for page, language, text in blocks() if language == "sh" and of in page]
    lines = [line for text in texts for line in text.splitlines()]
    return list(dict.fromkeys(filter(None, (shlex.join(shlex.split(line, comments=True)) for line in lines))))


def named(command: str, table: Any) -> bool:
    return any(command == entry or command.startswith(entry) for entry in table)


def test_blocks_say_what_they_are_and_tables_name_commands_that_exist() -> None:
    assert [(page, text[:40]) for page, language, text in blocks() if language not in LANGUAGES] == []
    known = commands()
    assert [c for c in known if not c.startswith("dovetail ") and not named(c, ELSEWHERE)] == []
    assert [c for c in (*STAND_INS, *LONG) if c not in known] == []
    assert [entry for entry in (*PARSED, *ELSEWHERE) if not any(named(c, [entry]) for c in known)] == []
    assert [entry for entry in NOT_RUN if not any(entry[0] == page and entry[1] in text for page, _, text in blocks())] == []


def test_commands_are_what_the_parser_takes(capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands():
        if command.startswith("dovetail ") and command != "dovetail --help":
            try:
                parser().parse_args(shlex.split(command)[1:])
            except SystemExit:
                pytest.fail(f"{command}: {capsys.readouterr().err}")


def test_commands_in_sentences_have_options_that_exist() -> None:
    (group,) = (action for action in parser()._actions if isinstance(action.choices, dict))
    offered = {name: {option for action in command._actions for option in action.option_strings}
               for name, command in group.choices.items()}
    for page in pages():
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for code in re.findall(r"`dovetail ([a-z][^`]*)`", text):
            words = code.split()
            assert words[0] in offered, f"{page.name}: dovetail {code}"
            unknown = {w.partition("=")[0] for w in words if re.match(r"--?[a-z]", w)} - offered[words[0]]
            assert not unknown, f"{page.name}: dovetail {code}"


def test_make_and_pip_know_what_they_are_asked_for() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])
    for command in commands():
        words = shlex.split(command)
        if words[0] == "make" and "-C" not in words:
            told = subprocess.run([*words, "-n"], cwd=ROOT, capture_output=True, text=True)
            assert told.returncode == 0, told.stderr
        elif words[:2] == ["pip", "install"]:
            assert {e for word in words for found in re.findall(r"\[(.+)\]", word) for e in found.split(",")} <= extras, command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with everything that commands of the pages read: a small network and seeded data."""
    home, began = tmp_path_factory.mktemp("commands"), Path.cwd()
    net = Net(7, "model")
    x = net.add(Conv(3, Window((3, 3)), 1, RELU), net.input((1, 2, 6, 6), "x"), name="conv1")
    scores = net.add(Gemm(3), net.add(Reshape((1, 48)), x, name="flat"), name="fc")
    (home / "model.onnx").write_bytes(to_onnx(net.graph(scores)))
    draw = np.random.default_rng(0)
    np.savez(home / "x.npz", x=draw.random((20, 2, 6, 6), np.float32))
    for name in ("x.npy", "frames.npy"):
        np.save(home / name, draw.random((5, 2, 6, 6), np.float32))
    for name in ("labelled", "test", "train"):
        np.savez(home / f"{name}.npz", x=draw.random((30, 2, 6, 6), np.float32), y=draw.integers(0, 3, 30))
    rows = [f"conv,{c},{s},{f},3,1,1,1,relu,{1e-5 + 1e-9 * c * s * s * f},"
            for c in (4, 8, 16) for s in (8, 14) for f in (4, 8, 16)]
    header = "op,channels,side,filters,kernel,stride,groups,inputs,activation,seconds,energy_j"
    (home / "table.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOVETAIL_CACHE", str(home / "cache"))
        os.chdir(home)
        yield home
        os.chdir(began)


def run(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command, or its stand-in, as the terminal would."""
    try:
        code = main(shlex.split(STAND_INS.get(command, command))[1:])
    except SystemExit as ended:  # of --help
        code = int(ended.code or 0)
    assert code == 0, f"{command}: {capsys.readouterr().err}"


def execute(page: str, text: str, home: Path) -> None:
    """Run a block of Python with the names that its page explains in words."""
    import dovetail as dt
    frames = np.load(home / "frames.npy")
    names: dict[str, Any] = {"dt": dt, "frames": frames, "camera": iter(frames[:, None]), "build": dt.load_build("build/model")}
    if "async for" in text:
        names["requests"] = _arriving(frames)
        text = "async def told():\n" + "".join(f"    {line}\n" for line in text.splitlines())
    exec(compile(text, page, "exec"), names)
    if "told" in names:
        asyncio.run(names["told"]())


async def _arriving(frames: np.ndarray) -> Any:
    for frame in frames:
        yield frame[None]


def programs() -> list[tuple[str, str]]:
    """Page and text of every block of Python; signatures, which scripts/reference writes, are none."""
    return [(page, text) for page, language, text in blocks()
            if language == "python" and not re.fullmatch(r"dt\.\w+\(.*[*=].*\)|dt\.\w+\([\w, ]*\)", text.strip())]


@pytest.mark.verilator
@pytest.mark.yosys
def test_commands_and_python_of_the_pages_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands():
        if command.startswith("dovetail ") and command not in (*LONG, *commands(TUTORIAL)) and not named(command, PARSED):
            run(command, capsys)
    for page, text in programs():
        if any(page == where and part in text for where, part in NOT_RUN):
            ast.parse(text)
        else:
            execute(page, text, folder)


@pytest.mark.deep("synthesizes, places and routes")
def test_long_commands_of_the_pages_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("dovetail compile model.onnx -p tx2-c10gx --calibration x.npz -o build/model", capsys)
    for command in sorted(LONG, key=lambda c: "compile" in c):
        run(command, capsys)


@pytest.mark.deep("trains, synthesizes, places and routes")
def test_the_tutorial_ends_in_a_bitstream(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = (text for page, text in programs() if page == TUTORIAL)
    exec(compile(text, TUTORIAL, "exec"), {})
    assert "right: build 1.000, floats 1.000" in capsys.readouterr().out
    for command in commands(TUTORIAL):
        if command.startswith("dovetail "):
            run(command, capsys)
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(shlex.split(commands(TUTORIAL)[-1]), check=True, capture_output=True, env=tools)
    assert (folder / "project" / "fpga0" / "fpga0_axi.bit").stat().st_size > 1 << 20


def test_examples_of_pages_are_those_that_are_tested() -> None:
    files = [p.read_text(encoding="utf-8") for p in (ROOT / "tests" / "extension").rglob("*.py")]
    examples = [text for page, text in programs() if page.startswith("docs/guide/own-")]
    assert [text for text in examples if not any(_code(text) in _code(file) for file in files)] == []


def _code(text: str) -> str:
    """A program's statements, as Python writes them, without what is said about them and what is imported for annotations."""
    tree = ast.parse(text)
    kept = [s for s in tree.body if not isinstance(s, ast.Expr) and getattr(s, "module", "") != "__future__"]
    return "\n".join(map(ast.unparse, kept))
