"""The zoo's networks are ordinary ONNX models of the right size that compute something."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from math import prod

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

from dovetail import zoo
from dovetail.errors import UsageError
from dovetail.ir.onnx.builder import Normal, OnnxBuilder
from dovetail.zoo import yolo

pytestmark = pytest.mark.slow("builds every network")

NAMES = zoo.names()
SMALL = 64
WITHOUT_BATCH_NORM = {"alexnet", "vgg16", "squeezenet1.0", "squeezenet1.1"}
"""Their authors had none to leave out."""
NARROW = {"alexnet": 0.25, "alexnet-bn": 0.25, "vgg16": 0.25, "resnet50": 0.5, "xception": 0.5, "yolov2": 0.25}
"""Their weights would fill the tests' time and memory."""

SHAPES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "unet-small": lambda size: (1, 100, size, size), "yolov2": lambda size: (1, 5 * 105, size // 32, size // 32)}
"""They tell the classes of every pixel, or of five boxes in every cell."""


def small_size(name: str) -> int:
    return max(SMALL, zoo.TABLE[name].least_size)


@cache
def small(name: str, batch_norm: bool = True) -> bytes:
    return zoo.build(name, size=small_size(name), width=NARROW.get(name), batch_norm=batch_norm, classes=100)


def run(content: bytes, *images: np.ndarray) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return [session.run(None, {"input": image})[0] for image in images]


def image(size: int, seed: int, batch: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, 3, size, size)).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_counts_at_native_size_are_those_of_the_table_and_of_its_source(name: str) -> None:
    row, counted = zoo.TABLE[name], zoo.count(name)
    assert (counted.parameters, counted.macs) == (row.parameters, row.macs)
    for published, ours in ((row.published_parameters, counted.parameters), (row.published_macs, counted.macs)):
        assert abs(ours - published.value) <= published.tolerance * published.value
    assert row.published_parameters.tolerance <= 0.01


def test_exactly_known_parameter_counts_are_met_exactly() -> None:
    known = {"alexnet": 61_100_840, "vgg16": 138_357_544, "resnet18": 11_689_512, "resnet50": 25_557_032,
             "squeezenet1.0": 1_248_424, "squeezenet1.1": 1_235_496, "mobilenet-v1": 4_231_976, "mobilenet-v2": 3_504_872,
             "shufflenet-v1": 1_865_728, "shufflenet-v2-0.5": 1_366_792, "shufflenet-v2": 2_278_604, "googlenet": 6_624_904,
             "mnasnet": 4_383_312, "xception": 22_855_952, "efficientnet-lite0": 4_652_008, "efficientnet-b0": 5_288_548,
             "proxylessnas-mobile": 4_080_512}
    assert {name: zoo.count(name).parameters for name in known} == known


@pytest.mark.parametrize(("name", "width", "parameters"), [
    ("mobilenet-v1", 0.5, 1_331_592), ("mobilenet-v1", 0.25, 470_072), ("shufflenet-v1", 0.5, 718_324)])
def test_other_widths_have_the_published_counts(name: str, width: float, parameters: int) -> None:
    """Figures of the pytorchcv model table."""
    assert zoo.count(name, width=width).parameters == parameters


def test_the_alexnet_of_lq_nets_counts_what_its_layer_list_sums_to() -> None:
    convolutions = [(96, 3, 11, 54 + 1), (256, 96, 5, 27), (384, 256, 3, 13), (384, 384, 3, 13), (256, 384, 3, 13),
                    (4096, 256, 6, 1), (4096, 4096, 1, 1)]
    weights = sum(out * deep * kernel**2 for out, deep, kernel, _ in convolutions) + 4096 * 1000 + 1000
    biases_of_fc, batch_norms = 2 * 4096, 2 * sum(out for out, *_ in convolutions)
    products = sum(out * deep * kernel**2 * side**2 for out, deep, kernel, side in convolutions) + 4096 * 1000
    assert zoo.count("alexnet-bn") == zoo.Count(weights + biases_of_fc + batch_norms, products)


def test_the_small_unet_counts_what_its_layer_list_sums_to() -> None:
    double = [(3, 16, 128), (16, 32, 64), (32, 64, 32), (64, 128, 16), (128, 64, 32), (64, 32, 64), (32, 16, 128)]
    layers = [(a, b, 9, side) for deep, out, side in double for a, b in ((deep, out), (out, out))]
    ups = [(2 * out, out, side // 2) for _, out, side in double[4:]]
    norms, biases = 4 * sum(out for _, out, _ in double), sum(out for _, out, _ in ups) + 2
    weights = sum(a * b * k for a, b, k, _ in layers) + sum(4 * a * b for a, b, _ in ups) + 2 * 16
    products = sum(a * b * k * side**2 for a, b, k, side in layers) + sum(4 * a * b * s**2 for a, b, s in ups) + 2 * 16 * 128**2
    assert zoo.count("unet-small") == zoo.Count(weights + norms + biases, products)


def test_yolov2_counts_what_its_authors_weight_file_holds() -> None:
    norms = sum(sum(stage) for stage in yolo.DARKNET) + 64 + 3 * 1024
    assert zoo.count("yolov2").parameters + 2 * norms == 50_983_561


def test_yolov2_refuses_sizes_that_its_passthrough_cannot_halve() -> None:
    with pytest.raises(UsageError, match=re.escape("zoo: yolov2 at size 100; it needs a multiple of 32 pixels, 96 for example")):
        zoo.build("yolov2", size=100)


def test_ceit_without_the_products_inside_attention_has_the_macs_its_paper_prints() -> None:
    tokens, features, depth = 14 * 14 + 1, 192, 12
    inside = depth * 2 * tokens**2 * features + 2 * depth**2 * features
    assert zoo.count("ceit-t").macs - inside == pytest.approx(1.2e9, rel=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_every_network_runs_in_onnx_runtime_and_tells_images_apart(name: str) -> None:
    size = small_size(name)
    first, second = run(small(name), image(size, 1), image(size, 2))
    assert first.shape == SHAPES.get(name, lambda size: (1, 100))(size)
    assert np.isfinite(first).all()
    assert 0.05 < first.std() < 100
    assert np.abs(first - second).max() > 1e-3 * first.std()
    assert len(np.unique(first)) > 20


@pytest.mark.parametrize("name", NAMES)
def test_every_network_passes_the_checker_and_its_shapes_are_inferred(name: str) -> None:
    model = onnx.load_from_string(small(name))
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 8
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
    batch, *rest = model.graph.input[0].type.tensor_type.shape.dim
    assert (batch.dim_param == "batch") == zoo.TABLE[name].free_batch
    assert [d.dim_value for d in rest] == [3, small_size(name), small_size(name)]


@pytest.mark.parametrize("name", NAMES)
def test_counts_without_weights_equal_those_read_back_from_the_file(name: str) -> None:
    model = shape_inference.infer_shapes(onnx.load_from_string(small(name)), strict_mode=True, data_prop=True)
    shapes = {v.name: [d.dim_value or 1 for d in v.type.tensor_type.shape.dim]
              for v in [*model.graph.value_info, *model.graph.output, *model.graph.input]}
    stored = {t.name: list(t.dims) for t in model.graph.initializer}
    macs = 0
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            macs += prod(shapes[node.output[0]]) * prod(stored[node.input[1]][1:])
        elif node.op_type == "ConvTranspose":
            macs += prod(shapes[node.input[0]]) * prod(stored[node.input[1]][1:])
        elif node.op_type == "MatMul":
            macs += prod(shapes[node.output[0]]) * shapes[node.input[0]][-1]
    fixed = re.compile(r"\.(running_mean|running_var|shape|sizes|index|scale|min|max|two|epsilon|sqrt2|one|half)$")
    parameters = sum(prod(dims) for key, dims in stored.items() if not fixed.search(key))
    assert zoo.count(name, size=small_size(name), width=NARROW.get(name), classes=100) == zoo.Count(parameters, macs)


@pytest.mark.parametrize("name", [n for n in NAMES if zoo.TABLE[n].free_batch and n not in NARROW])
def test_several_images_at_once_give_what_each_gives_alone(name: str) -> None:
    images = image(small_size(name), 3, batch=2)
    together, *alone = run(small(name), images, images[:1], images[1:])
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-3, atol=1e-3 * np.abs(together).max())


@pytest.mark.parametrize("name", [n for n in NAMES if n not in WITHOUT_BATCH_NORM])
def test_without_batch_norm_biases_take_its_place(name: str) -> None:
    content = small(name, batch_norm=False)
    with_it, without = (onnx.load_from_string(c).graph.node for c in (small(name), content))
    assert any(n.op_type == "BatchNormalization" for n in with_it)
    assert not any(n.op_type == "BatchNormalization" for n in without)
    if name != "xception":  # a depthwise convolution there is followed by its pointwise one at once
        assert all(len(n.input) == 3 for n in without if n.op_type == "Conv")
    result, = run(content, image(small_size(name), 1))
    assert np.isfinite(result).all()
    assert 0.05 < result.std() < 100


@pytest.mark.parametrize("name", sorted(WITHOUT_BATCH_NORM))
def test_networks_that_never_had_batch_norm_stay_as_they_are(name: str) -> None:
    assert small(name, batch_norm=False) == small(name)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first, again, other = (zoo.build("squeezenet1.1", size=SMALL, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first != other
    assert len(first) == len(other)


def weights(content: bytes) -> Iterator[tuple[str, np.ndarray]]:
    for tensor in onnx.load_from_string(content).graph.initializer:
        yield tensor.name, numpy_helper.to_array(tensor)


def test_weights_do_not_depend_on_the_image_size() -> None:
    one, two = (dict(weights(zoo.build("mobilenet-v2", size=size, width=0.25))) for size in (32, 96))
    assert all(np.array_equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet-v2", "shufflenet-v1", "xception"])
def test_activations_stay_in_range_through_depth(name: str) -> None:
    model = onnx.load_from_string(small(name))
    wanted = [n.output[0] for n in model.graph.node if n.op_type in ("Conv", "BatchNormalization", "Add")]
    model.graph.output.extend(helper.make_tensor_value_info(w, TensorProto.FLOAT, None) for w in wanted)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    spread = [float(v.std()) for v in session.run(wanted, {"input": image(small_size(name), 1)})]
    assert min(spread) > 0.1
    assert max(spread) < 30


def test_real_operators_of_exporters_appear() -> None:
    def operators(name: str) -> set[str]:
        return {n.op_type for n in onnx.load_from_string(small(name)).graph.node}

    assert {"Reshape", "Transpose", "Split", "Concat", "ReduceMean"} <= operators("shufflenet-v2")
    assert {"Clip", "GlobalAveragePool", "Flatten", "Gemm"} <= operators("mobilenet-v2")
    assert {"MatMul", "Softmax", "Erf", "Sqrt", "Gather", "Split"} <= operators("ceit-t")
    pads = [list(a.ints) for n in onnx.load_from_string(small("efficientnet-lite0")).graph.node for a in n.attribute
            if a.name == "pads"]
    assert [0, 0, 1, 1] in pads  # TensorFlow's padding is not the same on both sides
    ceil = [a.i for n in onnx.load_from_string(small("googlenet")).graph.node for a in n.attribute if a.name == "ceil_mode"]
    assert 1 in ceil
    assert {"LeakyRelu", "SpaceToDepth"} <= operators("yolov2")


def test_an_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(UsageError, match=re.escape(
            f"zoo: no network is called 'resnet81'; did you mean resnet18? known are {', '.join(NAMES)}")):
        zoo.build("resnet81")


def test_case_and_underscores_in_names_do_not_matter() -> None:
    assert zoo.entry("MobileNet_V2") is zoo.TABLE["mobilenet-v2"]


@pytest.mark.parametrize(("arguments", "message"), [
    ({"size": 62}, "zoo: alexnet at size 62; allowed are 63 to 4096 pixels, 224 is its own"),
    ({"size": 5000}, "zoo: alexnet at size 5000; allowed are 63 to 4096 pixels, 224 is its own"),
    ({"width": 0.0}, "zoo: alexnet at width 0; allowed is above 0 and up to 8"),
    ({"width": float("nan")}, "zoo: alexnet at width nan; allowed is above 0 and up to 8"),
    ({"classes": 0}, "zoo: alexnet with 0 classes; give 1 or more"),
    ({"seed": -1}, "zoo: seed -1 is negative; give 0 or more"),
])
def test_numbers_out_of_range_are_refused_with_the_range(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        zoo.build("alexnet", **arguments)  # type: ignore[arg-type]


def test_a_width_that_was_never_published_is_refused_where_widths_are_a_list() -> None:
    with pytest.raises(UsageError, match=re.escape("zoo: shufflenet-v2 at width 0.7; it exists at 0.5, 1, 1.5, 2")):
        zoo.build("shufflenet-v2", width=0.7)
    with pytest.raises(UsageError, match=re.escape("zoo: cvt-13 at width 0.5; it exists at 1")):
        zoo.build("cvt-13", width=0.5)


def test_a_file_beyond_what_onnx_can_hold_is_refused_before_weights_are_drawn() -> None:
    with pytest.raises(UsageError, match=re.escape("vgg16: the file would take 8.7 GB, more than an ONNX file can hold")):
        zoo.build("vgg16", width=4.0)


@pytest.mark.parametrize("name", NAMES)
def test_the_least_size_works(name: str) -> None:
    assert zoo.count(name, size=zoo.TABLE[name].least_size).macs > 0


def test_the_listing_names_every_network_its_counts_and_their_sources() -> None:
    text = zoo.listing()
    for row, described in zip(zoo.TABLE.values(), zoo.listing_json(), strict=True):
        assert row.name in text
        assert f"{row.parameters:,}" in text
        assert row.published_macs.source in text
        assert described["macs"] == row.macs
        assert described["published_parameters"]["source"] == row.published_parameters.source


def test_a_tensor_drawn_in_pieces_equals_one_drawn_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = OnnxBuilder("pieces")
    builder.initializer("w", (64, 32, 3, 3), Normal(1.0, centred=True))
    whole = b"".join(builder.initializers["w"].chunks(0))
    monkeypatch.setattr("dovetail.ir.onnx.builder.CHUNK_ELEMENTS", 1000)
    assert b"".join(builder.initializers["w"].chunks(0)) == whole


def test_a_value_written_twice_is_our_own_mistake_and_says_so() -> None:
    builder = OnnxBuilder("twice")
    builder.input("x", (1, 3))
    builder.node("Relu", ["x"], "y", (1, 3))
    with pytest.raises(ValueError, match="twice: value y is written twice"):
        builder.node("Relu", ["x"], "y", (1, 3))
