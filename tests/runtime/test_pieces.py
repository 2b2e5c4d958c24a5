"""A plan's parts as plain ONNX files: ONNX Runtime alone computes what the build computes, joined as pieces.json says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from dovetail.cli import main
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_integer
from dovetail.runtime.build import Build, store
from dovetail.runtime.pieces import PIECES, export_pieces


def test_pieces_of_a_network_divided_in_every_way_equal_the_reference(divided: Build, tmp_path: Path) -> None:
    files = export_pieces(divided, tmp_path / "pieces")
    said = json.loads((tmp_path / "pieces" / PIECES).read_text(encoding="utf-8"))
    assert [p["file"] for p in said["pieces"]] == [f.name for f in files]
    assert {p["device"] for p in said["pieces"]} == {"cpu", "gpu", "fpga"}
    x = store(divided.graph, {"image": np.random.default_rng(5).random((1, 2, 8, 8), dtype=np.float32)}, "image")
    tensors = {name: np.zeros(t["shape"], x["image"].dtype) for name, t in said["tensors"].items()} | {"image": x["image"]}
    for piece, file in zip(said["pieces"], files, strict=True):
        onnx.checker.check_model(onnx.load(file))
        regions = {j["name"]: (j["tensor"], tuple(slice(*span) for span in j["region"]))
                   for j in (*piece["reads"], *piece["writes"])}
        found = run_onnx(file.read_bytes(), {j["name"]: tensors[regions[j["name"]][0]][regions[j["name"]][1]]
                                             for j in piece["reads"]})
        for joint in piece["writes"]:
            name, region = regions[joint["name"]]
            tensors[name] = tensors[name].astype(found[joint["name"]].dtype)
            tensors[name][region] = found[joint["name"]]
    (output,) = said["outputs"]
    np.testing.assert_array_equal(tensors[output], run_integer(divided.graph, x)[output])
    image = said["tensors"]["image"]
    assert image["scales"] == [float(s) for s in divided.graph.tensors["image"].scheme.scales]


def test_the_command_says_how_many(divided: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(divided.folder), "--vendor", "onnx", "-o", str(tmp_path / "p")]) == 0
    assert capsys.readouterr().out.endswith("parts for ONNX Runtime, joined as pieces.json says\n")
    assert main(["export", str(divided.folder), "--vendor", "onnx", "--part", "x", "-o", str(tmp_path / "p")]) == 2
    assert "leave it out, no device is built for" in capsys.readouterr().err
