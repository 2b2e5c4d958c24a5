"""Bad input through the command line as a child process: the right exit code, one line that names place and remedy,
nothing on standard output, nothing left behind."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.cli import main
from dovetail.errors import UsageError
from dovetail.numerics.calibration import load_arrays

pytestmark = pytest.mark.slow("starts a process for each case")

SOURCE = str(Path(dovetail.__file__).parents[1])
MODEL = str(Path(__file__).parents[1] / "examples" / "fashion" / "fashion.onnx")
BOARD = Path(__file__).parents[1] / "src" / "dovetail" / "platform" / "boards" / "ecp5-85.toml"
node = helper.make_node


BEGUN = """
import json, os, signal, sys
from dovetail.cli import main
from dovetail.cli.actions import builds, models, plans
for line in sys.stdin:
    folder, arguments, variables = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    signal.alarm(600)
    for number, name in enumerate((os.devnull, "../out", "../err")):
        os.dup2(os.open(os.path.join(folder, name), os.O_CREAT | os.O_TRUNC | os.O_RDWR), number)
    os.chdir(folder)
    os.environ.update(variables)
    sys.exit(main(arguments))
"""
"""Runs each command in a copy of a process that has imported what all need, which takes most of the time of a refusal."""


@pytest.fixture(scope="module", autouse=True)
def begun() -> Iterator[None]:
    """Ends the process that is copied."""
    yield
    if _begun.cache_info().currsize:
        _begun().communicate(timeout=600)


@cache
def _begun() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", BEGUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": SOURCE})


def run(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    stdin, stdout = _begun().stdin, _begun().stdout
    assert stdin is not None
    assert stdout is not None
    variables = {"DOVETAIL_CACHE": str(folder.parent / "cache"), **(environment or {})}
    print(json.dumps([str(folder), arguments, variables]), file=stdin, flush=True)
    code = int(stdout.readline())
    out, err = ((folder.parent / name).read_text() for name in ("out", "err"))
    return subprocess.CompletedProcess(arguments, code, out, err)


def start(folder: Path, *program: str, limit_bytes: int = resource.RLIM_INFINITY) -> subprocess.CompletedProcess[str]:
    """Run Python from its start, where files may be so large; compiled modules would be cut short too."""
    return subprocess.run([sys.executable, *program], cwd=folder, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"}, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes)))


def one_line(code: int, out: str, err: str, wanted: int = 2) -> str:
    """The one line of a refusal; notes and progress aside, there must be no other, and nothing on standard output."""
    assert code == wanted, err
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if not line.startswith(("  ", "dovetail: note: "))]
    assert len(lines) == 1, err
    assert lines[0].startswith("dovetail: ")
    assert out == ""
    return lines[0]


def refusal(folder: Path, *arguments: str, code: int = 2, environment: dict[str, str] | None = None,
            limit_bytes: int | None = None) -> str:
    """What a command in `folder` refuses with; the folder must be as it was."""
    before = sorted(p.name for p in folder.iterdir())
    done = (run(folder, *arguments, environment=environment) if limit_bytes is None
            else start(folder, "-m", "dovetail.cli", *arguments, limit_bytes=limit_bytes))
    assert sorted(p.name for p in folder.iterdir()) == before
    return one_line(done.returncode, done.stdout, done.stderr, code)


def value(name: str, shape: list[Any] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[Any], weights: dict[str, np.ndarray] | None = None, shape: list[Any] | None = None, output: str = "y",
          opset: int = 17) -> Any:
    graph = helper.make_graph(nodes, "net", [value("x", shape or [1, 2, 6, 6])], [value(output, None)],
                              [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("org.example", 1)],
                             ir_version=8)


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def conv(**changes: Any) -> Any:
    return model([node("Conv", ["x", "w"], ["y"], "conv", **changes)], {"w": weight(3, 2, 3, 3)})


def spoiled(number: float) -> Any:
    w = weight(3, 2, 3, 3)
    w[1, 0, 2, 1] = number
    return model([node("Conv", ["x", "w"], ["y"], "conv")], {"w": w})


def changed(edit: Callable[[Any], object], start: Callable[[], Any] = conv) -> Any:
    found = start()
    edit(found)
    return found


def outside(found: Any) -> None:
    tensor = found.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../etc/passwd")


def loop() -> Any:
    body = helper.make_graph(
        [node("Identity", ["go"], ["go_on"]), node("Relu", ["v"], ["w"])], "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("v", [1, 2, 6, 6])],
        [value("go_on", [], TensorProto.BOOL), value("w", [1, 2, 6, 6])])
    return model([node("Loop", ["n", "t", "x"], ["y"], "again", body=body)], {"n": np.asarray(3), "t": np.asarray(True)})


def recursive() -> Any:
    found = model([node("Block", ["x"], ["y"], "block", domain="org.example")])
    found.functions.append(helper.make_function(
        "org.example", "Block", ["a"], ["b"], [node("Block", ["a"], ["b"], domain="org.example")],
        [helper.make_opsetid("", 17), helper.make_opsetid("org.example", 1)]))
    return found


MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "empty": (lambda: b"", "bad.onnx: the file is empty; export the model again"),
    "four bytes": (lambda: b"ONNX", "bad.onnx: not an ONNX file or truncated ("),
    "truncated": (lambda: conv().SerializeToString()[:150], "bad.onnx: not an ONNX file or truncated ("),
    "wrong magic": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(99), "bad.onnx: not an ONNX file or truncated ("),
    "another message": (lambda: conv().graph.initializer[0].SerializeToString(), "; export the model again"),
    "a graph alone": (lambda: conv().graph.SerializeToString(), "bad.onnx: holds no graph, or an empty one"),
    "3 GB declared": (lambda: changed(lambda m: m.graph.initializer[0].dims.__setitem__(0, (3 << 30) // 72)),
                      "bad.onnx: tensor w declares 3.0 GiB; at most 1 GiB per tensor is read"),
    "cyclic": (lambda: model([node("Add", ["x", "b"], ["a"], "first"), node("Relu", ["a"], ["b"], "second")], output="b"),
               "node second waits for what node first makes of its own result; a network must not be cyclic, unroll the loop"),
    "unknown domain": (lambda: model([node("Frobnicate", ["x"], ["y"], "odd", domain="org.example")]),
                       "node odd: operator Frobnicate of domain org.example is unknown; export the model with standard ONNX"),
    "unknown operator": (lambda: model([node("Frobnicate", ["x"], ["y"], "odd")]),
                         "node odd: operator Frobnicate of domain ai.onnx is unknown; export the model with standard ONNX"),
    "missing initializer": (lambda: changed(lambda m: m.graph.initializer.pop()),
                            "node conv reads 'w', which no input, initializer or node of the file provides; export"),
    "NaN": (lambda: spoiled(np.nan), "weight conv_weight[1, 0, 2, 1] is nan; all weights must be finite, retrain or re-export"),
    "infinity": (lambda: spoiled(np.inf), "weight conv_weight[1, 0, 2, 1] is inf; all weights must be finite, retrain"),
    "NaN on the CPU": (lambda: model([node("Pow", ["x", "p"], ["y"], "odd")], {"p": np.full(6, np.nan, np.float32)}),
                       "node odd: its constant 'p' holds NaN; all weights must be finite, retrain or re-export the model"),
    "NaN variance": (lambda: model([node("BatchNormalization", ["x", *"sssv"], ["y"], "bn")],
                                   {"s": weight(2), "v": np.asarray([-1, 1], np.float32)}),
                     "weight bn_weight[0, 0, 0, 0] is nan; all weights must be finite"),
    "zero-sized input": (lambda: model([node("Relu", ["x"], ["y"], "relu")], shape=[1, 0, 4, 4]),
                         "input x has a symbolic or empty dimension 1 (0); say its size with --shape x=1,224,4,4"),
    "zero-sized map": (lambda: model([node("Conv", ["x", "w"], ["y"], "conv")], {"w": weight(0, 2, 3, 3)}),
                       "bad.onnx: tensor y: shape [1, 0, 4, 4] has a dimension below 1; every size must be positive"),
    "window too large": (lambda: model([node("Conv", ["x", "w"], ["y"], "conv")], {"w": weight(3, 2, 7, 7)}),
                         "node conv: window 7x7: larger than the padded input 6x6; the input must cover at least 7x7"),
    "contradicting kernel": (lambda: conv(kernel_shape=[5, 5]), "node conv: kernel_shape [5, 5] beside weights of shape"),
    "path traversal": (lambda: changed(outside), "tensor w points to '../../../etc/passwd', outside the model's folder"),
    "huge map": (lambda: conv(pads=[10**9] * 4), "node conv: a map of shape [1, 3, 2000000004, 2000000004]; at most"),
    "huge constant": (lambda: model([node("ConstantOfShape", ["s"], ["k"], "fill"), node("Add", ["x", "k"], ["y"], "add")],
                                    {"s": np.asarray([10**6, 10**6])}), "node fill: ConstantOfShape of constants makes"),
    "symbolic shape": (lambda: model([node("Relu", ["x"], ["y"], "relu")], shape=["N", 2, "h", "w"]),
                       "input x has a symbolic or empty dimension 2 ('h'); say its size with --shape x=1,2,224,224"),
    "two writers": (lambda: model([node("Relu", ["x"], ["y"], "one"), node("Abs", ["x"], ["y"], "two")]),
                    "node two writes 'y', which node one already does; every value has one source, export the model again"),
    "overwritten input": (lambda: model([node("Relu", ["x"], ["x"], "one")], output="x"),
                          "node one writes 'x', which an input of the graph already does; every value has one source"),
    "loop": (loop, "node again: the shape of Loop's output depends on data; export the model with fixed input shapes"),
    "text": (lambda: changed(lambda m: m.graph.input[0].CopyFrom(value("x", [2], TensorProto.STRING))),
             "input x holds text; tensors of numbers are supported, export the network without its text processing"),
    "sequence": (lambda: changed(lambda m: m.graph.input[0].CopyFrom(
        helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1]))), "input x is a sequence; tensors are supported"),
    "opset of the future": (lambda: model([node("Relu", ["x"], ["y"], "relu")], opset=999), "opset 999; 1 to "),
    "opset below one": (lambda: model([node("Relu", ["x"], ["y"], "relu")], opset=0), "opset 0; 1 to "),
    "recursive function": (recursive, "function Block of domain org.example calls itself; a network must end, unroll"),
    "no input": (lambda: changed(lambda m: m.graph.input.pop(),
                                 lambda: model([node("Relu", ["w"], ["y"], "relu")], {"w": weight(2)})),
                 "the graph has no input; a network needs at least one"),
    "no output": (lambda: changed(lambda m: m.graph.output.pop()), "the graph has no output; a network needs at least one"),
    "constant output": (lambda: model([node("Relu", ["w"], ["y"], "relu")], {"w": weight(2)}),
                        "no output is computed from an input; a network needs at least one, export it again"),
    "data-dependent shape": (lambda: model([node("NonZero", ["x"], ["y"], "odd")]),
                             "node odd: the shape of NonZero's output depends on data; export the model with fixed input shapes"),
    "escape codes in a name": (lambda: model([node("Conv", ["x", "w"], ["y"], "a\n\x1b[31mb")],
                                             {"w": weight(3, 2, 3, 3) * np.nan}),
                               r"weight a\n\x1b[31mb_weight[0, 0, 0, 0] is nan"),
}


EVERY = """
import json, os, sys, traceback
from dovetail.cli import main
found = {}
for case in sorted(os.listdir(".")):
    os.chdir(case)
    kept = os.dup(1), os.dup(2)
    for number, name in ((1, "../../out"), (2, "../../err")):
        os.dup2(os.open(name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), number)
    try:
        code = main(["quantize", "bad.onnx", "-o", "q.onnx"])
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush(), sys.stderr.flush()
    for number, old in enumerate(kept, 1):
        os.dup2(old, number)
    found[case] = [code, open("../../out").read(), open("../../err").read(), sorted(os.listdir("."))]
    os.chdir("..")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Every bad model through one child process (starting Python is most of the time of a refusal): code, output, files."""
    folder = tmp_path_factory.mktemp("models") / "in"
    for case, (make, _) in MODELS.items():
        content = make()
        (folder / case).mkdir(parents=True)
        (folder / case / "bad.onnx").write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    done = start(folder, "-c", EVERY)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", MODELS)
def test_a_bad_model_is_refused_by_place_and_remedy(case: str, answers: dict[str, list[Any]]) -> None:
    code, out, err, files = answers[case]
    line = one_line(code, out, err)
    assert line.startswith("dovetail: bad.onnx: ")
    assert MODELS[case][1] in line
    assert files == ["bad.onnx"]


@pytest.fixture
def small(tmp_path: Path) -> str:
    """A model that compiles in no time, beside the folder the command runs in."""
    path = tmp_path.parent / f"{tmp_path.name}.onnx"
    path.write_bytes(conv().SerializeToString())
    return str(path)


@pytest.mark.parametrize(("shape", "message"), [
    ("picture=1,1,28,28", "--shape picture: no such input; inputs are image"),
    ("image=28,28", "--shape image: 2 sizes for an input of 4 dimensions; write for example --shape image=1,1,28,28"),
    ("image=1,3,28,28", "weight of shape"),
    ("image=0,1,28,28", "not INPUT=SIZES; write for example --shape image=1,3,224,224"),
])
def test_a_wrong_shape_names_the_right_one(shape: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(tmp_path, "inspect", MODEL, "--shape", shape)


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    assert refusal(tmp_path, "plan", "in") == \
        "dovetail: in: a folder without model.onnx; give the path of an ONNX file or of a folder with one"


@pytest.mark.parametrize(("old", "new", "message"), [
    ("clock_hz = { value = 100e6", "clock_hz = { value = 100",
     "device fpga, clock_hz: key value is 100; allowed is 10000 to 1e+11 Hz"),
    ('host = "cpu"', 'host = "cpu"\nbudget = 3', "unknown key budget; allowed are name, description, host, device, link"),
])
def test_a_wrong_board_names_file_key_value_and_range(old: str, new: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(BOARD.read_text().replace(old, new, 1))
    line = refusal(tmp_path, "plan", MODEL, "-p", "mine.toml")
    assert "mine.toml" in line
    assert message in line


@pytest.mark.parametrize(("arguments", "message"), [
    (("compil", "x"), "(did you mean compile?); `dovetail --help` explains"),
    (("plan", "x", "--objective", "latancy"), "(did you mean latency?); `dovetail plan --help` explains"),
    (("plan", "x", "--thrift", "abc"), "argument --thrift: invalid float value: 'abc'; `dovetail plan --help` explains"),
    (("plan", MODEL, "--min-fps", "inf"), "--min-fps inf: must be from 1e-30 to 1e+30"),
    (("run", "x", "-i", "x.npy", "-o", "y/z.npy"), "y/z.npy: cannot be written, no such file or directory"),
    (("inspect", MODEL, "--json", "y/z.json"), "y/z.json: cannot be written, no such file or directory"),
])
def test_wrong_arguments_are_one_line(arguments: tuple[str, ...], message: str, tmp_path: Path,
                                      capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(str(ended.code))
    printed = capsys.readouterr()
    assert (code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert message in printed.err


def test_an_impossible_budget_is_the_answer_no(small: str, tmp_path: Path) -> None:
    line = refusal(tmp_path, "plan", small, "--max-latency-ms", "0.000001", "-o", "plan.json", code=1)
    assert "latency" in line


@pytest.mark.parametrize(("arrays", "message"), [
    ({"x": np.zeros((4, 3, 28, 28), np.float32)},
     "array of shape [4, 3, 28, 28] for input image; [samples, 1, 28, 28] is needed"),
    ({"x": np.full((4, 1, 28, 28), np.nan, np.float32)}, "input image contains NaN or infinite values; clean the data first"),
    ({"y": np.zeros(4)}, "no samples for input image; store them under the key 'x'"),
    ({"x": np.asarray([{"a": 1}], dtype=object)}, "not a readable .npz or .npy file (it holds Python objects, not numbers)"),
])
def test_bad_calibration_data_is_named(arrays: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", allow_pickle=True, **arrays)
    line = refusal(tmp_path, "quantize", MODEL, "--calibration", "data.npz", "-o", "q.onnx")
    assert line.startswith("dovetail: data.npz: ")
    assert message in line


@pytest.mark.parametrize(("content", "reason"), [
    (b"x,y\n1,2\n", "it does not begin as one"), (b"", "it is empty"), (b"\x80\x04]\x94.", "it does not begin as one"),
    (b"\x93NUMPY\x01\x00", "EOF: reading array header length"), (b"PK\x03\x04" + bytes(99), "File is not a zip file")])
def test_files_that_hold_no_arrays_are_told_from_damaged_ones(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(content)
    with pytest.raises(UsageError) as refused:
        load_arrays(tmp_path / "data.npz")
    assert f"data.npz: not a readable .npz or .npy file ({reason}" in str(refused.value)
    assert "pickle" not in str(refused.value)


@pytest.mark.parametrize("labels", [[0, 1, 10], [0, 1, -1], [0, 1], [0.0, 1.0, 2.0]])
def test_bad_labels_are_named(labels: list[float], tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=np.zeros((3, 1, 28, 28), np.float32), y=np.asarray(labels))
    line = refusal(tmp_path, "evaluate", MODEL, "--data", "data.npz")
    assert line.startswith("dovetail: data.npz: ")
    assert "one integer from 0 to 9 per image is needed" in line


def test_a_missing_simulator_or_synthesizer_says_how_to_get_it(tmp_path: Path) -> None:
    assert run(tmp_path, "compile", MODEL, "--thrift", "0.05", "--fold", "none", "-o", "build", "--no-verify").returncode == 0
    nothing = {"DOVETAIL_VERILATOR": str(tmp_path / "none"), "DOVETAIL_YOSYS": str(tmp_path / "none")}
    for command, variable in (("verify", "DOVETAIL_VERILATOR"), ("synth", "DOVETAIL_YOSYS")):
        line = refusal(tmp_path, command, "build", environment=nothing)
        assert f"is not an executable file; correct or unset {variable}" in line


@pytest.mark.parametrize("arguments", [("quantize", "-o", "/proc/q.onnx"), ("compile", "--no-verify", "-o", "/proc/build")])
def test_output_where_nobody_may_write_is_one_line(arguments: tuple[str, ...], small: str, tmp_path: Path) -> None:
    command, *rest = arguments
    line = refusal(tmp_path, command, small, *rest)
    assert f"{rest[-1]}: cannot be written, " in line
    assert "give a path in an existing folder with write permission and free space" in line


@pytest.mark.parametrize("arguments", [("quantize", "-o", "q.onnx"), ("compile", "--no-verify", "-o", "build"),
                                       ("inspect", "--json", "found.json"), ("plan", "-o", "plan.json")])
def test_a_full_disk_leaves_nothing_half_written(arguments: tuple[str, ...], small: str, tmp_path: Path) -> None:
    command, *rest = arguments
    line = refusal(tmp_path, command, small, *rest, limit_bytes=100)
    assert "cannot be written, file too large; give a path in an existing folder with write permission and free space" in line


def test_a_pipe_is_written_to_and_stays_a_pipe(small: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    done = run(tmp_path, "inspect", small, "--json", "pipe")
    found, _ = reader.communicate(timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(found)["layers"][0]["name"] == "conv"
    assert pipe.is_fifo()


def test_bytes_that_are_no_text_are_spelled_out(tmp_path: Path) -> None:
    content = model([node("Conv", ["x", "w"], ["y"], "caf_")], {"w": weight(3, 2, 3, 3)}).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(content.replace(b"caf_", b"caf\xe9"))
    assert r"caf\xe9" in run(tmp_path, "inspect", "m.onnx").stdout
