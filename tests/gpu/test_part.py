"""GPU parts of a build: trusted only after they agree with the reference, emulated with the reason otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import dovetail.gpu
from dovetail.errors import BuildError, ToolError, UnsupportedError
from dovetail.gpu.executor import compile_graph
from dovetail.gpu.part import first_difference, load_part
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.onnx.writer import Boundary
from dovetail.kernels.prices import priced
from dovetail.numerics import oracle
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.quality import static_int8
from dovetail.numerics.reference import run_float, run_integer
from dovetail.platform.gpu_specification import specification
from tests.kernels.networks import GRAPHS, activated, classifier, inverted, tiny
from tests.strategies import quantized, stored_inputs


class Wrong:
    """A network with one value off by one."""

    def __init__(self) -> None:
        self.graph = quantized(inverted())

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        found = {n: v.copy() for n, v in run_integer(self.graph, inputs).items()}
        (value,) = found.values()
        value[0, 1, 2, 3] ^= 1
        return found


def test_kernels_that_differ_from_the_reference_are_named_by_index() -> None:
    found = first_difference(Wrong().graph, Wrong().run)
    assert found is not None
    assert "[0, 1, 2, 3]: kernels give" in found


@pytest.mark.parametrize("name", ["inverted", "classifier", "sums", "unit"])
def test_a_part_runs_the_kernels_its_plan_counts_on_or_better_ones(name: str) -> None:
    graph = quantized(GRAPHS[name]())
    made, planned = compile_graph(graph, "int8"), priced(graph, specification("h200"), "int8")
    spent = sum(call.estimates_s[call.configs.index(config)] for call, config in made.calls)
    assert spent <= sum(price.behind_s for price in planned.prices.values()) * (1 + 1e-9)
    together = {frozenset(names) for names in planned.together({n.name for n in graph.nodes})}
    run = [frozenset(call.nodes) for call, _ in made.calls if call.kernel != "banded"]
    assert all(any(names <= own for own in run) for names in together if not any(
        names & frozenset(call.nodes) for call, _ in made.calls if call.kernel == "banded"))


def test_kernels_that_agree_are_trusted() -> None:
    graph = quantized(classifier())
    assert first_difference(graph, compile_graph(graph, "int8").run) is None


def test_without_a_gpu_a_part_is_emulated_with_the_same_integers() -> None:
    graph = quantized(inverted())
    part, rng = load_part(graph), np.random.default_rng(0)
    inputs = {"x": rng.integers(0, 50, graph.shape("x")).astype(graph.tensors["x"].dtype)}
    assert part.backend == "emulated"
    wanted = run_integer(graph, inputs)
    assert all(np.array_equal(part.run(inputs)[n], wanted[n]) for n in wanted)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's provider for CPUs in the place of that for CUDA."""
    monkeypatch.setattr(oracle, "CUDA", "CPUExecutionProvider")
    monkeypatch.setattr(oracle, "ON_CUDA", {})


def test_where_triton_does_not_reach_a_part_is_its_onnx_file(tmp_path: Path, on_cpu: None) -> None:
    graph = quantized(inverted())
    with pytest.raises(BuildError, match=r"net.onnx: missing; the build is incomplete"):
        load_part(graph, tmp_path)
    (tmp_path / f"{graph.name}.onnx").write_bytes(to_onnx(graph, Boundary.INTEGER))
    part, rng = load_part(graph, tmp_path), np.random.default_rng(1)
    assert part.backend == "onnxruntime on cuda"
    inputs = {"x": rng.integers(0, 50, (3, *graph.shape("x")[1:])).astype(graph.tensors["x"].dtype)}
    wanted = run_integer(graph, inputs)
    assert all(np.array_equal(part.run(inputs)[n], wanted[n]) for n in wanted)


def test_an_onnx_file_that_computes_something_else_is_not_trusted(tmp_path: Path, on_cpu: None) -> None:
    graph = quantized(inverted())
    (tmp_path / f"{graph.name}.onnx").write_bytes(to_onnx(quantized(inverted(), seed=1), Boundary.INTEGER))
    part = load_part(graph, tmp_path)
    assert part.backend == "emulated"
    assert "where" in part.note
    (tmp_path / f"{graph.name}.onnx").write_bytes(b"no model")
    assert "ONNX Runtime refused the model" in load_part(graph, tmp_path).note


def test_a_model_file_becomes_kernels(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(to_onnx(tiny()))
    made = dovetail.gpu.compile(tmp_path / "m.onnx", "float32")
    inputs = {"x": np.ones((1, 1, 1, 1), dtype=np.float32)}
    wanted = run_float(made.graph, inputs)
    assert made.run(inputs)[made.graph.outputs[0]] == pytest.approx(wanted[made.graph.outputs[0]], rel=1e-5)


def test_a_quantized_model_file_becomes_kernels_of_the_same_integers(tmp_path: Path) -> None:
    graph, path = quantized(tiny()), tmp_path / "m.onnx"
    path.write_bytes(to_onnx(graph))
    inputs = {"x": np.full((2, 1, 1, 1), 9, dtype=graph.tensors["x"].dtype)}
    (found,), (wanted,) = dovetail.gpu.compile(path, "int8").run(inputs).values(), run_integer(graph, inputs).values()
    assert np.array_equal(found, wanted)
    with pytest.raises(UnsupportedError, match="float16 arithmetic needs a float graph; this one is quantized, take int8"):
        dovetail.gpu.compile(path)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dovetail.gpu, "find_spec", lambda name: None)
    with pytest.raises(ToolError, match='torch and triton not found; get them with pip install'):
        dovetail.gpu.compile("m.onnx")


@pytest.mark.parametrize("make", [inverted, lambda: activated("HardSigmoid"), GRAPHS["pooled"], GRAPHS["shuffled"]],
                         ids=["inverted", "HardSigmoid", "pooled", "shuffled"])
def test_a_model_that_onnx_runtime_quantized_becomes_kernels_of_the_reference_s_integers(
        make: Callable[[], Graph], tmp_path: Path) -> None:
    path, graph = tmp_path / "m.onnx", make()
    path.write_bytes(static_int8(graph, synthetic(graph, 8)))
    made = dovetail.gpu.compile(path, "int8", images=2)
    (name,) = made.graph.inputs
    scheme, inputs = made.graph.tensors[name].scheme, stored_inputs(made.graph, 3)
    assert scheme is not None
    assert not scheme.fixed_point
    found = made.run(inputs)
    for tensor, wanted in run_integer(made.graph, inputs).items():
        assert np.array_equal(found[tensor], wanted), tensor
