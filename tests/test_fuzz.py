"""A thousand damaged files per loader: one clear error of ours or a clean load, never a traceback, never a hang."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dovetail.errors import DovetailError
from dovetail.ir import Conv, Gemm, MaxPool, Reshape, Window
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import load_samples
from dovetail.partition.plan_json import plan_from_json, plan_to_json
from dovetail.partition.solve import plan
from dovetail.platform.load import load_platform
from tests.strategies import Net, quantized

TIMES = 1000
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


def refusal(load: Callable[[Path], object], path: Path) -> str | None:
    """Our own error's text, None if the file loads; anything else escapes and fails the test."""
    try:
        load(path)
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
