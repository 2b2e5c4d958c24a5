"""`compile --architecture`: an accelerator from plan to simulated proof, loaded again from its folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.cli.program import main
from dovetail.ir.onnx_write import to_onnx
from dovetail.numerics.reference import run_integer
from dovetail.runtime.build import load_build, synthetic_integers
from tests.partition.test_hybrid import bottlenecks


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "bottlenecks.onnx"
    path.write_bytes(to_onnx(bottlenecks(9)))
    return path


def test_a_network_on_reusable_engines_is_built_proven_and_loaded_again(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "build"
    arguments = ["compile", str(model), "-p", "zc706", "--architecture", "seml", "--objective", "throughput"]
    assert main([*arguments, "--frames", "3", "-o", str(folder)]) == 0
    build = load_build(folder)
    (segment,) = build.program.segments
    inputs = synthetic_integers(segment.graph, 2, 5)
    expected = run_integer(segment.graph, inputs)
    for name, values in build.part(segment).run(inputs).items():
        np.testing.assert_array_equal(values, expected[name])
    accelerator = build.platform.device("fpga").accelerator
    assert accelerator is not None
    assert set(accelerator.reusable) == {n.name for n in build.graph.nodes}
    assert json.loads((folder / "verification.json").read_text())["equal"]
    assert not (folder / "fpga" / segment.name / "axi").exists()


def test_folds_and_architectures_exclude_each_other(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compile", str(model), "-p", "zc706", "--architecture", "fibha", "--fold", "auto", "-o", str(tmp_path / "b")]
    assert main(arguments) == 2
    assert "--architecture chooses the folds" in capsys.readouterr().err


def test_boards_without_an_fpga_say_so(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(model), "-p", "tx2", "--architecture", "auto"]) == 2
    assert "0 FPGAs; an accelerator for a network is built on one" in capsys.readouterr().err
