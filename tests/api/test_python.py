"""Python's interface: models and data in any form, results that show themselves, names that complete."""

from __future__ import annotations

import subprocess
import sys
from inspect import isfunction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import dovetail as dt
from dovetail.shown import MOST_ROWS, Shown
from tests.extension.changes import small_model

FASHION = Path(__file__).parents[2] / "examples" / "fashion"
FRAMES = np.random.default_rng(1).random((4, 3, 8, 8)).astype(np.float32)
QUICK = dt.Options(fold="none")


@pytest.fixture(scope="module")
def planned() -> dt.Planned:
    return dt.plan(small_model(), options=QUICK)


def test_importing_loads_nothing_and_completion_offers_everything() -> None:
    script = ("import sys, dovetail; print(sorted(set(dovetail.__all__) - set(dir(dovetail))), "
              "[m for m in sys.modules if m.startswith('dovetail.')], 'numpy' in sys.modules)")
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout == "[] [] False\n"
    assert all(getattr(dt, name).__doc__ for name in dt.__all__)
    assert {name for names in dt._HOMES.values() for name in names} == set(dt.__all__)
    with pytest.raises(AttributeError, match="module 'dovetail' has no attribute 'plann'"):
        _ = dt.plann


def test_a_model_may_come_in_any_form(tmp_path: Path) -> None:
    proto = small_model()
    onnx.save(proto, tmp_path / "renamed.onnx")
    found = dt.inspect(tmp_path / "renamed.onnx")
    assert found.graph.name == "renamed"
    forms = (proto, proto.SerializeToString(), found.graph)
    layers = [[row["layer"] for row in dt.inspect(form).rows()] for form in (str(tmp_path / "renamed.onnx"), *forms)]
    assert layers == [["conv1", "conv2", "larger", "conv3"]] * 4
    assert dt.inspect(proto).graph.name == "small"
    assert proto == small_model()


def test_what_is_no_model_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(dt.UsageError, match=r"model: a int; a path, the bytes of an ONNX file, an onnx\.ModelProto, a graph or "):
        dt.inspect(3)
    with pytest.raises(dt.ModelError, match="model: not an ONNX file or truncated"):
        dt.inspect(b"not a model")
    with pytest.raises(dt.UsageError, match="model small: shapes are given for x, but a graph has its shapes; leave them out"):
        dt.inspect(dt.inspect(small_model()).graph, shapes={"x": (1, 3, 8, 8)})
    with pytest.raises(dt.UsageError, match="example: only a PyTorch module is traced with an example"):
        dt.inspect(small_model(), example=FRAMES)
    onnx.save(small_model(), tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    apart = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    with pytest.raises(dt.ModelError, match=r"small: tensor \w+ lies in another file, and a model in memory has none beside it"):
        dt.inspect(apart)


def test_options_take_names_and_refuse_unknown_ones() -> None:
    asked = dt.Options(goal="energy", mode="sequential", equalise="off", pins={"conv1": "fpga"})
    assert (asked.goal, asked.mode, asked.pins["conv1"].devices) == (dt.Goal.ENERGY, dt.Mode.SEQUENTIAL, ("fpga",))
    with pytest.raises(dt.UsageError, match=r"goal enrgy: unknown \(did you mean energy\?\); possible: latency, energy, edp"):
        dt.Options(goal="enrgy")
    with pytest.raises(dt.UsageError, match="bus bits 48: 32, 64, 128, 256, 512 are possible"):
        dt.Options(bus_bits=48)


def test_results_are_a_line_a_table_and_a_data_frame(planned: dt.Planned, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    quantized = dt.quantize(small_model(), FRAMES, options=dt.Options(bits=6))
    front = dt.pareto(small_model(), "tx2", points=2)
    for result in (dt.inspect(small_model()), quantized, planned, front):
        assert repr(result).startswith(f"<{type(result).__name__}: small")
        assert len(repr(result)) < 160
        assert "\n" not in repr(result)
        shown = result._repr_html_()
        assert shown.count("<tr>") == len(result.rows()) + 1
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "pandas", None)
            with pytest.raises(dt.ToolError, match=r"pandas is not installed; .*'dovetail-accel\[notebook\]'"):
                result.to_pandas()
            patch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows: rows))
            assert result.to_pandas() == list(result.rows())
    assert {row["bits"] for row in quantized.rows()} == {6}
    assert "tensors of 6 bits, scales from 4 samples (arrays)" in repr(quantized)
    assert dt.inspect(quantized.save(tmp_path / "q.onnx")).graph.quantized
    assert dt.inspect(quantized).graph.quantized
    assert front.save(tmp_path / "front.svg").read_text(encoding="utf-8").startswith("<svg")


def test_tables_are_escaped_and_end() -> None:
    class Many(Shown):
        """A result with more rows than are shown."""

        def headline(self) -> str:
            return "<b>"

        def rows(self) -> list[dict[str, object]]:
            row = {"name": "<i>", "latency_s": 2e-6, "size": (2, 3), "known": False, "none": None}
            return [row] * (MOST_ROWS + 1)

    shown = Many()._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "<i>" not in shown
    assert "2.00 µs" in shown
    assert "2×3" in shown
    assert "<th>latency</th>" in shown
    assert "and 1 row more" in shown


def test_a_plan_knows_its_figures_and_is_saved_for_the_command_line(planned: dt.Planned, tmp_path: Path) -> None:
    assert planned.latency_s == planned.plan.latency_s
    assert planned.frames_per_s == pytest.approx(1 / planned.plan.interval_s)
    assert planned.rows()[0]["device"] in {"cpu", "gpu", "fpga"}
    assert any("no calibration data was given" in note for note in planned.notes)
    other = dt.plan(small_model(), options=dt.Options(fold="none", pins={"conv*": "gpu"}))
    beside = dt.compare(planned.save(tmp_path / "plan.json"), other)
    assert beside.figures()["latency_s"]["ratio"] > 1
    assert {row["layer"] for row in beside.rows()} >= {"conv1"}
    assert dt.compare(planned, planned).rows() == []
    with pytest.raises(dt.UsageError, match="absent: no such file; give a file of `dovetail plan -o`, or a build folder"):
        dt.compare("absent", planned)


def test_arrays_are_evaluated_as_files_are() -> None:
    images = np.load(FASHION / "test_images.npz")
    calibration = np.load(FASHION / "calibration.npz")["x"][:16]
    pair = (images["x"][:32], images["y"][:32])
    found = dt.evaluate(FASHION / "fashion.onnx", pair, calibration=calibration)
    again = dt.evaluate(FASHION / "fashion.onnx", {"x": pair[0], "y": pair[1]}, calibration=calibration)
    assert found == again
    assert found.found["images"] == 32
    assert 0.8 <= found.rows()[0]["right"] <= 1
    with pytest.raises(dt.UsageError, match=r"data: 31 labels of type \w+ for 32 images"):
        dt.evaluate(FASHION / "fashion.onnx", (pair[0], pair[1][:31]), calibration=calibration)


@pytest.mark.slow("builds and runs sub-models")
def test_a_build_in_memory_runs_and_shows_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    build = dt.compile(small_model(), "tx2", calibration=FRAMES)
    assert build.folder == Path("build/small")
    assert build.manifest["model"]["file"] == "small.onnx"
    assert repr(build).startswith("<BuiltModel: build/small: small on tx2: ")
    assert dt.load_build("build/small") == build
    assert dt.verify(build, 2).equal
    assert build.run(FRAMES).shape == (4, 2, 6, 6)
    assert [row["device"] for row in build.rows()] == [s.device for s in build.program.segments]


@pytest.mark.slow("imports PyTorch")
def test_a_pytorch_module_is_traced_and_left_as_it_was() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
                                 torch.nn.Linear(144, 5))
    found = dt.inspect(module, example=torch.zeros(2, 3, 8, 8))
    assert module.training
    assert [row["operator"] for row in found.rows()] == ["Conv", "Reshape", "Gemm"]
    assert dt.quantize(module, FRAMES).graph.quantized
    with pytest.raises(dt.UsageError, match="model: Sequential is a PyTorch module, which is traced with an input"):
        dt.inspect(module)

    class Wayward(torch.nn.Module):
        def forward(self, x: object) -> object:
            raise RuntimeError("no\nway")

    with pytest.raises(dt.ModelError, match=r"Wayward: PyTorch cannot export it \(.*no.*\); export it yourself"):
        dt.inspect(Wayward(), example=FRAMES)


def test_every_function_says_what_it_raises() -> None:
    functions = {name: found for name in dt.__all__ if isfunction(found := getattr(dt, name))}
    assert len(functions) > 10
    assert [name for name, found in functions.items() if "Raises:" not in (found.__doc__ or "")] == []
