"""GPU kernels in Triton's interpreter against the reference: odd shapes, every kernel and tile, all kinds of numbers."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from dovetail.errors import UnsupportedError, UsageError
from dovetail.gpu.executor import Compiled, compile_graph
from dovetail.ir import (
    RELU,
    Add,
    Array,
    Clamp,
    Clip,
    Concat,
    Conv,
    Function,
    Gemm,
    GlobalAvgPool,
    Graph,
    MaxPool,
    Mul,
    Reshape,
    Select,
    Window,
)
from dovetail.kernels.calls import Call
from dovetail.kernels.lower import lower
from dovetail.numerics.reference import run_float, run_integer
from dovetail.platform.gpu_specification import specification
from tests.gpu.stored import stored
from tests.kernels.networks import FORMULAS, GRAPHS, SAME, activated, function, inverted, stem, tiny
from tests.strategies import Net, quantized, stored_inputs

TOLERANCE = {"float32": 2e-6, "tf32": 2e-3, "float16": 4e-3}


def compiled(name: str, kind: str, images: int = 2) -> tuple[Compiled, dict[str, Array], dict[str, Array]]:
    graph = GRAPHS[name]()
    if kind == "int8":
        graph = quantized(graph)
        inputs = stored_inputs(graph, 3)
        return compile_graph(graph, kind, images), inputs, run_integer(graph, inputs)
    inputs = {"x": np.random.default_rng(0).normal(size=(3, *graph.shape("x")[1:])).astype(np.float32)}
    return compile_graph(graph, kind, images), inputs, dict(run_float(graph, inputs))


@pytest.mark.parametrize(("name", "kind"), [*((name, kind) for name in GRAPHS for kind in ("float32", "float16", "int8")),
                                            ("inverted", "tf32"), ("deep", "tf32"), ("classifier", "tf32")])
def test_a_network_computes_what_the_reference_does(name: str, kind: str) -> None:
    made, inputs, wanted = compiled(name, kind)
    found = made.run(inputs)
    assert list(found) == list(wanted)
    for tensor, value in wanted.items():
        assert found[tensor].shape == value.shape
        if kind == "int8":
            assert found[tensor].dtype == value.dtype
            assert np.array_equal(found[tensor], value)
        else:
            assert np.linalg.norm(found[tensor] - value) <= TOLERANCE[kind] * np.linalg.norm(value)


@pytest.mark.usefixtures("kept_inside")
@pytest.mark.parametrize(("name", "kind"), [
    *((name, kind) for name in ("inverted", "inverted stride 2", "deep", "grouped", "classifier")
      for kind in ("float32", "int8")), ("inverted 5x5", "float32"), ("inverted", "float16"),
    pytest.param("inverted 5x5", "int8", marks=pytest.mark.deep("a minute and a half in the interpreter"))])
def test_every_kernel_and_tile_computes_the_same(name: str, kind: str) -> None:
    made, *_ = compiled(name, kind)
    wanted = {"inverted": {"conv1", "fused4", "fused3", "conv2", "banded2"}, "deep": {"halved", "fused2", "deep1"},
              "classifier": {"vector1", "conv2"}}.get(name, set())
    if name.startswith("inverted"):
        wanted |= {"bytewise1"} if kind == "int8" else {"walked3" if "stride" in name else "walked4"}
    every_tile(made, wanted, {"int8": 0, "float32": 1e-5, "float16": 0.01}[kind])


def every_tile(made: Compiled, wanted: set[str], tolerance: float) -> None:
    """Run every kernel of a network with some of its tiles against its layers apart; `wanted` kernels must be among them.

    Floats, which every machine adds up in an order of its own, may differ by the tolerance times the largest of them.
    """
    launcher, rng = made.launcher, np.random.default_rng(0)
    kernels: set[str] = set()
    launcher.buffers.clear()  # a place of its own for every tensor: kernels run in any order here
    for tensor, place in made.lowered.inputs.items():
        shape, scheme = made.graph.shape(tensor)[1:], made.graph.tensors[tensor].scheme
        made.load(tensor, rng.normal(size=(place.images, *shape)).astype(np.float32) if scheme is None else
                  rng.integers(scheme.lo, scheme.hi + 1, (place.images, *shape)).astype(scheme.dtype), place)
    for run in made.lowered.runs:
        options = () if isinstance(run, Call) else tuple(made.lowered.options(run, float("inf")))
        for first, last, call in options:  # layer by layer, so that every tensor exists
            if first == last and call.kernel in ("conv", "depthwise", "bytewise"):
                launcher.bound(call, call.configs[0])()
        for _, _, call in options:
            after = launcher.place(call.output)
            before = after.clone()
            near = tolerance * max(1.0, float(before.abs().max()))
            halved = [c for c in call.configs if c.get("SUMS") == 2][:1]
            for config in (call.configs[0], call.configs[len(call.configs) // 2], call.configs[-1], *halved):
                after.fill_(7)
                launcher.bound(call, config)()
                kernels |= {f"{call.kernel}{len(call.nodes)}", *(["halved"] if config.get("SUMS") == 2 else [])}
                assert bool(((after - before).abs() <= near).all()), (call.nodes, dict(config))
    assert wanted <= kernels, kernels


def test_a_pointwise_and_a_depthwise_layer_are_walked_through_where_nothing_follows() -> None:
    net = Net(1)
    wide = net.add(Conv(20, Window((1, 1)), clamp=RELU), stem(net, (9, 10), 8))
    deep = net.add(Conv(20, Window((3, 3), (2, 2), SAME), groups=20, clamp=Clamp(0.0, 4.0)), wide)
    every_tile(compile_graph(net.graph(deep), "float32", 2), {"walked2"}, 1e-5)


@pytest.mark.usefixtures("kept_inside")
@pytest.mark.parametrize(("stride", "kernel", "channels"), [(1, 3, 8), (2, 3, 24), (1, 5, 12)])
def test_bytes_of_four_rows_are_multiplied_at_once(stride: int, kernel: int, channels: int) -> None:
    graph = quantized(inverted(stride, kernel, size=(9, 10), clamp=RELU, channels=channels))
    inputs = stored_inputs(graph, 2)
    (name, wanted), made = *run_integer(graph, inputs).items(), compile_graph(graph, "int8", 2)
    walked = next(call for run in made.lowered.runs if not isinstance(run, Call)
                  for *_, call in made.lowered.options(run, inf) if call.kernel == "walked_bytes")
    made.run(inputs)
    made.launcher.buffers |= {buffer: values.clone() for buffer, values in made.launcher.buffers.items()}  # none shares memory
    made.load("x", inputs["x"], made.lowered.inputs["x"])
    for call, config in made.calls:
        if not set(call.nodes) & set(walked.nodes):
            made.launcher.bound(call, config)()
    for config in {c["R"]: c for c in reversed(walked.configs)}.values():  # the best of every number of rows
        made.launcher.place(walked.output).fill_(7)
        made.launcher.bound(walked, config)()
        assert np.array_equal(stored(made, name), wanted), dict(config)


@pytest.mark.parametrize("name", FORMULAS)
def test_activations_join_the_layers_before_them(name: str) -> None:
    graph = activated(name)
    inputs: dict[str, Array] = {"x": np.random.default_rng(0).normal(size=(2, 3, 9, 7)).astype(np.float32) * 3}
    made = compile_graph(graph, "float32", 2)
    (found,), (wanted,) = made.run(inputs).values(), run_float(graph, inputs).values()
    assert np.linalg.norm(found - wanted) <= 5e-6 * np.linalg.norm(wanted)
    functions = {n.name for n in graph.nodes if isinstance(n.op, Function)}
    alone = [call.nodes for call, _ in made.calls if len(call.nodes) == 1 and call.nodes[0] in functions]
    assert len(alone) == 1  # the one behind an addition


@pytest.mark.parametrize("name", ["GELU", "HardSwish"])
def test_every_fused_kernel_activates_as_its_layers_apart_do(name: str) -> None:
    every_tile(compile_graph(activated(name), "float32", 1), {"fused4", "fused7", "banded4"}, 1e-5)


def test_what_a_split_passes_on_is_copied_along_by_any_kernel_beside_it() -> None:
    made, inputs, _ = compiled("unit", "float32")
    assert not any(call.kernel == "chosen" for call, _ in made.calls)
    made.launcher.buffers.clear()
    for tensor, place in made.lowered.inputs.items():
        made.load(tensor, inputs[tensor][:place.images], place)
    kernels = set()
    options = [call for run in made.lowered.runs if not isinstance(run, Call) for *_, call in made.lowered.options(run, inf)]
    for call in options:
        if call.kernel in ("conv", "depthwise") and len(set(call.nodes)) <= 2:
            made.launcher.bound(call, call.configs[0])()
    for call in (c for c in options if c.constants.get("AC")):
        joined = made.launcher.buffers[call.output.buffer]
        before = joined.clone()
        for config in (call.configs[0], call.configs[-1]):
            joined.fill_(7)
            made.launcher.bound(call, config)()
            assert bool(((joined - before).abs() <= 1e-4).all()), (call.nodes, dict(config))
        kernels.add(f"{call.kernel}{len(call.nodes)}")
    assert kernels == {"conv2", "fused3", "fused4"}


def test_what_has_no_kernel_is_named() -> None:
    net = Net(8)
    x = stem(net)
    graph = net.graph(net.add(Mul(), x, net.add(Conv(1, Window((1, 1))), x)))
    for given, kind in ((graph, "float16"), (quantized(graph), "int8")):
        with pytest.raises(UnsupportedError, match="n2: GPU kernels multiply tensors of one shape, or by one value per channel"):
            lower(given, kind, specification("h200"))
    net = Net(8)
    with pytest.raises(UnsupportedError, match="GPU kernels have no Mish; they know HardSwish"):
        lower(net.graph(net.add(replace(function("Tanh"), name="Mish"), stem(net))), "float16", specification("h200"))


def beginning(name: str) -> Graph:
    """What a part of a plan may begin with: an input that no dense layer reads, or not only such layers; or end with."""
    net = Net(21)
    x = net.input((1, 5, 4, 3))
    if name == "depthwise":
        y = net.add(Conv(5, Window((3, 3), pads=SAME), groups=5, clamp=RELU), x)
    elif name == "addition":
        y = net.add(Add(), x, net.input((1, 5, 4, 3), "z"))
    elif name == "addition behind":
        y = net.add(Add(), x, net.add(Conv(5, Window((1, 1))), x))
    elif name == "largest":
        y = net.add(MaxPool(Window((3, 3), (2, 2), SAME)), x)
    elif name == "mean":
        y = net.add(GlobalAvgPool(), x)
    elif name == "flat":
        y = net.add(Gemm(4), net.add(Reshape((1, 60)), x))
    elif name == "flat at the end":
        y = net.add(Reshape((1, 60)), net.add(Conv(5, Window((1, 1))), x))
    elif name == "concatenation":
        y = net.add(Concat(1), x, net.input((1, 3, 4, 3), "z"))
    else:
        y = net.add(Conv(4, Window((1, 1))), net.add(Select((4, 0, 2)), x))
    return net.graph(y)


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("name", ["depthwise", "addition", "addition behind", "largest", "mean", "flat", "flat at the end",
                                  "concatenation", "choice"])
def test_a_part_may_begin_and_end_with_any_layer(name: str, kind: str) -> None:
    graph, rng, inputs = beginning(name), np.random.default_rng(0), dict[str, Array]()
    if kind == "int8":
        graph = quantized(graph)
    for tensor in graph.inputs:
        scheme, shape = graph.tensors[tensor].scheme, (3, *graph.shape(tensor)[1:])
        inputs[tensor] = rng.normal(size=shape).astype(np.float32) if scheme is None else \
            rng.integers(scheme.lo, scheme.hi + 1, shape).astype(scheme.dtype)
    found = compile_graph(graph, kind, 2).run(inputs)
    for tensor, value in (run_integer if kind == "int8" else run_float)(graph, inputs).items():
        assert np.array_equal(found[tensor], value) if kind == "int8" else found[tensor] == pytest.approx(value, abs=1e-4)


WRONG: dict[str, tuple[Any, str]] = {
    "channels": (lambda x: {"x": x[:, :2]}, r"input x: shape \[3, 2, 9, 7\]; one or more frames of \[3, 9, 7\]"),
    "one frame alone": (lambda x: {"x": x[0]}, r"input x: shape \[3, 9, 7\]"),
    "channels last": (lambda x: {"x": x.transpose(0, 2, 3, 1)}, r"input x: shape \[3, 9, 7, 3\]"),
    "no frame": (lambda x: {"x": x[:0]}, r"input x: shape \[0, 3, 9, 7\]"),
    "another name": (lambda x: {"image": x}, "image given; give an array for each of x, by name"),
    "no name": (lambda x: x, "a ndarray given; give an array for each of x"),
    "words": (lambda x: {"x": np.full(x.shape, "a")}, "input x: elements are <U1; numbers are needed"),
    "complex numbers": (lambda x: {"x": x + 1j}, "input x: elements are complex128"),
}


@pytest.mark.parametrize("name", WRONG)
def test_frames_of_another_form_are_refused_and_not_computed_with(name: str) -> None:
    wrong, reason = WRONG[name]
    made = compile_graph(activated("GELU"), "float32")
    with pytest.raises(UsageError, match=reason):
        made.run(wrong(np.zeros((3, 3, 9, 7))))


def test_a_quantized_network_takes_integers_and_as_many_frames_of_each_input() -> None:
    made = compile_graph(quantized(GRAPHS["inverted"]()), "int8")
    with pytest.raises(UsageError, match=r"input x: elements are complex128; integers, as u?int8, are needed"):
        made.run({"x": np.zeros((1, *made.graph.shape("x")[1:]), np.complex128)})
    net = Net(3)
    both = compile_graph(net.graph(net.add(Add(), *(net.add(Conv(4, Window((1, 1))), net.input((1, 4, 3, 3), n)) for n in "xz"))),
                         "float32")
    with pytest.raises(UsageError, match="x has 2 frames, z has 1 frame; give as many of each"):
        both.run({"x": np.zeros((2, 4, 3, 3)), "z": np.zeros((1, 4, 3, 3))})


@pytest.mark.parametrize("images", [0, -3, 1.5, "8", None, True])
def test_a_batch_is_a_whole_number(images: Any) -> None:
    with pytest.raises(UsageError, match="a batch is a whole number from 1 on"):
        compile_graph(activated("GELU"), "float32", images)


def test_integers_and_floats_are_not_confused() -> None:
    with pytest.raises(UnsupportedError, match="int8 arithmetic needs a quantized graph"):
        lower(tiny(), "int8", specification("h200"))


@pytest.mark.parametrize(("layer", "kernel"), [(Conv(12, Window((1, 1))), "conv"), (Conv(12, Window((3, 3))), "mean")])
def test_a_mean_of_integers_joins_pointwise_layers_and_is_a_kernel_behind_others(layer: Conv, kernel: str) -> None:
    net = Net(11)
    graph = quantized(net.graph(net.add(GlobalAvgPool(), net.add(layer, stem(net)))))
    frames = stored_inputs(graph, 3)
    made = compile_graph(graph, "int8", 2)
    assert made.calls[-1][0].kernel == kernel
    found = made.run(frames)
    for tensor, value in run_integer(graph, frames).items():
        assert np.array_equal(found[tensor], value)


def test_an_activation_alone_is_a_kernel() -> None:
    net = Net(10)
    x = net.add(Conv(4, Window((1, 1))), net.input((1, 3, 4, 4)))
    graph = net.graph(x, net.add(Clip(RELU), x))
    inputs = {"x": np.random.default_rng(0).normal(size=(1, 3, 4, 4)).astype(np.float32)}
    found, wanted = compile_graph(graph, "float32").run(inputs), run_float(graph, inputs)
    for tensor, value in wanted.items():
        assert np.allclose(found[tensor], value, atol=1e-5)
