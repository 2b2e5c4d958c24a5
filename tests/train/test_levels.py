"""Levels that are integers times a learned unit: published starts, gradients, levels; exported exactly, to the hardware."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch

from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.simulate import simulate_many
from dovetail.ir import Coded, Graph
from dovetail.numerics.lq import products_of, weight_values
from dovetail.numerics.reference import run_integer
from dovetail.train.export import to_graph, trained_codes, trained_reader
from dovetail.train.levels import ScaledActivation, ScaledWeight, signed_planes
from dovetail.train.networks import build, precision_of

WEIGHTS = [(bits, additive) for additive in (False, True) for bits in (2, 3, 4)]
READERS = [*((bits, False) for bits in (1, 2, 3, 4)), *((bits, True) for bits in (1, 2, 3))]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_levels_are_those_of_the_papers() -> None:
    assert [ScaledWeight(b, additive=False).integers for b in (2, 3)] == [(-2, -1, 0, 1), tuple(range(-4, 4))]
    assert ScaledActivation(3, additive=False).integers == tuple(range(8))
    parts = {2: ((0, 1, 2, 4), (0,)), 3: ((0, 1, 4, 8), (0, 2))}  # over 16 and 8: {0, 1/16, 1/4, 1/2} and {0, 1/8}
    for bits, (first, second) in parts.items():
        sums = tuple(sorted(a + b for a in first for b in second))
        assert ScaledActivation(bits, additive=True).integers == sums
        signed = ScaledWeight(bits + 1, additive=True).integers
        assert signed == (*(-v for v in reversed(sums[1:])), *sums)
    assert ScaledWeight(2, additive=True).integers == (-1, 0, 1)


@pytest.mark.parametrize("levels", [tuple(range(-8, 8)), (-10, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 10), (-3, 0, 2, 3)])
def test_signed_sums_of_a_basis_hold_every_level(levels: tuple[int, ...]) -> None:
    basis, codes = signed_planes(levels)
    assert [sum(v if c >> i & 1 else -v for i, v in enumerate(basis)) for c in codes] == list(levels)


def test_the_step_starts_and_learns_as_published() -> None:
    """By hand: z = (-2.4, -0.6, 0.7, 1.3) steps rounds to (-2, -1, 1, 1) and is clipped at both ends."""
    quantizer = ScaledWeight(2, additive=False).train()
    w = torch.tensor([[-1.2, -0.3, 0.35, 0.65]], requires_grad=True)
    quantizer(w)
    assert quantizer.scale() == pytest.approx(2 * 0.625)
    with torch.no_grad():
        quantizer.unit.fill_(0.5)
    incoming = torch.tensor([[1.0, 10.0, 100.0, 1000.0]])
    values = quantizer(w)
    values.backward(incoming)
    torch.testing.assert_close(values, torch.tensor([[-1.0, -0.5, 0.5, 0.5]]))
    assert w.grad.tolist() == [[0.0, 10.0, 100.0, 0.0]]
    to_step = (-2.0 * 1 + (-1 + 0.6) * 10 + (1 - 0.7) * 100 + 1.0 * 1000) / sqrt(4 * 1)
    assert float(quantizer.unit.grad) == pytest.approx(to_step, rel=1e-5)


def test_activations_count_the_features_of_one_image() -> None:
    quantizer, x = ScaledActivation(2, additive=False).train(), torch.rand(6, 5, 4, 3)
    quantizer(x).sum().backward()
    step = quantizer.scale()
    assert step == pytest.approx(2 * float(x.mean()) / sqrt(3), rel=1e-5)
    z = x / step
    moved = torch.where(z < 3, torch.floor(z + 0.5).clamp(max=3) - z, 3.0)
    assert float(quantizer.unit.grad) == pytest.approx(float(moved.sum()) / sqrt(60 * 3), rel=1e-3)


def test_a_clip_of_additive_powers_learns_as_published() -> None:
    """The paper's rule for clip α: sign(w) where |w| > α, else the level it goes to less w/α; weights' pass everywhere."""
    torch.manual_seed(2)
    quantizer, w = ScaledWeight(3, additive=True).train(), torch.randn(5, 40)
    quantizer(w)
    assert quantizer.scale() * 4 == pytest.approx(3.0, rel=1e-2)
    with torch.no_grad():
        quantizer.unit.fill_(0.3)
    w.requires_grad_()
    incoming = torch.randn(5, 40)
    quantizer(w).backward(incoming)
    deviation = float(w.detach().std())
    normal = (w.detach() - w.detach().mean()) / deviation / 1.2
    levels = torch.tensor([-4, -2, -1, 0, 1, 2, 4]) / 4
    nearest = levels[(normal.clamp(-1, 1)[..., None] - levels).abs().argmin(dim=-1)]
    to_clip = (incoming * deviation * torch.where(normal.abs() < 1, nearest - normal, normal.sign())).sum()
    assert float(quantizer.unit.grad) * 4 == pytest.approx(float(to_clip), rel=1e-4)  # a step of the unit is four times one of α
    torch.testing.assert_close(w.grad, incoming)


@pytest.mark.parametrize(("bits", "additive"), WEIGHTS)
def test_exported_weights_mean_what_training_multiplies_with(bits: int, additive: bool) -> None:
    torch.manual_seed(bits)
    quantizer, w = ScaledWeight(bits, additive).train(), torch.randn(3, 50) * 0.2
    expected = quantizer(w).detach().numpy()
    codes, basis, unit = trained_codes(quantizer.eval(), w)
    found = weight_values(codes, basis) if quantizer.bits else codes * basis
    np.testing.assert_allclose(found * unit, expected, rtol=1e-5, atol=1e-7)
    assert quantizer.bits == {2: 2 if additive else 3, 3: 4, 4: 0}[bits]


@pytest.mark.parametrize(("bits", "additive"), READERS)
def test_exported_thresholds_are_halfway_between_the_levels_training_uses(bits: int, additive: bool) -> None:
    quantizer, x = ScaledActivation(bits, additive).train(), torch.linspace(-1, 9, 5001)[None]
    quantizer(x)
    with torch.no_grad():
        quantizer.unit.fill_(7.1 / quantizer.top)
    expected = quantizer(x).detach().numpy()
    reader = trained_reader(quantizer)
    codes = (x.numpy()[..., None] >= np.asarray(reader.boundaries)).sum(axis=-1)
    levels = np.asarray([sum(v for j, v in enumerate(reader.basis) if c >> j & 1) for c in range(1 << quantizer.planes)])
    assert np.mean(np.abs(levels[codes] * reader.unit - expected) < 1e-4) > 0.999  # values on a threshold aside
    assert set(np.unique(codes)) == set(quantizer.integers)


def test_a_unit_of_other_levels_is_no_start() -> None:
    three, two = ScaledActivation(3, additive=False).train(), ScaledActivation(2, additive=False).train()
    three(torch.rand(2, 8))
    shared = {k: v for k, v in three.state_dict().items() if two.state_dict()[k].shape == v.shape}
    two.load_state_dict({**two.state_dict(), **shared})
    two(torch.full((1, 4), 5.0))
    assert two.scale() == pytest.approx(10 / sqrt(3), rel=1e-5)


def network(bits: str, method: str):  # type: ignore[no-untyped-def]
    """A small chain whose quantizers and norms have seen images, and the images."""
    torch.manual_seed(5)
    chain = build("small", precision_of(bits, method), (1, 8, 8), 5, 4).train()
    images = np.random.default_rng(1).integers(0, 256, (16, 1, 8, 8)).astype(np.uint8)
    for _ in range(3):
        chain(torch.from_numpy(images).float() / 256)
    return chain.eval(), images


def layer_of(graph: Graph, name: str) -> Graph:
    """One layer of a graph, on its own."""
    node = next(n for n in graph.nodes if n.name == name)
    return Graph("one", node.inputs, (node.output,), (node,), {t: graph.tensors[t] for t in (*node.inputs, node.output)},
                 {c: graph.constants[c] for c in node.params})


SCALED = [("w2a2", "lsq"), ("w3a3", "lsq"), ("w4a2", "lsq"), ("w2a2", "apot"), ("w3a3", "apot"), ("w4a2", "apot")]


@pytest.mark.parametrize(("bits", "method"), SCALED)
def test_codes_of_a_layer_are_those_of_torch(bits: str, method: str) -> None:
    """Products are small integers, so that only what float32 rounds on a threshold can differ."""
    chain, images = network(bits, method)
    graph = layer_of(to_graph(chain, images), "layer2")
    (node,) = graph.nodes
    assert isinstance(node.op, Coded)
    products = graph.params(node)[1].array
    assert np.all(np.isin(products, 2 ** np.arange(8))), "nothing but shifts"
    with torch.no_grad():
        read = chain.layers[0](torch.from_numpy(images).float() / 256)
        layer = chain.layers[1]
        size, stride = layer.pool
        layer.pool = None
        wanted = layer(read) / layer.activation.scale()
        layer.pool = (size, stride)
    codes = torch.round(read / chain.layers[0].activation.scale()).numpy().astype(np.uint8)
    assert set(np.unique(codes)) <= set(chain.layers[0].activation.integers)
    found = run_integer(graph, {graph.inputs[0]: codes})[graph.outputs[0]]
    assert np.mean(found == np.rint(wanted.numpy())) > 0.999
    assert len(np.unique(found)) > 1


@pytest.mark.verilator
def test_layers_of_both_quantizers_are_bit_exact_in_hardware() -> None:
    jobs = []
    for bits, method in (("w2a2", "lsq"), ("w3a3", "lsq"), ("w2a2", "apot"), ("w3a3", "apot"), ("w4a2", "apot")):
        chain, images = network(bits, method)
        graph = layer_of(to_graph(chain, images), "layer2")
        shape = graph.tensors[graph.inputs[0]].shape
        small = replace(graph, tensors={k: replace(t, shape=(*t.shape[:2], 4, 4)) for k, t in graph.tensors.items()})
        levels = np.asarray(chain.layers[0].activation.integers, dtype=np.uint8)
        frames = {graph.inputs[0]: np.random.default_rng(3).choice(levels, (2, shape[1], 4, 4))}
        jobs.append((small, frames, build_design(small, f"{method}_{bits}")))
    results = simulate_many([(design, frames) for _, frames, design in jobs], stall_seed=5)
    for (graph, frames, design), found in zip(jobs, results, strict=True):
        for name, expected in run_integer(graph, frames).items():
            assert len(np.unique(expected)) > 1
            np.testing.assert_array_equal(found.outputs[name].reshape(expected.shape), expected, err_msg=design.top)


def test_products_that_are_multiples_of_the_least_stay_multiples() -> None:
    basis, unit = np.asarray([[0.5, 1.0, 2.0, 0.5]]) * 0.3177, np.asarray([1.0, 2.0, 4.0]) * 0.1234
    products, _ = products_of(basis, unit, 6)
    least = products[0, 0, 0]
    np.testing.assert_array_equal(products[0], least * np.outer([1, 2, 4, 1], [1, 2, 4]))
    uneven, _ = products_of(np.asarray([[1.0, 1.7]]), np.asarray([1.0]), 6)
    assert uneven[0, :, 0].max() < 64
