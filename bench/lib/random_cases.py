"""One case of `random_models`: what becomes of a random model, of a random plan, and of a damaged file."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
from tests.ir.lite import Lite
from tests.mutations import change_document, change_model
from tests.onnx_grammar import random_model
from tests.serve.test_protocol import SIGNATURE
from tests.test_fuzz import BOARDS, REQUESTS, mutate

from dovetail.errors import DovetailError, InfeasibleError, UnsupportedError
from dovetail.gpu.executor import compile_graph
from dovetail.gpu.part import first_difference
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import load_samples, synthetic
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import real_values, run_float, run_integer
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.plan import Split
from dovetail.partition.plan_json import plan_from_json, plan_to_json
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.partition.tables.columns import options
from dovetail.pipeline import compile as compile_model
from dovetail.pipeline import verify_build
from dovetail.platform.device import Kind, Platform
from dovetail.platform.load import load_platform
from dovetail.runtime.build import load_build, read_json, store
from dovetail.serve.protocol import parse_request

Outcome = tuple[str, str]
"""How a case ended in a word, and what there is to say of it."""
WRONG = ("wrong", "refused model", "traceback", "hang", "unclear", "died")
"""Ends that are faults."""
FRAMES = 2
TOLERANCE = 1e-3
"""Of the largest value: between the oracle's floats and ONNX Runtime's."""
SMALL = 1e-3
"""Outputs whose values are all smaller are compared as if they had this one: what is left of a difference is rounding."""
MOST_S = 10.0
TARGETS = ("tx2-c10gx", "zcu102", "kcu105", "ecp5-85", "zedboard", "fic:2", "fic:3", "tx2")
"""Boards that plans are drawn for."""


def integers(seed: int) -> Outcome:
    """A model through import, floats, quantization, integers, export and import again."""
    model, shape = random_model(seed)
    content = model.SerializeToString()
    inputs = {"x": np.random.default_rng(seed).standard_normal((FRAMES, *shape[1:])).astype(np.float32)}
    expected = _onnx_runtime(content, inputs)
    if not all(np.isfinite(values).all() for values in expected.values()):
        return "not finite", ""
    try:
        graph = read_onnx(content).graph
        floats = run_float(graph, inputs)
        for name, values in expected.items():
            error = np.abs(floats[name].reshape(values.shape) - values).max() / max(np.abs(values).max(), SMALL)
            if not error <= TOLERANCE:
                return "wrong", f"output {name}: floats differ by {error:.1e} of the largest"
        stored = quantize_graph(graph, synthetic(graph, 4, seed))
        found = run_integer(stored, store(stored, inputs, "a random model"))
        exported = to_onnx(stored)
        theirs = _onnx_runtime(exported, inputs)
        again = read_onnx(exported).graph
        repeated = run_integer(again, store(again, inputs, "a random model"))
    except DovetailError as error:
        return "refused model", str(error)
    for name in stored.outputs:
        values = found[name] if found[name].dtype.kind == "f" else real_values(stored.tensors[name], found[name])
        if not np.array_equal(theirs[name].reshape(values.shape), values, equal_nan=True):
            return "wrong", f"output {name}: integers differ from ONNX Runtime's"
        if not np.array_equal(repeated[name], found[name], equal_nan=True):
            return "wrong", f"output {name}: integers differ when the exported model is read again"
    return "equal", ""


def _onnx_runtime(content: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    frames = [run_onnx(content, {name: x[i:i + 1] for name, x in inputs.items()}) for i in range(FRAMES)]
    return {name: np.concatenate([frame[name] for frame in frames]) for name in frames[0]}


def planned(seed: int) -> Outcome:
    """A build of a random model after a random plan, read from its folder and verified."""
    rng = np.random.default_rng(seed)
    model, _ = random_model(seed)
    content = model.SerializeToString()
    graph = quantize_graph(read_onnx(content).graph, synthetic(read_onnx(content).graph, 4, seed))
    board = load_platform(str(rng.choice(TARGETS)))
    with tempfile.TemporaryDirectory() as name:
        try:
            build = compile_model(graph, board, Path(name) / "build", assignment=random_plan(graph, board, rng),
                                  verify=False)
        except InfeasibleError as error:
            return "does not fit", str(error)
        build = load_build(build.folder)
        outcome = verify_build(build, FRAMES)
        of_gpu = [s.graph for s in build.program.segments if build.platform.device(s.device).kind is Kind.GPU]
        told = [_in_triton(graph) for graph in of_gpu]
    if any(told):
        return "wrong", "; ".join(filter(None, told))
    parts = "+".join(sorted({str(s["backend"]) for s in outcome.segments} | ({"triton"} if "" in told else set())))
    return ("equal: " + parts, "") if outcome.equal else ("wrong", str(outcome.first_mismatch))


def _in_triton(graph: Graph) -> str | None:
    """What the kernels of a GPU part compute wrongly in Triton's interpreter; None where it has no kernels."""
    try:
        return first_difference(graph, compile_graph(graph, "int8", library=False).run) or ""
    except UnsupportedError:
        return None


def random_plan(graph: Graph, board: Platform, rng: np.random.Generator) -> dict[str, Split]:
    """Any of the splits that a board's devices can take, node by node; neighbours often go where their predecessor went."""
    problem, found = Problem(graph, board, DeviceCosts()), dict[str, Split]()
    devices = [device.name for device in board.devices]
    favourite = str(rng.choice(devices))
    for node in graph.nodes:
        splits = options(problem, node).splits
        if rng.random() < 0.3:
            favourite = str(rng.choice(devices))
        own = [split for split in splits if split.devices == (favourite,)]
        found[node.name] = own[0] if own and rng.random() < 0.6 else splits[int(rng.integers(len(splits)))]
    return found


def damaged(seed: int) -> Outcome:
    """A file or request that nobody would write, read or refused in one line."""
    rng = Random(seed)
    load, source = rng.choice(_kinds())(rng)
    try:
        with _limited():
            load(source)
    except DovetailError as error:
        return ("refused", "") if str(error) and "\n" not in str(error) else ("unclear", str(error))
    except _Late:
        return "hang", f"more than {MOST_S} s"
    return "read", ""


Damage = Callable[[Random], tuple[Callable[[Any], object], Any]]


@cache
def _kinds() -> tuple[Damage, ...]:
    return (_nodes, _nodes, _bytes_of_a_model, _lite, _board, _samples, _plan, _request)


def _model(rng: Random) -> bytes:
    model, _ = random_model(rng.randrange(1000))
    return model.SerializeToString()


def _nodes(rng: Random) -> tuple[Callable[[Any], object], Any]:
    model, _ = random_model(rng.randrange(1000))
    change_model(model, rng)
    return read_onnx, model.SerializeToString()


def _bytes(content: bytes, rng: Random) -> bytes:
    return mutate(content, np.random.default_rng(rng.getrandbits(32)))


def _bytes_of_a_model(rng: Random) -> tuple[Callable[[Any], object], Any]:
    return read_onnx, _bytes(_model(rng), rng)


@cache
def _lite_file() -> bytes:
    """One convolution of int8 as TFLite has it."""
    lite = Lite()
    x, w, b, y = (lite.tensor(name, shape, dtype, scale, values) for name, shape, dtype, scale, values in (
        ("x", (1, 5, 5, 2), "int8", (0.05, 3), None), ("w", (3, 3, 3, 2), "int8", (0.1, 0), np.arange(54) - 20),
        ("b", (3,), "int32", (0.005, 0), np.arange(3)), ("y", (1, 3, 3, 3), "int8", (0.03, -5), None)))
    lite.operator("CONV_2D", [x, w, b], [y], "Conv2DOptions", padding=1, strideH=1, strideW=1, dilationHFactor=1,
                  dilationWFactor=1)
    return lite.content([x], [y])


def _lite(rng: Random) -> tuple[Callable[[Any], object], Any]:
    return _in_a_file(_bytes(_lite_file(), rng), ".tflite", read_onnx), None


def _in_a_file(content: bytes, suffix: str, load: Callable[[Path], object]) -> Callable[[Any], object]:
    def read(_: Any) -> object:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / f"damaged{suffix}"
            path.write_bytes(content)
            return load(path)
    return read


def _board(rng: Random) -> tuple[Callable[[Any], object], Any]:
    content = _bytes(rng.choice(sorted(BOARDS.glob("*.toml"))).read_bytes(), rng)
    return _in_a_file(content, ".toml", lambda path: load_platform(str(path))), None


@cache
def _example() -> tuple[Graph, bytes, str]:
    """A small quantized network, samples of it, and a plan of it as JSON."""
    model, shape = random_model(4)
    graph = read_onnx(model.SerializeToString()).graph
    stored, board, samples = quantize_graph(graph, synthetic(graph, 4)), load_platform("tx2-c10gx"), io.BytesIO()
    np.savez(samples, x=np.zeros((3, *shape[1:]), dtype=np.float32))
    return graph, samples.getvalue(), json.dumps(plan_to_json(plan(stored, board), board))


def _samples(rng: Random) -> tuple[Callable[[Any], object], Any]:
    graph, samples, _ = _example()
    return _in_a_file(_bytes(samples, rng), ".npz", lambda path: load_samples(path, graph)), None


def _plan(rng: Random) -> tuple[Callable[[Any], object], Any]:
    text = _example()[2]
    if rng.random() < 0.5:
        document = json.loads(text)
        change_document(document, rng)
        text = json.dumps(document)
        content = text.encode("utf-8", "surrogatepass")
    else:
        content = _bytes(text.encode(), rng)
    return _in_a_file(content, ".json", lambda path: plan_from_json(read_json(path))), None


def _request(rng: Random) -> tuple[Callable[[Any], object], Any]:
    document = json.loads(json.dumps(rng.choice(REQUESTS)))
    change_document(document, rng)
    text, behind = json.dumps(document).encode(), rng.randbytes(rng.choice((0, 8, 9)))
    header = len(text) if rng.random() < 0.8 else None
    return lambda body: parse_request(body, header, SIGNATURE, 4), text + behind


PARTS: dict[str, Callable[[int], Outcome]] = {"integers": integers, "plans": planned, "damaged": damaged}
"""What a case of a part is."""


def some(arguments: Mapping[str, Any], files: Mapping[str, Path]) -> dict[str, Any]:
    """What became of some cases of a part, and the most memory that this process has held, in MB; what workers run."""
    found = list[tuple[int, str, str]]()
    for number in range(arguments["first"], arguments["first"] + arguments["count"]):
        try:
            kind, what = PARTS[arguments["part"]](number)
        except Exception as error:  # a traceback is what is looked for
            kind, what = "traceback", f"{type(error).__name__}: {error}"
        found.append((number, kind, what[:400]))
    return {"cases": found, "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


class _Late(BaseException):
    """A case takes too long; no handler of errors catches it."""


@contextmanager
def _limited() -> Iterator[None]:
    """A case that takes too long ends; in a thread of a Dask worker, which hears no signals, it is not limited."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_number: int, _frame: object) -> None:
        raise _Late

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
