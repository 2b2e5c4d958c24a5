"""One real build for the whole folder: a small network divided over CPU, GPU and FPGA in every way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dovetail.ir import RELU, Add, Axis, Conv, Gemm, MaxPool, Reshape, Window
from dovetail.ir.onnx.write import to_onnx
from dovetail.partition.plan import Piece, Split, whole_on
from dovetail.pipeline import compile as compile_model
from dovetail.runtime.build import Build
from tests.strategies import Net

PADDED = Window((3, 3), pads=(1, 1, 1, 1))

DIVIDED = {
    "stem": Split(Axis.OUTPUT_CHANNELS, (Piece("fpga", 0, 3), Piece("cpu", 3, 6))),
    "dw": Split(Axis.GROUPS, (Piece("fpga", 0, 2), Piece("gpu", 2, 6))),
    "pw": Split(Axis.INPUT_CHANNELS, (Piece("cpu", 0, 4), Piece("fpga", 4, 6)), "cpu"),
    "join": Split(Axis.ROWS, (Piece("fpga", 0, 3), Piece("gpu", 3, 8))),
    "pool": whole_on("fpga"),
    "last": whole_on("fpga"),
    "flat": whole_on("cpu"),
    "fc": whole_on("cpu"),
}


def network() -> Net:
    net = Net(7, "small")
    x = net.input((1, 2, 8, 8), "image")
    stem = net.add(Conv(6, PADDED, 1, RELU), x, name="stem")
    y = net.add(Conv(6, PADDED, 6, RELU), stem, name="dw")
    y = net.add(Conv(6, Window((1, 1))), y, name="pw")
    y = net.add(Add(RELU), y, stem, name="join")
    y = net.add(MaxPool(Window((2, 2), (2, 2))), y, name="pool")
    y = net.add(Conv(4, PADDED, 1, RELU), y, name="last")
    y = net.add(Reshape((1, 64)), y, name="flat")
    net.add(Gemm(5), y, name="fc")
    return net


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    path.write_bytes(to_onnx(network().graph("fc_out")))
    return path


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("samples") / "x.npz"
    np.savez_compressed(path, x=np.random.default_rng(2).random((20, 2, 8, 8), dtype=np.float32))
    return path


@pytest.fixture(scope="session")
def divided(model: Path, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiled with every kind of split, on purpose, and not yet verified."""
    folder = tmp_path_factory.mktemp("builds") / "divided"
    return compile_model(model, "tx2-c10gx", folder, assignment=DIVIDED, calibration=samples, verify=False)


@pytest.fixture(scope="session")
def streamed(model: Path, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Everything but the classifier as one FPGA design."""
    folder = tmp_path_factory.mktemp("builds") / "streamed"
    nodes = {name: whole_on("cpu" if name in ("flat", "fc") else "fpga") for name in DIVIDED}
    return compile_model(model, "tx2-c10gx", folder, assignment=nodes, calibration=samples, verify=False)
