"""Damaged files of every loader, and requests: one clear error of ours or a clean load, never a traceback, never a hang."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import DovetailError, ModelError
from dovetail.ir import Conv, Gemm, MaxPool, Reshape, Window
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import load_samples
from dovetail.partition.plan_json import plan_from_json, plan_to_json
from dovetail.partition.solve import plan
from dovetail.platform.load import load_platform
from dovetail.serve.protocol import parse_request
from tests.ir.lite import Lite
from tests.mutations import change_document, change_model, zoo_of_nodes
from tests.serve.test_protocol import BINARY, SIGNATURE, N, X
from tests.strategies import Net, quantized

TIMES = 1000
MOST_S = 10.0
"""Processor seconds in which any file of these sizes is read or refused."""
CORPUS = Path(__file__).with_name("corpus")
"""Files that once ended in a traceback or never ended."""
REQUESTS: list[Any] = [{"id": "7", "inputs": [BINARY, N], "parameters": {"timeout": 2_000_000}},
                       {"inputs": [X, N], "parameters": {"binary_data_output": True},
                        "outputs": [{"name": "mask", "parameters": {"binary_data": False}}, {"name": "y"}]}]
BOARDS = Path(__file__).parents[1] / "src" / "dovetail" / "platform" / "boards"


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
    """One to four edits: flip, overwrite, insert, delete, truncate, repeat."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, max(1, len(data))))
        match int(rng.integers(0, 6)):
            case 0 if data:
                data[at] ^= 1 << int(rng.integers(0, 8))
            case 1:
                data[at:at + 4] = rng.bytes(4)
            case 2:
                data[at:at] = rng.bytes(int(rng.integers(1, 9)))
            case 3:
                del data[at:at + int(rng.integers(1, 40))]
            case 4:
                del data[max(at, 1):]
            case _:
                data[at:at] = data[at:at + int(rng.integers(1, 60))]
    return bytes(data)


def refusal(load: Callable[[Any], object], source: Any) -> str | None:
    """Our own error's text, None if it loads; anything else escapes and fails the test."""
    try:
        load(source)
    except DovetailError as error:
        return str(error)
    return None


def check_survives(content: bytes, path: Path, load: Callable[[Path], object], seed: int) -> None:
    rng = np.random.default_rng(seed)
    refused = 0
    for _ in range(TIMES):
        path.write_bytes(mutate(content, rng))
        message = refusal(load, path)
        assert message is None or (message and "\n" not in message), message
        refused += message is not None
    assert refused > TIMES // 10


@cache
def readable() -> dict[str, bytes]:
    """Models whose nodes are changed."""
    return {"zoo": zoo_of_nodes().SerializeToString(), "qdq": to_onnx(quantized(small().graph("n3_out")))}


@contextmanager
def limited() -> Iterator[None]:
    """A hang ends as an error: processor time is counted, so that a busy machine fails nothing."""
    def late(_number: int, _frame: object) -> None:
        raise TimeoutError(f"more than {MOST_S} s of processor time")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def small() -> Net:
    net = Net(1)
    x = net.input((1, 2, 6, 6))
    x = net.add(Conv(3, Window((3, 3), pads=(1, 1, 1, 1))), x)
    x = net.add(MaxPool(Window((2, 2), (2, 2))), x)
    x = net.add(Reshape((1, 27)), x)
    net.add(Gemm(4), x)
    return net


@pytest.mark.parametrize("kind", ["float", "qdq"])
def test_damaged_models_are_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    graph = small().graph("n3_out")
    content = to_onnx(graph if kind == "float" else quantized(graph))
    check_survives(content, tmp_path / "m.onnx", read_onnx, 1 if kind == "float" else 2)


@given(rng=st.randoms(use_true_random=False), base=st.sampled_from(["zoo", "qdq"]))
def test_models_that_no_exporter_writes_are_refused_in_one_line(rng: Random, base: str) -> None:
    model = onnx.load_model_from_string(readable()[base])
    change_model(model, rng)
    with limited():
        message = refusal(read_onnx, model.SerializeToString())
    assert message is None or (message and "\n" not in message), message


@pytest.mark.parametrize(("name", "message"), [
    ("add_of_three_inputs", "node x_dequantize: Add of 3 inputs; it has 2, the file is damaged"),
    ("axes_named_twice", "node up: axes [3, -2]; each of -5 to 4 at most once is possible, the file is damaged"),
    ("axis_beyond_the_last", "node down: axes [3]; each of -3 to 2 at most once is possible, the file is damaged"),
    ("clip_to_nan", "node clip: Clip to NaN; both bounds must be numbers, the file is damaged"),
    ("endless_stride", "node convtranspose_10: a map of shape [1, 4, 4294967298, 6]; at most 1,073,741,824 elements are handled"),
])
def test_what_fuzzing_found_stays_mended(name: str, message: str) -> None:
    path = CORPUS / f"{name}.onnx"
    with limited(), pytest.raises(ModelError, match=re.escape(message)):
        read_onnx(path)


def test_every_file_of_the_corpus_is_replayed() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [p.name for p in sorted(CORPUS.iterdir()) if f'"{p.stem}"' not in text] == []


@pytest.mark.parametrize("int8", [True, False])
def test_damaged_lite_files_are_refused_in_one_line(tmp_path: Path, int8: bool) -> None:
    lite, dtype = Lite(), "int8" if int8 else "float32"
    x, w, b, y = (lite.tensor(name, shape, "int32" if int8 and name == "b" else dtype, scale if int8 else None, values)
                  for name, shape, scale, values in (
                      ("x", (1, 5, 5, 2), (0.05, 3), None), ("w", (3, 3, 3, 2), (0.1, 0), np.arange(54) - 20),
                      ("b", (3,), (0.005, 0), np.arange(3)), ("y", (1, 3, 3, 3), (0.03, -5), None)))
    lite.operator("CONV_2D", [x, w, b], [y], "Conv2DOptions", padding=1, strideH=1, strideW=1, dilationHFactor=1,
                  dilationWFactor=1)
    check_survives(lite.content([x], [y]), tmp_path / "m.tflite", read_onnx, 6)


@given(rng=st.randoms(use_true_random=False))
def test_requests_of_strangers_are_refused_in_one_line(rng: Random) -> None:
    document = json.loads(json.dumps(rng.choice(REQUESTS)))
    change_document(document, rng)
    text, behind = json.dumps(document).encode(), bytes(rng.randrange(256) for _ in range(rng.choice((0, 8, 9))))
    header = len(text) if rng.random() < 0.8 else None
    message = refusal(lambda body: parse_request(body, header, SIGNATURE, 4), text + behind)
    assert message is None or (message and message.isprintable()), message


def test_damaged_boards_are_refused_in_one_line(tmp_path: Path) -> None:
    content = (BOARDS / "tx2-c10gx.toml").read_bytes()
    check_survives(content, tmp_path / "board.toml", lambda p: load_platform(str(p)), 3)


def test_damaged_samples_are_refused_in_one_line(tmp_path: Path) -> None:
    graph = small().graph("n3_out")
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 2, 6, 6), dtype=np.float32))
    content = (tmp_path / "x.npz").read_bytes()
    check_survives(content, tmp_path / "bad.npz", lambda p: load_samples(p, graph), 4)


def test_damaged_plans_are_refused_in_one_line(tmp_path: Path) -> None:
    board = load_platform("tx2-c10gx")
    text = json.dumps(plan_to_json(plan(quantized(small().graph("n3_out")), board), board))

    def load(path: Path) -> object:
        from dovetail.runtime.build import read_json
        return plan_from_json(read_json(path))

    check_survives(text.encode(), tmp_path / "plan.json", load, 5)


def test_fuzzing_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"nonsense")
    with pytest.raises(DovetailError):
        read_onnx(tmp_path / "m.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    shutil.rmtree(tmp_path)
