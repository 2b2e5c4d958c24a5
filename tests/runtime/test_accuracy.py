"""What a build is judged by: labelled frames, the samples it was calibrated with, and what of its answers is right."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from dovetail.errors import UsageError
from dovetail.ir import Add, Array, Clip, Gemm, Graph, Node, Scheme, Tensor
from dovetail.ir.onnx.read import Imported, read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.partition.plan import whole_on
from dovetail.pipeline import compile as compile_model
from dovetail.pipeline import verify_build
from dovetail.runtime.accuracy import Calibrated, build_outputs, calibration_of, judged, load_data, outputs, right
from dovetail.runtime.build import Build, load_build, synthetic_integers
from tests.strategies import Net

pytestmark = pytest.mark.quick
CLASSES = 3


def classifier() -> Graph:
    net = Net(3, "classes")
    return net.graph(net.add(Gemm(CLASSES), net.input((1, 4)), name="fc"))


X = np.random.default_rng(0).normal(0, 1, (5, 4)).astype(np.float32)
LABELS = np.asarray([0, 1, 2, 0, 2])


def as_file(folder: Path, x: Array, y: Array) -> Path:
    np.savez(folder / "data.npz", x=x, y=y)
    return folder / "data.npz"


@pytest.mark.parametrize("form", [as_file, lambda _, x, y: (x, y), lambda _, x, y: {"x": x, "y": y}])
def test_labels_are_read_in_every_form(tmp_path: Path, form: Callable[[Path, Array, Array], Any]) -> None:
    inputs, labels = load_data(form(tmp_path, X, LABELS), classifier())
    np.testing.assert_array_equal(inputs["x"], X)
    np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize(("labels", "said"), [
    (LABELS[:4], "4 labels of type int64 for 5 images"), (LABELS - 1, "5 labels of type int64 for 5 images"),
    (LABELS + 1, "5 labels of type int64 for 5 images"), (LABELS.astype(np.float32), "5 labels of type float32 for 5 images")])
def test_labels_that_name_no_class_are_refused(labels: Array, said: str) -> None:
    with pytest.raises(UsageError, match=f"^data: {said}; one integer from 0 to 2 per image is needed$"):
        load_data((X, labels), classifier())


def test_images_without_labels_are_refused_where_there_are_classes() -> None:
    with pytest.raises(UsageError, match=r"^data: holds \['x'\]; images under 'x' and labels under 'y' are needed$"):
        load_data({"x": X}, classifier())


def test_a_network_of_two_inputs_or_without_classes_has_frames_alone() -> None:
    net = Net(3)
    both = net.graph(net.add(Add(), net.input((1, 4), "a"), net.input((1, 4), "b")))
    inputs, labels = load_data({"a": X, "b": X + 1}, both)
    assert labels is None
    np.testing.assert_array_equal(inputs["b"], X + 1)
    net = Net(3)
    value = net.graph(net.add(Gemm(1), net.input((1, 4))))
    assert load_data({"x": X}, value)[1] is None


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accuracy") / "classes.onnx"
    path.write_bytes(to_onnx(classifier()))
    return path


@pytest.fixture(scope="module")
def imported(file: Path) -> Imported:
    return read_onnx(file)


@pytest.fixture(scope="module")
def build(file: Path) -> Build:
    """On the processor alone, calibrated with `X`."""
    placed = {n.name: whole_on("cpu") for n in read_onnx(file).graph.nodes}
    return compile_model(file, "tx2-c10gx", file.parent / "build", assignment=placed, calibration={"x": X}, verify=False)


def test_the_samples_that_calibrated_a_build_are_those_it_keeps_or_those_given_again(build: Build, imported: Imported) -> None:
    kept, again = calibration_of(build, imported), calibration_of(build, imported, {"x": X})
    for found in (kept, again):
        assert (found.source, found.count) == ("arrays", 5)
        assert not isinstance(found.samples, str)
        np.testing.assert_allclose(found.samples.values["x"], X, atol=0.05)
    assert Calibrated.by(again.samples) == again  # type: ignore[arg-type]


@pytest.mark.parametrize("other", [X[:4], X[::-1]])
def test_samples_that_did_not_calibrate_the_build_are_refused(build: Build, imported: Imported, other: Array,
                                                              tmp_path: Path) -> None:
    said = re.escape(f"not what {build.folder} was calibrated with (arrays, 5 samples); give that file or leave "
                     "--calibration out")
    with pytest.raises(UsageError, match=f"^calibration: {said}$"):
        calibration_of(build, imported, {"x": other})
    np.savez(tmp_path / "other.npz", x=other)
    with pytest.raises(UsageError, match=f"^{re.escape(str(tmp_path / 'other.npz'))}: {said}$"):
        calibration_of(build, imported, tmp_path / "other.npz")


def test_a_build_of_another_file_is_not_compared(build: Build, imported: Imported) -> None:
    other = Imported(imported.graph, "0" * 64)
    assert calibration_of(build, other).samples == (
        "ONNX Runtime's int8 is not compared: the build was made from another file (classes.onnx), and what calibrated its "
        "numbers is not known")


def test_what_a_build_computes_is_judged_beside_the_float_network_and_its_integers(build: Build, imported: Imported) -> None:
    found, note = outputs(imported.graph, build.graph, calibration_of(build, imported).samples, {"x": X}, lambda *_: None)
    assert note == ""
    found["build"] = build_outputs(build, {"x": X})
    answers = found["float"]["fc_out"].argmax(axis=1)
    said = judged(build.graph, found, answers)
    assert said["float"] == 1.0
    assert said["build"] == said["int8"] == right(found["int8"]["fc_out"], answers)
    assert said["build_equals_int8"] is True
    assert said["agreement"]["build"] == said["int8"]
    found["build"] = {"fc_out": found["build"]["fc_out"] + 1.0}
    assert judged(build.graph, found, answers)["build_equals_int8"] is False
    nothing = judged(build.graph, {"int8": found["int8"]}, None)
    assert (nothing["float"], nothing["int8"], nothing["build_equals_int8"]) == (None, None, None)
    assert nothing["agreement_note"] == "no float network: the model came quantized"


def test_a_part_that_gives_another_shape_is_a_mismatch_of_its_first_frame(build: Build, tmp_path: Path) -> None:
    copy = tmp_path / "planted"
    shutil.copytree(build.folder, copy)
    (path,) = (copy / "cpu").glob("*.onnx")
    model = onnx.load(path)
    name = model.graph.output[0].name
    for node in model.graph.node:
        node.output[:] = [f"{n}_whole" if n == name else n for n in node.output]
    model.graph.initializer.append(numpy_helper.from_array(np.asarray([0, 1]), "first_two"))
    model.graph.node.append(helper.make_node("Gather", [f"{name}_whole", "first_two"], [name], axis=1))
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    path.write_bytes(model.SerializeToString())
    first = verify_build(load_build(copy, trust=True), frames=4).first_mismatch
    assert first is not None
    assert (first.tensor, first.frame, first.index) == ("fc_out", 0, (4, 2))


@pytest.mark.parametrize("scheme", [Scheme(2, False, (0,)), Scheme(3, True, (-2,), zero=1)])
def test_drawn_integers_are_all_of_a_scheme_and_no_others(scheme: Scheme) -> None:
    tensors = {name: Tensor(name, (1, 3), scheme) for name in "xy"}
    graph = Graph("g", ("x",), ("y",), (Node("n", Clip(), ("x",), (), "y"),), tensors)
    drawn = synthetic_integers(graph, 200, 1)["x"]
    assert (drawn.shape, drawn.dtype) == ((200, 3), scheme.dtype)
    assert np.unique(drawn).tolist() == list(range(scheme.lo, scheme.hi + 1))
    np.testing.assert_array_equal(drawn, synthetic_integers(graph, 200, 1)["x"])
