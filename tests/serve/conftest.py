"""Small real builds, and servers of them on free ports of this machine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.ir import RELU, Add, Array, Conv, Gemm, Reshape, Window
from dovetail.ir.onnx.write import to_onnx
from dovetail.partition.plan import whole_on
from dovetail.pipeline import compile as compile_model
from dovetail.pipeline import decide_numbers
from dovetail.serve.app import Server, Serving
from dovetail.serve.runner import Opener
from dovetail.serve.workers import WorkerLimits
from tests.strategies import Net


def write_build(folder: Path, seed: int) -> Path:
    """Two images in, their features and a class out, all on the CPU."""
    net = Net(seed, "pair")
    left, right = (net.input((1, 2, 5, 3), name) for name in ("left", "right"))
    both = net.add(Add(RELU), *(net.add(Conv(3, Window((3, 3), pads=(1, 1, 1, 1)), 1, RELU), x) for x in (left, right)))
    features = net.add(Reshape((1, 45)), both, name="features")
    model = folder.with_suffix(".onnx")
    model.write_bytes(to_onnx(net.graph(features, net.add(Gemm(4), features, name="class"))))
    samples = {name: np.random.default_rng(1).random((4, 2, 5, 3), dtype=np.float32) for name in ("left", "right")}
    np.savez(folder.with_suffix(".npz"), **samples)
    placed = {n.name: whole_on("cpu") for n in decide_numbers(model).graph.nodes}
    compile_model(model, "tx2-c10gx", folder, assignment=placed, calibration=folder.with_suffix(".npz"), verify=False)
    return folder


def frames(count: int, seed: int = 0) -> dict[str, Array]:
    """Seeded inputs of the builds here."""
    rng = np.random.default_rng(seed)
    return {name: rng.random((count, 2, 5, 3), dtype=np.float32) for name in ("left", "right")}


@pytest.fixture(scope="session")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_build(tmp_path_factory.mktemp("builds") / "pair", 5)


@contextmanager
def serving(openers: Mapping[str, Opener], most_waiting: int = 64, most_frames: int = 8, hang_s: float = 60.0,
            body_bytes: int = 1 << 20, control: bool = True, **options: Any) -> Iterator[tuple[Server, str]]:
    """A server with `options` in a thread, and its address without `http://`; its end answers all that was accepted."""
    limits = WorkerLimits(most_frames, most_waiting, 1, hang_s)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = Server(openers, Serving(limits, port=0, body_bytes=body_bytes, control=control, **options))
    try:
        url = asyncio.run_coroutine_threadsafe(server.start(), loop).result()
        yield server, url.partition("://")[2]
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    finally:
        server.abandon()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def wait_for(found: Callable[[], bool]) -> None:
    """Wait until something is so; a test that waits in vain is ended by whoever runs it."""
    while not found():
        time.sleep(0.01)
