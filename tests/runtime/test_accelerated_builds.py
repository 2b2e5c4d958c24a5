"""`compile --architecture`: an accelerator from plan to simulated proof, loaded again from its folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.cli.program import main
from dovetail.fpga.part import load_part_shell
from dovetail.ir import Add, AvgPool, Conv, GlobalAvgPool, Graph, Window
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.reference import run_integer
from dovetail.runtime.build import load_build, synthetic_integers
from dovetail.runtime.workers import StreamOptions
from tests.partition.test_hybrid import bottlenecks
from tests.strategies import Net, quantized


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
    with build.open_stream(StreamOptions(2, frames=2)) as stream:
        streamed = [stream.submit({name: x[i : i + 1] for name, x in inputs.items()}) for i in range(2)]
        for name, whole in expected.items():
            np.testing.assert_array_equal(np.concatenate([frame.result()[name] for frame in streamed]), whole)
    accelerator = build.platform.device("fpga").accelerator
    assert accelerator is not None
    assert set(accelerator.reusable) == {n.name for n in build.graph.nodes}
    assert json.loads((folder / "verification.json").read_text())["equal"]
    shell = load_part_shell(segment.graph, folder / "fpga")
    assert (folder / "fpga" / segment.name / "axi" / "memory.bin").read_bytes() == shell.memory_image
    assert main(["selftest", str(folder), "--frames", "2"]) == 0
    assert main(["export", str(folder), "--vendor", "vivado", "-o", str(tmp_path / "project")]) == 0
    (project,) = (p for p in (tmp_path / "project").iterdir() if p.is_dir())
    assert (project / "host" / "memory.bin").read_bytes() == shell.memory_image
    packed = (project / "package_ip.tcl").read_text()
    assert all(f"-busif m_axi{n} -clock clk" in packed for n in (0, 1)), "a ZC706 has two masters"
    assert not list((project / "rtl").glob("*weights_image*"))


def test_folds_and_architectures_exclude_each_other(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compile", str(model), "-p", "zc706", "--architecture", "fibha", "--fold", "auto", "-o", str(tmp_path / "b")]
    assert main(arguments) == 2
    assert "--architecture chooses the folds" in capsys.readouterr().err


def test_boards_without_an_fpga_say_so(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(model), "-p", "tx2", "--architecture", "auto"]) == 2
    assert "0 FPGAs; an accelerator for a network is built on one" in capsys.readouterr().err


def with_a_part_for_the_processor() -> Graph:
    """Inverted residuals around an average whose count depends on the position, which no engine computes."""
    net = Net(3)
    x = net.add(Conv(8, Window((3, 3), (2, 2), (1, 1, 1, 1))), net.input((1, 3, 13, 13)), name="stem")
    wide = net.add(Conv(24, Window((1, 1))), x, name="expand")
    deep = net.add(Conv(24, Window((3, 3), pads=(1, 1, 1, 1)), groups=24), wide, name="depthwise")
    joined = net.add(Add(), x, net.add(Conv(8, Window((1, 1))), deep, name="project"), name="join")
    mean = net.add(AvgPool(Window((3, 3), pads=(1, 1, 1, 1))), joined, name="edges")
    return quantized(net.graph(net.add(GlobalAvgPool(), net.add(Conv(4, Window((1, 1))), mean, name="last"), name="mean")))


def test_what_the_accelerator_cannot_compute_runs_on_the_processor(tmp_path: Path) -> None:
    path, folder = tmp_path / "model.onnx", tmp_path / "build"
    path.write_bytes(to_onnx(with_a_part_for_the_processor()))
    arguments = ["compile", str(path), "-p", "zcu102", "--architecture", "fibha", "--objective", "throughput"]
    assert main([*arguments, "--frames", "2", "-o", str(folder)]) == 0
    build = load_build(folder)
    accelerator = build.platform.device("fpga").accelerator
    assert accelerator is not None
    computed = {s.device: {n.name for n in s.graph.nodes} for s in build.program.segments}
    assert {n.name for n in build.graph.nodes if accelerator.has(n.name)} == {"stem", "expand", "depthwise", "project", "join"}
    assert {"edges", "last", "mean"} <= computed["cpu"]
    assert json.loads((folder / "verification.json").read_text())["equal"]
