"""`quantize --report` and `evaluate` as people and scripts use them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail.cli import main
from dovetail.ir.onnx_read import read_onnx
from dovetail.ir.onnx_write import to_onnx

FASHION = Path(__file__).parents[1] / "examples" / "fashion"
MODEL, CALIBRATION, TEST = (str(FASHION / name) for name in ("fashion.onnx", "calibration.npz", "test_images.npz"))


@pytest.fixture
def few(tmp_path: Path) -> str:
    with np.load(TEST) as data:
        np.savez(tmp_path / "few.npz", x=data["x"][:40], y=data["y"][:40])
    return str(tmp_path / "few.npz")


def test_the_report_lists_every_tensor_noisiest_first(few: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", MODEL, "--calibration", few, "--report", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    network = read_onnx(MODEL).graph
    assert {x["tensor"] for x in document["layers"]} == set(network.tensors)
    ratios = [np.inf if x["snr_db"] is None else x["snr_db"] for x in document["layers"]]
    assert ratios == sorted(ratios)
    assert ratios[0] > 15
    assert set(document["snr_db"]) == {"int8", "onnxruntime_int8"}


def test_the_report_is_a_table_for_people_and_the_model_is_written_beside(few: str, tmp_path: Path,
                                                                          capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "q.onnx"
    assert main(["quantize", MODEL, "--calibration", few, "--report", "--equalise", "off", "-o", str(target)]) == 0
    said = capsys.readouterr()
    assert "SNR dB" in said.out
    assert "ONNX Runtime int8" in said.out
    assert f"{target}: 8-bit QDQ model" in said.out
    assert "equalising" not in said.err
    assert read_onnx(target).graph.quantized


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "quantize: nothing to do; name the model to write with -o FILE, or ask for --report"),
    (["-o", "q.onnx", "--json", "-"], "quantize: --json holds the report; add --report"),
])
def test_quantize_without_a_task_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quantize", MODEL, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_model_that_came_quantized_has_no_report(few: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "q.onnx")
    assert main(["quantize", MODEL, "--calibration", few, "-o", target]) == 0
    assert main(["quantize", target, "--calibration", few, "--report"]) == 2
    assert "q.onnx: came quantized, so there is no float network to compare with" in capsys.readouterr().err
    assert main(["evaluate", target, "--data", few, "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["float"] is None
    assert document["agreement_note"] == "no float network: the model came quantized"
    assert document["int8"] > 0.8


def test_evaluate_sets_onnx_runtime_beside_the_integers(few: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", MODEL, "--data", few, "--calibration", CALIBRATION, "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["images"] == 40
    assert min(document["float"], document["int8"], document["onnxruntime_int8"]) > 0.8
    assert document["build"] is None
    assert document["agreement"]["int8"] >= 0.95
    assert document["snr_db"]["int8"] > 20
    assert main(["evaluate", MODEL, "--data", few, "--calibration", CALIBRATION]) == 0
    assert "agrees with float" in capsys.readouterr().out


def test_several_outputs_are_compared_by_noise_alone(few: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = read_onnx(MODEL).graph
    inner = graph.nodes[-2].output
    (tmp_path / "two.onnx").write_bytes(to_onnx(replace(graph, outputs=(inner, *graph.outputs))))
    with np.load(few) as data:
        np.savez(tmp_path / "x.npz", x=data["x"])
    assert main(["evaluate", str(tmp_path / "two.onnx"), "--data", str(tmp_path / "x.npz"), "--calibration", few]) == 0
    said = capsys.readouterr().out
    assert "top-1 agreement is not defined: the network has no single output of class scores" in said
    assert "output SNR dB" in said
