"""Bits as an axis of plans: proposals are exact under their assumption, and what is told was measured."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cli import main
from dovetail.ir import Conv, Node, Window
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.fast import run_quantized
from dovetail.numerics.quality import top_classes
from dovetail.widths import WidthSensitivity, joint_choices

FASHION = Path(__file__).parents[1] / "examples" / "fashion"
MODEL, CALIBRATION, TEST = (str(FASHION / name) for name in ("fashion.onnx", "calibration.npz", "test_images.npz"))
NUMBERS = st.integers(0, 30)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=3), min_size=1, max_size=4))
def test_joint_choices_are_those_that_enumeration_finds(table: list[list[tuple[int, int]]]) -> None:
    layers = [Node(f"n{i}", Conv(1, Window((1, 1))), ("x",), (), f"y{i}") for i in range(len(table))]
    found = [WidthSensitivity(f"n{i}", f"k{k}", 0.0, float(noise), float(area))
             for i, own in enumerate(table) for k, (noise, area) in enumerate(own)]
    every = {(sum(a for _, a in chosen), sum(n for n, _ in chosen)) for chosen in product(*table)}
    best = {p for p in every if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in every)}
    proposed = joint_choices(layers, found)
    assert {(area, noise) for _, noise, area in proposed} == best
    for kinds, noise, area in proposed:
        own = [table[i][int(kinds[f"n{i}"][1:])] for i in range(len(table))]
        assert (sum(n for n, _ in own), sum(a for _, a in own)) == (noise, area)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bits") / "few.npz"
    with np.load(TEST) as found:
        np.savez(path, x=found["x"][:64], y=found["y"][:64])
    return str(path)


@pytest.mark.slow("plans and measures a network many times")
def test_every_point_is_measured_and_the_chosen_model_is_written(data: str, tmp_path: Path,
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bits"
    assert main(["bits", MODEL, "--data", data, "--calibration", CALIBRATION, "-p", "tx2-c10gx", "--points", "4",
                 "--max-loss", "0.1", "--fold", "none", "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert "chosen: " in text
    document = json.loads((out / "bits.json").read_text())
    points = {p["name"]: p for p in document["points"]}
    assert document["images"] == [32, 32]
    assert {s["kind"] for s in document["sensitivities"]} == {"int8", "int4", "lq2"}
    whole, chosen = points["all int8"], points[document["chosen"]]
    assert chosen["loss"] <= 0.1
    assert chosen["latency_s"] <= whole["latency_s"]
    assert min(p["area"] for p in points.values()) < 0.9 * whole["area"], "fewer bits take less of the FPGA"
    graph = read_onnx(out / "model.onnx").graph
    with np.load(data) as found:
        scores = run_quantized(graph, {"image": found["x"][1::2]})[graph.outputs[0]]
        assert chosen["accuracy"] == pytest.approx(float((top_classes(scores) == found["y"][1::2]).mean()))
    page = (out / "bits.html").read_text()
    assert page.count("<svg") == 2
    assert "Layers by themselves" in page
    # What was chosen can be measured beside other choices, as a trained network can.
    assert main(["bits", MODEL, "--data", data, "--calibration", CALIBRATION, "-p", "tx2-c10gx", "--points", "2", "--kinds",
                 "int8", "--fold", "none", "--also", str(out / "model.onnx"), "--json", "-"]) == 0
    again = {p["name"]: p for p in json.loads(capsys.readouterr().out)["points"]}
    assert again["model.onnx"]["accuracy"] == chosen["accuracy"]
    assert again["model.onnx"]["latency_s"] == pytest.approx(chosen["latency_s"], rel=0.02)


@pytest.mark.parametrize(("arguments", "message"), [
    (["--kinds", "int8,float"], "bits 'float': unknown; int2 to int8 and lq1 to lq4 exist"),
    (["--points", "1"], "64 labelled images, 1 point; 4 images and 2 points are needed at least"),
    (["--also", MODEL], "--also fashion.onnx: floats from [1, 1, 28, 28] to [1, 10]; a quantized model from"),
])
def test_bad_questions_are_answered_in_one_line(arguments: list[str], message: str, data: str,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bits", MODEL, "--data", data, "--calibration", CALIBRATION, *arguments]) == 2
    assert message in capsys.readouterr().err
