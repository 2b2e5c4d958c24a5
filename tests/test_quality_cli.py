"""`quantize --report` and `evaluate` as people and scripts use them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail.cli import main
from dovetail.errors import DovetailError
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics import quality
from dovetail.partition.plan import whole_on
from dovetail.pipeline import evaluate_model
from dovetail.runtime.build import SAMPLES, load_build

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
    assert ("by output SNR" in document["peer_lead"]) == (document["snr_db"]["onnxruntime_int8"] > document["snr_db"]["int8"])


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
    said = capsys.readouterr().out
    assert "agrees with float" in said
    assert document["peer_lead"] in said


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


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> dovetail.Build:
    """Fashion on the CPU alone, calibrated with more samples than `verify` needs."""
    whole = {n.name: whole_on("cpu") for n in read_onnx(MODEL).graph.nodes}
    return dovetail.compile(MODEL, out=tmp_path_factory.mktemp("fair") / "build", assignment=whole, calibration=CALIBRATION,
                            verify=False)


def test_a_build_and_onnx_runtime_are_calibrated_with_the_same_samples(build: dovetail.Build, few: str) -> None:
    alone = evaluate_model(MODEL, few, CALIBRATION)
    kept, given = evaluate_model(MODEL, few, build=build), evaluate_model(MODEL, few, CALIBRATION, build=build)
    for found in (alone, kept, given):
        assert (found["calibration"], found["calibration_samples"], found["peer_note"]) == ("calibration.npz", 128, "")
    assert given["snr_db"]["onnxruntime_int8"] == alone["snr_db"]["onnxruntime_int8"]
    difference = kept["snr_db"]["onnxruntime_int8"] - alone["snr_db"]["onnxruntime_int8"]
    assert abs(difference) < 1.0  # a build keeps its samples as the integers of its input


def test_other_samples_than_those_of_a_build_are_refused(build: dovetail.Build, few: str) -> None:
    with pytest.raises(DovetailError, match=r"few.npz: not what .*build was calibrated with \(calibration.npz, 128 samples\)"):
        evaluate_model(MODEL, few, few, build=build)


def test_onnx_runtime_is_not_compared_where_a_builds_calibration_is_not_at_hand(build: dovetail.Build, few: str,
                                                                                tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(to_onnx(read_onnx(MODEL).graph))
    found = evaluate_model(other, few, build=build)
    assert "onnxruntime_int8" not in found["snr_db"]
    assert "made from another file (fashion.onnx)" in found["peer_note"]
    shutil.copytree(build.folder, tmp_path / "build")
    np.savez(tmp_path / "build" / SAMPLES, **{name: x[:64] for name, x in build.samples().items()})
    found = evaluate_model(MODEL, few, build=load_build(tmp_path / "build"))
    assert "onnxruntime_int8" not in found["snr_db"]
    assert "keeps 64 of 128 samples that calibrated it" in found["peer_note"]


def test_where_onnx_runtime_is_more_accurate_words_say_so() -> None:
    found = {"snr_db": {"int8": 29.2, "onnxruntime_int8": 30.9}, "agreement": {"int8": 0.99, "onnxruntime_int8": 0.98}}
    assert quality.peer_lead(found, {"int8": 0.9, "onnxruntime_int8": 0.91}) == (
        "ONNX Runtime's int8 is more accurate than these integers by output SNR (30.9 dB against 29.2 dB), "
        "right answers (0.9100 against 0.9000)")
    assert quality.peer_lead({"snr_db": {"int8": 30.91, "onnxruntime_int8": 30.9}, "agreement": None}) == ""
    assert quality.peer_lead({"snr_db": {"int8": 30.0}, "agreement": None}) == ""
