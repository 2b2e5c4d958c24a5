"""Folders as Hugging Face's Optimum writes them: the network's shape, labels and normalisation are taken from beside the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail as dt
from dovetail.errors import ModelError
from dovetail.ir.onnx.read import read_model
from dovetail.numbers import decide_numbers
from tests.ir.test_foreign import weights

CONFIG: dict[str, Any] = {"architectures": ["NetForImageClassification"], "num_channels": 3,
                          "id2label": {"0": "tench, Tinca tinca", "1": "goldfish", "2": "white shark", "3": "hen"}}
PIXELS: dict[str, Any] = {"crop_size": {"height": 8, "width": 12}, "do_center_crop": True, "do_normalize": True,
                          "do_rescale": True, "image_mean": [0.5, 0.25, 0.5], "image_std": [0.5, 0.25, 0.25],
                          "rescale_factor": 1 / 255, "size": {"shortest_edge": 16}}


def folder(path: Path, config: Any = CONFIG, pixels: Any = PIXELS, place: str = "model.onnx") -> Path:
    """A classifier whose batch, channels, height and width are symbolic, as Optimum exports them."""
    nodes = [helper.make_node("Conv", ["pixel_values", "w"], ["a"], "conv"),
             helper.make_node("GlobalAveragePool", ["a"], ["p"], "pool"),
             helper.make_node("Flatten", ["p"], ["logits"], "flatten")]
    dims = ["batch_size", "num_channels", "height", "width"]
    graph = helper.make_graph(nodes, "main_graph", [helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, dims)],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", 4])],
                              [numpy_helper.from_array(weights(4, 3, 3, 3), "w")])
    (path / place).parent.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (path / place).write_bytes(model.SerializeToString())
    for name, said in (("config.json", config), ("preprocessor_config.json", pixels)):
        if said is not None:
            (path / name).write_text(said if isinstance(said, str) else json.dumps(said), encoding="utf-8")
    return path


@pytest.mark.parametrize("place", ["model.onnx", "onnx/model.onnx"])
def test_a_folder_states_shape_labels_and_normalisation(tmp_path: Path, place: str) -> None:
    found = read_model(folder(tmp_path / "net-1.0", place=place))
    assert found.graph.name == "net-1.0"
    assert found.graph.shape("pixel_values") == (1, 3, 8, 12)
    assert found.labels == ("tench, Tinca tinca", "goldfish", "white shark", "hen")
    assert found.notes[-1] == ("frames are (byte * 0.00392157 - [0.5 0.25 0.5]) / [0.5 0.25 0.25], as preprocessor_config.json "
                               "says")
    assert "4 classes: tench, Tinca tinca, goldfish, white shark, …" in dt.terminal.inspection_table(
        dt.inspect(tmp_path / "net-1.0").document)


def test_synthetic_samples_are_normalised_as_the_folder_says(tmp_path: Path) -> None:
    x = decide_numbers(folder(tmp_path)).samples.values["pixel_values"]
    assert np.all(x[:, 2] >= -2)
    np.testing.assert_allclose(x.min((0, 2, 3)), [-1, -1, -2], atol=0.02)
    np.testing.assert_allclose(x.max((0, 2, 3)), [1, 3, 2], atol=0.02)


def test_a_stated_shape_goes_before_the_folder(tmp_path: Path) -> None:
    assert read_model(folder(tmp_path), {"pixel_values": (1, 3, 5, 6)}).graph.shape("pixel_values") == (1, 3, 5, 6)


def test_a_folder_may_say_nothing_but_the_network(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="say its size with --shape"):
        read_model(folder(tmp_path, None, None))
    found = read_model(tmp_path, {"pixel_values": (1, 3, 8, 8)})
    assert (found.labels, found.normalisation) == ((), None)


@pytest.mark.parametrize(("config", "pixels", "message"), [
    ("{", PIXELS, r"config\.json: not readable as JSON .*; export the folder again, or give the ONNX file alone"),
    ("[]", PIXELS, r"config\.json: not readable as JSON \(not an object\)"),
    ({"id2label": {"a": "b"}}, PIXELS, "not as Optimum writes it"),
    (CONFIG, {**PIXELS, "image_std": [0.5]}, "image_mean and image_std do not fit each other"),
    (CONFIG, {**PIXELS, "image_std": [0.5, 0, 1]}, "image_mean and image_std do not fit each other"),
    (CONFIG, {**PIXELS, "crop_size": {"height": -8, "width": 8}}, r"an image of \[3, -8, 8\]"),
    (CONFIG, {**PIXELS, "crop_size": [[], 3]}, "not as Optimum writes it"),
])
def test_a_damaged_description_is_named(tmp_path: Path, config: Any, pixels: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_model(folder(tmp_path, config, pixels))


def test_a_folder_of_other_names_says_what_is_there(tmp_path: Path) -> None:
    folder(tmp_path, place="decoder.onnx")
    with pytest.raises(ModelError, match=r"a folder without model\.onnx; give the path of an ONNX file, such as .*decoder\.onnx"):
        read_model(tmp_path)
