"""Operators that only move data: whatever an exporter calls them, they are read as one Select, Transpose or Reshape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from dovetail import zoo
from dovetail.errors import ModelError
from dovetail.ir import Conv, Graph, Opaque, PixelShuffle, Reshape, Select, Transpose, Upsample, Window
from dovetail.ir.onnx.movement import sliced
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.oracle import run_onnx, run_oracle
from dovetail.numerics.reference import run_float, run_integer
from tests.ir.test_onnx import random, save
from tests.strategies import Net, quantized

LAST, FIRST = np.iinfo(np.int64).max, np.iinfo(np.int64).min
make = helper.make_node


def read_same(path: Path) -> Graph:
    """The graph of a file, after checking that it computes what ONNX Runtime computes, bit for bit."""
    graph = read_onnx(path).graph
    x = random(*graph.shape(graph.inputs[0]))
    expected = run_onnx(path.read_bytes(), {graph.inputs[0]: x})
    found = run_float(graph, {graph.inputs[0]: x})
    assert set(found) == set(expected)
    for name in expected:
        np.testing.assert_array_equal(found[name].astype(np.float32), expected[name])
    return graph


def ints(*values: int) -> np.ndarray:
    return np.asarray(values, dtype=np.int64)


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_a_channel_split_becomes_one_slice_per_output(tmp_path: Path, opset: int) -> None:
    sizes = {"split": [2, 3]} if opset < 13 else {}
    inputs, weights = (["x"], {}) if opset < 13 else (["x", "s"], {"s": ints(2, 3)})
    nodes = [make("Split", inputs, ["a", "b"], "halves", axis=-3, **sizes)]
    outputs = {"a": [1, 2, 2, 3], "b": [1, 3, 2, 3]}
    graph = read_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 5, 2, 3]}, outputs, weights, opset))
    assert [n.op for n in graph.nodes] == [Select((0, 1)), Select((2, 3, 4))]
    assert kinds(graph) == ["ChannelSlice", "ChannelSlice"]


def test_a_split_into_a_number_of_outputs_gives_the_last_what_is_left(tmp_path: Path) -> None:
    nodes = [make("Split", ["x"], ["a", "b", "c"], "thirds", axis=1, num_outputs=3)]
    outputs = {"a": [1, 3], "b": [1, 3], "c": [1, 2]}
    graph = read_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 8]}, outputs, {}, 18))
    assert [n.op for n in graph.nodes] == [Select((0, 1, 2)), Select((3, 4, 5)), Select((6, 7))]


@pytest.mark.parametrize(("start", "end", "step", "wanted"), [
    (1, LAST, 1, (1, 2, 3, 4)), (-2, 100, 1, (3, 4)), (0, -1, 2, (0, 2)), (-1, FIRST, -1, (4, 3, 2, 1, 0)), (3, 0, -2, (3, 1))])
def test_a_slice_of_channels_is_a_select(tmp_path: Path, start: int, end: int, step: int, wanted: tuple[int, ...]) -> None:
    bounds = {"b": ints(start), "e": ints(end), "a": ints(1), "s": ints(step)}
    path = save(tmp_path / "m.onnx", [make("Slice", ["x", *bounds], ["y"], "cut")], {"x": [1, 5, 2, 3]},
                {"y": [1, len(wanted), 2, 3]}, bounds)
    graph = read_same(path)
    assert [n.op for n in graph.nodes] == [Select(wanted)]
    assert kinds(graph) == ["ChannelSlice"]


@given(st.integers(1, 9), st.integers(-30, 30), st.integers(-30, 30), st.integers(-4, 4).filter(bool))
def test_bounds_of_a_slice_are_those_of_python(size: int, start: int, end: int, step: int) -> None:
    """But for a start before the first index: backwards, ONNX begins with the first, and Python with none."""
    start = max(start, -size) if step < 0 else start
    assert list(sliced(size, start, end, step)) == list(range(size))[start:end:step]


def test_an_old_slice_keeps_its_bounds_in_attributes(tmp_path: Path) -> None:
    nodes = [make("Slice", ["x"], ["y"], "cut", axes=[1], starts=[-3], ends=[LAST])]
    graph = read_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 5, 2, 3]}, {"y": [1, 3, 2, 3]}, {}, 9))
    assert [n.op for n in graph.nodes] == [Select((2, 3, 4))]


def test_a_slice_of_rows_stays_what_it_was(tmp_path: Path) -> None:
    bounds = {"b": ints(1), "e": ints(3), "a": ints(2)}
    nodes = [make("Slice", ["x", *bounds], ["y"], "cut")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 5, 4, 3]}, {"y": [1, 5, 2, 3]}, bounds)
    graph = read_same(path)
    assert isinstance(graph.nodes[0].op, Opaque)
    assert read_onnx(path).notes == ("kept as it is, for the CPU: node cut: Slice moves more than whole channels",)


def test_a_gather_of_channels_is_a_select_and_one_of_all_in_order_is_nothing(tmp_path: Path) -> None:
    nodes = [make("Gather", ["x", "i"], ["a"], "pick", axis=1), make("Gather", ["a", "all"], ["y"], "same", axis=1)]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 4, 2, 2]}, {"y": [1, 3, 2, 2]}, {"i": ints(-1, 0, 0), "all": ints(0, 1, 2)})
    graph = read_same(path)
    assert [n.op for n in graph.nodes] == [Select((3, 0, 0))]
    assert kinds(graph) == ["Select"]


def shuffle(x: str, y: str, groups: int, shape: tuple[int, int, int, int], weights: dict[str, np.ndarray]) -> list:
    batch, channels, height, width = shape
    weights |= {f"{y}_apart": ints(batch, groups, channels // groups, height, width), f"{y}_back": ints(batch, -1, height, width)}
    return [make("Reshape", [x, f"{y}_apart"], [f"{y}_5"], f"{y}_apart"),
            make("Transpose", [f"{y}_5"], [f"{y}_t"], f"{y}_transpose", perm=[0, 2, 1, 3, 4]),
            make("Reshape", [f"{y}_t", f"{y}_back"], [y], f"{y}_back")]


@pytest.mark.parametrize("groups", [2, 3, 4, 6])
def test_reshape_transpose_reshape_is_a_channel_shuffle(tmp_path: Path, groups: int) -> None:
    weights: dict[str, np.ndarray] = {}
    nodes = shuffle("x", "y", groups, (1, 12, 3, 2), weights)
    graph = read_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 12, 3, 2]}, {"y": [1, 12, 3, 2]}, weights))
    assert kinds(graph) == ["ChannelShuffle"]
    assert graph.nodes[0].op.attributes() == f"{groups} groups"


def test_a_shuffle_with_computed_shapes_is_found(tmp_path: Path) -> None:
    """As the legacy PyTorch exporter writes it: sizes read from the tensor, divided, put together again."""
    dims = [make("Shape", ["x"], ["shape"], "shape")]
    for i in range(4):
        dims += [make("Gather", ["shape", f"i{i}"], [f"d{i}"], f"dim{i}", axis=0)]
    dims += [make("Div", ["d1", "two"], ["half"], "half")]
    names = {"d0": "n", "d1": "c", "d2": "h", "d3": "w", "half": "k", "two": "g"}
    dims += [make("Unsqueeze", [v, "zero"], [u], f"one_{u}") for v, u in names.items()]
    nodes = [*dims, make("Concat", ["n", "g", "k", "h", "w"], ["apart"], "apart", axis=0),
             make("Reshape", ["x", "apart"], ["five"], "view"),
             make("Transpose", ["five"], ["turned"], "transpose", perm=[0, 2, 1, 3, 4]),
             make("Concat", ["n", "c", "h", "w"], ["together"], "together", axis=0),
             make("Reshape", ["turned", "together"], ["y"], "back")]
    weights = {**{f"i{i}": np.asarray(i, dtype=np.int64) for i in range(4)}, "two": np.asarray(2, np.int64), "zero": ints(0)}
    graph = read_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 8, 3, 3]}, {"y": [1, 8, 3, 3]}, weights))
    assert [(n.name, n.op) for n in graph.nodes] == [("back", Select((0, 4, 1, 5, 2, 6, 3, 7)))]


def test_the_shuffle_that_ends_in_two_gathers_is_two_strided_slices(tmp_path: Path) -> None:
    """As ShuffleNetV2's authors wrote it: pairs become the first dimension, and each of the two is gathered."""
    nodes = [make("Reshape", ["x", "pairs"], ["a"], "pairs"), make("Transpose", ["a"], ["b"], "turn", perm=[1, 0, 2]),
             make("Reshape", ["b", "two"], ["c"], "two"), make("Gather", ["c", "zero"], ["kept"], "first", axis=0),
             make("Gather", ["c", "one"], ["worked"], "second", axis=0)]
    weights = {"pairs": ints(4, 2, 9), "two": ints(2, -1, 4, 3, 3)}
    weights |= {"zero": np.asarray(0, np.int64), "one": np.asarray(1, np.int64)}
    half = [1, 4, 3, 3]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 8, 3, 3]}, {"kept": half, "worked": half}, weights)
    assert [n.op for n in read_same(path).nodes] == [Select((0, 2, 4, 6)), Select((1, 3, 5, 7))]
    assert read_onnx(path).notes == ()


def test_a_split_behind_a_shuffle_reads_what_was_shuffled(tmp_path: Path) -> None:
    weights: dict[str, np.ndarray] = {"s": ints(2, 4)}
    nodes = [*shuffle("x", "m", 3, (2, 6, 2, 2), weights), make("Split", ["m", "s"], ["a", "b"], "halves", axis=1)]
    outputs = {"a": [2, 2, 2, 2], "b": [2, 4, 2, 2]}
    graph = read_same(save(tmp_path / "m.onnx", nodes, {"x": [2, 6, 2, 2]}, outputs, weights))
    assert [(n.inputs, n.op) for n in graph.nodes] == [(("x",), Select((0, 2))), (("x",), Select((4, 1, 3, 5)))]


def test_a_transpose_is_typed_and_one_of_single_rows_is_a_reshape(tmp_path: Path) -> None:
    nodes = [make("Transpose", ["x"], ["y"], "turn", perm=[0, 2, 3, 1])]
    graph = read_same(save(tmp_path / "m.onnx", nodes, {"x": [2, 3, 4, 5]}, {"y": [2, 4, 5, 3]}, {}))
    assert [n.op for n in graph.nodes] == [Transpose((0, 2, 3, 1))]
    graph = read_same(save(tmp_path / "n.onnx", nodes, {"x": [1, 3, 1, 1]}, {"y": [1, 1, 1, 3]}, {}))
    assert [n.op for n in graph.nodes] == [Reshape((1, 1, 1, 3))]
    nodes = [make("Transpose", ["x"], ["y"], "turn", perm=[1, 0])]
    graph = read_same(save(tmp_path / "o.onnx", nodes, {"x": [2, 3]}, {"y": [3, 2]}, {}))
    assert isinstance(graph.nodes[0].op, Opaque)


def test_a_reshape_that_mixes_frames_is_kept_and_samples_still_run_one_by_one(tmp_path: Path) -> None:
    nodes = [make("GlobalAveragePool", ["x"], ["p"], "pool"), make("Reshape", ["p", "s"], ["v"], "vector"),
             make("Sigmoid", ["v"], ["y"], "gate")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 6, 2, 2]}, {"y": [6]}, {"s": ints(6)})
    graph = read_onnx(path).graph
    x = random(3, 6, 2, 2)
    expected = np.concatenate([run_onnx(path.read_bytes(), {"x": f[None]})["y"] for f in x])
    np.testing.assert_allclose(run_float(graph, {"x": x})["y"], expected, rtol=1e-6)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_row_of_movements_keeps_its_meaning(tmp_path: Path, data: st.DataObject) -> None:
    """Reshapes, transposes and gathers at random, in a row: recognised or not, values end where they belong."""
    shape: tuple[int, ...] = (data.draw(st.integers(1, 2)), data.draw(st.sampled_from([2, 4, 6])), 2, 3)
    start, nodes, weights, x = list(shape), [], {}, "x"
    for i in range(data.draw(st.integers(1, 5))):
        kind, y = data.draw(st.sampled_from(["Reshape", "Transpose", "Gather"])), f"t{i}"
        if kind == "Reshape":
            merged = [shape[0], shape[1], -1] if data.draw(st.booleans()) and len(shape) > 2 else [shape[0], 2, -1, 3]
            if np.prod(shape) % (shape[0] * 6):
                merged = [shape[0], -1]
            weights[f"s{i}"] = ints(*merged)
            nodes.append(make("Reshape", [x, f"s{i}"], [y], y))
            shape = np.zeros(shape, dtype=np.int8).reshape(merged).shape
        elif kind == "Transpose":
            perm = [0, *data.draw(st.permutations(range(1, len(shape))))]
            nodes.append(make("Transpose", [x], [y], y, perm=perm))
            shape = tuple(shape[d] for d in perm)
        else:
            axis = data.draw(st.integers(1, len(shape) - 1))
            chosen = data.draw(st.lists(st.integers(0, shape[axis] - 1), min_size=1, max_size=4))
            weights[f"i{i}"] = ints(*chosen)
            nodes.append(make("Gather", [x, f"i{i}"], [y], y, axis=axis))
            shape = (*shape[:axis], len(chosen), *shape[axis + 1:])
        x = y
    nodes.append(make("Abs", [x], ["y"], "end"))
    read_same(save(tmp_path / "m.onnx", nodes, {"x": start}, {"y": list(shape)}, weights))


def test_a_quantized_shuffle_keeps_its_scheme_and_equals_onnx_runtime(tmp_path: Path) -> None:
    net = Net(3)
    y = net.add(Select((0, 2, 1, 3)), net.add(Conv(4, Window((1, 1))), net.input((1, 4, 3, 3))))
    graph = quantized(net.graph(net.add(Conv(2, Window((1, 1))), y)))
    assert graph.tensors[y].scheme == graph.tensors["n0_out"].scheme
    path = tmp_path / "m.onnx"
    path.write_bytes(to_onnx(graph))
    assert read_onnx(path).graph == graph
    scheme = graph.tensors["x"].scheme
    assert scheme is not None
    stored = {"x": np.random.default_rng(0).integers(scheme.lo, scheme.hi + 1, (3, 4, 3, 3)).astype(scheme.dtype)}
    for name, values in run_oracle(graph, stored).items():
        np.testing.assert_array_equal(values, run_integer(graph, stored, keep=True)[name])


def test_impossible_movements_are_refused() -> None:
    with pytest.raises(ModelError, match=r"^ChannelSlice: channel 4 of 4; channels count from 0$"):
        Select((3, 4)).infer(((1, 4, 2, 2),))
    with pytest.raises(ModelError, match=r"^ChannelSlice: input of rank 3; channels are chosen from N,C or N,C,H,W$"):
        Select((0, 1)).infer(((1, 4, 2),))
    with pytest.raises(ModelError, match=r"^Select: indices \[\]; at least one is needed, and none below 0$"):
        Select(())
    with pytest.raises(ModelError, match=r"^Transpose: order \[1, 0\]; every dimension once, the batch first$"):
        Transpose((1, 0))


@pytest.mark.parametrize("name", ["shufflenet-v1", "shufflenet-v2", "shufflenet-v2-0.5"])
def test_the_shufflenets_come_in_without_a_foreign_operator(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(zoo.build(name, size=32))
    graph = read_onnx(path).graph
    assert not [n.name for n in graph.nodes if isinstance(n.op, Opaque | Transpose)]
    assert "ChannelShuffle" in kinds(graph)


RESIZES = [{"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
           {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"},
           {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"},
           {"coordinate_transformation_mode": "align_corners", "nearest_mode": "round_prefer_floor"},
           {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "ceil"}]


@pytest.mark.parametrize("attributes", RESIZES)
@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (2, 5)])
def test_enlargements_are_repeated_pixels_where_their_coordinates_say_so(
        tmp_path: Path, attributes: dict[str, str], factors: tuple[int, int]) -> None:
    rows, columns = factors
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], name="resize", mode="nearest", **attributes)
    graph = helper.make_graph([node], "m", [helper.make_tensor_value_info("x", 1, [1, 2, 3, 4])],
                              [helper.make_tensor_value_info("y", 1, [1, 2, 3 * rows, 4 * columns])],
                              [numpy_helper.from_array(np.array([1, 1, rows, columns], np.float32), "s")])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(content)
    found = read_onnx(tmp_path / "m.onnx").graph
    x = np.random.default_rng(0).random((1, 2, 3, 4), dtype=np.float32)
    np.testing.assert_allclose(run_float(found, {"x": x})["y"], run_onnx(content, {"x": x})["y"])
    assert isinstance(found.nodes[0].op, Upsample) == (attributes in RESIZES[:3])


@pytest.mark.parametrize(("operator", "attributes", "shape"), [
    ("DepthToSpace", {"blocksize": 2}, [1, 8, 3, 5]), ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, [1, 8, 3, 5]),
    ("DepthToSpace", {"blocksize": 3, "mode": "CRD"}, [2, 9, 2, 3]), ("DepthToSpace", {"blocksize": 3}, [1, 18, 1, 3]),
    ("SpaceToDepth", {"blocksize": 3}, [1, 2, 6, 9])])
def test_blocks_of_channels_and_of_pixels_change_into_each_other(
        tmp_path: Path, operator: str, attributes: dict[str, object], shape: list[int]) -> None:
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], name="turn", **attributes)], "m",
                              [helper.make_tensor_value_info("x", 1, shape)], [helper.make_empty_tensor_value_info("y")])
    graph.output[0].type.tensor_type.elem_type = 1
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(content)
    found = read_onnx(tmp_path / "m.onnx").graph
    assert {n.op.kind for n in found.nodes} == ({"PixelShuffle"} if operator == "DepthToSpace" else {"Reshape", "Transpose"})
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    np.testing.assert_allclose(run_float(found, {"x": x})["y"], run_onnx(content, {"x": x})["y"])


def test_a_channels_last_shuffle_is_one_too(tmp_path: Path) -> None:
    """As Keras writes it: channels last, taken apart into rows, columns, groups and channels."""
    nodes = [make("Transpose", ["x"], ["a"], "last", perm=[0, 2, 3, 1]), make("Relu", ["a"], ["b"], "relu"),
             make("Reshape", ["b", "apart"], ["c"], "apart"), make("Transpose", ["c"], ["d"], "turn", perm=[0, 1, 2, 4, 3]),
             make("Reshape", ["d", "back"], ["e"], "back"), make("Transpose", ["e"], ["y"], "first", perm=[0, 3, 1, 2])]
    weights = {"apart": ints(1, 4, 3, 2, 3), "back": ints(1, 4, 3, 6)}
    graph = read_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 6, 4, 3]}, {"y": [1, 6, 4, 3]}, weights))
    assert kinds(graph) == ["Clip", "ChannelShuffle"]


def test_channels_of_a_map_too_large_to_trace_are_still_chosen(tmp_path: Path) -> None:
    bounds = {"b": ints(1, 0), "e": ints(3, LAST), "a": ints(1, 2)}
    path = save(tmp_path / "m.onnx", [make("Slice", ["x", *bounds], ["y"], "cut")], {"x": [1, 4, 2100, 2100]},
                {"y": [1, 2, 2100, 2100]}, bounds)
    assert [n.op for n in read_onnx(path).graph.nodes] == [Select((1, 2))]


@pytest.mark.parametrize("mode", ["CRD", "DCR"])
def test_a_pixel_shuffle_is_found_however_it_is_spelled(tmp_path: Path, mode: str) -> None:
    """As PyTorch wrote it before opset 11: taken apart, turned, put together, here with a row and a column cut away."""
    inner, perm = ((1, 3, 2, 4, 5, 6), (0, 1, 4, 2, 5, 3)) if mode == "CRD" else ((1, 2, 4, 3, 5, 6), (0, 3, 4, 1, 5, 2))
    nodes = [make("Relu", ["x"], ["a"], "relu"), make("Reshape", ["a", "apart"], ["b"], "apart"),
             make("Transpose", ["b"], ["c"], "turn", perm=list(perm)), make("Reshape", ["c", "back"], ["d"], "back"),
             make("Slice", ["d", "starts", "ends", "axes"], ["y"], "cut")]
    weights = {"apart": ints(*inner), "back": ints(1, 3, 10, 24), "starts": ints(0, 0), "ends": ints(9, 22), "axes": ints(2, 3)}
    graph = read_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 24, 5, 6]}, {"y": [1, 3, 9, 22]}, weights))
    assert [n.op for n in graph.nodes][1:] == [PixelShuffle(2, 4, mode == "DCR", (1, 2))]
    path = tmp_path / "own.onnx"
    path.write_bytes(to_onnx(graph))
    assert read_onnx(path).graph == graph


def test_impossible_shuffles_are_refused() -> None:
    with pytest.raises(ModelError, match=r"^PixelShuffle: blocks of 1x1 pixels; at least two pixels are needed$"):
        PixelShuffle(1, 1)
    with pytest.raises(ModelError, match=r"^PixelShuffle: 2 rows and 0 columns cropped; a block of 2x2 is larger$"):
        PixelShuffle(2, 2, cropped=(2, 0))
    with pytest.raises(ModelError, match=r"^PixelShuffle: 6 channels; blocks of 2x2 pixels need a multiple of 4$"):
        PixelShuffle(2, 2).infer(((1, 6, 3, 3),))
    with pytest.raises(ModelError, match=r"^PixelShuffle: input of rank 2; N,C,H,W is needed$"):
        PixelShuffle(2, 2).infer(((1, 8),))
